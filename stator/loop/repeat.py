"""Decide: what lies in memory for kernels alone is computed in each that reads it, where that moves fewer bytes.

    k0: m = f(a, b); s = sum(m)         k0: s = sum(f(a, b))
    k1: … m … a … s …           -->     k1: … f(a, b) … a … s …

It is looked for once fusion has decided, and among values that are cheap, in operations and in loads, as those of the
gradient of a pool are not: each kernel that reads one gets a copy of its nest, and fusion decides again; a copy that
would not stay in registers is taken back.

A value of half type in memory is rounded there. Where roundings are left out it may therefore cost more, and comes with
what its kernel computes for it in registers: the gradient of a sigmoid's product, of which a batch norm takes sums.
Neighbours: `fusion` joins, `traffic` has the bytes, `schedule` asks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from typing import NamedTuple

from stator.base.device import Device
from stator.loop.canonical import indices_in, merged
from stator.loop.deps import CACHED, Facts, analyse
from stator.loop.expr import Expr, Rewriter, load, postorder
from stator.loop.fusion import FusionPlan, Group, decide, escapes
from stator.loop.index import Index
from stator.loop.nest import Nest, Node, Program
from stator.loop.scalar import COSTLY, HALVES
from stator.loop.traffic import Traffic
from stator.sizes import hint

#: How often it is decided anew without what did not join, and how often with what that stood in the way of.
_ROUNDS, _OPEN = 4, 2
#: Costly operators that a value may be computed with once more instead of being rounded, and those that it may not.
_MOST, _LONG = 4, frozenset(("random", "erfinv", "pow"))


class Chosen(NamedTuple):
    """A nest that is computed where it is read, with those before it that are computed for it."""

    number: int
    parts: tuple[int, ...]
    #: Those that read it, by the kernel that they are in.
    readers: list[list[int]]


def repeat(plan: FusionPlan, device: Device, rounds: bool = True) -> FusionPlan:
    """The plan where what pays is computed in each kernel that reads it; the same object where nothing does.

    `rounds`: whether a value of half type is rounded wherever it is.
    """
    stored: set[int] = set()
    chosen: list[Chosen] = []
    for turn in range(_ROUNDS):
        chosen = [one for one in chosen if one.number not in stored]
        if turn < _OPEN:
            chosen = _chosen(plan, device, rounds, stored)
        if not chosen:
            break
        program, copies = _copied(plan.facts.program, chosen, rounds)
        again = decide(analyse(program), device)
        made = [(name, group) for group in again.groups for name in group.writes if name in copies]
        failed = {copies[name] for name, group in made if escapes(name, group.bits, again.facts)}
        if not failed:
            return again if Traffic(again, device).total() < Traffic(plan, device).total() else plan
        stored |= failed
    return plan


def _chosen(plan: FusionPlan, device: Device, rounds: bool, stored: set[int]) -> list[Chosen]:
    """What is computed where it is read: what saves the most first, and none that is made of what another makes."""
    taken: list[Chosen] = []
    made, needed = set[str](), set[str]()
    found = [(saved, one) for saved, one in _candidates(plan, device, rounds) if one.number not in stored]
    for _, one in sorted(found, key=lambda pair: -pair[0]):
        name, needs = plan.facts.nests[one.number].nest.buffer.name, _needs((*one.parts, one.number), plan.facts)
        if name not in needed and made.isdisjoint(needs):
            taken.append(one)
            made.add(name)
            needed |= needs
    return taken


def _candidates(plan: FusionPlan, device: Device, rounds: bool) -> Iterator[tuple[int, Chosen]]:
    """What may be computed where it is read, and the bytes that this saves."""
    facts = plan.facts
    home = {number: group for group in plan.groups for number in group.members}
    for number, found in facts.nests.items():
        name = found.nest.buffer.name
        wide = not rounds and found.nest.buffer.dtype in HALVES
        parts = _parts(number, home[number], facts) if wide else ()
        needs = _needs((*parts, number), facts)
        readers = facts.readers.get(name, [])
        if not facts.nests.keys() >= set(readers) or not _cheap((*parts, number), facts, device, _MOST if wide else 0):
            continue
        kernels = list(dict.fromkeys([home[reader] for reader in readers]))
        done = {number, *parts}.issuperset(home[number].members)
        saved = _saved(name, needs, home[number], kernels, facts, done)
        if saved > 0:
            yield saved, Chosen(number, parts, [[r for r in readers if home[r] is kernel] for kernel in kernels])


def _parts(number: int, own: Group, facts: Facts) -> tuple[int, ...]:
    """The nests that a kernel has in registers alone and that this one is made of, in order."""
    found: set[int] = set()
    waiting = [number]
    while waiting:
        for name in facts.nests[waiting.pop()].reads:
            if name in own.writes and not escapes(name, own.bits, facts):
                new = set(facts.writers[name]) - found
                found |= new
                waiting += new
    return tuple(sorted(found))


def _needs(nests: tuple[int, ...], facts: Facts) -> set[str]:
    """What nests read that they do not make themselves."""
    read = {name for number in nests for name in facts.nests[number].reads}
    return read - {facts.nests[number].nest.buffer.name for number in nests}


def _cheap(nests: tuple[int, ...], facts: Facts, device: Device, most: int) -> bool:
    """Whether nests are pointwise, with so few costly operators, and make what nothing but kernels sees, each alone."""
    nodes = [node for number in nests for node in facts.nests[number].nodes]
    costly = [node.op for node in nodes if node.op in COSTLY]
    if len(costly) > most or not _LONG.isdisjoint(costly) or any(node.op == "scan" for node in nodes):
        return False
    if not all(_plain(facts, number) for number in nests):
        return False
    if len(nests) > 1 and any(_last(facts, name) > nests[0] for name in _needs(nests, facts)):
        return False  # what the first of them reads may be another value by the last
    return not 0 < device.many_loads <= sum([_loads(facts, number) for number in nests])


def _last(facts: Facts, name: str) -> int:
    """The last node that writes a buffer; -1 for an input."""
    return max(facts.writers.get(name, ()), default=-1)


def _plain(facts: Facts, number: int) -> bool:
    """Whether a nest is pointwise, and alone makes a buffer that nothing but kernels sees."""
    nest = facts.nests[number].nest
    name = nest.buffer.name
    if nest.reduce_axes or nest.mode != "store" or name in facts.kept or name in facts.special:
        return False
    return facts.writers[name] == [number]


def _loads(facts: Facts, number: int) -> int:
    """How many loads of each point are of buffers that no cache holds."""
    buffers, found = facts.program.buffers, facts.nests[number]
    points = hint(found.nest.buffer.numel)
    loaded = {node.attr for node in found.nodes if node.op == "load"}
    return len([name for name, _ in loaded if hint(buffers[name].numel) * CACHED > points])


def _saved(name: str, needs: set[str], own: Group, kernels: list[Group], facts: Facts, done: bool) -> int:
    """Bytes that are not moved any more, less those that other kernels read then; 0 where there is more to it.

    `done`: its kernel computes nothing else.
    """
    others = [kernel for kernel in kernels if kernel is not own]
    inside = not needs.isdisjoint(own.writes)  # it is made of what its kernel makes
    if not others or inside or any(len(kernel.reads[name]) > 1 for kernel in others):
        return 0
    buffers = facts.program.buffers
    size = {read: hint(buffers[read].nbytes) for read in needs}
    alone = sum(size.values()) if done else 0
    again = sum([size[read] for kernel in others for read in needs if read not in kernel.reads])
    return alone + hint(buffers[name].nbytes) * (1 + len(others)) - again


def _copied(program: Program, chosen: list[Chosen], rounds: bool) -> tuple[Program, dict[str, int]]:
    """The program with a copy of each of these nests for each kernel that reads it; which nest a buffer is for.

    Unless a rounding is saved as well, kernels that take an axis in pieces read what they sum up as it lies.
    """
    copies: dict[str, int] = {}
    taken = set(program.buffers)
    renamed: dict[int, dict[str, str]] = {}
    nodes: list[Node] = []
    by_number = {one.number: one for one in chosen}
    for number, node in enumerate(program.nodes):
        if number in by_number:
            assert isinstance(node, Nest)
            for readers in by_number[number].readers:
                names: dict[str, str] = {}
                for part in [*by_number[number].parts, number]:
                    nest = program.nodes[part]
                    assert isinstance(nest, Nest)
                    made = nest.buffer.name
                    names[made] = next(n for i in count() if (n := f"{made}_copy{i}") not in taken)
                    taken.add(names[made])
                    copies[names[made]] = number
                    copy = replace(nest, buffer=replace(nest.buffer, name=names[made]))
                    copy = _reading(copy, names)
                    nodes.append(copy if rounds else _joined(copy))
                for reader in readers:
                    renamed.setdefault(reader, {})[node.buffer.name] = names[node.buffer.name]
        elif number in renamed:
            assert isinstance(node, Nest)
            nodes.append(_reading(node, renamed[number]))
        else:
            nodes.append(node)
    return replace(program, nodes=tuple(nodes)), copies


def _joined(nest: Nest) -> Nest:
    """The nest with one axis for those that it walks as one, so that it also fits kernels that take these in pieces."""
    axes, mapping = merged(list(nest.axes), [nest.index, *indices_in(postorder([nest.value]))], {})
    if not mapping:
        return nest
    return replace(nest, axes=tuple(axes), value=nest.value.substitute(mapping), index=nest.index.substitute(mapping))


def _reading(nest: Nest, names: dict[str, str]) -> Nest:
    """The nest that reads other buffers instead."""

    def on_load(buffer: str, index: Index, dtype: str) -> Expr:
        return load(names.get(buffer, buffer), index, dtype)

    rewrite = Rewriter({}, on_load, {})
    return replace(nest, value=rewrite(nest.value), index=rewrite.index(nest.index))
