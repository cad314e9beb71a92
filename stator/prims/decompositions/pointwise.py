"""Pointwise operators that reduce to others: scalar overloads, clamps, blends, rarer functions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from stator.base.device import HOST
from stator.fake.layout import is_float, promote
from stator.prims import names as p
from stator.prims.decompositions.complex import joined, parts_of, sum_of
from stator.prims.decompositions.layout import contiguous
from stator.prims.dtypes import cast, common_type, compute_type, floating, holding, is_one, rounds_once
from stator.prims.fma import FMA
from stator.prims.table import decompose

Number = int | float | bool

#: Overload → the Tensor overload of the same meaning; a number becomes a 0-dim tensor first.
TENSOR_FORMS: dict[str, Callable[..., Tensor]] = {
    "remainder.Scalar": p.remainder,
    "fmod.Scalar": p.fmod,
    "bitwise_and.Scalar": p.bitwise_and,
    "bitwise_or.Scalar": p.bitwise_or,
    "bitwise_xor.Scalar": p.bitwise_xor,
    "bitwise_left_shift.Tensor_Scalar": p.shift_left,
    "bitwise_right_shift.Tensor_Scalar": p.shift_right,
    "__and__.Tensor": p.bitwise_and,
    "__or__.Tensor": p.bitwise_or,
    "__xor__.Tensor": p.bitwise_xor,
    "__and__.Scalar": p.bitwise_and,
    "__or__.Scalar": p.bitwise_or,
    "__xor__.Scalar": p.bitwise_xor,
    "__lshift__.Tensor": p.shift_left,
    "__rshift__.Tensor": p.shift_right,
    "__lshift__.Scalar": p.shift_left,
    "__rshift__.Scalar": p.shift_right,
}


def _with_tensor(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def run(x: Tensor, other: Tensor | Number) -> Tensor:
        if not isinstance(other, Tensor):
            other = _number(other, common_type(x, other), x.device)
        return function(x, other)

    return run


def _number(value: Number, dtype: torch.dtype, device: torch.device) -> Tensor:
    """A number as a tensor; where the dtype does not hold it a whole one wraps around, another is infinite."""
    own = dtype if isinstance(value, bool) else holding(value, dtype) if dtype.is_floating_point else torch.int64
    return cast(p.full([], value, dtype=own, device=device), dtype)


decompose("div.Scalar_mode")(p.div_mode)
for _name in ("mul", "div"):
    decompose(f"{_name}.Scalar", also_complex=True)(getattr(p, _name))
for _name, _function in TENSOR_FORMS.items():
    decompose(_name)(_with_tensor(_function))


@decompose("add.Scalar", also_complex=True)
def add_scalar(x: Tensor, other: Number, alpha: Number = 1) -> Tensor:
    return p.add(x, other, alpha=alpha)


@decompose("sub.Scalar", also_complex=True)
def sub_scalar(x: Tensor, other: Number, alpha: Number = 1) -> Tensor:
    return p.sub(x, other, alpha=alpha)


@decompose("rsub.Tensor", "rsub.Scalar", also_complex=True)
def rsub(x: Tensor, other: Tensor | Number, alpha: Number = 1) -> Tensor:
    return p.sub(other, x, alpha=alpha)


@decompose("remainder.Scalar_Tensor")
def remainder_scalar(x: Number, other: Tensor) -> Tensor:
    return p.remainder(_number(x, common_type(other, x), other.device), other)


@decompose("floor_divide", "floor_divide.Scalar")
def floor_divide(x: Tensor, other: Tensor | Number) -> Tensor:
    return p.div_mode(x, other, rounding_mode="floor")


@decompose("pow.Tensor_Scalar", also_complex=True)
def pow_tensor_scalar(x: Tensor, exponent: Number) -> Tensor:
    """Eager's special exponents; others stay a primitive."""
    if x.dtype is torch.bool and isinstance(exponent, bool):  # the one power that is a truth value
        return p.ge(x, exponent)
    if not isinstance(exponent, (int, float)) or not (x.is_floating_point() or exponent in (1, 2, 3)):
        return NotImplemented
    if not x.is_floating_point() and not x.is_complex() and (isinstance(exponent, float) or exponent == 1):
        return NotImplemented
    if x.dtype is torch.bool:  # to a power that is no bool it is an integer
        x = p.to_copy(x, dtype=torch.int64)
    match exponent:
        case 2:
            return p.mul(x, x)
        case 3:
            # Eager rounds bfloat16 after each product, float16 only at the end.
            wide = p.to_copy(x, dtype=torch.float32) if x.dtype is torch.float16 else x
            cube = p.mul(p.mul(wide, wide), wide)
            return cube if wide is x else p.to_copy(cube, dtype=x.dtype)
        case 1:
            return p.clone(x)
        case 0.5 | -0.5:
            return _root(x, exponent)
        case -1:
            return p.reciprocal(x)
        case -2 if x.is_floating_point() and x.dtype is not torch.float16:  # whose power eager takes
            return p.reciprocal(p.mul(x, x))  # 0 where the square overflows, which the power does not yet
    return NotImplemented


def _root(x: Tensor, exponent: float) -> Tensor:
    """The square root, or 1 by it; of float16 eager takes the power, which has a value for -inf and no -0.0."""
    root = p.sqrt if exponent > 0 else p.rsqrt
    if x.dtype is not torch.float16 or x.device.type != "cpu":
        return root(x)
    return p.where(p.eq(x, -math.inf), math.inf if exponent > 0 else 0.0, root(p.add(x, 0.0)))


@decompose("pow.Scalar")
def pow_scalar(base: Number, exponent: Tensor) -> Tensor:
    dtype = common_type(exponent, base)
    if not dtype.is_floating_point:
        return NotImplemented
    return contiguous(p.power(_number(base, dtype, exponent.device), cast(exponent, dtype)))


@decompose("square", also_complex=True)
def square(x: Tensor) -> Tensor:
    if x.dtype is torch.bool:
        x = p.to_copy(x, dtype=torch.int64)
    return p.mul(x, x)


@decompose("addcmul", also_complex=True)
@rounds_once
def addcmul(x: Tensor, a: Tensor, b: Tensor, value: Number = 1) -> Tensor:
    if _scales_last(x, value):
        return p.add(x, p.mul(a, b), alpha=+value)
    scaled = _scaled(a, value)
    if x.device.type != HOST or not promote([x, a, b]).is_floating_point:
        return sum_of(x, p.mul(scaled, b))
    return FMA(scaled, b, x)


@decompose("addcdiv", also_complex=True)
@rounds_once
def addcdiv(x: Tensor, a: Tensor, b: Tensor, value: Number = 1) -> Tensor:
    if _scales_last(x, value):
        return p.add(x, p.div(a, b), alpha=+value)
    return sum_of(x, p.div(_scaled(a, value), b))


def _scales_last(x: Tensor, factor: Number) -> bool:
    """Whether eager's kernel multiplies the product or quotient, not its first operand, and joins that with the sum."""
    return is_float(x.dtype) and x.device.type != HOST and not isinstance(factor, torch.SymFloat)


def _scaled(x: Tensor, factor: Number) -> Tensor:
    """`factor * x`, where whole numbers take the whole part of the factor, and complex ones meet a complex one."""
    if x.is_complex():
        return p.mul(x, factor)
    if is_one(factor):
        return x
    if is_float(x.dtype) or not isinstance(factor, float | torch.SymFloat):
        return cast(p.mul(x, factor), x.dtype)
    return p.mul(x, cast(p.full([], factor, dtype=torch.float64, device=x.device), x.dtype))


@decompose("lerp.Scalar")
@rounds_once
def lerp_scalar(start: Tensor, end: Tensor, weight: Number) -> Tensor:
    if isinstance(weight, torch.SymFloat):  # it is compared in the graph: here it would become a number
        return lerp_tensor(start, end, p.full([], weight, dtype=start.dtype, device=start.device))
    if abs(weight) < 0.5:
        return p.add(start, p.sub(end, start), alpha=weight)
    rest = p.sub(1, p.full([], weight, dtype=start.dtype, device=start.device))  # rounded, as the weight is
    return FMA(p.neg(p.sub(end, start)), rest, end)


@decompose("lerp.Tensor")
@rounds_once
def lerp_tensor(start: Tensor, end: Tensor, weight: Tensor) -> Tensor:
    d = p.sub(end, start)
    near = FMA(d, weight, start)
    far = FMA(p.neg(d), p.sub(1, weight), end)
    return p.where(p.lt(p.absolute(weight), 0.5), near, far)


@decompose("clamp.Tensor")
def clamp_tensor(x: Tensor, low: Tensor | None = None, high: Tensor | None = None) -> Tensor:
    value = x if low is None else p.maximum(x, low)
    return value if high is None else p.minimum(value, high)


@decompose("clamp_min", "clamp_min.Tensor")
def clamp_min(x: Tensor, low: Any) -> Tensor:
    return p.maximum(x, low)


@decompose("clamp_max", "clamp_max.Tensor")
def clamp_max(x: Tensor, high: Any) -> Tensor:
    return p.minimum(x, high)


@decompose("fmax")
def fmax(x: Tensor, y: Tensor) -> Tensor:
    return p.where(p.isnan(x), y, p.where(p.isnan(y), x, p.maximum(y, x)))  # x, where both are zeros


@decompose("fmin")
def fmin(x: Tensor, y: Tensor) -> Tensor:
    return p.where(p.isnan(x), y, p.where(p.isnan(y), x, p.minimum(y, x)))


@decompose("masked_fill.Scalar", also_complex=True, mixed=True)
def masked_fill_scalar(x: Tensor, mask: Tensor, value: Number) -> Tensor:
    return masked_fill(x, mask, p.full([], value, dtype=x.dtype, device=x.device))


@decompose("masked_fill.Tensor", also_complex=True, mixed=True)
def masked_fill(x: Tensor, mask: Tensor, value: Tensor) -> Tensor:
    return contiguous(p.where(mask, cast(value, x.dtype), x))


@decompose("where.Scalar", also_complex=True)
def where_scalar(mask: Tensor, a: Number, b: Number) -> Tensor:
    return p.where(mask, a, p.full([], b, dtype=promote((a, b)), device=mask.device))


@decompose("sinc")
@rounds_once
def sinc(x: Tensor) -> Tensor:
    angle = p.mul(x, math.pi)
    return p.where(p.eq(x, 0), 1.0, p.div(p.sin(angle), angle))


@decompose("asinh")
@rounds_once
def asinh(x: Tensor) -> Tensor:
    if x.is_complex():
        return NotImplemented
    x = floating(x)
    a = p.absolute(x)
    s = p.mul(a, a)
    value = p.log1p(p.add(a, p.div(s, p.add(p.sqrt(p.add(s, 1.0)), 1.0))))
    value = p.where(p.gt(a, 1e9), p.add(p.log(a), math.log(2.0)), value)  # where squares would overflow
    return p.where(p.lt(x, 0), p.neg(value), p.where(p.eq(x, 0), x, value))


@decompose("acosh")
@rounds_once
def acosh(x: Tensor) -> Tensor:
    if x.is_complex():
        return NotImplemented
    x = floating(x)
    d = p.sub(x, 1.0)
    value = p.log1p(p.add(d, p.sqrt(p.mul(d, p.add(x, 1.0)))))
    value = p.where(p.gt(x, 1e9), p.add(p.log(x), math.log(2.0)), value)  # where squares would overflow
    return p.where(p.lt(x, 1.0), math.nan, value)


@decompose("atanh")
@rounds_once
def atanh(x: Tensor) -> Tensor:
    if x.is_complex():
        return NotImplemented
    x = floating(x)
    a = p.absolute(x)  # near 1 the quotient is great; that of a negative number would be near -1, where log1p is steep
    value = p.mul(p.log1p(p.div(p.mul(a, 2.0), p.sub(1.0, a))), 0.5)
    return p.where(p.lt(x, 0), p.neg(value), p.where(p.eq(x, 0), x, value))


@decompose("logaddexp")
@rounds_once
def logaddexp(x: Tensor, y: Tensor) -> Tensor:
    top = p.maximum(x, y)
    value = p.add(top, p.log1p(p.exp(p.neg(p.absolute(p.sub(x, y))))))
    return p.where(p.logical_and(p.isinf(top), p.eq(x, y)), x, value)


@decompose("logaddexp2")
@rounds_once
def logaddexp2(x: Tensor, y: Tensor) -> Tensor:
    top = p.maximum(x, y)
    less = p.exp(p.mul(p.absolute(p.sub(x, y)), -math.log(2.0)))
    value = p.add(top, p.mul(p.log1p(less), 1.0 / math.log(2.0)))
    return p.where(p.logical_and(p.isinf(top), p.eq(x, y)), x, value)


@decompose("sgn", also_complex=True)
def sgn(x: Tensor) -> Tensor:
    """Complex numbers are divided by their magnitude."""
    if not x.is_complex():
        return p.sign(x)
    size = p.absolute(x)
    nothing = p.eq(size, 0)
    return joined(*[p.where(nothing, 0, p.div(part, size)) for part in parts_of(x)])


@decompose("frac")
def frac(x: Tensor) -> Tensor:
    return p.sub(x, p.trunc(x))


@decompose("isfinite")
def isfinite(x: Tensor) -> Tensor:
    return p.lt(p.absolute(x), math.inf) if x.is_floating_point() else _everywhere(x, True)


@decompose("isposinf")
def isposinf(x: Tensor) -> Tensor:
    if x.is_complex():
        return NotImplemented
    return p.eq(x, math.inf) if x.is_floating_point() else _everywhere(x, False)


@decompose("isneginf")
def isneginf(x: Tensor) -> Tensor:
    if x.is_complex():
        return NotImplemented
    return p.eq(x, -math.inf) if x.is_floating_point() else _everywhere(x, False)


def _everywhere(x: Tensor, answer: bool) -> Tensor:
    return p.full(list(x.shape), answer, dtype=torch.bool, device=x.device)


#: Float dtype → the integer dtype of its bits.
BITS = {torch.float64: torch.int64, torch.float32: torch.int32}


@decompose("signbit")
def signbit(x: Tensor) -> Tensor:
    """By the bits, so that it holds of zeros and NaN."""
    if x.dtype is torch.bool:
        return _everywhere(x, False)
    if not x.is_floating_point():
        return p.lt(x, 0)
    wide = cast(x, compute_type(x.dtype))
    return p.lt(p.view_dtype(wide, BITS[wide.dtype]), 0)


@decompose("copysign.Tensor", "copysign.Scalar")
def copysign(x: Tensor, sign: Tensor | Number) -> Tensor:
    dtype = promote((x, sign))
    if not dtype.is_floating_point:
        dtype = torch.get_default_dtype()
    magnitude = p.absolute(cast(x, dtype))
    if not isinstance(sign, Tensor):
        return p.neg(magnitude) if math.copysign(1.0, sign) < 0 else p.mul(magnitude, 1.0)
    return p.where(signbit(sign), p.neg(magnitude), magnitude)


@decompose("ldexp.Tensor", mixed=True)
def ldexp(x: Tensor, exponent: Tensor) -> Tensor:
    """A float times a power of two, exact and rounded once where the exponent is whole; else a product as any other."""
    if not x.is_floating_point() or exponent.is_floating_point():
        if x.is_floating_point() and x.dtype is not torch.float32:  # eager's base is of x's dtype: powers may be wider
            exponent = cast(exponent, promote((p.full([], 2.0, dtype=x.dtype, device=x.device), exponent)))
        if exponent.device.type == HOST != x.device.type:  # where eager's base is, and so the power
            exponent = p.to_copy(exponent, device=x.device)
        return p.mul(x, pow_scalar(2.0, exponent))
    rest = p.clamp(cast(cast(exponent, torch.int32), torch.int64), -2200, 2200)  # an int of C takes it
    wide = p.to_copy(x, dtype=torch.float64)
    steps = [p.clamp(rest, -1022, 1023)]  # a power that is no normal number is a product of several
    for _ in range(2 if x.dtype is torch.float64 else 0):
        rest = p.sub(rest, steps[-1])
        steps.append(p.clamp(rest, -1022, 1023))
    for step in reversed(steps):  # the greatest last, so that one of them rounds
        bits = p.shift_left(p.add(step, 1023), _of(52, step))
        wide = p.mul(wide, p.view_dtype(bits, torch.float64))
    return cast(wide, x.dtype)


#: Float dtype → (bits of the mantissa, bias of the exponent, a power of two that makes a subnormal number normal).
_LAYOUT = {torch.float64: (52, 1022, 54), torch.float32: (23, 126, 25)}


@decompose("frexp.Tensor")
def frexp(x: Tensor) -> tuple[Tensor, Tensor]:
    """Mantissa and exponent by the bits; zeros, infinities and NaN are their own mantissa."""
    wide = cast(x, compute_type(x.dtype))
    width, bias, lift = _LAYOUT[wide.dtype]
    exponents = (1 << (63 if width == 52 else 31)) - (1 << width)
    small = p.lt(p.absolute(wide), torch.finfo(wide.dtype).tiny)
    bits = p.view_dtype(p.where(small, p.mul(wide, 2.0**lift), wide), BITS[wide.dtype])
    plain = p.logical_or(p.eq(wide, 0), p.logical_not(isfinite(wide)))
    found = p.sub(p.shift_right(p.bitwise_and(bits, _of(exponents, bits)), _of(width, bits)), bias)
    exponent = p.where(plain, 0, p.sub(found, p.mul(cast(small, bits.dtype), lift)))
    kept = p.bitwise_or(p.bitwise_and(bits, _of(~exponents, bits)), _of(bias << width, bits))
    mantissa = p.where(plain, wide, p.view_dtype(kept, wide.dtype))
    return cast(mantissa, x.dtype), cast(exponent, torch.int32)


def _of(number: int, like: Tensor) -> Tensor:
    return p.full([], number, dtype=like.dtype, device=like.device)


@decompose("round.decimals")
@rounds_once
def round_decimals(x: Tensor, *, decimals: int) -> Tensor:
    if not x.is_floating_point():
        return NotImplemented
    if decimals == 0:
        return p.round_(x)
    power = 10.0 ** abs(decimals)
    return p.div(p.round_(p.mul(x, power)), power) if decimals > 0 else p.mul(p.round_(p.div(x, power)), power)


@decompose("angle", also_complex=True)
def angle(x: Tensor) -> Tensor:
    if x.is_complex():
        re, im = parts_of(x)
        return contiguous(p.atan2(im, re))
    wide = floating(x)
    return p.where(p.isnan(wide), wide, p.where(p.lt(wide, 0), math.pi, p.full_like(wide, 0.0)))


def _truth(x: Tensor) -> Tensor:
    return x if x.dtype is torch.bool else p.ne(x, 0)


@decompose("logical_not", also_complex=True)
def logical_not(x: Tensor) -> Tensor:
    return p.bitwise_not(x) if x.dtype is torch.bool else p.eq(x, 0)


@decompose("logical_and")
def logical_and(x: Tensor, y: Tensor) -> Tensor:
    return p.bitwise_and(_truth(x), _truth(y))


@decompose("logical_or")
def logical_or(x: Tensor, y: Tensor) -> Tensor:
    return p.bitwise_or(_truth(x), _truth(y))


@decompose("logical_xor")
def logical_xor(x: Tensor, y: Tensor) -> Tensor:
    return p.bitwise_xor(_truth(x), _truth(y))


@decompose("heaviside")
def heaviside(x: Tensor, values: Tensor) -> Tensor:
    step = cast(p.gt(x, 0), x.dtype)
    value = p.where(p.eq(x, 0), values, step)
    return p.where(p.isnan(x), 0.0, value) if x.is_floating_point() else value


@decompose("nan_to_num")
def nan_to_num(x: Tensor, nan: float | None = None, high: float | None = None, low: float | None = None) -> Tensor:
    if not x.is_floating_point():
        return p.clone(x)
    limits = torch.finfo(x.dtype)
    value = p.where(p.eq(x, math.inf), limits.max if high is None else high, x)
    value = p.where(p.eq(x, -math.inf), limits.min if low is None else low, value)
    return p.where(p.isnan(x), 0.0 if nan is None else nan, value)


@decompose("hypot")
@rounds_once
def hypot(x: Tensor, y: Tensor) -> Tensor:
    a, b = p.absolute(x), p.absolute(y)
    top, low = p.maximum(a, b), p.minimum(a, b)
    ratio = p.div(low, top)
    value = p.mul(top, p.sqrt(p.add(p.mul(ratio, ratio), 1.0)))
    value = p.where(p.eq(top, 0.0), 0.0, value)
    return p.where(p.logical_or(p.isinf(a), p.isinf(b)), math.inf, value)  # even beside a NaN


@decompose("deg2rad")
@rounds_once
def deg2rad(x: Tensor) -> Tensor:
    return p.mul(x, math.pi / 180.0)


@decompose("rad2deg")
@rounds_once
def rad2deg(x: Tensor) -> Tensor:
    return p.mul(x, 180.0 / math.pi)


@decompose("positive")
def positive(x: Tensor) -> Tensor:
    return p.alias(x)


@decompose("native_dropout_backward", also_complex=True, mixed=True)
@rounds_once
def native_dropout_backward(grad: Tensor, mask: Tensor, scale: float) -> Tensor:
    return p.mul(p.mul(grad, mask), scale)


@decompose("fill.Scalar", "fill.Tensor", also_complex=True)
def fill(x: Tensor, value: Any) -> Tensor:
    if isinstance(value, Tensor):
        return p.where(p.full([], True, dtype=torch.bool, device=x.device), cast(value, x.dtype), x)
    return p.full_like(x, value)


@decompose("zero", also_complex=True)
def zero(x: Tensor) -> Tensor:
    return p.full_like(x, 0)
