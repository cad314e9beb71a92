"""The cases of the conformance suite as code for a GPU, run on the CPU: what the interpreter gives, to a few ulps."""

from __future__ import annotations

import numpy as np
import pytest

from stator.tile.cpu.refused import Refused
from tests.tile.conformance import cases
from tests.tile.cpu.test_conformance import same
from tests.tile.interpret.cases import Case, Data
from tests.tile.nvidia.emulated import text_of
from tests.tile.nvidia.machine import Machine

#: One case in so many is run here.
STEP = 8
#: What is refused: functions of libdevice that are in no table yet, and sizes that are no powers of two.
REFUSED = {"extern", "layout"}


@pytest.mark.parametrize("case", cases()[::STEP], ids=str)
def test_code_agrees_with_the_interpreter(case: Case) -> None:
    agree(case)


def agree(case: Case) -> bool:
    """Whether there is code for a case; AssertionError where it gives something else than the interpreter."""
    module, results = case.module()
    try:
        text = text_of(module, "main")
    except Refused as refused:
        assert refused.op in REFUSED
        return False
    expected = case.run()
    arrays = [np.array(data) for _, data in case.operands]
    arrays += [np.zeros(type_.shape, type_.element.numpy) for type_ in results]
    Machine(text, arrays).run([array.__array_interface__["data"][0] for array in arrays])
    for wanted, found, type_ in zip(expected, arrays[len(case.operands) :], results, strict=True):
        if not agree_with_tf32(case, wanted, found):
            same(case, type_, wanted, found)
    return True


def agree_with_tf32(case: Case, wanted: Data, found: Data) -> bool:
    """Whether a case is a product of f32 of less precision; AssertionError where it is further off than that."""
    if case.op != "dot" or case.operands[0][0] != "f32" or case.attrs.get("precision", "tf32") != "tf32":
        return False
    np.testing.assert_allclose(found, wanted, rtol=0.01, atol=0.02)
    return True
