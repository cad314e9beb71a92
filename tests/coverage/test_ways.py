"""What the tolerance of comparisons is measured by: eager, rounded at random or with other instructions."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from stator.coverage.compare import Seen, judged, observe_on
from stator.coverage.ways import Elsewhere, Plain, RandomRounding

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def run(function: object, *inputs: torch.Tensor, **how: object) -> Seen:
    leaves = [x.clone().requires_grad_(x.is_floating_point()) for x in inputs]
    return observe_on(function, leaves, leaves, **how)  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_what_is_rounded_moves_by_a_rounding_error(dtype: torch.dtype) -> None:
    x = torch.rand(100, generator=torch.Generator().manual_seed(1)).to(dtype) + 0.5
    with RandomRounding(0):
        moved = x.sin()
    off = (moved.double() - x.sin().double()).abs()
    assert 0 < off.max() <= 8 * torch.finfo(dtype).eps
    assert (off > 0).double().mean() > 0.3


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_what_is_exact_stays(dtype: torch.dtype) -> None:
    x = (torch.rand(8, 9, generator=torch.Generator().manual_seed(2)) - 0.5).to(dtype)
    whole = torch.arange(9).to(dtype)
    for function in (
        lambda: x.amax(1), lambda: x.sort(1)[0], lambda: -x.abs(), lambda: x * 2, lambda: whole + whole,
        lambda: torch.where(x > 0, x, 0), lambda: x.to(torch.bfloat16), lambda: x[:, ::2].clone(), lambda: whole / 2,
    ):  # fmt: skip
        want = function()
        with RandomRounding(0):
            assert torch.equal(function(), want)


def test_in_place_results_move_too() -> None:
    x = torch.rand(50, generator=torch.Generator().manual_seed(4))
    y = x.clone()
    with RandomRounding(0):
        y.mul_(0.7)
    assert 0 < (y - x * 0.7).abs().max() < 1e-6


@pytest.mark.parametrize("function", [F.hardshrink, F.softshrink, F.selu, F.hardtanh])
def test_elementwise_operators_are_computed_in_both_ways(function: object) -> None:
    x = torch.tensor([torch.nan, 1.0])
    given = [run(function, x, within=lambda v=v: Elsewhere(vectors=v)).gradients[0] for v in (True, False)]
    alone = run(function, x, within=Plain).gradients[0]
    many = run(function, x.repeat_interleave(64)).gradients[0]
    assert alone is not None and many is not None and given[0] is not None and given[1] is not None
    assert not torch.equal(given[0], given[1])
    torch.testing.assert_close(given[1].isnan(), alone.isnan())
    torch.testing.assert_close(given[0].isnan(), many[::64].isnan())


def judge(ours: object, eager: object, *inputs: torch.Tensor) -> list[str]:
    return judged(
        run(ours, *inputs), lambda noise=0.0, wide=False, **how: run(eager, *inputs, **how), run(eager, *inputs)
    )


def test_terms_that_cancel_are_no_fault() -> None:
    x = torch.rand(1000, generator=torch.Generator().manual_seed(3)) + 0.5
    assert (
        judge(lambda x: (x.sin() * 3 - x.sin()) - 2 * x.sin(), lambda x: x.sin() * 3 - (x.sin() + 2 * x.sin()), x) == []
    )


@pytest.mark.parametrize(
    "wrong",
    [
        lambda x: (x.sin() * 3).floor() + 1,
        lambda x: x.sin() * 1.0001,
        lambda x: torch.where(x == 0, torch.nan, x.sin()),
        lambda x: x.sin().detach() + 0 * x,
    ],
)
def test_faults_are_no_rounding(wrong: object) -> None:
    x = torch.cat([torch.rand(100, generator=torch.Generator().manual_seed(3)) + 0.5, torch.zeros(1)])
    assert judge(wrong, lambda x: x.sin(), x)


def test_a_formula_that_differs_under_a_mode_is_no_excuse() -> None:
    """Autograd divides the product where no factor is 0, unless a mode watches: that is not eager's own error."""
    x = torch.tensor([torch.inf, 2.0, 3.0])

    def ours(x: torch.Tensor) -> torch.Tensor:
        return x[0] * x[1] * x[2]

    assert judge(ours, lambda x: x.prod(), x)


def test_what_was_overwritten_unnoticed_is_no_measure() -> None:
    def spoilt(x: torch.Tensor) -> torch.Tensor:
        y = x * 1
        product = torch.kron(y, y)
        y.abs_()
        return product

    x = torch.tensor([-1.0, 2.0])
    assert judge(lambda x: torch.kron(x * 1, x * 1), spoilt, x) == []
    assert judge(lambda x: torch.kron(x * 1, x.detach()), lambda x: torch.kron(x * 1, x * 1), x)


def test_a_written_input_is_a_result() -> None:
    x, w = torch.ones(3), torch.ones(3)
    leaf = w.clone().requires_grad_()
    seen = observe_on(lambda x, w: x.mul_(w).sin(), [x, leaf], [x, leaf])
    assert x.requires_grad and len(seen.gradients) == 1


@pytest.mark.parametrize(
    "way", [lambda: RandomRounding(0), lambda: Elsewhere(vectors=True), lambda: Elsewhere(vectors=False)]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_zeros_without_memory_are_not_read(dtype: torch.dtype, way: object) -> None:
    """The slope of `sgn` is such zeros; kernels called below a mode read at no address."""
    for function in (lambda x: torch.sgn(x).cumprod(0), lambda x: torch.sgn(x[1:].t() / 3) + x.sum()):
        found = run(function, torch.rand(17, 17, dtype=dtype) + 1, within=way)
        want = run(function, torch.rand(17, 17, dtype=dtype) + 1)
        assert found.backward_failed is None
        torch.testing.assert_close(found.gradients, want.gradients)
