"""Plans as Python modules: readable, running on their own, and what errors show."""

from __future__ import annotations

import runpy
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

from stator import plan as plans
from stator.codegen.cpp import emit
from stator.loop.nest import Extern, Program
from stator.loop.schedule import schedule
from stator.plan.build import make
from stator.runtime import Unit
from stator.targets import typical
from stator.targets.cpu.printer import flags
from stator.targets.cpu.record import read
from tests.loop.random_programs import make_symbolic
from tests.plan.programs import buffer, mlp, pointwise, run, whole


def test_errors_show_the_step() -> None:
    program, inputs, _ = mlp()
    for how in ("c", "python"):
        with pytest.raises(RuntimeError) as caught:
            run(how, program)([inputs[0][:, :3], *inputs[1:]])
        assert "mm_out(x, w.t(), out=" in "".join(traceback.format_exception(caught.value))


def test_it_runs_on_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = schedule(mlp()[0], typical("cpu"))
    target = read()
    unit = Unit(emit(plan.kernels, target, plan.names), plan.names, flags(target))
    file = tmp_path / "graph.py"
    file.write_text(plans.module_text(make(plan), [unit]))
    runpy.run_path(str(file), run_name="__main__")
    assert "us a call" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["mlp", "symbolic", "put_back"])
def test_goldens(name: str, golden: Callable[[str, str], None]) -> None:
    """Known sizes and views; sizes as symbols; memory of the caller that is put back where a step fails."""
    match name:
        case "mlp":
            program, _, _ = mlp()
        case "symbolic":
            program = make_symbolic(3)
        case _:
            x, inverse = buffer("x", 10, 10), buffer("inverse", 10, 10)
            solved = Extern("solve", "aten.linalg_inv.default", (whole(x),), (), (inverse,))
            program = Program("put_back", "cpu", (x,), (pointwise(x, "add", x, x), solved), (whole(inverse),), ("x",))
    golden(f"plan_{name}", plans.module_text(make(schedule(program, typical("cpu")))))
