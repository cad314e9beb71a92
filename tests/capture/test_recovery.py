"""Compiled code that raises: the program's data errors are eager's, and what else it raises is told and counted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import stator
from stator import driver
from stator.base import faults, log
from stator.base.errors import FaultWarning, InternalError
from stator.base.options import Options

BACKENDS = ["inductor", "aot_eager", "eager"]


class Broken:
    """A backend whose graphs raise."""

    def __init__(self, error: BaseException) -> None:
        self.error = error
        self.calls = 0

    def __call__(self, gm: torch.fx.GraphModule, examples: list[Any]) -> Callable[..., Any]:
        def call(*inputs: Any) -> Any:
            self.calls += 1
            raise self.error

        return call


def double(x: torch.Tensor) -> torch.Tensor:
    return x.sin() * 2


def below(x: torch.Tensor) -> torch.Tensor:
    return x.cos() * 2


def in_a_frame(x: torch.Tensor, seen: list[int]) -> torch.Tensor:
    seen.append(1)
    print("breaks the graph")
    return below(x)


def after_a_break(x: torch.Tensor, seen: list[int]) -> torch.Tensor:
    seen.append(1)
    print("breaks the graph")
    return x.cos() * 2


# -- faults of ours -------------------------------------------------------------------------------------------


@pytest.mark.faults
@pytest.mark.parametrize("error", [RuntimeError("ours"), TypeError("ours"), KeyError("ours"), AssertionError("ours")])
def test_a_fault_is_told_once_and_counted_at_each_call(error: Exception) -> None:
    backend = Broken(error)
    compiled = stator.compile(double, backend=backend)
    x, before = torch.randn(3), faults.total()
    with pytest.warns(FaultWarning) as told, log.collect() as recorder:
        assert torch.equal(compiled(x), double(x))
    (text,) = [str(item.message) for item in told]
    line = double.__code__.co_firstlineno + 1
    assert "double" in text and f"{type(error).__name__}: " in text and f"{__file__}:{line}" in text
    (fault,) = faults.recent(before)
    assert fault.artifacts in text and fault.stage == "call" and not fault.later
    artifacts = "".join(path.read_text() for path in Path(fault.artifacts).iterdir())
    assert "Traceback" in artifacts and "sin" in artifacts and "torch.float32 (3,)" in artifacts
    (facts,) = recorder.of(log.FAULT)
    assert facts["function"] == "double" and facts["line"] == line
    for count in (2, 3):  # with nothing told: warnings are errors here
        assert torch.equal(compiled(x), double(x))
        assert faults.total() - before == count and faults.recent(before)[-1].later
    assert backend.calls == 1, "the entry is retired"


@pytest.mark.faults
@pytest.mark.parametrize("arguments", [{"fullgraph": True}, {"options": {"strict": True}}])
def test_a_fault_is_an_error_if_asked(arguments: dict[str, Any]) -> None:
    compiled = stator.compile(double, backend=Broken(TypeError("ours")), **arguments)
    for _ in range(2):
        with pytest.raises(InternalError, match=r"TypeError: ours[\s\S]*test_recovery.py") as found:
            compiled(torch.ones(2))
        assert isinstance(found.value.__cause__, TypeError) and found.value.artifacts


@pytest.mark.faults
@pytest.mark.filterwarnings("ignore::stator.base.errors.FallbackWarning")
@pytest.mark.parametrize("program", [in_a_frame, after_a_break])
def test_faults_below_a_break_and_behind_one(program: Any) -> None:
    backend = Broken(ValueError("ours"))
    compiled = stator.compile(program, backend=backend)
    x, before = torch.randn(3), faults.total()
    seen: list[int] = []
    for count in (1, 2, 3):
        assert torch.equal(compiled(x, seen), x.cos() * 2)
        assert len(seen) == count, "the break's instruction ran once"
        assert faults.total() - before == count
    assert backend.calls == 1


@pytest.mark.faults
@pytest.mark.filterwarnings("ignore::stator.base.errors.FallbackWarning")
def test_a_frame_that_cannot_be_compiled() -> None:
    def refuse(gm: Any, examples: Any) -> Any:
        raise InternalError("lowering", "ours")

    compiled = stator.compile(lambda x: (print("breaks"), below(x))[1], backend=refuse)
    x, before = torch.randn(3), faults.total()
    assert torch.equal(compiled(x), below(x)) and torch.equal(compiled(x), below(x))
    assert {fault.stage for fault in faults.recent(before)} == {"compile"}


@pytest.mark.faults
def test_explain_tells_of_a_fault() -> None:
    with pytest.warns(FaultWarning):
        found = stator.explain(double, backend=Broken(TypeError("ours")))(torch.ones(2))
    (fault,) = found.faults
    assert fault.error == "TypeError: ours" and fault.location is not None
    assert "1 fault" in str(found) and "fault of stator: call raised TypeError: ours" in str(found)
    assert not stator.explain(double)(torch.ones(2)).faults


@pytest.mark.faults
def test_an_exception_that_the_program_handles_elsewhere_explains_nothing() -> None:
    def program(x: torch.Tensor, table: dict[str, int]) -> torch.Tensor:
        try:
            factor = table["none"]
        except KeyError:
            factor = 2
        return x * factor

    with pytest.warns(FaultWarning, match="RuntimeError: ours"):
        assert stator.compile(program, backend=Broken(RuntimeError("ours")))(torch.ones(2), {}).tolist() == [2, 2]


@pytest.mark.faults
def test_another_exception_of_the_program_does_not_hide_a_fault() -> None:
    def program(x: torch.Tensor, items: list[Any]) -> Any:
        items.append(x * 2)
        raise ZeroDivisionError("the program's")

    def late(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
        return x[n] * 2

    with pytest.warns(FaultWarning, match="TypeError: ours"), pytest.raises(IndexError):
        stator.compile(late, backend=Broken(TypeError("ours")))(torch.ones(2), torch.tensor([7]))
    with pytest.raises(ZeroDivisionError):
        stator.compile(program, backend=Broken(TypeError("ours")))(torch.ones(2), [])


@pytest.mark.faults
def test_backward_that_raises_is_told() -> None:
    def backend(gm: Any, examples: Any) -> Any:
        plan: Any = driver.compile_graph(gm, examples, options=Options(cache=False, check_speed="off"))

        def fails(arguments: Any) -> Any:
            raise AttributeError("ours")

        plan.bound.backward = fails
        return plan

    x = torch.randn(3, requires_grad=True)
    loss = stator.compile(double, backend=backend)(x).sum()
    with pytest.raises(InternalError, match="backward graph raised AttributeError: ours") as found:
        loss.backward()
    (fault,) = faults.recent(faults.total() - 1)
    assert fault.stage == "backward" and fault.artifacts == found.value.artifacts


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3), GeneratorExit()])
def test_what_is_no_error_passes_through(error: BaseException) -> None:
    seen = []

    def program(x: torch.Tensor) -> torch.Tensor:
        seen.append(1)
        return x.sin()

    compiled = stator.compile(program, backend=Broken(error))
    for _ in range(2):
        with pytest.raises(type(error)) as found:
            compiled(torch.ones(2))
        assert found.value is error and not seen
