"""Special functions in C++, over random and special values: as near to eager's float64 as eager is, or nearer."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor

import stator
from stator.loop.scalar import OPS
from stator.prims.special_functions import FUNCTIONS

INF, NAN = float("inf"), float("nan")
ODD = [0.0, -0.0, 1.0, -1.0, 2.0, -2.5, INF, -INF, NAN, 1e-30, 1e30, -30.0, 30.0, 0.5, -0.5, 3.0, -3.0, 8.0, 5.0, -2.09]
S = torch.special
#: Named otherwise in `torch.special`, or not there.
NAMED = {
    "lgamma": torch.lgamma, "nextafter": torch.nextafter, "trigamma": lambda x: torch.polygamma(1, x),
    "digamma": torch.digamma, "i0": torch.i0, "log10": torch.log10,
}  # fmt: skip

#: What grows as an exponential does, and the dtypes that eager has kernels of.
GROWING = [
    ("i0", torch.bfloat16),
    *itertools.product(["i0", "i1", "modified_bessel_i0", "modified_bessel_i1"], [torch.float32, torch.float64]),
]


def function_of(name: str) -> Callable[..., Tensor]:
    return NAMED.get(name) or getattr(S, name.removeprefix("special_"))


def inputs_of(name: str) -> Iterator[Tensor]:
    torch.manual_seed(len(name))
    spread = torch.cat([torch.randn(150) * 5, torch.rand(150) * 2 - 1, torch.rand(100) * 40 - 10])
    if name == "nextafter":
        pairs = torch.tensor(list(itertools.product(ODD, ODD)))
        positive = torch.rand(300, 2) * torch.tensor([30.0, 40.0]) + torch.tensor([1.1, 0.0])
        values = torch.cat([pairs, positive])
        yield values[:, 0].contiguous()
        yield values[:, 1].contiguous()
        return
    yield torch.cat([spread, torch.tensor(ODD)])


def errors(found: Tensor, exact: Tensor) -> Tensor:
    """Relative errors; 0 where both are the same, or not a number."""
    same = (found.double() == exact) | (found.isnan() & exact.isnan())
    apart = (found.double() - exact).abs() / exact.abs().clamp(torch.finfo(torch.float32).tiny)
    return torch.where(same, 0.0, apart)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_is_as_near_as_eager(name: str) -> None:
    function = function_of(name)
    given = list(inputs_of(name))
    compiled = stator.compile(lambda *xs: function(*xs), fullgraph=True)
    for dtype in (torch.float32, torch.float64):
        operands = [x.to(dtype) for x in given]
        eager, ours = function(*operands), compiled(*operands)
        if name == "nextafter":
            assert torch.equal(torch.nan_to_num(ours, 7), torch.nan_to_num(eager, 7))
            continue
        exact = function(*[x.double() for x in operands])
        found, theirs = errors(ours, exact), errors(eager, exact)
        allowed = (2 * theirs + 4 * torch.finfo(dtype).eps).clamp(1e-12)
        if dtype is torch.float32:  # what float64 holds may be too large for float32, and too large for eager to turn
            allowed = torch.where(eager.isinf() | eager.isnan() | (operands[0].abs() > 1e6), INF, allowed)
        wrong = (~(found <= allowed) & (operands[0].abs() < 1e20)).nonzero().flatten()
        cases = [([x[i].item() for x in operands], ours[i].item(), exact[i].item()) for i in wrong[:5].tolist()]
        assert not cases, (str(dtype), len(wrong), cases)


@pytest.mark.parametrize(("name", "dtype"), GROWING, ids=str)
def test_what_grows_overflows_where_the_exponential_does(name: str, dtype: torch.dtype) -> None:
    """Eager multiplies exp(|x|) by what is less than one: near the largest result the factor overflows alone."""
    limit = math.log(torch.finfo(dtype).max)
    beside = limit * (1 + torch.arange(-50, 51, dtype=torch.float64) * torch.finfo(dtype).eps)
    x = torch.cat([torch.linspace(limit - 1, limit + 5, 301, dtype=torch.float64), beside])
    x = torch.cat([x, -x]).to(dtype)
    function = getattr(S, name)
    eager, ours = function(x), stator.compile(function, fullgraph=True)(x)
    assert 0 < int(eager.isinf().sum()) < x.numel()
    assert torch.equal(ours.isinf(), eager.isinf())
    assert bool((errors(ours, eager.double()) <= 4 * torch.finfo(dtype).eps).all())


def test_the_reference_of_lgamma_is_what_kernels_compute() -> None:
    (x,) = inputs_of("lgamma")
    ours = stator.compile(torch.lgamma, fullgraph=True)(x.double())
    expected = torch.tensor([OPS["lgamma"].compute(value) for value in x.tolist()], dtype=torch.float64)
    assert bool((errors(ours, expected) < 1e-12).all())


def test_the_reference_of_the_inverse_error_function() -> None:
    x = torch.cat(
        [torch.rand(200, dtype=torch.float64) * 2 - 1, torch.tensor([0.0, 1e-300, -1e-9, 1.0, -1.0, 1.5, NAN])]
    )
    found = torch.tensor([OPS["erfinv"].compute(value) for value in x.tolist()], dtype=torch.float64)
    assert bool((errors(found, torch.erfinv(x)) < 1e-14).all())


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_scaled_error_function_at_nothing(dtype: torch.dtype) -> None:
    """1 as eager's, so that its logit is infinite and not 36."""
    x = torch.tensor([0.0, -0.0, 1e-300, -1e-40, 1e-40, 2.0**-53, -(2.0**-60)], dtype=torch.float64).to(dtype)
    found = stator.compile(S.erfcx, fullgraph=True, options={"strict": True})(x)
    assert torch.equal(found, torch.ones_like(x)) and torch.equal(found, S.erfcx(x))
