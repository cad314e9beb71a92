"""Strategies for vectors: their functions are well formed, and do what kernels say."""

from __future__ import annotations

import pytest

from stator.kernel.decisions import decide
from stator.kernel.ir import Function
from stator.kernel.strategies import vectors
from stator.loop.kernel import Kernel
from tests.kernel.programs import compare

LANES = (64, 16)


@pytest.mark.parametrize("vector_bytes", LANES)
@pytest.mark.parametrize("seed", range(200, 260))
def test_random_kernels(seed: int, vector_bytes: int) -> None:
    def strategy(kernel: Kernel, name: str) -> Function:
        return vectors(decide(kernel, vector_bytes), name)

    assert compare(seed, strategy) > 0
