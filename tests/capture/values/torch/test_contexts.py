"""Contexts around a graph break: entered once, left once, in the order and with the exception that eager gives."""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

import stator
from tests.capture.values.harness import check

LOG: list[Any] = []


class Manager:
    """A context of the user's, which may swallow what is raised inside."""

    def __init__(self, swallows: type[BaseException] | None = None) -> None:
        self.swallows = swallows

    def __enter__(self) -> Manager:
        LOG.append("enter")
        return self

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> bool:
        LOG.append(("exit", kind, str(error)))
        return kind is not None and self.swallows is not None and issubclass(kind, self.swallows)


@contextlib.contextmanager
def generated(name: str) -> Iterator[str]:
    LOG.append(("before", name))
    try:
        yield name
    except ValueError as error:
        LOG.append(("inside", str(error)))
        raise
    finally:
        LOG.append(("after", name))


def stacked() -> contextlib.ExitStack:
    stack = contextlib.ExitStack()
    stack.enter_context(torch.no_grad())
    stack.enter_context(Manager())
    stack.callback(LOG.append, "callback")
    return stack


CONTEXTS: dict[str, Callable[[], Any]] = {
    "no_grad": torch.no_grad,
    "enable_grad": torch.enable_grad,
    "set_grad_enabled": lambda: torch.set_grad_enabled(False),
    "inference_mode": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "sdpa_kernel": lambda: sdpa_kernel(SDPBackend.MATH),
    "record_function": lambda: torch.profiler.record_function("a"),
    "saved_tensors_hooks": lambda: torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t),
    "fork_rng": lambda: torch.random.fork_rng(devices=[]),
    "ExitStack": stacked,
    "nullcontext": lambda: contextlib.nullcontext(3),
    "suppress": lambda: contextlib.suppress(ValueError),
    "class": Manager,
    "swallows": lambda: Manager(ValueError),
    "generator": lambda: generated("g"),
}


def modes() -> tuple[bool, ...]:
    return torch.is_grad_enabled(), torch.is_autocast_enabled("cpu"), torch.is_inference_mode_enabled()


def outcome(function: Callable[..., Any], *args: Any) -> Any:
    LOG.clear()
    try:
        value, facts = function(*args)
    except Exception as error:
        return type(error), str(error), list(LOG), modes()
    return value.detach().clone(), value.dtype, value.requires_grad, facts, list(LOG), modes()


def same(got: Any, expected: Any) -> None:
    assert len(got) == len(expected), (got, expected)
    for one, other in zip(got, expected, strict=True):
        if isinstance(other, torch.Tensor):
            assert torch.equal(one, other)
        else:
            assert one == other


def program(context: Callable[[], Any], way: str) -> Callable[..., Any]:
    """A function that breaks inside of a context and leaves it in one of several ways."""

    def run(x: torch.Tensor, w: torch.Tensor) -> Any:
        facts = []
        y = x @ w
        for turn in range(2):
            with context():
                y = (y.float() @ w) + turn
                facts.append(modes())
                if way != "whole":
                    stator.graph_break()
                y = y @ w.to(y.dtype)
                facts.append(modes())
                if way == "raise":
                    raise ValueError(f"turn {turn}")
                if way == "return":
                    return y, facts
                if way == "continue":
                    continue
            facts.append(modes())
        return y.float() * 2, facts

    return run


@pytest.mark.filterwarnings("ignore::stator.base.errors.FallbackWarning")
@pytest.mark.parametrize("way", ["whole", "break", "raise", "return", "continue"])
@pytest.mark.parametrize("name", CONTEXTS)
def test_left_as_in_eager(name: str, way: str) -> None:
    function = program(CONTEXTS[name], way)
    compiled = stator.compile(function, backend="eager")
    x, w = torch.randn(3, 3), torch.randn(3, 3, requires_grad=True)
    expected = outcome(function, x, w)
    for _ in range(2):
        same(outcome(compiled, x, w), expected)


@pytest.mark.parametrize(
    "name", ["no_grad", "enable_grad", "set_grad_enabled", "autocast", "record_function", "ExitStack"]
)
def test_without_a_break_it_is_one_graph(name: str) -> None:
    context = CONTEXTS[name]

    def run(x: torch.Tensor) -> Any:
        with context():
            y = x.sin() @ x
        return y + 1, torch.is_grad_enabled()

    check(run, torch.randn(3, 3))


@pytest.mark.filterwarnings("ignore::stator.base.errors.FallbackWarning")
def test_the_exception_that_is_handled() -> None:
    def run(x: torch.Tensor) -> Any:
        before = sys.exc_info()[0]
        try:
            raise KeyError("k")
        except KeyError:
            kind, error, _ = sys.exc_info()
            return x.sin(), (before, kind, str(error), error is sys.exc_info()[1])

    compiled = stator.compile(run, backend="eager")
    x = torch.randn(3)
    for _ in range(2):
        same(outcome(compiled, x), outcome(run, x))
    try:
        raise ValueError("v")
    except ValueError:
        for _ in range(2):
            same(outcome(compiled, x), outcome(run, x))
            assert compiled(x)[1][0] is ValueError


@pytest.mark.filterwarnings("ignore::stator.base.errors.FallbackWarning")
def test_a_graph_that_ends_inside_autocast_leaves_it() -> None:
    graphs: list[torch.fx.GraphModule] = []

    def backend(module: torch.fx.GraphModule, examples: list[torch.Tensor]) -> Callable[..., Any]:
        graphs.append(module)
        return module.forward

    def run(x: torch.Tensor) -> Any:
        inner = torch.autocast("cpu", torch.float16)
        with torch.autocast("cpu", torch.bfloat16), inner:
            y = x @ x
            stator.graph_break()
            z = x @ x
        return y, z, x @ x, torch.is_autocast_enabled("cpu")

    x = torch.randn(3, 3)
    compiled = stator.compile(run, backend=backend)
    for _ in range(2):
        got, expected = compiled(x), run(x)
        assert [each.dtype for each in got[:3]] == [torch.float16, torch.float16, torch.float32]
        assert all(torch.equal(one, other) for one, other in zip(got[:3], expected[:3], strict=True))
        assert got[3] is expected[3] is False
    calls = [sum(node.target is torch.amp.autocast_mode._enter_autocast for node in g.graph.nodes) for g in graphs]
    assert calls == [2, 0, 0]


def test_inference_mode_within_inference_mode() -> None:
    def program(t: torch.Tensor) -> tuple[torch.Tensor, bool, bool]:
        with torch.enable_grad(), torch.inference_mode():
            inside = torch.is_grad_enabled()
            y = t * 2
        return y, inside, torch.is_grad_enabled()

    compiled = stator.compile(program, backend="eager")
    t = torch.ones(2)
    with torch.inference_mode():
        whole = stator.compile(program, backend="eager", fullgraph=True)(t)
        within, expected = compiled(t), program(t)
    assert within[1:] == whole[1:] == expected[1:]
    assert within[0].is_inference() and expected[0].is_inference()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # outside of it the graph ends there
        outside = compiled(t)
    assert outside[1:] == program(t)[1:]
    assert outside[0].is_inference() == program(t)[0].is_inference()
