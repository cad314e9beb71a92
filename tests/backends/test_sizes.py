"""What backends that are not our own are given where sizes change: graphs of numbers, or symbols all through."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, fx

import stator
from stator.base.errors import FallbackWarning, MarkedSizeFixed, Undecided

SIZES = (4, 8, 12, 20)


class Baking:
    """A backend that builds what it sees into its result."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, gm: fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
        self.calls += 1
        shapes = [value.shape if isinstance(value, Tensor) else value for value in example_inputs]

        def run(*args: Any) -> Any:
            seen = [
                arg.as_strided(s, arg.stride()) if isinstance(arg, Tensor) else s
                for arg, s in zip(args, shapes, strict=True)
            ]
            return gm(*seen)

        return run


def test_what_is_built_in_is_not_used_for_another_number() -> None:
    backend = Baking()
    compiled = stator.compile(lambda x, k: x * k, backend=backend)
    assert [compiled(torch.ones(1), k).item() for k in (2, 3, 4, 5)] == [2, 3, 4, 5] and backend.calls == 4
    compiled(torch.ones(1), 3)
    assert backend.calls == 4


@pytest.mark.parametrize("program", [lambda x: x.chunk(4), lambda x: x * x.shape[0], lambda x: x.view(2, -1).sum(1)])
def test_what_is_built_in_is_not_used_for_another_size(program: Callable[..., Any]) -> None:
    compiled = stator.compile(program, backend=Baking())
    for size in SIZES:
        x = torch.randn(size)
        torch.testing.assert_close(compiled(x), program(x))


def test_one_traced_by_torch() -> None:
    def traced(gm: fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
        copy = fx.symbolic_trace(gm)
        shapes = [tuple(out.shape) for out in copy(*example_inputs)]
        return lambda *args: tuple(out.reshape(shape) for out, shape in zip(copy(*args), shapes, strict=True))

    compiled = stator.compile(lambda x, a: (x * a).reshape(2, -1), backend=traced)
    for size, a in zip(SIZES, (0.5, 1.5, 2.5, 3.5), strict=True):
        x = torch.randn(size)
        torch.testing.assert_close(compiled(x, a), (x * a).reshape(2, -1))


def test_past_the_limit_eager_runs_and_says_so() -> None:
    compiled = stator.compile(lambda x: x * x.shape[0], backend=Baking(), options={"recompile_limit": 3})
    with pytest.warns(FallbackWarning):
        for size in range(2, 9):
            torch.testing.assert_close(compiled(torch.ones(size)), torch.full((size,), float(size)))


def test_graphs_that_come_back_as_they_are_serve_all_sizes() -> None:
    graphs = []

    def looking(gm: fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
        graphs.append(gm)
        return gm.forward

    compiled = stator.compile(lambda x, k: x * x.shape[0] + k, backend=looking)
    for size in SIZES:
        torch.testing.assert_close(compiled(torch.ones(size), size + 1), torch.full((size,), 2.0 * size + 1))
    assert len(graphs) == 2


def test_a_graph_that_was_changed_in_place_is_not_as_it_was() -> None:
    def changing(gm: fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
        for node in gm.graph.nodes:
            if node.op == "call_function" and len(node.args) == 2:
                node.args = (node.args[0], example_inputs[0].shape[0])
        gm.recompile()
        return gm.forward

    compiled = stator.compile(lambda x: x * x.shape[0], backend=changing)
    for size in SIZES:
        torch.testing.assert_close(compiled(torch.ones(size)), torch.full((size,), float(size)))


@pytest.mark.parametrize("how", ["attribute", "registered"])
def test_who_takes_symbols_gets_symbols(how: str) -> None:
    seen: list[list[Any]] = []

    def symbolic(gm: fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
        seen.append(example_inputs)
        return lambda *args: gm(*args)

    backend: Any = symbolic
    if how == "attribute":
        symbolic.dynamic = True  # type: ignore[attr-defined]
    else:
        backend = "takes symbols"
        stator.register_backend(symbolic, name=backend, dynamic=True)
    compiled = stator.compile(lambda x, k, a: x * k * a + x.shape[0], backend=backend)
    for size, a in zip(SIZES, (0.5, 1.5, 2.5, 3.5), strict=True):
        torch.testing.assert_close(compiled(torch.ones(size), size, a), torch.full((size,), size * a + size))
    first, second = seen
    assert isinstance(first[0], Tensor) and first[0].shape == (4,)
    kinds = {torch.SymInt: 0, torch.SymFloat: 0}
    for value in second:
        kinds[type(value)] = kinds.get(type(value), 0) + 1
    assert kinds[torch.SymInt] == kinds[torch.SymFloat] == 1
    assert any(isinstance(value, Tensor) and isinstance(value.shape[0], torch.SymInt) for value in second)


def test_what_it_asks_of_symbols_is_guarded() -> None:
    calls = []

    def asking(gm: fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
        size = example_inputs[0].shape[0]
        calls.append(size)
        factor = 2 if size > 10 else int(size)
        return lambda *args: tuple(out * factor for out in gm(*args))

    asking.dynamic = True  # type: ignore[attr-defined]
    compiled = stator.compile(lambda x: x + 1, backend=asking)
    factors = [compiled(torch.zeros(size))[0].item() for size in (4, 8, 12, 20, 30, 9)]
    assert factors == [4, 8, 2, 2, 2, 9] and len(calls) == 4


def test_what_it_asks_later_is_an_error() -> None:
    def late(gm: fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
        return lambda *args: tuple(out * int(example_inputs[0].shape[0]) for out in gm(*args))

    late.dynamic = True  # type: ignore[attr-defined]
    compiled = stator.compile(lambda x: x + 1, backend=late, dynamic=True, options={"strict": True})
    with pytest.raises(Undecided, match="after it was to compile"):
        compiled(torch.zeros(4))


def test_what_the_user_asks_for_is_told() -> None:
    compiled = stator.compile(lambda x: x + 1, backend=Baking(), dynamic=True)
    with pytest.warns(FallbackWarning, match="dynamic=True has no effect") as told:
        for size in SIZES:
            compiled(torch.zeros(size))
    assert len(told) == 1
    marked = torch.zeros(4)
    stator.mark_dynamic(marked, 0)
    with pytest.raises(MarkedSizeFixed, match="does not say"):
        stator.compile(lambda x: x + 1, backend=Baking())(marked)
