"""Whether and how a call is recorded that no recording fits, or whose results of an earlier call somebody still has.

A function has for each stream, and for each geometry of its inputs that guards leave open, a `Variant`: its first call
runs as it is, the next one is recorded. An input is read where it is while it stays there, and copied once it moves; of
inputs in results of other recordings each place is recorded. Where results of a call are still there, the next one is
recorded with other memory for them, or from some calls on gives copies. All of it is bounded: what is over a bound runs
as it is, and that is told once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
    it is no plan, so any input may be read anywhere.
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
    anew: int = 0
    failures: int = 0
    refused: str = ""


class Policy:
    """Decides for one graph; `recordings` is what the C core looks through.

    `retry(error)`: told what recording raised, it may give what runs the graph from then on.
    """

    __slots__ = (
        "_by_key",
        "call",
        "facts",
        "mixed",
        "number",
        "options",
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
    ) -> None:
        self.call, self.facts, self.recorder, self.number, self.options = call, facts, recorder, number, options
        self.retry = retry
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
        """A recording copies an input from memory of one kind only."""
        self.mixed = True
        if recording in variant.recordings:
            self._drop(variant, recording)
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

    def _recording(self, variant: Variant, inputs: Sequence[Any]) -> Recording | None:
        """A recording that fits now, or None where the call runs as it is."""
        self._forget_moved(variant)
        busy = [r for r in variant.recordings if r.fits(list(inputs), variant.lane.stream)]
        if any(recording.idle for recording in busy):  # made meanwhile by another thread
            return next(recording for recording in busy if recording.idle)
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
        """Recordings of which somebody has given the memory of a result another size are never idle again."""
        moved = [r for r in variant.recordings if not all(place.intact for place in r.places)]
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

    def _record(self, variant: Variant, inputs: Sequence[Any]) -> Recording:
        facts = self.facts
        request = Request(
            self.call,
            sorted(variant.copied),
            self.facts.written,
            facts.unread,
            [i for i in range(len(inputs)) if self._is_open(i)],
            self._slots(variant, inputs),
            variant.fresh,
            facts.shared,
            variant.random,
        )
        with log.span("record", graph=facts.name):
            made = capture(request, inputs, variant.lane)
        del request
        for first, place in made.places.items():
            known = variant.places.setdefault(first, [])
            if first not in variant.fresh and not any(place is other for other in known):
                known.append(place)
        variant.recordings.append(made.recording)
        self.recordings.append(made.recording)
        told = f"is recorded, with {len(variant.copied)} inputs copied and {len(variant.fresh)} results given as copies"
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
