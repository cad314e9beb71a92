"""Decide: what lies in memory for kernels alone is computed in each that reads it, where that moves fewer bytes.

    k0: m = f(a, b); s = sum(m)         k0: s = sum(f(a, b))
    k1: … m … a … s …           -->     k1: … f(a, b) … a … s …

It is looked for once fusion has decided, and among values that are cheap, in operations and in loads, as those of the
gradient of a pool are not: each kernel that reads one gets a copy of its nest, and fusion decides again; a copy that
would not stay in registers is taken back.
Neighbours: `fusion` joins, `traffic` has the bytes, `schedule` asks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import count

from stator.base.device import Device
from stator.loop.deps import CACHED, Facts, analyse
from stator.loop.expr import Expr, Rewriter, load
from stator.loop.fusion import FusionPlan, Group, decide, escapes
from stator.loop.index import Index
from stator.loop.nest import Nest, Node, Program
from stator.loop.scalar import COSTLY
from stator.loop.traffic import Traffic
from stator.sizes import hint

#: How often it is decided anew without what did not join.
_ROUNDS = 3


def repeat(plan: FusionPlan, device: Device) -> FusionPlan:
    """The plan where what pays is computed in each kernel that reads it; the same object where nothing does."""
    chosen = dict(_chosen(plan, device))
    for _ in range(_ROUNDS):
        if not chosen:
            break
        program, copies = _copied(plan.facts.program, chosen)
        again = decide(analyse(program), device)
        made = [(name, group) for group in again.groups for name in group.writes if name in copies]
        stored = {copies[name] for name, group in made if escapes(name, group.bits, again.facts)}
        if not stored:
            return again if Traffic(again, device).total() < Traffic(plan, device).total() else plan
        chosen = {number: readers for number, readers in chosen.items() if number not in stored}
    return plan


def _chosen(plan: FusionPlan, device: Device) -> Iterator[tuple[int, list[list[int]]]]:
    """Nests, and those that read what they make, by the kernel that they are in. None is made of what another makes."""
    facts, made = plan.facts, set[str]()
    home = {number: group for group in plan.groups for number in group.members}
    for number, found in facts.nests.items():
        name = found.nest.buffer.name
        if not _plain(facts, number, device) or not made.isdisjoint(found.reads):
            continue
        readers = facts.readers.get(name, [])
        kernels = list(dict.fromkeys([home[reader] for reader in readers]))
        if facts.nests.keys() >= set(readers) and _saved(number, home[number], kernels, facts) > 0:
            made.add(name)
            yield number, [[reader for reader in readers if home[reader] is kernel] for kernel in kernels]


def _plain(facts: Facts, number: int, device: Device) -> bool:
    """Whether a nest is pointwise and cheap, and alone makes a buffer that nothing but kernels sees."""
    nest = facts.nests[number].nest
    name = nest.buffer.name
    if nest.reduce_axes or nest.mode != "store" or name in facts.kept or name in facts.special:
        return False
    costly = any(node.op in COSTLY or node.op == "scan" for node in facts.nests[number].nodes)
    return facts.writers[name] == [number] and not costly and not 0 < device.many_loads <= _loads(facts, number)


def _loads(facts: Facts, number: int) -> int:
    """How many loads of each point are of buffers that no cache holds."""
    buffers, found = facts.program.buffers, facts.nests[number]
    points = hint(found.nest.buffer.numel)
    loaded = {node.attr for node in found.nodes if node.op == "load"}
    return len([name for name, _ in loaded if hint(buffers[name].numel) * CACHED > points])


def _saved(number: int, own: Group, kernels: list[Group], facts: Facts) -> int:
    """Bytes that are not moved any more, less those that other kernels read then; 0 where there is more to it."""
    name, needs = facts.nests[number].nest.buffer.name, facts.nests[number].reads
    others = [kernel for kernel in kernels if kernel is not own]
    inside = not needs.keys().isdisjoint(own.writes)  # it is made of what its kernel makes
    if not others or inside or any(len(kernel.reads[name]) > 1 for kernel in others):
        return 0
    buffers = facts.program.buffers
    size = {read: hint(buffers[read].nbytes) for read in needs}
    alone = sum(size.values()) if len(own.members) == 1 else 0
    again = sum([size[read] for kernel in others for read in needs if read not in kernel.reads])
    return alone + hint(buffers[name].nbytes) * (1 + len(others)) - again


def _copied(program: Program, chosen: dict[int, list[list[int]]]) -> tuple[Program, dict[str, int]]:
    """The program with a copy of each of these nests for each kernel that reads it; which nest a buffer copies."""
    copies: dict[str, int] = {}
    taken = set(program.buffers)
    renamed: dict[int, dict[str, str]] = {}
    nodes: list[Node] = []
    for number, node in enumerate(program.nodes):
        if number in chosen:
            assert isinstance(node, Nest)
            for readers in chosen[number]:
                name = next(n for i in count() if (n := f"{node.buffer.name}_copy{i}") not in taken)
                taken.add(name)
                copies[name] = number
                nodes.append(replace(node, buffer=replace(node.buffer, name=name)))
                for reader in readers:
                    renamed.setdefault(reader, {})[node.buffer.name] = name
        elif number in renamed:
            assert isinstance(node, Nest)
            nodes.append(_reading(node, renamed[number]))
        else:
            nodes.append(node)
    return replace(program, nodes=tuple(nodes)), copies


def _reading(nest: Nest, names: dict[str, str]) -> Nest:
    """The nest that reads other buffers instead."""

    def on_load(buffer: str, index: Index, dtype: str) -> Expr:
        return load(names.get(buffer, buffer), index, dtype)

    rewrite = Rewriter({}, on_load, {})
    return replace(nest, value=rewrite(nest.value), index=rewrite.index(nest.index))
