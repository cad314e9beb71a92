"""Tensors made in C are what `torch.empty_strided` makes."""

from __future__ import annotations

import gc
import sys

import pytest
import torch

from stator._native import Empty, tensor_facts

CASES = [
    ((), (), torch.float32),
    ((1,), (1,), torch.bool),
    ((3, 0, 2), (2, 2, 1), torch.float64),
    ((4, 5), (1, 4), torch.bfloat16),
    ((2, 2, 2, 2, 2, 2), (32, 16, 8, 4, 2, 1), torch.int64),
]


@pytest.mark.parametrize(("size", "stride", "dtype"), CASES)
@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad, torch.inference_mode])
def test_as_torch_makes_them(size: tuple[int, ...], stride: tuple[int, ...], dtype: torch.dtype, mode: type) -> None:
    make = Empty(size, stride, dtype)
    with mode():
        made, again = make(), make()
        expected = torch.empty_strided(size, stride, dtype=dtype)
    assert tensor_facts(made) == tensor_facts(expected)
    assert (type(made), made.is_inference()) == (torch.Tensor, expected.is_inference())
    assert made.untyped_storage().nbytes() == expected.untyped_storage().nbytes()
    if made.numel():
        assert made.data_ptr() != again.data_ptr()


@pytest.mark.usefixtures("few_objects")
def test_nothing_is_kept() -> None:
    make = Empty((2, 3), (3, 1), torch.float32)
    size = (2, 3)
    before = sys.getrefcount(size)
    for _ in range(100):
        made = Empty(size, (3, 1), torch.float32)()
    assert sys.getrefcount(size) == before
    assert sys.getrefcount(made) == 2
    gc.collect()
    tensors = sum(type(thing) is torch.Tensor for thing in gc.get_objects())
    for _ in range(100):
        make()
    assert sum(type(thing) is torch.Tensor for thing in gc.get_objects()) <= tensors


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="as many sizes as strides"):
        Empty((2, 3), (1,), torch.float32)
    with pytest.raises(TypeError):
        Empty((2,), (1,), "float32")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        Empty((2,), (1,), torch.float32)(1)  # type: ignore[call-arg]
