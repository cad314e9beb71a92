"""Sizes that change: how often is compiled, what the guards are, and that every call gives what eager gives."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

import stator
from stator.base import log
from stator.base.errors import DynamicWarning, FallbackWarning, Unsupported
from tests.capture.changing_sizes import Calls, rand

SHAPES = [(4, 6), (5, 7), (9, 8), (12, 3), (7, 7)]


def double(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def test_the_second_size_makes_a_symbolic_version() -> None:
    calls = Calls(double).all([(rand(n, 3),) for n in (4, 5, 6, 70, 7)])
    assert calls.compiles == 2
    assert calls.conditions == ["L['x'].size()[0] >= 2"]
    assert "L['x'] is float32[*, 3] strides (3, 1) cpu" in calls.guards[1]
    assert "L['x'].size()[0] was 4 and is 5: from now on it is symbolic" in calls.recompiles


def test_0_and_1_are_compiled_on_their_own() -> None:
    calls = Calls(double).all([(rand(n, 3),) for n in (4, 5, 1, 0, 6, 1, 0)])
    assert calls.compiles == 4


def test_another_dim_is_another_version() -> None:
    calls = Calls(double).all([(rand(n, m),) for n, m in ((4, 3), (5, 3), (5, 4), (6, 7), (7, 6))])
    assert calls.compiles == 3


def test_never() -> None:
    assert Calls(double, dynamic=False).all([(rand(n, 3),) for n in (4, 5, 6)]).compiles == 3


def test_always() -> None:
    assert Calls(double, dynamic=True).all([(rand(n, m),) for n, m in ((4, 3), (5, 3), (5, 4), (6, 7))]).compiles == 1


def test_equal_sizes_are_one_symbol_until_they_differ() -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x @ y.t()

    calls = Calls(f, dynamic=True).all([(rand(n, 6), rand(n, 6)) for n in (4, 5)])
    assert calls.compiles == 1
    assert "L['y'].size()[0] == L['x'].size()[0]" in calls.conditions
    calls(rand(3, 6), rand(4, 6))
    calls(rand(5, 6), rand(7, 6))
    assert calls.compiles == 2


def test_strides_are_expressions_of_sizes() -> None:
    calls = Calls(double).all([(rand(n, m, 3),) for n, m in ((4, 5), (5, 6), (7, 8))])
    assert "L['x'].stride()[0] == 3*L['x'].size()[1]" in calls.conditions
    assert calls.compiles == 2
    calls(rand(8, 7, 3).transpose(0, 1))
    assert calls.compiles == 3


def test_rows_of_a_wider_tensor() -> None:
    calls = Calls(double).all([(rand(4, m)[:, :3],) for m in (5, 6, 7, 8)])
    assert calls.compiles == 2


PROGRAMS: dict[str, Callable[[torch.Tensor], Any]] = {
    "view": lambda x: x.view(x.size(0) * x.size(1)) + 1,
    "minus_one": lambda x: x.view(-1) + 1,
    "unpacking": lambda x: (lambda n, m: x.reshape(m, n) * n)(*x.shape),
    "reversed_shape": lambda x: x.reshape(*x.shape[::-1]) + 1,
    "shape_sum": lambda x: torch.zeros(x.shape + x.shape[:1]) + 1,
    "expand": lambda x: x[:1].expand(x.shape[0] + 1, -1) * 2,
    "slices": lambda x: x[1:, : x.size(1) - 1] + x[:-1, 1:],
    "half": lambda x: x[: x.shape[0] // 2] + 1,
    "arange": lambda x: torch.arange(x.size(0)) + x.sum(),
    "arange_step": lambda x: torch.arange(0, 2 * x.size(0), 2) + x[:, 0],
    "zeros": lambda x: torch.zeros(x.size(1), x.size(0)) + x.t(),
    "numel": lambda x: x.sum() / x.numel(),
    "len": lambda x: x * len(x),
    "mean": lambda x: x.sum(0) / x.shape[0],
    "max": lambda x: x.new_zeros(max(x.shape[0], x.shape[1])) + 1,
    "min": lambda x: x.flatten()[: min(x.shape[0], x.shape[1], 100)] + 1,
    "prod": lambda x: x.reshape(math.prod(x.shape)) + 1,
    "cat": lambda x: torch.cat([x, x[:2]], 0),
    "softmax": lambda x: torch.softmax(x, -1),
    "mask": lambda x: x.masked_fill(torch.ones(x.shape, dtype=torch.bool).tril(), 0.0),
    "padding": lambda x: torch.cat([x, x.new_zeros(x.size(0), -x.size(1) % 8)], 1),
    "modulo": lambda x: x * (x.size(0) % 3 + 1),
    "powers": lambda x: x * x.size(0) ** 2,
    "equal_shapes": lambda x: x + 1 if x.shape == x.shape[::-1] else x + 2,
    "same_shape": lambda x: x + 1 if (x * 2).shape == x.shape else x + 2,
    "isinstance": lambda x: x + isinstance(x.size(0), int),
    "attributes": lambda x: x + x.ndim + (x.size(0) is None),
    "matmul": lambda x: x @ x.t() / math.floor(x.size(0)),
    "int": lambda x: x + int(x.size(0)) - abs(0),
    "numel_of_shape": lambda x: x + x.shape.numel(),
    "nbytes": lambda x: x + x.nbytes,
    "where": lambda x: torch.where(torch.arange(x.size(1)) < x.size(1) // 2, x, 0.0),
    "stack": lambda x: torch.stack([x, x]).view(2 * x.size(0), x.size(1)) + 1,
    "chunk": lambda x: torch.cat(x.unsqueeze(-1).expand(-1, -1, 4).chunk(2, -1), 0),
    "contains": lambda x: x + (x.size(0) in (1000, 2000)),
    "divmod": lambda x: x + x.size(0) // 2 + -x.size(1) // 3,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_of_sizes(name: str) -> None:
    calls = Calls(PROGRAMS[name], fullgraph=True).all([(rand(*shape),) for shape in SHAPES])
    # A first one, a symbolic one, and at most one for each side of what the program decides.
    assert calls.compiles <= 4
    assert any("[*, *]" in guard for guard in calls.guards[1])


@pytest.mark.parametrize("name", ["view", "unpacking", "zeros", "numel", "softmax", "powers", "half", "numel_of_shape"])
def test_two_versions_serve_all_sizes(name: str) -> None:
    assert Calls(PROGRAMS[name], fullgraph=True).all([(rand(n, n + 3),) for n in (4, 5, 9, 31, 8)]).compiles == 2


def test_a_comparison_is_a_guard() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return x + 1 if 2 * x.size(0) >= 16 else x - 1

    calls = Calls(f).all([(rand(n, 3),) for n in (4, 5, 6, 7)])
    assert calls.compiles == 2
    assert "2*L['x'].size()[0] < 16" in calls.conditions
    calls.all([(rand(n, 3),) for n in (8, 9, 100, 4)])
    assert calls.compiles == 3
    assert "2*L['x'].size()[0] >= 16" in calls.conditions


def test_divisibility_is_a_guard() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return x.view(-1, 4) + 1 if x.numel() % 4 == 0 else x

    calls = Calls(f).all([(rand(n),) for n in (8, 12, 16, 400)])
    assert calls.compiles == 2
    calls.all([(rand(n),) for n in (9, 11, 12)])
    assert calls.compiles == 3


# -- results and effects -------------------------------------------------------------------------------------------


def test_sizes_as_results() -> None:
    def f(x: torch.Tensor) -> Any:
        y = torch.cat([x, x])
        return y, y.shape[0], [y.size(0) + 1, {"m": x.size(1)}], y.shape, f"{y.ndim}"

    calls = Calls(f).all([(rand(n, n + 2),) for n in (4, 5, 6, 9)])
    assert calls.compiles == 2
    assert isinstance(calls.compiled(rand(3, 4))[3], torch.Size)


def test_sizes_alone_need_no_graph() -> None:
    def f(x: torch.Tensor) -> int:
        return x.view(-1).size(0) * 2

    calls = Calls(f).all([(rand(n, 3),) for n in (4, 5, 6)])
    assert calls.compiles == 2


def test_sizes_in_attributes_and_lists() -> None:
    class Box:
        rows = 0

    box, seen = Box(), []

    def f(x: torch.Tensor) -> torch.Tensor:
        box.rows = x.size(0) + 1
        seen.append(x.shape[1])
        return x + 1

    compiled = stator.compile(f, backend="eager", fullgraph=True)
    for n in (4, 5, 6, 7):
        compiled(rand(n, n * 2))
        assert box.rows == n + 1
    assert seen == [8, 10, 12, 14]


def test_sizes_cross_a_break() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        n = x.size(0) * 2
        y = x + 1
        stator.graph_break()
        return y.sum() + torch.zeros(n).sum() + n

    calls = Calls(f)
    with pytest.warns(FallbackWarning):
        calls(rand(4, 3))
    calls.all([(rand(n, 3),) for n in (5, 6, 7, 8)])
    assert len(calls.backend.graphs) == 4


@pytest.mark.parametrize(
    "use",
    [
        lambda x: [10, 20, 30, 40, 50, 60, 70, 80, 90, 100][x.size(0)] + x,
        lambda x: x + len(f"{x.size(0)}"),
        lambda x: sum((x + i for i in range(x.size(0))), x),
        lambda x: x + len([0] * x.size(0)),
        lambda x: x + (x.size(0) & 1),
        lambda x: x + hash(x.size(0)),
        lambda x: torch.cat(x.unbind(0)),
    ],
    ids=["index", "text", "range", "repeat", "bits", "hash", "unbind"],
)
def test_what_needs_the_number_fixes_it(use: Callable[[torch.Tensor], Any]) -> None:
    calls = Calls(use, fullgraph=True).all([(rand(n, 3),) for n in (4, 5, 6, 5)])
    assert calls.compiles == 3
    assert "L['x'].size()[0] == 6" in calls.guards[2]


@pytest.mark.parametrize(
    "use", [lambda x: x + math.ceil(x.size(0) / 2), lambda x: x + (x.size(0) / 2 > 2.5)], ids=["rounding", "comparison"]
)
def test_what_is_asked_of_a_quotient_is_asked_again(use: Callable[[torch.Tensor], Any]) -> None:
    assert Calls(use, fullgraph=True).all([(rand(n, 3),) for n in (4, 6, 5, 6)]).compiles <= 3


# -- the limit -----------------------------------------------------------------------------------------------------


def test_the_last_version_serves_all_sizes() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return x * 2 + x.sum()

    calls = Calls(f, options={"recompile_limit": 3}).all([(rand(n, 3),) for n in (4, 5, 1)])
    assert calls.compiles == 3
    with pytest.warns(DynamicWarning, match=r"(?s)which is the limit: .*hint: stator.mark_dynamic\(L"):
        calls(rand(0, 3))
    calls.all([(rand(n, 3),) for n in (0, 1, 7, 9)])
    assert calls.compiles == 4


def test_past_the_last_version_it_says_so() -> None:
    calls = Calls(lambda x: [1] * 100 + [x + (x.size(0) & 3)], options={"recompile_limit": 2})
    calls.all([(rand(n, 3),) for n in (4, 5)])
    with pytest.warns(FallbackWarning, match="runs in eager PyTorch"):  # no version serves what needs the number
        calls(rand(6, 3))
    calls(rand(7, 3))
    calls(rand(8, 3))


# -- what cannot do with symbols -----------------------------------------------------------------------------------


def test_a_backend_that_refuses_gets_numbers() -> None:
    graphs = []

    def backend(gm: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        if gm.meta.get("sizes") is not None:
            raise Unsupported("a symbolic size", "this backend is old")
        graphs.append(gm)
        return gm.forward

    compiled = stator.compile(double, backend=backend)
    with log.collect() as recorder:
        for n in (4, 5, 6):
            x = rand(n, 3)
            torch.testing.assert_close(compiled(x), double(x))
    assert len(graphs) == 3
    reasons = [record["reason"] for record in recorder.of(log.RECOMPILE)]
    assert sum("the backend refused: a symbolic size is not supported: this backend is old" in r for r in reasons) == 1


def test_an_exception_of_the_program_is_its_own() -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + y

    compiled = stator.compile(f, backend="eager")
    for n in (4, 5, 6):
        compiled(rand(n, 3), rand(n, 3))
    with pytest.raises(RuntimeError, match="must match"):
        compiled(rand(5, 3), rand(6, 3))
    torch.testing.assert_close(compiled(torch.ones(9, 3), torch.ones(9, 3)), torch.full((9, 3), 2.0))
