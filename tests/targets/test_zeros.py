"""Zeros of a GPU: what is asked of its driver."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from stator.targets.cuda import driver, zeros

MIB = 1 << 20


class Driver:
    """Says yes, and remembers what was asked; memory comes in pieces of two megabytes."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, list[Any]]] = []
        self.addresses = 1 << 40

    def __getattr__(self, name: str) -> Any:
        def call(*given: Any) -> int:
            self.calls.append((name, [getattr(value, "value", value) for value in given]))
            match name:
                case "cuMemGetAllocationGranularity":
                    given[0]._obj.value = 2 * MIB
                case "cuMemCreate":
                    given[0]._obj.value = 77
                case "cuMemAddressReserve":
                    given[0]._obj.value = self.addresses
                    self.addresses += given[1].value
            return 0

        return call


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[Driver]:
    found = Driver()
    monkeypatch.setattr(driver, "library", lambda: found)
    zeros._piece.cache_clear()
    yield found
    zeros._piece.cache_clear()


def test_one_piece_is_mapped_again_and_again(asked: Driver) -> None:
    assert zeros._mapped(0, 5 * MIB) == (1 << 40, 8 * MIB)
    maps = [given for name, given in asked.calls if name == "cuMemMap"]
    assert maps == [[(1 << 40) + i * 2 * MIB, 2 * MIB, 0, 77, 0] for i in range(4)]
    names = [name for name, _ in asked.calls]
    assert names.index("cuMemSetAccess") < names.index("cuMemsetD8_v2") < names.index("cuCtxSynchronize")
    assert zeros._mapped(0, 1) == ((1 << 40) + 8 * MIB, 2 * MIB)
    assert [name for name, _ in asked.calls].count("cuMemCreate") == 1


def test_who_asks_again_gets_the_same_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also once there is a longer row."""
    torch = pytest.importorskip("torch")

    @contextmanager
    def primary(device: int) -> Iterator[int]:
        yield 0

    made: list[int] = []

    def mapped(number: int, nbytes: int) -> tuple[int, int]:
        made.append(nbytes)
        return len(made), nbytes

    monkeypatch.setattr(zeros, "_rows", {})
    monkeypatch.setattr(zeros, "_is_supported", lambda number: number == 0)
    monkeypatch.setattr(zeros, "_mapped", mapped)
    monkeypatch.setattr(driver, "primary", primary)
    monkeypatch.setattr(torch, "as_tensor", lambda row, device: torch.empty(row.__cuda_array_interface__["shape"]))
    short = zeros.row(0, 10)
    long = zeros.row(0, 100)
    assert zeros.row(0, 10) is short and zeros.row(0, 11) is long is zeros.row(0, 100) and made == [10, 100]
    assert zeros.row(1, 10) is None
