"""A number that no element of an integer tile is below, by the operator and what is known of its operands.

Overflow is taken not to happen, as in all of axis information; None says nothing.
Neighbour: `axes` goes through a function, and asks here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

from stator.tile.ir.core import Operation
from stator.tile.ir.types import DType


class Known(Protocol):
    """What the rules read of an operand."""

    @property
    def least(self) -> int | None: ...
    @property
    def value(self) -> int | None: ...


Rule: TypeAlias = "Callable[[Operation, Sequence[Known]], int | None]"


def least_of(operation: Operation, given: Sequence[Known]) -> int | None:
    """Of an operation's first result."""
    element = operation.results[0].type.element if operation.results else None
    if not isinstance(element, DType) or not element.is_integer:
        return None
    rule = RULES.get(operation.op)
    found = rule(operation, given) if rule is not None else None
    return max(found or 0, 0) if element.kind == "uint" else found


def _moved(operation: Operation, given: Sequence[Known]) -> int | None:
    return given[0].least


def _constant(operation: Operation, given: Sequence[Known]) -> int | None:
    return int(operation.attrs["value"])


def _of_two(combine: Callable[[int, int], int | None]) -> Rule:
    """Of the last two operands, where both are known."""

    def rule(operation: Operation, given: Sequence[Known]) -> int | None:
        a, b = given[-2].least, given[-1].least
        return None if a is None or b is None else combine(a, b)

    return rule


def _difference(operation: Operation, given: Sequence[Known]) -> int | None:
    """Less a number that is known: nothing else has an upper bound here."""
    a, b = given
    return None if a.least is None or b.value is None else a.least - b.value


def _greater(operation: Operation, given: Sequence[Known]) -> int | None:
    return max([known.least for known in given if known.least is not None], default=None)


def _remainder(operation: Operation, given: Sequence[Known]) -> int | None:
    """It has the sign of the dividend, as a quotient has where divisors are taken to be positive."""
    dividend = given[0].least
    return 0 if dividend is not None and dividend >= 0 else None


def _masked(operation: Operation, given: Sequence[Known]) -> int | None:
    """Bits of a number without a sign, whatever the other one has."""
    return 0 if any(known.least is not None and known.least >= 0 for known in given) else None


def _cast(operation: Operation, given: Sequence[Known]) -> int | None:
    """Only what has room for the number keeps it."""
    before, after = operation.operands[0].type.element, operation.results[0].type.element
    whole = isinstance(before, DType) and before.is_integer
    return given[0].least if whole and after.itemsize >= before.itemsize else None


def _naturals(a: int, b: int) -> int | None:
    return 0 if a >= 0 and b >= 0 else None


RULES: dict[str, Rule] = {
    "constant": _constant,
    "arange": lambda operation, given: int(operation.attrs["start"]),
    "program_id": lambda operation, given: 0,
    "num_programs": lambda operation, given: 1,
    **dict.fromkeys(("splat", "broadcast", "expand_dims", "permute", "reshape", "convert_layout"), _moved),
    "add": _of_two(lambda a, b: a + b),
    "sub": _difference,
    "mul": _of_two(lambda a, b: a * b if a >= 0 and b >= 0 else None),
    "idiv": _remainder,
    "shr": _remainder,
    "shl": _remainder,
    "or": _of_two(_naturals),
    "rem": _remainder,
    "and": _masked,
    "minimum": _of_two(min),
    "maximum": _greater,
    "select": _of_two(min),
    "cast": _cast,
}
