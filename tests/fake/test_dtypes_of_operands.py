"""Operands of losses and layers in every dtype by itself: compiled code refuses what eager refuses, and nothing else.

A call has operands of usual dtypes; each of them in turn has any other, beside floats of several dtypes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import stator

DTYPES = (
    torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int32, torch.uint8, torch.bool,
    torch.complex64,
)  # fmt: skip
#: What all float operands but one are.
USUAL = (torch.float32, torch.bfloat16, torch.int64)


def real(*size: int) -> Tensor:
    return torch.rand(size, generator=torch.Generator().manual_seed(len(size))) * 0.8 + 0.1


def whole(high: int, *size: int) -> Tensor:
    return torch.randint(0, high, size, generator=torch.Generator().manual_seed(len(size)))


Call = tuple[Callable[..., Any], list[Tensor]]
CALLS: dict[str, Call] = {
    "nll_loss": (lambda x, t, w: F.nll_loss(x, t, w), [real(4, 5), whole(5, 4), real(5)]),
    "nll_loss of images": (lambda x, t, w: F.nll_loss(x, t, w), [real(2, 5, 2, 2), whole(5, 2, 2, 2), real(5)]),
    "cross_entropy": (lambda x, t, w: F.cross_entropy(x, t, w), [real(4, 5), whole(5, 4), real(5)]),
    "cross_entropy, soft": (lambda x, t, w: F.cross_entropy(x, t, w), [real(4, 5), real(4, 5), real(5)]),
    "binary_cross_entropy": (lambda x, t, w: F.binary_cross_entropy(x, t, w), [real(4, 5), real(4, 5), real(5)]),
    "with logits": (
        lambda x, t, w, p: F.binary_cross_entropy_with_logits(x, t, w, pos_weight=p),
        [real(4, 5), real(4, 5), real(5), real(5)],
    ),
    "multi_margin_loss": (lambda x, t, w: F.multi_margin_loss(x, t, weight=w), [real(4, 5), whole(5, 4), real(5)]),
    "multi_margin_loss of one": (lambda x, t, w: F.multi_margin_loss(x, t, weight=w), [real(5), whole(5), real(5)]),
    "multilabel_margin_loss": (lambda x, t: F.multilabel_margin_loss(x, t), [real(4, 5), whole(5, 4, 5)]),
    "multilabel_soft_margin_loss": (
        lambda x, t, w: F.multilabel_soft_margin_loss(x, t, w), [real(4, 5), real(4, 5), real(5)],
    ),
    "huber_loss": (lambda x, t: F.huber_loss(x, t, reduction="none"), [real(4, 5), real(4, 5)]),
    "smooth_l1_loss": (lambda x, t: F.smooth_l1_loss(x, t), [real(4, 5), real(4, 5)]),
    "soft_margin_loss": (lambda x, t: F.soft_margin_loss(x, t), [real(4, 5), real(4, 5)]),
    "kl_div": (lambda x, t: F.kl_div(x, t, reduction="sum"), [real(4, 5), real(4, 5)]),
    "embedding_bag": (
        lambda i, w, p: F.embedding_bag(i, w, per_sample_weights=p, mode="sum"),
        [whole(5, 3, 2), real(5, 4), real(3, 2)],
    ),
    "batch_norm": (
        lambda x, m, v, w, b: F.batch_norm(x, m, v, w, b), [real(4, 3, 2), real(3), real(3), real(3), real(3)],
    ),
    "batch_norm, training": (
        lambda x, m, v, w, b: F.batch_norm(x, m, v, w, b, True), [real(4, 3, 2), real(3), real(3), real(3), real(3)],
    ),
    "layer_norm": (lambda x, w, b: F.layer_norm(x, (5,), w, b), [real(4, 5), real(5), real(5)]),
    "group_norm": (lambda x, w, b: F.group_norm(x, 2, w, b), [real(3, 4, 2), real(4), real(4)]),
    "linear": (lambda x, w, b: F.linear(x, w, b), [real(3, 4), real(5, 4), real(5)]),
    "conv2d": (lambda x, w, b: F.conv2d(x, w, b), [real(2, 3, 5, 5), real(4, 3, 3, 3), real(4)]),
    "prelu": (lambda x, w: F.prelu(x, w), [real(3, 4), real(4)]),
}  # fmt: skip


def variants(operands: list[Tensor]) -> Iterator[list[Tensor]]:
    """The operands with one of another dtype."""
    seen = set()
    for usual, place, dtype in itertools.product(USUAL, range(len(operands)), DTYPES):
        given = [t.to(usual) if t.is_floating_point() else t for t in operands]
        given[place] = operands[place].to(dtype)
        kinds = tuple(t.dtype for t in given)
        if kinds not in seen:
            seen.add(kinds)
            yield given


def outcome(function: Callable[..., Any], operands: list[Tensor]) -> tuple[Any, str]:
    """The dtype of the result and its numbers, or what is raised."""
    try:
        result = function(*[t.clone() for t in operands])
    except Exception as error:
        return type(error), str(error)
    return result.dtype, str(result.to(torch.complex128))


def captured(function: Callable[..., Any], operands: list[Tensor]) -> bool:
    """Whether capture takes the call; what it refuses there raises as in eager."""
    graphs: list[torch.fx.GraphModule] = []

    def backend(gm: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        graphs.append(gm)
        return gm.forward

    outcome(stator.compile(function, backend=backend), operands)
    return bool(graphs)


@pytest.mark.filterwarnings("ignore::stator.base.errors.FallbackWarning")
@pytest.mark.parametrize("name", CALLS)
def test_what_eager_refuses_is_refused(name: str) -> None:
    """What capture takes although eager refuses it may still be refused by a kernel, so that is compiled."""
    call, usual = CALLS[name]
    refused = 0
    for operands in variants(usual):
        want = outcome(call, operands)
        if not isinstance(want[0], type):
            continue
        refused += 1
        if captured(call, operands):
            stator.reset()
            got = outcome(stator.compile(call, options={"cache": False}), operands)
            assert got[0] is want[0], f"{[str(t.dtype) for t in operands]}: {got} for {want}"
    assert refused
