"""The eager builder: what the language's functions emit is computed at once, so that a kernel's Python text just runs.

Its values are cells. To the rules a cell in a region that combines is a scalar, although its data has one element for
each place that is combined at the same time; a body that must know one of them (an `if` on it) is told so by `Batched`,
and is run again for each place alone. Control flow is Python's own, so the operations for it are refused.
Neighbours: `compute` has what operators mean; `run` does the same for functions of tile IR.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from stator.tile.ir.core import Location
from stator.tile.ir.types import Type


class Batched(Exception):
    """One number was asked for of a cell that stands for many."""


@dataclass(eq=False, slots=True)
class Cell:
    """A value: its type, and its numbers."""

    type: Type
    data: np.ndarray[Any, Any]

    def item(self) -> bool | int | float:
        """The number of a scalar."""
        if self.data.size != 1:
            raise Batched(f"a {self.type} is not one number")
        return self.data.item()


@dataclass(eq=False, slots=True)
class EagerRegion:
    """A region that combines, as a function of cells."""

    types: tuple[Type, ...]
    body: Callable[..., Sequence[Cell]]


class EagerBuilder:
    """Computes what is emitted, for one program of a grid."""

    def __init__(self) -> None:
        self.location: Location | None = None

    def emit(
        self,
        op: str,
        operands: Sequence[Cell] = (),
        attrs: Mapping[str, Any] | None = None,
        regions: Sequence[EagerRegion] = (),
        location: Location | None = None,
    ) -> list[Cell]:
        raise NotImplementedError(op)

    def region(self, types: Sequence[Type], body: Callable[..., Sequence[Cell]]) -> EagerRegion:
        return EagerRegion(tuple(types), body)
