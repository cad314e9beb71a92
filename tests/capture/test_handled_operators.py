"""A program that raises unless an operator does, and handles that: it is no fault of ours that fakes raised nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import stator
from stator.base import faults

#: What eager refuses for sizes, and for data.
REFUSED: dict[str, Callable[[torch.Tensor, torch.Tensor], object]] = {
    "copy_": lambda a, b: a.copy_(b),
    "add_": lambda a, b: a.add_(b),
    "into a view": lambda a, b: a[0].mul_(b),
    "index_add_": lambda a, b: a.index_add_(0, torch.tensor([0]), b),
    "position": lambda a, b: a[[0, 9]],
    "divisor": lambda a, b: a.long() // torch.zeros(3, dtype=torch.int64),
}


@pytest.mark.filterwarnings("ignore::stator.base.errors.FallbackWarning")
@pytest.mark.parametrize("name", REFUSED)
def test_its_exception_is_handled(name: str) -> None:
    refused = REFUSED[name]

    def program(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, str]:
        try:
            refused(a, b)
        except (RuntimeError, IndexError) as error:
            return a * 10, str(error)
        raise TypeError("nothing was refused")

    before = faults.total()
    compiled = stator.compile(program, backend="aot_eager")
    for _ in range(3):
        a, b = torch.randn(4, 3), torch.randn(5)
        ours, eager = compiled(a, b), program(a, b)
        assert torch.equal(ours[0], eager[0]) and ours[1] == eager[1]
    assert faults.total() == before
