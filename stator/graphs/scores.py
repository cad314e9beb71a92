"""Attention whose scores a function of the program changes, as two operators around what it does with them.

    stator::scores(q, k, scale) -> Tensor                          float32, (batch, head, row of q, row of k)
    stator::attend(scores, plain, q, k, v, scale) -> Tensor        of the dtype of v

`scores` are what functions of scores and of masks make of `plain`, which is the first operator's result: one kernel
computes them where they are needed, of `q` and `k`, if all that they are made of is known at each element
(`lowering/attention.py`). Run as operators they are eager's formula, in memory. Heads of queries that follow one
another share a head of keys. No gradients are defined. Neighbours: `capture/values/autograd/flexible.py` makes them.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from stator.fake.rules import rule
from stator.fake.tensor import make

_LIBRARY = torch.library.Library("stator", "FRAGMENT")
_LIBRARY.define("scores(Tensor q, Tensor k, float scale) -> Tensor")
_LIBRARY.define("attend(Tensor scores, Tensor plain, Tensor q, Tensor k, Tensor v, float scale) -> Tensor")


def _scores(q: Tensor, k: Tensor, scale: float) -> Tensor:
    k = k.repeat_interleave(q.size(1) // k.size(1), 1)
    return q.float() @ k.float().transpose(-2, -1) * scale


def _attend(scores: Tensor, plain: Tensor, q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    shares: Tensor = torch._safe_softmax(scores, -1)
    return shares.to(v.dtype) @ v.repeat_interleave(q.size(1) // v.size(1), 1)


_LIBRARY.impl("scores", _scores, "CompositeExplicitAutograd")
_LIBRARY.impl("attend", _attend, "CompositeExplicitAutograd")

SCORES = torch.ops.stator.scores.default
ATTEND = torch.ops.stator.attend.default


@rule(SCORES)
def _shape_of_scores(q: Any, k: Any, scale: float) -> Any:
    return make((*q.shape[:3], k.shape[2]), torch.float32, q.device)


@rule(ATTEND)
def _shape_of_result(scores: Any, plain: Any, q: Any, k: Any, v: Any, scale: float) -> Any:
    return make((*q.shape[:3], v.shape[3]), v.dtype, v.device)
