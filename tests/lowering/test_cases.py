"""Every case, traced and decomposed, lowered and evaluated by the definition of the loop IR, against eager."""

from __future__ import annotations

import pytest
import torch

from stator.loop.verify import verify_program
from stator.lowering import lower
from stator.prims import DECOMPOSITIONS
from stator.targets import typical
from tests.cases import CASES, Case, assert_close
from tests.cases.execute import run
from tests.cases.graphs import trace

RUNS = [pytest.param(case, dtype, id=f"{case.name}-{str(dtype)[6:]}") for case in CASES for dtype in case.dtypes]


@pytest.mark.parametrize(("case", "dtype"), RUNS)
def test_agrees_with_eager(case: Case, dtype: torch.dtype) -> None:
    eager = case.fn(*case.make_inputs(dtype))
    gm, inputs = trace(case.fn, case.make_inputs(dtype), DECOMPOSITIONS)
    program = lower(gm, "case", typical("cpu"))
    verify_program(program)
    assert_close(run(program, inputs), eager, case, dtype)
