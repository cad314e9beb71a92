"""Views that autograd does not record, of leaves that are views themselves or are none: what requires gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import stator
from stator.graphs.lineage import takes_gradients

VIEWS: dict[str, Callable[[Tensor], Tensor]] = {
    "real": torch.real,
    "imaginary": lambda x: torch.imag(x.to(torch.complex64)) if not x.is_complex() else torch.imag(x),
    "as real": lambda x: torch.view_as_real(x) if x.is_complex() else x.unsqueeze(-1),
    "conjugate": torch.conj,
    "conjugate transposed": lambda x: x.mH,
    "transposed": lambda x: x.mT,
    "detached": lambda x: x.detach(),
    "data": lambda x: x.data,
    "same": lambda x: x.view_as(x),
    "slice": lambda x: x[1:],
    "row": lambda x: x[0],
    "diagonal": lambda x: x.diagonal(),
    "expanded": lambda x: x.expand(2, 4, 4),
    "windows": lambda x: x.unfold(0, 2, 1),
    "strided": lambda x: x.as_strided((2, 2), (1, 2)),
    "chunk": lambda x: x.chunk(2)[1],
    "unbound": lambda x: x.unbind()[0],
    "flat": lambda x: x.reshape(-1),
    "of a view": lambda x: x.unsqueeze(0).squeeze(0).flatten(),
}


def write_unrecorded(view: Tensor) -> Tensor:
    with torch.no_grad():
        return view.mul_(2)


USES: dict[str, Callable[[Tensor], Tensor]] = {
    "returned": lambda view: view,
    "product": lambda view: view * view,
    "sum": lambda view: view.abs().sum(),
    "recorded view": lambda view: view.unsqueeze(0),
    "contiguous": lambda view: view.contiguous(),
    "copies": lambda view: torch.cat([view, view]),
    "written": lambda view: view.mul_(2),
    "overwritten": lambda view: view.copy_(view + 1),
    "written unrecorded": write_unrecorded,
}

#: What makes of a tensor the leaf, and what of the leaf the operand.
KINDS: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]] = {
    "leaf": (lambda x: x, lambda leaf: leaf),
    "leaf and view": (lambda x: x.mT, lambda leaf: leaf),
    "leaf and slice": (lambda x: torch.cat([x, x])[3:7], lambda leaf: leaf),
    "unrecorded view": (lambda x: x, lambda leaf: no_grad(lambda: leaf.mT)),
    "view": (lambda x: x, lambda leaf: leaf.mT),
    "result": (lambda x: x, lambda leaf: leaf * 1),
    "view of a result": (lambda x: x, lambda leaf: (leaf * 1).mT),
    "view of a leaf and view": (lambda x: x.mT, lambda leaf: leaf.mT),
}


def no_grad(make: Callable[[], Tensor]) -> Tensor:
    with torch.no_grad():
        return make()


def outcome(function: Callable[[Tensor], Any], kind: str, dtype: torch.dtype) -> Any:
    """What the call gives, of what gradients come to the leaf; or the kind of error."""
    torch.manual_seed(0)
    make, operand = KINDS[kind]
    leaf = make(torch.randn(4, 4, dtype=dtype)).requires_grad_()
    x = operand(leaf)
    try:
        found = function(x)
        flags = [result.requires_grad for result in found]
        takes = [result.requires_grad and (result.grad_fn is not None or takes_gradients(result)) for result in found]
        total = sum([(result * 1).abs().sum() for result in found if result.requires_grad], torch.zeros(()))
        gradient = torch.autograd.grad(total, leaf, allow_unused=True)[0] if total.requires_grad else None
    except RuntimeError as error:
        return f"{type(error).__name__}: {str(error)[:60]}"
    values = [result.detach().resolve_conj() for result in found]
    return flags, takes, values, gradient, x.requires_grad, x.is_leaf, x._version, x.detach().clone()


#: Every use for what differs most, some for the others; complex numbers where they make other views.
CASES = [
    (name, kind, dtype, list(USES) if kind == "leaf and view" else list(USES)[(i + j) % 4 :: 4])
    for i, name in enumerate(VIEWS)
    for j, kind in enumerate(KINDS)
    for dtype in (torch.float32, torch.complex64)
    if dtype is torch.float32 or i < 6
]


@pytest.mark.filterwarnings("ignore::stator.base.errors.FallbackWarning", "error::stator.base.errors.FaultWarning")
@pytest.mark.parametrize("name, kind, dtype, uses", CASES)
def test_unrecorded_views(name: str, kind: str, dtype: torch.dtype, uses: list[str]) -> None:
    for use in [USES[each] for each in uses]:

        def f(
            x: Tensor, make: Callable[[Tensor], Tensor] = VIEWS[name], use: Callable[[Tensor], Tensor] = use
        ) -> tuple[Tensor, Tensor]:
            with torch.no_grad():
                view = make(x)
            return use(view), x * 2

        want = outcome(f, kind, dtype)
        got = outcome(stator.compile(f, backend="aot_eager"), kind, dtype)
        if isinstance(want, str):
            assert got == want, use
        else:
            torch.testing.assert_close(got, want)


@pytest.mark.parametrize("first", [False, True])
def test_the_kind_of_leaf_is_guarded(first: bool) -> None:
    """A graph of a plain leaf does not serve one that is a view, nor the other way round."""

    def f(x: Tensor) -> Tensor:
        with torch.no_grad():
            view = x.mT
        return view * 2

    compiled = stator.compile(f, fullgraph=True)
    for is_view in (first, not first, first):
        x = torch.randn(4, 4).t().contiguous() if not is_view else torch.randn(4, 4)[:]
        x.requires_grad_()
        result = compiled(x)
        assert result.requires_grad is f(x).requires_grad is (not is_view)
        torch.testing.assert_close(result, f(x))


def test_symbolic_sizes() -> None:
    def f(x: Tensor) -> Tensor:
        with torch.no_grad():
            view = x.mT
        return (view * 2).sum() + (x * 3).sum()

    compiled = stator.compile(f, fullgraph=True, dynamic=True)
    for n in (3, 5, 7):
        x = torch.randn(n, 2 * n).t().requires_grad_()
        (gradient,) = torch.autograd.grad(compiled(x), x)
        torch.testing.assert_close(gradient, torch.full_like(x, 3))
