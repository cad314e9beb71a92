"""The cases of the conformance suite as threads run them: what the interpreter gives, sums in another order."""

from __future__ import annotations

import numpy as np
import pytest

from stator.tile.ir.types import DType
from tests.tile.conformance import cases
from tests.tile.gpu.simulated import run_case
from tests.tile.interpret.cases import Case


def has_layouts(case: Case) -> bool:
    """Whether all sizes are powers of two."""
    shapes = [type_.shape for type_ in case.types + list(case.module()[1])]
    return all(size & (size - 1) == 0 for shape in shapes for size in shape)


CASES = [case for case in cases() if has_layouts(case)]
#: One case in so many is run here.
STEP = 23
#: Operators whose sums are in another order than the interpreter's.
ORDERED = {"reduce", "dot_scaled", "dot"}


@pytest.mark.parametrize("number", range(0, len(CASES), STEP), ids=lambda number: str(CASES[number]))
def test_threads_agree_with_the_interpreter(number: int) -> None:
    agree(CASES[number], warps=1 << number % 3)


def agree(case: Case, warps: int) -> None:
    """Threads give what the interpreter does."""
    _, results = case.module()
    for wanted, found, type_ in zip(case.run(), run_case(case, warps), results, strict=True):
        assert wanted.shape == found.shape and wanted.dtype == found.dtype
        dtype = type_.element
        if case.op in ORDERED and isinstance(dtype, DType) and dtype.is_float:
            eps = 2.0**-dtype.mantissa
            a, b = wanted.astype(np.float64), found.astype(np.float64)
            np.testing.assert_allclose(b, a, rtol=32 * eps, atol=32 * eps)
        else:
            assert wanted.tobytes() == found.tobytes()
