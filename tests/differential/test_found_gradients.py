"""Gradients of gradients, and tangents, that programs from outside found wrong."""

from __future__ import annotations

import pytest
import torch

import stator


def penalty(function: object, x: torch.Tensor) -> torch.Tensor:
    y = function(x)  # type: ignore[operator]
    (first,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    (second,) = torch.autograd.grad((first**2).sum() + y.sum(), x)
    return second


@pytest.mark.parametrize("function", [lambda x: x.sin() * x, lambda x: x.exp().tanh(), lambda x: x * x * x])
def test_second_derivatives(function: object) -> None:
    x = torch.randn(5, requires_grad=True)
    compiled = stator.compile(function, fullgraph=True, options={"strict": True})
    torch.testing.assert_close(penalty(compiled, x), penalty(function, x))


def test_second_derivatives_are_refused_not_dropped() -> None:
    x = torch.randn(5, requires_grad=True)
    compiled = stator.compile(lambda x: torch.dropout(x.sin(), 0.5, True) * x, fullgraph=True, options={"strict": True})
    with pytest.raises(stator.base.errors.StatorError, match="double backward"):
        penalty(compiled, x)


def test_tangents_of_every_kind() -> None:
    compiled = stator.compile(lambda x: x * 3, fullgraph=True, options={"strict": True})
    x = torch.randn(3, requires_grad=True)
    y = compiled(x)
    negative = torch.ones(3, dtype=torch.complex64).mul(1j).conj().imag
    assert negative.is_neg()
    tangents = [torch._efficientzerotensor(3), negative, torch.ones(3).to_sparse(), torch.ones(1).expand(3)]
    for tangent, want in zip(tangents, (0.0, -3.0, 3.0, 3.0), strict=True):
        (got,) = torch.autograd.grad(y, x, tangent, retain_graph=True)
        assert got.tolist() == [want] * 3
