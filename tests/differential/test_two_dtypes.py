"""Losses of operands of two dtypes: the dtype of the result is eager's, and so is the refusal of a gradient."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import stator

Loss = Callable[..., Tensor]
LOSSES: tuple[Loss, ...] = (
    F.huber_loss, F.smooth_l1_loss, F.mse_loss, F.l1_loss, F.soft_margin_loss, F.poisson_nll_loss,
    F.hinge_embedding_loss, F.binary_cross_entropy_with_logits,
)  # fmt: skip
PAIRS = ((torch.float32, torch.float64), (torch.float64, torch.float32), (torch.bfloat16, torch.float32))


def results(x: Tensor, y: Tensor) -> list[Tensor]:
    return [loss(x, y, reduction=reduction) for loss in LOSSES for reduction in ("none", "mean", "sum")]


@pytest.mark.parametrize("dtypes", PAIRS, ids=str)
def test_results(dtypes: tuple[torch.dtype, torch.dtype]) -> None:
    x, y = (torch.rand(7).to(dtype) for dtype in dtypes)
    compiled = stator.compile(results, fullgraph=True)
    for ours, eager in zip(compiled(x, y), results(x, y), strict=True):
        torch.testing.assert_close(ours, eager)


@pytest.mark.filterwarnings("ignore::stator.base.errors.FallbackWarning")
@pytest.mark.parametrize("backend", ["inductor", "aot_eager"])
@pytest.mark.parametrize(
    ("loss", "dtypes"),
    [
        (F.huber_loss, PAIRS[0]),
        (partial(F.huber_loss, reduction="none"), PAIRS[2]),
        (F.soft_margin_loss, (torch.float32, torch.bool)),
    ],
    ids=["huber", "huber of each", "soft margin"],
)
def test_gradients_are_refused(loss: Loss, dtypes: tuple[torch.dtype, torch.dtype], backend: str) -> None:
    x, y = (torch.rand(7).to(dtype) for dtype in dtypes)
    said = []
    for function in (loss, stator.compile(lambda x, y: loss(x, y), backend=backend)):
        result = function(x.clone().requires_grad_(), y)
        with pytest.raises(RuntimeError) as raised:
            result.sum().backward()
        said.append((result.detach(), type(raised.value), str(raised.value)))
    torch.testing.assert_close(said[0][0], said[1][0])
    assert said[0][1:] == said[1][1:]


@pytest.mark.parametrize("dtypes", [*PAIRS, (torch.float16, torch.float64)], ids=str)
def test_a_weight_of_another_dtype_leaves_the_loss_its_own(dtypes: tuple[torch.dtype, torch.dtype]) -> None:
    """Eager multiplies in place."""
    x, target = (torch.rand(4, 64).to(dtypes[0]) for _ in range(2))
    weight = torch.rand(64).to(dtypes[1])
    x.requires_grad_()

    def all_of(x: Tensor, target: Tensor, weight: Tensor) -> list[Tensor]:
        return [F.binary_cross_entropy(x, target, weight, reduction=each) for each in ("none", "mean", "sum")]

    for got, want in zip(
        stator.compile(all_of, fullgraph=True)(x, target, weight), all_of(x, target, weight), strict=True
    ):
        torch.testing.assert_close(got, want)
        slopes = [torch.autograd.grad(loss.sum(), x)[0] for loss in (got, want)]
        torch.testing.assert_close(*slopes)
