"""Values and gradients made inside a graph lie in memory as eager's, where PyTorch's shape functions say otherwise."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import stator

#: Operators whose shape function, or that of their gradient, forgets channels-last.
OPERATORS: dict[str, Callable[[Tensor], Tensor]] = {
    "reflection_pad2d": lambda x: F.pad(x, (1, 1, 1, 1), mode="reflect"),
    "replication_pad2d": lambda x: F.pad(x, (1, 1, 1, 1), mode="replicate"),
    "roll": lambda x: x.roll((1, -2), (1, 2)),
    "roll by nothing": lambda x: x.roll(4, 1),
    "interpolate": lambda x: F.interpolate(x, scale_factor=2, mode="bicubic"),
    "max_pool2d": lambda x: F.max_pool2d(x, 2),
    "avg_pool2d": lambda x: F.avg_pool2d(x, 2),
    "logsigmoid": F.logsigmoid,
    "batch_norm": lambda x: F.batch_norm(x, None, None, training=True),
    "cumsum": lambda x: x.cumsum(1),
    "topk": lambda x: x.topk(2, 1)[0],
    "glu": lambda x: F.glu(x, 1),
    "group_norm": lambda x: F.group_norm(x, 2),
    "mse_loss": lambda x: F.mse_loss(x, x.detach() * 2, reduction="none"),
    "max": lambda x: x.max(),
}


@pytest.mark.parametrize("permuted", [False, True])
@pytest.mark.parametrize("name", OPERATORS)
def test_values_and_gradients_lie_as_in_eager(name: str, permuted: bool) -> None:
    def f(x: Tensor) -> tuple[Tensor, Tensor]:
        y = OPERATORS[name](x)
        return y, torch.autograd.grad((y * y).sum(), x)[0]

    x = torch.randn(2, 4, 4, 4).contiguous(memory_format=torch.channels_last)
    x = (x.permute(2, 3, 0, 1) if permuted else x).requires_grad_()
    got, want = stator.compile(f, options={"strict": True})(x), f(x)
    assert [one.stride() for one in got] == [one.stride() for one in want]
    torch.testing.assert_close(got, want)
