"""Records of machines: what is read, what stands where nothing can be read, and what people are told."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from stator.base.store import Store
from stator.targets import typical
from stator.targets.cpu import printer
from stator.targets.cpu import record as host
from stator.targets.cuda import record as gpu

H200 = {
    "major": 9,
    "name": "NVIDIA H200", "multi_processor_count": 132, "L2_cache_size": 60 << 20, "regs_per_multiprocessor": 1 << 16,
}  # fmt: skip


def test_what_is_read_is_the_same_twice() -> None:
    found = host.read("cpu", 3)
    assert found == host.read("cpu", 3) and (found.cores, found.threads) == (3, 3)
    assert found.vector_bytes in (16, 32, 64) and found.columns * 4 == found.vector_bytes
    assert host.read().cores == torch.get_num_threads() and host.read().threads == 0


@pytest.mark.parametrize(
    ("sizes", "row", "behind"),
    [({}, 4096, 1 << 20), ({188: 48 << 10, 191: 2 << 20}, 4096, 2 << 20), ({188: 64 << 10, 191: -1}, 8192, 1 << 20)],
)
def test_caches(monkeypatch: pytest.MonkeyPatch, sizes: dict[int, int], row: int, behind: int) -> None:
    def sysconf(name: int) -> int:
        if name not in sizes:
            raise OSError("unknown")
        return sizes[name]

    monkeypatch.setattr(host.os, "sysconf", sysconf)
    found = host.read()
    assert (found.row_elements, found.cache_bytes) == (row, behind)


def test_only_code_for_this_machine_is_compiled_for_it() -> None:
    assert any("native" in flag for flag in printer.flags(host.read()))
    assert not any("native" in flag for flag in printer.flags(typical("cpu")))


def test_memory_is_timed_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(host, "_COPIED", 1 << 20)
    threads = torch.get_num_threads()
    told = host.describe(Store(tmp_path))
    assert told["memory"].endswith("by all") and torch.get_num_threads() == threads
    monkeypatch.setattr(host, "_seconds", None)
    assert host.describe(Store(tmp_path)) == told


@pytest.mark.parametrize(
    ("more", "bandwidth"), [({"memory_bus_width": 6144, "memory_clock_rate": 3201000}, 4.9e12), ({}, 3e12)]
)
def test_a_gpu(monkeypatch: pytest.MonkeyPatch, more: dict[str, int], bandwidth: float) -> None:
    """By its properties, of which older versions of PyTorch tell fewer."""
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda number: SimpleNamespace(**H200, **more))
    found = gpu._read.__wrapped__(0)
    assert (found.kind, found.name, found.cores, found.programs, found.lanes) == ("cuda", "NVIDIA H200", 132, 528, 128)
    assert found.row_elements == 8192 and found.bandwidth == pytest.approx(bandwidth, rel=0.01)


@pytest.mark.parametrize(("major", "overlaps"), [(8, False), (9, True), (10, True)])
def test_a_gpu_begins_a_kernel_before_the_one_in_front_has_ended(
    monkeypatch: pytest.MonkeyPatch, major: int, overlaps: bool
) -> None:
    properties = SimpleNamespace(**H200 | {"major": major})
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda number: properties)
    assert gpu._read.__wrapped__(0).overlaps is overlaps
