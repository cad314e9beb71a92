"""Autograd as the user sees it: each scenario is told the same by eager and by compiled functions.

A scenario gets `compiling`, which compiles a function or leaves it alone, and tells what it sees: gradients (None is
not zeros), what hooks were called with, what was raised. Warnings and errors of the engine are part of it.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import stator
from stator.base.errors import StatorError

Compiling = Callable[..., Any]
Scenario = Callable[[Compiling], Any]
SCENARIOS: dict[str, Scenario] = {}


def scenario(function: Scenario) -> Scenario:
    SCENARIOS[function.__name__] = function
    return function


def leaf(*size: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*size, dtype=dtype).requires_grad_()


def raised(function: Callable[[], Any]) -> str:
    """The message of what is raised, up to its first full stop."""
    with pytest.raises(RuntimeError) as caught:
        function()
    return str(caught.value).split(".")[0]


def half(grad: Tensor | None) -> Tensor | None:
    """To be compared as numbers that were rounded on their way."""
    return None if grad is None else grad.bfloat16()


def equal(found: Any, expected: Any, place: str = "seen") -> None:
    match expected:
        case Tensor():
            assert isinstance(found, Tensor), (place, found, expected)
            assert found.dtype is expected.dtype and found.shape == expected.shape, place
            rounded = expected.dtype is torch.bfloat16
            torch.testing.assert_close(
                found, expected, rtol=2e-2 if rounded else 1e-5, atol=1e-5, msg=lambda m: place + m
            )
        case list() | tuple():
            assert len(found) == len(expected), (place, found, expected)
            for i, (a, b) in enumerate(zip(found, expected, strict=True)):
                equal(a, b, f"{place}[{i}]")
        case _:
            assert found == expected, place


# ---- which gradients there are ---------------------------------------------------------------------------------------


def two_heads(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return x.sin() * 2, y.exp() * 3


@scenario
def only_what_is_differentiated_gets_gradients(compiling: Compiling) -> Any:
    seen, heads = [], compiling(two_heads)
    for chosen in ([0], [1], [0, 1]):
        x, y = leaf(3), leaf(3)
        results = heads(x, y)
        sum(results[i].sum() for i in chosen).backward()
        seen.append([x.grad, y.grad])
    return seen


@scenario
def parameters_of_an_unused_head(compiling: Compiling) -> Any:
    class Heads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.a, self.b = nn.Linear(3, 4), nn.Linear(4, 2), nn.Linear(4, 5)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            hidden = self.body(x).tanh()
            return self.a(hidden), self.b(hidden).log_softmax(-1)

    model, seen = Heads(), []
    call = compiling(model)
    for chosen in (0, 1):
        model.zero_grad()
        call(torch.randn(2, 3))[chosen].square().sum().backward()
        seen.append([parameter.grad for parameter in model.parameters()])
    return seen


@scenario
def gradients_of_some_inputs(compiling: Compiling) -> Any:
    heads, x, y = compiling(two_heads), leaf(3), leaf(3)
    first, second = heads(x, y)
    seen: list[Any] = [torch.autograd.grad(first.sum(), (y, x), allow_unused=True, retain_graph=True)]
    seen.append(raised(lambda: torch.autograd.grad(first.sum(), (x, y), retain_graph=True)))
    seen.append(torch.autograd.grad(first.sum() + second.sum(), [y], retain_graph=True))
    (first.sum() * second.sum()).backward(inputs=[y])
    return [seen, x.grad, y.grad]


@scenario
def what_is_not_differentiated_keeps_its_infinities(compiling: Compiling) -> Any:
    call = compiling(lambda x, y: (x.sin(), (x * y.sqrt()).log(), (x / y).sum()))
    seen = []
    for chosen in range(1, 8):
        x, y = torch.tensor([0.0, 1.0, 2.0], requires_grad=True), torch.tensor([0.5, 1.0, 0.0], requires_grad=True)
        results = call(x, y)
        sum(results[i].sum() for i in range(3) if chosen >> i & 1).backward()
        seen.append([None if t.grad is None else t.grad.nan_to_num(123.0, 456.0, -456.0) for t in (x, y)])
    return seen


@scenario
def gradients_that_are_zeros_are_multiplied_too(compiling: Compiling) -> Any:
    """Those of what is rounded to whole numbers: zero times an infinity is no number, beside another result as well."""
    call = compiling(lambda x: (x.log().trunc(), x * 2, x.sqrt().floor().sum() + x.exp().sum()))
    seen = []
    for chosen in range(1, 8):
        x = torch.tensor([0.0, 1.0, torch.nan, torch.inf, 5.0], requires_grad=True)
        results = call(x)
        sum(results[i].sum() for i in range(3) if chosen >> i & 1).backward()
        assert x.grad is not None
        seen.append(x.grad.nan_to_num(123.0, 456.0, -456.0))
    return seen


@scenario
def hooks_are_not_called_with_nothing(compiling: Compiling) -> Any:
    heads, x, y = compiling(two_heads), leaf(3), leaf(3)
    y.register_hook(lambda grad: grad * 2)
    middle = y * 1
    middle.register_hook(lambda grad: grad * 2)
    heads(x, y)[0].sum().backward()
    heads(x, middle)[0].sum().backward()
    return x.grad


@scenario
def results_of_every_kind(compiling: Compiling) -> Any:
    def function(x: Tensor, index: Tensor, flag: bool) -> Any:
        return x[index].sum(), index + 1, None, 3, "text", x > 0, x.detach() * 2, {"double": x * 2, "flag": flag}

    x = leaf(4)
    results = compiling(function)(x, torch.tensor([0, 2]), True)
    (results[0] + results[7]["double"].sum()).backward()
    told = [(r.requires_grad, r.is_leaf) if isinstance(r, Tensor) else r for r in results[:7]]
    return [x.grad, told, results[1], results[5], results[6], results[7]["flag"]]


@scenario
def inputs_of_every_kind(compiling: Compiling) -> Any:
    def function(x: Tensor, whole: Tensor, mask: Tensor, number: float, twice: Tensor) -> Tensor:
        return (x * whole * number).masked_fill(mask, 0.0).sum() + (x * twice.cos()).sum()

    x = leaf(4)
    out = compiling(function)(x, torch.arange(4), torch.tensor([True, False, False, True]), 0.5, x)
    out.backward()
    return [out.detach(), x.grad]


@scenario
def tied_and_frozen_parameters(compiling: Compiling) -> Any:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding, self.frozen = nn.Embedding(5, 4), nn.Linear(4, 4)
            self.head = nn.Linear(4, 5, bias=False)
            self.head.weight = self.embedding.weight
            self.frozen.weight.requires_grad_(False)

        def forward(self, index: Tensor) -> Tensor:
            return self.head(self.frozen(self.embedding(index)).tanh()).logsumexp(-1).sum()

    model = Tied()
    compiling(model)(torch.tensor([1, 2, 2])).backward()
    return [(name, parameter.grad) for name, parameter in model.named_parameters()]


# ---- how backward is run ---------------------------------------------------------------------------------------------


@scenario
def backward_twice(compiling: Compiling) -> Any:
    seen = []
    for function in (lambda x: (x.sin() * x).sum(), lambda x: (x.exp() + x).mean()):
        x = leaf(3)
        out = compiling(function)(x)
        out.backward(retain_graph=True)
        out.backward()
        seen.append([x.grad, raised(out.backward)])
    return seen


@scenario
def accumulation_over_steps(compiling: Compiling) -> Any:
    model = nn.Sequential(nn.Linear(3, 4), nn.GELU(), nn.Linear(4, 2))
    call, seen = compiling(model), []
    for _ in range(3):
        call(torch.randn(5, 3)).square().mean().backward()
        seen.append([parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None])
    return seen


@scenario
def hooks_outside(compiling: Compiling) -> Any:
    called: list[Any] = []
    x, weight = leaf(3), nn.Parameter(torch.rand(3))
    x.register_hook(lambda grad: grad * 2)
    weight.register_hook(lambda grad: called.append(grad.clone()))
    weight.register_post_accumulate_grad_hook(lambda p: called.append(p.grad.clone()))
    out = compiling(lambda x: (x * weight).sin())(x)
    out.register_hook(lambda grad: grad + 1)
    out.retain_grad()
    out.sum().backward()
    return [x.grad, weight.grad, out.grad, called]


@scenario
def hooks_inside(compiling: Compiling) -> Any:
    def function(x: Tensor) -> Tensor:
        y = x * 2
        y.register_hook(lambda grad: grad * 10)
        return y.sin().sum()

    x = leaf(3)
    compiling(function, fullgraph=False)(x).backward()
    return x.grad


@scenario
def gradients_kept_inside(compiling: Compiling) -> Any:
    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        y = x * 2
        y.retain_grad()
        return y, y.sin().sum()

    x = leaf(3)
    y, out = compiling(function, fullgraph=False)(x)
    out.backward()
    return [x.grad, y.grad]


@scenario
def detached_parts(compiling: Compiling) -> Any:
    x = leaf(3)
    compiling(lambda x: (x * x.detach() + x.data.exp() * x).sum())(x).backward()
    return x.grad


@scenario
def gradients_asked_for_inside(compiling: Compiling) -> Any:
    def detached(x: Tensor) -> Tensor:
        y = x.detach().sin().requires_grad_()
        (found,) = torch.autograd.grad((y * y).sum(), y)
        return (found * x).sum()

    def penalty(x: Tensor) -> Tensor:
        (found,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
        return (found * 2).sum()

    def stepping(x: Tensor) -> Tensor:
        out = (x**3).sum()
        out.backward()
        return out

    seen = []
    for function in (detached, penalty):
        x = leaf(3)
        compiling(function, fullgraph=False)(x).backward()
        seen.append(x.grad)
    x = leaf(3)
    return [seen, compiling(stepping, fullgraph=False)(x), x.grad]


@scenario
def gradients_required_inside(compiling: Compiling) -> Any:
    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        y = x.detach().sin().requires_grad_()
        return (y * x).sum(), y

    x = leaf(3)
    out, y = compiling(function, fullgraph=False)(x)
    out.backward()
    return [x.grad, y.grad, y.requires_grad, y.is_leaf]


@scenario
def saved_tensors_elsewhere(compiling: Compiling) -> Any:
    call, x = compiling(lambda x: (x.sin() * x).sum()), leaf(3)
    with torch.autograd.graph.save_on_cpu():
        out = call(x)
    out.backward()
    return x.grad


# ---- casts -----------------------------------------------------------------------------------------------------------


def product(x: Tensor, weight: Tensor) -> Tensor:
    return (x @ weight).relu().sum()


@scenario
def casts_around_the_forward(compiling: Compiling) -> Any:
    x, weight = leaf(4, 4), leaf(4, 4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = compiling(product)(x, weight)
    out.backward()
    return [out.detach(), half(x.grad), half(weight.grad)]


@scenario
def casts_inside(compiling: Compiling) -> Any:
    def function(x: Tensor, weight: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = x @ weight
        return (y.float() @ weight).sum()

    x, weight = leaf(4, 4), leaf(4, 4)
    out = compiling(function)(x, weight)
    out.backward()
    return [out.detach().bfloat16(), half(x.grad), half(weight.grad), x.grad is not None and x.grad.dtype]


# ---- functions with a backward of their own, checkpoints -------------------------------------------------------------


class Hundredfold(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return grad * x * 100


@scenario
def a_backward_of_its_own(compiling: Compiling) -> Any:
    def function(x: Tensor) -> Any:
        return Hundredfold.apply(x.sin()).sum()  # type: ignore[no-untyped-call]

    x = leaf(3)
    compiling(function)(x).backward()
    return x.grad


@scenario
def checkpoints(compiling: Compiling) -> Any:
    seen = []
    for reentrant in (False, True):

        def function(x: Tensor, weight: Tensor, reentrant: bool = reentrant) -> Tensor:
            return checkpoint(lambda x, w: torch.sin(x @ w).relu(), x, weight, use_reentrant=reentrant).sum()

        x, weight = leaf(3, 3), leaf(3, 3)
        compiling(function, fullgraph=not reentrant)(x, weight).backward()
        seen.append([x.grad, weight.grad])
    return seen


# ---- higher orders ---------------------------------------------------------------------------------------------------


@scenario
def higher_derivatives(compiling: Compiling) -> Any:
    call, x = compiling(lambda x: (x.sin() * x**3).sum()), leaf(3)
    found, seen = call(x), []
    for _ in range(4):
        (found,) = torch.autograd.grad(found.sum(), x, create_graph=True)
        seen.append(found.detach())
    return seen


@scenario
def gradient_penalty(compiling: Compiling) -> Any:
    model, x = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.LayerNorm(4), nn.Linear(4, 1)), leaf(5, 3)
    (found,) = torch.autograd.grad(compiling(model)(x).sum(), x, create_graph=True)
    (found.norm(dim=1) - 1).square().mean().backward()
    return [x.grad, [parameter.grad for parameter in model.parameters()]]


@scenario
def product_with_the_second_derivative(compiling: Compiling) -> Any:
    call, x, y = compiling(lambda x, y: (x * y).exp().sum()), leaf(3), torch.rand(3)
    middle = x * 2
    found = torch.autograd.grad(call(middle, y), middle, create_graph=True)[0]
    return torch.autograd.grad(found, x, torch.ones(3))


@scenario
def hooks_at_higher_orders(compiling: Compiling) -> Any:
    call, x, called = compiling(lambda x: (x**3).sum()), leaf(3), []
    x.register_hook(lambda grad: called.append(grad.detach().clone()))
    (found,) = torch.autograd.grad(call(x), x, create_graph=True)
    found.sum().backward()
    return [x.grad, called]


@scenario
def anomalies(compiling: Compiling) -> Any:
    call, x = compiling(lambda x: torch.sqrt(x).sum() * 0), torch.tensor([0.0, 2.0], requires_grad=True)
    with pytest.warns(UserWarning), torch.autograd.detect_anomaly():
        return raised(call(x).backward)


# ---- the tests -------------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::stator.base.errors.FallbackWarning")
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("name", SCENARIOS)
def test_scenarios(name: str, backend: str) -> None:
    def compiling(function: Any, fullgraph: bool = True) -> Any:
        return stator.compile(function, backend=backend, fullgraph=fullgraph, options={"strict": True})

    torch.manual_seed(0)
    expected = SCENARIOS[name](lambda function, **_: function)
    torch.manual_seed(0)
    equal(SCENARIOS[name](compiling), expected, name)


def compiled(function: Any, **options: Any) -> Any:
    return stator.compile(function, fullgraph=True, options={"strict": True, **options})


def root(x: Tensor) -> Tensor:
    y = x * 1
    return torch.sqrt(y).sum() * 0


def test_an_anomaly_has_the_users_line() -> None:
    x = torch.tensor([0.0, 2.0], requires_grad=True)
    with (
        pytest.warns(UserWarning) as warned,
        torch.autograd.detect_anomaly(),
        pytest.raises(RuntimeError, match="Sqrt"),
    ):
        compiled(root)(x).backward()
    texts = [str(warning.message) for warning in warned]
    assert any(f"line {root.__code__.co_firstlineno + 2}" in text and "torch.sqrt(y)" in text for text in texts)


def second(call: Any, x: Tensor, between: Callable[[], Any] = lambda: None) -> None:
    out = call(x)
    between()
    (first,) = torch.autograd.grad(out.sum(), x, create_graph=True)
    first.sum().backward()


def test_what_cannot_run_again_has_no_second_derivative() -> None:
    """Never a wrong number: other random numbers, other inputs."""
    x = leaf(4)
    with pytest.raises(StatorError, match="draws random numbers"):
        second(compiled(lambda x: torch.dropout(x.sin(), 0.5, True) * x), x)
    with pytest.raises(StatorError, match="draws random numbers"):
        second(compiled(lambda x: torch.dropout(x.sin(), 0.5, True) * x, eager_random=True), x)
    bias = torch.zeros(4)
    with pytest.raises(StatorError, match="has been written to"):
        second(compiled(lambda x: x.sin() + bias), x, lambda: bias.add_(1))
    norm = nn.BatchNorm1d(4)
    with pytest.raises(StatorError, match="writes to its inputs"):
        second(compiled(norm), leaf(3, 4))


@pytest.mark.usefixtures("few_objects")
def test_an_input_that_is_gone_has_no_second_derivative() -> None:
    call = compiled(lambda x, y: x.sin() + y)
    x = leaf(4)
    out = call(x, torch.ones(4))
    gc.collect()
    (first,) = torch.autograd.grad(out.sum(), x, create_graph=True)
    torch.testing.assert_close(first.detach(), x.detach().cos())
    with pytest.raises(StatorError, match="no longer there"):
        first.sum().backward()


@pytest.mark.usefixtures("few_objects")
def test_nothing_is_kept_for_derivatives_that_nobody_asks_for() -> None:
    """An input that backward does not read is freed."""
    call, x = compiled(lambda x, y: x.sin() + y), leaf(4)
    y = torch.ones(4)
    out = call(x, y)
    gone = weakref.ref(y)
    del y
    gc.collect()
    assert gone() is None
    out.sum().backward()


class InPlace(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # type: ignore[override]
        return grad.mul_(3)


@pytest.mark.filterwarnings("ignore::stator.base.errors.FallbackWarning")
def test_a_backward_that_writes_to_what_it_is_given_is_left_to_eager() -> None:
    seen = []
    for call in (_in_place, stator.compile(_in_place)):
        x, tangent = torch.ones(3, requires_grad=True), torch.ones(3)
        call(x).backward(tangent)
        seen.append([x.grad, tangent])
    equal(seen[1], seen[0])
    with pytest.raises(StatorError, match="writes to a gradient"):
        stator.compile(_in_place, fullgraph=True)(torch.ones(3, requires_grad=True))


def _in_place(x: Tensor) -> Tensor:
    result: Tensor = InPlace.apply(x.sin())  # type: ignore[no-untyped-call]
    return result
