"""Triton sources: a text with kernels and what launches need to know of them, to kernels of the C core.

An entry of `LAUNCHES`: the types of the pointers, which of them are taken to be multiples of 16 (`aligned`), the names
of sizes that follow them, the grid as a number or a program over the sizes, what is counted and from where on 32 bits
do not hold it (`limits`), and the compiler's options. A binary is loaded when a launch first needs it
(`csrc/device.c`), and kept by Triton's own cache. Triton reads the source of a kernel from its file, so the text is
filed in the store and executed as that file; as no module, since an import would leave its bytecode beside it.
Neighbours: `codegen/triton` writes the text, `runtime/link.py` asks for the kernels.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from functools import cache, partial
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from stator.base.errors import InternalError
from stator.base.options import Options
from stator.base.store import Store, key_of
from stator.runtime.artifact import Unit
from stator.runtime.toolchain import open_store

if TYPE_CHECKING:
    from stator._native import Kernel

KIND = "cuda"
WARP = 32
#: Cycles of a multiprocessor in which the host has queued a call.
WAIT = 100_000
#: What is known of a pointer whose address is a multiple of 16.
ALIGNED = [["tt.divisibility", 16]]


class Compiling:
    """What is compiled beside its caller; a launch that needs a binary waits for that alone."""

    __slots__ = ("_store",)

    def __init__(self, options: Options) -> None:
        self._store = open_store(options)

    def begin(self, units: Sequence[Unit], device: str) -> tuple[Unit, ...]:
        """Have the kernels of units compiled."""
        for unit in units:
            begin(unit.source, device, self._store)
        return tuple(units)

    def finish(self) -> None:
        """Nothing is waited for."""

    def close(self) -> None:
        """Binaries that were begun stay useful: they go to Triton's own cache."""


def building(options: Options) -> Compiling:
    """What compiles units."""
    return Compiling(options)


def load(units: Sequence[Unit], device: str, options: Options) -> dict[str, Kernel]:
    """The kernels of texts, for a device."""
    store = open_store(options)
    return {name: kernel for unit in units for name, kernel in _kernels(unit, begin(unit.source, device, store))}


def _kernels(unit: Unit, binaries: Binaries) -> Iterator[tuple[str, Kernel]]:
    from stator._native import device_kernel  # needs torch, which this package does not

    for name in unit.kernels:
        launch = binaries.launches[name]
        threads = WARP * launch["options"]["num_warps"]
        geometry = launch["aligned"], len(launch["sizes"]), launch["grid"], launch["limits"], threads
        yield name, device_kernel(name, *geometry, binaries.device, driver(), partial(binaries.load, name))


def begin(source: str, device: str, store: Store) -> Binaries:
    """Have a text's kernels compiled side by side, for a device, while the caller goes on."""
    key = "triton-" + key_of(source), number(device)
    found = _begun.get(key)
    if found is None:
        found = _begun[key] = Binaries(_executed(source, key[0], store), key[1])
        _latest.append(found)
    return found


class Binaries:
    """The kernels of one text for one device: those that most launches take are compiled at once."""

    __slots__ = ("__weakref__", "_compiling", "_functions", "device", "launches")

    def __init__(self, namespace: Mapping[str, Any], device: int) -> None:
        self.device = device
        self.launches: Mapping[str, Mapping[str, Any]] = namespace["LAUNCHES"]
        self._functions = {name: namespace[name] for name in self.launches}
        self._compiling = {name: _pool().submit(self._early, name) for name in self.launches}

    def _early(self, name: str) -> Any:
        if not threading.main_thread().is_alive():  # nobody will launch it
            raise CancelledError
        return self._compiled(name, anywhere=False, wide=False)

    def _compiled(self, name: str, *, anywhere: bool, wide: bool) -> Any:
        import torch  # the package itself needs neither
        import triton
        from triton.backends.compiler import GPUTarget

        launch = self.launches[name]
        major, minor = torch.cuda.get_device_capability(self.device)
        source = source_of(self._functions[name], launch, anywhere=anywhere, wide=wide)
        target = GPUTarget(KIND, 10 * major + minor, WARP)
        return triton.compile(source, target=target, options=dict(launch["options"]))

    def load(self, name: str, anywhere: bool, wide: bool) -> tuple[int, int, int]:
        """The driver's function, its bytes of shared memory, and the context that it is loaded in."""
        import torch
        from triton.runtime.driver import driver as installed

        early = None if anywhere or wide else self._compiling.pop(name, None)
        made = self._compiled(name, anywhere=anywhere, wide=wide) if early is None else early.result()
        if made.metadata.global_scratch_size:
            raise InternalError("build", f"{name} asks for memory of its own")
        with torch.cuda.device(self.device):
            _, found, *_ = installed.active.utils.load_binary(made.name, made.kernel, made.metadata.shared, self.device)
            context = ctypes.c_void_p()
            ctypes.CDLL("libcuda.so.1").cuCtxGetCurrent(ctypes.byref(context))
        return found, made.metadata.shared, context.value or 0


#: What was begun: kept by the kernels that came of it, and until these are loaded.
_begun: WeakValueDictionary[tuple[str, int], Binaries] = WeakValueDictionary()
_latest: deque[Binaries] = deque(maxlen=16)


@cache
def _pool() -> ThreadPoolExecutor:
    """Threads are enough: Triton's compiler lets the GIL go where it takes long."""
    return ThreadPoolExecutor(os.cpu_count() or 1, "stator-triton")


def _executed(source: str, key: str, store: Store) -> dict[str, Any]:
    path = store.path(key)
    if path is None:
        store.put(key, source.encode())
        path = store.path(key)
    if path is None:
        raise InternalError("link", "the store lost an entry that it just took")
    namespace: dict[str, Any] = {"__name__": f"stator_{key.replace('-', '_')}", "__file__": str(path)}
    exec(compile(source, str(path), "exec"), namespace)
    return namespace


@cache
def driver() -> tuple[int, int, int, int]:
    """Addresses of what launches, of what gives and sets the current context, and of what gives torch's stream.

    NotImplementedError where the driver or torch has none.
    """
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
        torch = ctypes.CDLL("libtorch_cuda.so", os.RTLD_NOLOAD | os.RTLD_LAZY)
        functions = cuda.cuLaunchKernel, cuda.cuCtxGetCurrent, cuda.cuCtxSetCurrent
        found = [ctypes.cast(f, ctypes.c_void_p).value for f in (*functions, torch.aoti_torch_get_current_cuda_stream)]
    except (OSError, AttributeError) as error:
        raise NotImplementedError(f"kernels cannot be launched from C: {error}") from error
    launch, get, put, stream = [address or 0 for address in found]
    return launch, get, put, stream


def number(device: str) -> int:
    """Which device it is; without a number the current one, as for PyTorch: each process of several has its own."""
    import torch  # the package itself does not need torch

    told = device.partition(":")[2]
    return int(told) if told else torch.cuda.current_device()


def current_stream(number: int) -> int:
    """torch's current stream."""
    import torch

    return torch._C._cuda_getCurrentRawStream(number)


def stream_getter() -> int:
    """The address of what gives torch's current stream."""
    return driver()[3]


def source_of(function: Any, launch: Mapping[str, Any], *, anywhere: bool, wide: bool) -> Any:
    """What Triton compiles: pointers that are aligned, or may lie `anywhere`; sizes and positions of 32 bits, or 64."""
    from triton.compiler import ASTSource

    names = function.arg_names
    signature = dict(zip(names, launch["types"], strict=False))
    signature |= dict.fromkeys(launch["sizes"], "i64" if wide else "i32")
    constants = {"WIDE": wide} if launch["sizes"] else {}
    attributes = {} if anywhere else {(i,): ALIGNED for i, aligned in enumerate(launch["aligned"]) if aligned}
    return ASTSource(function, signature | dict.fromkeys(constants, "constexpr"), constants, attributes)


def seconds(call: Callable[[], object], count: int) -> float:
    """How long a call takes on the current device, of so many in a row.

    They are queued behind a kernel that waits, so that what the host needs to queue them is not counted.
    """
    import torch

    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize()
    torch.cuda._sleep(WAIT * count)
    start.record()
    for _ in range(count):
        call()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) * 1e-3 / count
