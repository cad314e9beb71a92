"""One recording: the call is made once more while the device keeps what is queued, and what came of it is described.

What the call is given decides what the recording depends on: an input itself (read where it is), or a tensor of ours in
its place, into which each call copies. Results are looked up by the storage that they lie in.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch.autograd.grad_mode import _unsafe_preserve_version_counter

from stator._native import Place, Recording, storage_of
from stator.recording.lanes import Lane, blocks_of, take_over
from stator.recording.users import heed_users
from stator.sizes.strides import span


class NotRecorded(Exception):
    """Why a call cannot be recorded."""


@dataclass(frozen=True, slots=True)
class Slot:
    """An allocation that results lie in: the number of the first of them, its geometry, and a place, if it has one."""

    first: int
    dtype: torch.dtype
    size: tuple[int, ...]
    stride: tuple[int, ...]
    place: Place | None = None

    def at(self, place: Place | None) -> Slot:
        """The same in a place."""
        return replace(self, place=place)


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked of one recording.

    `copied` are inputs that are copied; `written` those that the call writes, `unread` those that nothing reads;
    `geometry`: inputs whose sizes and strides no guard knows. `slots` are the allocations that have a place; None where
    the call has no such thing. `fresh` are results, by number, of whose memory a call gives a copy. `shared`: what the
    call allocates beside is gone when it ends, so that recordings may have it in common. `random`: it draws numbers
    from a generator.
    """

    call: Callable[..., Any]
    copied: Collection[int] = ()
    written: Collection[int] = ()
    unread: Collection[int] = ()
    geometry: Collection[int] = ()
    slots: Sequence[Slot] | None = None
    fresh: Collection[int] = ()
    shared: bool = False
    random: bool = False


@dataclass(slots=True)
class Made:
    """A recording, and the memory of its results by the number of the first result in it."""

    recording: Recording
    places: dict[int, Place] = field(default_factory=dict)


def capture(request: Request, inputs: Sequence[Any], lane: Lane) -> Made:
    """Record a call. `NotRecorded` where its inputs or results are none that a recording can have; else what the call
    raises, or the device.
    """
    check_sharing(request, inputs)
    take_over(lane)
    # What a recording keeps would lie in pieces of memory that earlier calls have left, which then are kept whole.
    lane.recorder.release(lane.number)
    given = [_static(value) if i in request.copied else value for i, value in enumerate(inputs)]
    memory = _memory(request, lane)
    copied = [i for i in request.copied if flat(inputs[i]).numel()]
    back = [i for i in copied if i in request.written]
    described = _Described(request, given)

    def after(results: Sequence[Any]) -> list[tuple[torch.Tensor, torch.Tensor]]:
        described.take(results)
        return [*[(flat(inputs[i]), flat(given[i])) for i in back], *described.copy(results)]

    before = [(flat(given[i]), flat(inputs[i])) for i in copied]
    call = _into(request, memory)
    counted = tuple([inputs[i] for i in back if not inputs[i].is_inference()])
    with _unsafe_preserve_version_counter(counted):  # nothing is written yet
        graph, results, steps = lane.recorder.capture(
            lane.side, lane.pool, not request.shared, before, call, list(given), after, request.random
        )
    held = (lane, blocks_of(lane), [given[i] for i in request.copied])
    places = described.places(results, memory)
    forward, backward = dict(zip(copied, steps, strict=False)), dict(zip(back, steps[len(copied) :], strict=False))
    copies = described.copies(steps[len(copied) + len(back) :])
    del results, memory, before, after, call
    nodes = [(forward.get(i, 0), backward.get(i, 0)) for i in range(len(inputs))]
    recording = Recording(
        graph,
        lane.recorder.executable(graph),
        lane.recorder.replay(graph),
        lane.recorder.wait_for,
        lane.recorder.driver(),
        lane.recorder.KIND,
        lane.number,
        lane.context,
        lane.stream,
        tuple([_input(request, i, value, given[i], nodes[i]) for i, value in enumerate(inputs)]),
        tuple(places),
        copies,
        tuple(described.results),
        _overlays(places, inputs),
        held,
    )
    lane.storages.update(described.storages)
    heed_users(lane.recorder.KIND, places)
    return Made(recording, dict(zip(described.firsts, places, strict=True)))


def flat(tensor: torch.Tensor) -> torch.Tensor:
    """The memory between the first element of a tensor and its last, in one row."""
    return tensor.as_strided((span(tuple(tensor.shape), tensor.stride()),), (1,))


def _memory(request: Request, lane: Lane) -> list[torch.Tensor]:
    """A tensor for each allocation that has a place, in it or in memory that is new."""
    slots = request.slots or ()
    with torch.inference_mode(False), torch.no_grad():
        forms = [(slot.size, slot.stride, slot.dtype) for slot in slots if slot.place is None]
        new = iter(lane.recorder.empty(lane.number, forms))
        return [
            slot.place.tensor(slot.dtype, slot.size, slot.stride, 0) if slot.place is not None else next(new)
            for slot in slots
        ]


def _into(request: Request, memory: Sequence[torch.Tensor]) -> Callable[[list[Any]], tuple[Any, ...]]:
    call: Any = request.call
    if request.slots is None:
        return call
    return partial(_call_into, call, tuple(memory))


def _call_into(call: Any, memory: tuple[torch.Tensor, ...], inputs: list[Any]) -> tuple[Any, ...]:
    results: tuple[Any, ...] = call.into(inputs, memory)
    return results


def check_sharing(request: Request, inputs: Sequence[Any]) -> None:
    """`NotRecorded` where an input that is to be copied shares memory that is written with another one."""
    ranges = [
        (i, *memory_of(value))
        for i, value in enumerate(inputs)
        if isinstance(value, torch.Tensor) and i not in request.unread
    ]
    for i, begin, end in ranges:
        for k, other, last in ranges:
            if (
                i < k
                and begin < last
                and other < end
                and {i, k} & set(request.written)
                and {i, k} & set(request.copied)
            ):
                raise NotRecorded(f"inputs {i} and {k} share memory that is written, and lie elsewhere at each call")


def memory_of(tensor: torch.Tensor) -> tuple[int, int]:
    """Where the elements of a tensor begin and end."""
    begin = tensor.data_ptr()
    return begin, begin + span(tuple(tensor.shape), tensor.stride()) * tensor.itemsize


def _static(tensor: torch.Tensor) -> torch.Tensor:
    """Memory of ours with the geometry of an input, and what it holds."""
    count = span(tuple(tensor.shape), tensor.stride())
    with torch.no_grad():
        made = torch.empty(count, dtype=tensor.dtype, device=tensor.device)
        made.copy_(flat(tensor))
        return made.as_strided(tensor.shape, tensor.stride(), 0)


def _input(request: Request, number: int, value: Any, given: Any, nodes: tuple[int, int]) -> tuple[Any, ...]:
    """As a `Recording` takes it."""
    if not isinstance(value, torch.Tensor):
        return "number", value, 0, 0, 0, None, None
    form = (tuple(value.shape), value.stride()) if number in request.geometry else (None, None)
    begin, end = memory_of(given)
    if number in request.unread or begin == end:
        return "unread", given, 0, 0, 0, *form
    if number in request.copied:
        return "copied", given, end - begin, *nodes, *form
    return "fixed", given, 0, 0, 0, *form


class _Described:
    """Results as a `Recording` takes them, and the storages of those that are no inputs."""

    __slots__ = ("_copied", "_given", "_inputs", "_request", "_where", "firsts", "results", "storages")

    def __init__(self, request: Request, given: Sequence[Any]) -> None:
        self._request = request
        self._given = given
        self._inputs = {
            storage_of(value): i for i, value in reversed(list(enumerate(given))) if isinstance(value, torch.Tensor)
        }
        self.results: list[tuple[Any, ...]] = []
        #: By result, the storage that is its own; and those that are copied, with their elements.
        self._where: list[int] = []
        self._copied: list[tuple[int, int]] = []
        #: Storage → which one it is; and the numbers of the first results in each.
        self.storages: dict[int, int] = {}
        self.firsts: list[int] = []

    def take(self, results: Sequence[Any]) -> None:
        """Describe all of them."""
        for number, result in enumerate(results):
            self.results.append(self._result(number, result, results[:number]))
            own = self.results[-1][0] == "own"
            self._where.append(storage_of(result) if own else 0)

    def _result(self, number: int, result: Any, earlier: Sequence[Any]) -> tuple[Any, ...]:
        if not isinstance(result, torch.Tensor):
            return "constant", 0, result, None, None, 0
        for i, other in enumerate(earlier):
            if other is result:
                return "same", i, None, None, None, 0
        for i, value in enumerate(self._given):
            if value is result:
                return "input", i, None, None, None, 0
        if (
            type(result) is not torch.Tensor
            or result.layout is not torch.strided
            or result.is_conj()
            or result.is_neg()
        ):
            raise NotRecorded(f"result {number} is no plain tensor")
        storage = storage_of(result)
        form = result.dtype, tuple(result.shape), result.stride()
        if storage in self._inputs:
            source = self._inputs[storage]
            begin = self._given[source]
            if begin.dtype != result.dtype:
                raise NotRecorded(f"result {number} is an input as another dtype")
            return "view", source, *form, result.storage_offset() - begin.storage_offset()
        if storage not in self.storages:
            self.storages[storage] = len(self.storages)
            self.firsts.append(number)
        return "own", self.storages[storage], *form, result.storage_offset()

    def copy(self, results: Sequence[Any]) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Of storages of which each call gives a copy: memory, which no call sees, and what is copied there."""
        pairs = []
        for index, first in enumerate(self.firsts):
            if first not in self._request.fresh:
                continue
            mine = [i for i, (kind, at, *_) in enumerate(self.results) if kind == "own" and at == index]
            if len({results[i].dtype for i in mine}) > 1:
                raise NotRecorded(f"results {mine} are one memory in several dtypes, and are kept")
            result = results[first]
            elements = Place(result).nbytes // result.itemsize
            for i in mine:
                self.results[i] = ("fresh", len(self._copied), *self.results[i][2:])
            self._copied.append((index, elements))
            if elements:
                pairs.append(
                    (
                        torch.empty(elements, dtype=result.dtype, device=result.device),
                        result.as_strided((elements,), (1,), 0),
                    )
                )
        return pairs

    def copies(self, steps: Sequence[int]) -> tuple[tuple[int, int, int], ...]:
        """The same as a `Recording` takes it, with the steps that copy."""
        left = iter(steps)
        return tuple([(index, elements, next(left) if elements else 0) for index, elements in self._copied])

    def places(self, results: Sequence[Any], memory: Sequence[torch.Tensor]) -> list[Place]:
        """One for each storage."""
        slots = dict(zip([storage_of(tensor) for tensor in memory], self._request.slots or (), strict=True))
        places = []
        for storage, first in zip(self.storages, self.firsts, strict=True):
            if self._request.shared and storage not in slots:
                raise NotRecorded(f"result {first} lies in memory that recordings share")
            mine = [result for result, there in zip(results, self._where, strict=True) if there == storage]
            places.append(_place(slots.get(storage), mine))
        return places


def _overlays(places: Sequence[Place], inputs: Sequence[Any]) -> tuple[tuple[int, tuple[int, ...]], ...]:
    """As a `Recording` takes them: of the places over each base one, and the inputs that lie in that base."""
    by_base: dict[int, int] = {}
    for i, place in enumerate(places):
        if place.base is not None:
            by_base.setdefault(place.base.storage, i)
    where = [storage_of(value) if isinstance(value, torch.Tensor) else 0 for value in inputs]
    return tuple([(i, tuple([k for k, at in enumerate(where) if at == base])) for base, i in by_base.items()])


def _place(slot: Slot | None, tensors: Sequence[torch.Tensor]) -> Place:
    """The place that it has, or a new one in all its dtypes."""
    if slot is not None and slot.place is not None:
        return slot.place
    return Place(*{tensor.dtype: tensor for tensor in tensors}.values())
