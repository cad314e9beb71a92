"""Random small kernels give the same numbers as tile IR and as text, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest

from stator.tile.ir.parse import parse
from stator.tile.ir.text import module_text
from tests.tile.frontend.random_kernels import kernel_of, results


@pytest.mark.parametrize("seed", range(60))
def test_both_ways_agree(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = kernel_of(seed)
    monkeypatch.setenv("STATOR_TILE_INTERPRET", "0")
    module = results(kernel, seed)
    monkeypatch.setenv("STATOR_TILE_INTERPRET", "1")
    text = results(kernel, seed)
    assert module[0].tolist() == text[0].tolist()
    assert np.array_equal(module[1], text[1], equal_nan=True)
    (compiled,) = kernel.cache.values()
    written = module_text(compiled.compiled.module)
    assert module_text(parse(written)) == written
