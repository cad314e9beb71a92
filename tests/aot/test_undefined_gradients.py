"""Where a derivative gives no gradient at all (that of a norm of order 0), nothing behind it does, as in eager."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import stator

LAYERS = {
    "attention": lambda: lambda x: F.scaled_dot_product_attention(x, x, x),
    "masked attention": lambda: lambda x: F.scaled_dot_product_attention(x, x, x, x.detach() @ x.detach().mT),
    "lstm": lambda: (lambda layer: lambda x: layer(x[0])[0])(nn.LSTM(4, 5)),
    "states of lstm": lambda: (lambda layer: lambda x: layer(x[0])[1][1])(nn.LSTM(4, 5, num_layers=2)),
    "gru": lambda: (lambda layer: lambda x: layer(x[0])[0])(nn.GRU(4, 5)),
    "lstm cell": lambda: (lambda layer: lambda x: layer(x[0, 0])[1])(nn.LSTMCell(4, 5)),
    "convolution": lambda: nn.Conv2d(2, 3, 2),
    "batch norm": lambda: nn.BatchNorm2d(2),
    "layer norm": lambda: nn.LayerNorm(4),
    "group norm": lambda: nn.GroupNorm(2, 2),
    "product": lambda: nn.Linear(4, 3),
}


@pytest.mark.parametrize("backend", ["inductor", "aot_eager"])
@pytest.mark.parametrize("layer", LAYERS)
def test_no_gradient(layer, backend):
    """Alone, beside another result of which one is differentiated, and beside one that is."""
    run = LAYERS[layer]()

    def alone(x):
        return torch.linalg.vector_norm(run(x), 0)

    def beside(x):
        y = run(x)
        return torch.linalg.vector_norm(y, 0), y.sum()

    torch.manual_seed(0)
    x = torch.randn(1, 2, 3, 4, requires_grad=True)
    torch.autograd.backward(stator.compile(alone, backend=backend)(x))
    assert x.grad is None
    compiled = stator.compile(beside, backend=backend)
    torch.autograd.backward(compiled(x)[0])
    assert x.grad is None
    torch.autograd.backward(sum(compiled(x)))
    expected = torch.autograd.grad(sum(beside(x)), x)[0]
    torch.testing.assert_close(x.grad, expected)


def test_only_what_the_other_gives():
    """The path that gives nothing is no reason for zeros where the other one is not taken."""

    def f(x, y):
        return torch.linalg.vector_norm(x * y, 0) + y.sum(), (x * y).sum()

    for which in (0, 1):
        xs = [torch.randn(3, requires_grad=True) for _ in range(2)]
        expected = torch.autograd.grad(f(*xs)[which], xs, allow_unused=True)
        found = torch.autograd.grad(stator.compile(f)(*xs)[which], xs, allow_unused=True)
        assert [g is None for g in found] == [g is None for g in expected] == [which == 0, False]
        torch.testing.assert_close([g for g in found if g is not None], [g for g in expected if g is not None])
