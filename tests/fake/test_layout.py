"""Type promotion, against PyTorch's own answer."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch

from stator.fake import FakeMode
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


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize("function", [torch.le, torch.add, torch.pow, torch.atan2, torch.hypot, torch.where])
def test_operands_of_another_dtype_are_copied_before_their_strides_count(
    function: Callable[..., torch.Tensor], order: tuple[int, int]
) -> None:
    for narrow, wide in itertools.product((torch.bool, torch.int8, torch.float32, torch.float64), repeat=2):
        pair = [torch.ones(1, 3, dtype=narrow).expand(8, 3), torch.ones(3, 8, dtype=wide).t()]
        given = [pair[i] for i in order]
        given = [given[0] > 0, *given] if function is torch.where else given
        try:
            expected = function(*given)
        except NotImplementedError:  # no kernel for the dtype
            continue
        with FakeMode() as mode:
            made = function(*[mode.from_real(t) for t in given])
        assert made.stride() == expected.stride(), (narrow, wide)
