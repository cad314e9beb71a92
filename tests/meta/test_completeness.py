"""What is registered is tested: each decomposition and lowering is used by one of the shared cases, or is listed here.

The cases are traced as in the tests of the stages, so what counts as used is run there against eager. That every
instruction is interpreted or refused is held by `tests/capture/test_opcodes.py`, that every kind of value has a program
by `tests/capture/values/test_kinds.py`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest

from stator.lowering import LOWERINGS
from stator.prims import DECOMPOSITIONS
from tests.cases import CASES
from tests.cases.graphs import trace

# operator -> why no case comes to it
UNUSED_DECOMPOSITIONS = {
    "aten._fused_rms_norm_backward.default": "eager has a kernel for CUDA only",
    "aten.erfinv.default": "on a GPU alone; tests/codegen/test_gpu_halves.py runs it",
    "aten._pdist_backward.default": "eager's kernel ends the process; tests/differential/test_found.py has it",
}
UNUSED_LOWERINGS = {
    "aten._linalg_check_errors.default": "the cases have good data; tests/aot/test_data_errors.py has bad",
    "mkldnn._convolution_pointwise.default": "passes make it; tests/passes/test_convolutions.py runs it",
    "stator.check_divisor.default": "the cases have good data; tests/aot/test_data_errors.py has bad",
    "stator.check_positions.default": "the cases have good data; tests/aot/test_data_errors.py has bad",
    "stator.check_probabilities.default": "the cases have good data; tests/aot/test_data_errors.py has bad",
    "stator.attend.default": "capture makes it; tests/codegen/test_scores.py runs it",
    "stator.scores.default": "capture makes it; tests/codegen/test_scores.py runs it",
    "stator.multiply_pairs.default": "passes make it; tests/passes/test_pairs.py runs it",
    "stator.multiply_pixels.default": "passes make it; tests/passes/test_pixels.py runs it",
    "stator.random.default": "the cases draw nothing; tests/prims and tests/lowering/test_program.py run it",
}


@functools.cache
def used() -> tuple[frozenset[str], frozenset[str]]:
    """The decompositions that gave something, and the operators that are left, over all cases."""
    decomposed: set[str] = set()
    left: set[str] = set()

    def noting(operator: Any, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            result = function(*args, **kwargs)
            if result is not NotImplemented:
                decomposed.add(str(operator))
            return result

        return call

    table = {operator: noting(operator, function) for operator, function in DECOMPOSITIONS.items()}
    for case in CASES:
        gm, _ = trace(case.fn, case.make_inputs(case.dtypes[0]), table)
        left.update(str(node.target) for node in gm.graph.nodes if node.op == "call_function")
    return frozenset(decomposed), frozenset(left)


@pytest.mark.parametrize(
    ("registered", "reached", "excused"),
    [(DECOMPOSITIONS, 0, UNUSED_DECOMPOSITIONS), (LOWERINGS, 1, UNUSED_LOWERINGS)],
    ids=["decompositions", "lowerings"],
)
def test_everything_registered_has_a_case(registered: dict[Any, Any], reached: int, excused: dict[str, str]) -> None:
    names = {str(operator) for operator in registered}
    assert len(names) > 50
    missing = names - used()[reached]
    assert missing - set(excused) == set(), "no case of tests/cases uses these"
    assert set(excused) <= missing | (set(excused) - names), "an exception is not needed"
