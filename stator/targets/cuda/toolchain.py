"""Triton sources: a text with kernels and what launches need to know of them, to kernels of the C core.

An entry of `LAUNCHES`: the types of the pointers, which of them are taken to be multiples of 16 (`aligned`), the names
of sizes that follow them, the grid as a number or a program over the sizes, or a list of up to three, what is counted
and from where on 32 bits do not hold it (`limits`), and the compiler's options. Where sizes that are multiples of 16
have binaries of their own it says which sizes these are (`rounds`), and whether those of the first call were (`round`).
Workers compile while their caller goes on; a launch that needs a binary loads it (`csrc/device.c`), and waits for that
one alone. Where all binaries are in the store, no compiler is imported.
Neighbours: `codegen/triton` writes the text, `binaries.py` has it compiled,
`driver.py` loads, `runtime/link.py` asks for the kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from stator.base.errors import CompilerMissing
from stator.base.options import Options
from stator.base.store import Store
from stator.runtime.artifact import Unit
from stator.runtime.toolchain import open_store
from stator.targets.cuda import driver
from stator.targets.cuda.binaries import ANYWHERE, ROUND, WIDE, Source, begin, binary, launches, texts
from stator.targets.cuda.platform import current
from stator.targets.cuda.workers import Target, workers

if TYPE_CHECKING:
    from stator._native import Kernel

KIND = "cuda"
#: What a kernel that multiplies matrices calls.
PRODUCT = "tl.dot("
#: Cycles of a multiprocessor in which the host has queued a call.
WAIT = 100_000


class Compiling:
    """What workers compile beside their caller; a launch that needs a binary waits for that alone."""

    __slots__ = ("_compiler", "_store")

    def __init__(self, options: Options) -> None:
        self._store = open_store(options)
        self._compiler = options.triton

    def expect(self, device: str) -> None:
        """Have the processes there that will compile for a device."""
        workers(target(number(device))).expect()

    def begin(self, units: Sequence[Unit], device: str, remarks: Mapping[str, str]) -> tuple[Unit, ...]:
        """Have the kernels of units compiled; the same with the keys of their binaries."""
        found = []
        for unit in units:
            sources = _sources(unit, number(device), self._compiler)
            keys = [source.key() for source in sources]
            _begin(sources, keys, self._store, remarks)
            found.append(replace(unit, library=" ".join(keys)))
        return tuple(found)

    def finish(self) -> None:
        """Nothing is waited for."""

    def close(self) -> None:
        """What was begun stays useful: it goes to the store."""


def building(options: Options) -> Compiling:
    """What compiles units."""
    return Compiling(options)


def load(units: Sequence[Unit], device: str, options: Options) -> dict[str, Kernel]:
    """The kernels of texts, for a device."""
    store = open_store(options)
    return {name: kernel for unit in units for name, kernel in _kernels(unit, number(device), store, options)}


def _begin(sources: Sequence[Source], keys: Sequence[str], store: Store, remarks: Mapping[str, str]) -> None:
    """Have kernels compiled that are not in the store; what takes long first, so that nothing waits for it alone."""
    for source, key in sorted(zip(sources, keys, strict=True), key=lambda pair: _work(pair[0]), reverse=True):
        first = ROUND if source.launch.get("round") else 0
        begin(source, key, store, first, remarks.get(source.name, ""))


def _work(source: Source) -> tuple[bool, int]:
    """By which kernels are put in the order of how long they compile: products, whose tiles are large, take longest."""
    return PRODUCT in source.text, len(source.text)


def _kernels(unit: Unit, device: int, store: Store, options: Options) -> Iterator[tuple[str, Kernel]]:
    from stator._native import device_kernel  # needs torch, which this package does not

    sources = _sources(unit, device, options.triton)
    keys = unit.library.split() or [source.key() for source in sources]
    with suppress(CompilerMissing):  # whoever launches what is not there is told
        _begin(sources, keys, store, {})  # the store may have lost some, which are not to be compiled one by one
    for source, key in zip(sources, keys, strict=True):
        launch = source.launch
        geometry = launch["aligned"], len(launch["sizes"]), launch["grid"], launch["limits"], launch.get("rounds", ())
        place = bool(launch["options"].get("launch_pdl")), device  # Triton's name of an overlap
        build = partial(_loaded, source, key, store, device)
        yield source.name, device_kernel(source.name, *geometry, *place, driver.launching(), build, driver.refused)


def _sources(unit: Unit, device: int, compiler: str) -> list[Source]:
    """The kernels of a unit, each for itself."""
    found, known, chosen = texts(unit.source, unit.kernels), launches(unit.source), target(device)
    return [Source(name, found[name], known[name], chosen, compiler) for name in unit.kernels]


def _loaded(
    source: Source, key: str, store: Store, device: int, anywhere: bool, wide: bool, round: bool
) -> tuple[int, ...]:
    """The driver's function, its bytes of shared memory and threads, and the context that it is loaded in."""
    alternative = ANYWHERE * anywhere | WIDE * wide | ROUND * round
    found = _functions.get((key, alternative, device))
    if found is None:
        made = binary(source, key, store, alternative)
        function, context = driver.load(made.image, made.name, made.shared, device)
        found = _functions[key, alternative, device] = function, made.shared, made.threads, context
    return found


#: What is loaded, by key, alternative and device: what is recorded may launch it when no graph has it any more.
_functions: dict[tuple[str, int, int], tuple[int, ...]] = {}


def target(number: int) -> Target:
    """What binaries for a device are compiled for."""
    import torch  # the package itself does not need torch

    platform = current()
    return platform.backend, platform.architecture(torch.cuda.get_device_properties(number)), platform.warp


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
    return driver.launching()[3]


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
