"""Operators and functions that programs add to PyTorch, and what of PyTorch's own leaves it for Python."""

import numpy as np
import torch
from torch import nn
from torch.nn.utils import rnn

from tests.capture.programs.table import leaf, program, x


@torch.library.custom_op("stator_tests::without_shapes", mutates_args=())
def without_shapes(x: torch.Tensor) -> torch.Tensor:
    return x.sin()


@torch.library.custom_op("stator_tests::fill_with_sines", mutates_args=("out",))
def fill_with_sines(x: torch.Tensor, out: torch.Tensor) -> None:
    out.copy_(x.sin())


@torch.library.custom_op("stator_tests::fill_counted", mutates_args=("out", "count"))
def fill_counted(x: torch.Tensor, out: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
    out.copy_(x.sin())
    count.add_(1)
    return x.cos()


@fill_counted.register_fake
def shape_of_fill_counted(x, out, count):
    return torch.empty_like(x)


LIBRARY = torch.library.Library("stator_tests", "FRAGMENT")
LIBRARY.define("add_one(Tensor(a!) x) -> ()")


@torch.library.impl(LIBRARY, "add_one", "CompositeExplicitAutograd")
def add_one(x):
    x.add_(1)


@program(graphs=2, breaks="nobody knows the shape of the result")
def operator_without_shape_function(x):
    return without_shapes(x * 2 + 1).cos() * 3


@program()
def operator_that_writes_and_returns_nothing(x):
    out = torch.empty_like(x)
    fill_with_sines(x * 2, out)
    return out * 3


@program(lambda: (x(), torch.zeros(2, 3)))
def operator_that_writes_to_what_is_given(x, out):
    fill_with_sines(x * 2, out)
    return out * 3


@program(lambda: (x(), torch.zeros(())))
def operator_that_writes_and_returns(x, count):
    out = torch.empty_like(x)
    y = fill_counted(x, out, count)
    return out * y, count + 1


@program()
def operator_of_a_library_that_writes(x):
    y = x * 2
    torch.ops.stator_tests.add_one(y)
    return y * 3


class SineOfNumpy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.from_numpy(np.sin(x.detach().numpy()))

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * x.cos()


@program(lambda: (leaf(),), graphs=2, breaks="NumPy computes it")
def function_that_leaves_torch(x):
    return (SineOfNumpy.apply(x * 2 + 1) * 3).sum()


@program(lambda: (torch.randn(2, 4, 3), torch.tensor([4, 2])), graphs=2, breaks="the lengths are data")
def packed(x, lengths):
    padded = rnn.pack_padded_sequence(x * 2, lengths, batch_first=True)
    return padded.data.relu() * 2


@program(lambda: (nn.LSTM(3, 4, batch_first=True), torch.randn(2, 4, 3), torch.tensor([4, 2])), breaks="as above")
def packed_for_a_recurrent_layer(layer, x, lengths):
    out, _ = layer(rnn.pack_padded_sequence(x * 2, lengths, batch_first=True))
    out, _ = rnn.pad_packed_sequence(out, batch_first=True)
    return out.relu() + 1
