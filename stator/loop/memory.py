"""Decide: where intermediate buffers live. One arena; buffers whose lives do not meet may share bytes.

Lives are counted in steps. Large buffers are placed first, each at the lowest offset that is free during its life. A
kernel's result takes the place of an operand that dies in it where the kernel reads and writes it at the same index:
in the arena, or in memory that an operator has made and nobody else has, as a convolution's result.
Inputs and outputs are never in the arena. Neighbour: `verify.verify_memory` checks the plan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from stator.base.placement import place
from stator.loop.kernel import Block, Kernel, Launch, MemoryPlan, Step
from stator.loop.nest import Buffer, Output, View
from stator.sizes import Extent, hint

Lives = dict[str, tuple[int, int]]


def plan(
    steps: Sequence[Step], buffers: Mapping[str, Buffer], inputs: Iterable[str], outputs: Iterable[Output]
) -> MemoryPlan:
    """A place for every buffer that some step writes."""
    kept = list(dict.fromkeys(output.buffer for output in outputs if isinstance(output, View)))
    lives = lifetimes(steps, kept)
    returned = [
        b.name for s in steps if not isinstance(s, Launch) and not s.extern.out_target for b in s.extern.outputs
    ]
    given = set(inputs)
    outside = {*given, *kept, *returned}
    placed = {name: life for name, life in lives.items() if name not in outside}
    lent = {b.name for s in steps if not isinstance(s, Launch) and s.extern.fresh for b in s.extern.outputs}
    lent = {name for name in lent.intersection(returned, lives) if name not in kept and not buffers[name].opaque}
    aliases = _in_place(steps, buffers, placed, {name: lives[name] for name in lives if name in lent})
    roots = _roots(placed, aliases)
    over = [name for name in placed if roots[name] in lent]
    placed = {name: life for name, life in placed.items() if roots[name] not in lent}
    blocks = _blocks(placed, buffers, roots)
    offsets, size = offsets_of(blocks, hint)
    offsets = {name: offsets[name] for name in placed}
    elsewhere = given.union(returned)
    own = tuple([name for name in kept if name in lives and name not in elsewhere])
    return MemoryPlan(size, offsets, (*own, *over), tuple(returned), tuple(aliases.items()), blocks)


def lifetimes(steps: Iterable[Step], kept: Iterable[str]) -> Lives:
    """First and last step that touch each buffer; what is kept lives on past the end."""
    lives: Lives = {}
    end = 0
    for end, step in enumerate(steps, 1):
        for name in touched(step):
            lives[name] = lives.get(name, (end - 1, 0))[0], end - 1
    for name in kept:
        if name in lives:
            lives[name] = lives[name][0], end
    return lives


def touched(step: Step) -> list[str]:
    """The buffers that a step reads or writes."""
    if isinstance(step, Launch):
        return [pointer.buffer for pointer in step.args]
    return [view.buffer for view in step.extern.views()] + [buffer.name for buffer in step.extern.outputs]


def extents(buffer: Buffer, offset: int) -> tuple[int, int]:
    """The bytes it takes, first and past the last."""
    return offset, offset + hint(buffer.nbytes)


# -- in place --------------------------------------------------------------------------------------


def _in_place(steps: Sequence[Step], buffers: Mapping[str, Buffer], lives: Lives, lent: Lives) -> dict[str, str]:
    """Result -> the operand whose bytes it may take over, `lent` ones included."""
    donors = {**lives, **lent}
    aliases: dict[str, str] = {}
    taken: set[str] = set()
    for number, step in enumerate(steps):
        if not isinstance(step, Launch):
            continue
        params, names = step.kernel.params, touched(step)
        starts = {param.name: pointer.offset for param, pointer in zip(params, step.args, strict=True)}
        dying = {
            param.name: name
            for param, name in zip(params, names, strict=True)
            if param.role == "in" and name in donors and donors[name][1] == number and name not in taken
        }
        for param, name in zip(params, names, strict=True):
            if param.role != "out" or name not in lives or lives[name][0] != number or not dying:
                continue
            for source in list(dying):
                donor = buffers[dying[source]]
                same = donor.dtype == param.dtype and donor.span == buffers[name].span
                same = same and starts[source] == starts[param.name] and names.count(donor.name) == 1
                if same and overwrites(step.kernel, source, param.name):
                    aliases[name] = donor.name
                    taken.add(donor.name)
                    del dying[source]
                    break
    return aliases


def overwrites(kernel: Kernel, source: str, result: str) -> bool:
    """Whether `result` may take the memory of `source`: each element is read last where it is written."""
    stores = [store for store in kernel.stores if store.buffer == result]
    if len(stores) != 1 or stores[0].mode != "store":
        return False
    store = stores[0]
    if kernel.reduce_axes and (store.space != "inner" or store.level != kernel.levels):
        return False
    return all(node.attr[1] is store.index for node in kernel.nodes if node.op == "load" and node.attr[0] == source)


# -- blocks ----------------------------------------------------------------------------------------


def _roots(lives: Lives, aliases: Mapping[str, str]) -> dict[str, str]:
    """For each buffer the first of those that take its bytes one after another."""
    roots: dict[str, str] = {}
    for name in lives:
        donor = aliases.get(name, name)
        roots[name] = roots.get(donor, donor)
    return roots


def _blocks(lives: Lives, buffers: Mapping[str, Buffer], roots: Mapping[str, str]) -> tuple[Block, ...]:
    """Buffers joined in place are one block with their joint life."""
    members: dict[str, list[str]] = {}
    for name in lives:
        members.setdefault(roots[name], []).append(name)
    return tuple([
        Block(tuple(names), buffers[first].nbytes, min(lives[n][0] for n in names), max(lives[n][1] for n in names))
        for first, names in members.items()
    ])  # fmt: skip


def offsets_of(blocks: Iterable[Block], value: Callable[[Extent], int]) -> tuple[dict[str, int], int]:
    """Offsets of all buffers, and the size of the arena, where `value` says what symbolic sizes are."""
    blocks = list(blocks)
    starts, total = place([(value(block.nbytes), block.first, block.last) for block in blocks])
    return {name: start for block, start in zip(blocks, starts, strict=True) for name in block.names}, total
