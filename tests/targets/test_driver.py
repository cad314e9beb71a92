"""Loading by the driver: in which context, with what shared memory, and what is raised. The driver is Python here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from stator.targets.cuda import driver
from stator.targets.cuda.driver import OUT_OF_MEMORY, DriverError

NAMES = {1: b"CUDA_ERROR_INVALID_VALUE", 2: b"CUDA_ERROR_OUT_OF_MEMORY", 200: b"CUDA_ERROR_INVALID_IMAGE"}


class Driver:
    """Keeps what it is called with; `failing` has the statuses that calls of a function give, one after the other."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.contexts = [0x11]
        self.failing: dict[str, list[int]] = {}

    def status(self, name: str, *told: Any) -> int:
        self.calls.append((name, *told))
        return self.failing.get(name, [0]).pop(0) if self.failing.get(name) else 0

    def cuInit(self, flags: int) -> int:
        return self.status("init")

    def cuDeviceGet(self, found: Any, number: int) -> int:
        found._obj.value = 40 + number
        return self.status("device", number)

    def cuDevicePrimaryCtxRetain(self, found: Any, device: Any) -> int:
        found._obj.value = 0x1000 + device.value
        return self.status("retain", device.value)

    def cuCtxPushCurrent_v2(self, context: Any) -> int:
        self.contexts.append(context.value)
        return self.status("push")

    def cuCtxPopCurrent_v2(self, found: Any) -> int:
        found._obj.value = self.contexts.pop()
        return self.status("pop")

    def cuModuleLoadData(self, found: Any, image: bytes) -> int:
        found._obj.value = 0x2000
        return self.status("load", image, self.contexts[-1])

    def cuModuleGetFunction(self, found: Any, module: Any, name: bytes) -> int:
        found._obj.value = 0x3000
        return self.status("function", module.value, name)

    def cuFuncSetAttribute(self, function: Any, attribute: int, value: int) -> int:
        return self.status("attribute", function.value, attribute, value)

    def cuGetErrorName(self, status: int, found: Any) -> int:
        found._obj.value = NAMES.get(status)
        return 0 if status in NAMES else 1


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[Driver]:
    made = Driver()
    monkeypatch.setattr(driver, "library", lambda: made)
    driver._context.cache_clear()
    yield made
    driver._context.cache_clear()


def test_a_binary_is_loaded_into_the_primary_context_of_its_device(fake: Driver) -> None:
    assert driver.load(b"elf", "mine", 100, 2) == (0x3000, 0x1000 + 42)
    assert ("load", b"elf", 0x1000 + 42) in fake.calls and ("function", 0x2000, b"mine") in fake.calls
    assert fake.contexts == [0x11]  # as before
    driver.load(b"elf", "mine", 100, 2)
    assert [call[0] for call in fake.calls].count("retain") == 1


def test_shared_memory_beyond_what_is_always_there_is_asked_for(fake: Driver) -> None:
    for shared in (48 << 10, (48 << 10) + 1):
        driver.load(b"elf", "mine", shared, 0)
    assert [call for call in fake.calls if call[0] == "attribute"] == [("attribute", 0x3000, 8, (48 << 10) + 1)]


@pytest.mark.parametrize(
    ("function", "told"),
    [("load", "mine was loaded"), ("function", "mine was looked for"), ("attribute", "asks for 99999 bytes of shared")],
)
def test_what_is_refused_has_the_drivers_name(fake: Driver, function: str, told: str) -> None:
    fake.failing[function] = [200]
    with pytest.raises(DriverError, match=rf"CUDA_ERROR_INVALID_IMAGE \(200\) where .*{told}"):
        driver.load(b"elf", "mine", 99999, 0)
    assert fake.contexts == [0x11]
    fake.failing[function] = [12345]
    with pytest.raises(DriverError, match=r"an unknown error of the driver \(12345\)"):
        driver.load(b"elf", "mine", 99999, 0)


def test_memory_that_pytorch_keeps_is_given_back_for_a_binary(fake: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: fake.calls.append(("empty",)))
    fake.failing["load"] = [OUT_OF_MEMORY]
    assert driver.load(b"elf", "mine", 0, 0) == (0x3000, 0x1000 + 40)
    assert [call[0] for call in fake.calls if call[0] in ("load", "empty")] == ["load", "empty", "load"]
    fake.failing["load"] = [OUT_OF_MEMORY, OUT_OF_MEMORY]
    with pytest.raises(DriverError, match="OUT_OF_MEMORY"):
        driver.load(b"elf", "mine", 0, 0)


def test_an_error_of_an_earlier_kernel_is_pytorchs(fake: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    def synchronize() -> None:
        raise RuntimeError("CUDA error: device-side assert triggered")

    monkeypatch.setattr(torch.cuda, "synchronize", synchronize)
    with pytest.raises(RuntimeError, match="device-side assert"):
        driver.refused("mine", 710)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    with pytest.raises(DriverError, match=r"CUDA_ERROR_INVALID_VALUE \(1\) where mine was launched"):
        driver.refused("mine", 1)


def test_without_a_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "LIBRARY", "libnowhere.so")
    with pytest.raises(NotImplementedError, match="kernels cannot be launched: libnowhere"):
        driver.library.__wrapped__()
