"""The programs of `benchmarks.programs` against eager in float64, with two sizes."""

from __future__ import annotations

import pytest

import stator
from benchmarks.programs import __main__ as programs
from benchmarks.programs.program import PROGRAMS, widened

#: Those that compile in a second or two; `python -m benchmarks.programs` has them all.
QUICK = (
    "higherresolution", "deepq", "metalearner", "contrast", "equation_of_state", "turbulent_energy", "particles",
    "sampledgraph", "recommender", "isoneutral_mixing",
)  # fmt: skip


@pytest.mark.parametrize("name", QUICK)
def test_as_eager(name: str) -> None:
    program = PROGRAMS[name]
    made, _ = programs.build(program, 0)
    compiled = stator.compile(programs.widened_model(made))
    for size in range(programs.SIZES):
        _, inputs = programs.build(program, size)
        wide = widened(inputs)
        want = program.run(programs.widened_model(made), *wide)
        if hasattr(compiled, "load_state_dict"):
            compiled.load_state_dict(made.state_dict())
        assert programs.error(program.run(compiled, *wide), want) <= programs.ROUNDING
