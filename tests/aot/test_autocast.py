"""Autocast around forward, around backward, around both or inside: gradients are eager's, or refused."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest
import torch

import stator
from stator.aot.tracer import Tracer
from stator.base.errors import Unsupported


def product(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return (x @ w).softmax(-1) @ w


def product_without(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cpu", enabled=False):
        return (x @ w).tanh() @ w


def product_inside(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        y = x @ w
    return y.float() @ w


def loss_in_full(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.mse_loss(x @ w, w[:3].to((x @ w).dtype))


def powers(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    y = x @ w
    return (y**3).sum() + torch.nn.functional.layer_norm(y, (4,)).sum(0) + torch.linalg.vector_norm(w)


FUNCTIONS = (product, product_without, product_inside, loss_in_full, powers)


def around(wanted: bool) -> AbstractContextManager[Any]:
    return torch.autocast("cpu", torch.bfloat16) if wanted else nullcontext()


def gradients(f: Callable[..., torch.Tensor], forward: bool, backward: bool) -> list[torch.Tensor]:
    torch.manual_seed(0)
    x, w = torch.randn(3, 4, requires_grad=True), torch.randn(4, 4, requires_grad=True)
    with around(forward):
        out = f(x, w)
    with around(backward):
        out.backward(torch.linspace(1, 2, out.numel()).view_as(out).to(out.dtype))
    assert x.grad is not None and w.grad is not None
    return [out.detach(), x.grad, w.grad]


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("forward", [False, True])
@pytest.mark.parametrize("f", FUNCTIONS)
def test_gradients(f: Callable[..., torch.Tensor], forward: bool, backward: bool) -> None:
    compiled = stator.compile(f, fullgraph=True)
    expected, found = gradients(f, forward, backward), gradients(compiled, forward, backward)
    # One bit of a half type is a lot; where nothing is cast in forward there is none.
    tolerance = 1e-2 if forward and f is not product_without else 1e-5
    assert [tensor.dtype for tensor in found] == [tensor.dtype for tensor in expected]
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)


def test_casts_make_a_difference() -> None:
    """The cases above can tell."""
    assert not torch.equal(gradients(product, False, False)[1], gradients(product, False, True)[1])
    assert not torch.equal(gradients(product_without, True, False)[1], gradients(product_without, True, True)[1])


def dropped(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.dropout(x @ w, 0.5) @ w


def test_random_numbers_are_not_drawn_again() -> None:
    compiled = stator.compile(dropped, fullgraph=True)
    gradients(compiled, False, False)
    gradients(compiled, True, False)
    gradients(compiled, True, True)  # casts in forward leave none to backward
    with pytest.raises(Unsupported, match="backward under autocast"):
        gradients(compiled, False, True)


def test_backward_is_computed_again_only_up_to_the_first_call_that_casts_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Here the last product, which forward left in float32; on GPUs the gradient of a bias, a sum."""
    layers = torch.nn.Sequential(*[torch.nn.Linear(4, 4) for _ in range(12)])

    def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        y = layers(x)
        with torch.autocast("cpu", enabled=False):
            return y.float() @ w

    again: list[bool] = []
    record = Tracer.record

    def recorded(tracer: Tracer, *given: Any) -> Any:
        again.append(tracer.recorded is not None)
        return record(tracer, *given)

    monkeypatch.setattr(Tracer, "record", recorded)
    compiled = stator.compile(f, fullgraph=True)
    expected, found = gradients(f, True, False), gradients(compiled, True, False)
    torch.testing.assert_close(found, expected, rtol=1e-2, atol=1e-2)
    assert 0 < sum(again) < 10 < len(again) / 10


class Stubborn(torch.autograd.Function):
    """Its backward handles everything that it may meet."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x, w)
        return x @ w

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        x, w = ctx.saved_tensors
        try:
            return grad.float() @ w.T, x.T @ grad.float()  # which casts change
        except BaseException:
            return torch.zeros_like(x), torch.zeros_like(w)


def test_a_backward_that_handles_everything_does_not_hide_that_it_is_another_one() -> None:
    def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return Stubborn.apply(x, w) @ w  # type: ignore[no-untyped-call, no-any-return]

    compiled = stator.compile(f)
    for backward in (False, True):
        expected, found = gradients(f, True, backward), gradients(compiled, True, backward)
        torch.testing.assert_close(found, expected, rtol=1e-2, atol=1e-2)
        assert all(tensor.any() for tensor in found)
