"""Methods of `torch.autograd.Function` with defaults and closures: what these hold is guarded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.autograd import Function

import stator
from stator.base.errors import FallbackWarning


def gradients(function: Callable[..., Any]) -> list[Any]:
    torch.manual_seed(1)
    x = torch.randn(5, requires_grad=True)
    y = function(x)
    return [y, *torch.autograd.grad(y.square().sum(), x)]


def check(compiled: Any, program: Any) -> None:
    for _ in range(2):
        torch.testing.assert_close(gradients(compiled), gradients(program))


class Rounded(Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, bits: int = 4, *, symmetric: bool = True) -> torch.Tensor:
        scale = x.abs().max() / (2 ** (bits - symmetric) - 1)
        ctx.save_for_backward(x, scale)
        return torch.round(x / scale) * scale

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor, slope: float = 0.5) -> Any:
        x, scale = ctx.saved_tensors
        return grad * torch.where(x.abs() > scale, slope, 1.0), None


def test_defaults() -> None:
    program = lambda x: Rounded.apply(x) + Rounded.apply(x, 3)  # noqa: E731
    compiled = stator.compile(program, fullgraph=True)
    check(compiled, program)
    forward, backward = Rounded.forward, Rounded.backward
    before = forward.__defaults__, forward.__kwdefaults__, backward.__defaults__
    try:
        forward.__defaults__ = (6,)
        check(compiled, program)
        forward.__kwdefaults__ = {"symmetric": False}
        check(compiled, program)
        backward.__defaults__ = (0.25,)
        check(compiled, program)
    finally:
        forward.__defaults__, forward.__kwdefaults__, backward.__defaults__ = before


def scaled(factor: float, activation: Any) -> tuple[type[Function], Callable[[float], None]]:
    def twice(x: torch.Tensor) -> torch.Tensor:
        return x * factor

    class Scaled(Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(x)
            return activation(twice(x)) + factor  # type: ignore[no-any-return]

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
            (x,) = ctx.saved_tensors
            return grad * factor * (x > 0)

    def change(value: float) -> None:
        nonlocal factor
        factor = value

    return Scaled, change


@pytest.mark.parametrize("activation", [torch.relu, lambda x: x.clamp(min=0)])
def test_closures(activation: Any) -> None:
    for factor in (2.0, 3.0):
        function, change = scaled(factor, activation)
        program = lambda x: function.apply(x)  # noqa: B023, E731
        compiled = stator.compile(program, fullgraph=True)
        check(compiled, program)
        change(factor + 4)
        check(compiled, program)


@pytest.mark.parametrize("held", [[1.0], torch.ones(5)], ids=["a list", "a tensor"])
def test_what_may_change_by_itself_ends_the_graph(held: Any) -> None:
    class Held(Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x * held[0]

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
            return grad * held[0]

    stator.reset()  # it is told once
    program = lambda x: Held.apply(x) * 2  # noqa: E731
    compiled = stator.compile(program)
    with pytest.warns(FallbackWarning, match="does more than compute: it uses held"):
        check(compiled, program)
    held[0] = 4.0
    check(compiled, program)
