"""What changes from call to call, thirty calls of each: few graphs, and where there are more, one line that says so."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler

import stator
from stator.base import log
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


def trained(optimizer: Any, schedule: Any, **options: Any) -> Callable[[], Callable[..., Any]]:
    """A step of training whose learning rate changes with each call."""

    def make() -> Callable[..., Any]:
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
        steps = optimizer(net.parameters(), lr=0.1, **options)
        rates = schedule(steps)

        def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            steps.zero_grad()
            loss = nn.functional.mse_loss(net(x), y)
            loss.backward()
            steps.step()
            rates.step()
            return loss.detach()

        return step

    return make


def pair(call: int) -> tuple[Any, ...]:
    return torch.randn(5, 3), torch.randn(5, 1)


def cosine(steps: Any) -> Any:
    return lr_scheduler.CosineAnnealingLR(steps, CALLS)


def counted() -> Callable[..., Any]:
    count = 0

    def f(x: torch.Tensor) -> torch.Tensor:
        nonlocal count
        count += 1
        return x / count

    return f


def written_at(cache: torch.Tensor, call: int) -> torch.Tensor:
    cache = cache.clone()
    cache[:, call] = 2.0
    cache[call] += cache[0, 0].clone()
    return cache[..., call, 1:] * cache[None, call, 1:]


ALPHAS = torch.linspace(0, 1, 1000)

NUMBERS = [
    Case("the last row", lambda: lambda a: a * a[a.size(0) - 1], lambda call: (torch.randn(call + 2),), 2),
    Case(
        "a time step", lambda: lambda x, t: x * ALPHAS[t] - ALPHAS[t - 1], lambda call: (torch.randn(2), 999 - call), 2
    ),
    Case("a row from the end", lambda: lambda x, t: x * x[-t], lambda call: (torch.randn(40), call + 2), 2),
    Case("a column of rows", lambda: lambda x, t: x[ROWS, t], lambda call: (torch.randn(3, 40), call), 3),
    Case("places of a cache", lambda: written_at, lambda call: (torch.randn(40, 40), call + 2), 2),
    Case("a counter", counted, x, 2),
    Case("equal numbers of NumPy", lambda: lambda x, n: x * n, lambda call: (torch.randn(3), np.float64(0.5)), 1),
    Case("a temperature", lambda: lambda x, t: (x / t).softmax(-1), lambda call: (torch.randn(3), 2.0 - call / 50), 2),
    *(
        Case(name, trained(getattr(torch.optim, name), cosine, fused=True), pair, 2)
        for name in ("SGD", "Adam", "AdamW", "Adagrad")
    ),
    *(
        Case(name, trained(getattr(torch.optim, name), cosine), pair, 2)
        for name in ("SGD", "AdamW", "RMSprop", "Adamax")
    ),
    Case(
        "one cycle",
        trained(
            torch.optim.SGD, lambda steps: lr_scheduler.OneCycleLR(steps, 0.1, total_steps=3 * CALLS), momentum=0.9
        ),
        pair,
        3,
    ),
    Case("milestones", trained(torch.optim.SGD, lambda steps: lr_scheduler.MultiStepLR(steps, [3, 7])), pair, 6),
]

ROWS = torch.tensor([0, 2])


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


@pytest.mark.parametrize("case", NUMBERS, ids=lambda case: case.name)
def test_numbers_that_change(case: Case) -> None:
    counts, told = graphs_of(case)
    assert counts[-1] <= case.most
    assert not told


def test_the_limit_is_told_once_where_the_number_itself_is_needed() -> None:
    def repeated(x: torch.Tensor, count: int) -> Any:
        return sum(x * i for i in range(count))

    counts, told = graphs_of(Case("", lambda: repeated, lambda call: (torch.randn(3), call + 1), 8))
    assert counts[-1] == 8
    assert len(told) == 1
    assert "8 compiled versions, which is the limit" in told[0]


def test_a_symbolic_index_from_the_first_call_on() -> None:
    counts, _ = graphs_of(NUMBERS[0], dynamic=True)
    assert counts[-1] == 1


@pytest.mark.parametrize("case", MODULES, ids=lambda case: case.name)
def test_modules_that_come_and_go_with_the_calls(case: Case) -> None:
    counts, _ = graphs_of(case)
    assert counts[-1] <= case.most
    assert counts[3] == counts[-1]


def test_modules_that_stay_share_a_version() -> None:
    layers = [nn.Linear(3, 3) for _ in range(10)]
    counts, told = graphs_of(Case("", lambda: lambda m, x: m(x) * 2, lambda call: (layers[call % 10], *x(call)), 10))
    assert counts[-1] == 2
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


def test_numbers_of_numpy_are_guarded_by_their_bits() -> None:
    compiled = stator.compile(lambda x, n, m: (x / n, n is m), backend="eager", options={"strict": True})
    given, zero = torch.ones(2), np.float64(0.0)
    for pair in ((zero, zero), (np.float64(0.0), np.float64(0.0)), (np.float64(-0.0), zero), (np.float64("nan"), zero)):
        quotient, same = compiled(given, *pair)
        torch.testing.assert_close(quotient, given / pair[0], equal_nan=True)
        assert same is (pair[0] is pair[1])
    assert torch.equal(compiled(given, 0.5, 0.5)[0], given / 0.5)


def test_devices_are_keys_by_value() -> None:
    """Each `torch.device("cpu")` is another object, and all are one key; a device with an index is another key."""

    def f(x: torch.Tensor, table: dict[Any, float]) -> torch.Tensor:
        return x * len([*table]) + table[torch.device("cpu")]

    compiled = stator.compile(f, fullgraph=True)
    with log.collect() as recorder:
        for _ in range(4):
            table = {torch.device("cpu"): 2.0, "a": 1.0}
            assert torch.equal(compiled(torch.ones(2), table), f(torch.ones(2), table))
    assert len(recorder.of(log.GRAPH)) == 1
    for other in (torch.device("meta"), torch.device("cpu", 0)):
        table = {other: 3.0, torch.device("cpu"): 2.0}
        assert torch.equal(compiled(torch.ones(2), table), f(torch.ones(2), table))
