"""`flex_attention` as the products, scores and softmax that it stands for.

In eager PyTorch it asks its own compiler, and computes every score in memory. Here the program's functions of a score
are mapped over all of them as torch maps them (`vmap.py`), so they end up in the kernel of the softmax; where they
index by rows and columns, they look up, as they do in eager. Half types on a GPU are the operators of
`graphs/scores.py`, unless gradients are wanted: then scores that no function changes are those of
`scaled_dot_product_attention`, with the mask. What is asked for beside the result ends the graph. It is known by name:
nobody who does not use it imports it.
Neighbours: `vmap.py`, `values/torch/indexing.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from stator.base.device import HOST
from stator.base.errors import GraphBreak
from stator.capture.source import ConstSource
from stator.capture.values.registry import NAMED_CALLS, wrap
from stator.graphs.scores import ATTEND, SCORES

if TYPE_CHECKING:
    from stator.capture.machine import Machine
    from stator.capture.value import Value

#: The dtypes that kernels for attention take.
HALVES = (torch.float16, torch.bfloat16)
#: Of its arguments, those that change the result alone, in order.
PLAIN = ("query", "key", "value", "score_mod", "block_mask", "scale", "enable_gqa")
#: Those that ask for something else; what they are where nothing is asked for.
OTHERS: dict[str, object] = {"return_lse": False, "kernel_options": None, "return_aux": None}


class MoreThanAttention(GraphBreak):
    """The program asks `flex_attention` for more than its result."""


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score_mod: Callable[..., Tensor] | None = None,
    block_mask: Any = None,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """What a program's frame is captured as: eager's formula, rounded where that rounds. What it refuses eager judges.

    `query` is [batch, head, row, width]; of `key` and `value` a batch of one and fewer heads are repeated.
    """
    if query.dim() != 4 or key.dim() != 4 or value.dim() != 4:
        raise NotImplementedError("query, key and value of flex_attention have 4 dims")
    if not query.dtype is key.dtype is value.dtype:
        raise ValueError("query, key and value of flex_attention have one dtype")
    if not enable_gqa and query.size(1) != key.size(1):
        raise ValueError("flex_attention needs enable_gqa=True where heads of queries share one of keys")
    groups = query.size(1) // key.size(1)
    scale = query.size(-1) ** -0.5 if scale is None else scale
    fused = query.device.type != HOST and query.dtype in HALVES
    if fused and score_mod is None and block_mask is None:
        return scaled_dot_product_attention(query, key, value, scale=scale, enable_gqa=groups > 1)
    if fused and not _wants_gradients(query, key, value):
        plain = SCORES(query, key, scale)
        scores = _changed(plain, score_mod, block_mask)
        if not _wants_gradients(scores):
            return ATTEND(scores, plain, query, key, value, scale)
    if groups > 1:
        key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
    if fused and score_mod is None and block_mask is not None:
        shape = query.size(0), query.size(1), query.size(2), key.size(2)
        mask = _mapped(block_mask.mask_mod, ())(*[torch.arange(size, device=query.device) for size in shape])
        return scaled_dot_product_attention(query, key, value, mask, scale=scale)
    wide = torch.float64 if query.dtype is torch.float64 else torch.float32
    scores = query.to(wide) @ key.to(wide).transpose(-2, -1) * scale
    return torch._safe_softmax(_changed(scores, score_mod, block_mask), -1).to(query.dtype) @ value


def _wants_gradients(*tensors: Tensor) -> bool:
    return torch.is_grad_enabled() and any(x.requires_grad for x in tensors)


def _changed(scores: Tensor, score_mod: Callable[..., Tensor] | None, block_mask: Any) -> Tensor:
    """What the program's functions make of scores."""
    b, h, m, n = [torch.arange(size, device=scores.device) for size in scores.shape]
    if score_mod is not None:
        scores = _mapped(score_mod, (0,))(scores, b, h, m, n)
    if block_mask is not None:
        scores = torch.where(_mapped(block_mask.mask_mod, ())(b, h, m, n), scores, -torch.inf)
    return scores


def _mapped(function: Callable[..., Tensor], prefix: tuple[int, ...]) -> Callable[..., Tensor]:
    """A function of one batch, head, row and column over all of them; behind a score where there is a prefix."""
    for dims in ((None, None, None, 0), (None, None, 0, None), (None, 0, None, None), (0, None, None, None)):
        function = torch.vmap(function, in_dims=(*prefix, *dims))
    return function


def call_attention(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """A call of `flex_attention`."""
    named = dict(zip((*PLAIN, *OTHERS), args, strict=False)) | kwargs
    for name, nothing in OTHERS.items():
        asked = named.pop(name, None)
        if asked is not None and not (asked.is_constant() and asked.constant() == nothing):
            raise MoreThanAttention(
                f"flex_attention is given {name}, which is not captured", f"leave {name} out to capture on"
            )
    tx.graph.scoring += 1
    try:
        return wrap(tx, attend, ConstSource(attend)).call(tx, (), named)
    finally:
        tx.graph.scoring -= 1


NAMED_CALLS["torch.nn.attention.flex_attention", "flex_attention"] = call_attention
