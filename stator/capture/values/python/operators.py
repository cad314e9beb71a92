"""Python's operators between two values: left, reflected, TypeError.

Constants are folded by running the operator. Everything else asks the values, in Python's order.
Neighbours: the opcodes, `builtin.py` (sorted, sum, operator.*).
"""

from __future__ import annotations

import functools
import operator
from typing import TYPE_CHECKING, Any

from stator.base.errors import GraphBreak
from stator.capture.values import watch
from stator.capture.values.base import call_written
from stator.capture.values.fold import fold
from stator.capture.values.methods import COMPARE, OPERATOR_DUNDERS, UNARY
from stator.capture.values.mirror import apply
from stator.capture.values.python.constant import boolean
from stator.capture.values.registry import LITERALS, fresh

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
UNARY_METHODS = {"-": "__neg__", "+": "__pos__", "~": "__invert__"}
METHODS = {operation: name for name, operation in OPERATOR_DUNDERS.items()}
MIRRORED = {"<": ">", "<=": ">=", "==": "==", "!=": "!=", ">": "<", ">=": "<="}


def is_foldable(*values: Value) -> bool:
    """Whether Python can compute with them now: constants, and no number that differs from call to call."""
    return all(value.is_constant() and not value.is_symbolic() for value in values)


def _unsupported(tx: Machine, function: Callable[[Any, Any], Any], left: Value, right: Value) -> Value:
    """What Python says of an operator that both operands have declined; nothing of a program's is asked again."""
    return apply(tx, function, (left, right), mute=True)


def _reflected_first(tx: Machine, left: Value, right: Value) -> bool:
    """Python asks the right operand first when its class is a proper subclass of the left one's."""
    ours, theirs = left.python_type(), right.python_type()
    if theirs is ours:
        return False
    watch.bases(tx, theirs)
    return issubclass(theirs, ours)


def binary(tx: Machine, op: str, left: Value, right: Value, written: Callable[[Any, Any], Any] | None = None) -> Value:
    """`left op right`; an error is that of the operator that was `written`."""
    if is_foldable(left, right):
        answer = operate_written(tx, left, right, ("binary", op), ("binary_reflected", op))
        return fold(tx, BINARY[op], (left, right)) if answer is None else answer
    if _reflected_first(tx, left, right):
        result = right.binary_reflected(tx, op, left)
        if result is not None:
            return result
    result = left.binary(tx, op, right)
    if result is None:
        result = right.binary_reflected(tx, op, left)
    return _unsupported(tx, written or BINARY[op], left, right) if result is None else result


def operate_written(
    tx: Machine, left: Value, right: Value, operation: tuple[str, str], mirrored: tuple[str, str]
) -> Value | None:
    """An operation on constants of which one has the user's method for it, which is no fact to be computed now."""
    asked = (left, METHODS[operation], right), (right, METHODS[mirrored], left)
    for value, method, other in reversed(asked) if _reflected_first(tx, left, right) else asked:
        answer = call_written(tx, value, method, other)
        if answer is not None and answer.is_constant() and answer.constant() is NotImplemented:
            raise value.refuse(f"{method}, which leaves the answer to the other operand,")
        if answer is not None:
            return answer
    return None


def inplace(tx: Machine, op: str, left: Value, right: Value) -> Value:
    """`left op= right`: the new value of the name."""
    if is_foldable(left, right):
        answer = operate_written(tx, left, right, ("binary", op), ("binary_reflected", op))
        return fold(tx, INPLACE[op], (left, right)) if answer is None else answer
    result = left.inplace(tx, op, right)
    return binary(tx, op, left, right, INPLACE[op]) if result is None else result


def compare(tx: Machine, op: str, left: Value, right: Value) -> Value:
    """`left op right` for an ordering or equality."""
    if is_foldable(left, right):
        for item in (*left.children(), *right.children()):
            pin_nan(tx, item)
        written = operate_written(tx, left, right, ("compare", op), ("compare", MIRRORED[op]))
        return fold(tx, COMPARE[op], (left, right)) if written is None else written
    if _reflected_first(tx, left, right):
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
    return _unsupported(tx, COMPARE[op], left, right)


def identical(tx: Machine, left: Value, right: Value) -> bool:
    """`left is right`, with a guard where a later call may have it otherwise."""
    if left is right or (left.source is not None and left.source is right.source):
        return True
    if left.is_none() or right.is_none():
        return left.is_none() and right.is_none()
    same = is_same(left, right)
    if (left.is_pinned() and right.is_pinned()) or (left.source is None and right.source is None):
        return same
    if left.python_type() is not right.python_type():
        return False
    if left.is_symbolic() or right.is_symbolic():
        raise GraphBreak(
            f"the program asks whether two values of {left.python_type().__name__} are one object", "compare with =="
        )
    sources = left.source, right.source
    if None not in sources:
        tx.guard("SAME" if same else "NOT_SAME", *sources)
    elif left.is_constant() and right.is_constant():
        met, other = (left, right) if right.source is not None else (right, left)
        tx.guard("CALL", other.source, (functools.partial(operator.is_, met.constant()), same))
    return same


def equal(tx: Machine, left: Value, right: Value) -> bool:
    """`left is right or left == right` as containers ask."""
    if is_reflexive(left) or is_reflexive(right):
        return compare(tx, "==", left, right).truth(tx)
    return identical(tx, left, right) or compare(tx, "==", left, right).truth(tx)


def is_reflexive(value: Value) -> bool:
    """Whether it is a number or text that is equal to itself (nan is not): containers need not ask who it is."""
    if value.is_symbolic():
        return issubclass(value.python_type(), int | float)
    return value.is_constant() and value.python_type() in LITERALS and bool(value.constant() == value.constant())


def pin_nan(tx: Machine, value: Value) -> None:
    """Containers tell values that differ from themselves by identity: a nan from outside must be the very object."""
    for item in value.children():
        pin_nan(tx, item)
    if value.source is None or not value.is_constant() or value.python_type() not in (float, complex):
        return
    number = value.constant()
    if number != number:
        watch.identity(tx, value.source, number)


def is_same(left: Value, right: Value) -> bool:
    """`left is right`, as it is in the call at hand."""
    return left is right or left.is_same(right) or right.is_same(left)


def unary(tx: Machine, op: str, value: Value) -> Value:
    """`op value` for - + ~."""
    if is_foldable(value):
        written = call_written(tx, value, UNARY_METHODS[op])
        return fold(tx, UNARY[op], (value,)) if written is None else written
    return value.unary(tx, op)


def negate(tx: Machine, value: Value) -> Value:
    """`not value`."""
    return boolean(not value.truth(tx))


def contains(tx: Machine, item: Value, container: Value) -> Value:
    """`item in container`."""
    if is_foldable(item, container):
        pin_nan(tx, item)
        pin_nan(tx, container)
        if isinstance(container.constant(), type):
            return container.contains(tx, item)
        if (written := call_written(tx, container, "__contains__", item)) is not None:
            return boolean(written.truth(tx))
        return fold(tx, operator.contains, (container, item))
    return container.contains(tx, item)


def hash_of(tx: Machine, value: Value) -> Value:
    """`hash(value)`."""
    if value.is_constant():
        written = call_written(tx, value, "__hash__")
        return fold(tx, hash, (value if written is None else written,))
    method = getattr(value, "m___hash__", None)
    if method is not None:
        return fresh(method(tx).constant())
    if not value.by_mirrors:
        raise value.refuse("hash()")
    return apply(tx, hash, (value,))
