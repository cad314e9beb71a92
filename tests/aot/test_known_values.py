"""Values that a trace knows, as of tensors made of numbers: operators that ask for them get them until a write."""

import pytest
import torch

import stator


def views_and_writes(x):
    zeros = torch.zeros(2, dtype=torch.long)
    first = zeros[0]
    zeros.fill_(3)
    twos = torch.full((2,), 2)
    last = twos[1:]
    last.add_(5)
    return x * (first + 1), twos * 2, twos.sum() + last, first


@pytest.mark.parametrize("function", [torch.cov, torch.corrcoef, views_and_writes])
def test_as_eager(function):
    x = torch.randn(3, 5)
    compiled = stator.compile(lambda x: function(x), fullgraph=True)
    torch.testing.assert_close(compiled(x), function(x))


RESTRIDED = {
    "unsqueeze_": lambda x: x.unsqueeze_(0),
    "squeeze_": lambda x: x.unsqueeze_(1).squeeze_(1),
    "t_": lambda x: x.t_(),
    "transpose_": lambda x: x.transpose_(0, -1),
    "as_strided_": lambda x: x.as_strided_((2, 1), (1, 1)),
}


@pytest.mark.parametrize("name", RESTRIDED)
def test_a_known_value_in_another_geometry(name):
    def function(x):
        known = torch.tensor([[1, 2, 3], [4, 5, 6]])
        same = known.view_as(known)
        RESTRIDED[name](known)
        known.add_(x.dim())
        return known.mT + x, known[0] * 2, same * 1, same + x

    x = torch.randn(())
    compiled = stator.compile(function, fullgraph=True, options={"strict": True})
    for got, want in zip(compiled(x), function(x), strict=True):
        assert got.stride() == want.stride()
        torch.testing.assert_close(got, want)
