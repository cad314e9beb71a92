"""What the host's processor is: vectors, caches and cores are read, how fast its memory is is timed for people.

Only what is read enters decisions: it is the same in every process, and a first call waits for nothing. What an
instruction or a thread pays for are constants of our own kernels (`thread_work`, `product_work`), measured on Zen 4.
Neighbours: `base/processor.py` has the instruction set extensions, `kernel/decisions.py` decides by the record.
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from stator.base.device import HOST, Device
from stator.base.processor import identity, processor
from stator.base.store import Store, key_of

#: Sizes of caches, as glibc's sysconf numbers them; Python has no names for them. Files of the system take 0.4 ms.
_NEAREST, _BEHIND = 188, 191
#: arch_prctl, ARCH_REQ_XCOMP_PERM, the data of tiles: a number of the system, and what Linux says of it.
_ASK_FOR_TILES = 158, 0x1023, 18
#: Caches of a core that it writes before stores past them are faster, also for what reads the result next; and bytes.
#: Eight of 2 MiB: 0.5 to 0.87 of the time, 0.68 to 0.95 read again; four: up to 1.12, read again (Emerald Rapids).
_STREAMED, _LEAST_STREAMED = 8, 16 << 20
#: Bytes that are copied to see how fast memory is: more than caches hold.
_COPIED = 1 << 27


def typical(cores: int = 0) -> Device:
    """Four cores with vectors of 64 bytes."""
    return Device(
        HOST, "typical", cores or 4, vector_bytes=64, cache_bytes=1 << 20, launch_cost=3e-6, bandwidth=2e10,
        row_elements=_row(32 << 10), registers=32, waves=4, columns=16, thread_work=100_000, product_work=65536,
        product_blocks=True, packed_convolutions=True, depthwise_taps=25, double_scans=True,
        stream_bytes=_LEAST_STREAMED,
    )  # fmt: skip


def read(device: str = HOST, threads: int = 0) -> Device:
    """This machine's, with as many cores as torch takes threads."""
    import torch  # no target imports it before it is asked

    nearest, behind = caches()
    width, plain = vector_bytes(), typical(threads or torch.get_num_threads())
    return replace(
        plain, name=identity(), threads=threads, vector_bytes=width, registers=registers(width), columns=width // 4,
        product_blocks=width >= 32, cache_bytes=behind or plain.cache_bytes,
        stream_bytes=max(_STREAMED * behind, _LEAST_STREAMED),
        row_elements=_row(nearest) or plain.row_elements,
        onednn_products=onednn_is_faster(), blas_packs=blas_packs(), onednn_halves=onednn_multiplies_halves(),
        onednn_convolutions=onednn_convolves(), widens_halves=multiplies_halves_slowly(), multiplies_pairs=has_tiles(),
    )  # fmt: skip


def _row(nearest: int) -> int:
    """float32 in half of the nearest cache, as a power of two."""
    return 1 << (nearest // 8).bit_length() >> 1


def vector_bytes() -> int:
    """The width of a vector register."""
    flags = processor().flags
    if {"avx512f", "avx512dq", "avx512vl"} <= flags:
        return 64
    return 32 if {"avx2", "fma"} <= flags else 16


def registers(width: int) -> int:
    """How many registers of this width instructions can name."""
    return 32 if width == 64 or platform.machine() not in ("x86_64", "AMD64") else 16


def caches() -> tuple[int, int]:
    """Bytes of a core's nearest cache of data and of the one behind it; 0 where the system does not say."""
    return _size(_NEAREST), _size(_BEHIND)


def _size(name: int) -> int:
    try:
        return max(os.sysconf(name), 0)
    except (OSError, ValueError):
        return 0


@cache
def onednn_is_faster() -> bool:
    """Whether PyTorch's BLAS leaves half of the processor unused: MKL, with AVX-512 that is not Intel's."""
    import torch

    found = processor()
    blas_is_slow = torch.backends.mkl.is_available() and found.maker != "GenuineIntel" and "avx512f" in found.flags
    return blas_is_slow and torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


@cache
def blas_packs() -> bool:
    """Whether PyTorch's BLAS is MKL on a processor that it is made for, and takes weights in its order."""
    import torch

    made_for = torch.backends.mkl.is_available() and processor().maker == "GenuineIntel"
    return made_for and torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkl, "_mkl_linear")


@cache
def onednn_multiplies_halves() -> bool:
    """Whether PyTorch gives matrices of bfloat16 to oneDNN, by the instructions that it asks for."""
    import torch

    wide = {"avx512bw", "avx512vl", "avx512dq"} <= set(processor().flags)
    return wide and torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


@cache
def multiplies_halves_slowly() -> bool:
    """Whether products of bfloat16 take longer than MKL's of float32, as they do on Intel's without matrix units.

    With the instructions that AVX-512 has for them oneDNN takes 1.3 to 1.9 times as long (Emerald Rapids).
    """
    return blas_packs() and "amx_bf16" not in processor().flags


@cache
def has_tiles() -> bool:
    """Whether the processor multiplies tiles of bfloat16, and the system lets this process do so once it has asked."""
    wide = {"amx_tile", "amx_bf16", "avx512bw"} <= set(processor().flags)
    if not wide or sys.platform != "linux" or platform.machine() != "x86_64":
        return False
    return ctypes.CDLL(None).syscall(*_ASK_FOR_TILES) == 0


@cache
def onednn_convolves() -> bool:
    """Whether PyTorch's convolutions are oneDNN's own: on other processors it calls further libraries."""
    import torch

    fast = {"avx2", "fma"} <= set(processor().flags)
    return fast and torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_convolution_pointwise")


def describe(store: Store) -> Mapping[str, str]:
    """The capability that PyTorch has found, the record, and how fast memory is."""
    import torch

    found = read()
    nearest, behind = caches()
    one, together = _bandwidths(store, torch)
    return {
        "": f"{torch.backends.cpu.get_cpu_capability()}, {found.cores} threads",
        "vectors": f"{found.vector_bytes} bytes",
        "caches": f"{nearest >> 10} and {behind >> 10} KiB a core",
        "memory": f"{one / 1e9:.0f} GB/s by one core, {together / 1e9:.0f} by all",
    }


def _bandwidths(store: Store, torch: Any) -> tuple[float, float]:
    """Bytes a second that a copy reads and writes, with one thread and with all; timed once for each store."""
    threads = torch.get_num_threads()
    key = "device-" + key_of(identity(), caches(), threads, torch.__version__)
    if (data := store.get(key)) is None:
        source = torch.ones(_COPIED, dtype=torch.uint8)
        target = torch.empty_like(source)
        rates = []
        for count in (1, threads):
            torch.set_num_threads(count)
            rates.append(2 * _COPIED / min([_seconds(target.copy_, source) for _ in range(4)]))
        torch.set_num_threads(threads)
        store.put(key, data := json.dumps(rates).encode())
    one, together = json.loads(data)
    return one, together


def _seconds(function: Any, *args: Any) -> float:
    start = time.perf_counter()
    function(*args)
    return time.perf_counter() - start
