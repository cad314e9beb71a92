"""What eager misreads where an operand repeats one element is refused, and nothing else."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import stator
from stator.base.errors import StatorError

OPTIONS = {"strict": True, "cache": False}
ROW = torch.tensor([0.0, 3.0, 1.0, 4.0])


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("median", [torch.median, torch.nanmedian])
def test_a_median_of_one_element_again_and_again(median: Callable[..., tuple[Tensor, Tensor]], dynamic: bool) -> None:
    for function in (lambda x: median(x, 0), lambda x: median(x[0].expand(9, 4), 0)[0]):
        with pytest.raises(StatorError, match="make the operand contiguous"):
            stator.compile(function, dynamic=dynamic, fullgraph=True, options=OPTIONS)(ROW.expand(7, 4))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.median(x, 1),
        lambda x: torch.median(x.contiguous(), 0),
        lambda x: torch.median(x * 1, 0)[0],
        lambda x: torch.median(x.repeat(3, 1), 0)[0],
        lambda x: torch.median(torch.full((5, 3), 2.0), 0)[0],
        lambda x: torch.median(x[:1], 0),
        lambda x: torch.median(x)[None],
    ],
)
def test_other_medians_are_eagers(function: Callable[[Tensor], tuple[Tensor, ...]]) -> None:
    x = ROW.expand(7, 4)
    got = stator.compile(function, fullgraph=True, options=OPTIONS)(x)
    torch.testing.assert_close(tuple(got), tuple(function(x)))
