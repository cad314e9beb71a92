"""How a dense buffer lies in memory: the digits of its positions, in some order.

A `Layout` takes the positions in a dense buffer apart into digits (its dims, or parts of them that somebody walks
along) and puts these in another order:
    b: f32[64, 2], read as b[2*i] and b[2*i + 1]   -->   b: f32[64, 2] @ [1, 64], read as b[i] and b[i + 64]
Neighbours: `demands` says which layouts externs take, `traffic` what kernels move in them, `layout` decides.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod
from types import MappingProxyType
from typing import TypeAlias

from stator.base.records import dataclass
from stator.loop.index import ZERO, Axis, FloorDiv, Index, Mod
from stator.loop.masks import Bounds
from stator.loop.nest import Buffer
from stator.loop.space import loops
from stator.sizes import Extent, hint
from stator.sizes.strides import Shape, contiguous


@dataclass(frozen=True, slots=True)
class Layout:
    """Digits of the positions in a dense buffer, the largest place first, and the order in which they are to lie."""

    digits: Shape
    order: tuple[int, ...]

    @property
    def stride(self) -> Shape:
        """How far apart neighbours in each digit lie."""
        found = dict(zip(self.order, contiguous([self.digits[d] for d in self.order]), strict=True))
        return tuple([found[d] for d in range(len(found))])

    def index(self, position: Index, bounds: Bounds = MappingProxyType({})) -> Index:
        """Where that lies which lay at a position, at least where its axes are in these bounds.

        The first digit is what is left; its remainder is taken only where bounds would not show else what they showed.
        """
        if bounds:
            inner = {axis: Axis(f"{axis.name}_in", high - low + 1) for axis, (low, high) in bounds.items()}
            narrow = position.substitute({axis: inner[axis].index + low for axis, (low, _) in bounds.items()})
            return self.index(narrow).substitute({inner[axis]: axis.index - low for axis, (low, _) in bounds.items()})
        moved, rest = ZERO, position
        for n, step in zip(self.digits[:0:-1], self.stride[:0:-1], strict=True):
            moved = moved + rest % n * step
            rest = rest // n
        found, numel = moved + rest * self.stride[0], prod(self.digits)
        if position.within(numel) and not found.within(numel):
            return moved + rest % self.digits[0] * self.stride[0]
        return found

    def keeps_simple(self, index: Index, bounds: Bounds) -> bool:
        """Whether a position becomes no harder to compute, and is not loaded: what that costs is not known."""
        return not index.has_indirect and _knots(self.index(index, bounds)) <= _knots(index)

    def view(self, size: Shape, stride: Shape, offset: Extent = 0) -> tuple[Shape, Extent] | None:
        """Strides and offset by which a view has the same elements, if there are any."""
        axes = [Axis(f"v{d}", n) for d, n in enumerate(size)]
        position = Index.of(offset)
        for axis, step in zip(axes, stride, strict=True):
            position = position + axis.index * step
        moved = self.index(position)
        if not moved.is_linear():
            return None
        steps = [moved.coefficient(axis) if loops(axis) else step for axis, step in zip(axes, stride, strict=True)]
        return tuple(steps), moved.const

    def buffer(self, buffer: Buffer) -> Buffer:
        """The buffer as it lies then; its digits are its dims where its own are torn apart."""
        found = self.view(buffer.size, buffer.stride)
        if found is None:
            return replace(buffer, size=self.digits, stride=self.stride)
        return replace(buffer, stride=found[0])


#: By buffer; the others lie as eager has them.
Layouts: TypeAlias = Mapping[str, Layout]


def lying(buffer: Buffer, stride: Shape) -> Layout:
    """The layout in which a dense buffer has these strides."""
    dims = sorted([d for d, n in enumerate(buffer.size) if n != 1], key=lambda d: -hint(buffer.stride[d]))
    order = sorted(range(len(dims)), key=lambda d: -hint(stride[dims[d]]))
    return Layout(tuple([buffer.size[d] for d in dims]), tuple(order))


def _knots(index: Index) -> int:
    """How many divisions and remainders it has."""
    parts = [atom.inner for atom, _ in index.terms if isinstance(atom, FloorDiv | Mod)]
    return len(parts) + sum([_knots(part) for part in parts])
