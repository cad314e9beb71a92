"""Which numbers of f32 bf16 has exactly: rounding them does nothing, and their sums are rounded by an instruction.

    x, y: f32 = cast(a), cast(b)     of bf16
    cast(add(x, y))             →    add.rn.bf16x2, of two elements of a and b at once

The sum, difference or product of two numbers of 8 bits, rounded to 24 and then to 8 bits, is what rounding once gives
(Figueroa, 1995): of products but for those below bf16's least number, which may become that or 0.
Neighbours: `elementwise` asks before it rounds.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from stator.tile.interpret.casts import narrow
from stator.tile.ir.core import Function, Operation, Value
from stator.tile.ir.types import BF16, F32, I1

#: Operators that give one of their operands, or that but for its sign, or move elements.
_KEEPS = frozenset(
    """select minimum maximum clamp neg abs splat broadcast reshape expand_dims permute convert_layout join split
    cat""".split()
)
#: The first architecture that adds and multiplies in bf16.
SINCE = 90
_ARITHMETIC = frozenset(["add", "sub", "mul"])


class Halves:
    """What is known of a function's values of f32."""

    def __init__(self, function: Function) -> None:
        self._made = {result: o for o in function.body.walk() for result in o.results}
        self._uses = Counter(operand for o in function.body.walk() for operand in o.operands)
        self._known: dict[Value, bool] = {}

    def are_exact(self, value: Value) -> bool:
        """Whether all elements are numbers that bf16 has."""
        if value not in self._known:
            self._known[value] = self._exact(value)
        return self._known[value]

    def _exact(self, value: Value) -> bool:
        made, element = self._made.get(value), value.type.element
        if element == BF16:
            return True
        if made is None or element != F32:
            return False
        if made.op == "cast":
            return made.operands[0].type.element == BF16
        if made.op == "constant":
            number = np.asarray(made.attrs["value"], np.float32)
            return bool(np.isnan(number) or narrow(number, BF16).astype(np.float32) == number)
        return made.op in _KEEPS and all(self.are_exact(o) for o in made.operands if o.type.element != I1)

    def arithmetic(self, value: Value) -> Operation | None:
        """What computes a value of such numbers for one user alone, if bf16 has the instruction."""
        made = self._made.get(value)
        if made is None or made.op not in _ARITHMETIC or self._uses[value] != 1 or value.type.element != F32:
            return None
        return made if all(map(self.are_exact, made.operands)) else None
