"""What `complex_values.py` generates, against eager."""

from __future__ import annotations

import pytest
import torch

from tests.differential.complex_values import BINARY, DTYPES, UNARY, differing, numbers, operands, scalars, sloping


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_complex_values(dtype: torch.dtype) -> None:
    found = list(differing({**UNARY, **scalars()}, (numbers(dtype),)))
    for how, args in operands(dtype, 5):
        found += [f"{how}: {line}" for line in differing(BINARY, args)]
    assert found == []


@pytest.mark.filterwarnings("ignore")
def test_gradients_at_complex_values() -> None:
    some = dict(list(UNARY.items())[::4])
    found = list(sloping(some, (numbers(torch.complex64, 2)[:40],)))
    _, args = next(operands(torch.complex64, 9))
    assert [*found, *sloping(BINARY, args)] == []
