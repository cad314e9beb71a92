"""Which values are computed wherever they are used, and what they come down to there.

Inline are tiles that are others seen in another shape, constants, and what is computed of positions and scalars alone
in few steps: offsets, pointers, masks. All else is computed once, in a nest. The `sources` of a value are those values
that are not inline and that it is computed of; each with whether only its element at the same place is needed.
Neighbours: `schedule` orders operations by sources.
"""

from __future__ import annotations

from collections.abc import Iterator

from stator.tile.ir.core import Function, Operation, Value
from stator.tile.ir.operators import OPERATORS
from stator.tile.ir.types import DType

#: Operators that only say where the elements of a tile are.
VIEWS = frozenset("splat broadcast expand_dims reshape permute join split cat".split())
_COSTS = {"idiv": 8, "rem": 8, "mulhi": 4, "cast": 1, "splat": 0, "broadcast": 0, "expand_dims": 0, "constant": 0}
_LIMIT = 40


class Inlining:
    """The inline values of a function."""

    def __init__(self, function: Function) -> None:
        self.inline: dict[Value, Operation] = {}
        self.made: dict[Value, Operation] = {}
        self.params = set(function.params)
        self._costs: dict[Value, int] = {}  # of values that are computed of positions and scalars alone
        self._sources: dict[Value, tuple[tuple[Value, bool], ...]] = {}
        for operation in function.body.walk():
            self.made.update(dict.fromkeys(operation.results, operation))
            if operation.results and not operation.results[0].type.is_scalar:
                self._decide(operation)

    def _decide(self, operation: Operation) -> None:
        op = operation.op
        cost = self._cost(operation)
        if op in VIEWS or op in ("constant", "arange") or (self._computes_places(operation) and cost is not None):
            self.inline.update(dict.fromkeys(operation.results, operation))
            if cost is not None:
                self._costs.update(dict.fromkeys(operation.results, cost))

    def _cost(self, operation: Operation) -> int | None:
        """How many steps an element takes, if it is few of positions and scalars alone."""
        total = _COSTS.get(operation.op, 1)
        for operand in operation.operands:
            if operand.type.is_scalar:
                continue
            if operand not in self._costs:
                return None
            total += self._costs[operand]
        return total if total <= _LIMIT else None

    def _computes_places(self, operation: Operation) -> bool:
        elements = [value.type.element for value in (*operation.operands, *operation.results)]
        whole = not any(isinstance(element, DType) and element.is_float for element in elements)
        return whole and OPERATORS[operation.op].elementwise if operation.op in OPERATORS else False

    def sources(self, value: Value) -> tuple[tuple[Value, bool], ...]:
        """What is not inline and a value is computed of, and whether at the same place alone."""
        operation = self.inline.get(value)
        if operation is None:
            return ((value, True),)
        if value not in self._sources:
            found: dict[Value, bool] = {}
            for operand in operation.operands:
                for source, here in self.sources(operand):
                    found[source] = found.get(source, True) and here and operation.op not in VIEWS
            self._sources[value] = tuple(found.items())
        return self._sources[value]

    def of_places(self, value: Value) -> bool:
        """Whether a tile is computed of positions and scalars alone."""
        return value in self._costs

    def used(self, operation: Operation) -> tuple[Value, ...]:
        """What an operation with regions uses of what is around it, but for tiles that it starts to carry."""
        scalars = [operand for operand in operation.operands if operand.type.is_scalar]
        return tuple(dict.fromkeys([*scalars, *self._free(operation)]))

    def _free(self, operation: Operation) -> Iterator[Value]:
        inside: set[Value] = set()
        used: list[Value] = []
        for region in operation.regions:
            inside.update(region.args)
            for each in region.walk():
                inside.update(each.results)
                used += each.operands
                inside.update(arg for inner in each.regions for arg in inner.args)
        return (value for value in used if value not in inside)

    def root(self, pointer: Value) -> Value | None:
        """The parameter that a pointer is some elements behind of."""
        while pointer not in self.params:
            operation = self.made.get(pointer)
            if operation is None or operation.op not in ("addptr", "splat", "broadcast", "expand_dims", "reshape",
                                                         "permute", "bitcast"):  # fmt: skip
                return None
            pointer = operation.operands[0]
        return pointer
