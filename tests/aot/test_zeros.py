"""Zeros that the system promises are zeros, of every layout, and belong to whoever holds them."""

import copy

import pytest
import torch

import stator
from stator.aot.zeros import LARGE, zeros

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    "size, stride", [((3, 2), (2, 1)), ((1024, 1024), (1, 1024)), ((4, LARGE), (LARGE, 1)), ((0,), (1,))]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int8])
def test_zeros_of_a_layout(size, stride, dtype):
    made = zeros(size, stride, dtype, CPU)
    assert made.shape == size and made.stride() == stride and made.dtype is dtype and not made.any()
    assert not made._is_view()
    made += 1
    assert made.all() and copy.deepcopy(made).all()
    assert not zeros(size, stride, dtype, CPU).any()


def test_a_layout_with_holes_has_memory_for_them():
    made = zeros((1024, 1024), (2048, 1), torch.float32, CPU)
    assert made.stride() == (2048, 1) and not made.any()
    assert not zeros((2048, 1024), (0, 1), torch.float32, CPU).any()


def test_a_large_result_without_a_gradient():
    def fn(x):
        return (x * x).sum(), x * 2, x + 1

    x = torch.randn(700, 900, requires_grad=True)
    total, _, other = stator.compile(fn, fullgraph=True)(x)
    total.backward(retain_graph=True)
    torch.testing.assert_close(x.grad, 2 * x.detach())
    x.grad = None
    other.sum().backward()
    torch.testing.assert_close(x.grad, torch.ones_like(x))
    x.grad.add_(1)
    assert (x.grad == 2).all()
