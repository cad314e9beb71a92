"""The reductions of a nest: what is kept along the axis, and how it becomes the result.

Neighbours: `kernel` walks nests, `along` combines across lanes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from stator.tile.cpu.along import across, commutative, neutral, starts
from stator.tile.cpu.casts import register
from stator.tile.cpu.code import Code, Maker, literal
from stator.tile.cpu.evaluate import Evaluator
from stator.tile.cpu.lanes import Lanes, expanded
from stator.tile.ir.core import Operation


class Reduction:
    """One `reduce`. `across_lanes` if its axis is that of the lanes, so that these are combined too.

    A commutative operator is kept in vectors, as many as are computed at once. Any other one keeps the order: across
    the lanes of each vector first, then with what there is.
    """

    def __init__(
        self, code: Code, operation: Operation, width: int, copies: int, across_lanes: bool,
        evaluator: Callable[[int], Evaluator],
    ) -> None:  # fmt: skip
        self.code, self.operation, self.width = code, operation, width
        self.across_lanes, self.evaluator = across_lanes and width > 0, evaluator
        (self.region,) = operation.regions
        self.types = [register(operand.type.element) for operand in operation.operands]
        self.plain = commutative(self.region)
        ordered = self.across_lanes and self.plain is None
        self.kept_width = 0 if ordered else width
        m = Maker(code, self.kept_width)
        count = copies if self.plain is not None and self.across_lanes else 1
        self.kept = [[code.memory(m.type(type_)) for type_ in self.types] for _ in range(count)]
        for slots in self.kept:
            for type_, slot in zip(self.types, slots, strict=True):
                code.store(m.type(type_), self.start(m, type_), slot)

    def start(self, m: Maker, type_: str) -> str:
        if self.plain is None:
            return m.number(type_, 0)
        first = starts(self.plain)
        text = neutral(self.plain) if first is None else literal(type_, first)
        return f"splat ({type_} {text})" if m.width else text

    def combine(self, given: Sequence[Lanes], width: int) -> list[Lanes]:
        return self.evaluator(width).combine(self.region, given, width)

    def take(self, copy: int, values: Sequence[Lanes], is_first: str) -> None:
        """Combines values with what is kept; `is_first` is whether nothing is yet."""
        code = self.code
        if self.across_lanes and self.plain is None:
            values = across(code, values, self.width, self.combine)
        slots = self.kept[copy % len(self.kept)]
        m = Maker(code, self.kept_width)
        old = [Lanes(code.load(m.type(t), slot), t, self.kept_width) for t, slot in zip(self.types, slots, strict=True)]
        found = self.combine([*old, *values], self.kept_width)
        for type_, slot, new, value in zip(self.types, slots, found, values, strict=True):
            text = expanded(code, new, self.kept_width)
            if self.plain is None:
                kind = m.type(type_)
                text = code.value(
                    f"select i1 {is_first}, {kind} {expanded(code, value, self.kept_width)}, {kind} {text}"
                )
            code.store(m.type(type_), text, slot)

    def finish(self) -> list[Lanes]:
        """The results: numbers where lanes were combined."""
        code, m = self.code, Maker(self.code, self.kept_width)
        totals = [
            [Lanes(code.load(m.type(t), slot), t, self.kept_width) for t, slot in zip(self.types, slots, strict=True)]
            for slots in self.kept
        ]
        while len(totals) > 1:
            totals = [self.combine([*totals[i], *totals[i + 1]], self.kept_width) for i in range(0, len(totals), 2)]
        (total,) = totals
        if self.across_lanes and self.plain is not None:
            total = across(code, total, self.width, self.combine)
        return list(total)
