"""Gradients whose formula depends on data, and the product's table of them."""

from __future__ import annotations

import pytest
import torch

import stator
from stator.coverage.database import operators
from stator.graphs.formulas import FORMULAS
from tests.differential.formulas import differing

#: What the scan of all operators finds, in one version of PyTorch or another.
FOUND = ("prod", "cumprod", "max", "min", "median", "nanmedian")
ENTRIES = {
    entry.name: entry
    for entry in operators()
    if entry.name in FOUND and entry.variant_test_name in ("", "reduction_no_dim")
}


@pytest.mark.parametrize("name", FOUND)
def test_gradients_are_those_of_eager_without_a_mode(name: str) -> None:
    found = list(differing(ENTRIES[name]))
    assert found or name == "cumprod"  # one formula from 2.13 on
    assert [text for ok, text in found if not ok] == []


def test_the_table_names_nodes_of_autograd() -> None:
    x = torch.rand(3, 4, requires_grad=True)
    results = (x.prod(), x.prod(0), x.cumprod(0), x.max(), x.min(), x.median(), x.nanmedian())
    assert {result.grad_fn.name() for result in results if result.grad_fn is not None} == FORMULAS.keys()


@pytest.mark.parametrize("dim", [0, -1])
def test_gradients_inside_the_function(dim: int) -> None:
    def step(x: torch.Tensor) -> torch.Tensor:
        product = x.prod(dim).sum() + x.max() + x.cumprod(dim).sum()
        return torch.autograd.grad(product, x)[0]

    x = torch.tensor([[torch.inf, 2.0, 3.0], [0.5, 4.0, 5.0]], requires_grad=True)
    compiled = stator.compile(step, fullgraph=True, options={"strict": True, "cache": False})
    torch.testing.assert_close(compiled(x), step(x), equal_nan=True)


def test_second_derivatives_are_those_of_the_formula_below_a_mode() -> None:
    def step(x: torch.Tensor) -> torch.Tensor:
        (first,) = torch.autograd.grad(x.prod() + x.cumprod(0).sum(), x, create_graph=True)
        return torch.autograd.grad(first.square().sum(), x)[0]

    x = torch.rand(4, dtype=torch.float64, requires_grad=True)
    compiled = stator.compile(step, fullgraph=True, options={"strict": True, "cache": False})
    torch.testing.assert_close(compiled(x), step(x))


@pytest.mark.parametrize("zeros", [0, 1, 2])
def test_sizes_that_change(zeros: int) -> None:
    compiled = stator.compile(
        lambda x: (x.prod(), x.prod(-1), x.cumprod(0)), fullgraph=True, options={"strict": True, "cache": False}
    )
    for size in (3, 4, 6):
        x = torch.rand(size, 5, dtype=torch.float64)
        x[0, :zeros] = 0
        x.requires_grad_()
        (got,) = torch.autograd.grad([r.sum() for r in compiled(x)], x)
        (want,) = torch.autograd.grad([r.sum() for r in (x.prod(), x.prod(-1), x.cumprod(0))], x)
        torch.testing.assert_close(got, want)
