"""CUDA graphs: what a call queues is captured by PyTorch on a stream beside, and launched by the driver from C.

PyTorch's own `CUDAGraph` captures, for it has the allocator give memory of a pool that lives as long as the graph, and
generators numbers that advance. Launching one costs more than the driver's launch, for both are looked after at each
replay: so the driver launches what draws no random numbers.
Other threads may go on with the device meanwhile ("thread_local"): capturing only forbids this thread what would wait.
"""

from __future__ import annotations

import ctypes
import gc
import os
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

KIND: Final = "cuda"
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
    ],
    _READS,
)


@cache
def _cuda() -> Any:
    """The driver."""
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise NotImplementedError(f"there is no driver: {error}") from error


@cache
def driver() -> tuple[int, int, int, int, int, int]:
    """Addresses of what launches, moves a copy, gives and sets the context, tells of captures, gives the stream."""
    cuda = _cuda()
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


def context(number: int) -> int:
    """The context that PyTorch uses of a device."""
    import torch  # the package itself does not need torch

    with torch.cuda.device(number):
        torch.cuda.current_stream().query()  # makes it, where nothing was done on the device yet
        found = ctypes.c_void_p()
        _cuda().cuCtxGetCurrent(ctypes.byref(found))
    return found.value or 0


def side_stream(number: int) -> torch.cuda.Stream:
    """A stream of the device."""
    import torch

    return torch.cuda.Stream(number)


def stream_number(side: torch.cuda.Stream) -> int:
    """Its handle."""
    return int(side.cuda_stream)


def new_pool() -> Any:
    """A pool of PyTorch's allocator."""
    import torch

    return torch.cuda.graph_pool_handle()


def capture(
    side: torch.cuda.Stream,
    pool: Any,
    before: Sequence[tuple[torch.Tensor, torch.Tensor]],
    call: Callable[[list[Any]], Any],
    inputs: list[Any],
    after: Callable[[Sequence[Any]], Sequence[tuple[torch.Tensor, torch.Tensor]]],
) -> tuple[torch.cuda.CUDAGraph, tuple[Any, ...], list[int]]:
    """The graph of a call, its results, and the steps of the copies. Workspaces of cuBLAS belong to the pool."""
    import torch

    graph = torch.cuda.CUDAGraph(keep_graph=True)
    with torch.cuda.stream(side), _collecting_nothing():
        torch._C._cuda_clearCublasWorkspaces()
        graph.capture_begin(pool=pool, capture_error_mode="thread_local")
        try:
            _copy(before)
            results = tuple(call(inputs))
            pairs = [*before, *(last := after(results))]
            _copy(last)
            if _status(side) != _CAPTURING:
                raise RuntimeError("what was queued has ended the capture")
        except BaseException:
            _abandon(graph, side)
            raise
        finally:
            torch._C._cuda_clearCublasWorkspaces()
        graph.capture_end()
    graph.instantiate()
    return graph, results, _steps(graph, pairs)


#: What the driver says of a stream: nothing is captured, something is, or was until something forbidden was done.
_IDLE, _CAPTURING, _SPOILED = range(3)


def _status(side: torch.cuda.Stream) -> int:
    found = ctypes.c_int()
    _cuda().cuStreamIsCapturing(ctypes.c_void_p(side.cuda_stream), ctypes.byref(found))
    return found.value


def _copy(pairs: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> None:
    import torch

    with torch.no_grad():
        for to, source in pairs:
            to.copy_(source)


def _abandon(graph: torch.cuda.CUDAGraph, side: torch.cuda.Stream) -> None:
    """Ends a capture whose call has raised.

    PyTorch does not end one that the driver refuses: allocator and generators would go on as if it were under way. So
    the driver's is ended here, and PyTorch ends one in its place in which something trivial is queued.
    """
    import torch

    if _status(side) != _CAPTURING:
        stream, nothing = ctypes.c_void_p(side.cuda_stream), ctypes.c_void_p()
        _cuda().cuStreamEndCapture(stream, ctypes.byref(nothing))
        _cuda().cuStreamBeginCapture_v2(stream, _THREAD_LOCAL)
        torch.zeros(1, device=side.device)
    graph.capture_end()
    graph.reset()


_THREAD_LOCAL: Final = 1


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


def _steps(graph: torch.cuda.CUDAGraph, pairs: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> list[int]:
    """The steps that copy these pairs, found by where they copy from and to."""
    if not pairs:
        return []
    cuda, raw, count = _cuda(), ctypes.c_void_p(graph.raw_cuda_graph()), ctypes.c_size_t()
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


@contextmanager
def _collecting_nothing() -> Iterator[None]:
    """Objects that are collected while something is captured may wait for the device."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def executable(graph: torch.cuda.CUDAGraph) -> int:
    """What the driver launches."""
    return int(graph.raw_cuda_graph_exec())


def replay(graph: torch.cuda.CUDAGraph) -> Callable[[], object]:
    """PyTorch's own way, which gives generators their numbers first."""
    return graph.replay


def draws(number: int) -> object:
    """Where PyTorch's generator of the device is."""
    import torch

    return torch.cuda.default_generators[number].get_offset()
