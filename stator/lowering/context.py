"""The state of one lowering: nodes made so far, names, and the decision which values are realised.

To realise a value is to write it to a buffer of its own. `Context` is what every lowering function gets. It writes
nests into the program under construction and says where a value lies (`place`, `own_place`, `view`). The cost rule is
`worth_memory`: a value with several readers is realised when computing it twice costs more than writing it once;
whether the buffer then exists is the scheduler's decision, which fuses producers into consumers.

Neighbours: `value.py`, `engine.py` (runs the lowerings), `stator.loop.nest`.
"""

from __future__ import annotations

import re
from math import prod

import torch
from torch.fx import Node

from stator.base.device import Device
from stator.base.dtypes import OPAQUE
from stator.loop import expr as e
from stator.loop.expr import postorder
from stator.loop.index import ZERO, Axis, Index
from stator.loop.nest import Buffer, Extern, Nest, Number, View
from stator.loop.ranges import Ranges
from stator.loop.scalar import COSTLY
from stator.lowering.joined import is_read
from stator.lowering.parity import halves
from stator.lowering.uses import Uses
from stator.lowering.value import HALF, Body, Indices, LazyTensor, Place, Size, Spec, placed, pointwise
from stator.sizes import Extent, hint
from stator.sizes.strides import contiguous, is_dense, same_layout

#: A value whose expression may be larger than this is realised whoever reads it.
MAX_WEIGHT = 160
#: What is a table: at least so large an expression, so many reads in all, and so many of each element.
TABLE_WEIGHT, TABLE_READS, TABLE_RATIO = 6, 1 << 14, 32
#: Whole tensors that a value of half type may be computed of in each of its readers where it is not to be rounded.
UNROUNDED_READS = 4
INT32 = 2**31
#: Views that are taken from the parts that they meet.
SLICES = frozenset((torch.ops.aten.slice.Tensor, torch.ops.aten.select.int))

#: Names that no buffer gets, because the generated wrapper uses them; nor does it get a kernel's name.
TAKEN = frozenset(
    "torch empty large from_bits Scratch SizedScratch scratch plan place start nbytes view increment_version into "
    "returning returning_sized KERNELS Unit UNITS load call inputs".split()
)
_KERNEL = re.compile(r"(\w+_)?k\d+(_\d+)?")


class Context:
    """One program under construction."""

    __slots__ = (
        "_names", "buffers", "device", "inputs", "node", "nodes", "number", "numbers", "offsets", "rounds", "spare",
        "uses",
    )  # fmt: skip

    def __init__(self, device: Device, uses: dict[Node, Uses], number: int | None = None, rounds: bool = True) -> None:
        self.device = device
        self.rounds = rounds  #: whether values of half types are rounded where eager rounds them
        self.number = number  #: which device of its kind
        self.uses = uses
        self.node: Node | None = None  #: the node being lowered, for names and uses
        self.nodes: list[Nest | Extern] = []
        self.inputs: list[Buffer] = []
        self.numbers: list[Number] = []
        self.buffers: dict[str, Buffer] = {}
        self.spare: set[str] = set()  #: buffers that are not computed if nothing reads them
        self._names: set[str] = set()

    def torch_device(self, device: str) -> torch.device:
        """A device as PyTorch has it: the program's with its number."""
        if device != self.device.kind or self.number is None:
            return torch.device(device)
        return torch.device(device, self.number)

    # -- buffers -----------------------------------------------------------------------------------

    def name(self, hint: str) -> str:
        """An unused name."""
        if hint in TAKEN or _KERNEL.fullmatch(hint):
            hint += "_value"
        name, number = hint, 0
        while name in self._names:
            number += 1
            name = f"{hint}_{number}"
        self._names.add(name)
        return name

    def number_name(self, hint: str, value: Extent) -> str:
        """The name of an input that is a number: that of the symbol, if it is one."""
        text = str(value)
        if text.isidentifier() and text not in self._names:
            self._names.add(text)
            return text
        return self.name(hint)

    def buffer(
        self,
        size: Size,
        stride: Size,
        dtype: str,
        device: str = "",
        name: str = "",
        exact: bool = False,
        opaque: str = "",
    ) -> Buffer:
        """A new buffer, named after the node being lowered.

        Strides that leave holes or overlap become contiguous, unless they are `exact`: what an extern call gives.
        """
        if not exact and not is_dense(size, stride):
            stride = contiguous(size)
        if not name:
            name = self.node.name if self.node is not None else "value"
        made = Buffer(self.name(name), dtype, size, stride, device or self.device.kind, opaque)
        self.buffers[made.name] = made
        return made

    # -- realising ---------------------------------------------------------------------------------

    def realize(self, value: LazyTensor) -> Place:
        """Where the value lies, after writing it to a buffer of its own if it lies nowhere."""
        if value.place is not None:
            return value.place
        buffer = self.buffer(value.size, value.stride, value.dtype, name=value.name)
        if value.parts is not None:
            self._write_parts(buffer, value)
        else:
            self.write(buffer, value)
        return value.settle(Place(buffer, buffer.stride))

    def _write_parts(self, buffer: Buffer, value: LazyTensor) -> None:
        assert value.parts is not None
        dim, parts = value.parts
        start: Extent = 0
        for part in parts:
            if part.size[dim] != 0:
                self.write(buffer, part, start * buffer.stride[dim])
            start += part.size[dim]
        if start == 0 or 0 in value.size:
            self.write(buffer, value)

    def write(self, buffer: Buffer, value: LazyTensor, offset: Extent = 0) -> None:
        """A nest that stores the value in the buffer, outermost loop over the largest stride."""
        axes, at = loop_axes(value.size, buffer.stride)
        position = Place(buffer, buffer.stride, offset).position(at)
        element = e.cast(value.load(at), buffer.dtype)
        self.nodes += halves(Nest(buffer, axes, (), element, position, operators=value.operators))

    def reduce(self, size: Size, dims: list[int], dtype: str, value: Body, keep: bool) -> LazyTensor:
        """A nest over a value of `size` that reduces `dims`; `value` gives the stored expression."""
        kept = tuple(1 if d in dims else n for d, n in enumerate(size))
        buffer = self.buffer(kept, contiguous(kept), dtype)
        outer: list[Axis] = []
        inner: list[Axis] = []
        at: list[Index] = []
        for d, n in enumerate(size):
            if n == 1:
                at.append(ZERO)
                continue
            axis = Axis(f"r{len(inner)}", n) if d in dims else Axis(f"x{len(outer)}", n)
            (inner if d in dims else outer).append(axis)
            at.append(axis.index)
        position = Index.of(0)
        for d, step in enumerate(buffer.stride):
            if d not in dims:
                position = position + at[d] * step
        self.nodes.append(Nest(buffer, tuple(outer), tuple(inner), value(tuple(at)), position))
        if keep:
            return placed(kept, Place(buffer, buffer.stride))
        rest = [d for d in range(len(size)) if d not in dims]
        return placed(tuple(size[d] for d in rest), Place(buffer, tuple(buffer.stride[d] for d in rest)))

    def scan(self, out: Spec, dim: int, value: Body) -> LazyTensor:
        """A nest over all of `out` that walks `dim` in order; `value` gives the stored expression."""
        buffer = self.buffer(out.size, out.stride, out.dtype)
        axes, at = loop_axes(out.size, buffer.stride)
        position = Place(buffer, buffer.stride).position(at)
        walked = at[dim].axes()
        outer, inner = (tuple([axis for axis in axes if (axis in walked) is inside]) for inside in (False, True))
        self.nodes.append(Nest(buffer, outer, inner, value(at), position))
        return placed(out.size, Place(buffer, buffer.stride))

    # -- views of memory ---------------------------------------------------------------------------

    def place(self, value: LazyTensor) -> Place:
        """Where the value can be read with strides: a view shares the memory of its base, a copy that of its source."""
        if value.place is not None:
            return value.place
        found = self._lies(value)
        if found is None and value.base is not None and value.restride is not None:
            found = value.restride(self.place(value.base))
            if found is not None and value.base.place is not None:  # otherwise it is shared for this reader only
                return value.settle(found)
        if found is None and value.copied is not None:
            found = self._source(value, value.copied)
        return self.realize(value) if found is None else found

    def _source(self, value: LazyTensor, source: LazyTensor) -> Place | None:
        """Where a copy's source lies, if it is laid out like the copy."""
        lies = source.place
        if lies is None and source.base is not None and same_layout(value.size, value.stride, source.stride):
            lies = self.place(source)
        return lies if lies is not None and same_layout(value.size, value.stride, lies.stride) else None

    def _lies(self, value: LazyTensor) -> Place | None:
        """Where the value lies already, with the strides it would get: all that its expression does is to read it.

        What was moved there and back, or taken apart and joined again, is found so.
        """
        if 0 in value.size:
            return None
        _, at = loop_axes(value.size, value.stride)
        element = value.load(at)
        if element.op != "load":
            return None
        name, position = element.attr
        found = Place(self.buffers[name], value.stride, position.const)
        return found if found.buffer.dtype == value.dtype and found.position(at) == position else None

    def own_place(self, value: LazyTensor) -> Place:
        """Where the value lies; what the program made anew is no other name of what it was made from."""
        if value.place is None and value.base is not None and value.restride is not None:
            found = value.restride(self.own_place(value.base))
            if found is not None:
                return value.settle(found)
        return self.realize(value)

    def view(self, value: LazyTensor) -> View:
        """The value as an extern argument."""
        if value.raw is not None:
            return self._opaque_view(value.raw, value.dtype)
        return _read_from(self.place(value), value.size)

    def _opaque_view(self, raw: LazyTensor, dtype: str) -> View:
        """The argument for a tensor of an opaque dtype; the numbers that an element consists of must be adjacent."""
        place, width = self.place(raw), OPAQUE[dtype][1]
        if width > 1 and not _side_by_side(raw.size, place, width):
            place = self.realize(pointwise(raw.size, raw.dtype, raw.load, raw.weight))
        return _read_from(place, raw.size, dtype)

    # -- the cost rule -----------------------------------------------------------------------------

    def consider(self, node: Node, value: LazyTensor) -> None:
        """Realise a value that was just lowered if computing it in each of its readers would cost more."""
        if value.place is not None or value.base is not None:
            return
        if value.planes is not None:
            for plane, part in zip(value.planes, ("re", "im"), strict=True):
                plane.name = f"{node.name}_{part}"
                self.consider(node, plane)
            value.weight = 1 + sum([plane.weight for plane in value.planes])
            return
        uses = self.uses[node]
        reads = self._reads(value, uses)
        again = uses.count > 1 and not _only_slices(node, value) and worth_memory(value, self.buffers, reads)
        if value.weight > MAX_WEIGHT or again:
            self.realize(value)
        elif is_table(value, uses) and not _is_position(value):
            self._tabulate(value)

    def _reads(self, value: LazyTensor, uses: Uses) -> int:
        """How many whole tensors a value may be computed of in each of its readers.

        In memory it is rounded to its dtype. Where that need not be, as of a stream that each layer adds to, it is
        computed of its terms as long as these are few: a term more is read for each value that is not written.
        """
        wide = not self.rounds and value.dtype in HALF and not uses.extern and not uses.output
        return UNROUNDED_READS if wide and not self.device.host else 1

    def _tabulate(self, value: LazyTensor) -> None:
        """Realise a table. Integers that provably fit are stored as int32: a vector has as many of them as of float32.

        Readers are told the proven range (`known`), so that a position needs no check.
        """
        _, at = loop_axes(value.size, value.stride)
        found = Ranges().numbers(value.load(at)) if value.dtype == "i64" else None
        if found is None or found[0] < -INT32 or found[1] >= INT32:
            self.realize(value)
            return
        computed = value.body
        assert computed is not None
        table = pointwise(value.size, "i32", lambda at: e.cast(computed(at), "i32"), value.weight)
        table.name = value.name
        self.realize(table)
        value.rewrite(lambda at: e.known(e.cast(table.load(at), "i64"), *found), 4)


def _read_from(place: Place, size: Size, opaque: str = "") -> View:
    """What an extern reads; nothing is read from the start of its memory, as it may lie behind the end of it."""
    return View(place.buffer.name, size, place.stride, 0 if 0 in size else place.offset, opaque)


def _only_slices(node: Node, value: LazyTensor) -> bool:
    """Whether readers take no more than slices of what is joined from memory, and so read that."""
    return is_read(value) and all(user.target in SLICES for user in node.users)


def _is_position(value: LazyTensor) -> bool:
    """Whether it is a position, which is computed as fast as it is read."""
    _, at = loop_axes(value.size, value.stride)
    return value.load(at).op == "index"


def _side_by_side(size: Size, place: Place, width: int) -> bool:
    """Whether the numbers of an element are adjacent, and offset and strides are whole numbers of elements."""
    steps = [step for n, step in zip(size[:-1], place.stride[:-1], strict=True) if n != 1]
    return place.stride[-1] == 1 and all(step % width == 0 for step in (place.offset, *steps))


def loop_axes(size: Size, stride: Size) -> tuple[tuple[Axis, ...], Indices]:
    """(axes in memory order, the index of each dim); dims of size 1 need no loop."""
    at: list[Index] = [ZERO] * len(size)
    axes: list[Axis] = []
    for d in sorted((d for d, n in enumerate(size) if n != 1), key=lambda d: -hint(stride[d])):
        axis = Axis(f"x{len(axes)}", size[d])
        axes.append(axis)
        at[d] = axis.index
    return tuple(axes), tuple(at)


def is_table(value: LazyTensor, uses: Uses) -> bool:
    """Whether it is a small tensor, not cheap to compute, each of whose elements a far larger result reads many times.

    One that is constant along the last dim is computed outside of the innermost loop, and needs no table: but numbers
    of channels do, which may be innermost, if costly. A read at a computed position counts twice, as no loop
    computes that less often than it runs; of values of the same size that are computed from each other the last one is
    the table.
    """
    if not value.size:
        return False
    if value.size[-1] == 1:
        if len(value.size) != 4 or value.size[1] == 1 or value.size[2] != 1 or not _is_costly(value):
            return False
    elif value.weight < TABLE_WEIGHT:
        return False
    numel = hint(prod(value.size))
    reads = uses.gathered if uses.elements > numel else 0
    return max(2 * reads, uses.elements) >= max(TABLE_READS, TABLE_RATIO * numel)


def _is_costly(value: LazyTensor) -> bool:
    _, at = loop_axes(value.size, value.stride)
    return any(node.op in COSTLY for node in postorder([value.load(at)]))


def worth_memory(value: LazyTensor, buffers: dict[str, Buffer], most: int = 1) -> bool:
    """Whether to compute it once: it reads more than so many whole tensors, or holds a costly operator."""
    _, at = loop_axes(value.size, value.stride)
    whole = hint(prod(value.size))
    reads: set[str] = set()
    for node in postorder([value.load(at)]):
        if node.op in COSTLY:
            return True
        if node.op == "load" and 2 * hint(buffers[node.attr[0]].numel) >= whole:
            reads.add(node.attr[0])
            if len(reads) > most:
                return True
    return False
