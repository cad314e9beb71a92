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
