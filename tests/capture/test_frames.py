"""Whole conversions with a backend that runs the graph: results, aliasing, effects, breaks."""

from __future__ import annotations

import copy
import types
import warnings
from typing import Any

import pytest
import torch

from stator.base.errors import CaptureError, FallbackWarning, GraphBreak
from stator.capture.frames import Conversion, Entry, bind_call, convert, forget_warnings
from tests.capture.statements import PROGRAMS

SCALE = torch.full((3,), 2.0)


class Backend:
    """Runs the graph as it is and counts its calls."""

    def __init__(self) -> None:
        self.modules: list[torch.fx.GraphModule] = []
        self.calls = 0

    def __call__(self, module: torch.fx.GraphModule, examples: list[torch.Tensor]) -> Any:
        self.modules.append(module)
        assert len(examples) == sum(node.op == "placeholder" for node in module.graph.nodes)

        def call(*tensors: torch.Tensor) -> Any:
            self.calls += 1
            return module(*tensors)

        return call


def entry_of(function: Any, *args: Any, **kwargs: Any) -> tuple[Entry, Backend, types.FunctionType]:
    backend = Backend()
    entry = convert(function, args, kwargs, backend, fullgraph=True)
    made = types.FunctionType(
        entry.code, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    made.__kwdefaults__ = function.__kwdefaults__
    return entry, backend, made


def outcome(action: Any, args: tuple[Any, ...]) -> tuple[str, Any]:
    try:
        return "value", action(*copy.deepcopy(args))
    except Exception as error:
        return type(error).__name__, str(error)


@pytest.mark.parametrize(("function", "args"), PROGRAMS, ids=[f"{f.__name__}-{i}" for i, (f, _) in enumerate(PROGRAMS)])
def test_plain_program(function: Any, args: tuple[Any, ...]) -> None:
    """Programs without tensors, run as values and rebuilt by the replacement code."""
    expected = outcome(function, args)
    conversion = Conversion(function, bind_call(function, args, {}), Backend(), None, True, None, None)
    try:
        code = conversion.attempt(None).assembler.assemble(tuple, ())
    except GraphBreak as stop:
        assert f"the program raises {expected[0]}(" in stop.reason
        return
    assert expected[0] == "value"
    made = types.FunctionType(code, function.__globals__, "made", function.__defaults__, function.__closure__)
    assert outcome(made, args) == expected


def test_result_structure_and_aliasing() -> None:
    def program(x: torch.Tensor, *rest: torch.Tensor, y: int = 2, **named: torch.Tensor) -> Any:
        a = x * y + rest[0]
        pair = [torch.relu(a) * SCALE, a]
        return {"first": pair, "again": pair, "size": x.shape[0], "input": x, "named": named["z"] + 1}

    x, r, z = torch.randn(3), torch.randn(3), torch.randn(3)
    entry, backend, made = entry_of(program, x, r, z=z)
    found, expected = made(x, r, z=z), program(x, r, z=z)
    assert found["first"] is found["again"]
    assert found["input"] is x
    assert found["size"] == 3
    torch.testing.assert_close(found, expected)
    assert backend.calls == 1
    assert entry.graphs[0].calls == 5
    assert len(entry.guards) > 5


def test_unused_inputs_are_not_passed() -> None:
    def program(x: torch.Tensor, shape_only: torch.Tensor, never: torch.Tensor) -> torch.Tensor:
        return x * shape_only.shape[1]

    x = torch.randn(3)
    entry, backend, made = entry_of(program, x, torch.ones(2, 5), torch.ones(1))
    assert [str(source) for source in entry.graphs[0].inputs] == ["L['x']"]
    assert torch.equal(made(x, torch.ones(2, 5), torch.ones(1)), x * 5)
    assert not any("never" in text for text in entry.guards.describe())
    assert backend.calls == 1


def test_closures_loops_and_inlined_calls() -> None:
    weight = torch.randn(3)

    def layer(h: torch.Tensor, power: int = 1) -> torch.Tensor:
        return torch.tanh(h * weight) ** power

    def program(x: torch.Tensor) -> torch.Tensor:
        for i in range(1, 4):
            x = layer(x, power=i)
        return x

    x = torch.randn(3)
    _, backend, made = entry_of(program, x)
    torch.testing.assert_close(made(x), program(x))
    assert backend.calls == 1


def test_nonlocal_and_list_effects_happen_when_the_code_runs() -> None:
    count = 0
    log: list[Any] = []

    def program(x: torch.Tensor) -> torch.Tensor:
        nonlocal count
        count += 1
        log.append(x.shape[0])
        y = x + 1
        log.append(y)
        return y

    x = torch.randn(3)
    _, _, made = entry_of(program, x)
    assert (count, log) == (0, [])
    y = made(x)
    assert count == 1
    assert log[0] == 3
    assert log[1] is y


def test_no_tensor_operation_means_the_original_code() -> None:
    def program(x: torch.Tensor, n: int) -> Any:
        return x, n + 1

    entry, backend, _ = entry_of(program, torch.randn(3), 1)
    assert entry.code is program.__code__
    assert not backend.modules


def test_a_break_without_points_leaves_the_whole_with_one_warning() -> None:
    def program(x: torch.Tensor) -> Any:
        if x.sum() > 0:
            return x
        return -x

    forget_warnings()
    x = torch.randn(3)
    with pytest.warns(FallbackWarning, match="depends on the data") as caught:
        entry = convert(program, (x,), {}, Backend())
    assert entry.code is program.__code__
    assert entry.breaks[0].location == (__file__, program.__code__.co_firstlineno + 1)
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        convert(program, (x,), {}, Backend())
    with pytest.raises(CaptureError, match="depends on the data"):
        convert(program, (x,), {}, Backend(), fullgraph=True)


def test_an_exception_that_leaves_the_frame_is_eagers() -> None:
    def program(x: torch.Tensor) -> Any:
        raise ValueError(f"bad size {x.shape[0]}")

    for fullgraph in (False, True):
        entry = convert(program, (torch.randn(3),), {}, Backend(), fullgraph=fullgraph)
        assert entry.code is program.__code__ and not entry.graphs
        assert entry.raises == "the program raises ValueError('bad size 3')"


def test_a_call_that_does_not_fit_raises_pythons_error() -> None:
    def program(x: torch.Tensor) -> Any:
        return x

    with pytest.raises(TypeError, match="missing 1 required positional argument: 'x'"):
        convert(program, (), {}, Backend())


def test_inputs_changed_in_place_share_memory_as_they_did() -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return x + y

    x, y = torch.randn(4), torch.randn(4)
    entry, _, made = entry_of(program, x, y)
    assert [guard.kind for guard in entry.guards].count("NOT_ALIASED") == 1
    expected = program(x.clone(), y)
    assert torch.equal(made(x, y), expected)
    entry, _, made = entry_of(program, x[:3], x[1:])
    assert [guard.kind for guard in entry.guards].count("ALIASED") == 1
    assert any(str(guard).startswith("L['y'].storage_offset()") for guard in entry.guards)
    copy = x.clone()
    assert torch.equal(made(x[:3], x[1:]), program(copy[:3], copy[1:]))
    entry, _, made = entry_of(program, x, x.view(torch.int32))
    assert [guard.kind for guard in entry.guards].count("ALIASED") == 1


def test_a_write_that_begins_a_history_is_not_captured_where_views_get_it_too() -> None:
    def program(x: torch.Tensor, y: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        x.mul_(weight)
        return y * 2

    x, weight = torch.randn(4), torch.ones(4, requires_grad=True)
    with pytest.raises(CaptureError, match="begins to need gradients, and so do views of the same tensor"):
        convert(program, (x, x[1:], weight), {}, Backend(), fullgraph=True)


def test_identity_of_two_inputs_is_guarded_both_ways() -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + 1 if x is y else x + y

    x, y = torch.randn(3), torch.randn(3)
    apart, _, made = entry_of(program, x, y)
    assert torch.equal(made(x, y), x + y)
    together, _, made = entry_of(program, x, x)
    assert torch.equal(made(x, x), x + 1)
    assert "NOT_SAME" in [guard.kind for guard in apart.guards]
    assert "SAME" in [guard.kind for guard in together.guards]


def test_a_grad_mode_left_behind_is_an_effect() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        torch.set_grad_enabled(False)
        return x + 1

    x = torch.randn(3, requires_grad=True)
    _, _, made = entry_of(program, x)
    assert torch.is_grad_enabled()
    try:
        assert not made(x).requires_grad
        assert not torch.is_grad_enabled()
    finally:
        torch.set_grad_enabled(True)
