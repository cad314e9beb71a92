"""Shape rules of the common operators, so that most fakes never touch a meta kernel.

PyTorch's meta kernels of elementwise operators are Python: about 100 µs a call, and the first call imports most of its
compiler (one second). A rule costs a few µs. Each rule takes the operator's arguments and gives the fake of the result,
or NotImplemented where it would have to guess; then the meta kernel decides, and reports wrong shapes.
Neighbours: `execute.py` owns the table; `layout.py` has promotion and strides; other `rules_*.py` have views,
reductions and layers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import torch

from stator.base.errors import DataDependent
from stator.fake.execute import RULES, aten, common_device
from stator.fake.layout import (
    broadcast_strides,
    channels_last_strides,
    contiguous_strides,
    dense_like,
    elementwise_strides,
    is_contiguous,
    is_float,
    is_plain,
    permuted_strides,
    promote,
    same,
    suggests_channels_last,
    view_strides,
)
from stator.fake.tensor import FakeTensor, make

Size = tuple[int, ...]
_CPU = torch.device("cpu")


#: Registers a function as the shape rule of some overloads.
rule = RULES.register


# ---- elementwise -----------------------------------------------------------------------------------------------------


def broadcast(tensors: Sequence[torch.Tensor]) -> Size | None:
    """The common size; None if there is none."""
    size: Sequence[int] = tensors[0].shape
    for tensor in tensors[1:]:
        other = tensor.shape
        if not same(other, size):
            merged = _merge(size, other)
            if merged is None:
                return None
            size = merged
    return tuple(size)


def _merge(a: Sequence[int], b: Sequence[int]) -> list[int] | None:
    if len(a) < len(b):
        a, b = b, a
    merged = list(a)
    lead = len(a) - len(b)
    for i, extent in enumerate(b, lead):
        if merged[i] == 1:
            merged[i] = extent
        elif extent not in (1, merged[i]):
            return None
    return merged


def fresh(operands: Sequence[Any], dtype: torch.dtype, alone: bool = True, common: torch.dtype | None = None) -> Any:
    """The elementwise result of tensors (numbers and None among them are ignored), which meet in dtype `common`."""
    tensors = [operand for operand in operands if isinstance(operand, FakeTensor)]
    if not tensors:
        return NotImplemented
    first = tensors[0]
    if len(tensors) == 1:
        size: Size | None = first.shape
    else:
        size = broadcast(tensors)
    if size is None:
        return NotImplemented
    device = common_device(tensors)
    if device.type != "cpu":  # kernels convert as they read
        common = None
    if common is not None:  # they are copied before their strides count
        tensors = [as_copied(tensor, common) for tensor in tensors]
    return make(size, dtype, device, elementwise_strides(size, tensors, alone))


def as_copied(x: FakeTensor, dtype: torch.dtype) -> FakeTensor:
    """How it lies once it has a dtype; whose strides are those of its copy is as good as that."""
    copy: FakeTensor = x if x.dtype is dtype or is_plain(x) else like(x, dtype, None, None)
    return copy


def _same(count: int, *args: Any, **kwargs: Any) -> Any:
    operands = args[:count]
    if len(operands) == 1:
        return fresh(operands, operands[0].dtype)
    dtype = promote(operands)
    return fresh(operands, dtype, _are_tensors(operands), dtype)


def _with_number(count: int, *args: Any, **kwargs: Any) -> Any:
    """Like `_same`, of one tensor, which is copied first on any device, and a number that its kernel takes as one."""
    dtype = promote(args[:count])
    return fresh((as_copied(args[0], dtype),), dtype)


def _are_tensors(operands: Sequence[Any]) -> bool:
    """Whether no operand is a number, which would be one of another size."""
    return len(operands) > 2 or all(isinstance(operand, FakeTensor) for operand in operands)


def _float(count: int, *args: Any, **kwargs: Any) -> Any:
    operands = args[:count]
    dtype = promote(operands)
    dtype = dtype if is_float(dtype) else torch.get_default_dtype()
    return fresh(operands, dtype, _are_tensors(operands), dtype)


def _bool(count: int, *args: Any, **kwargs: Any) -> Any:
    operands = args[:count]
    return fresh(operands, torch.bool, _are_tensors(operands), promote(operands))


def _first(count: int, *args: Any, **kwargs: Any) -> Any:
    return fresh(args[:count], args[0].dtype)


def _number(count: int, *args: Any, **kwargs: Any) -> Any:
    """Like `_first`, where eager refuses truth values."""
    return NotImplemented if args[0].dtype is torch.bool else fresh(args[:count], args[0].dtype)


#: For elementwise primitives of ours: how many leading arguments are operands, and these.
as_promoted, as_float, as_bool, as_first = _same, _float, _bool, _first


def variants(names: str, overloads: str = "default") -> list[str]:
    """`name.overload` for all of these names and overloads; which of them exist differs between releases of PyTorch."""
    return [f"{name}.{overload}" for name in names.split() for overload in overloads.split()]


POLYNOMIALS = " ".join(
    f"special_{name}"
    for name in "chebyshev_polynomial_t chebyshev_polynomial_u chebyshev_polynomial_v chebyshev_polynomial_w "
    "hermite_polynomial_h hermite_polynomial_he laguerre_polynomial_l legendre_polynomial_p "
    "shifted_chebyshev_polynomial_t shifted_chebyshev_polynomial_u shifted_chebyshev_polynomial_v "
    "shifted_chebyshev_polynomial_w".split()
)
#: What decides the dtype, how many leading arguments are operands, names, overloads.
_ELEMENTWISE: tuple[tuple[Callable[..., Any], int, str, str], ...] = (
    (_number, 1, "neg positive", "default"),
    (_first, 1, "relu sign sgn ceil floor round trunc bitwise_not square clone_", "default"),
    (_float, 1, "exp exp2 expm1 log log2 log10 log1p sqrt rsqrt sin cos tan asin acos atan sinh cosh tanh", "default"),
    (_float, 1, "asinh acosh atanh erf erfc erfinv sigmoid reciprocal lgamma digamma logit frac", "default"),
    (_first, 1, "gelu silu mish softplus elu leaky_relu hardswish hardsigmoid threshold celu log_sigmoid", "default"),
    (_bool, 1, "logical_not isnan isinf isfinite signbit", "default"),
    (_float, 1, "sinc special_entr", "default"),
    (_first, 1, "hardshrink", "default"),
    (_same, 2, "add sub mul maximum minimum remainder fmod bitwise_and bitwise_or bitwise_xor", "Tensor default"),
    (_same, 2, "remainder", "Scalar_Tensor"),
    (_same, 2, "add sub mul remainder fmod bitwise_and bitwise_or bitwise_xor floor_divide", "Scalar"),
    (_same, 2, "floor_divide", "default"),
    (_float, 2, "copysign", "Tensor Scalar"),
    (_float, 2, "xlogy", "Tensor Scalar_Self Scalar_Other"),
    (_float, 2, "igamma igammac", "default"),
    (_float, 2, "special_xlog1py special_zeta", "default self_scalar other_scalar"),
    (_float, 2, POLYNOMIALS, "default x_scalar n_scalar"),
    (_same, 2, "heaviside hypot nextafter fmax fmin gcd lcm logaddexp logaddexp2", "default"),
    (_same, 2, "pow", "Tensor_Tensor"),
    (_with_number, 2, "pow", "Tensor_Scalar"),
    (_with_number, 2, "clamp_min clamp_max", "default"),
    (_same, 2, "clamp_min clamp_max", "Tensor"),
    (_same, 3, "clamp", "default Tensor"),
    (_float, 2, "div atan2", "Tensor Scalar default"),
    (_bool, 2, "eq ne lt le gt ge", "Tensor Scalar"),
    (_bool, 2, "logical_and logical_or logical_xor", "default"),
    (_same, 3, "addcmul addcdiv", "default"),
    (_same, 2, "lerp", "Scalar"),
    (_same, 3, "lerp", "Tensor"),
    (_same, 2, "sigmoid_backward tanh_backward threshold_backward gelu_backward silu_backward", "default"),
    (_same, 2, "elu_backward leaky_relu_backward hardtanh_backward hardswish_backward hardsigmoid_backward", "default"),
    (_same, 2, "softplus_backward mish_backward logit_backward", "default"),
    (_same, 2, "bitwise_left_shift bitwise_right_shift", "Tensor Tensor_Scalar Scalar_Tensor"),
    (_same, 2, "__lshift__ __rshift__", "Tensor Scalar"),
)
for _kind, _count, _names, _overloads in _ELEMENTWISE:
    rule(*variants(_names, _overloads))(partial(_kind, _count))


@rule(aten.abs.default)
def _abs(x: Any) -> Any:
    return like(x, x.dtype.to_real(), None, None) if x.is_complex() else fresh((x,), x.dtype)


@rule(*variants("nan_to_num _prelu_kernel hardtanh relu6 _unsafe_masked_index_put_accumulate"))
def _empty_like(x: Any, *args: Any) -> Any:
    """Written into memory that was made before, so that dims of one element keep their strides."""
    return like(x, None, None, None)


@rule(aten.frexp.Tensor)
def _frexp(x: Any) -> Any:
    return like(x, None, None, None), like(x, torch.int32, None, None)


@rule(aten.addr.default)
def _addr(x: Any, first: Any, second: Any, **factors: Any) -> Any:
    """Elementwise, of a column and a row."""
    if first.dim() != 1 or second.dim() != 1:
        return NotImplemented
    column = make((*first.shape, 1), first.dtype, first.device, (*first.stride(), 1))
    out = fresh((x, column, second), promote((x, column, second)))
    return out if out is NotImplemented or same(out.shape, (*first.shape, *second.shape)) else NotImplemented


@rule(aten.glu.default)
def _glu(x: Any, dim: int = -1) -> Any:
    """Of two views, each a half."""
    if not x.dim() or x.shape[dim] % 2:
        return NotImplemented
    size = [n // 2 if d == dim % x.dim() else n for d, n in enumerate(x.shape)]
    return fresh((make(size, x.dtype, x.device, x.stride()),), x.dtype)


@rule(aten.rsub.Tensor, aten.rsub.Scalar)
def _rsub(x: Any, y: Any, alpha: Any = 1) -> Any:
    """`y - x`: the layout of y comes first."""
    dtype = promote((x, y))
    return fresh((y, x), dtype, _are_tensors((x, y)), dtype)


@rule(aten.complex.default, aten.polar.default)
def _complex(x: Any, y: Any) -> Any:
    return fresh((x, y), x.dtype.to_complex()) if x.dtype is y.dtype else NotImplemented


@rule(aten.deg2rad.default, aten.rad2deg.default)
def _angle(x: Any) -> Any:
    return like(x, x.dtype if is_float(x.dtype) else torch.get_default_dtype(), None, None)


@rule(aten.div.Tensor_mode, aten.div.Scalar_mode)
def _div(x: Any, y: Any, *, rounding_mode: str | None = None) -> Any:
    dtype = promote((x, y))
    dtype = dtype if rounding_mode or is_float(dtype) else torch.get_default_dtype()
    return fresh((x, y), dtype, _are_tensors((x, y)), dtype)


@rule(aten.where.self)
def _where(condition: Any, x: Any, y: Any) -> Any:
    dtype = promote((x, y))
    return fresh((condition, as_copied(x, dtype), as_copied(y, dtype)), dtype)  # on any device


@rule(aten.pow.Scalar)
def _pow_of_number(base: Any, exponent: Any) -> Any:
    return make(exponent.shape, promote((base, exponent)), exponent.device)


@rule(aten.ldexp.Tensor)
def _ldexp(x: Any, exponent: Any) -> Any:
    """`x * 2.0**exponent`, by one kernel where only the exponent is whole; else the power has a base of a dtype.

    Beside float32 and whole numbers the base is a number, whose powers are contiguous; else a 0-d tensor of x's dtype.
    """
    if x.is_floating_point() and not is_float(exponent.dtype):  # written into `empty_like(x)`, unless that is too small
        out = fresh((x, exponent), x.dtype)
        return like(x, None, None, None) if out is not NotImplemented and same(out.shape, x.shape) else out
    by_number = x.dtype is torch.float32 or not is_float(x.dtype)
    powers = _pow_of_number(2.0, exponent) if by_number else _same(2, make((), x.dtype, x.device), exponent)
    return NotImplemented if powers is NotImplemented else _same(2, x, powers)


@rule(aten.masked_fill.Scalar, aten.masked_fill.Tensor)
def _masked_fill(x: Any, mask: Any, value: Any) -> Any:
    found = fresh((x, mask), x.dtype) if not isinstance(value, torch.Tensor) or not value.dim() else NotImplemented
    return found if found is NotImplemented else make(found.shape, x.dtype, x.device)


# ---- copies and factories --------------------------------------------------------------------------------------------


def like(x: FakeTensor, dtype: torch.dtype | None, device: Any, memory_format: torch.memory_format | None) -> Any:
    """A fresh tensor of the size of `x`."""
    match memory_format:
        case None | torch.preserve_format:
            stride = None if is_plain(x) else dense_like(x.shape, x.stride())
        case torch.contiguous_format:
            stride = None
        case _:
            stride = channels_last_strides(x.shape)
    return make(x.shape, dtype or x.dtype, torch.device(device) if device is not None else x.device, stride)


@rule(aten.clone.default)
def _clone(x: Any, *, memory_format: Any = None) -> Any:
    return like(x, None, None, memory_format)


@rule(aten._to_copy.default, aten.empty_like.default, aten.zeros_like.default, aten.ones_like.default)
@rule(aten.rand_like.default, aten.randn_like.default)
def _like(x: Any, *, dtype: Any = None, device: Any = None, memory_format: Any = None, **options: Any) -> Any:
    return like(x, dtype, device, memory_format)


@rule(*variants("randint_like", "default low_dtype"))
def _randint_like(
    x: Any, *bounds: Any, dtype: Any = None, device: Any = None, memory_format: Any = None, **_: Any
) -> Any:
    return like(x, dtype, device, memory_format)


@rule(aten.full_like.default)
def _full_like(
    x: Any, value: Any, *, dtype: Any = None, device: Any = None, memory_format: Any = None, **_: Any
) -> Any:
    return like(x, dtype, device, memory_format)


def _make(size: Sequence[int], dtype: torch.dtype | None, device: Any) -> FakeTensor:
    return make(size, dtype or torch.get_default_dtype(), torch.device(device) if device is not None else _CPU)


@rule(aten.zeros.default, aten.ones.default, aten.rand.default, aten.randn.default)
def _zeros(size: Any, *, dtype: Any = None, device: Any = None, **options: Any) -> Any:
    return _make(size, dtype, device)


@rule(aten.empty.memory_format)
def _empty(size: Any, *, dtype: Any = None, device: Any = None, memory_format: Any = None, **options: Any) -> Any:
    if memory_format in (None, torch.contiguous_format):
        return _make(size, dtype, device)
    return NotImplemented


@rule(aten.empty_strided.default)
def _empty_strided(size: Any, stride: Any, *, dtype: Any = None, device: Any = None, **options: Any) -> Any:
    return make(size, dtype or torch.get_default_dtype(), torch.device(device) if device is not None else _CPU, stride)


@rule(aten.full.default)
def _full(size: Any, value: Any, *, dtype: Any = None, device: Any = None, **options: Any) -> Any:
    return _make(size, dtype or _dtype_of_number(value), device)


@rule(aten.scalar_tensor.default)
def _scalar_tensor(value: Any, *, dtype: Any = None, device: Any = None, **options: Any) -> Any:
    return _make((), dtype, device)


def _dtype_of_number(value: Any) -> torch.dtype:
    return promote((value,))


@rule(aten.new_zeros.default, aten.new_ones.default, aten.new_empty.default)
def _new(x: Any, size: Any, *, dtype: Any = None, device: Any = None, **options: Any) -> Any:
    return _make(size, dtype or x.dtype, device or x.device)


@rule(aten.new_full.default)
def _new_full(x: Any, size: Any, value: Any, *, dtype: Any = None, device: Any = None, **options: Any) -> Any:
    return _make(size, dtype or x.dtype, device or x.device)


@rule(aten.new_empty_strided.default)
def _new_strided(x: Any, size: Any, stride: Any, *, dtype: Any = None, device: Any = None, **options: Any) -> Any:
    return make(size, dtype or x.dtype, device or x.device, stride)


@rule(aten.eye.default, aten.eye.m)
def _eye(rows: Any, columns: Any = None, *, dtype: Any = None, device: Any = None, **options: Any) -> Any:
    size = (rows, rows if columns is None else columns)
    return NotImplemented if any(extent < 0 for extent in size) else _make(size, dtype, device)


def _arange(start: Any, end: Any, step: Any, dtype: Any, device: Any) -> Any:
    integral = all(isinstance(value, int | torch.SymInt) for value in (start, end, step))
    if dtype is None:
        dtype = torch.int64 if integral else torch.get_default_dtype()
    if not integral or step == 0:
        return NotImplemented
    reach = end - start if step > 0 else start - end
    if reach < 0:
        return NotImplemented
    return _make((0 if reach == 0 else (reach + abs(step) - 1) // abs(step),), dtype, device)


@rule(aten.arange.default)
def _arange_end(end: Any, *, dtype: Any = None, device: Any = None, **options: Any) -> Any:
    return _arange(0, end, 1, dtype, device)


@rule(aten.arange.start, aten.arange.start_step)
def _arange_start(start: Any, end: Any, step: Any = 1, *, dtype: Any = None, device: Any = None, **options: Any) -> Any:
    return _arange(start, end, step, dtype, device)


@rule(aten.cat.default)
def _cat(tensors: Any, dim: int = 0) -> Any:
    first = tensors[0]
    ndim = first.dim()
    on_cpu = first.device.type == "cpu"
    # Only images may keep another layout than the contiguous one.
    if ndim == 0 or not all(t.dim() == ndim and (ndim not in (4, 5) or on_cpu or is_contiguous(t)) for t in tensors):
        return NotImplemented
    dim %= ndim
    size = list(first.shape)
    for tensor in tensors[1:]:
        shape = tensor.shape
        if any(i != dim and shape[i] != size[i] for i in range(ndim)):
            return NotImplemented
    size[dim] = sum(tensor.shape[dim] for tensor in tensors)
    last = on_cpu and all(map(suggests_channels_last, tensors))
    return make(size, promote(tensors), common_device(tensors), channels_last_strides(size) if last else None)


# ---- matrix products -------------------------------------------------------------------------------------------------


@rule(aten.mm.default)
def _mm(a: Any, b: Any) -> Any:
    (n, k), (k2, m) = a.shape, b.shape
    return make((n, m), a.dtype, a.device) if k == k2 and a.dtype is b.dtype else NotImplemented


def _check_dtypes(a: Any, b: Any) -> None:
    """Raise as kernels do; where nothing is multiplied, some take any dtypes, in torch 2.11 more than in 2.13."""
    if a.dtype is not b.dtype:
        raise RuntimeError(f"expected scalar type {a.dtype} but found {b.dtype}")


@rule(aten.bmm.default)
def _bmm(a: Any, b: Any) -> Any:
    _check_dtypes(a, b)
    if a.dim() != 3 or b.dim() != 3:
        return NotImplemented
    (batch, n, k), (batch2, k2, m) = a.shape, b.shape
    return make((batch, n, m), a.dtype, a.device) if (batch, k) == (batch2, k2) else NotImplemented


@rule(aten.mv.default)
def _mv(a: Any, x: Any) -> Any:
    _check_dtypes(a, x)
    if a.dim() != 2 or x.dim() != 1 or a.shape[1] != x.shape[0]:
        return NotImplemented
    return make((a.shape[0],), a.dtype, a.device)


@rule(aten.addmm.default, aten.baddbmm.default)
def _addmm(bias: Any, a: Any, b: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    out = _mm(a, b) if a.dim() == 2 else _bmm(a, b)
    if out is NotImplemented or _merge(out.shape, bias.shape) != list(out.shape) or bias.dtype is not a.dtype:
        return NotImplemented
    return out


# ---- network layers --------------------------------------------------------------------------------------------------


@rule(aten._softmax.default, aten._log_softmax.default)
def _softmax(x: Any, dim: int, half_to_float: bool) -> Any:
    return make(x.shape, torch.float32 if half_to_float else x.dtype, x.device)


@rule(aten._softmax_backward_data.default, aten._log_softmax_backward_data.default)
def _softmax_backward(grad: Any, output: Any, dim: int, input_dtype: torch.dtype) -> Any:
    return make(grad.shape, input_dtype, grad.device)


def _statistics_dtype(x: Any, weight: Any) -> torch.dtype:
    """Half inputs have float32 statistics on accelerators, and on the CPU beside float32 weights."""
    half = x.dtype in (torch.float16, torch.bfloat16)
    mixed = weight is not None and weight.dtype is torch.float32
    return torch.float32 if half and (mixed or x.device.type != "cpu") else x.dtype


@rule(aten.native_layer_norm.default)
def _layer_norm(x: Any, normalized: Any, weight: Any, bias: Any, eps: float) -> Any:
    lead = x.dim() - len(normalized)
    sizes = [x.shape[lead:], *[p.shape for p in (weight, bias) if isinstance(p, torch.Tensor)]]
    if not normalized or lead < 0 or not all(same(size, normalized) for size in sizes):
        return NotImplemented
    statistics = [*x.shape[:lead], *[1] * len(normalized)]
    dtype = _statistics_dtype(x, weight)
    make_statistics = partial(make, statistics, dtype, x.device)
    return make(x.shape, x.dtype, x.device), make_statistics(), make_statistics()


@rule(aten.native_layer_norm_backward.default)
def _layer_norm_backward(
    grad: Any, x: Any, normalized: Any, mean: Any, rstd: Any, weight: Any, bias: Any, mask: Sequence[bool]
) -> Any:
    parameters = [
        make(p.shape, p.dtype, p.device) if wanted and p is not None else None
        for p, wanted in zip((weight, bias), mask[1:], strict=True)
    ]
    return make(x.shape, x.dtype, x.device) if mask[0] else None, *parameters


@rule(aten.embedding.default)
def _embedding(weight: Any, indices: Any, *args: Any, **kwargs: Any) -> Any:
    if weight.dim() != 2 or indices.dtype not in (torch.int64, torch.int32):
        return NotImplemented
    return make([*indices.shape, *weight.shape[1:]], weight.dtype, weight.device)


@rule(aten.embedding_dense_backward.default)
def _embedding_backward(grad: Any, indices: Any, rows: int, *args: Any) -> Any:
    return make((rows, grad.shape[-1]), grad.dtype, grad.device)


@rule(aten.native_dropout.default)
def _dropout(x: Any, p: float, train: bool | None) -> Any:
    return like(x, None, None, None), like(x, torch.bool, None, None)


@rule(aten.gather.default)
def _gather(x: Any, dim: int, index: Any, *, sparse_grad: bool = False) -> Any:
    pairs = list(zip(index.shape, x.shape, strict=False))
    if max(index.dim(), 1) != max(x.dim(), 1) or (pairs and not _fits(pairs, dim % len(pairs))):
        return NotImplemented
    return make(index.shape, x.dtype, x.device)


def _fits(pairs: Sequence[tuple[Any, Any]], dim: int) -> bool:
    """Whether positions along a dim are no longer than the tensor in all others, of sizes that are numbers."""
    plain = [(a, b) for i, (a, b) in enumerate(pairs) if i != dim and type(a) is int and type(b) is int]
    return all(a <= b for a, b in plain)


@rule(aten.index_select.default)
def _index_select(x: Any, dim: int, index: Any) -> Any:
    if index.dim() > 1:
        raise IndexError("index_select(): Index is supposed to be a vector")
    if x.dim() == 0:
        return NotImplemented
    size = list(x.shape)
    size[dim] = index.numel()
    return make(size, x.dtype, x.device)


@rule(aten.index.Tensor, aten._unsafe_index.Tensor)
def read_at(x: Any, indices: Any) -> Any:
    """What lies at positions."""
    used = [(dim, index) for dim, index in enumerate(indices) if index is not None]
    if any(index.dtype in (torch.bool, torch.uint8) for _, index in used):
        raise DataDependent(aten.index.Tensor)
    size = broadcast([index for _, index in used]) if used else None
    dims = [dim for dim, _ in used]
    if size is None:
        return NotImplemented
    kept = [step for dim, step in enumerate(x.stride()) if dim not in dims]
    rest = [extent for dim, extent in enumerate(x.shape) if dim not in dims]
    lead = dims[0] if dims[-1] - dims[0] == len(dims) - 1 else 0
    result = (*rest[:lead], *size, *rest[lead:])
    if all(is_plain(index) for _, index in used) and all(outer > inner for outer, inner in pairwise(kept)):
        return make(result, x.dtype, x.device)
    none = (0,) * len(size)
    operands = [(*kept[:lead], *none, *kept[lead:])]
    for _, index in used:
        # Reshaped to all dims of the result, of which those with one element get strides of that.
        steps = broadcast_strides(size, index.shape, index.stride())
        alone = (*[1] * lead, *size, *[1] * (len(rest) - lead))
        reshaped = view_strides(size, steps, alone) or contiguous_strides(alone)
        operands.append(tuple(broadcast_strides(result, alone, reshaped)))
    return make(result, x.dtype, x.device, permuted_strides(result, operands))


@rule(aten.masked_scatter.default)
def _masked_scatter(x: Any, mask: Any, source: Any) -> Any:
    size = broadcast([x, mask])
    return NotImplemented if size is None else make(size, x.dtype, x.device)


@rule(aten.tril.default, aten.triu.default)
def _tril(x: Any, diagonal: int = 0) -> Any:
    if x.dim() < 2:
        return NotImplemented
    return make(x.shape, x.dtype, x.device, None if is_contiguous(x) else contiguous_strides(x.shape))


@rule(*variants("_fused_adam_ _fused_adamw_ _fused_sgd_ _fused_adagrad_", "default tensor_lr"))
def _writes_lists(*args: Any, **kwargs: Any) -> None:
    """A whole step of an optimizer."""


@rule(*variants("binomial _sample_dirichlet _standard_gamma _standard_gamma_grad _dirichlet_grad"))
def _drawn(x: Any, *args: Any, **kwargs: Any) -> Any:
    """As many random numbers, or their slopes, as the first argument has."""
    return make(x.shape, x.dtype, x.device)
