"""Whether and how a call is recorded that no recording fits, or whose results of an earlier call somebody still has.

A function has for each stream, and for each geometry of its inputs that guards leave open, a `Variant`: its first call
runs as it is, the next one is recorded. An input is read where it is while it stays there, and copied once it moves; of
inputs in results of other recordings each place is recorded. Where results of a call are still there, the next one is
recorded with other memory for them, or from some calls on gives copies. All of it is bounded: what is over a bound runs
as it is, and that is told once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from stator._native import Place, Recording, storage_of
from stator.base import log
from stator.base.announce import announce
from stator.base.errors import RecordingWarning, WithoutEffect
from stator.base.options import Options
from stator.recording.capture import NotRecorded, Request, Slot, capture, memory_of
from stator.recording.lanes import Lane, lane_of
from stator.recording.overlays import CLASHES, Overlays, held_by_others, laid_bytes
from stator.targets import Recorder

#: How often an input may be found elsewhere and be recorded there; then it is copied at each call.
MOVES, MOVES_OF_PARAMETERS, MOVES_OF_RESULTS = 0, 4, 8
#: Recordings of one variant; over that, those inputs that move are copied and it is recorded anew, so often.
MOST, ANEW = 12, 2
#: How often recording may fail before it is given up: what another thread does with the device may end it, and some
#: things are only made at a thread's first call.
TRIES = 3
#: How many calls may have results that are still there and memory of their own, before the next ones give copies: of
#: results of few bytes, of such where each recording has all of its results to itself, and of larger ones.
KEPT, KEPT_APART, KEPT_LARGE, FEW_BYTES = 2, 1, 4, 1 << 20
#: Bytes that a device copies in about the time that the host takes for a launch: more than that for each step is more
#: than recording saves.
BYTES_A_STEP = 4 << 20


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of a graph: its name, how many steps it has, which inputs guards leave open in geometry, and so on
    as in `Request`. `pinned`: inputs that are never copied. `slots(inputs)` are the allocations with a place. `opaque`:
    it is no plan, so any input may be read anywhere. Of a backward graph, `last` has the activations among its inputs
    whose memory results may lie in, with the last step that touches each; `first`: of slots the first one.
    """

    name: str
    steps: int
    written: frozenset[int] = frozenset()
    unread: frozenset[int] = frozenset()
    geometry: frozenset[int] | None = frozenset()  # None: of all
    pinned: frozenset[int] = frozenset()
    slots: Callable[[Sequence[Any]], list[Slot]] | None = None
    shared: bool = False
    random: bool = False
    opaque: bool = False
    last: Mapping[int, int] | None = None  # of no backward graph
    first: tuple[int | None, ...] = ()


@dataclass(slots=True, eq=False)
class Variant:
    """Calls of one geometry on one stream."""

    lane: Lane
    #: Where each input was at the last call that was decided on; None for numbers.
    seen: list[int | None]
    moves: list[int]
    warm: bool = False
    random: bool = False
    copied: set[int] = field(default_factory=set)
    fresh: set[int] = field(default_factory=set)
    recordings: list[Recording] = field(default_factory=list)
    #: The places of results, by the number of the first one in each.
    places: dict[int, list[Place]] = field(default_factory=dict)
    #: Activations that others have had when a recording wanted to write them: none does any more; and how often.
    held: set[int] = field(default_factory=set)
    clashes: int = 0
    anew: int = 0
    failures: int = 0
    refused: str = ""


class Policy:
    """Decides for one graph; `recordings` is what the C core looks through.

    `retry(error)`: told what recording raised, it may give what runs the graph from then on. `overlays`: the pair of
    graphs that this one belongs to.
    """

    __slots__ = (
        "__weakref__",
        "_by_key",
        "call",
        "facts",
        "mixed",
        "number",
        "options",
        "overlays",
        "recorder",
        "recordings",
        "retry",
        "settled",
        "told",
    )

    def __init__(
        self,
        call: Callable[[list[Any]], tuple[Any, ...]],
        facts: Facts,
        recorder: Recorder,
        number: int,
        options: Options,
        retry: Callable[[Exception], Callable[[list[Any]], tuple[Any, ...]] | None] | None = None,
        overlays: Overlays | None = None,
    ) -> None:
        self.call, self.facts, self.recorder, self.number, self.options = call, facts, recorder, number, options
        self.retry, self.overlays = retry, overlays
        if overlays is not None:
            overlays.join(self)
        #: Whether inputs have been in memory of several kinds.
        self.mixed = False
        #: Whether nothing is decided any more: no call is recorded, or `call` is parts, which are so by themselves.
        self.settled = False
        self.recordings: list[Recording] = []
        self.told: set[str] = set()
        self._by_key: dict[tuple[Any, ...], Variant] = {}

    def decide(self, inputs: list[Any], stream: int) -> tuple[Any, ...]:
        """What a call gives that no recording fits, or none that is idle."""
        variant = self._variant(inputs, stream) if not self.settled else None
        if variant is None or variant.refused:
            return self.call(inputs)
        if not variant.warm:
            return self._warm_up(variant, inputs)
        if not variant.lane.lock.acquire(blocking=False):  # another thread records, or this one, further out
            return self.call(inputs)
        try:
            recording = self._recording(variant, inputs)
        finally:
            variant.lane.lock.release()
        results = recording.replay(inputs) if recording is not None else None
        if recording is not None and recording.refused:
            self._give_up(variant, recording)
        return self.call(inputs) if results is None else results

    def _give_up(self, variant: Variant, recording: Recording) -> None:
        """A recording copies an input from memory of one kind only. Zeros are of the other kind from the first time on:
        what was recorded before goes at once, as it would be refused one by one.
        """
        gone = [recording] if self.mixed else list(variant.recordings)
        self.mixed = True
        for item in gone:
            if item in variant.recordings:
                self._drop(variant, item)
        variant.failures += 1
        if variant.failures >= TRIES:
            self._refuse(variant, "an input lies in mapped memory at some calls, and elsewhere at others")

    # -- variants

    def _variant(self, inputs: Sequence[Any], stream: int) -> Variant | None:
        key = self._key(inputs, stream)
        found = self._by_key.get(key)
        if found is None:
            if len(self._by_key) >= self.options.cudagraph_sizes:
                self._tell(f"it has been called with {len(self._by_key)} geometries (see cudagraph_sizes)")
                return None
            lane = lane_of(self.recorder, self.number, stream)
            found = self._by_key[key] = Variant(lane, [None] * len(inputs), [0] * len(inputs), random=self.facts.random)
            if why := self._objection(inputs):
                self._refuse(found, why)
        return found

    def _key(self, inputs: Sequence[Any], stream: int) -> tuple[Any, ...]:
        parts: list[Any] = [stream]
        for number, value in enumerate(inputs):
            if not isinstance(value, torch.Tensor):
                parts.append(value)
            elif self._is_open(number):
                parts.append((value.shape, value.stride()))
        return tuple(parts)

    def _is_open(self, number: int) -> bool:
        return self.facts.geometry is None or number in self.facts.geometry

    def _objection(self, inputs: Sequence[Any]) -> str:
        """Why calls with such inputs are not recorded."""
        here = {torch.device(self.recorder.KIND), torch.device(self.recorder.KIND, self.number)}
        for number, value in enumerate(inputs):
            if isinstance(value, torch.Tensor):
                if self.facts.opaque and value.device not in here:
                    return f"input {number} is on {value.device}"
                if value.layout is not torch.strided:
                    return f"input {number} is no strided tensor"
            elif not isinstance(value, int) or not -(1 << 63) <= value < 1 << 63:
                return f"input {number} is {value!r}"
        return ""

    def _warm_up(self, variant: Variant, inputs: list[Any]) -> tuple[Any, ...]:
        """The first call as it is: what first calls make (kernels, handles of libraries) is there for the next."""
        self._look(variant, inputs)
        variant.warm = True
        if not self.facts.opaque:
            return self.call(inputs)
        drawn = self.recorder.draws(self.number)
        results = self.call(inputs)
        variant.random = drawn != self.recorder.draws(self.number)
        return results

    # -- where inputs are

    def _look(self, variant: Variant, inputs: Sequence[Any]) -> None:
        """Which inputs have moved since the last look, and so are copied from now on."""
        for number, value in enumerate(inputs):
            if not isinstance(value, torch.Tensor) or number in self.facts.unread:
                continue
            place = value.data_ptr()
            before, variant.seen[number] = variant.seen[number], place
            if before is None or before == place or number in variant.copied or number in self.facts.pinned:
                continue
            variant.moves[number] += 1
            if variant.moves[number] > self._allowed(variant, value):
                variant.copied.add(number)
                for recording in list(variant.recordings):  # the next one fits wherever the input is
                    self._drop(variant, recording)

    def _allowed(self, variant: Variant, value: Any) -> int:
        if storage_of(value) in variant.lane.storages:
            return MOVES_OF_RESULTS
        return MOVES_OF_PARAMETERS if isinstance(value, torch.nn.Parameter) else MOVES

    # -- recording

    def _recording(self, variant: Variant, inputs: list[Any]) -> Recording | None:
        """A recording that fits now, or None where the call runs as it is."""
        self._forget_moved(variant)
        busy = [r for r in variant.recordings if r.fits(inputs, variant.lane.stream)]
        ready = next((r for r in busy if r.idle and r.alone(inputs)), None)
        if ready is not None:  # made meanwhile by another thread
            return ready
        if self.overlays is not None:
            self._clear_up(variant, busy, inputs)
            busy = [recording for recording in busy if recording in variant.recordings]
        if busy:
            self._make_room(variant, busy)
        else:
            self._look(variant, inputs)
        if len(variant.recordings) >= MOST and not self._start_anew(variant, inputs):
            return None
        why = self._too_much(variant, inputs)
        try:
            if not why:
                return self._record(variant, inputs)
        except NotRecorded as refusal:
            why = str(refusal)
        except Exception as error:
            why = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
            variant.failures += 1
            if variant.failures < TRIES:
                log.record(log.RECORDING, graph=self.facts.name, recorded=False, told=f"is tried again: {why}")
                return None
            other = self.retry(error) if self.retry is not None else None
            if other is not None:
                self._go_apart(other)
                return None
        self._refuse(variant, why)
        return None

    def _go_apart(self, call: Callable[[list[Any]], tuple[Any, ...]]) -> None:
        self.call, self.retry, self.settled = call, None, True
        self.recordings.clear()
        self._by_key.clear()

    def _forget_moved(self, variant: Variant) -> None:
        """Recordings of which somebody has given the memory of a result another size are never idle again, nor are
        those that write memory of places that are gone.
        """
        moved = [r for r in variant.recordings if not all(map(_is_where_it_was, r.places))]
        for recording in moved:
            self._drop(variant, recording)
        for first, places in variant.places.items():
            variant.places[first] = [place for place in places if place.intact]

    def _forget_unused(self, variant: Variant, again: set[int]) -> None:
        """Let go of places that no recording has any more, but for those `again` that the next one may have: what
        operators make lies in memory of one recording.
        """
        used = {id(place) for recording in variant.recordings for place in recording.places}
        for first, places in variant.places.items():
            if first not in again:
                variant.places[first] = [place for place in places if id(place) in used]

    def _clear_up(self, variant: Variant, busy: Sequence[Recording], inputs: list[Any]) -> None:
        """Recordings that gradients over activations keep from being replayed go, and are not made again as they were.

        Either somebody still has such a gradient when forward is called: then the pair gives up. Or somebody has an
        activation that backward would write: then that one is left alone from now on.
        """
        assert self.overlays is not None
        if any(place.covered for recording in busy for place in recording.places):
            self._tell_apart(variant, "gradients are still there when forward is called again")
        before = len(variant.recordings)
        for recording in [recording for recording in busy if recording in variant.recordings]:
            if held := held_by_others(recording, inputs):
                self._drop(variant, recording)
                variant.held |= held
        variant.clashes += len(variant.recordings) < before
        if variant.clashes >= CLASHES:
            variant.clashes = 0
            self._tell_apart(variant, "others have activations when backward is called")

    def _tell_apart(self, variant: Variant, why: str) -> None:
        assert self.overlays is not None
        self.overlays.give_up(variant.lane)
        told = f"has no gradients over activations any more: {why}"
        log.record(log.RECORDING, graph=self.facts.name, recorded=True, told=told)

    def forget_lost(self, lane: Lane) -> None:
        """Let go of recordings of a lane that write memory of places that are gone."""
        for variant in list(self._by_key.values()):
            if variant.lane is lane:
                self._forget_moved(variant)

    def part_from(self, lane: Lane) -> list[Recording]:
        """Let go of the recordings of a lane that give out what lies over something, or under it, and give them.

        Of places with something over them no recording has any more then.
        """
        found = []
        for variant in [variant for variant in list(self._by_key.values()) if variant.lane is lane]:
            for recording in list(variant.recordings):
                if any(place.covered or place.lies_over for place in recording.places):
                    found.append(recording)
                    self._drop(variant, recording)
            for first, places in variant.places.items():
                variant.places[first] = [place for place in places if not place.covered]
        return found

    def _drop(self, variant: Variant, recording: Recording) -> None:
        variant.recordings.remove(recording)
        self.recordings.remove(recording)

    def _make_room(self, variant: Variant, busy: Sequence[Recording]) -> None:
        """Results that are still there after several calls are given as copies from now on."""
        alive = {
            first: max(place.nbytes for place in places)
            for first, places in variant.places.items()
            if places and not any(place.idle for place in places)
        }
        few = KEPT if self.facts.shared else KEPT_APART
        if len(busy) < (few if sum(alive.values()) <= FEW_BYTES else KEPT_LARGE):
            return
        variant.fresh |= set(alive)
        if not self.facts.shared:  # all other results would have memory twice
            for recording in busy:
                self._drop(variant, recording)

    def _start_anew(self, variant: Variant, inputs: Sequence[Any]) -> bool:
        """Whether the variant may be recorded from the start, with all inputs copied that have ever moved."""
        if variant.anew == ANEW:
            self._refuse(variant, "its inputs lie elsewhere, or its results are kept, in more ways than are recorded")
            return False
        variant.anew += 1
        variant.copied |= {i for i, moves in enumerate(variant.moves) if moves and i not in self.facts.pinned}
        for recording in list(variant.recordings):
            self._drop(variant, recording)
        variant.places.clear()
        return True

    def _too_much(self, variant: Variant, inputs: Sequence[Any]) -> str:
        nbytes = 0
        for number in variant.copied:
            begin, end = memory_of(inputs[number])
            nbytes += (end - begin) * (2 if number in self.facts.written else 1)
        if nbytes > BYTES_A_STEP * max(self.facts.steps, 1):
            return f"{nbytes >> 20} MiB of inputs lie elsewhere at each call: copying takes longer than launching"
        return ""

    def _record(self, variant: Variant, inputs: list[Any]) -> Recording:
        facts = self.facts
        request = Request(
            self.call,
            sorted(variant.copied),
            self.facts.written,
            facts.unread,
            [i for i in range(len(inputs)) if self._is_open(i)],
            self._laid(variant, inputs),
            variant.fresh,
            facts.shared,
            variant.random,
        )
        with log.span("record", graph=facts.name):
            made = capture(request, inputs, variant.lane)
        del request
        own = {first: p for first, p in made.places.items() if first not in variant.fresh and not p.lies_over}
        for first, place in own.items():
            known = variant.places.setdefault(first, [])
            if not any(place is other for other in known):
                known.append(place)
        if self.overlays is not None and facts.last is None:
            self.overlays.offer(variant.lane, own.values())
        variant.recordings.append(made.recording)
        self.recordings.append(made.recording)
        told = f"is recorded, with {len(variant.copied)} inputs copied and {len(variant.fresh)} results given as copies"
        if laid := laid_bytes(made.recording.places):
            told += f", {laid >> 20} MiB of them over activations"
        log.record(log.RECORDING, graph=facts.name, recorded=True, told=told)
        log.count(recordings=1)
        return made.recording

    def _slots(self, variant: Variant, inputs: Sequence[Any]) -> list[Slot] | None:
        """Allocations with a place: one that is idle, or none yet."""
        slots = self.facts.slots(inputs) if self.facts.slots is not None else []
        self._forget_unused(variant, {slot.first for slot in slots})
        if self.facts.slots is None:
            return None
        by_first = {first: next((p for p in places if p.idle), None) for first, places in variant.places.items()}
        free = [by_first.get(slot.first) if slot.first not in variant.fresh else None for slot in slots]
        return [slot.at(place) for slot, place in zip(slots, free, strict=True)]

    def _laid(self, variant: Variant, inputs: list[Any]) -> list[Slot] | None:
        """The same with large ones over activations, where that may be."""
        slots = self._slots(variant, inputs)
        if self.overlays is None or slots is None or self.facts.last is None:
            if self.overlays is not None:  # what lay over places that are gone keeps their memory
                self.overlays.forget_lost(variant.lane)
            return slots
        free = {i: last for i, last in self.facts.last.items() if i not in variant.copied and i not in variant.held}
        stays = [
            first if slot.first not in variant.fresh else None
            for slot, first in zip(slots, self.facts.first, strict=True)
        ]
        return self.overlays.lay(variant.lane, inputs, free, slots, stays)

    # -- what is told

    def _refuse(self, variant: Variant, why: str) -> None:
        variant.refused = why
        for recording in list(variant.recordings):
            self._drop(variant, recording)
        self.settled = not self.recordings and self.facts.geometry == frozenset()
        self._tell(why)

    def _tell(self, why: str) -> None:
        if why in self.told:
            return
        self.told.add(why)
        told = f"calls run as they are and are not recorded: {why}"
        log.record(log.RECORDING, graph=self.facts.name, recorded=False, told=told)
        text = f"{self.facts.name}: {told}"
        if self.options.strict:
            raise WithoutEffect(text)
        announce(text, RecordingWarning)


def _is_where_it_was(place: Place) -> bool:
    """Whether the memory of a place is its own, or that of a place that is still there."""
    return place.intact and (not place.lies_over or (place.base is not None and place.base.intact))
