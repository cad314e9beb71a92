"""Which tiles of a product or of attention are the fastest on this device, by measurement, once for each kernel.

What is timed is the kernel that will run, with all that is computed of factors and results, on random numbers in memory
of its own. Candidates are those that a model takes for the fastest (`kernel/matmul.py`); they are compiled side by
side. What was found is kept in the store under the kernel's text and the device, with the time of every candidate, or
the reason why there is none, so that no other process measures again.
Neighbours: `printer.py` asks, `stator/tuning.py` decides between a kernel of ours and a library's.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from stator.base import log
from stator.base.device import Device
from stator.base.dtypes import TORCH
from stator.base.options import Options
from stator.base.store import Store, key_of
from stator.codegen import triton
from stator.kernel import attention, matmul
from stator.kernel.attention import Rows
from stator.kernel.matmul import Tiling, matmul_of
from stator.loop.kernel import Kernel
from stator.loop.scalar import FLOATS
from stator.runtime.artifact import Unit
from stator.runtime.toolchain import open_store
from stator.sizes import hint
from stator.targets.cuda import toolchain

#: How many candidates of a kernel are timed.
TRIED = 16
#: Calls in a sample, and samples, of which the least counts.
CALLS, SAMPLES = 20, 3
#: Seconds of a sample, after which a slow candidate is called less often.
LONG = 0.02
#: What is part of keys: raised when the text of products or attention changes.
FORMAT = 1
_SHAPES: Mapping[str, type[Tiling] | type[Rows]] = {"Tiling": Tiling, "Rows": Rows}


@dataclass(frozen=True, slots=True)
class Found:
    """The fastest shape of a kernel; of each that was tried, the seconds that it takes or why it does not run."""

    shape: triton.Shape
    tried: tuple[tuple[str, float | str], ...]

    def __str__(self) -> str:
        times = [time for _, time in self.tried if isinstance(time, float)]
        failed = len(self.tried) - len(times)
        more = f", {failed} do not run" if failed else ""
        return f"{self.shape}: {min(times) * 1e6:.1f} µs, the fastest of {len(times)}{more}"


def shapes(kernels: Iterable[Kernel], device: Device, options: Options) -> dict[Kernel, Found]:
    """The fastest shape of each kernel that has several: as kept, or measured now."""
    store = open_store(options)
    several = {kernel: listed for kernel in kernels if (listed := candidates(kernel, device))}
    found = {kernel: _kept(store, key(kernel, device, options)) for kernel in several}
    missing = {kernel: several[kernel] for kernel, kept in found.items() if kept is None}
    for kernel, measured in _measured(missing, device, options).items():
        found[kernel] = measured
        kept = {"kind": type(measured.shape).__name__, "shape": asdict(measured.shape), "tried": measured.tried}
        store.put(key(kernel, device, options), json.dumps(kept).encode())
        log.record(log.TILING, told=str(measured), kernel=kernel.text(), tried=list(measured.tried))
    return {kernel: kept for kernel, kept in found.items() if kept is not None}


def candidates(kernel: Kernel, device: Device) -> Sequence[triton.Shape]:
    """What is tried, the one that is taken to be the fastest first; nothing for other kernels."""
    if kernel.attention is not None:
        return attention.candidates(kernel.attention, device)[:TRIED]
    product = matmul_of(kernel, device)
    return matmul.candidates(product, device)[:TRIED] if product is not None else ()


def key(kernel: Kernel, device: Device, options: Options) -> str:
    """The place in the store of what was found for a kernel by a compiler, under the numerics that its text is of."""
    import torch  # which says what Triton it has; the package itself does not need it

    hints, how = [hint(symbol.size) for symbol in kernel.symbols], (options.triton, options.numerics)
    return "tiles-" + key_of(FORMAT, *how, kernel.text(), str(hints), str(device), torch.__version__)


def _kept(store: Store, place: str) -> Found | None:
    """What is kept; what another version has written is nothing."""
    data = store.get(place)
    try:
        read = json.loads(data) if data is not None else None
        if read is None:
            return None
        return Found(_SHAPES[read["kind"]](**read["shape"]), tuple([(name, time) for name, time in read["tried"]]))
    except (ValueError, TypeError, KeyError):
        return None


def _measured(
    several: Mapping[Kernel, Sequence[triton.Shape]], device: Device, options: Options
) -> dict[Kernel, Found]:
    """All candidates of all kernels are compiled side by side, then timed one after the other."""
    building = toolchain.building(options)
    units: dict[tuple[Kernel, triton.Shape], Sequence[Unit]] = {}
    for kernel, listed in several.items():
        for shape in listed:
            source = triton.emit([kernel], device, ["tried"], shapes={kernel: shape}, rounds=options.rounds)
            units[kernel, shape] = building.begin([Unit(source, ("tried",), (), "triton")], device.kind, {})
    building.finish()
    found: dict[Kernel, Found] = {}
    for kernel, listed in several.items():
        times = _times([units[kernel, shape] for shape in listed], kernel, device, options)
        told = tuple([(str(shape), time) for shape, time in zip(listed, times, strict=True)])
        ran = [(time, i) for i, time in enumerate(times) if isinstance(time, float)]
        if ran:
            found[kernel] = Found(listed[min(ran)[1]], told)
        else:
            log.record(log.NOTE, text=f"none of {len(listed)} shapes of a kernel runs: {told[0][1]}")
    return found


def _times(listed: Sequence[Sequence[Unit]], kernel: Kernel, device: Device, options: Options) -> list[float | str]:
    """What each takes; nothing where there is no memory to try them on."""
    import torch  # the package itself does not need torch

    try:
        arguments = _arguments(kernel, device)
    except torch.OutOfMemoryError as error:
        return [f"{type(error).__name__}: {error}".splitlines()[0]] * len(listed)
    return [_timed(units, arguments, device, options) for units in listed]


def _timed(units: Sequence[Unit], arguments: Sequence[Any], device: Device, options: Options) -> float | str:
    """Seconds, or why it does not run: a candidate may ask for more than a multiprocessor has."""
    try:
        kernel = toolchain.load(units, device.kind, options)["tried"]
        kernel(*arguments)
        once = toolchain.seconds(lambda: kernel(*arguments), 1)
        calls = max(1, min(CALLS, int(LONG / max(once, 1e-6))))
        return min([toolchain.seconds(lambda: kernel(*arguments), calls) for _ in range(SAMPLES)])
    except Exception as error:
        return f"{type(error).__name__}: {error}".splitlines()[0]


def _arguments(kernel: Kernel, device: Device) -> list[Any]:
    """Memory for each parameter, with random numbers in floats and zeros elsewhere, and the sizes."""
    import torch  # the package itself does not need torch

    random = torch.Generator(device.kind).manual_seed(0)
    made: list[Any] = []
    for param in kernel.params:
        memory = torch.zeros(hint(param.numel), dtype=getattr(torch, TORCH[param.dtype]), device=device.kind)
        made.append(memory.normal_(generator=random) if param.dtype in FLOATS else memory)
    return made + [hint(symbol.size) for symbol in kernel.symbols]
