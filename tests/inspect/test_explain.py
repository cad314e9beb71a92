"""`explain`: what it gathers from the records, how it prints, and the same for real functions."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import stator
from stator.base import log
from stator.base.errors import FallbackWarning, Location, UnknownStep
from stator.inspect.explain import Explanation
from stator.inspect.statistics import summary


def recorded() -> Explanation:
    with log.collect() as recorder, log.span("capture"):
        log.record(log.GRAPH, name="forward", ops=3, operators={"aten.mm": 2, "aten.relu": 1})
        log.record(log.GRAPH, name="backward", ops=2, operators={"aten.mm": 2})
        log.record(log.BREAK, reason="print() [is] called", file="model.py", line=7, hint="print outside")
        log.record(log.GUARDS, guards=["L['x'] is a tensor", "L['n'] == 3"])
        log.record(log.KERNELS, graph="forward", names=["k0", "k0", "k1"], externs=["aten.mm.default"])
        log.record(log.CACHE, hit=True, key="a")
        log.record(log.CACHE, hit=False, key="b")
        log.record(log.CACHE, what="kernels", hits=1, misses=2)
        log.record(log.RECOMPILE, reason="L['n'] was 3, is 4")
    return Explanation.of(recorder, result=5)


def test_records_become_one_explanation() -> None:
    told = recorded()
    assert [g.name for g in told.graphs] == ["forward", "backward"]
    assert told.operators == {"aten.mm": 4, "aten.relu": 1}
    (stop,) = told.breaks
    assert (stop.reason, stop.location, stop.hint) == ("print() [is] called", Location("model.py", 7), "print outside")
    assert told.guards == ("L['x'] is a tensor", "L['n'] == 3")
    assert told.kernels == ("forward.k0", "forward.k0", "forward.k1")
    assert told.externs == ("aten.mm.default",)
    assert (told.cache_hits, told.cache_misses) == (1, 1)
    assert told.recompiles == ("L['n'] was 3, is 4",)
    assert told.result == 5 and told.seconds["capture"] >= 0


def test_it_prints_everything_and_takes_brackets_as_text() -> None:
    text = str(recorded())
    assert text.startswith("2 graphs, 1 break, 2 kernels, 1 extern call, 2 guards, cache: 1 of 2 found")
    for part in ("print() [is] called", "model.py:7", "hint: print outside", "aten.mm", "L['n'] == 3", "k1", "capture"):
        assert part in text, part


def test_nothing_recorded_prints_one_line() -> None:
    assert str(Explanation.of(log.Recorder())).splitlines() == [
        "0 graphs, 0 breaks, 0 kernels, 0 extern calls, 0 guards"
    ]


def test_a_function_is_explained() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x @ x) + 1

    x = torch.randn(4, 4)
    stator.compile(f)(x)  # an earlier compilation hides nothing
    told = stator.explain(f)(x)
    torch.testing.assert_close(told.result, f(x))
    (graph,) = told.graphs
    assert graph.name == "test_a_function_is_explained.<locals>.f" and graph.operators == {
        "matmul": 1,
        "relu": 1,
        "add": 1,
    }
    assert told.operators == graph.operators and graph.ops == 3 and not told.breaks
    assert told.kernels == ("forward.relu_add_k0",) and told.externs == ("aten.mm.default",)
    assert "L['x'] is float32[4, 4] strides (4, 1) cpu" in told.guards
    assert {"compile", "capture", "backend", "link"} <= set(told.seconds)
    again = stator.explain(f)(x)  # from the store: the same is told
    assert (again.kernels, again.externs, again.cache_hits) == (told.kernels, told.externs, 1)


def test_the_memory_of_a_training_step_is_told() -> None:
    net = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.Tanh(), torch.nn.Linear(256, 256))
    told = stator.explain(net)(torch.randn(1024, 256))
    (memory,) = told.memory
    assert memory["saved"] >= 1 << 20 and memory["peak"] == max(memory["forward"], memory["backward"])
    assert f"at most {memory['peak'] / (1 << 20):.1f} MiB at once" in str(told) and ", saved 1" in str(told)
    with torch.no_grad():
        told = stator.explain(net)(torch.randn(1024, 256))
    assert told.memory[0]["saved"] == 0 and "saved" not in str(told)


def test_steps_that_are_apart_say_why() -> None:
    def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        rows = torch.softmax(x @ w, -1)
        return (rows * 3 + x).sum(0) * rows.relu()

    told = stator.explain(f)(torch.randn(64, 64), torch.randn(64, 64, requires_grad=True))
    assert "exp and sum_1 are in one kernel" in told.why("exp", "sum_1")
    made = told.why("mul", "sum_1").splitlines()[0]
    assert made.startswith("forward: mul is computed with sum_2; sum_2 and sum_1 share")
    assert "sum_1 is read at r0 for [64 | 64] and made at x0" in made
    assert "mm is what a call of aten.mm.default gives" in told.why("forward.mm", "exp")
    kernels = [name for name in dict.fromkeys(told.kernels) if name.startswith("forward.")]
    backward = next(name for name in told.kernels if name.startswith("backward."))
    assert f"{kernels[0].removeprefix('forward.')} writes " in told.why(*kernels[:2])
    assert "forward graph and" in told.why("forward.sum_1", backward)
    assert "l_x is no step that runs" in told.why("l_x", "exp")
    with pytest.raises(UnknownStep, match="did you mean 'sum_1'"):
        told.why("sum_11", "exp")


def test_a_question_is_asked_in_the_modes_of_the_call() -> None:
    """Without gradients there is no backward graph to name, whenever it is asked."""
    net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Softmax(-1))
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        told = stator.explain(net)(torch.randn(64, 64))
    (kernel,) = {name for name in told.kernels if "softmax" in name}
    assert "in one kernel" in told.why(kernel, kernel)
    with pytest.raises(UnknownStep):
        told.why("backward.mm", "exp")


def test_long_lists_of_guards_are_cut_in_print_only() -> None:
    with log.collect() as recorder:
        log.record(log.GUARDS, guards=[f"L['x{i}'] is None" for i in range(100)])
    told = Explanation.of(recorder)
    assert len(told.guards) == 100 and "and 75 more" in str(told)


def test_the_process_counts_what_it_compiled() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x @ x) + 1

    before = summary()
    stator.compile(f, fullgraph=True)(torch.randn(4, 4))
    after = summary()
    assert {name: after[name] - before[name] for name in after} == {"graphs": 1, "kernels": 1, "externs": 1}


def test_a_break_is_told_with_the_users_line() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        y = torch.sin(x)
        stator.graph_break("because")
        return y + 1

    with pytest.warns(FallbackWarning, match="test_explain"):
        told = stator.explain(f, backend="eager")(torch.randn(3))
    (stop,) = told.breaks
    assert stop.location is not None
    assert stop.location == Location(__file__, f.__code__.co_firstlineno + 2)


class Outside(torch.autograd.Function):
    """Leaves torch in the middle, which raises for tensors without data, and in eager does not."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(x.detach().numpy() * 2)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> torch.Tensor:
        return grads[0] * 2


@pytest.mark.filterwarnings("ignore::stator.base.errors.FallbackWarning")
def test_a_call_that_only_tensors_without_data_make_raise_has_a_break() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = Outside.apply(x)  # type: ignore[no-untyped-call]
        return y + 1

    x = torch.randn(3, requires_grad=True)
    for _ in range(2):
        report = stator.explain(program)(x)
        assert len(report.breaks) == 1
        torch.testing.assert_close(report.result, x * 2 + 1)


def test_an_error_of_the_program_is_no_break() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return x @ x

    with log.collect() as recorder, pytest.raises(RuntimeError):
        stator.compile(program)(torch.randn(2, 3))
    assert not recorder.of(log.BREAK)
