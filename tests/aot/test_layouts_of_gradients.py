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


#: How a result is laid out anew; compiled code has its tangent laid out so too, eager takes what it is given.
LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "second dim innermost": lambda y: y.movedim(1, -1).contiguous().movedim(-1, 1),
    "first dim innermost": lambda y: y.movedim(0, -1).contiguous().movedim(-1, 0),
    "turned over": lambda y: y.mT.contiguous().mT,
}


def of_rank(name: str, rank: int) -> Callable[..., Tensor]:
    """`conv`, 2 --> `F.conv2d`."""
    return getattr(F, f"{name}{rank}d")


#: Operators of lines, images and volumes of four channels, with and without a batch.
SPATIAL: dict[str, Callable[[Tensor, int], Tensor]] = {
    "max_pool": lambda x, rank: of_rank("max_pool", rank)(x, 2),
    "max_pool of windows that overlap": lambda x, rank: of_rank("max_pool", rank)(x, 2, 1, 1),
    "avg_pool": lambda x, rank: of_rank("avg_pool", rank)(x, 2, 1, 1),
    "adaptive_max_pool": lambda x, rank: of_rank("adaptive_max_pool", rank)(x, 3),
    "adaptive_avg_pool": lambda x, rank: of_rank("adaptive_avg_pool", rank)(x, 3),
    "lp_pool": lambda x, rank: of_rank("lp_pool", rank)(x.abs() + 1, 2, 2),
    "conv": lambda x, rank: of_rank("conv", rank)(x, torch.ones(3, 4, *[2] * rank)),
    "conv_transpose": lambda x, rank: of_rank("conv_transpose", rank)(x, torch.ones(4, 3, *[2] * rank)),
    "replicate": lambda x, rank: F.pad(x, [1] * 2 * rank, mode="replicate"),
    "reflect": lambda x, rank: F.pad(x, [1] * 2 * rank, mode="reflect"),
}
#: Operators that take no line, image or volume without a batch.
BATCHED: dict[str, Callable[[Tensor, int], Tensor]] = {
    "nearest": lambda x, rank: F.interpolate(x, scale_factor=2),
    "linear": lambda x, rank: F.interpolate(x, scale_factor=2, mode=["linear", "bilinear", "trilinear"][rank - 1]),
    "batch_norm": lambda x, rank: F.batch_norm(x, None, None, training=True),
    "instance_norm": lambda x, rank: F.instance_norm(x),
    "group_norm": lambda x, rank: F.group_norm(x, 2),
    "layer_norm": lambda x, rank: F.layer_norm(x, x.shape[1:]),
    "softmax": lambda x, rank: x.softmax(1),
    "cumsum": lambda x, rank: x.cumsum(1),
}
IMAGES: dict[str, Callable[[Tensor, int], Tensor]] = {
    "unfold": lambda x, rank: F.unfold(x, 2),
    "shuffle": lambda x, rank: F.pixel_shuffle(x, 2),
}
CASES = [
    *[(operator, rank, batch) for operator in SPATIAL.values() for rank in (1, 2, 3) for batch in ([], [2])],
    *[(operator, rank, [2]) for operator in BATCHED.values() for rank in (1, 2, 3)],
    *[(operator, 2, [2]) for operator in IMAGES.values()],
]


@pytest.mark.parametrize("name", LAYOUTS)
def test_gradients_through_results_laid_out_anew(name: str) -> None:
    for operator, rank, batch in CASES:

        def f(x: Tensor, operator: Callable[..., Tensor] = operator, rank: int = rank) -> Tensor:
            return LAYOUTS[name](operator(x, rank))

        x = torch.randn(*batch, 4, *(6, 4, 5)[:rank], requires_grad=True)
        y, z = f(x), stator.compile(f, backend="aot_eager", options={"strict": True})(x)
        tangent = torch.randn(y.shape)
        want, got = [torch.autograd.grad(out, x, tangent)[0] for out in (y, z)]
        torch.testing.assert_close(got, want)
