"""What changes from call to call, thirty calls of each: few graphs, and where there are more, one line that says so."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from torch import nn

import stator
from stator.base.errors import StatorWarning

CALLS = 30


class Printing(nn.Module):
    """A module whose forward has a break."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.layer = nn.Parameter(torch.ones(3)), nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.layer(x * self.weight)
        stator.graph_break()
        return y * 2


NET = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3))
PRINTING = Printing()


class Case(NamedTuple):
    """A function, made anew for each way of running it, its arguments by the number of the call, and its graphs."""

    name: str
    make: Callable[[], Callable[..., Any]]
    args: Callable[[int], tuple[Any, ...]]
    most: int


def x(call: int) -> tuple[Any, ...]:
    return (torch.randn(2, 3),)


def made_inside(x: torch.Tensor) -> torch.Tensor:
    layer = nn.Linear(3, 3)
    return layer(x).sum() * 0


def copied_inside(x: torch.Tensor) -> torch.Tensor:
    return copy.deepcopy(NET)(x)  # type: ignore[no-any-return]


def copied_with_a_break_behind(x: torch.Tensor) -> torch.Tensor:
    net = copy.deepcopy(NET)
    total = net(x).sum()
    stator.graph_break()
    return net(x) + total  # type: ignore[no-any-return]


def trained_inside(x: torch.Tensor) -> torch.Tensor:
    net = copy.deepcopy(NET)
    for _ in range(2):
        grads = torch.autograd.grad(net(x).pow(2).sum(), list(net.parameters()))
        with torch.no_grad():
            for weight, grad in zip(net.parameters(), grads, strict=True):
                weight.sub_(grad, alpha=0.1)
    return net(x).detach()  # type: ignore[no-any-return]


MODULES = [
    Case("made inside", lambda: made_inside, x, 2),
    Case("copied inside", lambda: copied_inside, x, 2),
    Case("copied inside, with a break behind", lambda: copied_with_a_break_behind, x, 4),
    Case("trained inside", lambda: trained_inside, x, 2),
    Case("given", lambda: lambda m, x: m(x) * 2, lambda call: (copy.deepcopy(NET), torch.randn(2, 3)), 2),
]


def graphs_of(case: Case, **options: Any) -> tuple[list[int], list[str]]:
    """The number of graphs after each call, and what was told; compares with eager."""
    count = 0

    def backend(gm: torch.fx.GraphModule, examples: list[Any]) -> Any:
        nonlocal count
        count += 1
        return gm.forward

    stator.reset()
    eager, compiled = case.make(), stator.compile(case.make(), backend=backend, **options)
    counts = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", StatorWarning)
        for call in range(CALLS):
            results = []
            for function in (eager, compiled):
                torch.manual_seed(call)
                results.append(function(*case.args(call)))
            torch.testing.assert_close(results[1], results[0])
            counts.append(count)
    return counts, [str(item.message) for item in caught if issubclass(item.category, StatorWarning)]


@pytest.mark.parametrize("case", MODULES, ids=lambda case: case.name)
def test_modules_that_come_and_go_with_the_calls(case: Case) -> None:
    counts, _ = graphs_of(case)
    assert counts[-1] <= case.most
    assert counts[3] == counts[-1]


def test_modules_that_stay_have_a_version_each() -> None:
    layers = [nn.Linear(3, 3) for _ in range(10)]
    counts, told = graphs_of(Case("", lambda: lambda m, x: m(x) * 2, lambda call: (layers[call % 10], *x(call)), 10))
    assert counts[9] == counts[-1] == 10
    assert not told


def test_gradients_reach_a_module_that_is_known_by_its_structure() -> None:
    def loss(m: nn.Module, x: torch.Tensor) -> torch.Tensor:
        return m(x).pow(2).sum()  # type: ignore[no-any-return]

    compiled = stator.compile(loss, options={"strict": True})
    given = torch.randn(2, 3)
    for scale in range(1, 5):
        pair = [copy.deepcopy(NET) for _ in range(2)]
        for net, function in zip(pair, (loss, compiled), strict=True):
            with torch.no_grad():
                net[0].weight.mul_(scale)
            function(net, given).backward()
        for ours, theirs in zip(pair[1].parameters(), pair[0].parameters(), strict=True):
            torch.testing.assert_close(ours.grad, theirs.grad)


def test_structure_is_guarded() -> None:
    compiled = stator.compile(lambda m, x: m(x) * 2, backend="eager", options={"strict": True})
    given = torch.randn(2, 3)
    made: list[Callable[[], nn.Module]] = [
        lambda: nn.Sequential(nn.Linear(3, 3), nn.ReLU()),
        lambda: nn.Sequential(nn.Linear(3, 3), nn.ReLU()),
        lambda: nn.Sequential(nn.Linear(3, 3), nn.ReLU()),
        lambda: nn.Sequential(nn.Linear(3, 3), nn.Tanh()),
        lambda: nn.Sequential(nn.Linear(3, 4), nn.ReLU()),
        lambda: nn.Sequential(nn.Linear(3, 3, bias=False), nn.ReLU()),
        lambda: nn.Sequential(nn.ReLU(), nn.Linear(3, 3)),
        lambda: nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.0)).eval(),
        hooked,
        tied,
    ]
    for make in made:
        net = make()
        torch.testing.assert_close(compiled(net, given), net(given) * 2)


def hooked() -> nn.Module:
    net = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    net[0].register_forward_hook(lambda module, args, result: result + 1)
    return net


def tied() -> nn.Module:
    layer = nn.Linear(3, 3)
    return nn.Sequential(layer, layer)
