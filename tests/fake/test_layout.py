"""Type promotion, against PyTorch's own answer."""

from __future__ import annotations

import itertools

import pytest
import torch

from stator.fake.layout import promote

DTYPES = (
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16,
    torch.float32, torch.float64, torch.complex32, torch.complex64, torch.complex128,
)  # fmt: skip


@pytest.mark.filterwarnings("ignore:ComplexHalf")
@pytest.mark.parametrize("default", [torch.float32, torch.float64])
def test_tensors_and_numbers_meet_as_in_eager(default: torch.dtype) -> None:
    tensors = [torch.ones((2,) * n, dtype=dtype) for dtype in DTYPES for n in (0, 1)]
    usual = torch.get_default_dtype()
    torch.set_default_dtype(default)
    try:
        for a, b in itertools.product(tensors, [*tensors, True, 2, 1.5, 1j]):
            assert promote([a, b]) is torch.result_type(a, b), (a, b)
    finally:
        torch.set_default_dtype(usual)
