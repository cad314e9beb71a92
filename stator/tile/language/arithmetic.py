"""Operators between tensors: arithmetic, comparisons, bits, logic, choice.

Each promotes its operands first and appends one operation of the IR. What `a + b` means in a kernel is `add` here.
Neighbours: `promotion.py`; `members.py` hangs these on the class of tensors; `math.py` has functions of one number.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any

from stator.tile.errors import InvalidUse
from stator.tile.language.context import active, emit, emit_all
from stator.tile.language.promotion import (
    broadcast_all,
    broadcast_to,
    cast_to,
    is_number,
    promote,
    to_tensor,
    typed_constant,
)
from stator.tile.language.static import constexpr, unwrap
from stator.tile.language.types import bfloat16, float32, int1, int64
from stator.tile.language.values import tensor


class PropagateNan(Enum):
    """Whether a minimum or maximum of a number and a NaN is NaN."""

    NONE = 0
    ALL = 0xFFFF


def _folded(apply: Callable[[Any, Any], Any], x: Any, y: Any) -> Any:
    return constexpr(apply(unwrap(x), unwrap(y)))


def _guard_overflow(op: str, a: tensor, b: tensor) -> None:
    """Checks, if asked for, that the exact result of an operation on integers has the type of its operands."""
    type = a.dtype
    if not active().checks.overflow or not type.is_int() or type.is_bool() or type.int_bitwidth >= 64:
        return
    exact = emit(op, cast_to(a, int64), cast_to(b, int64))
    low, high = [typed_constant(limit, int64) for limit in (type.get_int_min_value(), type.get_int_max_value())]
    fits = emit("and", compare("ge", exact, low), compare("le", exact, high))
    emit_all("assert", [fits], message=f"{type} overflow in {op}")


def add(x: Any, y: Any, sanitize_overflow: Any = True) -> Any:
    """The sum of two numbers, or a pointer and how many elements further it points."""
    if is_number(x) and is_number(y):
        return _folded(lambda a, b: a + b, x, y)
    a, b = promote(x, y, left_pointer=True, right_pointer=True)
    if a.dtype.is_ptr() and b.dtype.is_ptr():
        raise InvalidUse("two pointers cannot be added", "subtract the other's base first, as `tl.int64`")
    if b.dtype.is_ptr():
        a, b = b, a
    if a.dtype.is_ptr():
        return _offset(a, b)
    if unwrap(sanitize_overflow):
        _guard_overflow("add", a, b)
    return emit("xor" if a.dtype.is_bool() else "add", a, b)  # of one bit, the sum without carry


def _offset(pointer: tensor, offset: tensor) -> tensor:
    if not offset.dtype.is_int():
        raise InvalidUse(f"an offset of a pointer is an integer, not {offset.dtype}")
    if offset.dtype.is_bool():
        offset = cast_to(offset, int64)
    return emit("addptr", pointer, offset, type=pointer.type)


def sub(x: Any, y: Any, sanitize_overflow: Any = True) -> Any:
    """The difference of two numbers, or a pointer and how many elements back it points."""
    if is_number(x) and is_number(y):
        return _folded(lambda a, b: a - b, x, y)
    a, b = promote(x, y, left_pointer=True, right_pointer=True)
    if b.dtype.is_ptr():
        raise InvalidUse("pointers cannot be subtracted", "cast both to `tl.int64`")
    if a.dtype.is_ptr():
        return _offset(a, minus(b if b.dtype.int_bitwidth == 64 else cast_to(b, int64)))
    if unwrap(sanitize_overflow):
        _guard_overflow("sub", a, b)
    return emit("xor" if a.dtype.is_bool() else "sub", a, b)


def mul(x: Any, y: Any, sanitize_overflow: Any = True) -> Any:
    """The product of two numbers."""
    if is_number(x) and is_number(y):
        return _folded(lambda a, b: a * b, x, y)
    a, b = promote(x, y)
    if unwrap(sanitize_overflow):
        _guard_overflow("mul", a, b)
    return emit("and" if a.dtype.is_bool() else "mul", a, b)


def truediv(x: Any, y: Any) -> tensor:
    """The quotient as a float; integers are divided in fp32."""
    a, b = promote(x, y, divides=True)
    if a.dtype.is_int():
        a, b = cast_to(a, float32), cast_to(b, float32)
    return emit("div", a, b)


def floordiv(x: Any, y: Any) -> tensor:
    """The quotient of integers, rounded toward zero as in C."""
    a, b = _integers("//", *promote(x, y, divides=True))
    return emit("idiv", a, b)


def mod(x: Any, y: Any) -> tensor:
    """What is left over by a division toward zero: it has the sign of `x`, as in C."""
    a, b = promote(x, y, divides=True)
    if a.dtype.is_bool():
        raise InvalidUse("% takes numbers, not int1")
    return emit("rem", a, b)


def _integers(sign: str, a: tensor, b: tensor) -> tuple[tensor, tensor]:
    if not a.dtype.is_int() or a.dtype.is_bool():
        hint = "for floats: `tl.floor(x / y)`" if sign == "//" else "cast them to integers of one width first"
        raise InvalidUse(f"{sign} takes integers, not {a.dtype}", hint)
    return a, b


def _bits(sign: str, x: Any, y: Any) -> tuple[tensor, tensor]:
    a, b = promote(x, y)
    if not a.dtype.is_int():
        raise InvalidUse(f"{sign} takes integers, not {a.dtype}", "`bitcast=True` in `.to` gives a float's bits")
    return a, b


def and_(x: Any, y: Any) -> tensor:
    """Bits that both have."""
    return emit("and", *_bits("&", x, y))


def or_(x: Any, y: Any) -> tensor:
    """Bits that one has."""
    return emit("or", *_bits("|", x, y))


def xor(x: Any, y: Any) -> tensor:
    """Bits that only one has."""
    return emit("xor", *_bits("^", x, y))


def shl(x: Any, y: Any) -> tensor:
    """`x` with its bits moved up."""
    return emit("shl", *_integers("<<", *_bits("<<", x, y)))


def shr(x: Any, y: Any) -> tensor:
    """`x` with its bits moved down; of signed integers the sign fills up."""
    return emit("shr", *_integers(">>", *_bits(">>", x, y)))


def minus(x: Any) -> Any:
    """`x` with the other sign."""
    if x.dtype.is_ptr() or x.dtype.is_bool():
        raise InvalidUse(f"- takes numbers, not {x.dtype}")
    return emit("neg", x)


def plus(x: Any) -> Any:
    """`x` as it is."""
    return x


def invert(x: Any) -> Any:
    """Every bit the other way."""
    if not x.dtype.is_int():
        raise InvalidUse(f"~ takes integers, not {x.dtype}")
    return emit("not", x)


def compare(op: str, x: Any, y: Any) -> tensor:
    """One of eq, ne, lt, le, gt, ge: an int1 for each pair. Numbers have the type that they have alone."""
    left, right = to_tensor(x), to_tensor(y)
    a, b = broadcast_all([left, right]) if _same_pointers(left, right) else promote(left, right)
    if a.dtype.is_fp8():
        a, b = cast_to(a, float32), cast_to(b, float32)  # exact, and the IR computes with wider floats
    return emit(op, a, b, type=a.type.with_element_ty(int1))


def _same_pointers(x: Any, y: Any) -> bool:
    return isinstance(x, tensor) and isinstance(y, tensor) and x.dtype.is_ptr() and x.dtype == y.dtype


def truth(x: Any) -> tensor:
    """Whether numbers are not 0."""
    return cast_to(to_tensor(x), int1)


def logical_and(x: Any, y: Any) -> tensor:
    """Whether both are not 0."""
    return emit("and", *broadcast_all([truth(x), truth(y)]))


def logical_or(x: Any, y: Any) -> tensor:
    """Whether one is not 0."""
    return emit("or", *broadcast_all([truth(x), truth(y)]))


def logical_not(x: Any) -> tensor:
    """Whether it is 0."""
    return emit("not", truth(x))


def _wide(x: Any) -> tensor:
    """A tensor, of which bfloat16 is computed with as fp32; numbers have the type that they have alone."""
    value = to_tensor(x)
    return cast_to(value, float32) if value.dtype == bfloat16 else value


def _chosen(op: str, x: Any, y: Any, propagate_nan: Any) -> Any:
    a, b = promote(_wide(x), _wide(y))
    if a.dtype.is_bool():
        return emit("or" if op == "maximum" else "and", a, b)
    return emit(op, a, b, nan=_nan_rule(propagate_nan))


def _nan_rule(propagate_nan: Any) -> str:
    rule = unwrap(propagate_nan)
    if not isinstance(rule, PropagateNan):
        raise InvalidUse(f"propagate_nan is one of `tl.PropagateNan`, not {rule!r}")
    return "propagate" if rule is PropagateNan.ALL else "number"


def minimum(x: Any, y: Any, propagate_nan: Any = PropagateNan.NONE) -> Any:
    """The lesser of two numbers; of a number and a NaN the number, or the NaN with `PropagateNan.ALL`."""
    return _chosen("minimum", x, y, propagate_nan)


def maximum(x: Any, y: Any, propagate_nan: Any = PropagateNan.NONE) -> Any:
    """The greater of two numbers; of a number and a NaN the number, or the NaN with `PropagateNan.ALL`."""
    return _chosen("maximum", x, y, propagate_nan)


def clamp(x: Any, min: Any, max: Any, propagate_nan: Any = PropagateNan.NONE) -> tensor:
    """`x` moved into min … max."""
    low, high = promote(_wide(min), _wide(max))
    value, low = promote(_wide(x), low)
    value, high = promote(value, high)
    low = broadcast_to(cast_to(low, value.dtype), value.type.shape)
    value, low, high = broadcast_all([value, low, high])
    if not value.dtype.is_floating():
        raise InvalidUse(f"clamp takes floats, not {value.dtype}", "for integers: tl.minimum(tl.maximum(x, low), high)")
    return emit("clamp", value, low, high, nan=_nan_rule(propagate_nan))


def where(condition: Any, x: Any, y: Any) -> tensor:
    """`x` where the condition holds, else `y`; both are computed."""
    holds = truth(condition)
    first, second = broadcast_all([x, y]) if _same_pointers(x, y) else promote(x, y)
    holds, first, second = broadcast_all([holds, first, second])
    return emit("select", holds, first, second, type=first.type)
