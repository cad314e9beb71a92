"""Frames below a break: which are captured, that they compute what eager does, and what they keep alive."""

from __future__ import annotations

import gc
import json
import math
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
from torch import nn

import stator
from stator import _native
from stator.base.errors import FallbackWarning

pytestmark = pytest.mark.filterwarnings("ignore::stator.base.errors.FallbackWarning")


class Graphs:
    """A backend that notes how many nodes each graph computes."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def __call__(self, module: torch.fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        self.sizes.append(sum(node.op.startswith("call_") for node in module.graph.nodes))

        def run(*args: Any) -> Any:
            return module(*args)

        return run

    def agrees(self, function: Callable[..., Any], *args: Any, warm: int = 1) -> list[int]:
        """Compiles, compares calls with eager, gives the sizes of the graphs; only the first calls make any."""
        self.sizes.clear()
        expected = function(*args)
        compiled = stator.compile(function, backend=self)
        for _ in range(warm):
            torch.testing.assert_close(compiled(*args), expected)
        found = list(self.sizes)
        for _ in range(2):
            torch.testing.assert_close(compiled(*args), expected)
        assert self.sizes == found
        return found


@pytest.fixture
def graphs() -> Iterator[Graphs]:
    stator.reset()
    yield Graphs()
    assert not _native.frame_hook_active()
    stator.reset()


@pytest.fixture
def x() -> torch.Tensor:
    return torch.randn(3, 4)


def three(x: torch.Tensor) -> torch.Tensor:
    return x.sin() + x.cos()


def two(x: torch.Tensor) -> torch.Tensor:
    return x * 2 + 1


@stator.disable(recursive=False)
def through(function: Callable[..., Any], *args: Any) -> Any:
    """Runs for real; what it calls is captured."""
    return function(*args)


def test_helpers_around_a_print(graphs: Graphs, x: torch.Tensor, capsys: pytest.CaptureFixture[str]) -> None:
    @stator.disable(recursive=False)
    def program(x: torch.Tensor) -> torch.Tensor:
        x = three(x)
        print("between")
        return two(x)

    assert graphs.agrees(lambda x: program(x), x) == [3, 2]
    assert capsys.readouterr().out == "between\n" * 4


def test_a_helper_that_breaks_goes_on(graphs: Graphs, x: torch.Tensor, capsys: pytest.CaptureFixture[str]) -> None:
    def helper(x: torch.Tensor) -> torch.Tensor:
        x = three(x)
        print("inside")
        return two(x)

    assert graphs.agrees(lambda x: through(helper, x) + 1, x) == [3, 2, 1]
    assert capsys.readouterr().out == "inside\n" * 4


def test_modules_below_a_break_are_captured_whole(graphs: Graphs, x: torch.Tensor) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2)).eval()
    assert graphs.agrees(lambda x: through(model, x), x) == [3]


def test_each_module_has_versions_of_its_own(graphs: Graphs, x: torch.Tensor) -> None:
    layers = [nn.Linear(4, 4) for _ in range(12)]

    def program(x: torch.Tensor) -> torch.Tensor:
        for layer in layers:
            x = through(layer, x)
        return x

    assert graphs.agrees(program, x).count(1) == 12


def test_recursion(graphs: Graphs, x: torch.Tensor) -> None:
    def down(x: torch.Tensor, n: int) -> torch.Tensor:
        return through(down, x.sin(), n - 1) if n else x

    assert graphs.agrees(lambda x: through(down, x, 5), x)


def test_what_a_helper_raises_is_handled_by_its_caller(graphs: Graphs, x: torch.Tensor) -> None:
    def raises(x: torch.Tensor) -> None:
        raise ValueError(x * 3)

    @stator.disable(recursive=False)
    def program(x: torch.Tensor) -> torch.Tensor:
        try:
            raises(x)
        except ValueError as error:
            result: torch.Tensor = two(error.args[0])
        return result

    # What comes before an exception that leaves a frame is compiled when it does so a second time.
    assert graphs.agrees(lambda x: program(x) + 1, x, warm=2) == [2, 1, 1]


def test_closures_write_their_own_cells(graphs: Graphs, x: torch.Tensor) -> None:
    def counter(start: int) -> Callable[[torch.Tensor], torch.Tensor]:
        count = start

        def add(x: torch.Tensor) -> torch.Tensor:
            nonlocal count
            count += 1
            x = x * count
            stator.graph_break()
            count += 10
            return x + count

        return add

    compiled = stator.compile(lambda function, x: through(function, x), backend=graphs)
    real, ours = [counter(n) for n in (0, 100)], [counter(n) for n in (0, 100)]
    for _ in range(3):
        for expected, function in zip(real, ours, strict=True):
            torch.testing.assert_close(compiled(function, x), expected(x))
    assert graphs.sizes


def test_libraries_are_left_alone(graphs: Graphs, x: torch.Tensor) -> None:
    @stator.disable(recursive=False)
    def program(x: torch.Tensor) -> torch.Tensor:
        text = json.dumps({"scale": 2.0})
        x = torch.nn.functional.softmax(x, -1)
        return x * json.loads(text)["scale"] * math.prod([1, 2])

    assert graphs.agrees(lambda x: program(x), x) == []


def test_disabled_functions_hush_what_they_call(graphs: Graphs, x: torch.Tensor) -> None:
    @stator.disable
    def off(x: torch.Tensor) -> torch.Tensor:
        return three(x)

    @torch.compiler.disable
    def off_by_torch(x: torch.Tensor) -> torch.Tensor:
        return three(x)

    assert graphs.agrees(lambda x: off(x) * 2, x) == [1]
    assert graphs.agrees(lambda x: through(off_by_torch, x) * 2, x) == [1]


def test_a_frame_without_tensors_is_left_alone(graphs: Graphs, x: torch.Tensor) -> None:
    def label(n: int, *rest: int, **more: int) -> str:
        return f"{n} {rest} {more}"

    seen = []

    @stator.disable(recursive=False)
    def program(x: torch.Tensor) -> torch.Tensor:
        seen.append(label(1, 2, c=3))
        return two(x)

    assert graphs.agrees(lambda x: program(x), x) == [2]
    assert seen == ["1 (2,) {'c': 3}"] * 4


def test_guards_hold_in_frames(graphs: Graphs, x: torch.Tensor) -> None:
    scale = {"by": 2.0}

    def helper(x: torch.Tensor, *rest: float, flag: bool = False, **more: float) -> torch.Tensor:
        x = x * scale["by"] if flag else x + scale["by"]
        return x - sum(rest) + sum(more.values())

    @stator.disable(recursive=False)
    def program(x: torch.Tensor, flag: bool) -> torch.Tensor:
        return helper(x, 1.0, 2.0, flag=flag, z=3.0)

    compiled = stator.compile(lambda x, flag: program(x, flag), backend=graphs)
    for by in (2.0, 3.0, 2.0):
        scale["by"] = by
        for flag in (False, True):
            for value in (x, x.double(), x[:2]):
                torch.testing.assert_close(compiled(value, flag), program(value, flag))


def test_training_through_hooked_frames(x: torch.Tensor) -> None:
    stator.reset()
    model = nn.Sequential(nn.Linear(4, 4), nn.GELU(), nn.Linear(4, 1))

    def loss(x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = through(model, x)
        return result.square().mean()

    loss(x).backward()
    expected = [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]
    model.zero_grad()
    stator.compile(loss, backend="aot_eager")(x).backward()
    torch.testing.assert_close([parameter.grad for parameter in model.parameters()], expected)


@pytest.mark.usefixtures("few_objects")
def test_a_dead_module_takes_its_versions_along(graphs: Graphs, x: torch.Tensor) -> None:
    class Scale(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.weight

    current = [Scale()]

    @stator.disable(recursive=False)
    def program(x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = current[0](x)
        return result

    compiled = stator.compile(lambda x: program(x), backend=graphs)
    kept = current[0]
    compiled(x)
    gone = []
    for _ in range(3):
        current[0] = Scale()
        torch.testing.assert_close(compiled(x), x * current[0].weight)
        gone.append(weakref.ref(current[0].weight))
    current[0] = kept
    gc.collect()
    assert [reference() for reference in gone] == [None] * 3
    count = len(graphs.sizes)
    torch.testing.assert_close(compiled(x), x * kept.weight)
    assert len(graphs.sizes) == count == 4


def test_the_limit_of_a_frame_warns_and_runs_it(graphs: Graphs, x: torch.Tensor) -> None:
    def helper(x: torch.Tensor, word: str) -> torch.Tensor:
        return x * len(word)

    options = {"recompile_limit": 2}
    compiled = stator.compile(lambda x, word: through(helper, x, word), backend=graphs, options=options)
    with pytest.warns(FallbackWarning, match="which is the limit"):
        for word in ("a", "bb", "ccc", "dddd", "eeeee"):
            torch.testing.assert_close(compiled(x, word), helper(x, word))


def test_the_versions_of_a_frame_are_counted_anew_after_a_reset(graphs: Graphs, x: torch.Tensor) -> None:
    """Those of each module by itself, and no more of them than the limit says."""

    class Repeated(nn.Module):
        def forward(self, x: torch.Tensor, word: str) -> torch.Tensor:
            return x * len(word)

    options = {"recompile_limit": 2}
    modules = [Repeated(), Repeated()]

    @stator.disable(recursive=False)
    def outer(x: torch.Tensor, word: str) -> torch.Tensor:
        return modules[0](x, word) + modules[1](x, word + "!")

    for _ in range(2):
        compiled = stator.compile(outer, backend=graphs, options=options)
        graphs.sizes.clear()
        for word in ("a", "bb", "ccc", "dddd", "eeeee"):
            torch.testing.assert_close(compiled(x, word), outer(x, word))
        assert 2 <= len(graphs.sizes) <= 4
        stator.reset()


def test_a_frame_has_as_many_versions_as_the_limit_says(graphs: Graphs, x: torch.Tensor) -> None:
    def helper(x: torch.Tensor, word: str) -> torch.Tensor:
        return x * len(word)

    @stator.disable(recursive=False)
    def outer(x: torch.Tensor, word: str) -> torch.Tensor:
        return helper(x, word)

    compiled = stator.compile(outer, backend=graphs, options={"recompile_limit": 2})
    for word in ("a", "bb", "ccc", "dddd", "eeeee"):
        torch.testing.assert_close(compiled(x, word), outer(x, word))
    assert len(graphs.sizes) == 2
