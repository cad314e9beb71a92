"""How much memory a forward and a backward schedule take together, and which intermediates stay out of the arena.

The arena is kept between calls, so it is there at every moment of both graphs; what has storage of its own is there
from the step that makes it to the last one that reads it. `settle` takes the largest intermediates out of the arena of
a training step where that lowers the peak: a block that is needed while few gradients are there should not be kept when
all are. So it does of a graph alone where memory is not the host's: new memory costs no pages there, but a call, so a
little more than the lowest peak is taken for fewer of them. What remains is the prediction. Bytes of inputs that live
on anyway (parameters, the caller's tensors) are not counted, those of saved values and gradients are.

Neighbours: `memory.py` plans one graph; the pipeline files the `Footprint` with what was compiled.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import prod

from stator.base.device import Device
from stator.base.dtypes import ITEMSIZE
from stator.base.placement import ALIGNMENT
from stator.loop.kernel import Block, Call, MemoryPlan, Schedule
from stator.loop.memory import lifetimes, offsets_of
from stator.loop.nest import View
from stator.sizes import hint

#: One block may leave the arena for so many bytes of the peak: fresh memory for it costs about 0.2 µs in each step, a
#: hundredth of what writing those bytes once takes.
_PER_BLOCK = 1 << 18
#: How much above the lowest peak is taken where memory is not the host's, as a part of it.
_SLACK = 1 / 50
#: How many channels the convolution library computes at once; fewer are filled up to so many.
_CHANNELS = 16

Home = tuple[int, int, int]  # bytes, first and last step


@dataclass(frozen=True, slots=True)
class Footprint:
    """Bytes: the most at once in either graph with the arena, which is part of both, and what is kept in between."""

    peak: int
    forward: int
    backward: int
    saved: int
    arena: int


@dataclass(frozen=True, slots=True)
class Kept:
    """One input of the backward graph that forward has made: its place there, and its result of the forward graph."""

    input: int
    output: int


def settle(
    forward: Schedule, backward: Schedule | None, kept: Sequence[Kept] = (), given: int = 0, *, device: Device
) -> tuple[Schedule, Schedule | None, Footprint]:
    """The schedules with their final memory plans, and what they take.

    `given` is the number of inputs of backward before the tangents.
    """
    if backward is None and device.host:
        most = _most([*_made(forward), *_workspaces(forward, device)], forward)
        arena = forward.memory.arena_bytes
        return forward, None, Footprint(most + arena, most + arena, 0, 0, arena)
    work = _Work(forward, backward, kept, given, device)
    best = work.border()
    forward = replace(forward, memory=apart(forward.memory, best))
    if backward is not None:
        backward = replace(backward, memory=apart(backward.memory, best))
    return forward, backward, work.footprint(best)


def apart(memory: MemoryPlan, border: int) -> MemoryPlan:
    """The plan with blocks of so many bytes or more taken out of the arena."""
    leaving = {name for block in memory.blocks if _leaves(block, border) for name in block.names}
    if not leaving:
        return memory
    blocks = tuple([block for block in memory.blocks if not _leaves(block, border)])
    offsets, total = offsets_of(blocks, hint)
    return replace(
        memory,
        arena_bytes=total,
        offsets={name: offsets[name] for name in memory.offsets if name not in leaving},
        allocated=(*memory.allocated, *[name for name in memory.offsets if name in leaving]),
        blocks=blocks,
    )


def _leaves(block: Block, border: int) -> bool:
    return hint(block.nbytes) >= border


class _Work:
    """A schedule, or the two of a training step, with everything in the arenas at first."""

    def __init__(
        self, forward: Schedule, backward: Schedule | None, kept: Sequence[Kept], given: int, device: Device
    ) -> None:
        self.schedules: tuple[Schedule, ...] = (forward,)
        self.homes = [[*_made(forward), *_workspaces(forward, device)]]
        self.saved = 0
        self.slack = 0.0 if device.host else _SLACK
        if backward is not None:
            self.schedules = (forward, backward)
            taken = _given(forward, backward, kept, given)
            self.homes.append([*_made(backward), *_workspaces(backward, device), *taken])
            results = _results(forward)
            names = {results[place.output] for place in kept}
            self.saved = sum(hint(forward.buffers[name].nbytes) for name in names if name)

    def border(self) -> int:
        """From how many bytes on blocks leave the arena; of bounds with the same peak the one that moves the fewest."""
        sizes = sorted(self._sizes(), reverse=True)
        never = max(sizes, default=0) + 1
        most = self.footprint(never).peak
        leaving = most // _PER_BLOCK
        borders = [never, *sorted({*sizes[:leaving]} - {*sizes[leaving:]}, reverse=True)]
        least = self.footprint(borders[-1]).peak  # the lowest of all, with nothing in the arena
        least += int(least * self.slack)
        low, high = 0, len(borders) - 1 if least < most else 0
        while low < high:
            middle = (low + high) // 2
            if self.footprint(borders[middle]).peak <= least:
                high = middle
            else:
                low = middle + 1
        return borders[high]

    def _sizes(self) -> Iterable[int]:
        return [hint(block.nbytes) for schedule in self.schedules for block in schedule.memory.blocks]

    def footprint(self, border: int) -> Footprint:
        """What both take."""
        most, arena = [], 0
        for schedule, homes in zip(self.schedules, self.homes, strict=True):
            blocks = schedule.memory.blocks
            own = [(hint(b.nbytes), b.first, b.last) for b in blocks if _leaves(b, border)]
            rest = [b for b in blocks if not _leaves(b, border)]
            arena = max(arena, offsets_of(rest, hint)[1] if own else schedule.memory.arena_bytes)
            most.append(_most([*homes, *own], schedule))
        after = most[1] + arena if len(most) > 1 else 0
        return Footprint(max(most) + arena, most[0] + arena, after, self.saved, arena)


def _most(homes: Iterable[Home], schedule: Schedule) -> int:
    """The most bytes at once."""
    changes = [0] * (len(schedule.steps) + 2)
    for nbytes, first, last in homes:
        nbytes = -(-nbytes // ALIGNMENT) * ALIGNMENT
        changes[first] += nbytes
        changes[last + 1] -= nbytes
    live = most = 0
    for change in changes:
        live += change
        most = max(most, live)
    return most


def _made(schedule: Schedule) -> list[Home]:
    """Results and what operators return, and what takes their memory over."""
    lives = lifetimes(schedule.steps, [out.buffer for out in schedule.outputs if isinstance(out, View)])
    memory = schedule.memory
    own = {name: lives[name] for name in (*memory.returned, *memory.allocated) if name in lives}
    for name, donor in reversed(memory.aliases):  # the last one of a chain first
        if name in own and donor in own:
            own[donor] = own[donor][0], own.pop(name)[1]
    return [(hint(schedule.buffers[name].nbytes), *life) for name, life in own.items()]


def _workspaces(schedule: Schedule, device: Device) -> list[Home]:
    """What PyTorch's convolutions allocate besides their results: operands in the order of their library.

    Its gradients of weights are summed by each thread on its own where the input has fewer channels than a vector,
    with the channels filled up.
    """
    found: list[Home] = []
    for number, step in enumerate(schedule.steps if device.packed_convolutions else ()):
        if not isinstance(step, Call) or not step.extern.target.startswith("aten.convolution"):
            continue
        views = list(step.extern.views())
        nbytes = sum(_bytes(view, schedule) for view in views)
        if "backward" in step.extern.target:
            weight = views[2]
            channels = hint(weight.size[1])
            if channels < _CHANNELS:
                nbytes += device.cores * _bytes(weight, schedule) * _CHANNELS // max(channels, 1)
        found.append((nbytes, number, number))
    return found


def _bytes(view: View, schedule: Schedule) -> int:
    return prod(map(hint, view.size)) * ITEMSIZE[schedule.buffers[view.buffer].dtype]


def _given(forward: Schedule, backward: Schedule, kept: Sequence[Kept], given: int) -> list[Home]:
    """Tangents and what forward saved, each until its last reader; one memory may be saved as several values."""
    lives = lifetimes(backward.steps, [out.buffer for out in backward.outputs if isinstance(out, View)])
    results = _results(forward)
    ends: dict[str, int] = {}
    for place in kept:
        if name := results[place.output]:
            last = lives.get(backward.inputs[place.input].name, (0, 0))[1]
            ends[name] = max(ends.get(name, 0), last)
    tangents = [(hint(t.nbytes), 0, lives.get(t.name, (0, 0))[1]) for t in backward.inputs[given:]]
    saved = [(hint(forward.buffers[name].nbytes), 0, last) for name, last in ends.items()]
    return [*tangents, *saved]


def _results(schedule: Schedule) -> list[str]:
    """The buffer of each result that the schedule makes itself; "" for others."""
    given = {buffer.name for buffer in schedule.inputs}
    return [out.buffer if isinstance(out, View) and out.buffer not in given else "" for out in schedule.outputs]
