"""Random programs as code for a GPU leave the memory behind that the interpreter does, but for a few ulps."""

from __future__ import annotations

import numpy as np
import pytest

from tests.tile.interpret.compare import Arguments, by_ir
from tests.tile.ir.programs import random_module
from tests.tile.nvidia.emulated import text_of
from tests.tile.nvidia.machine import Machine


@pytest.mark.parametrize("seed", range(60))
def test_code_agrees_with_the_interpreter(seed: int) -> None:
    module, function = random_module(seed)
    expected = by_ir(module)
    function.attrs["num_warps"] = 1 << seed % 3
    arguments = Arguments()
    Machine(text_of(module, "main"), [arguments.x, arguments.y]).run(arguments.numbers)
    x, y = (np.frombuffer(part, dtype) for part, dtype in ((expected[:256], np.float32), (expected[256:], np.int32)))
    np.testing.assert_array_equal(arguments.y, y)
    np.testing.assert_allclose(arguments.x, x, rtol=1e-4, atol=1e-5)
