"""Memory that eager leaves unset, under deterministic algorithms: eager fills it, and so does compiled code."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import stator

MAKERS: dict[str, Callable[..., torch.Tensor]] = {
    "empty": lambda y, dtype: torch.empty(2, 3, dtype=dtype),
    "empty_like": lambda y, dtype: torch.empty_like(y, dtype=dtype),
    "new_empty": lambda y, dtype: y.new_empty(2, 3, dtype=dtype),
    "empty_strided": lambda y, dtype: torch.empty_strided((2, 3), (1, 2), dtype=dtype),
    "empty_permuted": lambda y, dtype: torch.empty_permuted((2, 3), (1, 0), dtype=dtype),
    "new_empty_strided": lambda y, dtype: y.new_empty_strided((2, 3), (4, 1), dtype=dtype),
}
DTYPES = (torch.float32, torch.bfloat16, torch.float64, torch.int64, torch.uint8, torch.bool, torch.complex64)


@pytest.fixture
def deterministic() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def bits(found: torch.Tensor) -> Any:
    return found.isnan() if found.is_floating_point() or found.is_complex() else found


@pytest.mark.parametrize("name", MAKERS)
def test_filled_as_eager_fills_it(name: str, deterministic: None) -> None:
    def program(y: torch.Tensor) -> list[torch.Tensor]:
        return [MAKERS[name](y, dtype) for dtype in DTYPES]

    found, expected = stator.compile(program)(torch.ones(2, 3)), program(torch.ones(2, 3))
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.dtype == theirs.dtype and ours.stride() == theirs.stride()
        assert torch.equal(bits(ours), bits(theirs)), (ours, theirs)


def test_the_switch_is_guarded(deterministic: None) -> None:
    def program(y: torch.Tensor) -> torch.Tensor:
        return torch.empty(3, dtype=torch.int64) + 0 * y.long().sum()

    compiled = stator.compile(program)
    assert torch.equal(compiled(torch.ones(2)), program(torch.ones(2)))
    torch.utils.deterministic.fill_uninitialized_memory = False
    try:
        assert compiled(torch.ones(2)).tolist() == [0, 0, 0]  # not filled: ours is zero
    finally:
        torch.utils.deterministic.fill_uninitialized_memory = True
