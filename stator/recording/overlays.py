"""Gradients in the memory of activations: what backward has read for the last time, its results may take the place of.

A forward graph and its backward graph are a pair. Where a result of the recorded forward is an activation that nobody
has but the backward call, the recorded backward writes large gradients there, each behind the last step that reads what
it lies over. Such a gradient is a tensor with a storage of its own, in memory of another place (`Place.lie_over`).

Invariant: the memory is written by forward while nobody has the activation nor a gradient over it (`Place.idle`), and
by backward while nobody but the call's list of inputs has the activation (`Place.only_in`); the C core looks at both
before each replay. Where forward finds a gradient over its results (they are accumulated, or cleared late), a pair
gives up: its gradients have memory of their own from then on.
Neighbours: `plan/uses.py` (which step is the last), `policy.py` (asks and gives up), `csrc/place.c` (who has memory).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from weakref import WeakKeyDictionary, WeakSet, WeakValueDictionary

import torch

from stator._native import Place, Recording, storage_of
from stator.recording.capture import Slot
from stator.recording.lanes import Lane
from stator.recording.users import Under, heed_under
from stator.sizes.strides import span

#: Smaller gradients have memory of their own: each that lies over another place is looked at before each replay.
LEAST = 1 << 20
#: Where memory begins that kernels and libraries take for aligned, as PyTorch's allocator gives it.
ALIGNMENT = 512
#: How often a backward graph may find that others have activations that its recordings write; then the pair gives up.
CLASHES = 2


@dataclass(slots=True)
class Room:
    """Memory that may be written behind a step; `used` bytes of it are taken."""

    last: int
    nbytes: int
    used: int = 0


def pack(wanted: Iterable[tuple[int, int]], rooms: Sequence[Room]) -> list[tuple[int, int] | None]:
    """For each (bytes, first step) a room and where it begins there, or None. Each room of `rooms` is then fuller.

    Large ones choose first: of the rooms that are free by then the fullest one, and among those the one that is free
    last, which serves the fewest others.
    """
    items = list(wanted)
    found: list[tuple[int, int] | None] = [None] * len(items)
    for k in sorted(range(len(items)), key=lambda k: (-items[k][0], items[k][1])):
        nbytes, first = items[k]
        fitting = [i for i, room in enumerate(rooms) if room.last < first and room.nbytes - room.used >= nbytes]
        if fitting:
            at = min(fitting, key=lambda i: (rooms[i].nbytes - rooms[i].used, -rooms[i].last))
            found[k] = at, rooms[at].used
            rooms[at].used += -(-nbytes // ALIGNMENT) * ALIGNMENT
    return found


class Member(Protocol):
    """Who decides for one of the two graphs of a pair, or for a part of it (`policy.py`)."""

    def part_from(self, lane: Lane) -> list[Any]:
        """Let go of the recordings of a lane that give out what lies over something, or under it, and give them."""

    def forget_lost(self, lane: Lane) -> None:
        """Let go of recordings of a lane that write memory of places that are gone."""


class Overlays:
    """One pair: the places of its forward graph, and what its backward graph may write of them."""

    __slots__ = ("_given_up", "_members", "_places")

    def __init__(self) -> None:
        #: By lane, the places that hold what forward gives, by storage.
        self._places: WeakKeyDictionary[Lane, WeakValueDictionary[int, Place]] = WeakKeyDictionary()
        self._members: WeakSet[Member] = WeakSet()
        self._given_up: WeakSet[Lane] = WeakSet()

    def join(self, member: Member) -> None:
        """Is told when the pair gives up."""
        self._members.add(member)

    def offer(self, lane: Lane, places: Iterable[Place]) -> None:
        """A recording of the forward graph gives out these."""
        self._places.setdefault(lane, WeakValueDictionary()).update({place.storage: place for place in places})

    def give_up(self, lane: Lane) -> None:
        """On this lane results of forward and backward have memory of their own from now on.

        Places that have gradients over them go, so that what lies there is all that keeps their memory.
        """
        self._given_up.add(lane)
        left = [member.part_from(lane) for member in list(self._members)]
        del left  # recordings last: who lies over a place is known as long as these are there

    def forget_lost(self, lane: Lane) -> None:
        """Have recordings of the lane go that write memory of places that are gone."""
        for member in list(self._members):
            member.forget_lost(lane)

    def lay(
        self,
        lane: Lane,
        inputs: list[Any],
        free: Mapping[int, int],
        slots: Sequence[Slot],
        firsts: Sequence[int | None],
    ) -> list[Slot]:
        """The slots of a backward call, of which large ones lie over activations where that may be.

        `free`: of inputs the last step that touches them; `firsts`: of slots the first one, None for what stays.
        """
        if lane in self._given_up:
            return list(slots)
        bases, rooms = self._rooms(lane, inputs, free)
        chosen = [k for k, slot in enumerate(slots) if firsts[k] is not None and _nbytes(slot) >= LEAST]
        found = pack([(_nbytes(slots[k]), int(firsts[k] or 0)) for k in chosen], rooms)
        laid = list(slots)
        for k, where in zip(chosen, found, strict=True):
            if where is not None:
                laid[k] = slots[k].at(_over(lane, *bases[where[0]], where[1], slots[k]))
        return laid

    def _rooms(
        self, lane: Lane, inputs: list[Any], free: Mapping[int, int]
    ) -> tuple[list[tuple[Place, torch.dtype]], list[Room]]:
        """The places of activations that nobody else has, each with a dtype that it is given out in."""
        places: Mapping[int, Place] = self._places.get(lane, {})
        by_storage: dict[int, list[int]] = {}
        for number in range(len(inputs)):  # by number: a name for one of them would be somebody else who has it
            if isinstance(inputs[number], torch.Tensor) and storage_of(inputs[number]) in places:
                by_storage.setdefault(storage_of(inputs[number]), []).append(number)
        bases, rooms = [], []
        for storage, numbers in by_storage.items():
            place = places[storage]
            if free.keys() >= set(numbers) and place.only_in(inputs, tuple(numbers)):
                bases.append((place, inputs[numbers[0]].dtype))
                rooms.append(Room(max(free[number] for number in numbers), place.nbytes))
        return bases, rooms


def laid_bytes(places: Iterable[Place]) -> int:
    """How much of this memory lies over other places."""
    return sum(place.nbytes for place in places if place.lies_over)


def held_by_others(recording: Recording, inputs: list[Any]) -> set[int]:
    """The inputs in whose memory results lie, where not only this list has them."""
    found: set[int] = set()
    for number, among in recording.overlays:
        base = recording.places[number].base
        if base is None or not base.only_in(inputs, among):
            found.update(among)
    return found


def _nbytes(slot: Slot) -> int:
    return span(slot.size, slot.stride) * slot.dtype.itemsize


def _over(lane: Lane, base: Place, dtype: torch.dtype, start: int, slot: Slot) -> Place:
    """A place for a slot in the memory of a base, which is given out in this dtype."""
    nbytes = _nbytes(slot)
    with torch.inference_mode(False), torch.no_grad():
        under = Under(base.tensor(dtype, (-(-nbytes // dtype.itemsize),), (1,), start // dtype.itemsize))
        memory = lane.recorder.memory(lane.number, base.address + start, nbytes, under)
        heed_under(storage_of(memory), under)
        del under
        place = Place(memory.view(slot.dtype))
        del memory
    place.lie_over(base)
    return place
