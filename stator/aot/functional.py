"""Mutation and views as values: what a traced tensor is at each moment of the program.

Every traced fake has a `Handle`: the `Cell` that stands for its memory, and the views (`Step`s) that lead from the
cell to it. A write computes a new value of the whole cell (through the inverse of each step, last first) and makes
every other handle on the cell stale; a stale handle replays its steps on the cell's value when it is read again.

Invariant: `handle.node` is the handle's value if `handle.version == cell.version`.
Neighbours: `tracer.py` makes the handles and emits the nodes through `Emit`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import fx

from stator.base.errors import Unsupported
from stator.fake.layout import is_dense
from stator.fake.overloads import Table
from stator.fake.starts import KEEPING
from stator.fake.symbolic import is_symbolic, lies_alike
from stator.graphs.calls import is_view
from stator.sizes.strides import may_overlap

aten = torch.ops.aten


class Emit(Protocol):
    """Adds a node for a functional operator; its arguments are nodes and constants."""

    def __call__(self, func: Any, *args: Any, **kwargs: Any) -> fx.Node: ...


class TracedGraph(fx.Graph):
    """A graph in the making, which knows the handles that lead to it."""

    def __init__(self) -> None:
        super().__init__()
        self.handles: list[Handle] = []

    def close(self) -> None:
        """The trace is over: no fake leads to the graph any more.

        The graph has the fakes, and autograd's graph has some of them as leaves and as bases of views. Python's garbage
        collector does not look into that one, so both would stay for ever.
        """
        for handle in self.handles:
            handle.steps, handle.origin = (), None
            del handle.cell, handle.node
        self.handles.clear()


class Cell:
    """The memory of one or more tensors: the node with its present value, and how often it was written."""

    __slots__ = ("restrided", "value", "version")

    def __init__(self, value: fx.Node) -> None:
        self.value = value
        self.version = 0
        #: Whether a tensor over this memory, no input, was given another geometry in place.
        self.restrided = False


class Step:
    """One view operator: its arguments after the tensor, and the geometry it was applied to."""

    __slots__ = ("args", "dtype", "func", "kwargs", "offset", "parent", "size", "stride")

    def __init__(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], parent: torch.Tensor) -> None:
        self.func = func
        self.args = args
        self.kwargs = kwargs
        self.parent = parent
        # Kept apart: an in-place transposition may give the parent another geometry later.
        self.size = parent.shape
        self.stride = parent.stride()
        self.offset = parent.storage_offset()
        self.dtype = parent.dtype


class Handle:
    """What the tracer knows about one fake tensor."""

    __slots__ = ("born", "cell", "node", "origin", "steps", "version")

    def __init__(self, cell: Cell, steps: tuple[Step, ...], node: fx.Node, origin: torch.Tensor | None = None) -> None:
        self.cell = cell
        self.steps = steps
        self.node = node
        #: The input that the tensor was cut from, which may be itself; None if its memory is no input's.
        self.origin = origin
        self.version = cell.version
        #: Of a view, how often autograd had seen a write to it when it was made.
        self.born: int | None = None
        if isinstance(node.graph, TracedGraph):
            node.graph.handles.append(self)


def read(handle: Handle, emit: Emit) -> fx.Node:
    """The node of the tensor's present value."""
    cell = handle.cell
    if handle.version != cell.version:
        handle.node = _replay(cell.value, handle.steps, emit)[-1]
        handle.version = cell.version
    return handle.node


def write(target: torch.Tensor, handle: Handle, node: fx.Node, emit: Emit) -> None:
    """Make `node` (of the target's size and dtype) the value of the target, whose handle this is."""
    cell, steps = handle.cell, handle.steps
    value = node
    if steps:
        parents = _replay(cell.value, steps[:-1], emit)
        for step, parent in zip(reversed(steps), reversed(parents), strict=True):
            value = _inverse(step, parent, value, emit)
    cell.value = value
    cell.version += 1
    handle.node = node
    # A value with other strides than the tensor's is good enough to scatter, but a later view of it could fail or
    # promise a wrong layout: then the next read takes it from the cell.
    handle.version = cell.version if node.meta["val"].stride() == target.stride() else -1


def viewed(value: fx.Node, handle: Handle, emit: Emit) -> fx.Node:
    """What the handle's tensor is of other memory that has the value of its own: the same views of it."""
    return _replay(value, handle.steps, emit)[-1]


def _replay(value: fx.Node, steps: tuple[Step, ...], emit: Emit) -> list[fx.Node]:
    """The values before the first step, after it, after the second, and so on."""
    values = [value]
    for step in steps:
        args = _relocated(step.func, step.args, (step.size, step.stride, step.offset), values[-1])
        values.append(emit(step.func, values[-1], *args, **step.kwargs))
    return values


def _relocated(func: Any, args: tuple[Any, ...], geometry: Any, value: fx.Node) -> tuple[Any, ...]:
    """The arguments of a view of a tensor of this (size, stride, offset), for the node that is its value now.

    `as_strided` counts from the start of the memory; the value of a tensor that was written to has memory of its own.
    Where it lies otherwise in that, nothing can be counted: a tensor with gaps, of which the value has none, or a part
    that was written, with a value that begins where eager's kernels say and ours do not.
    """
    if func is not aten.as_strided.default:
        return args
    size, stride, offset = geometry
    now = value.meta["val"]
    start = args[2] if len(args) > 2 else None
    if not lies_alike(size, now.stride(), stride) or (start is not None and _begins_elsewhere(value)):
        raise Unsupported(func, "it counts through memory of a tensor that was written to")
    moved = now.storage_offset() - offset
    return args if start is None or not moved else (*args[:2], start + moved)


def view_arguments(
    func: Any, args: tuple[Any, ...], value: fx.Node, base: Any, out: torch.Tensor, emit: Emit
) -> tuple[tuple[Any, ...], bool]:
    """What a view of a tensor, whose value is this node now, is given; and whether that begins in its memory where the
    tensor does, as what was written alone does not."""
    if func is aten.as_strided.default:
        _check_reach(base, out)
        value = _counted(value, base, out, emit)
    begin = base.storage_offset()
    placed = _relocated(func, args, (base.shape, base.stride(), begin), value)
    alike = lies_alike((2,), (value.meta["val"].storage_offset(),), (begin,))  # equal, symbols too, without a condition
    return (value, *placed), alike


def check_whole(func: Any, base: Any, value: fx.Node) -> None:
    """Refuse to count from the start of the memory of a part that was written, whose value lies alone in its own."""
    cell = base.handle.cell
    if base.handle.steps and cell.version and _memory(value, cell) is not cell.value:
        raise Unsupported(func, "it counts through memory of a tensor that was written to", "clone its operand")


def _counted(value: fx.Node, base: Any, out: torch.Tensor, emit: Emit) -> fx.Node:
    """The value of a tensor that has in its memory all of `out`, to which `as_strided` counts: what was written alone
    has memory of its own, without that around it."""
    cell = base.handle.cell
    memory = _memory(value, cell)
    if memory is cell.value:
        return value
    whole, moved = memory.meta["val"], value.meta["val"].storage_offset() - base.storage_offset()
    first, last = _reach(whole.shape, whole.stride(), whole.storage_offset())
    low, high = _reach(out.shape, out.stride(), out.storage_offset())
    known = not is_symbolic([first, last, low, high, moved])
    if known and (low == high or (first <= low + moved and high + moved <= last)):
        return value
    return viewed(cell.value, base.handle, emit)


def _memory(value: fx.Node, cell: Cell) -> fx.Node:
    """The node in whose memory a value lies, which is the cell's where it is a part of that."""
    while is_view(value) and value is not cell.value:
        value = value.args[0]  # type: ignore[assignment]
    return value


def _begins_elsewhere(value: fx.Node) -> bool:
    """Whether it is a scatter into memory that does not begin with its tensor, which eager's kernels copy whole."""
    scattered = False
    while is_view(value) or value.target in KEEPING:
        scattered = scattered or value.target in KEEPING
        value = value.args[0]  # type: ignore[assignment]
    return scattered and value.meta["val"].storage_offset() != 0


# ---- the inverse of a view: the parent's new value from the view's ---------------------------------------------------

#: View overload → (step, parent's value, view's new value, emit) → parent's new value.
INVERSES = Table("inverse")
_inverse_of = INVERSES.register


def _inverse(step: Step, parent: fx.Node, value: fx.Node, emit: Emit) -> fx.Node:
    inverse = INVERSES.get(step.func)
    if inverse is None:
        raise Unsupported(step.func, "the program writes through this view")
    made: fx.Node = inverse(step, parent, value, emit)
    return made


@_inverse_of(
    aten.view.default,
    aten._reshape_alias.default,
    aten.unsqueeze.default,
    aten.squeeze.default,
    aten.squeeze.dim,
    aten.squeeze.dims,
)
def _inverse_view(step: Step, parent: fx.Node, value: fx.Node, emit: Emit) -> fx.Node:
    """w = x.view(…); w.copy_(v) --> x' = v.reshape(x.size)."""
    size = list(step.size)
    if not value.meta["val"].is_contiguous():
        value = emit(aten.clone.default, value, memory_format=torch.contiguous_format)
    return _with_layout(emit(aten.view.default, value, size), step.stride, parent, emit)


def _with_layout(value: fx.Node, stride: tuple[int, ...], parent: fx.Node, emit: Emit) -> fx.Node:
    """The value with these strides of its parent's, so that views of the parent stay valid."""
    if value.meta["val"].stride() == stride:
        return value
    return emit(aten.copy.default, parent, value)


@_inverse_of(aten.permute.default)
def _inverse_permute(step: Step, parent: fx.Node, value: fx.Node, emit: Emit) -> fx.Node:
    """w = x.permute(p); w.copy_(v) --> x' = v.permute(p⁻¹)."""
    dims = step.args[0]
    inverse = [0] * len(dims)
    for i, dim in enumerate(dims):
        inverse[dim % len(dims)] = i
    return _with_layout(emit(aten.permute.default, value, inverse), step.stride, parent, emit)


@_inverse_of(aten.transpose.int)
def _inverse_transpose(step: Step, parent: fx.Node, value: fx.Node, emit: Emit) -> fx.Node:
    """w = x.transpose(a, b); w.copy_(v) --> x' = v.transpose(a, b)."""
    return _with_layout(emit(aten.transpose.int, value, *step.args), step.stride, parent, emit)


@_inverse_of(aten.t.default)
def _inverse_t(step: Step, parent: fx.Node, value: fx.Node, emit: Emit) -> fx.Node:
    """w = x.t(); w.copy_(v) --> x' = v.t()."""
    return _with_layout(emit(aten.t.default, value), step.stride, parent, emit)


@_inverse_of(aten.expand.default)
def _inverse_expand(step: Step, parent: fx.Node, value: fx.Node, emit: Emit) -> fx.Node:
    """w = x.expand(…) that repeats nothing; w.copy_(v) --> x' = v.reshape(x.size)."""
    if value.meta["val"].numel() != step.size.numel():
        raise Unsupported(step.func, "the program writes through a view that repeats elements")
    return _inverse_view(step, parent, value, emit)


@_inverse_of(aten.slice.Tensor)
def _inverse_slice(step: Step, parent: fx.Node, value: fx.Node, emit: Emit) -> fx.Node:
    """w = x[a:b:c]; w.copy_(v) --> x' = slice_scatter(x, v, dim, a, b, c)."""
    return emit(aten.slice_scatter.default, parent, value, *step.args)


@_inverse_of(aten.select.int)
def _inverse_select(step: Step, parent: fx.Node, value: fx.Node, emit: Emit) -> fx.Node:
    """w = x[i]; w.copy_(v) --> x' = select_scatter(x, v, dim, i)."""
    return emit(aten.select_scatter.default, parent, value, *step.args)


@_inverse_of(aten.diagonal.default)
def _inverse_diagonal(step: Step, parent: fx.Node, value: fx.Node, emit: Emit) -> fx.Node:
    """w = x.diagonal(…); w.copy_(v) --> x' = diagonal_scatter(x, v, …)."""
    return emit(aten.diagonal_scatter.default, parent, value, *step.args)


@_inverse_of(aten.as_strided.default)
def _inverse_as_strided(step: Step, parent: fx.Node, value: fx.Node, emit: Emit) -> fx.Node:
    """w = x.as_strided(size, stride, k); w.copy_(v) --> x' = x with v put at the positions k + Σ i·stride.

    ATen's own as_strided_scatter counts from the start of a storage, and an intermediate may lie anywhere in one.
    """
    size, stride, *rest = step.args
    start = (rest[0] - step.offset) if rest and rest[0] is not None else 0
    whole = parent.meta["val"]
    if not start and not step.kwargs and _alike(size, stride, step):
        return _with_layout(value, step.stride, parent, emit)
    if not is_dense(whole.shape, step.stride) or start < 0 or step.kwargs or may_overlap(size, stride):
        raise Unsupported(step.func, "the program writes through this view")
    if _reach(size, stride, start)[1] > whole.numel():
        raise Unsupported(step.func, "the program writes through it to memory outside of its operand")
    options = {"dtype": torch.int64, "device": whole.device}
    positions = emit(aten.full.default, [], start, **options)
    for dim, (extent, jump) in enumerate(zip(size, stride, strict=True)):
        line = emit(aten.mul.Tensor, emit(aten.arange.start_step, 0, extent, 1, **options), jump)  # a jump may be 0
        line = emit(aten.view.default, line, [extent, *[1] * (len(size) - dim - 1)])
        positions = emit(aten.add.Tensor, positions, line)
    order = sorted(range(whole.dim()), key=lambda dim: -step.stride[dim])
    flat = emit(aten.permute.default, parent, order) if order != sorted(order) else parent
    if not flat.meta["val"].is_contiguous():
        flat = emit(aten.clone.default, flat, memory_format=torch.contiguous_format)
    lines = list(flat.meta["val"].shape)
    flat = emit(aten.index_put.default, emit(aten.view.default, flat, [whole.numel()]), [positions], value)
    made = emit(aten.view.default, flat, lines)
    if order != sorted(order):
        made = emit(aten.permute.default, made, [order.index(dim) for dim in range(len(order))])
    return _with_layout(made, step.stride, parent, emit)


def _alike(size: Sequence[int], stride: Sequence[int], step: Step) -> bool:
    """Whether a view differs from its parent in the strides of extents of one alone."""
    same = [jump == before for extent, jump, before in zip(size, stride, step.stride, strict=False) if extent != 1]
    return tuple(size) == tuple(step.size) and all(same)


@_inverse_of(aten.view.dtype)
def _inverse_view_dtype(step: Step, parent: fx.Node, value: fx.Node, emit: Emit) -> fx.Node:
    """w = x.view(dtype); w.copy_(v) --> x' = v.view(x.dtype).

    Through a view without elements nothing is written: its strides need not be those of wider elements.
    """
    written = value.meta["val"]
    if type(written.numel()) is int and not written.numel():
        return parent
    if step.dtype.itemsize > written.dtype.itemsize and not _is_of_wider(written, step.dtype):
        value = emit(aten.clone.default, value, memory_format=torch.contiguous_format)
    return _with_layout(emit(aten.view.dtype, value, step.dtype), step.stride, parent, emit)


def _is_of_wider(value: torch.Tensor, dtype: torch.dtype) -> bool:
    """Whether elements lie so that they are seen as those of a wider dtype."""
    several = dtype.itemsize // value.dtype.itemsize
    *strides, last = value.stride()
    return last == 1 and all(step % several == 0 for step in (*strides, value.storage_offset()))


@_inverse_of(aten._conj.default)
def _inverse_conj(step: Step, parent: fx.Node, value: fx.Node, emit: Emit) -> fx.Node:
    """w = x.conj(); w.copy_(v) --> x' = conj(v)."""
    return emit(aten.conj_physical.default, value)


@_inverse_of(aten._neg_view.default)
def _inverse_negation(step: Step, parent: fx.Node, value: fx.Node, emit: Emit) -> fx.Node:
    """w = -x, put off; w.copy_(v) --> x' = -v."""
    return emit(aten.neg.default, value)


@_inverse_of(aten.view_as_real.default)
def _inverse_view_as_real(step: Step, parent: fx.Node, value: fx.Node, emit: Emit) -> fx.Node:
    """w = view_as_real(x); w.copy_(v) --> x' = view_as_complex(v)."""
    return emit(aten.view_as_complex.default, value)


@_inverse_of(aten.view_as_complex.default)
def _inverse_view_as_complex(step: Step, parent: fx.Node, value: fx.Node, emit: Emit) -> fx.Node:
    """w = view_as_complex(x); w.copy_(v) --> x' = view_as_real(v)."""
    return emit(aten.view_as_real.default, value)


# ---- where the elements of a tensor lie ------------------------------------------------------------------------------


def _check_reach(base: Any, out: torch.Tensor) -> None:
    """Refuse a view that leaves the elements of the tensor it began with: nothing is known of the memory around.

    Nor of that between them, once the tensor has been written to: its value then has other memory. So has what is seen
    as another dtype.
    """
    steps = base.handle.steps
    begin = max([i + 1 for i, step in enumerate(steps) if step.func is aten.view.dtype], default=0)
    whole = steps[begin] if begin < len(steps) else Step(None, (), {}, base)
    low, high = _reach(whole.size, whole.stride, whole.offset)
    part = out.shape, out.stride(), out.storage_offset()
    first, last = _reach(*part)
    if first < last and (first < low or last > high):
        raise Unsupported(aten.as_strided.default, "it reads memory outside of the tensor")
    own = whole.size, whole.stride, whole.offset
    if base.handle.cell.version and not is_dense(whole.size, whole.stride) and not _holds(own, part):
        raise Unsupported(aten.as_strided.default, "it reads between the elements of a tensor that was written to")


#: Up to so many elements are looked up one by one.
_FEW = 1 << 14


def leaves_operand(tensor: torch.Tensor) -> bool:
    """Whether an `as_strided` on the way to it reads what its operand does not hold, or that is not known.

    Autograd drops the gradient of such elements, though they are elements of what the operand is a view of.
    """
    steps = tensor.handle.steps  # type: ignore[attr-defined]
    places = [(step.size, step.stride, step.offset) for step in steps]
    places.append((tensor.shape, tensor.stride(), tensor.storage_offset()))
    return any(
        step.func is aten.as_strided.default and not _holds(places[i], places[i + 1])
        for i, step in enumerate(steps)
        if i > 0
    )


def _holds(operand: Any, part: Any) -> bool:
    """Whether every position of a part is one of the operand's; False where sizes are symbols or many."""
    if is_symbolic([*operand[0], *operand[1], *part[0], *part[1]]):
        return False
    low, high = _reach(*operand)
    first, last = _reach(*part)
    if first == last or (is_dense(operand[0], operand[1]) and low <= first and last <= high):
        return True
    if max(math.prod(operand[0]), math.prod(part[0])) > _FEW:
        return False
    return _positions(*part) <= _positions(*operand)


def _positions(size: Sequence[int], stride: Sequence[int], offset: int) -> set[int]:
    places = itertools.product(
        *[range(0, extent * step, step) if step else [0] for extent, step in zip(size, stride, strict=True)]
    )
    return {offset + sum(place) for place in places}


def _reach(size: Sequence[int], stride: Sequence[int], offset: Any) -> tuple[Any, Any]:
    """The first position in memory, and the one after the last."""
    if 0 in size:
        return offset, offset
    return offset, offset + 1 + sum((extent - 1) * step for extent, step in zip(size, stride, strict=True))
