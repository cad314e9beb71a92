"""A slice of what `edges.py` generates, compiled: every bit as in eager.

`python -m tests.differential.edges` runs all of it.
"""

from __future__ import annotations

import pytest
import torch

from tests.differential.edges import LENGTHS, conversions, differing, operations


@pytest.mark.parametrize("source", [torch.float64, torch.bfloat16, torch.int64], ids=str)
def test_conversions(source: torch.dtype) -> None:
    assert list(differing(conversions(source))) == []


@pytest.mark.parametrize("dtype", [torch.int64, torch.int8, torch.uint8], ids=str)
def test_operators_of_integers(dtype: torch.dtype) -> None:
    assert list(differing(list(operations(dtype)))) == []


def test_every_way_is_taken() -> None:
    assert {1, 3} < set(LENGTHS) and any(length % 16 and length > 16 for length in LENGTHS)
