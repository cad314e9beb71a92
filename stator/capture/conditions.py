"""Conditions on sizes as guards: operands that lead to numbers, and a postfix program over them.

The program is a tuple of steps, `("operand", k)`, `("const", n)` or an operator such as `("*",)`, which the native
tree evaluates on 64-bit integers with Python's floor division. `infix` prints it as a user would write it.
Neighbours: `guards.py` (the kind CONDITION), `csrc/condition.c` (evaluation).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal, NamedTuple

from stator.capture.source import Source
from stator.sizes.real import bits_of, from_bits

Number = Literal["size", "stride", "offset", "length", "int", "bits"]

Step = tuple[str] | tuple[str, int]
Program = tuple[Step, ...]

#: How tightly an operator binds; what is no operator binds tightest.
PRECEDENCE: Final = {"==": 0, "!=": 0, "<": 0, "<=": 0, "+": 1, "-": 1, "*": 2, "//": 2, "%": 2}
ATOM: Final = 3

#: A comparison read from its other side.
MIRRORED: Final = {"==": "==", "!=": "!=", "<": ">", "<=": ">="}


class Operand(NamedTuple):
    """A number that a condition reads: a size, stride or the offset of a tensor, the length of a list, an int, or the
    bits of a float."""

    source: Source
    kind: Number
    dim: int = 0

    def read(self, obj: Any) -> int:
        """The number, of the object at the source."""
        match self.kind:
            case "size":
                return obj.size(self.dim)
            case "stride":
                return obj.stride(self.dim)
            case "offset":
                return obj.storage_offset()
            case "length":
                return len(obj)
            case "bits":
                return bits_of(obj)
        return obj

    def __str__(self) -> str:
        match self.kind:
            case "size" | "stride":
                return f"{self.source}.{self.kind}()[{self.dim}]"
            case "offset":
                return f"{self.source}.storage_offset()"
            case "length":
                return f"len({self.source})"
            case "bits":
                return f"bits({self.source})"
        return str(self.source)


class ConditionFacts(NamedTuple):
    """What a CONDITION guard compares."""

    operands: tuple[Operand, ...]
    program: Program

    def __str__(self) -> str:
        floats = len(self.program) == 3 and any(operand.kind == "bits" for operand in self.operands)
        return infix(self.program, tuple(map(str, self.operands)), _bits if floats else str)


def _bits(constant: int) -> str:
    """The bits of a float, by the float."""
    return f"bits({from_bits(constant)!r})"


def infix(program: Program, names: tuple[str, ...], constant: Callable[[int], str] = str) -> str:
    """A program as a Python expression, a lone constant on the right of a comparison."""
    stack: list[tuple[str, int, bool]] = []
    for step in program:
        match step:
            case "operand", int(number):
                stack.append((names[number], ATOM, False))
            case "const", int(number):
                stack.append((constant(number), ATOM if number >= 0 else 1, True))
            case (operator,):
                right, left = stack.pop(), stack.pop()
                stack.append(combine(operator, left, right))
    return stack[-1][0]


def combine(operator: str, left: tuple[str, int, bool], right: tuple[str, int, bool]) -> tuple[str, int, bool]:
    """The text of one operation, how tightly it binds, and whether it is a constant."""
    if operator in MIRRORED and left[2] and not right[2]:
        operator, left, right = MIRRORED[operator], right, left
    binds = PRECEDENCE.get(operator, 0 if operator in MIRRORED.values() else ATOM)
    if binds == ATOM:
        return f"{operator}({left[0]}, {right[0]})", ATOM, False
    first = left[0] if left[1] >= binds else f"({left[0]})"
    second = right[0] if right[1] > binds or (operator == "+" and right[1] == binds) else f"({right[0]})"
    between = operator if operator == "*" else f" {operator} "
    return f"{first}{between}{second}", binds, False
