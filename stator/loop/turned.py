"""Rewrite: what a reduction along rows reads across them in memory is turned first, where a call gave it.

    g = mm(…)                                       g = mm(…);  t[i, j] = g[j, i]
    s[i] = sum(g[j, i] * x[i, j] for j)       -->   s[i] = sum(t[i, j] * x[i, j] for j)

So are the gradients of a norm's rows where a product gives them as columns: of 32 x 196 x 768 in bfloat16 they and the
weights' took three kernels of 110 µs on an H100, which are one of 22 behind a copy of 5. The copy is a kernel of tiles,
which moves whole lines of both; a kernel of rows takes a line of `g` for each element. What nests make is not turned
here: the nest that makes it is a kernel of tiles itself (`Refusal.TURNED`), and `layout` chooses how it lies.
Neighbours: `split.prepare` asks for it where a device runs programs of rows; `fusion` keeps the copy apart from rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count
from typing import TypeAlias

from stator.base.device import Device
from stator.loop.deps import lies_across
from stator.loop.expr import Expr, Rewriter, load
from stator.loop.index import ZERO, Axis, Index
from stator.loop.nest import Buffer, Extern, Nest, Node, Program
from stator.loop.space import flat
from stator.sizes import hint
from stator.sizes.strides import contiguous

#: How many times as long it takes to read across rows, beside a copy, which reads and writes.
_ACROSS, _COPY = 6.0, 2.0


#: Where a nest reads, each place once.
Loads: TypeAlias = "list[tuple[str, Index]]"


@dataclass(frozen=True, slots=True)
class _Turn:
    """A buffer that is copied: by how much each of its digits, the fast one last, moves in it, and in the copy."""

    copy: Buffer
    steps: dict[int, int]
    source: Buffer

    def index(self, found: Index) -> Index:
        """Where an element of the buffer lies in the copy."""
        return _sum([axis.index * self.steps[hint(step)] for axis, step in _terms(found)])

    def nest(self) -> Nest:
        """The copy."""
        axes = tuple([Axis(f"x{i}", n) for i, n in enumerate(self.copy.size)])
        place = _sum([axis.index * step for axis, step in zip(axes, self.steps, strict=True)])
        return Nest(self.copy, axes, (), load(self.source.name, place, self.source.dtype), flat(axes))


def turned(program: Program, device: Device) -> Program:
    """The program where such buffers are copied once; the same object where there are none."""
    if device.host:
        return program
    turns = {turn.source.name: turn for turn in _turns(program, device)}
    if not turns:
        return program

    def on_load(buffer: str, index: Index, dtype: str) -> Expr:
        return (
            load(turns[buffer].copy.name, turns[buffer].index(index), dtype)
            if buffer in turns
            else load(buffer, index, dtype)
        )

    rewrite = Rewriter({}, on_load, {})
    nodes: list[Node] = [turns[buffer.name].nest() for buffer in program.inputs if buffer.name in turns]
    for node in program.nodes:
        if isinstance(node, Nest):
            value, index = rewrite(node.value), rewrite.index(node.index)
            same = value is node.value and index is node.index
            nodes.append(node if same else replace(node, value=value, index=index))
        else:
            nodes += [node, *[turns[buffer.name].nest() for buffer in node.outputs if buffer.name in turns]]
    return replace(program, nodes=tuple(nodes))


def _turns(program: Program, device: Device) -> Iterator[_Turn]:
    """What calls gave first, then inputs: of two that are read across each other, one is turned."""
    nests = [node for node in program.nodes if isinstance(node, Nest)]
    loads = {nest: _loads(nest) for nest in nests}
    readers: dict[str, list[Nest]] = {}
    for nest in nests:
        for name in dict.fromkeys([name for name, _ in loads[nest]]):
            readers.setdefault(name, []).append(nest)
    written = {nest.buffer.name for nest in nests} | set(program.mutated)
    calls = [node for node in program.nodes if isinstance(node, Extern)]
    taken = set(program.buffers)
    for buffer in (*[buffer for call in calls for buffer in call.outputs], *program.inputs):
        if buffer.name not in readers or buffer.name in written or buffer.opaque:
            continue
        steps = _steps(buffer, [(nest, loads[nest]) for nest in readers[buffer.name]], device)
        if steps is None:
            continue
        name = next(n for i in count() if (n := f"{buffer.name}_turned{i or ''}") not in taken)
        taken.add(name)
        size = tuple(steps.values())
        moves = {step: hint(move) for step, move in zip(steps, contiguous(size), strict=True)}
        turn = _Turn(Buffer(name, buffer.dtype, size, contiguous(size), buffer.device), moves, buffer)
        for nest in readers[buffer.name]:
            loads[nest] = [(n, turn.index(i)) if n == buffer.name else (n, i) for n, i in loads[nest]]
        yield turn


def _loads(nest: Nest) -> Loads:
    found: dict[tuple[str, Index], None] = {}

    def on_load(buffer: str, index: Index, dtype: str) -> Expr:
        found[buffer, index] = None
        return load(buffer, index, dtype)

    rewrite = Rewriter({}, on_load, {})
    rewrite(nest.value)
    rewrite.index(nest.index)
    return [*found]


def _steps(buffer: Buffer, readers: list[tuple[Nest, Loads]], device: Device) -> dict[int, int] | None:
    """The digits of a buffer as a copy of it has them, the fast one last: step in the buffer → size. None: it stays."""
    found = [(nest, index, loads) for nest, loads in readers for name, index in loads if name == buffer.name]
    if not all(_is_plain(index) for _, index, _ in found):
        return None
    digits = {frozenset([(hint(step), hint(axis.size)) for axis, step in _terms(index)]) for _, index, _ in found}
    across = [(nest, index) for nest, index, loads in found if _is_across(nest, index, loads)]
    saved = float(hint(buffer.nbytes)) * (_ACROSS - 1 - _COPY)
    if len(digits) != 1 or not across or saved <= device.launch_cost * device.bandwidth:
        return None
    sizes = dict(sorted(next(iter(digits)), reverse=True))
    nest, index = across[0]
    fast = hint(next(step for axis, step in _terms(index) if axis is nest.reduce_axes[-1]))
    return {step: size for step, size in sizes.items() if step != fast} | {fast: sizes[fast]}


def _is_across(nest: Nest, index: Index, loads: Loads) -> bool:
    """Whether a reduction reads there across its rows, and something as large along them."""
    if not nest.reduce_axes or not lies_across(index, nest.axes, nest.reduce_axes):
        return False
    last, axes = nest.reduce_axes[-1], index.axes()
    return any(other.stride(last) in (1, -1) and axes <= other.axes() for _, other in loads)


def _is_plain(index: Index) -> bool:
    """Whether it walks axes of known size by steps that differ."""
    steps = [step for _, step in index.terms]
    whole = all(isinstance(atom, Axis) and type(atom.size) is int for atom, _ in index.terms)
    return whole and index.const == 0 and all(type(n) is int and n > 0 for n in steps) and len({*steps}) == len(steps)


def _sum(indices: list[Index]) -> Index:
    total = ZERO
    for index in indices:
        total = total + index
    return total


def _terms(index: Index) -> list[tuple[Axis, int]]:
    return [(atom, step) for atom, step in index.terms]  # type: ignore[misc]
