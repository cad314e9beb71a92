"""Variances and norms of rows with infinities, NaN, the largest numbers and denormals among them, against eager.

All forms of each row kind are compiled in one graph and judged as the random programs are: what no other way of eager's
explains is a fault.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import stator
from stator.coverage.compare import Seen, judged, observe_on
from stator.coverage.ways import WideResults

Form = Callable[[Tensor], object]
FORMS: dict[str, Form] = {
    "all": lambda x: (torch.var_mean(x), torch.std_mean(x, correction=0), x.var(), x.std()),
    "last dim": lambda x: (x.var(-1), x.std(-1, correction=0), torch.var_mean(x, -1, keepdim=True)),
    "outer dim": lambda x: (x.var(0), x.std(0, keepdim=True), torch.std_mean(x, 0, correction=0)),
    "several dims": lambda x: (x.var((0, 2)), x.std((0, 1), correction=0), torch.var_mean(x, (1, 2))),
    "batch norm": lambda x: F.batch_norm(x, None, None, training=True),
    "instance norm": F.instance_norm,
    "layer norm": lambda x: F.layer_norm(x, x.shape[-1:]),
    "group norm": lambda x: F.group_norm(x, 2),
}
#: What lies among the other numbers, of the limits of a dtype.
ODD: dict[str, Callable[[torch.finfo], tuple[float, ...]]] = {
    "an infinity": lambda limits: (math.inf,),
    "both infinities": lambda limits: (math.inf, -math.inf),
    "NaN": lambda limits: (math.nan,),
    "the largest": lambda limits: (limits.max,),
    "the largest and the lowest": lambda limits: (limits.max, limits.min),
    "denormals and zeros": lambda limits: (limits.tiny / 4, -0.0),
}


def rows(dtype: torch.dtype, odd: tuple[float, ...]) -> Tensor:
    """The odd numbers at the start, in the middle and at the end of a row; most rows have none."""
    x = torch.randn(3, 4, 21, generator=torch.Generator().manual_seed(5), dtype=torch.float64).to(dtype)
    for number, value in enumerate(odd):
        for row, at in enumerate((0, 9, 20)):
            x[row, row, (at + number) % 21] = value
    return x


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", FORMS)
def test_variances_of_odd_numbers(name: str, dtype: torch.dtype) -> None:
    compiled = stator.compile(FORMS[name], fullgraph=True, options={"cache": False, "strict": True})
    found = []
    for odd, values in ODD.items():
        given = rows(dtype, values(torch.finfo(dtype)))

        def run(
            function: Form = FORMS[name],
            noise: float = 0.0,
            wide: bool = False,
            within: Callable[[], AbstractContextManager[object]] = nullcontext,
            given: Tensor = given,
        ) -> Seen:
            shake = torch.randn(given.shape, generator=torch.Generator().manual_seed(7), dtype=torch.float64)
            moved = (given.double() * (1 + noise * torch.finfo(given.dtype).eps * shake)).to(given.dtype)
            x = torch.where(moved.isfinite(), moved, given).to(torch.float64 if wide else given.dtype).requires_grad_()
            return observe_on(function, [x], [x], noise=noise, within=WideResults if wide else within)

        found += [f"{odd}: {difference}" for difference in judged(run(compiled), run, run())]
    assert not found


@pytest.mark.parametrize("name", ["batch norm", "instance norm", "layer norm", "group norm"])
def test_gradients_where_no_deviation_is_known_are_zeros(name: str) -> None:
    """Squares overflow, so that 1 / deviation is 0; products of gradients and deviations, summed, need not."""
    large = torch.finfo(torch.float32).max / 8
    x = (torch.rand(64, 4, 4, generator=torch.Generator().manual_seed(3)) * 2 - 1) * large
    x = (x.transpose(0, 1).contiguous() if name == "batch norm" else x).requires_grad_()
    out = stator.compile(FORMS[name], fullgraph=True, options={"cache": False, "strict": True})(x)
    (found,) = torch.autograd.grad(out, x, 4 * torch.randn(out.shape, generator=torch.Generator().manual_seed(4)))
    assert torch.equal(found, torch.zeros_like(x))
