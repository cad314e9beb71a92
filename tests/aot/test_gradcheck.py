"""Gradients in float64 against finite differences (`gradcheck`): thirty random compositions, and the six models.

A composition is made by a seeded generator from `STEPS`: every step takes and gives matrices of one size, so any may
follow any. Some of its values are results; `gradcheck` then also differentiates only some of them.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck
from torch.nn import functional as F

import stator
from tests.models.library import MODELS, WITH_FLOAT32, compiled, model_and_inputs

ROWS, COLUMNS = 3, 4
INDEX = torch.tensor([[2, 0, 1, 1], [0, 0, 3, 2], [3, 1, 2, 0]])

#: Differentiable steps from matrices to a matrix, by how many they take.
UNARY: dict[str, Callable[[Tensor], Tensor]] = {
    "sin": torch.sin,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "exp": lambda x: x.clamp(-50, 2.5).exp(),
    "sqrt": lambda x: (x * x + 1).sqrt(),
    "log1p": lambda x: (x * x).log1p(),
    "gelu": F.gelu,
    "silu": F.silu,
    "softplus": F.softplus,
    "elu": F.elu,
    "erf": torch.erf,
    "atan": torch.atan,
    "reciprocal": lambda x: (x * x + 0.5).reciprocal(),
    "power": lambda x: (x.abs() + 0.5) ** 1.5,
    "softmax": lambda x: x.softmax(-1),
    "log_softmax": lambda x: x.log_softmax(0),
    "logsumexp": lambda x: x - x.logsumexp(1, keepdim=True),
    "sum": lambda x: x / 2 + x.sum(0, keepdim=True),
    "mean": lambda x: x * x.mean(),
    "var": lambda x: x / (x.var(1, keepdim=True) + 1).sqrt(),
    "norm": lambda x: x / (x.norm(dim=1, keepdim=True) + 1),
    "prod": lambda x: x + x.tanh().prod(1, keepdim=True),
    "amax": lambda x: x - x.amax(1, keepdim=True),
    "layer_norm": lambda x: F.layer_norm(x, (COLUMNS,)),
    "cumsum": lambda x: x.cumsum(1) / 2,
    "cumprod": lambda x: x.tanh().cumprod(0),
    "logcumsumexp": lambda x: x.logcumsumexp(1),
    "transpose": lambda x: x.t().reshape(ROWS, COLUMNS),
    "flip": lambda x: x.flip(0),
    "roll": lambda x: x.roll(1, 1),
    "slices": lambda x: torch.cat([x[:, 2:], x[:, :2] * 2], 1),
    "strides": lambda x: torch.stack([x[:, ::2], x[:, 1::2]], 2).reshape(ROWS, COLUMNS),
    "pad": lambda x: F.pad(x, (1, -1), value=0.5),
    "expand": lambda x: x[:1].expand(ROWS, COLUMNS) + x,
    "diagonal": lambda x: x + x.diagonal().sum(),
    "triangle": lambda x: x.tril() + x.triu(1) * 2,
    "gather": lambda x: x.gather(1, INDEX),
    "index_select": lambda x: x[[2, 0, 2]],
    "index_put": lambda x: x.index_put((torch.tensor([0, 2]),), x[1] * 2),
    "scatter_add": lambda x: torch.zeros_like(x).scatter_add(1, INDEX, x),
    "masked_fill": lambda x: x.masked_fill(INDEX > 2, 0.0),
    "written": lambda x: written(x),
    "average": lambda x: F.avg_pool1d(x[None], 3, 1, 1)[0],
    "convolution": lambda x: F.conv1d(x[None], x[:, None, :3].expand(ROWS, ROWS, 3) / 3, padding=1)[0],
}
BINARY: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "add": lambda x, y: x + y * 2,
    "mul": torch.mul,
    "div": lambda x, y: x / (y * y + 1),
    "where": lambda x, y: torch.where(INDEX % 2 == 0, x, y),
    "lerp": lambda x, y: torch.lerp(x, y, 0.3),
    "addcmul": lambda x, y: torch.addcmul(x, y, x, value=0.5),
    "matmul": lambda x, y: x @ (y.t() @ x) / 4,
    "einsum": lambda x, y: torch.einsum("ij,kj->ik", x, y) @ y / 4,
    "attention": lambda x, y: F.scaled_dot_product_attention(x[None, None], y[None, None], x[None, None])[0, 0],
    "linear": lambda x, y: F.linear(x, torch.cat([y, x[:1]])) / 2,
    "distance": lambda x, y: x * ((x - y) ** 2).sum(1, keepdim=True),
    "atan2": lambda x, y: torch.atan2(x, y * y + 1),
    "outer": lambda x, y: x * torch.outer(y[:, 0], y[0]),
}
STEPS = [*UNARY, *BINARY]
CASES = 30


def written(x: Tensor) -> Tensor:
    out = x * 1
    out[1] = x[0] * 2
    out[:, 1:3].mul_(x[:, :2])
    return out


class Composition:
    """A program of some steps, the same for the same seed."""

    def __init__(self, seed: int) -> None:
        chance = random.Random(seed)
        self.inputs = chance.randint(2, 3)
        self.steps: list[tuple[str, tuple[int, ...]]] = []
        # Every step is the first of some composition.
        names = [STEPS[(seed * 2 + k) % len(STEPS)] for k in range(2)] + chance.choices(STEPS, k=chance.randint(3, 6))
        for count, name in enumerate(names, self.inputs):
            # The values that are new have to be used.
            second = chance.randrange(count)
            self.steps.append((name, (count - 1,) if name in UNARY else (count - 1, second)))
        self.results = sorted({len(names) + self.inputs - 1, chance.randrange(self.inputs, self.inputs + len(names))})

    def __call__(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        values = list(inputs)
        values[-1] = values[-1] + sum(values[:-1])
        for name, operands in self.steps:
            step: Any = UNARY.get(name) or BINARY[name]
            values.append(step(*[values[i] for i in operands]))
        return tuple([values[i] for i in self.results])

    def example(self, seed: int) -> list[Tensor]:
        generator = torch.Generator().manual_seed(seed)
        size = (ROWS, COLUMNS)
        return [
            torch.randn(size, generator=generator, dtype=torch.float64).requires_grad_() for _ in range(self.inputs)
        ]


def test_every_step_is_in_some_composition() -> None:
    used = {name for seed in range(CASES) for name, _ in Composition(seed).steps}
    assert used == set(STEPS) and len(STEPS) <= 2 * CASES
    assert any(len(Composition(seed).results) > 1 for seed in range(CASES))


@pytest.mark.parametrize("seed", range(CASES))
def test_random_compositions(seed: int) -> None:
    program = Composition(seed)
    call = stator.compile(program.__call__, fullgraph=True, options={"strict": True})
    inputs = program.example(seed)
    expected, found = program(*inputs), call(*inputs)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)
    gradients = [torch.autograd.grad(sum(out.sum() for out in results), inputs) for results in (expected, found)]
    assert all(bool((gradient != 0).any()) for gradient in gradients[0])
    torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-9, atol=1e-10)
    assert all(type(out.grad_fn).__name__ == "CompiledFunctionBackward" for out in found)
    assert gradcheck(call, inputs)


#: Without attention, which PyTorch cannot differentiate twice.
TWICE = [seed for seed in range(CASES) if all(name != "attention" for name, _ in Composition(seed).steps)]


@pytest.mark.parametrize("seed", TWICE[::6])
def test_second_derivatives_of_compositions(seed: int) -> None:
    program = Composition(seed)
    call = stator.compile(program.__call__, fullgraph=True, options={"strict": True})
    assert gradgradcheck(call, program.example(seed), fast_mode=True, atol=1e-4)


def objective(output: Any) -> Tensor:
    """A number whose gradient reaches every parameter."""
    loss = getattr(output, "loss", None)
    return loss if loss is not None else next(iter(output.values())).square().mean()


@pytest.mark.parametrize("name", MODELS)
def test_models(name: str) -> None:
    """All gradients are eager's in float64, and the slope along them, measured, is their size."""
    model, given = model_and_inputs(name, torch.float64, train=True)
    call = compiled(model)
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
    gradients = []
    for function in (model, call):
        gradients.append(torch.autograd.grad(objective(function(**given)), parameters, allow_unused=True))
        for key, buffer in model.named_buffers():
            buffer.copy_(buffers[key])
    rounded = name in WITH_FLOAT32
    assert sum(bool((g != 0).any()) for g in gradients[0] if g is not None) > len(parameters) // 2
    assert [g is None for g in gradients[1]] == [g is None for g in gradients[0]]
    for found, expected in zip(gradients[1], gradients[0], strict=True):
        if expected is not None:
            torch.testing.assert_close(found, expected, rtol=1e-3 if rounded else 1e-8, atol=1e-5 if rounded else 1e-10)

    reached = [(p, g) for p, g in zip(parameters, gradients[1], strict=True) if g is not None]
    # Along the gradient itself, where there is most to measure.
    slope = float(sum(g.square().sum() for _, g in reached)) ** 0.5
    step, values = 1e-3 if rounded else 1e-5, []
    for sign in (1, -2):  # to the one side, then to the other
        with torch.no_grad():
            for parameter, gradient in reached:
                parameter.add_(gradient, alpha=sign * step / slope)
        values.append(objective(call(**given)).detach().item())
    assert (values[0] - values[1]) / (2 * step) == pytest.approx(slope, rel=2e-2 if rounded else 1e-3)
