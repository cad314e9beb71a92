"""The state of PyTorch's default generator: seeded, asked for and restored inside, around what the graph draws."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import stator

GENERATOR = torch.Generator()


def seeded(x: Tensor) -> Any:
    torch.manual_seed(3)
    return x + torch.randn(4), torch.rand(2)


def seeded_by_an_argument(x: Tensor, seed: int = 5) -> Any:
    torch.default_generator.manual_seed(seed)
    return x * torch.nn.functional.dropout(x.exp(), 0.5)


def forked(x: Tensor) -> Any:
    with torch.random.fork_rng():
        torch.manual_seed(1)
        noise = torch.randn(4)
    return x + noise


def forked_without_devices(x: Tensor) -> Any:
    with torch.random.fork_rng(devices=[]):
        return x + torch.rand(4)


def restored(x: Tensor) -> Any:
    state = torch.get_rng_state()
    noise = torch.randn(4)
    torch.set_rng_state(state)
    return x * noise, state


def set_before(x: Tensor) -> Any:
    state = torch.get_rng_state()
    torch.manual_seed(8)
    torch.set_rng_state(state)
    return x + torch.randn(4)


def beside_another_generator(x: Tensor) -> Any:
    noise = torch.rand(4, generator=GENERATOR)
    copied = GENERATOR.clone_state()
    torch.manual_seed(2)
    return x + noise + torch.rand(4) + torch.rand(4, generator=copied)


WHOLE = [seeded, seeded_by_an_argument, forked, forked_without_devices, restored, set_before, beside_another_generator]


def drawn_before(x: Tensor) -> Any:
    noise = torch.randn(4)
    torch.manual_seed(3)
    return x + noise + torch.randn(4)


def drawn_twice_from_one_state(x: Tensor) -> Any:
    state = torch.get_rng_state()
    first = torch.randn(4)
    torch.set_rng_state(state)
    return x + first - torch.randn(4)


def forked_between(x: Tensor) -> Any:
    first = torch.randn(4)
    with torch.random.fork_rng():
        torch.manual_seed(1)
        noise = torch.randn(4)
    return x + noise + first, torch.randn(4)


def seeded_in_a_loop(x: Tensor) -> Any:
    for seed in range(3):
        torch.manual_seed(seed)
        x = x + torch.rand(4)
    return x


BROKEN = [drawn_before, drawn_twice_from_one_state, forked_between, seeded_in_a_loop]


def outcome(function: Callable[..., Any], x: Tensor) -> Any:
    torch.manual_seed(11)
    GENERATOR.manual_seed(4)
    result = function(x)
    return result, torch.get_rng_state(), GENERATOR.get_state()


@pytest.mark.filterwarnings("ignore::stator.base.errors.FallbackWarning")
@pytest.mark.parametrize("function", WHOLE + BROKEN, ids=lambda function: function.__name__)
def test_numbers_and_states_are_eagers(function: Callable[..., Any]) -> None:
    fast = stator.compile(function, fullgraph=function in WHOLE, options={"eager_random": True})
    for _ in range(3):
        x = torch.randn(4)
        expected, got = outcome(function, x), outcome(fast, x)
        torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("function", WHOLE, ids=lambda function: function.__name__)
def test_numbers_of_our_own_are_the_same_from_the_same_state(function: Callable[..., Any]) -> None:
    fast = stator.compile(function, fullgraph=True)
    x = torch.randn(4)
    first, second = outcome(fast, x), outcome(fast, x)
    torch.testing.assert_close(first, second, rtol=0, atol=0)
    if "fork" in function.__name__ or function is restored:
        torch.manual_seed(11)
        assert torch.equal(first[1], torch.get_rng_state())


@pytest.mark.filterwarnings("ignore::stator.base.errors.FallbackWarning")
@pytest.mark.parametrize("function", BROKEN, ids=lambda function: function.__name__)
def test_what_ends_a_graph_says_what_to_do(function: Callable[..., Any]) -> None:
    report = stator.explain(function)(torch.randn(4))
    assert any("torch.Generator" in stop.hint for stop in report.breaks)


def test_a_graph_that_raises_leaves_the_state_as_it_was() -> None:
    def tries(x: Tensor, index: Tensor) -> Any:
        torch.manual_seed(7)
        return (x + torch.rand(4))[index]

    fast = stator.compile(tries, fullgraph=True, options={"eager_random": True})
    x = torch.randn(4)
    torch.testing.assert_close(fast(x, torch.tensor([1])), tries(x, torch.tensor([1])))
    states = []
    for function in (tries, fast):
        torch.manual_seed(1)
        with pytest.raises(IndexError):
            function(x, torch.tensor([9]))
        states.append(torch.get_rng_state())
    assert torch.equal(*states)


def test_an_operator_of_the_program_may_draw() -> None:
    """It does not say so, so nothing is set back behind it in the same graph."""

    @torch.library.custom_op("stator_state_tests::noisy", mutates_args=())
    def noisy(x: Tensor) -> Tensor:
        return x + torch.rand(4)

    @noisy.register_fake
    def _(x: Tensor) -> Tensor:
        return torch.empty_like(x)

    def program(x: Tensor) -> Any:
        y = noisy(x)
        state = torch.get_rng_state()
        z = noisy(y)
        torch.set_rng_state(state)
        return z, noisy(z)

    fast = stator.compile(program)
    with pytest.warns(stator.base.errors.FallbackWarning):
        for _ in range(2):
            x = torch.randn(4)
            torch.testing.assert_close(outcome(fast, x), outcome(program, x))
