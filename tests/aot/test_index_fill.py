"""Gradients of the value that `index_fill` writes: PyTorch's formula removes double indices, which depends on data."""

import pytest
import torch

import stator

PROGRAMS = [
    lambda x, i, v: torch.index_fill(x, 1, i, v),
    lambda x, i, v: x.t().index_fill(-2, i, v),
    lambda x, i, v: (x * 1).index_fill_(0, i, v),
    lambda x, i, v: x.sum().index_fill(0, i * 0, v),
]


def results(function, x, index, value):
    out = function(x, index, value)
    wanted = [t for t in (x, value) if t.requires_grad]
    weights = torch.linspace(1, 2, out.numel()).view(out.shape)
    return out, out.stride(), torch.autograd.grad((out * weights).sum(), wanted)


@pytest.mark.parametrize("number", range(len(PROGRAMS)))
@pytest.mark.parametrize("frozen", [False, True])
def test_as_eager(number, frozen):
    function = PROGRAMS[number]
    x = torch.randn(4, 3, requires_grad=not frozen)
    index = torch.tensor([0, 2, 0])
    value = torch.tensor(2.5, requires_grad=True)
    out, stride, gradients = results(function, x, index, value)
    got, got_stride, got_gradients = results(stator.compile(function, fullgraph=True), x, index, value)
    torch.testing.assert_close(got, out)
    assert got_stride == stride
    torch.testing.assert_close(got_gradients, gradients)
