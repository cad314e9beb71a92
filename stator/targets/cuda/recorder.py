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
from collections.abc import Callable
from contextlib import contextmanager, suppress
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
def driver() -> tuple[int, int, int, int, int, int]:
    """Addresses of what launches a graph, copies, gives and sets the context, tells of captures, gives the stream."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
        torch = ctypes.CDLL("libtorch_cuda.so", os.RTLD_NOLOAD | os.RTLD_LAZY)
        functions = (
            *(cuda.cuGraphLaunch, cuda.cuMemcpyDtoDAsync_v2, cuda.cuCtxGetCurrent, cuda.cuCtxSetCurrent),
            *(cuda.cuStreamIsCapturing, torch.aoti_torch_get_current_cuda_stream),
        )
        found = [ctypes.cast(function, ctypes.c_void_p).value or 0 for function in functions]
    except (OSError, AttributeError) as error:
        raise NotImplementedError(f"graphs cannot be launched from C: {error}") from error
    launch, copy, get, put, capturing, stream = found
    return launch, copy, get, put, capturing, stream


def context(number: int) -> int:
    """The context that PyTorch uses of a device."""
    import torch  # the package itself does not need torch

    with torch.cuda.device(number):
        torch.cuda.current_stream().query()  # makes it, where nothing was done on the device yet
        found = ctypes.c_void_p()
        ctypes.CDLL("libcuda.so.1").cuCtxGetCurrent(ctypes.byref(found))
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
    side: torch.cuda.Stream, pool: Any, call: Callable[[list[Any]], Any], inputs: list[Any]
) -> tuple[torch.cuda.CUDAGraph, tuple[Any, ...]]:
    """The graph of a call and its results. Workspaces of cuBLAS that are made meanwhile belong to the pool."""
    import torch

    graph = torch.cuda.CUDAGraph()
    clear: Any = torch._C._cuda_clearCublasWorkspaces  # type: ignore[attr-defined]
    with torch.cuda.stream(side), _collecting_nothing():
        clear()
        graph.capture_begin(pool=pool, capture_error_mode="thread_local")
        try:
            results = tuple(call(inputs))
        except BaseException:
            _abandon(graph)
            raise
        finally:
            clear()
        graph.capture_end()
    return graph, results


def _abandon(graph: torch.cuda.CUDAGraph) -> None:
    """Ends a capture whose call has raised; that the device refuses what was captured is no news."""
    with suppress(RuntimeError):
        graph.capture_end()
    graph.reset()


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
