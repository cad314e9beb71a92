"""Values that are kept until a tensor that they were computed from is written to."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch

from stator._native import Frozen, tensor_access

SAMPLES = torch.zeros(3), torch.zeros(3)

pytestmark = pytest.mark.skipif(tensor_access() != "raw", reason="nothing is kept")


def frozen(tensors: list[torch.Tensor], compute: Callable[[bool, bool], Any], **others: Any) -> Frozen:
    def hold() -> list[torch.Tensor]:
        counters = [tensor.detach() for tensor in tensors]
        for counter in counters:
            counter.data = torch.empty(0)
        return counters

    watched = tuple([(tensor, tensor.nbytes, tensor.numel() < 100) for tensor in tensors])
    given: dict[str, Any] = {"forward": tuple, "attributes": watched, "hold": hold, "compute": compute} | others
    return Frozen(given["forward"], given["attributes"], given["hold"], given["compute"], SAMPLES)


def test_values_come_last_and_are_kept() -> None:
    x, seen = torch.arange(4.0), []
    made = frozen([x], lambda kept, alone: (seen.append(kept), (x.sum(),))[1])
    assert not made.fresh
    for _ in range(2):
        assert [float(value) for value in made([torch.tensor(1.0)])] == [1, 6] and made.fresh
    x[0] = 4
    assert not made.fresh and float(made([])[0]) == 10 and seen == [True, True]  # type: ignore[arg-type]


@pytest.mark.parametrize("size", [1, 7, 99, 4097])
def test_what_no_version_tells(size: int) -> None:
    """A small tensor is compared as a whole, of a large one the ends at least."""
    x = torch.zeros(size)
    made = frozen([x], lambda kept, alone: ())
    made([])
    for place in {0, size - 1, *([size // 2] if size < 100 else [])}:
        assert made.fresh
        torch.batch_norm(
            torch.full((2, 1), place + 1.0), None, None, x[place : place + 1], torch.ones(1), True, 1, 0, False
        )
        assert x[place] == place + 1 and not made.fresh
        made([])


def test_a_write_while_it_is_computed() -> None:
    x = torch.zeros(4)
    made = frozen([x], lambda kept, alone: (x.sum(), x.add_(1))[:1])
    assert [float(made([])[0]) for _ in range(3)] == [0, 4, 8] and not made.fresh


@pytest.mark.usefixtures("few_objects")
def test_one_that_is_gone_is_forgotten() -> None:
    x = torch.zeros(4)
    first, second = (frozen([x], lambda kept, alone: ()) for _ in range(2))
    first([]), second([])
    del first
    gc.collect()
    assert second.fresh
    assert x.data.shape == (4,) and not second.fresh


def test_mistakes_are_said() -> None:
    x = torch.zeros(4)
    with pytest.raises(TypeError, match="takes a list"):
        frozen([x], lambda kept, alone: ())(())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="a tuple"):
        frozen([x], lambda kept, alone: [])([])
    with pytest.raises(ZeroDivisionError):
        frozen([x], lambda kept, alone: 1 // 0)([])
    with pytest.raises(TypeError, match="an attribute"):
        frozen([x], lambda kept, alone: (), attributes=((x, -1, True),))
    with pytest.raises(TypeError, match="an attribute"):
        frozen([x], lambda kept, alone: (), attributes=(x,))


def test_looking_is_cheap() -> None:
    """A few nanoseconds a tensor; the bound leaves room for a machine that is busy."""
    made = frozen([torch.zeros(64, 64) for _ in range(200)], lambda kept, alone: ())
    made([])
    best = 1.0
    for _ in range(50):
        start = time.perf_counter()
        for _ in range(20):
            made([])
        best = min(best, (time.perf_counter() - start) / 20)
    assert best < 20e-6
