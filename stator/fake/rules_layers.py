"""Shape rules of network layers: attention, convolution, norms, losses, scatters, sorting.

As everywhere a rule answers for the usual layouts (contiguous, channels last) and leaves the rest to the meta kernel.
Neighbours: as `rules.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch

from stator.base.errors import DataDependent
from stator.fake.execute import argument, aten, plan_of, run_on_meta
from stator.fake.layout import (
    channels_last_strides,
    contiguous_strides,
    dense_like,
    has_channels_last,
    is_float,
    is_plain,
    promote,
    same,
    suggests_channels_last,
    view_strides,
)
from stator.fake.rules import broadcast, fresh, like, rule
from stator.fake.tensor import FakeTensor, forget, make

# ---- backwards that are called for nothing ---------------------------------------------------------------------------


def rule_of_gradients(func: Any) -> Any:
    """Registers a shape rule of a backward whose kernel leaves all results undefined where no gradient is defined.

    Most derivative formulas ask first; these call their kernel with whatever comes, nothing from behind a norm of order
    0, say. Which do was found by such a norm of each operator of PyTorch's database, on both devices.
    """
    of = [i for i, a in enumerate(func._schema.arguments) if _is_gradient(a)]

    def enter(shapes: Any) -> Any:
        @rule(func)
        def decide(*args: Any, **kwargs: Any) -> Any:
            if all(argument(func, args, kwargs, i) is None for i in of):
                return (None,) * len(func._schema.returns)
            return shapes(*args, **kwargs)

        return shapes

    return enter


def _is_gradient(parameter: Any) -> bool:
    return bool(parameter.name.startswith("grad_") and str(parameter.type) in ("Tensor", "Optional[Tensor]"))


for _name in (
    "_scaled_dot_product_flash_attention_backward",
    "_scaled_dot_product_efficient_attention_backward",
    "_thnn_fused_lstm_cell_backward_impl",
):
    rule_of_gradients(getattr(aten, _name).default)(lambda *args, **kwargs: NotImplemented)


# ---- attention -------------------------------------------------------------------------------------------------------


@rule(aten._scaled_dot_product_flash_attention_for_cpu.default)
def _attention(q: Any, k: Any, v: Any, *args: Any, **kwargs: Any) -> Any:
    batch, heads, length, _ = q.shape
    dtype = torch.float64 if q.dtype is torch.float64 else torch.float32
    statistics = make((batch, heads, length), dtype, q.device, (heads * length, 1, heads))
    return like(q, None, None, None), statistics


@rule(aten._scaled_dot_product_cudnn_attention.default)
def _cudnn_attention(q: Any, k: Any, v: Any, bias: Any, wants_sums: bool, *args: Any, **kwargs: Any) -> Any:
    """The kernel leaves the sums undefined where they are not wanted; the meta kernel makes them all the same."""
    func = aten._scaled_dot_product_cudnn_attention.default
    found = run_on_meta(func, plan_of(func), (q, k, v, bias, wants_sums, *args), kwargs)
    return found if wants_sums else (found[0], None, *found[2:])


@rule(aten._scaled_dot_product_efficient_attention.default)
def _memory_efficient_attention(q: Any, k: Any, v: Any, bias: Any, wants_sums: bool, *args: Any, **kwargs: Any) -> Any:
    """Heads lie side by side in each row; sums are of rows up to a multiple of 32, of any size that is symbolic."""
    batch, heads, length, _ = q.shape
    width = v.shape[-1]
    stride = (length * heads * width, width, heads * width, 1)
    result = make((batch, heads, length, width), q.dtype, q.device, stride)
    sums = make((batch, heads, (length + 31) // 32 * 32 if wants_sums else 0), torch.float32, q.device)
    return result, sums, *_random_state()


@rule(aten._efficient_attention_forward.default)
def _efficient_attention(*args: Any, **kwargs: Any) -> Any:
    func = aten._efficient_attention_forward.default
    found = run_on_meta(func, plan_of(func), args, kwargs)
    return (*found[:2], *_random_state(), *found[4:])


def _random_state() -> tuple[FakeTensor, FakeTensor]:
    """Seed and offset of the random numbers lie on the host, where meta kernels have them on the GPU."""
    host = torch.device("cpu")
    return make((), torch.int64, host), make((), torch.int64, host)


@rule_of_gradients(aten._scaled_dot_product_flash_attention_for_cpu_backward.default)
def _attention_backward(grad: Any, q: Any, k: Any, v: Any, *args: Any, **kwargs: Any) -> Any:
    return tuple(_heads_inside(x) for x in (q, k, v))


def _heads_inside(x: FakeTensor) -> FakeTensor:
    _, heads, length, width = x.shape
    stride = (length * heads * width, width, heads * width, 1)
    return make(x.shape, x.dtype, x.device, stride)


@rule_of_gradients(aten._efficient_attention_backward.default)
def _efficient_attention_backward(
    grad: Any, query: Any, key: Any, value: Any, bias: Any, *args: Any, **kwargs: Any
) -> Any:
    """Its meta kernel takes other arguments than the operator."""
    wanted, shared = args[-1], kwargs.get("shared_storage_dqdkdv", False)
    if shared or (wanted and bias is None):
        return NotImplemented
    gradients = [make(tuple(x.shape), x.dtype, x.device) for x in (query, key, value)]
    if not wanted:
        return (*gradients, None)
    *outer, last = bias.shape
    padded = contiguous_strides((*outer, -(-last // 16) * 16))
    return (*gradients, make((*outer, last), bias.dtype, bias.device, padded))


# ---- recurrent layers ------------------------------------------------------------------------------------------------

#: Bytes of what an LSTM's backward needs, for each number of its result: four gates and two states. An estimate: only
#: the kernel knows.
_LSTM_WORKSPACE = 24


@rule(aten.mkldnn_rnn_layer.default)
def _recurrent_layer(
    x: Any, w0: Any, w1: Any, w2: Any, w3: Any, h: Any, c: Any, reverse: Any, batch_sizes: Any, mode: Any, hidden: Any,
    *flags: Any,
) -> Any:  # fmt: skip
    steps, batch, _ = x.shape
    workspace = make((steps * batch * hidden * _LSTM_WORKSPACE,), torch.uint8, x.device)
    out = make((steps, batch, hidden), x.dtype, x.device)
    return out, make(h.shape, h.dtype, h.device), make(c.shape, c.dtype, c.device), workspace


@rule_of_gradients(aten.mkldnn_rnn_layer_backward.default)
def _recurrent_layer_backward(
    x: Any, w0: Any, w1: Any, w2: Any, w3: Any, h: Any, c: Any, *rest: Any, **named: Any
) -> Any:
    shapes = (x.shape, w0.shape, w1.shape, w0.shape[:1], w0.shape[:1], h.shape, c.shape)
    return tuple([make(shape, torch.float32, x.device) for shape in shapes])


# ---- convolution -----------------------------------------------------------------------------------------------------


def image(size: Sequence[int], x: FakeTensor, dtype: torch.dtype | None = None, *others: FakeTensor) -> Any:
    """A fresh batch of images in the layout of the inputs."""
    dtype = dtype or x.dtype
    if len(size) in (4, 5) and any(is_channels_last(t) for t in (x, *others)):
        return make(size, dtype, x.device, channels_last_strides(size))
    return make(size, dtype, x.device) if x.is_contiguous() else NotImplemented


def is_channels_last(x: FakeTensor) -> bool:
    return not is_plain(x) and suggests_channels_last(x)


def _rows(x: FakeTensor, pack: bool = False) -> tuple[list[int], list[int]]:
    """A batch of signals as images of one row, as kernels of convolution take it."""
    size = list(x.shape)
    stride = list(contiguous_strides(size) if pack and not x.is_contiguous() else x.stride())
    return [*size[:2], 1, size[2]], [*stride[:2], size[2] * stride[2], stride[2]]


def _convolved(size: list[int], x: FakeTensor, weight: FakeTensor, by_onednn: bool) -> FakeTensor:
    """The result of a convolution on the CPU: with the channel innermost if an operand has it so.

    The other kernels for volumes know one layout.
    """
    if len(size) == 3:
        return _convolved_signal(size, x, weight, not (weight.shape[1] == 1 and weight.shape[2] == 1))
    last = (len(size) == 4 or by_onednn) and (suggests_channels_last(x) or suggests_channels_last(weight))
    return make(size, x.dtype, x.device, channels_last_strides(size) if last else None)


def _convolved_signal(size: list[int], x: FakeTensor, weight: FakeTensor, by_weight: bool) -> FakeTensor:
    """Signals are packed first, so that the weight tells where the channel lies, or dims of one element."""
    by_weight = by_weight and has_channels_last(*_rows(weight))
    if not (by_weight or has_channels_last(*_rows(x, pack=True))):
        return make(size, x.dtype, x.device)
    batch, channel, _, step = channels_last_strides([*size[:2], 1, size[2]])
    return make(size, x.dtype, x.device, (batch, channel, step))


def per_dim(value: Any, rank: int) -> list[int]:
    values = list(value) if isinstance(value, (list, tuple)) else [value]
    return values * rank if len(values) == 1 else values


@rule(aten.convolution.default)
def _convolution(
    x: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, transposed: bool, extra: Any, groups: int
) -> Any:
    rank = weight.dim() - 2
    if x.dim() != rank + 2 or x.dtype is not weight.dtype or 0 in weight.shape or x.shape[1] == 0:
        return NotImplemented
    stride, padding, dilation, extra = (per_dim(value, rank) for value in (stride, padding, dilation, extra))
    spatial = []
    for i in range(rank):
        reach = dilation[i] * (weight.shape[i + 2] - 1) + 1
        extent = x.shape[i + 2]
        if transposed:
            spatial.append((extent - 1) * stride[i] - 2 * padding[i] + reach + extra[i])
        else:
            spatial.append((extent + 2 * padding[i] - reach) // stride[i] + 1)
    channels = weight.shape[1] * groups if transposed else weight.shape[0]
    fits = x.shape[1] == (weight.shape[0] if transposed else weight.shape[1] * groups)
    if not fits or any(extent <= 0 for extent in spatial):
        return NotImplemented
    size = [x.shape[0], channels, *spatial]
    if x.device.type != "cpu":
        if rank == 1 and groups == 1 and x.dtype is not torch.float64:  # cuDNN's, of which doubles have one layout
            return _convolved_signal(size, x, weight, by_weight=True)
        return image(size, x, None, weight)
    padded = transposed and any(more >= step for more, step in zip(extra, stride, strict=True))
    return _convolved(size, x, weight, not padded and _by_onednn(x, weight, groups))


def _by_onednn(x: FakeTensor, weight: FakeTensor, groups: int) -> bool:
    """Whether PyTorch leaves a convolution in three dims to oneDNN, which it does not where that is little work."""
    if x.dim() != 5 or x.dtype is torch.float64 or not torch.backends.mkldnn.is_available():
        return False
    if x.dtype is not torch.float32 or groups > 1 or x.shape[0] > 1:
        return True
    wide = weight.shape[-1] > 3 and weight.shape[-2] > 3
    return wide or x.shape[0] * x.shape[1] * x.shape[2] * x.shape[3] > 20480


@rule(aten.convolution_backward.default)
def _convolution_backward(grad: Any, x: Any, weight: Any, bias: Any, *args: Any) -> Any:
    mask = args[-1]
    d_input = image(x.shape, x, None, grad, weight) if mask[0] else None
    d_weight = image(weight.shape, weight, None, grad, x) if mask[1] else None
    if d_input is NotImplemented or d_weight is NotImplemented:
        return NotImplemented
    return d_input, d_weight, make((grad.shape[1],), grad.dtype, grad.device) if mask[2] else None


# ---- norms -----------------------------------------------------------------------------------------------------------


@rule(aten.native_batch_norm.default)
def _writing_batch_norm(x: Any, weight: Any, bias: Any, mean: Any, var: Any, training: bool, *args: Any) -> Any:
    """Its schema does not say that it writes statistics."""
    if training:
        forget(mean, var)
    return _batch_norm(x, weight, bias, mean, var, training)


@rule(aten._native_batch_norm_legit.default)
def _batch_norm(x: Any, weight: Any, bias: Any, mean: Any, var: Any, training: bool, *args: Any) -> Any:
    if training and 0 in x.shape and x.device.type == "cpu":
        raise RuntimeError(f"input tensor must have at least one element, but got input_sizes = {list(x.shape)}")
    for statistic in (mean, var):
        if statistic is not None and statistic.dim() != 1:
            raise RuntimeError(f"TensorAccessor expected 1 dims but tensor has {statistic.dim()}")
    on_cpu = x.device.type == "cpu"
    if not (on_cpu or x.is_contiguous() or is_channels_last(x)):
        return NotImplemented
    dtype = weight.dtype if weight is not None else x.dtype
    if not on_cpu and x.dtype in (torch.float16, torch.bfloat16):
        dtype = torch.float32
    statistics = partial(make, (x.shape[1] if training or not on_cpu else 0,), dtype, x.device)
    return _normalised(x), statistics(), statistics()


def _normalised(x: FakeTensor) -> FakeTensor:
    """Like `x`, on the CPU in the layout that it suggests."""
    if x.device.type != "cpu":
        made: FakeTensor = like(x, None, None, None)
        return made
    inside = not x.is_contiguous() and (_is_packed_channels_last(x) or suggests_channels_last(x))
    return make(x.shape, x.dtype, x.device, channels_last_strides(x.shape) if inside else None)


def _is_packed_channels_last(x: FakeTensor) -> bool:
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    return x.dim() in formats and x.is_contiguous(memory_format=formats[x.dim()])


@rule(aten._native_batch_norm_legit.no_stats)
def _batch_norm_no_stats(x: Any, weight: Any, bias: Any, training: bool, *args: Any) -> Any:
    return _batch_norm(x, weight, bias, None, None, training)


@rule(aten._native_batch_norm_legit_functional.default)
def _batch_norm_functional(x: Any, weight: Any, bias: Any, mean: Any, var: Any, training: bool, *args: Any) -> Any:
    outs = _batch_norm(x, weight, bias, mean, var, training)
    return NotImplemented if outs is NotImplemented else (*outs, fresh((mean,), mean.dtype), fresh((var,), var.dtype))


@rule(aten._batch_norm_with_update.default)
def _batch_norm_with_update(x: Any, weight: Any, bias: Any, mean: Any, var: Any, *args: Any) -> Any:
    """On the CPU it is the one above, and reserves nothing for backward."""
    outs = _batch_norm(x, weight, bias, mean, var, True) if x.device.type == "cpu" else NotImplemented
    return NotImplemented if outs is NotImplemented else (*outs, make((0,), torch.uint8, x.device))


@rule(aten.native_batch_norm_backward.default)
def _batch_norm_backward(grad: Any, x: Any, weight: Any, *args: Any) -> Any:
    return _norm_gradients(x, weight, args[-1])


def _norm_gradients(x: Any, weight: Any, mask: Sequence[bool]) -> Any:
    if not (x.is_contiguous() or is_channels_last(x)):
        return NotImplemented
    dtype = weight.dtype if weight is not None else x.dtype
    parameters = [make((x.shape[1],), dtype, x.device) if wanted else None for wanted in mask[1:]]
    return _normalised(x) if mask[0] else None, *parameters


@rule(aten.native_group_norm.default)
def _group_norm(x: Any, weight: Any, bias: Any, n: int, c: int, hw: int, groups: int, eps: float) -> Any:
    func = aten.native_group_norm.default
    last = x.device.type == "cpu" and suggests_channels_last(x)
    if x.is_contiguous() and x.dtype not in (torch.float16, torch.bfloat16):
        statistics = [make((n, groups), x.dtype, x.device) for _ in range(2)]
    elif last:
        statistics = run_on_meta(func, plan_of(func), (x, weight, bias, n, c, hw, groups, eps), {})[1:]
    else:
        return NotImplemented
    return make(x.shape, x.dtype, x.device, channels_last_strides(x.shape) if last else None), *statistics


@rule(aten.native_group_norm_backward.default)
def _group_norm_backward(grad: Any, x: Any, mean: Any, rstd: Any, weight: Any, *args: Any) -> Any:
    """On the CPU in the layout of `x`, which the shape function forgets."""
    known = x.is_contiguous() or (x.device.type == "cpu" and suggests_channels_last(x))
    return _norm_gradients(x, weight, args[-1]) if known else NotImplemented


@rule(aten.cudnn_grid_sampler.default)
def _grid_sampler(x: Any, grid: Any) -> Any:
    return make((*x.shape[:2], *grid.shape[1:3]), x.dtype, x.device)


@rule(aten.cudnn_grid_sampler_backward.default)
def _grid_sampler_backward(x: Any, grid: Any, grad: Any) -> Any:
    return make(x.shape, x.dtype, x.device), make(grid.shape, grid.dtype, grid.device)


@rule(aten._fused_rms_norm_backward.default)
def _rms_norm_backward(grad: Any, x: Any, shape: Any, rstd: Any, weight: Any, mask: Sequence[bool]) -> Any:
    given = [value if wanted else None for value, wanted in zip((x, weight), mask, strict=True)]
    return tuple([None if value is None else make(value.shape, value.dtype, value.device) for value in given])


# ---- losses ----------------------------------------------------------------------------------------------------------


@rule(aten._use_cudnn_ctc_loss.default, aten._use_cudnn_ctc_loss.Tensor)
def _cudnn_aligns(x: Any, targets: Any, lengths: Any, target_lengths: Any, blank: int) -> bool:
    """cuDNN has this loss for one kind of operands; with those, it depends on the lengths."""
    if blank or x.dtype is not torch.float32 or targets.dtype is not torch.int32 or targets.dim() != 1:
        return False
    raise DataDependent("ctc_loss")


@rule(aten._use_miopen_ctc_loss.default, aten._use_miopen_ctc_loss.Tensor)
def _miopen_aligns(*args: Any) -> bool:
    if torch.version.hip is None:
        return False
    raise DataDependent("ctc_loss")


@rule(aten.nll_loss_forward.default)
def _nll(x: Any, target: Any, weight: Any, reduction: int, ignore: int) -> Any:
    fits = x.dim() in (1, 2) and target.dtype in (torch.int64, torch.uint8) and same(target.shape, x.shape[:-1])
    if not (fits or (x.dim() == 1 and same(target.shape, (1,)))):
        return NotImplemented
    if weight is not None and weight.dtype is not x.dtype:
        wanted, given = (torch.empty(0, dtype=t.dtype).type()[6:-6] for t in (x, weight))
        raise RuntimeError(f"expected scalar type {wanted} but found {given}")
    if weight is not None and not same(weight.shape, x.shape[-1:]):
        return NotImplemented
    size = (x.shape[0],) if reduction == 0 and x.dim() == 2 else ()
    return make(size, x.dtype, x.device), make((), x.dtype, x.device)


@rule(aten.nll_loss_backward.default)
def _nll_backward(grad: Any, x: Any, *args: Any) -> Any:
    return make(x.shape, x.dtype, x.device) if x.is_contiguous() else NotImplemented


@rule(aten.log_sigmoid_forward.default)
def _log_sigmoid(x: Any) -> Any:
    """On a CPU both results are contiguous; a GPU needs no buffer for its gradient."""
    if x.device.type == "cpu":
        return make(x.shape, x.dtype, x.device), make(x.shape, x.dtype, x.device)
    return fresh((x,), x.dtype), make((0,), x.dtype, x.device)


@rule(aten.mse_loss.default)
def _mse(x: Any, target: Any, reduction: int = 1) -> Any:
    dtype = promote((x, target))
    return fresh((x, target), dtype, common=dtype) if reduction == 0 else make((), x.dtype, x.device)


@rule(aten.smooth_l1_loss.default)
def _smooth_l1(x: Any, target: Any, reduction: int = 1, beta: float = 1.0) -> Any:
    return NotImplemented if reduction else _mse(x, target, 0)


@rule(aten.binary_cross_entropy.default)
def _cross_entropy(x: Any, target: Any, weight: Any = None, reduction: int = 1) -> Any:
    """Written into memory that was made like the first operand."""
    return NotImplemented if reduction or not same(x.shape, target.shape) else like(x, None, None, None)


@rule(aten.binary_cross_entropy_with_logits.default)
def _crossed(x: Any, target: Any, weight: Any = None, pos_weight: Any = None, reduction: int = 1) -> Any:
    """Computed in place of `1 - target`, which is made like the target, so no weight may be larger."""
    for each in (weight, pos_weight):
        whole = None if each is None else broadcast([x, each])
        if whole is not None and not same(whole, x.shape):
            raise RuntimeError(f"output with shape {list(x.shape)} doesn't match the broadcast shape {list(whole)}")
    if not same(x.shape, target.shape) or not (is_float(x.dtype) and is_float(target.dtype)):
        return NotImplemented
    if reduction:
        return make((), x.dtype, x.device) if x.dtype is target.dtype else NotImplemented
    return like(target, None, None, None)


@rule(aten.huber_loss.default)
def _huber(x: Any, target: Any, reduction: int = 1, delta: float = 1.0) -> Any:
    """Written into memory that was made like the first operand."""
    if reduction and is_float(x.dtype) and is_float(target.dtype) and broadcast([x, target]) is not None:
        return make((), x.dtype, x.device)
    return NotImplemented if reduction or not same(x.shape, target.shape) else like(x, None, None, None)


# ---- values of one tensor replaced by another's ----------------------------------------------------------------------


@rule(aten.select_backward.default, aten.slice_backward.default, aten.diagonal_backward.default)
def _view_backward(grad: Any, size: Any, *args: Any) -> Any:
    return make(size, grad.dtype, grad.device)


@rule(aten.where.ScalarOther)
def _where_other(condition: Any, x: Any, number: Any) -> Any:
    return fresh((condition, x), promote((x, number)))


@rule(aten.where.ScalarSelf)
def _where_self(condition: Any, number: Any, x: Any) -> Any:
    return fresh((condition, x), promote((x, number)))


@rule(aten.stack.default)
def _stack(tensors: Any, dim: int = 0) -> Any:
    """They are joined along the dim, which is split then, or along a new last one; images keep channels innermost."""
    first = tensors[0]
    if any(t.shape != first.shape for t in tensors) or not -first.dim() - 1 <= dim <= first.dim():
        return NotImplemented
    dim %= first.dim() + 1
    size = [*first.shape[:dim], len(tensors), *first.shape[dim:]]
    if dim == first.dim():
        last = all(has_channels_last((*t.shape, 1), (*t.stride(), 1)) for t in tensors)
        return make(size, promote(tensors), first.device, channels_last_strides(size) if last else None)
    if not all(map(suggests_channels_last, tensors)):
        return make(size, promote(tensors), first.device)
    joined = list(first.shape)
    joined[dim] = joined[dim] * len(tensors)
    stride = view_strides(joined, channels_last_strides(joined), size)
    return NotImplemented if stride is None else make(size, promote(tensors), first.device, stride)


@rule(aten.repeat.default)
def _repeat(x: Any, repeats: Any) -> Any:
    lead = len(repeats) - x.dim()
    size = [1] * lead + list(x.shape)
    return make([extent * count for extent, count in zip(size, repeats, strict=True)], x.dtype, x.device)


# ---- matrices --------------------------------------------------------------------------------------------------------


@rule(aten._linalg_svd.default)
def _svd(x: Any, full_matrices: bool = False, compute_uv: bool = True, *, driver: str | None = None) -> Any:
    """On the CPU both matrices have their columns in one piece, also the last, of which the meta kernel says rows."""
    if x.device.type != "cpu" or not compute_uv:
        return NotImplemented
    *batch, rows, columns = x.shape
    rank = min(rows, columns)
    u = _by_columns(x, batch, rows, rows if full_matrices else rank)
    vh = _by_columns(x, batch, columns if full_matrices else rank, columns)
    return u, make((*batch, rank), x.dtype.to_real(), x.device), vh


@rule(aten.geqrf.default)
def _geqrf(x: Any) -> Any:
    *batch, rows, columns = x.shape
    return _by_columns(x, batch, rows, columns), make((*batch, min(rows, columns)), x.dtype, x.device)


@rule(aten.linalg_eig.default)
def _eig(x: Any) -> Any:
    if x.device.type != "cpu" or x.dim() < 2 or x.shape[-1] != x.shape[-2] or x.numel() == 0:
        return NotImplemented
    dtype = x.dtype.to_complex()
    *batch, rows, columns = x.shape
    return make((*batch, rows), dtype, x.device), _by_columns(x, batch, rows, columns, dtype)


def _by_columns(x: Any, batch: list[int], rows: int, columns: int, dtype: torch.dtype | None = None) -> FakeTensor:
    *outer, _, _ = contiguous_strides((*batch, rows, columns))
    return make((*batch, rows, columns), dtype or x.dtype, x.device, (*outer, 1, max(rows, 1)))


# ---- Fourier transforms: by MKL the transformed dims lie inside, the others outside in their order -------------------


@rule(aten._fft_r2c.default)
def _fft_r2c(x: Any, dim: Sequence[int], normalization: int, onesided: bool) -> Any:
    if not _by_mkl(x):
        return NotImplemented
    *first, last = dim
    size = list(x.shape)
    size[last] = size[last] // 2 + 1 if onesided else size[last]
    return _transformed(x, size, [*_in_memory(x, first), last], x.dtype.to_complex())


@rule(aten._fft_c2c.default)
def _fft_c2c(x: Any, dim: Sequence[int], normalization: int, forward: bool) -> Any:
    return _transformed(x, x.shape, _in_memory(x, dim), x.dtype) if dim and _by_mkl(x) else NotImplemented


@rule(aten._fft_c2r.default)
def _fft_c2r(x: Any, dim: Sequence[int], normalization: int, last_dim_size: int) -> Any:
    if not _by_mkl(x):
        return NotImplemented
    *first, last = dim
    size = list(x.shape)
    size[last] = last_dim_size
    spectrum = _transformed(x, x.shape, _in_memory(x, first), x.dtype) if first else x
    return _transformed(spectrum, size, [last], x.dtype.to_real())


def _by_mkl(x: Any) -> bool:
    return x.device.type == "cpu" and torch.backends.mkl.is_available()


def _in_memory(x: Any, dims: Sequence[int]) -> list[int]:
    """The dims from the longest stride to the shortest."""
    return sorted(dims, key=lambda d: -x.stride(d))


def _transformed(x: Any, size: Sequence[int], dims: list[int], dtype: torch.dtype) -> FakeTensor:
    others = [d for d in range(x.dim()) if d not in dims]
    order = [*sorted(others, key=lambda d: -x.stride(d)), *dims]
    steps = contiguous_strides([size[d] for d in order])
    return make(size, dtype, x.device, [steps[order.index(d)] for d in range(x.dim())])


# ---- sorting ---------------------------------------------------------------------------------------------------------


@rule(aten.sort.default)
def _sort(x: Any, dim: int = -1, descending: bool = False) -> Any:
    stride = None if is_plain(x) else dense_like(x.shape, x.stride())
    return make(x.shape, x.dtype, x.device, stride), make(x.shape, torch.int64, x.device, stride)


@rule(aten.topk.default)
def _topk(x: Any, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    if x.dim() == 0 or not 0 <= k <= x.shape[dim]:
        return NotImplemented
    size = list(x.shape)
    size[dim] = k
    return make(size, x.dtype, x.device), make(size, torch.int64, x.device)


@rule(aten.nonzero_static.default)
def _nonzero_static(x: Any, *, size: int, fill_value: int = -1) -> Any:
    """Its meta kernel says what CUDA gives, which has the columns in one piece."""
    return make((size, x.dim()), torch.int64, x.device) if x.device.type == "cpu" else NotImplemented
