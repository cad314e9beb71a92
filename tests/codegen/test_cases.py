"""Every case through lowering, scheduling and C++, against eager; one build for each family of cases."""

from __future__ import annotations

import pytest
import torch

from stator.base.options import Options
from stator.codegen.cpp import emit
from stator.loop.kernel import Kernel, Schedule
from stator.loop.schedule import schedule
from stator.lowering import lower
from stator.plan import module_text
from stator.plan.build import make
from stator.prims import DECOMPOSITIONS
from stator.runtime import Unit
from stator.runtime.link import execute, load
from stator.targets import typical
from stator.targets.cpu.printer import flags
from stator.targets.cpu.record import read
from tests.cases import FAMILIES, Case, assert_close
from tests.cases.graphs import trace

CHUNK = 24  # kernels of one translation unit


def build(schedules: list[Schedule]) -> dict[Kernel, object]:
    """The distinct kernels of all schedules, compiled."""
    kernels = list(dict.fromkeys(kernel for plan in schedules for kernel in plan.kernels))
    chunks = [kernels[i : i + CHUNK] for i in range(0, len(kernels), CHUNK)]
    target = read()
    found: dict[Kernel, object] = {}
    units = [Unit(emit(chunk, target), tuple(f"k{i}" for i in range(len(chunk))), flags(target)) for chunk in chunks]
    load(units, Options.from_user())  # compiles them side by side
    for chunk, unit in zip(chunks, units, strict=True):
        named = load([unit], Options.from_user())
        found.update((kernel, named[f"k{i}"]) for i, kernel in enumerate(chunk))
    return found


@pytest.mark.parametrize("family", FAMILIES)
def test_agrees_with_eager(family: str) -> None:
    runs: list[tuple[Case, torch.dtype]] = [(case, dtype) for case in FAMILIES[family] for dtype in case.dtypes]
    plans = []
    for case, dtype in runs:
        gm, inputs = trace(case.fn, case.make_inputs(dtype), DECOMPOSITIONS)
        plans.append((schedule(lower(gm, "case", typical("cpu")), typical("cpu")), inputs))
    kernels = build([plan for plan, _ in plans])
    failures = []
    for (case, dtype), (plan, inputs) in zip(runs, plans, strict=True):
        text = module_text(make(plan))
        call = execute(text, case.name, {name: kernels[k] for name, k in zip(plan.names, plan.kernels, strict=True)})
        eager = case.fn(*case.make_inputs(dtype))
        try:
            assert_close(list(call(list(inputs))), eager, case, dtype)
        except Exception as error:
            failures.append(f"{case.name} {dtype}: {type(error).__name__} {str(error)[:600]}")
    assert not failures, f"{len(failures)} of {len(runs)}\n" + "\n".join(failures)
