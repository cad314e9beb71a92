"""Python's operators between two values: left, reflected, TypeError.

Constants are folded by running the operator. Everything else asks the values, in Python's order.
Neighbours: the opcodes, `builtin.py` (sorted, sum, operator.*).
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

from stator.capture.values.constant import boolean
from stator.capture.values.fold import fold
from stator.capture.values.registry import fresh

if TYPE_CHECKING:
    from collections.abc import Callable

    from stator.capture.machine import Machine
    from stator.capture.value import Value

#: Operator text -> function.
BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "//": operator.floordiv,
    "%": operator.mod, "**": operator.pow, "@": operator.matmul, "&": operator.and_, "|": operator.or_,
    "^": operator.xor, "<<": operator.lshift, ">>": operator.rshift,
}  # fmt: skip
INPLACE: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.iadd, "-": operator.isub, "*": operator.imul, "/": operator.itruediv, "//": operator.ifloordiv,
    "%": operator.imod, "**": operator.ipow, "@": operator.imatmul, "&": operator.iand, "|": operator.ior,
    "^": operator.ixor, "<<": operator.ilshift, ">>": operator.irshift,
}  # fmt: skip
COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt, "<=": operator.le, "==": operator.eq, "!=": operator.ne, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
UNARY: dict[str, Callable[[Any], Any]] = {"-": operator.neg, "+": operator.pos, "~": operator.invert}
MIRRORED = {"<": ">", "<=": ">=", "==": "==", "!=": "!=", ">": "<", ">=": "<="}


def is_known(*values: Value) -> bool:
    """Whether Python can compute with them now: constants, and no number that differs from call to call."""
    return all(value.is_constant() and not value.is_symbolic() for value in values)


#: Types that Python's messages about + and * call sequences.
_SEQUENCES = (str, bytes, bytearray, list, tuple)


def _unsupported(tx: Machine, op: str, left: Value, right: Value) -> Value:
    kinds = left.python_type(), right.python_type()
    names = kinds[0].__name__, kinds[1].__name__
    worded = op[0] in "+*" and (issubclass(kinds[0], _SEQUENCES) or issubclass(kinds[1], _SEQUENCES))
    raise_type_error = tx.raise_roughly if worded else tx.raise_exception
    written = "** or pow()" if op == "**" else op
    raise_type_error(TypeError, f"unsupported operand type(s) for {written}: {names[0]!r} and {names[1]!r}")


def _reflected_first(left: Value, right: Value) -> bool:
    """Python asks the right operand first when its class is a proper subclass of the left one's."""
    ours, theirs = left.python_type(), right.python_type()
    return theirs is not ours and issubclass(theirs, ours)


def binary(tx: Machine, op: str, left: Value, right: Value, written: str = "") -> Value:
    """`left op right`; an error names the operator as it is `written`."""
    if is_known(left, right):
        return fold(tx, BINARY[op], (left, right))
    if _reflected_first(left, right):
        result = right.binary_reflected(tx, op, left)
        if result is not None:
            return result
    result = left.binary(tx, op, right)
    if result is None:
        result = right.binary_reflected(tx, op, left)
    return _unsupported(tx, written or op, left, right) if result is None else result


def inplace(tx: Machine, op: str, left: Value, right: Value) -> Value:
    """`left op= right`: the new value of the name."""
    result = left.inplace(tx, op, right)
    return binary(tx, op, left, right, op + "=") if result is None else result


def compare(tx: Machine, op: str, left: Value, right: Value) -> Value:
    """`left op right` for an ordering or equality."""
    if is_known(left, right):
        return fold(tx, COMPARE[op], (left, right))
    if _reflected_first(left, right):
        result = right.compare(tx, MIRRORED[op], left)
        if result is not None:
            return result
    result = left.compare(tx, op, right)
    if result is None:
        result = right.compare(tx, MIRRORED[op], left)
    if result is not None:
        return result
    if op in ("==", "!="):
        return boolean(identical(tx, left, right) is (op == "=="))
    names = left.python_type().__name__, right.python_type().__name__
    tx.raise_roughly(TypeError, f"{op!r} not supported between instances of {names[0]!r} and {names[1]!r}")


def identical(tx: Machine, left: Value, right: Value) -> bool:
    """`left is right`, with a guard where a later call may have it otherwise."""
    if is_same(left, right):
        return True
    if left.source is None or right.source is None or (left.is_constant() and right.is_constant()):
        return False
    if left.python_type() is right.python_type():
        tx.guard("NOT_SAME", left.source, right.source)
    return False


def equal(tx: Machine, left: Value, right: Value) -> bool:
    """`left is right or left == right` as containers ask."""
    return identical(tx, left, right) or compare(tx, "==", left, right).truth(tx)


def is_same(left: Value, right: Value) -> bool:
    """`left is right`."""
    return left is right or left.is_same(right) or right.is_same(left)


def unary(tx: Machine, op: str, value: Value) -> Value:
    """`op value` for - + ~."""
    if is_known(value):
        return fold(tx, UNARY[op], (value,))
    return value.unary(tx, op)


def negate(tx: Machine, value: Value) -> Value:
    """`not value`."""
    return boolean(not value.truth(tx))


def contains(tx: Machine, item: Value, container: Value) -> Value:
    """`item in container`."""
    if is_known(item, container):
        return fold(tx, operator.contains, (container, item))
    return container.contains(tx, item)


def hash_of(tx: Machine, value: Value) -> Value:
    """`hash(value)`."""
    if value.is_constant():
        return fold(tx, hash, (value,))
    method = getattr(value, "m___hash__", None)
    if method is None:
        raise value.refuse("hash()")
    return fresh(method(tx).constant())
