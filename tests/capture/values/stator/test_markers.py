"""What the program tells the compiler: `graph_break`, `disable`, `is_compiling`, `mark_dynamic` under capture."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import stator
from stator.base import log
from stator.base.errors import CaptureError, FallbackWarning


def x() -> torch.Tensor:
    return torch.arange(4.0)


def broken(t: torch.Tensor) -> torch.Tensor:
    t = torch.sin(t)
    stator.graph_break("to look at it")
    return t + 1


@stator.disable(reason="it draws a picture")
def left_alone(t: torch.Tensor) -> torch.Tensor:
    return t * 2


def calls_disabled(t: torch.Tensor) -> torch.Tensor:
    return left_alone(t) + 1


@pytest.mark.parametrize(
    ("function", "reason", "line"),
    [
        (broken, "graph break: to look at it", 2),
        (calls_disabled, "left_alone is called, which is not compiled: it draws a picture", 1),
    ],
)
def test_marked_places_end_the_graph(function: Any, reason: str, line: int) -> None:
    place = f"{__file__}:{function.__code__.co_firstlineno + line}"
    with pytest.raises(CaptureError, match=reason) as caught:
        stator.compile(function, fullgraph=True, backend="eager")(x())
    assert f"at {place}" in str(caught.value) and "hint:" in str(caught.value)
    compiled = stator.compile(function, backend="eager")
    with log.collect() as recorder, pytest.warns(FallbackWarning, match=reason):
        torch.testing.assert_close(compiled(x()), function(x()))
    (told,) = recorder.of(log.BREAK)
    assert f"{told['file']}:{told['line']}" == place


def test_a_disabled_module_is_called_and_not_looked_into() -> None:
    inner = stator.disable(torch.nn.Linear(4, 4))
    outer = torch.nn.Sequential(inner, torch.nn.ReLU())
    with pytest.raises(CaptureError, match="marked with stator"):
        stator.compile(outer, fullgraph=True, backend="eager")(x())
    with pytest.warns(FallbackWarning, match="marked"):
        torch.testing.assert_close(stator.compile(outer, backend="eager")(x()), outer(x()))


def test_the_honest_answer_is_yes() -> None:
    def f(t: torch.Tensor) -> torch.Tensor:
        return t + 1 if stator.is_compiling() else t - 1

    compiled = stator.compile(f, fullgraph=True, backend="eager")
    assert torch.equal(compiled(x()), x() + 1) and torch.equal(f(x()), x() - 1)


def test_marking_inside_changes_nothing() -> None:
    def f(t: torch.Tensor) -> torch.Tensor:
        u = t * 2
        stator.mark_dynamic(u, 0)
        return u + 1

    with log.collect() as recorder:
        assert torch.equal(stator.compile(f, fullgraph=True, backend="eager")(x()), f(x()))
    assert len(recorder.of(log.NOTE)) == 1


def inner_of_left_alone(x: torch.Tensor) -> torch.Tensor:
    return (x * 2).sin()


def calls_inner(x: torch.Tensor) -> torch.Tensor:
    return inner_of_left_alone(x) + 1


class CallsLayers(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(3, 3), torch.nn.ReLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x)) + 1  # type: ignore[no-any-return]


@pytest.mark.parametrize("disable", [stator.disable, torch.compiler.disable], ids=["stator", "torch"])
@pytest.mark.parametrize("recursive", [False, True])
def test_what_a_compiled_function_calls_is_compiled_unless_it_is_disabled_recursively(
    disable: Any, recursive: bool
) -> None:
    sizes: list[int] = []

    def backend(gm: torch.fx.GraphModule, examples: list[Any]) -> Any:
        sizes.append(sum(node.op.startswith("call_") for node in gm.graph.nodes))
        return gm.forward

    x = torch.randn(2, 3)
    compiled = stator.compile(disable(calls_inner, recursive=recursive), backend=backend)
    for _ in range(2):
        assert torch.equal(compiled(x), calls_inner(x))
    assert sizes == ([] if recursive else [2])
    if disable is stator.disable and not recursive:
        module = CallsLayers()
        expected = module(x)
        assert torch.equal(stator.compile(disable(module, recursive=False), backend=backend)(x), expected)
        assert sizes == [2, 1, 1]
