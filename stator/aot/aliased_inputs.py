"""Inputs that share a storage, some of which are written to: one base tensor, and each of the inputs as a view of it.

The base has one dimension and reaches from the first element of any of them to the last, in elements of the narrowest
dtype. It is a flat input of its own, without history, which the runtime makes by `as_strided` of one of them. All share
one `Cell`, so a write to one is seen by all (`functional.py`). Invariant: an input's view has exactly its elements, in
its order; a geometry that a chain of views cannot express is refused.

In autograd each input is by itself, as long as no write is recorded. A recorded write gives all views of one tensor a
new history; then the inputs that are views are made views of its fake (`relate`), and gradients flow to it alone.
Neighbours: `trace.py` asks where a written input turns out to share memory; capture guards how they lie to each other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import fx

from stator.aot.functional import Cell, Handle
from stator.aot.metadata import Ints, Output
from stator.aot.tracer import Tracer
from stator.base.errors import Unsupported
from stator.base.records import dataclass
from stator.fake import FakeTensor, make
from stator.fake.tensor import memory_of
from stator.graphs.lineage import RECORDED, UNRECORDED, count_together, creation, is_watched, whole_of
from stator.sizes.strides import may_overlap

aten = torch.ops.aten


@dataclass(slots=True)
class Member:
    """One input: its name and number, the live tensor, its fake; counted in its own elements."""

    name: str
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

    @property
    def width(self) -> int:
        """The bytes of an element."""
        return self.real.dtype.itemsize

    def refusal(self, why: str) -> Unsupported:
        """Why the call is left to eager PyTorch."""
        what = f"{self.name} shares memory with an input that is written to"
        return Unsupported(what, why, "pass a clone, or make the function return the new value")


@dataclass(slots=True)
class Base:
    """The memory of several inputs as one input."""

    members: list[Member]
    #: The member that the memory is cut from, whose dtype it has.
    first: Member
    fake: FakeTensor
    node: fx.Node
    cell: Cell

    def source(self) -> Output:
        """How the runtime cuts it from that member."""
        first = self.first
        start = int(self.fake.storage_offset()) - first.start
        return Output("input_view", first.number, (self.fake.numel(),), (1,), start, link="data")

    def versions(self) -> list[int]:
        """How often each member has been written to."""
        return [member.fake._version for member in self.members]

    def is_spoiled(self, tensor: FakeTensor, before: list[int]) -> bool:
        """Whether another member was written to since, and PyTorch would say that this tensor, saved then, was."""
        own = next((member for member in self.members if tensor.handle.origin is member.fake), None)
        later = [member for member, count in zip(self.members, before, strict=True) if member.fake._version > count]
        return own is not None and any(member is not own and count_together(member.real, own.real) for member in later)

    def write_back(self, tracer: Tracer) -> None:
        """The `copy_` of what the memory holds at the end; what was appended to the line is cut off again."""
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
        _check(member)
    first = min(members, key=_narrow)
    width, widest = first.width, max([member.width for member in members])
    # In bytes, then in elements of the line; an element of any member begins at a multiple of its own width.
    low = min([member.start * member.width for member in members]) // widest * widest
    length = (max([member.end * member.width for member in members]) - low) // width
    room = -(-max([_room(member) * member.width - low for member in members]) // widest) * (widest // width)
    dtype, device, start = first.fake.dtype, first.fake.device, low // width
    fake = make((length,), dtype, device, (1,), start)
    node = tracer.placeholder("memory", fake)
    line, value = fake, node
    if room > length:
        value = tracer.emit(aten.constant_pad_nd.default, node, [0, room - length])
        line = make((room,), dtype, device, (1,), start)
    cell = Cell(value)
    line.handle = Handle(cell, (), value)
    for member in members:
        own = line if member.fake.dtype is dtype else tracer.run(aten.view.dtype, line, member.fake.dtype)
        cut = _cut(tracer, own, member, low // member.width)
        member.fake.handle = Handle(cell, cut.handle.steps, cut.handle.node, member.fake)
    return Base(list(members), first, fake, node, cell)


def view_bases(members: Mapping[int, Member]) -> dict[int, torch.Tensor]:
    """Of the members that are views in autograd, what they are views of."""
    found: dict[int, torch.Tensor] = {}
    for i, member in members.items():
        real, dtype = whole_of(member.real), member.real.dtype
        if real is member.real or not (dtype.is_floating_point or dtype.is_complex):
            continue
        if real.dtype is not dtype:
            raise member.refusal("it is a view of another dtype, and gets a new history")
        found[i] = real
    return found


def relate(member: Member, whole: FakeTensor) -> FakeTensor:
    """The member's fake as a view of another's, as autograd has it: a write to one is part of the other's history."""
    real, handle = member.real, member.fake.handle
    made = creation(real)
    if made not in (RECORDED, UNRECORDED):
        raise member.refusal("it is a view of it that autograd forbids to write to")
    if is_watched(real):
        raise member.refusal("it has a hook, or retains its gradient, and gets a new history")
    with torch.set_grad_enabled(made == RECORDED):
        fake: FakeTensor = whole.as_strided(member.size, member.stride, member.start)  # type: ignore[assignment]
    if (fake.requires_grad, fake.is_leaf) != (real.requires_grad, real.is_leaf):
        raise member.refusal("it is a view of it that does not share its history")
    fake.handle = Handle(handle.cell, handle.steps, handle.node, fake)
    member.fake = fake
    return fake


def _check(member: Member) -> None:
    fake = member.fake
    if fake._has_symbolic_sizes_strides:
        raise member.refusal("it has symbolic sizes")
    if may_overlap(fake.shape, fake.stride()):
        raise member.refusal("it holds some elements several times")
    if fake.requires_grad and member.real._is_view() and creation(member.real) != RECORDED:
        raise member.refusal("it is a view that autograd has not recorded, and needs gradients")
    if member.real.is_conj() or member.real.is_neg():
        raise member.refusal("its conjugation or negation is pending")


def _narrow(member: Member) -> tuple[int, bool, bool]:
    """The order in which members offer their dtype for the memory: whole numbers before others of their width."""
    dtype = member.real.dtype
    return dtype.itemsize, dtype is torch.bool, dtype.is_floating_point or dtype.is_complex


def _dims(member: Member) -> list[int]:
    """The dimensions that have several elements, those with the longest strides first."""
    stride = member.stride
    return sorted([dim for dim, extent in enumerate(member.size) if extent > 1], key=lambda dim: -stride[dim])


def _room(member: Member) -> int:
    """Where the memory has to end so that this input is whole rows of it."""
    dims = _dims(member)
    rows = member.size[dims[0]] * member.stride[dims[0]] if len(dims) > 1 else 0
    return max(member.end, member.start + rows)


def _cut(tracer: Tracer, line: FakeTensor, member: Member, low: int) -> FakeTensor:
    """The member as slices, rows and permutations of the base; always a new tensor object."""
    size, stride = member.size, member.stride
    dims = _dims(member)
    start = member.start - low
    out: Any = line
    for position, dim in enumerate(dims[:-1]):
        length = size[dim] * stride[dim]
        if start + length > out.shape[-1]:
            raise member.refusal("it cannot be had as views of the memory")
        out = tracer.run(aten.slice.Tensor, out, position, start, start + length)
        out = tracer.run(aten.view.default, out, [*out.shape[:-1], size[dim], stride[dim]])
        start = 0
    if not dims:
        line = tracer.run(aten.slice.Tensor, line, 0, start, start + 1)
        return _exact(tracer, tracer.run(aten.view.default, line, [1] * len(size)), member)
    last = dims[-1]
    end = start + (size[last] - 1) * stride[last] + 1
    out = tracer.run(aten.slice.Tensor, out, len(dims) - 1, start, end, stride[last])
    if dims != sorted(dims):
        out = tracer.run(aten.permute.default, out, [dims.index(dim) for dim in sorted(dims)])
    for dim, extent in enumerate(size):
        if extent == 1:
            out = tracer.run(aten.unsqueeze.default, out, dim)
    return _exact(tracer, out, member)


def _exact(tracer: Tracer, cut: FakeTensor, member: Member) -> FakeTensor:
    """With the strides of extents of one as well: results are laid out by them."""
    if cut.stride() == member.stride:
        return cut
    exact: FakeTensor = tracer.run(aten.as_strided.default, cut, list(member.size), list(member.stride))
    return exact
