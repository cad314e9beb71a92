"""The eager builder: what the language's functions emit is computed at once, so that a kernel's Python text just runs.

Its values are cells. To the rules a cell in a region that combines is a scalar, although its data has one element for
each place that is combined at the same time; a body that must know one of them (an `if` on it), or does with it what is
not elementwise, is stopped by `Batched` and run again for each place alone. Control flow is Python's own, so the
operations for it are refused. Neighbours: `program` has what operators mean; `run` does the same for tile IR.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from stator.tile.interpret.casts import Data
from stator.tile.interpret.compute import Given, constant
from stator.tile.interpret.memory import Memory
from stator.tile.interpret.program import Program, printed
from stator.tile.interpret.tiles import Combine
from stator.tile.ir.build import complete, find
from stator.tile.ir.core import Location
from stator.tile.ir.rules import TypeRule, listed
from stator.tile.ir.types import Type

#: Operations that are Python's own when a kernel's text runs.
_CONTROL = {"if", "for", "while", "call", "yield", "condition", "return"}


class Batched(Exception):
    """One number was asked for of a cell that stands for many."""


@dataclass(eq=False, slots=True)
class Cell:
    """A value: its type, and its numbers."""

    type: Type
    data: Data

    @classmethod
    def of(cls, type_: Type, number: bool | int | float) -> Cell:
        """A scalar, or a tile that has one number everywhere."""
        return cls(type_, constant(Given((), {"value": number}, (type_,))))

    def item(self) -> bool | int | float:
        """The number of a scalar; Batched where there are several."""
        if self.data.size != 1:
            raise Batched(f"a {self.type} is not one number")
        found = self.data.item()
        return found if isinstance(found, bool | int | float) else float(found)

    def __str__(self) -> str:
        return printed(self.type, self.data)


@dataclass(eq=False, slots=True)
class EagerRegion:
    """A region that combines, as a function of cells."""

    types: tuple[Type, ...]
    body: Callable[..., Sequence[Cell]]

    def combine(self, left: Sequence[Data], right: Sequence[Data]) -> Sequence[Data]:
        """All places at once if the body can, else one by one."""
        try:
            return self._call([*left, *right])
        except Batched:
            return one_by_one(self._call)(left, right)

    def _call(self, data: Sequence[Data]) -> list[Data]:
        cells = [Cell(type_, item) for type_, item in zip(self.types, data, strict=True)]
        found = self.body(*cells)
        wanted, given = list(self.types[: len(self.types) // 2]), [cell.type for cell in found]
        if given != wanted:
            raise TypeRule(f"what combines gives {listed(given)}, not {listed(wanted)}")
        return [spread(cell.data, data[0].shape) for cell in found]


def spread(data: Data, shape: tuple[int, ...]) -> Data:
    """What a body gives for a batch, which may be one number for all places."""
    return data if data.shape == shape else np.broadcast_to(data, shape)


def one_by_one(call: Callable[[Sequence[Data]], Sequence[Data]]) -> Combine:
    """A combination of single elements as one of arrays."""

    def combine(left: Sequence[Data], right: Sequence[Data]) -> Sequence[Data]:
        found = [np.empty_like(item) for item in left]
        for place in np.ndindex(left[0].shape):
            for item, new in zip(found, call([np.asarray(o[place]) for o in (*left, *right)]), strict=True):
                item[place] = new
        return found

    return combine


class EagerBuilder:
    """Computes what is emitted, for one program of a grid after the other: `program.place` says which."""

    def __init__(self, memory: Memory | None = None, grid: tuple[int, int, int] = (1, 1, 1)) -> None:
        self.location: Location | None = None
        self.program = Program(Memory() if memory is None else memory, grid)

    def emit(
        self,
        op: str,
        operands: Sequence[Cell] = (),
        attrs: Mapping[str, Any] | None = None,
        regions: Sequence[EagerRegion] = (),
        location: Location | None = None,
    ) -> list[Cell]:
        """The results. TypeRule as with every builder, and Fault where what is computed has no meaning."""
        if op in _CONTROL:
            raise TypeRule(f"{op}: a kernel whose text runs uses Python's control flow")
        full = complete(op, attrs or {})
        operator, types = find(op), [operand.type for operand in operands]
        if len(regions) != len(operator.regions):
            raise TypeRule(f"{op}: has {len(operator.regions)} regions, not {len(regions)}")
        try:
            results = operator.rule(types, full, ())
        except TypeRule as error:
            raise TypeRule(f"{op}: {error}") from error
        data = [operand.data for operand in operands]
        if not operator.elementwise and any(d.shape != t.shape for d, t in zip(data, types, strict=True)):
            raise Batched(f"{op} is not elementwise")
        combine = regions[0].combine if regions else None
        with np.errstate(all="ignore"):
            found = self.program.compute(op, types, full, results, data, combine)
        return [Cell(type_, item) for type_, item in zip(results, found, strict=True)]

    def region(self, types: Sequence[Type], body: Callable[..., Sequence[Cell]]) -> EagerRegion:
        return EagerRegion(tuple(types), body)
