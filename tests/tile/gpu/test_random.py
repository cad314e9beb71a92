"""Random programs and kernels, run thread by thread, leave the memory behind that the interpreter does."""

from __future__ import annotations

import numpy as np
import pytest

from stator.tile import launch
from stator.tile.gpu.simulate.threads import run as simulate
from tests.tile.frontend.random_kernels import kernel_of, results
from tests.tile.gpu.simulated import lowered, run_threads
from tests.tile.interpret.compare import Arguments, by_ir
from tests.tile.ir.programs import random_module


@pytest.mark.parametrize("seed", range(24))
def test_threads_run_random_programs(seed: int) -> None:
    module, _ = random_module(seed)
    expected = by_ir(module)
    arguments = Arguments()
    simulate(lowered(module, "main", 1 << seed % 3), "main", arguments.numbers, arguments.memory)
    x, y = (np.frombuffer(part, dtype) for part, dtype in ((expected[:256], np.float32), (expected[256:], np.int32)))
    np.testing.assert_array_equal(arguments.y, y)
    np.testing.assert_allclose(arguments.x, x, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("seed", range(24))
def test_threads_run_random_kernels(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = kernel_of(seed)
    monkeypatch.setenv("STATOR_TILE_INTERPRET", "0")
    expected = results(kernel, seed)
    monkeypatch.setattr(launch, "run_module", run_threads)
    found = results(kernel, seed)
    assert found[0].tolist() == expected[0].tolist()
    np.testing.assert_allclose(found[1], expected[1], rtol=1e-4, atol=1e-5, equal_nan=True)
