"""Floats that change: arguments, attributes, items, globals, closures, results of `.item()` and learning rates."""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import stator
from stator.base import log
from stator.base.errors import FallbackWarning
from stator.capture.entry import versions_of
from tests.capture.changing_sizes import Calls, Counting, rand

NUMBERS = (0.1, 0.25, -3.5, 1e-30, 0.0, -0.0, math.inf, -math.inf, math.nan, 2.0, 1e300)

scale = 1.0


def exact(compiled: Callable[..., Any], function: Callable[..., Any], numbers: tuple[float, ...] = NUMBERS) -> None:
    """Bit by bit what eager gives."""
    for number in numbers:
        x = rand(5)
        ours, theirs = compiled(x, number), function(x, number)
        assert ours.dtype is theirs.dtype
        assert ours.numpy().tobytes() == theirs.numpy().tobytes(), number


def test_an_argument() -> None:
    def f(x: torch.Tensor, a: float) -> torch.Tensor:
        return x * a + a

    calls = Calls(f).all([(rand(5), a) for a in (0.5, 0.25, -0.125, 3.0, 1e-3)])
    assert calls.compiles == 2
    assert "type(L['a']) is builtins.float" in calls.guards[1]
    assert "L['a'] was 0.5 and is 0.25: from now on it is symbolic" in calls.recompiles
    exact(calls.compiled, f)
    assert calls.compiles == 2


def test_a_backend_gets_a_float() -> None:
    examples: list[list[Any]] = []

    def backend(gm: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        examples.append(inputs)
        return gm.forward

    compiled = stator.compile(lambda x, a: x * (2 * a), backend=backend)
    compiled(rand(3), 0.5)
    compiled(rand(3), 0.75)
    assert [type(value) for value in examples[1]] == [torch.Tensor, float]
    assert examples[1][1] == 0.75


def test_results_of_floats() -> None:
    def f(x: torch.Tensor, a: float, n: int) -> Any:
        return x, a, a * 2 - 1, -a, a / 3, a // 0.25, a % 0.5, a**2, 0.5**n, abs(a), max(a, 1.5), min(a, 1.5), n / 4

    assert Calls(f).all([(rand(3), a, n) for n, a in enumerate((0.3, 1.7, 2.9, -0.7, 1e10), 2)]).compiles == 2


def test_functions_of_floats() -> None:
    def f(x: torch.Tensor, a: float) -> Any:
        return x * math.sqrt(a), math.exp(a), math.log(a), math.sin(a), float(a), math.tanh(a)

    calls = Calls(f).all([(rand(3), a) for a in (0.5, 1.5, 2.5, 0.25)])
    assert calls.compiles == 2
    with pytest.raises(ValueError, match=r"math domain error|nonnegative input"):
        calls.compiled(rand(3), -1.0)


@pytest.mark.parametrize(
    "use",
    [
        lambda x, a: x * [10.0, 20.0, 30.0, 40.0][int(a)],
        lambda x, a: x * {1.25: 2.0}.get(a, 3.0),
        lambda x, a: x + len(f"{a}"),
        lambda x, a: x * round(a),
        lambda x, a: x * math.floor(a),
        lambda x, a: x + hash(a),
        lambda x, a: torch.nn.functional.dropout(x, a / 10, training=False) * (a.hex() > "0"),
        lambda x, a: torch.arange(0, a) + x[0],
    ],
    ids=["int", "key", "text", "round", "floor", "hash", "method", "arange"],
)
def test_what_needs_the_number_fixes_it(use: Callable[[torch.Tensor, float], Any]) -> None:
    calls = Calls(use, fullgraph=True).all([(rand(3), a) for a in (0.5, 1.25, 2.5, 1.25)])
    assert calls.compiles == 3


def test_comparisons() -> None:
    def f(x: torch.Tensor, a: float) -> torch.Tensor:
        return x * a if a > 0 else x - a

    calls = Calls(f).all([(rand(3), a) for a in (0.5, 0.25, 0.125, 7.0, math.inf, -1.0, -2.0, -1e-30)])
    assert calls.compiles == 3
    assert "bits(L['a']) > bits(0.0)" in calls.guards[1]
    calls.all([(rand(3), 0.0), (rand(3), -0.0), (rand(3), 0.0)])
    calls.all([(rand(3), 3.0), (rand(3), -3.0)])
    assert calls.compiles == 5


@pytest.mark.parametrize("op", ["<", "<=", ">", ">=", "==", "!="])
@pytest.mark.parametrize("constant", [0, -1.5, 2.0, math.inf, math.nan])
def test_every_comparison(op: str, constant: float) -> None:
    f = eval(f"lambda x, a: x + 1 if a {op} constant else x - 1", {"constant": constant})
    numbers = (0.1, 0.2, *NUMBERS, -1.5, 2.0, -1.4999, 1.9999, -1.6, 2.5)
    compiled = stator.compile(f, backend=Counting(), options={"recompile_limit": 16})
    for number in (*numbers, *numbers):
        x = rand(3)
        assert torch.equal(compiled(x, number), f(x, number)), number
    assert len(versions_of(compiled)) <= 9


def test_a_comparison_of_what_is_computed() -> None:
    calls = Calls(lambda x, a: x + 1 if 2 * a > a + 1 else x - 1, fullgraph=True)
    calls.all([(rand(3), a) for a in (0.5, 0.25, 2.0, 3.0, 0.75, 4.0)])
    assert calls.compiles == 3


def test_truth() -> None:
    calls = Calls(lambda x, a: x * a if a else x).all([(rand(3), a) for a in (0.5, 0.25, 3.0, 0.0, 0.0, 9.0)])
    assert calls.compiles == 3


def test_a_division_by_zero_is_raised() -> None:
    def f(x: torch.Tensor, a: float) -> torch.Tensor:
        try:
            return x * (1 / a)
        except ZeroDivisionError:
            return x - 1

    def g(x: torch.Tensor, n: int) -> torch.Tensor:
        try:
            return x * (1 / (1 - 0.5**n))
        except ZeroDivisionError:
            return x - 1

    assert Calls(f).all([(rand(3), a) for a in (0.5, 0.25, 4.0, 0.0, -0.0, 8.0)]).compiles <= 4
    assert Calls(g).all([(rand(3), n) for n in (5, 4, 3, 0, 7, 9)]).compiles <= 4


def test_its_type_is_guarded() -> None:
    calls = Calls(lambda x, a: x * a).all([(torch.arange(3), a) for a in (0.5, 0.25, 2, 3.5, True, 4)])
    assert calls.compiles <= 5


# -- where they come from --------------------------------------------------------------------------------------------


def test_attributes_items_globals_and_cells() -> None:
    state, items, cell = SimpleNamespace(a=1.0), {"a": 1.0, "list": [1.0]}, 1.0

    def f(x: torch.Tensor) -> torch.Tensor:
        return x * state.a + items["a"] * items["list"][0] + scale * cell  # type: ignore[index, operator]

    global scale
    calls = Calls(f)
    for i in range(5):
        state.a, items["a"], items["list"][0] = 1.0 + i, 2.0 * i + 1, 0.5 * i  # type: ignore[index]
        scale, cell = 3.0 + i, 0.1 * i
        calls(rand(3))
    assert calls.compiles == 2


def test_an_attribute_that_decays() -> None:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.alpha, self.before = 1.0, 0.0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.before = self.alpha
            self.alpha *= 0.99
            return x * self.alpha + self.before

    ours, theirs, backend = Model(), Model(), Counting()
    compiled = stator.compile(ours, backend=backend)
    for _ in range(8):
        x = rand(3)
        assert torch.equal(compiled(x), theirs(x))
        assert (ours.alpha, ours.before) == (theirs.alpha, theirs.before)
    assert len(backend.graphs) == 2


def test_dynamic_and_static() -> None:
    f = lambda x, a: x * a  # noqa: E731
    assert Calls(f, dynamic=True).all([(rand(3), a) for a in (0.5, 0.25, 0.75)]).compiles == 1
    assert Calls(f, dynamic=False).all([(rand(3), a) for a in (0.5, 0.25, 0.75)]).compiles == 3


def test_item_after_a_break() -> None:
    def f(x: torch.Tensor) -> Any:
        loss = (x * 2).sum()
        number = loss.item()
        return x * number + min(1.0, 1.0 / (abs(number) + 1.0)), number

    backend = Counting()
    compiled = stator.compile(f, backend=backend)
    with pytest.warns(FallbackWarning):
        compiled(rand(3))
    for _ in range(8):
        x = rand(3)
        ours, theirs = compiled(x), f(x)
        assert torch.equal(ours[0], theirs[0])
        assert ours[1] == theirs[1]
    assert len(backend.graphs) == 3


def test_ints_after_a_break() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        n = (x > 0).sum().item()
        return x * n + len(x.tolist())

    backend = Counting()
    compiled = stator.compile(f, backend=backend)
    with pytest.warns(FallbackWarning):
        compiled(torch.ones(9))
    for count in (3, 4, 0, 1, 5, 0, 1, 6, 7, 1, 8, 0):
        x = torch.cat([torch.ones(count), -torch.ones(9 - count)])
        assert torch.equal(compiled(x), f(x))
    assert len(backend.graphs) <= 9


# -- stator's own backend --------------------------------------------------------------------------------------------

POINTWISE = [
    lambda x, a: x * a,
    lambda x, a: a - x,
    lambda x, a: x / a,
    lambda x, a: x.clamp(min=a) if a == a else x,
    lambda x, a: torch.where(x > 0, x, a),
    lambda x, a: torch.full((5,), a) + x,
    lambda x, a: x.masked_fill(x > 0, a),
    lambda x, a: (x < a) | (x == a),
    lambda x, a: x * (2 * a + 1) - a * 0.5,
    lambda x, a: torch.full_like(x, a),
    lambda x, a: x.clone().fill_(a),
    lambda x, a: torch.cat([x, x.new_full((2,), a)]),
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("function", POINTWISE)
def test_kernels_get_every_bit(function: Callable[..., Any], dtype: torch.dtype) -> None:
    compiled = stator.compile(function, fullgraph=True)
    for number in NUMBERS[:-1]:
        x = rand(5).to(dtype)
        ours, theirs = compiled(x, number), function(x, number)
        assert ours.dtype is theirs.dtype
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0, equal_nan=True)
    assert len(versions_of(compiled)) <= 5


@pytest.mark.filterwarnings("ignore::stator.base.errors.FallbackWarning")
def test_what_is_too_great_for_a_type() -> None:
    compiled = stator.compile(lambda x, a: x.masked_fill(x > 0, a))
    compiled(rand(3), 0.5)
    compiled(rand(3), 0.25)
    for number in (1e300, -1e300, 3.5e38):
        with pytest.raises(RuntimeError, match="without overflow"):
            compiled(torch.ones(3), number)
    assert torch.equal(compiled(torch.ones(3), -3e38), torch.full((3,), -3e38))


def test_with_integers_it_promotes() -> None:
    f = lambda x, a: (x + a, x * a, x > a)  # noqa: E731
    compiled = stator.compile(f, fullgraph=True)
    for number in (0.5, 0.25, -1.5, math.nan):
        x = torch.randint(-4, 4, (6,))
        for ours, theirs in zip(compiled(x, number), f(x, number), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y, a: torch.addcmul(x, y, y, value=a),
        lambda x, y, a: torch.add(x, y, alpha=a).sin(),
        lambda x, y, a: torch.nn.functional.leaky_relu(x, a) * y,
        lambda x, y, a: torch.nn.functional.elu(x, a) * y,
        lambda x, y, a: (x * a).sin() * (a * 2) * y,
        lambda x, y, a: torch.addmm(y, x, y, alpha=a),
        lambda x, y, a: torch.nn.functional.hardtanh(x, -a, a) * y,
        lambda x, y, a: torch.nn.functional.smooth_l1_loss(x, y, beta=a + 1),
        lambda x, y, a: (x @ y * a).softmax(-1),
        lambda x, y, a: x.abs() ** a * y,
        lambda x, y, a: torch.lerp(x, y, a),
        lambda x, y, a: x.abs() * a ** y.abs(),
        lambda x, y, a: torch.nn.functional.layer_norm(x, (4,), eps=a) * y,
    ],
)
def test_gradients(function: Callable[..., Any]) -> None:
    compiled = stator.compile(function)
    for number in (0.1, 0.25, 0.3, 0.7):
        leaves = [rand(4, 4).requires_grad_() for _ in range(2)]
        twins = [leaf.detach().clone().requires_grad_() for leaf in leaves]
        ours, theirs = compiled(*leaves, number), function(*twins, number)
        torch.testing.assert_close(ours, theirs)
        ours.sum().backward()
        theirs.sum().backward()
        for leaf, twin in zip(leaves, twins, strict=True):
            torch.testing.assert_close(leaf.grad, twin.grad)
    assert len(versions_of(compiled)) <= 4


@pytest.mark.parametrize("backend", ["inductor", "aot_eager"])
def test_saved_for_backward_is_the_number_of_the_forward(backend: str) -> None:
    compiled = stator.compile(lambda x, a: (x * a).sin() * a, backend=backend)
    compiled(rand(3), 0.5)
    x = rand(3).requires_grad_()
    results = [(a, compiled(x, a)) for a in (0.25, 2.0, 3.0)]
    for a, result in results:
        (grad,) = torch.autograd.grad(result.sum(), x)
        torch.testing.assert_close(grad, (x * a).cos() * a * a)


@pytest.mark.parametrize(
    ("optimizer", "settings"),
    [
        (torch.optim.SGD, {}),
        (torch.optim.SGD, {"momentum": 0.9, "weight_decay": 0.01, "foreach": True}),
        (torch.optim.Adam, {}),
        (torch.optim.AdamW, {"foreach": True}),
        (torch.optim.RMSprop, {}),
    ],
)
def test_a_learning_rate(optimizer: type[torch.optim.Optimizer], settings: dict[str, Any]) -> None:
    theirs = torch.nn.Linear(4, 3)
    ours = copy.deepcopy(theirs)
    eager = optimizer(theirs.parameters(), lr=0.1, **settings)  # type: ignore[call-arg]
    other = optimizer(ours.parameters(), lr=0.1, **settings)  # type: ignore[call-arg]
    step = stator.compile(other.step)
    for i in range(6):
        x = rand(5, 4)
        for model, owner, update in ((theirs, eager, eager.step), (ours, other, step)):
            owner.zero_grad()
            model(x).square().sum().backward()
            owner.param_groups[0]["lr"] = 0.1 * 0.9**i
            update()
        for left, right in zip(ours.parameters(), theirs.parameters(), strict=True):
            torch.testing.assert_close(left, right)
    assert len(versions_of(step)) == 2


QUESTIONS = {
    "finite": lambda x, r: x * r if math.isfinite(r) else x,
    "not a number": lambda x, r: x if math.isnan(r) or math.isinf(r) else x * r,
    "nothing": lambda x, r: x * r if r != None else x,  # noqa: E711
    "a text": lambda x, r: x if r == "auto" else x * r,
    "a pair": lambda x, r: x if r == (1, 2) else x * r,
    "an attribute": lambda x, r: x if hasattr(r, "_fields") else x * r,
    "a method": lambda x, r: x * r if hasattr(r, "__float__") else x,
    "a default": lambda x, r: x * getattr(r, "rate", r),
    "of a pair": lambda x, r: x if hasattr((r, 1), "_fields") else x * r,
    "a record": lambda x, r: x * dataclasses.asdict(Rate(r))["rate"],
    "records": lambda x, r: x * dataclasses.astuple(Rate((r, [r])))[0][1][0],
}


@dataclasses.dataclass
class Rate:
    rate: Any


@pytest.mark.parametrize("kind", [int, float])
@pytest.mark.parametrize("name", QUESTIONS)
def test_questions_that_need_no_number(name: str, kind: type) -> None:
    program = QUESTIONS[name]
    compiled = stator.compile(program, fullgraph=True)
    with log.collect() as recorder:
        for number in (3, 4, 5, 6, 7):
            x, value = torch.randn(3), number if kind is int else number / 8
            assert torch.equal(compiled(x, value), program(x, value))
    assert len(recorder.of(log.GRAPH)) == 2


@pytest.mark.parametrize("function", [math.isfinite, math.isnan, math.isinf])
def test_what_is_no_number_is_told_apart(function: Any) -> None:
    program = lambda x, r: x + 1 if function(r) else x - 1  # noqa: E731
    compiled = stator.compile(program)
    for value in (0.5, 0.25, math.nan, 1.5, math.inf, -math.inf, 2.5, 3, 0.0, math.nan):
        assert torch.equal(compiled(torch.zeros(2), value), program(torch.zeros(2), value))


COMPARED: dict[str, Callable[..., Any]] = {
    "two": lambda x, a, b: x + 1 if a < b else x - 1,
    "computed": lambda x, a, b: x + 1 if a < b - 1e-3 else x - 1,
    "on both sides": lambda x, a, b: x + 1 if 2 * a >= b * b else x - 1,
    "equal": lambda x, a, b: x + 1 if a == b else x - 1,
    "a size": lambda x, a, b: x + 1 if len(x) / 2 > a else x - b,
    "of an int": lambda x, a, b: x + 1 if int(1e3) > a * b else x - 1,
    "the larger": lambda x, a, b: x * max(a, b) if max(a, b) > 2 * min(a, b) else x,
    "divided": lambda x, a, b: x * (a / b) if b else x,
    "rounded": lambda x, a, b: x + round(min(a, 1e3) - min(b, 1e3)) if a - b < 1e9 else x,
    "finite": lambda x, a, b: x + 1 if math.isfinite(a - b) else x - 1,
}


@pytest.mark.parametrize("name", COMPARED)
def test_comparisons_of_numbers_that_both_change(name: str) -> None:
    """Both sides are computed again where the guards are checked: one version an answer, right for any numbers."""
    program = COMPARED[name]
    compiled = stator.compile(program, options={"recompile_limit": 64, "strict": True}, fullgraph=True)
    pairs = [(0.5, 0.25), (0.75, 1.5), (3.0, 1.25), (0.1, 0.3), (0.7, 0.2), (0.4, 0.9), (0.3, 0.25), (0.2, 0.6)]
    versions = []
    for a, b in pairs:
        x = rand(3)
        torch.testing.assert_close(compiled(x, a, b), program(x, a, b), equal_nan=True)
        versions.append(len(versions_of(compiled)))
    assert versions[-1] <= 5 and (name == "rounded" or versions[-1] == versions[3])
    for a in NUMBERS:
        for b in NUMBERS:
            x = rand(4)
            try:
                expected: Any = program(x, a, b)
            except (ArithmeticError, ValueError) as error:
                with pytest.raises(type(error)):
                    compiled(x, a, b)
            else:
                torch.testing.assert_close(compiled(x, a, b), expected, equal_nan=True)


def test_the_best_so_far() -> None:
    """What early stopping keeps: one version for what is better, and one for what is not."""

    def f(x: torch.Tensor, state: Any, loss: float) -> torch.Tensor:
        if loss < state.best - 1e-3:
            state.best, state.bad = loss, 0
        else:
            state.bad += 1
        return x + 1

    losses = [5.0, 4.0, 3.5, 3.6, 3.7, 2.0, 2.1, 1.0, 0.5, 0.7, 0.9, 0.2, math.nan, 0.1]
    ours, theirs = (SimpleNamespace(best=math.inf, bad=0) for _ in range(2))
    compiled = stator.compile(f, fullgraph=True)
    for loss in losses:
        compiled(rand(2), ours, loss)
        f(rand(2), theirs, loss)
        assert vars(ours) == vars(theirs)
    assert len(versions_of(compiled)) <= 5
