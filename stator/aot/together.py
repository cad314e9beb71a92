"""Inputs that share a storage, some of which are written to: one base tensor, and each of the inputs as a view of it.

The base has one dimension and reaches from the first element of any of them to the last. It is a flat input of its own,
which the runtime makes by `as_strided` of the first of them. All share one `Cell`, so a write to one is seen by all
(`functional.py`). Invariant: an input's view has exactly its elements, in its order; a geometry that a chain of views
cannot express is refused.
Neighbours: `trace.py` asks where a written input turns out to share memory; capture guards how they lie to each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from stator.aot.functional import Cell, Handle, repeats
from stator.aot.metadata import Ints, Output
from stator.aot.tracer import Tracer
from stator.base.errors import Unsupported
from stator.fake import FakeTensor, make
from stator.fake.tensor import memory_of

aten = torch.ops.aten


@dataclass(slots=True)
class Member:
    """One input: its number, the live tensor, its fake."""

    number: int
    real: torch.Tensor
    fake: FakeTensor

    @property
    def size(self) -> Ints:
        return tuple(map(int, self.real.shape))

    @property
    def stride(self) -> Ints:
        return tuple(map(int, self.real.stride()))

    @property
    def start(self) -> int:
        """The first of its elements in its storage."""
        return int(self.real.storage_offset())

    @property
    def end(self) -> int:
        """The element after its last."""
        return self.start + 1 + sum((n - 1) * step for n, step in zip(self.size, self.stride, strict=True))


@dataclass(slots=True)
class Base:
    """The memory of several inputs as one input."""

    members: list[Member]
    fake: FakeTensor
    node: fx.Node
    cell: Cell

    def source(self) -> Output:
        """How the runtime cuts it from the first member."""
        first = self.members[0]
        return Output(
            "input_view", first.number, (self.fake.numel(),), (1,), int(self.fake.storage_offset()) - first.start
        )

    def write_back(self, tracer: Tracer) -> None:
        """The `copy_` of what the memory holds at the end; what was appended to the line is cut off again."""
        for member in self.members:
            if member.fake.requires_grad:
                raise _refusal("one that shares its memory needs gradients")
        value = self.cell.value
        if value.meta["val"].numel() != self.fake.numel():
            value = tracer.emit(aten.slice.Tensor, value, 0, 0, self.fake.numel())
        tracer.emit(aten.copy_.default, self.node, value)


def storage_of(tensor: torch.Tensor) -> int:
    """The identity of a tensor's memory; 0 for one without elements."""
    if not tensor.numel():
        return 0
    return id(memory_of(tensor)) if isinstance(tensor, FakeTensor) else tensor.untyped_storage()._cdata


def join(tracer: Tracer, members: Sequence[Member]) -> Base:
    """Give inputs that share a storage handles on one cell."""
    for member in members:
        _check(member, members[0])
    low = min([member.start for member in members])
    length = max([member.end for member in members]) - low
    room = max([_room(member, low) for member in members])
    first = members[0].fake
    fake = make((length,), first.dtype, first.device, (1,), low)
    node = tracer.placeholder("memory", fake)
    line, value = fake, node
    if room > length:
        value = tracer.emit(aten.constant_pad_nd.default, node, [0, room - length])
        line = make((room,), first.dtype, first.device, (1,), low)
    cell = Cell(value)
    line.handle = Handle(cell, (), value)
    for member in members:
        cut = _cut(tracer, line, member, low)
        member.fake.handle = Handle(cell, cut.handle.steps, cut.handle.node, member.fake)
    return Base(list(members), fake, node, cell)


def _refusal(why: str) -> Unsupported:
    return Unsupported("an input that is written to", why, "pass a clone, or make the function return the new value")


def _check(member: Member, first: Member) -> None:
    fake = member.fake
    if fake.dtype is not first.fake.dtype:
        raise _refusal("one that shares its memory has another dtype")
    if fake.requires_grad:
        raise _refusal("one that shares its memory needs gradients")
    if fake._has_symbolic_sizes_strides:
        raise _refusal("one that shares its memory has symbolic sizes")
    if repeats(fake.shape, fake.stride()):
        raise _refusal("one that shares its memory holds some elements several times")


def _dims(member: Member) -> list[int]:
    """The dimensions that have several elements, those with the longest strides first."""
    stride = member.stride
    return sorted([dim for dim, extent in enumerate(member.size) if extent > 1], key=lambda dim: -stride[dim])


def _room(member: Member, low: int) -> int:
    """The length that the base needs so that this input is whole rows of it."""
    dims = _dims(member)
    rows = member.size[dims[0]] * member.stride[dims[0]] if len(dims) > 1 else 0
    return max(member.end, member.start + rows) - low


def _cut(tracer: Tracer, line: FakeTensor, member: Member, low: int) -> FakeTensor:
    """The member as slices, rows and permutations of the base; always a new tensor object."""
    size, stride = member.size, member.stride
    dims = _dims(member)
    start = member.start - low
    out: Any = line
    for position, dim in enumerate(dims[:-1]):
        length = size[dim] * stride[dim]
        if start + length > out.shape[-1]:
            raise _refusal("what shares its memory cannot be had as views")
        out = tracer.run(aten.slice.Tensor, out, position, start, start + length)
        out = tracer.run(aten.view.default, out, [*out.shape[:-1], size[dim], stride[dim]])
        start = 0
    if not dims:
        line = tracer.run(aten.slice.Tensor, line, 0, start, start + 1)
        single: FakeTensor = tracer.run(aten.view.default, line, [1] * len(size))
        return single
    last = dims[-1]
    end = start + (size[last] - 1) * stride[last] + 1
    out = tracer.run(aten.slice.Tensor, out, len(dims) - 1, start, end, stride[last])
    if dims != sorted(dims):
        out = tracer.run(aten.permute.default, out, [dims.index(dim) for dim in sorted(dims)])
    for dim, extent in enumerate(size):
        if extent == 1:
            out = tracer.run(aten.unsqueeze.default, out, dim)
    found: FakeTensor = out
    return found
