"""Complex tensors as memory: writes through their views and conjugates, and results that alias, against eager."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import stator


def _by_conjugate(x: Tensor) -> Tensor:
    x.conj().mul_(2j)
    return x + 1


def _by_parts(x: Tensor) -> Tensor:
    x.real.add_(1)
    x.imag[0] = 3
    return x * 1j


def _by_slice(x: Tensor) -> Tensor:
    x[1:].copy_(x[:-1] * 2)
    return x.sum()


def _by_transpose(x: Tensor) -> Tensor:
    x.t().mul_(3j)
    return x.abs()


def _by_reals(x: Tensor) -> Tensor:
    torch.view_as_real(x).mul_(2)
    return x.conj() * x


WRITES = [_by_conjugate, _by_parts, _by_slice, _by_transpose, _by_reals]


@pytest.mark.parametrize("function", WRITES)
def test_inputs_are_written(function: Callable[[Tensor], Tensor]) -> None:
    ours = torch.randn(3, 4, dtype=torch.complex64)
    eagers = ours.clone()
    result = stator.compile(function, fullgraph=True)(ours)
    torch.testing.assert_close(result, function(eagers))
    torch.testing.assert_close(ours, eagers)
    assert ours._version == eagers._version


@pytest.mark.parametrize("function", WRITES)
def test_intermediates_are_written_and_differentiated(function: Callable[[Tensor], Tensor]) -> None:
    ours = torch.randn(3, 4, dtype=torch.complex64, requires_grad=True)
    eagers = ours.detach().clone().requires_grad_()
    result, expected = stator.compile(lambda x: function(x * 1), fullgraph=True)(ours), function(eagers * 1)
    torch.testing.assert_close(result, expected)
    tangent = torch.randn_like(expected)
    (got,) = torch.autograd.grad(result, ours, tangent)
    (wanted,) = torch.autograd.grad(expected, eagers, tangent)
    torch.testing.assert_close(got, wanted)


VIEWS: dict[str, Callable[[Tensor], Tensor]] = {
    "conj": lambda x: x.conj(),
    "real": lambda x: x.real,
    "imag": lambda x: x[1:].imag,
    "negated": lambda x: x.conj().imag,
    "pairs": lambda x: torch.view_as_real(x),
    "adjoint": lambda x: x.mH,
}


@pytest.mark.parametrize("name", VIEWS)
def test_results_are_views_of_the_input(name: str) -> None:
    ours = torch.randn(3, 4, dtype=torch.complex64)
    eagers = ours.clone()
    result, expected = stator.compile(VIEWS[name], fullgraph=True)(ours), VIEWS[name](eagers)
    facts = [(t.dtype, t.stride(), t.storage_offset(), t.is_conj(), t.is_neg()) for t in (result, expected)]
    assert facts[0] == facts[1]
    assert result.untyped_storage()._cdata == ours.untyped_storage()._cdata
    result.mul_(2)
    expected.mul_(2)
    torch.testing.assert_close(ours, eagers)


@pytest.mark.parametrize("name", VIEWS)
def test_views_of_inputs_and_intermediates_have_gradients(name: str) -> None:
    def f(x: Tensor) -> tuple[Tensor, Tensor]:
        return VIEWS[name](x), VIEWS[name](x * 2j)

    ours = torch.randn(3, 4, dtype=torch.complex64, requires_grad=True)
    eagers = ours.detach().clone().requires_grad_()
    results, expected = stator.compile(f, fullgraph=True)(ours), f(eagers)
    tangents = [torch.randn_like(t.detach().resolve_conj().resolve_neg()) for t in expected]
    for mine, theirs in zip(results, expected, strict=True):
        torch.testing.assert_close(mine, theirs)
        assert (mine.is_conj(), mine.is_neg()) == (theirs.is_conj(), theirs.is_neg())
    (got,) = torch.autograd.grad(results, ours, tangents)
    (wanted,) = torch.autograd.grad(expected, eagers, tangents)
    torch.testing.assert_close(got, wanted)


def test_pairs_of_an_input_are_a_complex_view() -> None:
    ours = torch.randn(5, 2, requires_grad=True)
    result = stator.compile(lambda x: torch.view_as_complex(x)[1:], fullgraph=True)(ours)
    assert result.untyped_storage()._cdata == ours.untyped_storage()._cdata and result.storage_offset() == 1
    torch.testing.assert_close(torch.view_as_real(result), ours[1:])
    (gradient,) = torch.autograd.grad(result, ours, torch.full((4,), 1 + 2j))
    torch.testing.assert_close(gradient, torch.tensor([[0.0, 0.0]] + [[1.0, 2.0]] * 4))


def test_what_eager_says_of_conjugates_is_said() -> None:
    def f(x: Tensor) -> tuple[Tensor, bool, bool]:
        return x + 1, x.conj().is_conj(), x.conj().resolve_conj().is_conj()

    x = torch.randn(3, dtype=torch.complex64)
    assert stator.compile(f, fullgraph=True)(x)[1:] == (True, False)
    with pytest.raises(RuntimeError, match="unresolved conjugated"):
        stator.compile(lambda x: torch.view_as_real(x.conj()), fullgraph=True)(x)
