"""What a GPU is: multiprocessors, caches, registers and memory as its driver says.

All of it is read, so it is the same in every process. A typical one is an H100.
Neighbours: `kernel/blocks.py` decides by it how much of a kernel one block of threads takes.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from stator.base.device import Device
from stator.base.store import Store, key_of
from stator.targets.cuda.platform import NVIDIA, Platform, current
from stator.targets.cuda.toolchain import KIND, number
from stator.targets.cuda.worker import SHARED_BYTES

#: The first of NVIDIA's architectures that begins a kernel while the one before it ends.
OVERLAPPING = 9
#: Of a window that a kernel of ours convolves each channel with.
DEPTHWISE_TAPS = 49


def typical(cores: int = 0, platform: Platform = NVIDIA) -> Device:
    """A maker's typical device."""
    return Device(
        platform.kind, "typical", cores or platform.cores, vector_bytes=16, cache_bytes=platform.cache_bytes,
        launch_cost=3e-6, bandwidth=platform.bandwidth, row_elements=_row(platform.registers), near_bytes=1 << 16,
        warp=platform.warp, waves=4, max_warps=16, columns=64, min_columns=16, column_points=4096, row_points=1024,
        loop_points=4096, thread_points=16, block_bytes=2048, thread_bytes=32, many_loads=8, much_work=256,
        line_bytes=256, short_axis=4, min_row=1 << 16, row_pieces=8, min_rows=32, parts_online=True, row_parts=528,
        row_stages=3, loop_stages=4, packs=True, repeats=True, narrows=True, gathers_pools=True,
        product_work=1 << 16, tile_products=True, tile_sums=4096, core_registers=1 << 16,
        shared_bytes=SHARED_BYTES[90], product_rate=9.9e14,
        assembly=platform.assembly, convolves_innermost=platform is NVIDIA, pads_products=platform is NVIDIA,
        depthwise_taps=DEPTHWISE_TAPS if platform is NVIDIA else 0, wide_products=platform is NVIDIA,
        atomics=platform.atomics, overlaps=platform is NVIDIA,
    )  # fmt: skip


def read(device: str = KIND, threads: int = 0) -> Device:
    """This machine's; threads are the host's."""
    import torch  # no target imports it before it is asked

    found = _read(number(device))
    return found if torch.backends.cudnn.enabled else replace(found, convolves_innermost=False)


@cache
def _read(number: int) -> Device:
    import torch  # no target imports it before it is asked

    found: Any = torch.cuda.get_device_properties(number)
    plain = typical(found.multi_processor_count, current())
    pins = getattr(found, "memory_bus_width", 0) / 8 * getattr(found, "memory_clock_rate", 0) * 1e3
    return replace(
        plain, name=found.name, cache_bytes=found.L2_cache_size, row_elements=_row(found.regs_per_multiprocessor),
        bandwidth=2 * pins or plain.bandwidth, overlaps=plain.overlaps and found.major >= OVERLAPPING,
    )  # fmt: skip


def _row(registers: int) -> int:
    """float32 of a row that a block holds: an eighth of the registers, as a power of two."""
    return 1 << (registers // 8).bit_length() >> 1


def describe(store: Store) -> Mapping[str, str]:
    """The device that is current, and how long a launch takes."""
    import torch

    if not torch.cuda.is_available():
        return {"": "no device"}
    found = read()
    return {
        "": f"{found.name}, {found.cores} multiprocessors",
        "memory": f"{found.bandwidth / 1e9:.0f} GB/s behind {found.cache_bytes >> 20} MiB of cache",
        "launch": f"{_launch(store, found, torch) * 1e6:.1f} µs",
    }


def _launch(store: Store, found: Device, torch: Any) -> float:
    """Seconds until a kernel has been queued, timed once for each store."""
    key = "device-" + key_of(found, torch.__version__)
    if (data := store.get(key)) is None:
        target, best = torch.zeros(1, device=KIND), float("inf")
        for _ in range(20):
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(50):
                target.zero_()
            best = min(best, (time.perf_counter() - start) / 50)
        store.put(key, data := json.dumps(best).encode())
    seconds: float = json.loads(data)
    return seconds
