"""CUDA graphs: what a call queues is captured on a stream beside, and launched by the driver from C.

The driver captures; memory comes from a pool of PyTorch's allocator meanwhile. What draws numbers of PyTorch's
generator is captured by PyTorch's `CUDAGraph`, which has it give other numbers at each replay: that takes longer to
launch, and other threads cannot draw numbers of the device while it is captured.
Apart from that other threads may go on with the device ("thread_local"): a capture only forbids its own thread what
would wait for the device.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence
from contextlib import contextmanager, nullcontext
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from stator.base import collector
from stator.targets.cuda.driver import library
from stator.targets.cuda.memory import empty, memory, new_pool, release, zeros
from stator.targets.cuda.toolchain import KIND
from stator.targets.cuda.workspaces import close_stream, side_stream, workspace

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

    #: Where a copy goes, and where it comes from.
    Pair = tuple[torch.Tensor, torch.Tensor]

__all__ = [
    "KIND", "QUEUED", "REFUSED", "close_stream", "empty", "memory", "new_pool", "release", "side_stream", "zeros",
]  # fmt: skip
_READS = "the host waits for what it computes"
#: Operators that read memory of the device from the host.
REFUSED: Final = dict.fromkeys(
    [
        "aten._local_scalar_dense.default",
        "aten.item.default",
        "aten.is_nonzero.default",
        "aten.equal.default",
        "aten.allclose.default",
        "aten.nonzero.default",
        "aten.masked_select.default",
        "aten._unique2.default",
        "aten.unique_dim.default",
        "aten.unique_consecutive.default",
        "aten.bincount.default",
        "aten.histc.default",
        "aten.repeat_interleave.Tensor",
        "aten.linalg_eig.default",
        "aten._linalg_check_errors.default",
        "stator.check_positions.default",
        "stator.check_divisor.default",
        "stator.check_probabilities.default",
    ],
    _READS,
)


#: Operators that check data on the device, which stops where it is not right.
QUEUED: Final = frozenset({"aten._assert_async.default", "aten._assert_async.msg"})


@cache
def driver() -> tuple[int, int, int, int, int, int]:
    """Addresses of what launches, moves a copy, gives and sets the context, tells of captures, gives the stream."""
    cuda = library()
    try:
        torch = ctypes.CDLL("libtorch_cuda.so", os.RTLD_NOLOAD | os.RTLD_LAZY)
        functions = (
            *(cuda.cuGraphLaunch, cuda.cuGraphExecMemcpyNodeSetParams, cuda.cuCtxGetCurrent, cuda.cuCtxSetCurrent),
            *(cuda.cuStreamIsCapturing, torch.aoti_torch_get_current_cuda_stream),
        )
        found = [ctypes.cast(function, ctypes.c_void_p).value or 0 for function in functions]
    except (OSError, AttributeError) as error:
        raise NotImplementedError(f"graphs cannot be launched from C: {error}") from error
    launch, move, get, put, capturing, stream = found
    return launch, move, get, put, capturing, stream


def refusal() -> str:
    """Recordings have pools of PyTorch's allocator, which it has not in every setting; "" where it has."""
    import torch  # the package itself does not need torch

    backend = torch.cuda.get_allocator_backend()
    if backend != "native":
        return f"PyTorch's allocator {backend} has no pools of memory"
    settings = torch.cuda.memory._snapshot().get("allocator_settings", {})
    if settings.get("expandable_segments", False):
        return "PyTorch's allocator does not give pools of memory back whose segments are expandable"
    return ""


def is_capturing(number: int) -> bool:
    """Whether the current stream of a device is being captured."""
    import torch

    with torch.cuda.device(number):
        return torch.cuda.is_current_stream_capturing()


def context(number: int) -> int:
    """The context that PyTorch uses of a device."""
    import torch  # the package itself does not need torch

    with torch.cuda.device(number):
        torch.cuda.current_stream().query()
        found = ctypes.c_void_p()
        library().cuCtxGetCurrent(ctypes.byref(found))
    return found.value or 0


def stream_number(side: torch.cuda.Stream) -> int:
    """Its handle."""
    return int(side.cuda_stream)


def wait_for(stream: torch.cuda.Stream) -> None:
    """What is queued on the current stream of its device from now on comes after what is queued on this one."""
    import torch

    torch.cuda.current_stream(stream.device_index).wait_event(torch.cuda.Stream.record_event(stream))


class Graph:
    """What was captured: the graph, of which steps are known, and what is launched of it."""

    __slots__ = ("_cuda", "executable", "pool", "raw", "theirs")

    def __init__(self, pool: torch.cuda.MemPool, theirs: torch.cuda.CUDAGraph | None = None) -> None:
        self.raw = self.executable = 0
        self.pool, self.theirs = pool, theirs
        self._cuda = library()  # it may be let go of when modules are gone

    def __del__(self) -> None:
        if self.theirs is not None:
            self.theirs.reset()  # before the pool, which it uses
            return
        if self.executable:
            self._cuda.cuGraphExecDestroy(ctypes.c_void_p(self.executable))
        if self.raw:
            self._cuda.cuGraphDestroy(ctypes.c_void_p(self.raw))


def capture(
    side: torch.cuda.Stream,
    pool: torch.cuda.MemPool,
    apart: bool,
    before: Sequence[Pair],
    call: Callable[[list[Any]], Any],
    inputs: list[Any],
    after: Callable[[Sequence[Any]], Sequence[Pair]],
    random: bool,
) -> tuple[Graph, tuple[Any, ...], list[int]]:
    """The graph of a call, its results, and the steps of the copies."""
    import torch

    number = side.device_index
    capturing = _capturing_with_numbers if random else _capturing
    pairs: list[Pair] = list(before)
    around = _in_order(side) if random else nullcontext()
    on_side = torch.cuda.stream(side)
    quiet = collector.stopped()  # what is collected may wait for the device
    with around, on_side, quiet, workspace(side, pool), capturing(side, new_pool(number) if apart else pool) as graph:
        _copy(before)
        results = tuple(call(inputs))
        last = after(results)
        _copy(last)
        pairs += last
    return graph, results, _steps(graph, pairs)


@contextmanager
def _in_order(side: torch.cuda.Stream) -> Iterator[None]:
    """What is queued on this stream in here comes behind what is queued on the current one, and before what will be.

    Where PyTorch begins a capture, it writes the number from which its generator goes on, which all graphs read.
    """
    import torch

    current = torch.cuda.current_stream(side.device_index)
    side.wait_stream(current)
    try:
        yield
    finally:
        current.wait_stream(side)


@contextmanager
def _capturing(side: torch.cuda.Stream, pool: torch.cuda.MemPool) -> Iterator[Graph]:
    """What is queued in here on the stream becomes the graph, which has no address before."""
    import torch

    stream, graph = ctypes.c_void_p(side.cuda_stream), Graph(pool)
    raw, executable = ctypes.c_void_p(), ctypes.c_void_p()
    with torch.cuda.use_mem_pool(pool, side.device_index):
        _check(library().cuStreamBeginCapture_v2(stream, _THREAD_LOCAL), "beginning to capture")
        try:
            yield graph
        finally:
            status = library().cuStreamEndCapture(stream, ctypes.byref(raw))
            graph.raw = raw.value or 0
            if status != 0:
                _forget_error()
    _check(status, "ending a capture")
    _check(
        library().cuGraphInstantiateWithFlags(ctypes.byref(executable), raw, ctypes.c_ulonglong(0)), "making a graph"
    )
    graph.executable = executable.value or 0


@contextmanager
def _capturing_with_numbers(side: torch.cuda.Stream, pool: torch.cuda.MemPool) -> Iterator[Graph]:
    """The same by PyTorch, for what draws numbers of its generator.

    PyTorch does not end a capture that the driver refuses to end: its generator would go on as if it were under way. So
    the driver's is ended here, and PyTorch ends another one in its place, in which something trivial is queued.
    Memory comes from the pool as in `_capturing`: given to PyTorch's capture, a pool could be that of no other one once
    this graph is gone, since PyTorch's allocator for memory of the host takes the pool for closed then. The capture's
    own pool has nothing in it.
    """
    import torch

    theirs = torch.cuda.CUDAGraph(keep_graph=True)
    graph = Graph(pool, theirs)
    trivial = torch.zeros(1, device=side.device)  # made before, as there may be no memory left when it is queued
    theirs.capture_begin(capture_error_mode="thread_local")
    try:
        with torch.cuda.use_mem_pool(pool, side.device_index):  # of several, the last one entered is asked
            yield graph
        if _is_spoiled(side):
            raise RuntimeError("what was queued has ended the capture")
    except BaseException:
        if _is_spoiled(side):
            stream, nothing = ctypes.c_void_p(side.cuda_stream), ctypes.c_void_p()
            library().cuStreamEndCapture(stream, ctypes.byref(nothing))
            _forget_error()
            _check(library().cuStreamBeginCapture_v2(stream, _THREAD_LOCAL), "beginning to capture")
        try:
            trivial.zero_()
        finally:
            theirs.capture_end()
            theirs.reset()
        raise
    theirs.capture_end()
    theirs.instantiate()
    graph.raw, graph.executable = theirs.raw_cuda_graph(), theirs.raw_cuda_graph_exec()


def _forget_error() -> None:
    """Takes what the runtime remembers as this thread's last error: libraries would take it for one of theirs."""
    import torch

    try:
        runtime = ctypes.CDLL(f"libcudart.so.{(torch.version.cuda or '').partition('.')[0]}", os.RTLD_NOLOAD)
    except OSError:  # then it is part of others, and each has its own
        return
    runtime.cudaGetLastError()


#: A capture forbids this thread alone what would wait for the device.
_THREAD_LOCAL: Final = 1
#: What the driver says of a stream on which something is captured, and nothing forbidden was done.
_IS_CAPTURING: Final = 1


def _is_spoiled(side: torch.cuda.Stream) -> bool:
    found = ctypes.c_int()
    library().cuStreamIsCapturing(ctypes.c_void_p(side.cuda_stream), ctypes.byref(found))
    return found.value != _IS_CAPTURING


def _check(status: int, what: str) -> None:
    if status != 0:
        raise RuntimeError(f"CUDA error {status} in {what}")


def _copy(pairs: Sequence[Pair]) -> None:
    import torch

    with torch.no_grad():
        for to, source in pairs:
            to.copy_(source)


class _Copy(ctypes.Structure):
    """A copy as the driver describes it."""

    _fields_ = (
        *((f"from_{name}", ctypes.c_size_t) for name in ("x", "y", "z", "level")),
        *(("from_type", ctypes.c_int), ("from_host", ctypes.c_void_p), ("source", ctypes.c_uint64)),
        *(("from_array", ctypes.c_void_p), ("reserved", ctypes.c_void_p)),
        *(("from_pitch", ctypes.c_size_t), ("from_height", ctypes.c_size_t)),
        *((f"to_{name}", ctypes.c_size_t) for name in ("x", "y", "z", "level")),
        *(("to_type", ctypes.c_int), ("to_host", ctypes.c_void_p), ("to", ctypes.c_uint64)),
        *(("to_array", ctypes.c_void_p), ("reserved_too", ctypes.c_void_p)),
        *(("to_pitch", ctypes.c_size_t), ("to_height", ctypes.c_size_t)),
        *((name, ctypes.c_size_t) for name in ("width", "height", "depth")),
    )


_MEMCPY: Final = 1  # the type of such a step


def _steps(graph: Graph, pairs: Sequence[Pair]) -> list[int]:
    """The steps that copy these pairs, found by where they copy from and to."""
    if not pairs:
        return []
    cuda, raw, count = library(), ctypes.c_void_p(graph.raw), ctypes.c_size_t()
    cuda.cuGraphGetNodes(raw, None, ctypes.byref(count))
    nodes = (ctypes.c_void_p * count.value)()
    cuda.cuGraphGetNodes(raw, nodes, ctypes.byref(count))
    found: dict[tuple[int, int], int] = {}
    for node in nodes:
        kind, told = ctypes.c_int(), _Copy()
        cuda.cuGraphNodeGetType(ctypes.c_void_p(node), ctypes.byref(kind))
        if kind.value == _MEMCPY and cuda.cuGraphMemcpyNodeGetParams(ctypes.c_void_p(node), ctypes.byref(told)) == 0:
            found[told.to, told.source] = int(node or 0)
    steps = [found.get((to.data_ptr(), source.data_ptr()), 0) for to, source in pairs]
    if 0 in steps:
        raise RuntimeError("a copy is not found among what was captured")
    return steps


def executable(graph: Graph) -> int:
    """What the driver launches."""
    return graph.executable


def replay(graph: Graph) -> Callable[[], object] | None:
    """PyTorch's own way of launching, which gives generators their numbers first; None where nothing draws any."""
    return graph.theirs.replay if graph.theirs is not None else None


def draws(number: int) -> object:
    """Where PyTorch's generator of the device is."""
    import torch

    return torch.cuda.default_generators[number].get_offset()
