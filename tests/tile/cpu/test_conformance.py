"""The cases of the conformance suite as machine code: what the interpreter gives, functions of floats to a few ulps."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from stator.tile.cpu.launch import Kernel
from stator.tile.cpu.refused import Refused
from stator.tile.ir.types import DType, Type
from tests.tile.conformance import cases
from tests.tile.interpret.cases import Case, Data

CASES = cases()
#: One case in so many is run here.
STEP = 16
#: Operators that generated code may give some ulps off, or that add up in another order.
ULPS = {"exp": 2, "exp2": 2, "log": 2, "log2": 2, "sin": 2, "cos": 2, "tanh": 2, "erf": 2, "rsqrt": 2, "extern": 2}
ORDERED = {"dot", "dot_scaled", "reduce", "scan"}
#: Functions of libdevice that no C library has, and rows that are no powers of two.
REFUSED = {"extern", "sort"}


@pytest.mark.parametrize("case", CASES[::STEP], ids=str)
def test_code_agrees_with_the_interpreter(case: Case) -> None:
    agree(case)


def agree(case: Case) -> bool:
    """Whether there is code for a case; AssertionError where it gives something else than the interpreter."""
    expected = case.run()
    module, results = case.module()
    try:
        kernel = Kernel(module, "main")
    except Refused as refused:
        assert refused.op in REFUSED
        return False
    arrays = [np.array(data) for _, data in case.operands]
    arrays += [np.zeros(type_.shape, type_.element.numpy) for type_ in results]
    kernel.run([array.__array_interface__["data"][0] for array in arrays], (1, 1, 1))
    for wanted, found, type_ in zip(expected, arrays[len(case.operands) :], results, strict=True):
        same(case, type_, wanted, found)
    return True


def same(case: Case, type_: Type, wanted: Data, found: Data, ulps: Mapping[str, int] = ULPS) -> None:
    dtype = type_.element
    if not isinstance(dtype, DType) or not dtype.is_float or dtype.name == "f8e4b15":
        assert np.array_equal(wanted, found)
        return
    a, b = np.asarray(wanted, np.float64), np.asarray(found, np.float64)
    if case.op in ORDERED:
        eps = 2.0**-dtype.mantissa
        np.testing.assert_allclose(b, a, rtol=32 * eps, atol=32 * eps)
        return
    with np.errstate(all="ignore"):
        ulp = np.maximum(np.abs(a), 2.0 ** (1 - dtype.bias)) * 2.0**-dtype.mantissa
        off = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, np.abs(a - b) / ulp)
    assert off.max(initial=0) <= ulps.get(case.op, 0)
