"""Floats of eight bits: `float8_e4m3fn` and `float8_e5m2` as float32 and back, by the integers in their bits.

Eager computes nothing else of them. A format has a sign, an exponent and a mantissa, as float32 has, so that a normal
number is the same bits elsewhere, moved and with another bias; one below the normal ones is a whole multiple of the
least, and adding a float32 whose last bit is that rounds to it. All rounds to nearest even. Too large a number is
infinite in `float8_e5m2`; in `float8_e4m3fn`, which has no infinities, it is what the PyTorch that is there makes of
it: the largest number, or none.
Neighbours: `opaque.py` asks; loops move and copy such elements as bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from stator.base.dtypes import ITEMSIZE
from stator.loop import expr as e
from stator.loop.expr import Expr
from stator.lowering.context import Context
from stator.lowering.extern import target_name
from stator.lowering.value import LazyTensor, Spec, numbers, over, pointwise

#: Bits of a float32's mantissa, the bias of its exponent, and the bits of its infinity.
MANTISSA, BIAS, INFINITY = 23, 127, 0xFF << 23
#: Operators that converting one takes.
WEIGHT = 10


@dataclass(frozen=True, slots=True)
class Format:
    """How many bits of what there are, and what becomes of numbers that are too large."""

    mantissa: int
    bias: int
    most: int  # the bits of the least float32 that is too large
    far: int  # the code of such
    infinity: int  # the code of infinity, or of what is no number: there are no numbers from here on

    @property
    def shift(self) -> int:
        """How far its mantissa is from where float32 has it."""
        return MANTISSA - self.mantissa

    @property
    def least(self) -> float:
        """The least number above zero."""
        return 2.0 ** (1 - self.bias - self.mantissa)


#: PyTorch 2.13 has made the largest number, 448, of what is larger; before, it was no number.
_FAR = int(torch.full((), torch.inf).to(torch.float8_e4m3fn).view(torch.uint8))
FORMATS = {"f8e4m3": Format(3, 7, 0x43E80001, _FAR, 0x7F), "f8e5m2": Format(2, 15, 0x47800000, 0x7C, 0x7C)}


def lower(context: Context, target: Any, out: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A conversion as a loop; None for all else, and for what another device holds."""
    if target_name(target) != "aten._to_copy.default" or not isinstance(out, Spec):
        return None
    (x,) = args
    if x.dtype == out.dtype or not {x.dtype, out.dtype} & FORMATS.keys():
        return None
    if not {x.dtype, out.dtype} - FORMATS.keys() <= ITEMSIZE.keys():
        return None
    source = numbers(x) if x.dtype in FORMATS else x
    if out.device != (source.place.buffer.device if source.place is not None else context.device.kind):
        return None
    if x.dtype in FORMATS:
        source = _widened(source, FORMATS[x.dtype])
    if out.dtype in FORMATS:
        return over(_narrowed(source, FORMATS[out.dtype]), out.dtype)
    return pointwise(x.size, out.dtype, lambda at: e.cast(source.load(at), out.dtype), source.weight + 1)


def _widened(raw: LazyTensor, form: Format) -> LazyTensor:
    return pointwise(raw.size, "f32", lambda at: decoded(raw.load(at), form), raw.weight + WEIGHT)


def _narrowed(x: LazyTensor, form: Format) -> LazyTensor:
    return pointwise(x.size, "u8", lambda at: encoded(e.cast(x.load(at), "f32"), form), x.weight + WEIGHT)


def decoded(byte: Expr, form: Format) -> Expr:
    """The float32 that a byte stands for."""
    size = e.op("and", byte, e.const(0x7F, "u8"))
    code, sign = e.cast(size, "i32"), _up(e.op("and", e.cast(byte, "i32"), _int(0x80)), 24)
    normal = e.op("add", _up(code, form.shift), _int((BIAS - form.bias) << MANTISSA))
    far = e.op("or", _up(code, form.shift), _int(INFINITY))
    small = e.bitcast(e.op("mul", e.cast(size, "f32"), e.const(form.least, "f32")), "i32")
    value = _choose("lt", code, 1 << form.mantissa, small, normal)
    value = _choose("ge", code, form.infinity, far, value)
    return e.bitcast(e.op("or", value, sign), "f32")


def encoded(value: Expr, form: Format) -> Expr:
    """The byte for a float32."""
    bits = e.bitcast(value, "i32")
    size, sign = e.op("and", bits, _int(0x7FFFFFFF)), e.op("and", e.op("shr", bits, _int(24)), _int(0x80))
    odd = e.op("and", e.op("shr", size, _int(form.shift)), _int(1))
    rounding = ((form.bias - BIAS) << MANTISSA) + (1 << (form.shift - 1)) - 1
    normal = e.op("shr", e.op("add", e.op("add", size, _int(rounding)), odd), _int(form.shift))
    ones = e.const(form.least * 2.0**MANTISSA, "f32")  # whose last bit is the least number
    small = e.op("sub", e.bitcast(e.op("add", e.bitcast(size, "f32"), ones), "i32"), e.bitcast(ones, "i32"))
    code = _choose("lt", size, (BIAS - form.bias + 1) << MANTISSA, small, normal)
    far = _choose("gt", size, INFINITY, _int(0x7F), _int(form.far))
    return e.cast(e.op("or", _choose("ge", size, form.most, far, code), sign), "u8")


def _int(value: int) -> Expr:
    return e.const(value, "i32")


def _up(value: Expr, count: int) -> Expr:
    return e.op("shl", value, _int(count))


def _choose(op: str, left: Expr, right: int, then: Expr, otherwise: Expr) -> Expr:
    return e.op("where", e.op(op, left, _int(right)), then, otherwise)
