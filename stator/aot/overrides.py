"""Operators whose effect the schema does not tell: aliases, copies into memory, batch norm's running statistics.

Each function is called by the tracer like the operator, with the tracer first. Neighbour: `tracer.py` owns `SPECIAL`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from stator.aot.functional import Cell, Handle
from stator.aot.tracer import SPECIAL, Action, Tracer
from stator.base.errors import Unsupported
from stator.fake import FakeTensor
from stator.fake.layout import suggests_channels_last
from stator.graphs.checks import CHECK_PROBABILITIES

aten = torch.ops.aten


#: Registers a function as the meaning of some overloads.
special = SPECIAL.register


def _one_hot(tensor: torch.Tensor, num_classes: int = -1) -> torch.Tensor:
    """`one_hot` by a write at the class, so that a class out of range raises."""
    if num_classes < 0 or (num_classes == 0 and tensor.numel() == 0):
        return torch.nn.functional.one_hot(tensor, num_classes)
    zeros = torch.zeros(*tensor.shape, num_classes, dtype=torch.int64, device=tensor.device)
    return zeros.scatter(-1, tensor.unsqueeze(-1), 1)


def _quantile(function: Callable[..., Any], input: Any, q: Any, *args: Any, **kwargs: Any) -> Any:
    """A quantile whose places, where they are a tensor, lie between 0 and 1; a GPU does not ask."""
    out = function(input, q, *args, **kwargs)
    if isinstance(q, FakeTensor) and q.device.type == "cpu":
        CHECK_PROBABILITIES(q.detach())
    return out


_QUANTILES = (torch.quantile, torch.nanquantile, torch.Tensor.quantile, torch.Tensor.nanquantile)

#: Torch functions that take tensors without data at their word → what checks the data as eager does.
CHECKED: dict[Any, Callable[..., Any]] = {
    torch.nn.functional.one_hot: _one_hot,
    **{function: partial(_quantile, function) for function in _QUANTILES},
}


@special(aten.detach.default, aten.alias.default)
def _same(tracer: Tracer, x: Any) -> Any:
    return tracer.same(x)


@special(aten._conj.default)
def _conj(tracer: Tracer, x: Any) -> Any:
    """Of a number among the operands, as its derivative has it, or of a tensor."""
    if isinstance(x, complex):
        return tracer.run(aten.full.default, [], x.conjugate(), dtype=torch.complex128, device=torch.device("cpu"))
    return tracer.view(aten._conj.default, (x,), {})


@special(aten.detach_.default)
def _detach_in_place(tracer: Tracer, x: Any) -> Any:
    return x


@special(aten.lift_fresh.default, aten.lift.default, aten.lift_fresh_copy.default)
def _lift(tracer: Tracer, x: Any) -> Any:
    return tracer.lift(x)


@special(aten._unsafe_view.default)
def _unsafe_view(tracer: Tracer, x: Any, size: Any) -> Any:
    return _its_own(tracer, tracer.run(aten.view.default, x, size))


def _its_own(tracer: Tracer, out: Any) -> Any:
    """Of an "unsafe" view, nobody uses the operand again: to autograd the result has its own memory."""
    node = tracer.node(out)
    out.handle = Handle(Cell(node), (), node)
    return out


@special(aten._reshape_alias.default)
def _reshape_alias(tracer: Tracer, x: Any, size: Any, stride: Any) -> Any:
    return tracer.run(aten.view.default, x, size)


@special(aten._efficientzerotensor.default)
def _zeros_without_memory(tracer: Tracer, size: Any, **options: Any) -> Any:
    """`_efficientzerotensor(…)` --> zeros with memory, which kernels can read; products of them are such zeros too."""
    for func, operands in ABSORBED.items():
        tracer.override(func, partial(_absorbed, tracer, operands))
    out = tracer.run(aten.zeros.default, size, **options)
    tracer.absent.append(out.handle.cell)
    return out


#: Overload → which operands make its result zeros without memory, if all of these are; eager looks at no other.
ABSORBED: dict[Any, tuple[tuple[int, ...], ...]] = {
    aten.mul.Tensor: ((0,), (1,)),
    aten.mul.Scalar: ((0,),),
    aten.div.Tensor: ((0,),),
    aten.div.Scalar: ((0,),),
    aten.dot.default: ((0,), (1,)),
    aten.vdot.default: ((0,), (1,)),
    aten.add.Tensor: ((0, 1),),
    aten.sub.Tensor: ((0, 1),),
}


def _absorbed(tracer: Tracer, operands: Any, usual: Action, func: Any, args: Any, kwargs: Any) -> Any:
    """What an operator gives of zeros without memory: zeros, beside NaN too and over zeros with memory.

    Two of them have a quotient that is computed: NaN. In a formula nothing is absorbed: the kernel that it stands for
    computes with zeros.
    """
    if tracer.formulating:
        return usual(func, args, kwargs)
    absent = [isinstance(arg, FakeTensor) and _is_absent(tracer, arg) for arg in args]
    out = usual(func, args, kwargs)
    quotient_of_two = func is aten.div.Tensor and all(absent)
    if quotient_of_two or not any(all(absent[i] for i in together) for together in operands):
        return out
    return _zeros_without_memory(tracer, list(out.shape), dtype=out.dtype, device=out.device)


def _is_absent(tracer: Tracer, x: FakeTensor) -> bool:
    return x.handle is not None and x.handle.cell.version == 0 and any(cell is x.handle.cell for cell in tracer.absent)


# ---- numbers that describe a tensor: sizes, and no nodes -------------------------------------------------------------


@special(aten.size.default, aten.sym_size.default)
def _sizes(tracer: Tracer, x: Any) -> Any:
    return tuple(x.shape)


@special(aten.sym_size.int, aten.size.int)
def _size(tracer: Tracer, x: Any, dim: int) -> Any:
    return x.size(dim)


@special(aten.sym_stride.int, aten.stride.int)
def _stride(tracer: Tracer, x: Any, dim: int) -> Any:
    return x.stride(dim)


@special(aten.sym_numel.default)
def _numel(tracer: Tracer, x: Any) -> Any:
    return x.numel()


@special(aten.sym_storage_offset.default)
def _storage_offset(tracer: Tracer, x: Any) -> Any:
    return x.storage_offset()


#: No size is less: from here on down an integer of PyTorch's is the address of a symbolic one (c10::SymInt).
_ADDRESSES = -(2**62)


@special(aten._fused_rms_norm_backward.default)
def _rms_norm_backward(tracer: Tracer, grad: Any, x: Any, shape: Any, *rest: Any) -> Any:
    """Autograd keeps the sizes of `rms_norm` as integers, symbolic ones too; they are those of the last dims."""
    last = x.shape[x.dim() - len(shape) :]
    sizes = [size if n < _ADDRESSES else n for n, size in zip(shape, last, strict=True)]
    func = aten._fused_rms_norm_backward.default
    run = tracer.decompose if func in tracer.decompositions else tracer.compute
    return run(func, (grad, x, sizes, *rest), {})


# ---- views with several results: one view each, so that each can be written through ----------------------------------


@special(aten.split.Tensor)
def _split(tracer: Tracer, x: Any, length: int, dim: int = 0) -> list[Any]:
    extent = x.shape[dim]
    # How many pieces there are is a number.
    count = int((extent + length - 1) // length) if length and extent else 1
    ends = [*[(i + 1) * length for i in range(count - 1)], extent]
    return [tracer.run(aten.slice.Tensor, x, dim, i * length, end) for i, end in enumerate(ends)]


@special(aten.split_with_sizes.default)
def _split_with_sizes(tracer: Tracer, x: Any, lengths: Any, dim: int = 0) -> list[Any]:
    pieces, start = [], 0
    for length in lengths:
        pieces.append(tracer.run(aten.slice.Tensor, x, dim, start, start + length))
        start += length
    return pieces


@special(aten.unsafe_split.Tensor)
def _unsafe_split(tracer: Tracer, x: Any, length: int, dim: int = 0) -> list[Any]:
    return [_its_own(tracer, piece) for piece in _split(tracer, x, length, dim)]


@special(aten.unsafe_split_with_sizes.default)
def _unsafe_split_with_sizes(tracer: Tracer, x: Any, lengths: Any, dim: int = 0) -> list[Any]:
    return [_its_own(tracer, piece) for piece in _split_with_sizes(tracer, x, lengths, dim)]


@special(aten.unbind.int)
def _unbind(tracer: Tracer, x: Any, dim: int = 0) -> list[Any]:
    return [tracer.run(aten.select.int, x, dim, i) for i in range(x.shape[dim])]


# ---- copies into memory ----------------------------------------------------------------------------------------------


#: What eager takes a number for that is copied.
_DTYPES = {bool: torch.bool, int: torch.int64, float: torch.float64, complex: torch.complex128}


@special(aten.copy_.default)
def _copy_in_place(tracer: Tracer, target: Any, source: Any, non_blocking: bool = False) -> Any:
    """`x.copy_(y)` --> a copy of `y` with the size, dtype, device and layout of `x`."""
    if not isinstance(source, torch.Tensor):
        source = tracer.run(aten.scalar_tensor.default, source, dtype=_DTYPES[type(source)], device=target.device)
    target, source = tracer.fakes((target, source))
    if source.shape != target.shape:
        source = tracer.run(aten.expand.default, source, list(target.shape))
    options: dict[str, Any] = {}
    if target.is_contiguous() and not source.is_contiguous():
        options["memory_format"] = torch.contiguous_format
    if source.dtype is not target.dtype or source.device != target.device:
        options.update(dtype=target.dtype, device=target.device)
        value = tracer.run(aten._to_copy.default, source, **options)
    else:
        value = tracer.run(aten.clone.default, source, **options)
    tracer.assign(target, value)
    return target


@special(aten.fill_.Scalar)
def _fill(tracer: Tracer, x: Any, value: Any) -> Any:
    """`x.fill_(v)` --> a fresh constant: nothing of `x` is read."""
    (x,) = tracer.fakes((x,))
    options = {"dtype": x.dtype, "device": x.device}
    if x.is_contiguous() or x.handle.steps:
        tracer.assign(x, tracer.run(aten.full.default, list(x.shape), value, **options))
    else:
        tracer.assign(x, tracer.run(aten.full_like.default, x, value))
    return x


@special(aten.zero_.default)
def _zero(tracer: Tracer, x: Any) -> Any:
    return _fill(tracer, x, False if x.dtype is torch.bool else 0)


@special(aten.fill_.Tensor)
def _fill_tensor(tracer: Tracer, x: Any, value: Any) -> Any:
    return _copy_in_place(tracer, x, value)


# ---- batch norm: running statistics are written without the schema saying so -----------------------------------------


@special(aten.native_batch_norm.default, aten._native_batch_norm_legit.default)
def _batch_norm(
    tracer: Tracer, x: Any, weight: Any, bias: Any, mean: Any, var: Any, training: bool, momentum: float, eps: float
) -> Any:
    if not training:
        action = tracer.decompose if aten.native_batch_norm.default in tracer.decompositions else tracer.compute
        return action(aten.native_batch_norm.default, (x, weight, bias, mean, var, False, momentum, eps), {})
    if mean is None or var is None:
        return tracer.run(aten._native_batch_norm_legit.no_stats, x, weight, bias, True, momentum, eps)
    functional = aten._native_batch_norm_legit_functional.default
    *outs, new_mean, new_var = tracer.run(functional, x, weight, bias, mean, var, True, momentum, eps)
    mean, var = tracer.fakes((mean, var))
    tracer.assign(mean, new_mean)
    tracer.assign(var, new_var)
    return tuple(outs)


@special(aten.cudnn_batch_norm.default, aten.miopen_batch_norm.default)
def _accelerated_batch_norm(
    tracer: Tracer, x: Any, weight: Any, bias: Any, mean: Any, var: Any, training: bool, momentum: float, eps: float
) -> Any:
    outs = _batch_norm(tracer, x, weight, bias, mean, var, training, momentum, eps)
    reserve = tracer.run(aten.empty.memory_format, [0], dtype=torch.uint8, device=x.device)
    return (*outs, reserve)


@special(aten._batch_norm_with_update.default)
def _batch_norm_with_update(
    tracer: Tracer, x: Any, weight: Any, bias: Any, mean: Any, var: Any, momentum: float, eps: float
) -> Any:
    return _accelerated_batch_norm(tracer, x, weight, bias, mean, var, True, momentum, eps)


@special(aten.cudnn_batch_norm_backward.default)
def _accelerated_batch_norm_backward(
    tracer: Tracer,
    x: Any,
    grad: Any,
    weight: Any,
    mean: Any,
    var: Any,
    saved_mean: Any,
    saved_rstd: Any,
    eps: float,
    reserve: Any,
) -> Any:
    return tracer.run(
        aten.native_batch_norm_backward.default,
        grad, x, weight, mean, var, saved_mean, saved_rstd, True, eps, [True, True, True],
    )  # fmt: skip


# ---- quantization: statistics that are written, and not returned -----------------------------------------------------


@special(aten._fused_moving_avg_obs_fq_helper.default)
def _observe(tracer: Tracer, x: Any, observes: Any, rounds: Any, *args: Any, **kwargs: Any) -> Any:
    functional = aten._fused_moving_avg_obs_fq_helper_functional.default
    *outs, low, high, scale, zero_point = tracer.run(functional, x, observes, rounds, *args, **kwargs)
    for old, new in zip(args[:4], (low, high, scale, zero_point), strict=True):
        tracer.assign(tracer.fakes((old,))[0], new)
    return tuple(outs)


# ---- pools: a kernel that refuses some layouts -----------------------------------------------------------------------


@special(aten.max_pool3d_with_indices_backward.default)
def _max_pool_of_volumes_backward(tracer: Tracer, grad: Any, x: Any, *args: Any) -> Any:
    """A volume without a batch is asked for the layout of images, and refused; a result that is laid out so is not.

    Its tangent may be: the layout of a result is asked of its tangent here, while eager takes what it is given.
    """
    func = aten.max_pool3d_with_indices_backward.default
    grad, x = tracer.fakes((grad, x))
    if x.device.type == "cpu" and x.dim() == 4 and suggests_channels_last(grad):
        grad = tracer.run(aten.clone.default, grad, memory_format=torch.contiguous_format)
    return tracer.compute(func, (grad, x, *args), {})


# ---- random slopes: kept in an argument, which the schema says is written but not returned ---------------------------


@special(aten.rrelu_with_noise.default)
def _rrelu(tracer: Tracer, x: Any, noise: Any, *args: Any, **kwargs: Any) -> Any:
    out, slopes = tracer.run(aten.rrelu_with_noise_functional.default, x, noise, *args, **kwargs)
    tracer.assign(*tracer.fakes((noise, slopes)))
    return out


@special(aten.rrelu_with_noise_.default)
def _rrelu_in_place(tracer: Tracer, x: Any, noise: Any, *args: Any, **kwargs: Any) -> Any:
    tracer.assign(*tracer.fakes((x, _rrelu(tracer, x, noise, *args, **kwargs))))
    return x


# ---- what no graph can hold ------------------------------------------------------------------------------------------


@special(aten.record_stream.default)
def _refuse_stream(tracer: Tracer, x: FakeTensor, stream: Any) -> None:
    hint = "call it on what the compiled function takes or gives"
    raise Unsupported("record_stream", "a graph keeps its memory for the stream that it runs on", hint)


@special(aten.set_.source_Tensor, aten.set_.source_Storage, aten.resize_.default, aten.resize_as_.default)
def _refuse(tracer: Tracer, x: FakeTensor, *args: Any, **kwargs: Any) -> Any:
    raise Unsupported("set_ or resize_", "it changes the memory of a tensor in place")
