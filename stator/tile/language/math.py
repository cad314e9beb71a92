"""Functions of numbers: exponentials, roots, rounding, and the divisions that say how they round.

What takes floats takes fp32 and fp64, as in Triton: half types are cast by the kernel, and round where it says.
Neighbours: `arithmetic.py` has operators, `extra/libdevice.py` the larger set of functions.
"""

from __future__ import annotations

from typing import Any

from stator.tile.errors import InvalidUse
from stator.tile.language.context import emit
from stator.tile.language.promotion import broadcast_all, cast_to, promote, to_tensor
from stator.tile.language.static import unwrap
from stator.tile.language.types import dtype, float32, float64, int32, int64, uint32, uint64
from stator.tile.language.values import tensor

__all__ = [
    "abs", "ceil", "cos", "div_rn", "erf", "exp", "exp2", "fdiv", "floor", "fma", "log", "log2", "rsqrt", "sin",
    "sqrt", "sqrt_rn", "umulhi",
]  # fmt: skip

_WIDE = (float32, float64)
_WORDS = (int32, int64, uint32, uint64)


def _check(what: str, type: dtype, allowed: tuple[dtype, ...]) -> None:
    if type not in allowed:
        names = " or ".join(str(item) for item in allowed)
        hint = f"cast it: `x.to(tl.{allowed[0].codegen_name()})`" if type.is_floating() else ""
        raise InvalidUse(f"{what} takes {names}, not {type}", hint)


def _float(op: str, x: Any, allowed: tuple[dtype, ...] = _WIDE) -> tensor:
    value = to_tensor(x)
    _check(op, value.dtype, allowed)
    return emit(op, value)


def exp(x: Any) -> tensor:
    """e to the power of x."""
    return _float("exp", x)


def exp2(x: Any) -> tensor:
    """2 to the power of x."""
    return _float("exp2", x)


def log(x: Any) -> tensor:
    """The natural logarithm."""
    return _float("log", x)


def log2(x: Any) -> tensor:
    """The logarithm to base 2."""
    return _float("log2", x)


def cos(x: Any) -> tensor:
    """The cosine."""
    return _float("cos", x)


def sin(x: Any) -> tensor:
    """The sine."""
    return _float("sin", x)


def sqrt(x: Any) -> tensor:
    """The square root, maybe by the device's fast instruction."""
    return _float("sqrt", x)


def sqrt_rn(x: Any) -> tensor:
    """The square root, rounded to nearest even."""
    return _float("sqrt_rn", x, (float32,))


def rsqrt(x: Any) -> tensor:
    """One by the square root."""
    return _float("rsqrt", x)


def erf(x: Any) -> tensor:
    """The error function."""
    return _float("erf", x)


def floor(x: Any) -> tensor:
    """The greatest whole number that is not more."""
    return _float("floor", x)


def ceil(x: Any) -> tensor:
    """The least whole number that is not less."""
    return _float("ceil", x)


def abs(x: Any) -> tensor:
    """The size without sign."""
    value = to_tensor(x)
    if value.dtype.is_int_unsigned():
        return value
    if value.dtype.is_fp8():
        return cast_to(emit("abs", cast_to(value, float32)), value.dtype)
    return emit("abs", value)


def fdiv(x: Any, y: Any, ieee_rounding: Any = False) -> tensor:
    """A quotient of floats, correctly rounded if `ieee_rounding`."""
    a, b = promote(x, y)
    if not a.dtype.is_floating():
        raise InvalidUse(f"fdiv takes floats, not {a.dtype}", "`/` divides integers as fp32")
    return emit("div_rn" if unwrap(ieee_rounding) else "div", a, b)


def div_rn(x: Any, y: Any) -> tensor:
    """A quotient of fp32, rounded to nearest even."""
    a, b = promote(x, y)
    _check("div_rn", a.dtype, (float32,))
    return emit("div_rn", a, b)


def fma(x: Any, y: Any, z: Any) -> tensor:
    """x * y + z, rounded once."""
    a, b = promote(x, y)
    a, c = promote(a, z)
    a, b, c = broadcast_all([a, cast_to(b, a.dtype), c])
    if not a.dtype.is_floating():
        raise InvalidUse(f"fma takes floats, not {a.dtype}", "`x * y + z` is exact for integers")
    return emit("fma", a, b, c)


def umulhi(x: Any, y: Any) -> tensor:
    """The upper half of the bits of a product of integers of 32 or 64 bits."""
    a, b = promote(x, y)
    _check("umulhi", a.dtype, _WORDS)
    unsigned = uint32 if a.dtype.int_bitwidth == 32 else uint64
    return cast_to(emit("mulhi", cast_to(a, unsigned), cast_to(b, unsigned)), a.dtype)
