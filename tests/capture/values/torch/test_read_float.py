"""`float(t)` of which the program makes another float, and then a factor: in the graph, with Python's bits."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import stator
from tests.capture.values.harness import check, refused, same

NORMS = {
    "1d": (lambda: nn.BatchNorm1d(5, momentum=None), (7, 5)),
    "2d": (lambda: nn.BatchNorm2d(5, momentum=None), (3, 5, 4, 4)),
    "3d": (lambda: nn.BatchNorm3d(5, momentum=None, affine=False), (3, 5, 2, 3, 4)),
    "double": (lambda: nn.BatchNorm2d(5, momentum=None, dtype=torch.float64), (3, 5, 4, 4)),
}


def step(model: nn.Module, x: Tensor) -> tuple[Tensor, ...]:
    x = x.clone().requires_grad_()
    out = model(x)
    out.square().mul(torch.arange(out.numel(), dtype=out.dtype).view_as(out) / out.numel()).sum().backward()
    return out.detach(), x.grad, *[p.grad for p in model.parameters()], *model.buffers()  # type: ignore[return-value]


@pytest.mark.parametrize("name", NORMS)
def test_cumulative_averages_are_one_graph(name: str) -> None:
    make, size = NORMS[name]
    model, dtype = make(), torch.float64 if name == "double" else torch.float32
    exact, eager, other = copy.deepcopy(model).double(), copy.deepcopy(model), copy.deepcopy(model)
    fast = stator.compile(other, fullgraph=True)
    for rows in (0, 0, 2, 5):
        x = torch.randn(size[0] + rows, *size[1:], dtype=dtype)
        expected, got, known = step(eager, x), step(fast, x), step(exact, x.double())
        for mine, theirs, right in zip(got, expected, known, strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-5)
            torch.testing.assert_close(mine.double(), right.double(), rtol=1e-5, atol=1e-5)
        averages = [[norm.running_mean._version, norm.running_var._version] for norm in (eager, other)]
        assert averages[0] == averages[1]
    for model in (eager, other):
        model.eval()
    x = torch.randn(*size, dtype=dtype)
    torch.testing.assert_close(fast(x), eager(x))


def test_two_layers_of_a_network_and_a_second_forward() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.BatchNorm1d(4, momentum=None), nn.BatchNorm1d(4, momentum=None)

        def forward(self, x: Tensor) -> Tensor:
            return self.second(self.first(x).relu()) + self.first(x * 2)

    eager = Net()
    other = copy.deepcopy(eager)
    fast = stator.compile(other, fullgraph=True)
    for _ in range(3):
        x = torch.randn(6, 4)
        torch.testing.assert_close(fast(x), eager(x))
        torch.testing.assert_close(other.state_dict(), eager.state_dict())


def test_a_count_of_zero_raises_as_in_eager() -> None:
    eager = nn.BatchNorm1d(3, momentum=None)
    other = copy.deepcopy(eager)
    fast = stator.compile(other, fullgraph=True)
    x = torch.randn(4, 3)
    torch.testing.assert_close(fast(x), eager(x))
    before = copy.deepcopy(other.state_dict()) | {"num_batches_tracked": torch.tensor(0)}
    for model in (eager, other):
        assert model.num_batches_tracked is not None
        model.num_batches_tracked.fill_(-1)
        with pytest.raises(ZeroDivisionError):
            (fast if model is other else model)(x)
    torch.testing.assert_close(other.state_dict(), before, rtol=0, atol=0)
    torch.testing.assert_close(eager.num_batches_tracked, before["num_batches_tracked"])


def average(x: Tensor, count: Tensor, mean: Tensor, var: Tensor, factor: Any) -> Tensor:
    return torch.nn.functional.batch_norm(x, mean, var, training=True, momentum=factor(count))


FACTORS = {
    "inverse": lambda n: 1.0 / float(n),
    "of a whole number": lambda n: 3 / float(n),
    "in steps": lambda n: (float(n) * 0.5 - 1) / (float(n) + 2.5),
    "negative": lambda n: -(1 - float(n)) / 7,
    "float of float": lambda n: float(+float(n)) / 9.0,
}


@pytest.mark.parametrize("dtype", [torch.int64, torch.float32, torch.float64, torch.uint8])
@pytest.mark.parametrize("name", FACTORS)
def test_arithmetic_has_the_bits_of_python(name: str, dtype: torch.dtype) -> None:
    """A batch of equal rows has an exact mean, so that nothing but the factor is rounded."""
    factor, rows = FACTORS[name], torch.randint(-8, 9, (3,)).double()
    x = rows.expand(8, 3).contiguous()
    for count in (torch.tensor(3, dtype=dtype), torch.tensor([7], dtype=dtype)):
        mean, var = torch.randn(3, dtype=torch.float64), torch.rand(3, dtype=torch.float64)
        found = float(factor(count))
        expected = [rows * found + mean * (1.0 - found), var * (1.0 - found)]
        fast = stator.compile(average, fullgraph=True)
        fast(x, count, mean, var, factor)
        assert torch.equal(mean, expected[0]) and torch.equal(var, expected[1])


def returned(t: Tensor) -> Any:
    return float(t.sum()) / 2


def branched(t: Tensor) -> Any:
    return t + 1 if float(t.sum()) > 0 else t


def multiplied(t: Tensor) -> Any:
    return t * float(t.sum())


def formatted(t: Tensor) -> Any:
    return f"{float(t.sum()):.3f}"


def rounded(t: Tensor) -> Any:
    return round(float(t.sum()), 2)


def to_a_power(t: Tensor) -> Any:
    return float(t.sum()) ** 2


def by_zero(t: Tensor) -> Any:
    return float(t.sum()) / 0.0


def by_a_big_number(t: Tensor) -> Any:
    return float(t.sum()) + (1 << 60) + 1


def handled(t: Tensor) -> Any:
    try:
        return torch.batch_norm, 1.0 / float(t.sum() * 0)
    except ZeroDivisionError:
        return t


def kept(t: Tensor) -> Any:
    return {float(t.sum()): 1, "all": [float(t.sum())]}


def asked(t: Tensor) -> Any:
    return float(t.sum()).is_integer(), isinstance(float(t.max()), float)


OTHERS = [
    returned,
    branched,
    multiplied,
    formatted,
    rounded,
    to_a_power,
    by_zero,
    by_a_big_number,
    handled,
    kept,
    asked,
]


@pytest.mark.filterwarnings("ignore::stator.base.errors.FallbackWarning")
@pytest.mark.parametrize("function", OTHERS, ids=lambda function: function.__name__)
def test_whatever_else_is_done_with_it_is_done_by_python(function: Any) -> None:
    assert "depends on the data of a tensor" in refused(function, torch.randn(4))
    fast = stator.compile(function)
    for size in (4, 5):
        t = torch.randint(-9, 9, (size,)).float()
        try:
            expected = function(t)
        except ZeroDivisionError:
            with pytest.raises(ZeroDivisionError):
                fast(t)
        else:
            same(fast(t), expected)


def test_one_that_is_dropped_costs_nothing() -> None:
    def f(t: Tensor) -> Tensor:
        float(t.sum())
        return t * 2

    check(f, torch.randn(3))
