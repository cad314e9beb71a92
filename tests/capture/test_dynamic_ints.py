"""Ints that change: arguments, attributes, items, globals, closures and counters."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import stator
from stator.base.errors import FallbackWarning
from stator.capture.entry import versions_of
from tests.capture.changing_sizes import Calls, Counting, rand

total = 0


def test_an_argument() -> None:
    def f(x: torch.Tensor, n: int) -> torch.Tensor:
        return torch.zeros(n, 3) + x[:n] * n

    calls = Calls(f).all([(rand(20, 3), n) for n in (4, 5, 6, 19)])
    assert calls.compiles == 2
    assert "type(L['n']) is builtins.int" in calls.guards[1]
    assert "L['n'] was 4 and is 5: from now on it is symbolic" in calls.recompiles


def test_its_type_is_guarded() -> None:
    def f(x: torch.Tensor, n: Any) -> torch.Tensor:
        return x * n

    calls = Calls(f).all([(rand(3), n) for n in (4, 5, 6, -3, 0)])
    assert calls.compiles == 2
    calls(rand(3), 2**62)
    assert calls.compiles == 2
    calls.all([(rand(3), True), (rand(3), 2.5), (rand(3), 7)])
    assert calls.compiles == 4


def test_results_of_ints() -> None:
    def f(x: torch.Tensor, n: int) -> Any:
        return x + n, n, n * 2 - 1, -n, n // 3, n % 3, n**2, max(n, 7), n > 6

    assert Calls(f).all([(rand(3), n) for n in (4, 5, 6, 2)]).compiles <= 4


def test_a_counter() -> None:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.count = 0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.count += 1
            return x + 1

    model, backend = Model(), Counting()
    compiled = stator.compile(model, backend=backend)
    for i in range(10):
        compiled(rand(3))
        assert model.count == i + 1
    assert len(versions_of(compiled)) == 2


def test_a_counter_that_is_used() -> None:
    state = SimpleNamespace(step=3)

    def f(x: torch.Tensor) -> torch.Tensor:
        state.step += 1
        y = x * state.step
        state.step += 1
        return y

    compiled = stator.compile(f, backend="eager", fullgraph=True)
    for i in range(6):
        assert torch.equal(compiled(torch.ones(3)), torch.full((3,), 4.0 + 2 * i))
        assert state.step == 5 + 2 * i
    assert len(versions_of(compiled)) == 2


def test_items_globals_and_closures() -> None:
    table, cell, backend = {"n": 2}, 2, Counting()

    def f(x: torch.Tensor) -> torch.Tensor:
        global total
        nonlocal cell
        table["n"] += 1
        total += 2
        cell += 3
        return x * table["n"] + total + cell

    compiled = stator.compile(f, backend=backend, fullgraph=True)
    for i in range(1, 7):
        expected = 2 + i + 2 * i + 2 + 3 * i
        assert torch.equal(compiled(torch.ones(2)), torch.full((2,), float(expected)))
    assert (table["n"], total, cell) == (8, 12, 20)
    assert len(backend.graphs) == 2


def test_ints_that_need_to_be_numbers() -> None:
    def f(x: torch.Tensor, n: int) -> torch.Tensor:
        return x.sum(n) + [1, 2, 3][n]

    calls = Calls(f).all([(rand(3, 3, 3), n) for n in (0, 1, 2, 1)])
    assert calls.compiles == 3


def test_ints_cross_a_break() -> None:
    def f(x: torch.Tensor, n: int) -> torch.Tensor:
        x = x + n
        stator.graph_break()
        return x * n

    calls = Calls(f)
    with pytest.warns(FallbackWarning):
        calls(rand(3), 4)
    calls.all([(rand(3), n) for n in (5, 6, 7)])
    assert len(calls.backend.graphs) == 4


def test_always() -> None:
    def f(x: torch.Tensor, n: int) -> torch.Tensor:
        return x * n

    assert Calls(f, dynamic=True).all([(rand(3), n) for n in (4, 5, 6)]).compiles == 1


def test_never() -> None:
    def f(x: torch.Tensor, n: int) -> torch.Tensor:
        return x * n

    assert Calls(f, dynamic=False).all([(rand(3), n) for n in (4, 5, 6)]).compiles == 3


def test_ints_beyond_what_guards_compute_with() -> None:
    def fn(x: torch.Tensor, n: int) -> torch.Tensor:
        n = n * n
        return x + 1 if n < len(f"{n}") or n >= 2**63 else x

    compiled = stator.compile(fn, backend="eager", dynamic=True, options={"strict": True})
    for n in (3, 70_000, 2**40, 2**61, 2**70, -5):
        x = rand(3)
        assert torch.equal(compiled(x, n), fn(x, n)), n


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_arithmetic_that_no_tensor_takes(backend: str) -> None:
    def fn(x: torch.Tensor, n: int) -> Any:
        try:
            x += 1
            x += n * n % 7
            x += n * n
        finally:
            return x  # noqa: B012

    compiled = stator.compile(fn, backend=backend, options={"strict": True})
    for n in (2, 3, 4, -5, 2**40, 2**70, 6, -(2**33), 2**65):
        got, expected = compiled(torch.ones(2), n), fn(torch.ones(2), n)
        assert torch.equal(got, expected), n
    assert len(versions_of(compiled)) <= 6


GREAT: dict[str, Callable[[torch.Tensor, int], torch.Tensor]] = {
    "remainder of a square": lambda x, k: x + k * k % 1000,
    "quotient of a square": lambda x, k: x + k * k // 7 % 1000,
    "greater of two": lambda x, k: x + max(k * k, 5) % 9,
    "smaller of two": lambda x, k: x + min(k**4, 5),
    "a choice": lambda x, k: x + (k * k if k * k % 2 else 3) % 100,
    "a fill": lambda x, k: torch.full((2,), k * k % 11) + x,
    "a slice": lambda x, k: x[k * k % 2 :] + 1,
    "a sum": lambda x, k: x + (k + 2**62) % 1000,
    "a difference": lambda x, k: x + (-k * k) % 1000,
    "a float": lambda x, k: x + 1.5 * (k * k % 1000),
    "a size": lambda x, k: x.new_zeros(k * k % 5 + 1),
    "positions": lambda x, k: (torch.arange(4) * k >= 0).long() + x.sum(),
    "positions and more": lambda x, k: (torch.arange(4) * k + k < 0).long() + x.sum(),
}


@pytest.mark.parametrize("name", GREAT)
def test_great_ints_are_exact(name: str) -> None:
    """Ints have no limit in Python: what 64 bits do not hold on the way is computed there."""
    function = GREAT[name]
    compiled = stator.compile(function, options={"strict": True})
    x = torch.zeros(2, dtype=torch.int64)
    for k in (3, 5, 7, 3037000500, -3037000500, 2**62 + 3, 2**63 - 1, -(2**63), 9):
        assert torch.equal(compiled(x, k), function(x, k)), k


def test_powers_of_great_sizes_are_exact() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x[:1] + x.shape[0] ** 3 % 1000

    compiled = stator.compile(function, options={"strict": True})
    for size in (5, 7, 9, 3_000_001):
        x = torch.zeros(1, dtype=torch.int64).expand(size)
        assert torch.equal(compiled(x), function(x)), size


LENGTHS: dict[str, Callable[..., Any]] = {
    "compared": lambda x, items: x + 1 if len(items) < 6 else x - 1,
    "computed with": lambda x, items: (x * len(items), len(items), len(items) / 2),
    "asked": lambda x, items: x + 1 if items else x - 1,
    "every other": lambda x, items: x + 1 if len(items) % 2 else x - 1,
    "added to": lambda x, items: (items.append(2), x * len(items), len(items), items.append(3))[1:3],
    "a mean": lambda x, items: (items.append(1), x / len(items))[1],
    "a size": lambda x, items: x.new_ones(len(items) + 2),
}


@pytest.mark.parametrize("kind", [list, lambda: deque(maxlen=11), deque], ids=["list", "bounded", "deque"])
@pytest.mark.parametrize("name", LENGTHS)
def test_lengths_of_what_grows(name: str, kind: Callable[[], Any]) -> None:
    """A history or a replay buffer that nobody reads here: its length is a number like any other."""
    program = LENGTHS[name]
    compiled = stator.compile(program, fullgraph=True)
    ours, theirs = kind(), kind()
    for number in range(12):
        x = rand(3)
        torch.testing.assert_close(compiled(x, ours), program(x, theirs))
        assert ours == theirs
        ours.append(number)
        theirs.append(number)
    assert len(versions_of(compiled)) <= 4


def test_a_length_and_then_the_items() -> None:
    def f(x: torch.Tensor, items: list[int]) -> torch.Tensor:
        return x * len(items) + sum(items) if len(items) < 4 else x * len(items)

    compiled = stator.compile(f)
    for count in (1, 2, 3, 5, 7, 2, 3, 9, 1):
        x = rand(3)
        assert torch.equal(compiled(x, list(range(count))), f(x, list(range(count))))


BELOW_ZERO: dict[str, Callable[[torch.Tensor, int], Any]] = {
    "zeros": lambda x, n: torch.zeros(n - 3).shape[0],
    "rand": lambda x, n: torch.rand(n - 3).shape[0],
    "empty": lambda x, n: torch.empty(n - 3).shape[0],
    "full": lambda x, n: torch.full((n - 3, 2), 1.0).shape[0],
    "new_zeros": lambda x, n: x.new_zeros(n - 3).shape[0],
    "arange": lambda x, n: torch.arange(n - 3),
    "arange down": lambda x, n: torch.arange(n, 3, -1),
    "eye": lambda x, n: torch.eye(n - 3),
    "eye with columns": lambda x, n: torch.eye(2, n - 3),
    "expand": lambda x, n: x[:1].expand(n - 3).shape[0],
    "repeat": lambda x, n: x.repeat(n - 3).shape[0],
    "narrow": lambda x, n: x.narrow(0, 0, n - 3).shape[0],
    "as_strided": lambda x, n: x.as_strided((n - 3,), (1,)).shape[0],
    "split": lambda x, n: x.split([3, n - 3])[1],
    "interpolate": lambda x, n: torch.nn.functional.interpolate(x[None, None], size=n - 3),
}


@pytest.mark.parametrize("name", BELOW_ZERO)
def test_sizes_that_fall_below_zero(name: str) -> None:
    def f(x: torch.Tensor) -> Any:
        return x.sum(), BELOW_ZERO[name](x, x.shape[0])

    compiled = stator.compile(f)
    for size in (7, 6, 8, 2, 3, 5):
        x = rand(size)
        try:
            wanted = f(x)
        except RuntimeError as error:
            with pytest.raises(type(error)):
                compiled(x)
            continue
        found = compiled(x)
        assert len(found) == len(wanted)
        if isinstance(wanted[1], int):
            assert found[1] == wanted[1]
        else:
            assert found[1].shape == wanted[1].shape
