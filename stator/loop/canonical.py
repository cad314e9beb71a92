"""Apply: the form of a kernel without names, so that equal kernels are one object.

Axes of size 1 go; neighbouring axes that every access walks as one are merged; outer axes are ordered so that the last
one has stride 1 where most accesses allow it (those along which writes may collide keep their order); axes become x0,
x1, …, r0, r1, …, and buffers p0, p1, … in order of use. Merging is tried on every access: it must not bring a `//` or
`%` that was not there. What is constant in all positions of a buffer goes into the arguments, so that kernels on equal
slices are equal; an element that is read at a constant position is a param of its own. Symbols become n0, n1, … in
order of use.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from stator.loop.collision import colliding, scatters
from stator.loop.expr import Expr, Rewriter, load, postorder
from stator.loop.extent import Bound, less
from stator.loop.index import NO_AXES, Axis, Index
from stator.loop.kernel import Launch, Param, Pointer, Store, kernel
from stator.loop.nest import Buffer
from stator.loop.resize import Resizer, symbols_in
from stator.loop.space import AxisMap, Space, composed
from stator.sizes import Extent, Symbol, hint, maximum, minimum


@dataclass(slots=True)
class Draft:
    """A kernel with the program's own buffer names and any axes."""

    space: Space
    stores: list[Store]
    ordered: bool


def canonical(draft: Draft, buffers: Mapping[str, Buffer], symbolic: bool = False) -> Launch:
    """The kernel of a draft, and its arguments; `symbolic` says whether there may be symbols in it."""
    nodes = postorder([root for store in draft.stores for root in store.roots])
    accesses = _accesses(draft, nodes)
    scattered = [store.index for store in draft.stores if scatters(store)]
    outer = _real(draft.space.axes)
    outer, mapping = merged(_sorted(outer, accesses, colliding(scattered, outer)), accesses, {})
    inner = _real(draft.space.reduce_axes)
    inner = inner if draft.ordered else _sorted(inner, accesses)
    inner, mapping = merged(inner, [index.substitute(mapping) for index in accesses], mapping)
    fixed = colliding([index.substitute(mapping) for index in scattered], outer)
    outer = _sorted(outer, [index.substitute(mapping) for index in accesses], fixed)
    axes = tuple(Axis(f"x{i}", axis.size) for i, axis in enumerate(outer))
    reduce_axes = tuple(Axis(f"r{i}", axis.size) for i, axis in enumerate(inner))
    renamed = {old: new.index for old, new in zip((*outer, *inner), (*axes, *reduce_axes), strict=True)}
    final = {**renamed, **composed(mapping, renamed)}
    bound = _Binding(draft, nodes, final)
    rewrite = Rewriter(final, lambda buffer, index, dtype: load(*bound.place(buffer, index), dtype))
    stores = []
    for s in draft.stores:
        space = "inner" if reduce_axes and s.space == "inner" else "outer"
        stores.append(Store(*bound.place(s.buffer, rewrite.index(s.index)), rewrite(s.value), space, s.mode))
    params = bound.params(_roles(stores), buffers)
    if symbolic and (found := symbols_in((*axes, *reduce_axes), stores, params)):
        renamed_symbols = {s: Symbol(f"n{i}", s.low, s.high, s.hint) for i, s in enumerate(found)}
        resizer = Resizer({old: new.size for old, new in renamed_symbols.items()})
        made = kernel(*resizer.kernel_parts(axes, reduce_axes, stores, params), tuple(renamed_symbols.values()))
        return Launch(made, bound.pointers(), tuple([symbol.size for symbol in found]))
    return Launch(kernel(axes, reduce_axes, tuple(stores), params), bound.pointers())


def _unchanged(loaded: Expr) -> Expr:
    """The range of a position does not depend on how a loaded integer in it is written."""
    return loaded


def _real(axes: tuple[Axis, ...]) -> list[Axis]:
    return [axis for axis in axes if axis.size != 1]


class _Binding:
    """Which param stands for an access, in order of use, and the range of positions that each one covers."""

    __slots__ = ("names", "ranges", "stored")

    def __init__(self, draft: Draft, nodes: tuple[Expr, ...], mapping: AxisMap) -> None:
        self.stored = {store.buffer for store in draft.stores}
        #: (buffer, the constant position or None) -> the lowest and the highest position.
        self.ranges: dict[tuple[str, int | None], tuple[int, Bound]] = {}
        accesses = [node.attr for node in nodes if node.op == "load"]
        accesses += [(store.buffer, store.index) for store in draft.stores]
        renamed: dict[Index, Index] = {}
        for buffer, index in accesses:
            found = renamed.get(index)
            if found is None:
                found = renamed[index] = index.substitute(mapping, _unchanged)
            self._cover(buffer, found)
        self.names = {key: f"p{i}" for i, key in enumerate(self.ranges)}

    def _cover(self, buffer: str, index: Index) -> None:
        key = self._key(buffer, index)
        known = self.ranges.get(key)
        low, high = index.low, index.high
        low = low if type(low) is int else 0  # what is symbolic stays in the index
        self.ranges[key] = (low, high) if known is None else (min(known[0], low), _most(known[1], high))

    def _key(self, buffer: str, index: Index) -> tuple[str, int | None]:
        alone = not index.terms and buffer not in self.stored and type(index.const) is int
        return buffer, index.const if alone else None  # type: ignore[return-value]

    def _start(self, key: tuple[str, int | None]) -> int:
        return max(self.ranges[key][0], 0)  # positions below 0 only occur under a mask

    def place(self, buffer: str, index: Index) -> tuple[str, Index]:
        """The param and the position in it."""
        key = self._key(buffer, index)
        start = self._start(key)
        return self.names[key], index - start if start else index

    def params(self, roles: Mapping[str, str], buffers: Mapping[str, Buffer]) -> tuple[Param, ...]:
        """The params, each as long as what may be touched."""
        made = []
        for key, name in self.names.items():
            buffer, start = buffers[key[0]], self._start(key)
            numel = length(self.ranges[key][1], buffer.span, start)
            made.append(Param(name, buffer.dtype, roles.get(name, "in"), numel))
        return tuple(made)

    def pointers(self) -> tuple[Pointer, ...]:
        """What the params are bound to."""
        return tuple([Pointer(key[0], self._start(key)) for key in self.ranges])


def _most(one: Bound, other: Bound) -> Bound:
    if type(one) is int and type(other) is int:
        return max(one, other)
    return None if one is None or other is None else maximum(one, other)


def length(high: Bound, span: Extent, start: int) -> Extent:
    """How many elements may be touched from `start` on, where none beyond `high` is."""
    if type(high) is int and type(span) is int:
        return max(min(high + 1, span) - start, 0)
    end = span if high is None else high + 1 if less(high, span) else minimum(high + 1, span)
    return maximum(end - start, 0)


def _roles(stores: list[Store]) -> dict[str, str]:
    loaded = {n.attr[0] for n in postorder([root for store in stores for root in store.roots]) if n.op == "load"}
    loaded |= {s.buffer for s in stores if scatters(s)}
    return {store.buffer: "inout" if store.buffer in loaded else "out" for store in stores}


def _accesses(draft: Draft, nodes: tuple[Expr, ...]) -> list[Index]:
    """The distinct indices, stores first."""
    return list(dict.fromkeys([*[store.index for store in draft.stores], *indices_in(nodes)]))


def indices_in(nodes: Iterable[Expr]) -> list[Index]:
    """Where expressions read, and the positions that they compute with."""
    return [node.attr[1] if node.op == "load" else node.attr for node in nodes if node.op in ("load", "index")]


def _sorted(axes: list[Axis], accesses: list[Index], fixed: frozenset[Axis] = NO_AXES) -> list[Axis]:
    """Large strides first; the axis with the most unit strides last. Keeps the given order among equals and `fixed`."""
    if len(axes) < 2:
        return list(axes)
    units = dict.fromkeys(axes, 0)
    reach = dict.fromkeys(axes, 0)
    for index in accesses:
        for axis in axes:
            stride = index.stride(axis)
            units[axis] += stride == 1
            reach[axis] += abs(hint(stride)) if stride is not None else 0
    ordered = sorted(axes, key=lambda axis: -reach[axis])
    last = max(reversed(ordered), key=lambda axis: units[axis])
    if units[last]:
        ordered.remove(last)
        ordered.append(last)
    kept = iter([axis for axis in axes if axis in fixed])
    return [next(kept) if axis in fixed else axis for axis in ordered]


# -- merging ---------------------------------------------------------------------------------------


def merged(axes: list[Axis], accesses: list[Index], mapping: AxisMap) -> tuple[list[Axis], AxisMap]:
    """Neighbours that all accesses walk as one, merged from the inside out; `mapping` takes the old axes to the new."""
    axes = list(axes)
    position = len(axes) - 2
    while position >= 0:
        left, right = axes[position], axes[position + 1]
        if left.size == 0 or right.size == 0:
            position -= 1
            continue
        joint = Axis(f"{left.name}.{right.name}", left.size * right.size)
        step = {left: joint.index // right.size, right: joint.index % right.size}
        rewritten = _walk_as_one(left, right, step, accesses)
        if rewritten is not None:
            accesses = rewritten
            mapping = {**step, **{axis: index.substitute(step) for axis, index in mapping.items()}}
            axes[position : position + 2] = [joint]
            position = min(position, len(axes) - 2)
        else:
            position -= 1
    return axes, mapping


def _walk_as_one(left: Axis, right: Axis, step: AxisMap, accesses: list[Index]) -> list[Index] | None:
    """The accesses after merging, or None if one of them gets harder."""
    for index in accesses:
        a, b = index.stride(left), index.stride(right)
        if a is not None and b is not None and a != b * right.size:
            return None
    rewritten = [index.substitute(step) for index in accesses]
    if any(_divisions(new) > _divisions(old) for old, new in zip(accesses, rewritten, strict=True)):
        return None
    return rewritten


def _divisions(index: Index) -> int:
    return sum([type(atom) is not Axis for atom, _ in index.terms])
