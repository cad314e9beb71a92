"""Zeros that the system promises are zeros, of every layout, and belong to whoever holds them."""

import copy

import pytest
import torch

import stator
from stator.aot import zeros as module
from stator.aot.zeros import LARGE, zeros
from stator.base.zeros import SHARED

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


def with_a_hook(device):
    """A gradient that is the tangent of a result without one, which a hook writes to."""
    a, b = [torch.randn(700, 900, device=device, requires_grad=True) for _ in range(2)]
    seen = []
    b.register_hook(lambda gradient: seen.append(gradient.add_(1)))
    total, _ = stator.compile(lambda a, b: ((a * b.detach()).sum(), b + 1), fullgraph=True)(a, b)
    total.backward()
    assert torch.equal(a.grad, b.detach())
    return seen


def test_nobody_gets_zeros_that_others_have_too(monkeypatch):
    memory = torch.zeros(4 << 20, dtype=torch.uint8)
    monkeypatch.setattr(module, "_promised", lambda nbytes: module._of_all(torch.device("cpu", 0), nbytes))
    monkeypatch.setitem(SHARED, "cpu", lambda number, nbytes: memory)
    monkeypatch.setattr(module, "_shared", set())
    one, two = [zeros((700, 900), (900, 1), torch.float32, CPU) for _ in range(2)]
    assert one.data_ptr() == two.data_ptr() == memory.data_ptr()
    (gradient,) = with_a_hook("cpu")
    assert (gradient == 1).all() and not memory.any()
    own = torch.ones(3)
    assert module.owned([None, own])[1] is own


@pytest.mark.gpu
def test_zeros_of_a_gpu_take_no_memory():
    with_a_hook("cuda")  # so that the table is filled
    device = torch.device("cuda", torch.cuda.current_device())
    many = zeros((1 << 20, 300), (300, 1), torch.bfloat16, device)
    allocated = torch.cuda.memory_allocated()
    other = zeros((1 << 16, 9), (1, 1 << 16), torch.float32, device)
    same = zeros((300, 1 << 20), (1 << 20, 1), torch.bfloat16, device)
    assert torch.cuda.memory_allocated() == allocated and same.data_ptr() == many.data_ptr()
    assert not many.any() and not other.any() and other.stride() == (1, 1 << 16)
    assert many.device == device and other.dtype is torch.float32
    (gradient,) = with_a_hook("cuda")
    assert (gradient == 1).all() and not many.any()
    assert (many[:5].clone() + 1 == 1).all()


@pytest.mark.gpu
def test_recorded_calls_read_zeros_where_they_are():
    """And gradients of a result that is differentiated in some calls alone."""

    def fn(x):
        y = torch.tanh(x)
        return (y * y).sum(), y * 2

    x = torch.randn(1024, 1024, device="cuda", requires_grad=True)
    fast = stator.compile(fn, fullgraph=True, mode="reduce-overhead")
    for turn in range(24):
        both = turn % 5 == 4
        found = []
        for call in (fast, fn):
            total, other = call(x)
            (gradient,) = torch.autograd.grad(total + other.mean() if both else total, x)
            found.append(gradient.clone())
        torch.testing.assert_close(*found)
