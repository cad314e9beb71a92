"""A recorder for memory of the host: it keeps a call and makes it again, on the addresses that it had.

What a capture runs is undone, as if it had only been queued. A replay reads and writes the addresses of the capture,
whoever has them by then, like a device: inputs and results are memory to it, not tensors.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from stator import _native
from stator._native import storage_of
from stator.recording.capture import flat
from stator.sizes.strides import span

LAUNCH = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
COPY = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
#: Of what the driver is told of a copy: where from, where to, how many bytes (`csrc/recording.h`).
FROM, TO, WIDTH = 48, 136, 176
GET = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_void_p))
SET = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
CAPTURING = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_int))
STREAM = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p))
CONTEXT = 0x50


def unseen(function: Callable[..., Any]) -> Callable[..., Any]:
    """No frame of it is compiled: it stands for what a device does."""

    @functools.wraps(function)
    def call(*args: Any) -> Any:
        _native.suspend()
        try:
            return function(*args)
        finally:
            _native.resume()

    return call


def at(address: int, like: torch.Tensor) -> torch.Tensor:
    """A tensor at an address, which it does not keep."""
    size, stride = tuple(like.shape), like.stride()
    count = span(size, stride)
    if not count:
        return torch.empty_strided(size, stride, dtype=like.dtype)
    memory = (ctypes.c_char * (count * like.itemsize)).from_address(address)
    return torch.frombuffer(memory, dtype=like.dtype, count=count).as_strided(size, stride)


@dataclass(eq=False)
class Graph:
    """A call as it was captured."""

    number: int
    call: Callable[..., Any]
    memory: (
        list[tuple[int, torch.Tensor]] | None
    )  # that the call is given for its results, as (address, a tensor like it)
    inputs: list[Any]  # the same, or a number
    results: list[tuple[int, torch.Tensor] | None]  # of those that are no inputs
    copies: dict[int, tuple[int, int, int]]  # step → to, from, bytes
    first: int  # how many come before the call
    random: bool

    def launch(self) -> None:
        copies = list(self.copies.values())
        for copy in copies[: self.first]:
            ctypes.memmove(*copy)
        given = [at(*value) if isinstance(value, tuple) else value for value in self.inputs]
        made = self.call(given) if self.memory is None else self.call(given, tuple([at(*item) for item in self.memory]))
        for place, result in zip(self.results, made, strict=True):
            if place is not None and result.data_ptr() != place[0]:
                at(place[0], _flat(place[1])).copy_(flat(result))
        for copy in copies[self.first :]:
            ctypes.memmove(*copy)


@dataclass
class Recorder:
    """The same for one stream, or for several numbers of them."""

    KIND: str = "cpu"
    REFUSED: dict[str, str] = field(default_factory=dict)
    QUEUED: frozenset[str] = frozenset()
    stream: int = 0x700
    capturing: bool = False
    graphs: dict[int, Graph] = field(default_factory=dict)
    launches: int = 0
    copies: int = 0
    captures: int = 0
    released: int = 0
    fails: Exception | None = None
    awaited: list[object] = field(default_factory=list)
    recording: bool = False  # while a call is being captured
    status: int = 0
    mapped: list[torch.Tensor] = field(default_factory=list)  # memory that copies begin in always, or never

    def __post_init__(self) -> None:
        self.held = (
            *(LAUNCH(self._launch), COPY(self._copy), GET(self._get), SET(lambda _: 0)),
            *(CAPTURING(self._is_capturing), STREAM(self._stream)),
        )
        self.refuses = ""  #: why nothing is recorded
        self.errors: list[BaseException] = []

    # -- what the driver does

    @unseen
    def _launch(self, executable: int, stream: int) -> int:
        self.launches += 1
        assert (stream or 0) == self.stream
        if self.status:
            return self.status
        try:
            with torch.no_grad():
                self.graphs[executable].launch()
        except BaseException as error:
            self.errors.append(error)
            return 700
        return 0

    @unseen
    def _copy(self, executable: int, step: int, told: int, context: int) -> int:
        self.copies += 1
        source, to, nbytes = [ctypes.c_uint64.from_address(told + place).value for place in (FROM, TO, WIDTH)]
        graph = self.graphs[executable]
        assert graph.copies[step][2] == nbytes and context == CONTEXT
        if self._is_mapped(source) != self._is_mapped(graph.copies[step][1]):
            return 1
        graph.copies[step] = to, source, nbytes
        return 0

    @unseen
    def _get(self, found: Any) -> int:
        found[0] = CONTEXT
        return 0

    @unseen
    def _is_capturing(self, stream: int, status: Any) -> int:
        status[0] = int(self.capturing)
        return 0

    @unseen
    def _stream(self, device: int, found: Any) -> int:
        found[0] = self.stream
        return 0

    # -- what a recorder is asked

    def driver(self) -> Any:
        return tuple([ctypes.cast(function, ctypes.c_void_p).value for function in self.held])

    def refusal(self) -> str:
        return self.refuses

    def is_capturing(self, number: int) -> bool:
        return self.capturing

    def context(self, number: int) -> int:
        return CONTEXT

    def side_stream(self, number: int, stream: int) -> int:
        return 0x7FF

    def close_stream(self, side: int, stream: int) -> None:
        """Nothing was made."""

    def stream_number(self, side: int) -> int:
        return side

    def wait_for(self, stream: object) -> None:
        self.awaited.append(stream)

    def release(self, number: int) -> None:
        self.released += 1

    def empty(self, number: int, forms: Any) -> list[torch.Tensor]:
        return [torch.empty_strided(size, stride, dtype=dtype) for size, stride, dtype in forms]

    def zeros(self, number: int, nbytes: int, mapped: bool) -> torch.Tensor:
        made = torch.zeros(nbytes, dtype=torch.uint8)
        if mapped:
            self.mapped.append(made)
        return made

    def _is_mapped(self, address: int) -> bool:
        return any(item.data_ptr() <= address < item.data_ptr() + item.numel() for item in self.mapped)

    def memory(self, number: int, address: int, nbytes: int, keeper: object) -> torch.Tensor:
        made = type("Memory", (ctypes.c_char * nbytes,), {}).from_address(address)
        made.keeper = keeper
        return torch.frombuffer(made, dtype=torch.uint8)

    def new_pool(self, number: int) -> object:
        return object()

    @unseen
    def capture(
        self,
        side: int,
        pool: Any,
        apart: bool,
        before: Any,
        call: Callable[[list[Any]], Any],
        inputs: list[Any],
        after: Any,
        random: bool,
    ) -> tuple[Graph, tuple[Any, ...], list[int]]:
        self.captures += 1
        if self.fails is not None:
            raise self.fails
        tensors = [value for value in inputs if isinstance(value, torch.Tensor)]
        memory = [at(tensor.data_ptr(), _flat(tensor)) for tensor in tensors]
        with torch.inference_mode(False), torch.no_grad():
            held = [item.clone() for item in memory]
        drawn = torch.get_rng_state()
        self.recording = True
        try:
            results = tuple(call(list(inputs)))
            places = {storage_of(value) for value in tensors}
            for result in results:  # what was computed was only queued
                if isinstance(result, torch.Tensor) and _place(result, places) is not None and result.numel():
                    at(result.data_ptr(), result).fill_(99)
        finally:
            self.recording = False
            torch.set_rng_state(drawn)
            for item, was in zip(memory, held, strict=True):
                item.copy_(was)
        pairs = [*before, *after(results)]
        into = isinstance(call, functools.partial)  # memory for results, which is not kept
        graph = Graph(
            len(self.graphs) + 1,
            call.args[0].into if into else call,
            [(item.data_ptr(), _like(item)) for item in call.args[1]] if into else None,
            [(v.data_ptr(), _like(v)) if isinstance(v, torch.Tensor) else v for v in inputs],
            [_place(result, places) for result in results],
            {i + 1: (to.data_ptr(), source.data_ptr(), to.nbytes) for i, (to, source) in enumerate(pairs)},
            len(before),
            random,
        )
        self.graphs[graph.number] = graph
        return graph, results, list(graph.copies)

    def executable(self, graph: Graph) -> int:
        return graph.number

    def replay(self, graph: Graph) -> Callable[[], object] | None:
        return (lambda: self._launch(graph.number, self.stream)) if graph.random else None

    def draws(self, number: int) -> object:
        return bytes(torch.get_rng_state().numpy())


def _like(tensor: torch.Tensor) -> torch.Tensor:
    """Its geometry, without its memory."""
    return torch.empty_strided(tuple(tensor.shape), tensor.stride(), dtype=tensor.dtype, device="meta")


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    """Its memory, in the order of addresses."""
    return torch.empty(span(tuple(tensor.shape), tensor.stride()), dtype=tensor.dtype, device="meta")


def _place(result: Any, inputs: set[int]) -> tuple[int, torch.Tensor] | None:
    if not isinstance(result, torch.Tensor) or result.data_ptr() == 0:
        return None
    return None if storage_of(result) in inputs else (result.data_ptr(), _like(result))
