"""Attention written as products and a softmax, as scaled-dot-product attention, which keeps no scores in memory.

One search for each way to mask: by nothing, by one or two tensors that are added, by a condition that chooses a number.
Which of `q`, `k` and `v` is a view of what, what is scaled where, and in which order is summed is the matcher's
business. Eager gives NaN in a row whose scores are all -inf, and the kernel 0; so NaN is restored where a mask may be
-inf. Replacing changes the order in which float32 and float64 are summed; the rounding of half types inside would be
lost, so they stay as they are. Whether it pays is `_pays`. Neighbours: `registry.py`.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention as attention

from stator.base.device import HOST
from stator.fake.symbolic import extents
from stator.patterns.matcher import Match
from stator.patterns.normal import Form, form, number, tensor
from stator.patterns.pattern import Pattern
from stator.patterns.registry import enter
from stator.sizes import hint

_INFINITE, _NAN = -math.inf, math.nan
#: A number below this plus any score is the number itself, as float32 rounds.
_LOW = -1e30
#: It pays from so many bytes of scores on, those of a mask that is read with them left out; in training, where fewer
#: heads than this leave the gradients' products large, from so many heads (of all batches) too. See docs/patterns.md.
LARGE, HEADS = 3 << 20, 24


def _scores(q: Any, k: Any, scale: float) -> Any:
    return q @ k.transpose(-1, -2) * scale


def _plain(q: Any, k: Any, v: Any, scale: float) -> Any:
    return torch.softmax(_scores(q, k, scale), -1) @ v


def _plain_fused(q: Any, k: Any, v: Any, scale: float) -> Any:
    return attention(q, k, v, scale=scale)


def _biased(q: Any, k: Any, v: Any, scale: float, bias: Any) -> Any:
    return torch.softmax(_scores(q, k, scale) + bias, -1) @ v


def _finite_fused(q: Any, k: Any, v: Any, scale: float, bias: Any) -> Any:
    return attention(q, k, v, bias, scale=scale)


def _biased_fused(q: Any, k: Any, v: Any, scale: float, bias: Any) -> Any:
    nothing = bias.amax(-1, keepdim=True) == _INFINITE
    return attention(q, k, v, bias, scale=scale) * torch.ones_like(nothing, dtype=q.dtype).masked_fill(nothing, _NAN)


def _twice(q: Any, k: Any, v: Any, scale: float, bias: Any, mask: Any) -> Any:
    return torch.softmax(_scores(q, k, scale) + bias + mask, -1) @ v


def _twice_fused(q: Any, k: Any, v: Any, scale: float, bias: Any, mask: Any) -> Any:
    return _biased_fused(q, k, v, scale, bias + mask)


def _chosen(q: Any, k: Any, v: Any, scale: float, keep: Any, low: float) -> Any:
    return torch.softmax(torch.where(keep, _scores(q, k, scale), low), -1) @ v


def _chosen_fused(q: Any, k: Any, v: Any, scale: float, keep: Any, low: float) -> Any:
    return _biased_fused(_seen(q, keep), k, v, scale, _additive(q, keep, low))


def _chosen_biased(q: Any, k: Any, v: Any, scale: float, keep: Any, low: float, bias: Any) -> Any:
    return torch.softmax(torch.where(keep, _scores(q, k, scale), low) + bias, -1) @ v


def _chosen_biased_fused(q: Any, k: Any, v: Any, scale: float, keep: Any, low: float, bias: Any) -> Any:
    return _biased_fused(_seen(q, keep), k, v, scale, _additive(q, keep, low) + bias)


def _additive(q: Any, keep: Any, low: float) -> Any:
    """What to add to scores so that only those are left that are kept."""
    return torch.zeros_like(keep, dtype=q.dtype).masked_fill(torch.logical_not(keep), low)


def _seen(q: Any, keep: Any) -> Any:
    """The queries that some key is kept for: of the others' scores, none has a gradient."""
    return q.masked_fill(torch.logical_not(keep.any(-1, keepdim=True)), 0.0)


# ---- where it is allowed, and where it pays ----------------------------------------------------------------------


def _pays(match: Match) -> bool | str:
    """Whether the kernel takes the operands, computes what eager does, and is faster."""
    q, k, v = (match.values[name] for name in "qkv")
    masks = [match.values[name] for name in ("bias", "mask", "keep") if name in match.values]
    dtypes = {value.dtype for node in match.covered if (value := tensor(node)) is not None}
    floating = dtypes | {mask.dtype for mask in masks if mask.dtype is not torch.bool}
    if floating != {q.dtype} or q.dtype not in (torch.float32, torch.float64):
        return "only float32 and float64 are computed without rounding between"
    if q.device.type != HOST:
        return "it was not measured on this type of device"
    shapes = [extents(x.shape) for x in (q, k, v)]
    if len({shape[:2] for shape in shapes}) > 1 or len({shape[3] for shape in shapes}) > 1:
        return "the kernel wants heads of one number and width"
    if any(mask.dim() not in (2, 4) for mask in masks):
        return "the kernel takes masks of two or four dimensions"
    if match.inputs.get("low", _INFINITE) > _LOW:
        return "scores that are masked keep some weight"
    training = torch.is_grad_enabled() and any(x.requires_grad for x in (q, k, v, *masks))
    if training and any(mask.requires_grad for mask in masks):
        return "the kernel has no gradient of a bias"
    if not torch._C._get_flash_sdp_enabled():
        return "PyTorch's flash attention is switched off"
    read = max([math.prod(_sizes(mask)) * mask.element_size() for mask in masks], default=0)
    batch, heads, queries, _ = _sizes(q)
    scores = batch * heads * queries * _sizes(k)[2] * q.element_size()
    if scores - read < LARGE or (training and batch * heads < HEADS):
        return "it is small: its scores stay in caches"
    return True


def _pays_finite(match: Match) -> bool | str:
    """The same for a mask that has no -inf."""
    return _pays(match) if _is_finite(match.inputs["bias"]) else "the mask may be -inf"


def _is_finite(value: Any) -> bool:
    """Whether it is seen that a mask has no -inf: it is made of finite numbers."""
    plain = number(value)
    if plain is not None:
        return math.isfinite(plain)
    found = value if isinstance(value, Form) else form(value)
    match found:
        case Form("permute" | "reshape" | "expand" | "same" | "getitem", (operand, *_)):
            return _is_finite(operand)
        case Form("where", (_, yes, no)):
            return _is_finite(yes) and _is_finite(no)
        case Form("zeros" | "zeros_like" | "ones" | "new_zeros" | "ones_like", _):
            return True
    return False


def _sizes(value: torch.Tensor) -> list[int]:
    """As large as it is in the call at hand."""
    return [hint(size) for size in extents(value.shape)]


def _enter(name: str, search: Any, replace: Any, *more: Any, check: Any = _pays) -> None:
    q, k, v = (torch.empty(2, 3, length, 8) for length in (4, 5, 5))
    ranks = frozenset({"bias", "mask", "keep"})
    enter(Pattern(f"attention{name}", search, replace, (q, k, v, 0.5, *more), check, ranks, anchored="softmax"))


_FLOATS, _TRUTHS = torch.empty(4, 5), torch.empty(4, 5, dtype=torch.bool)
_enter("", _plain, _plain_fused)
_enter(", biased", _biased, _finite_fused, _FLOATS, check=_pays_finite)
_enter(", masked", _biased, _biased_fused, _FLOATS)
_enter(", masked twice", _twice, _twice_fused, _FLOATS, _FLOATS)
_enter(", masked by a condition", _chosen, _chosen_fused, _TRUTHS, -1.0)
_enter(", masked by a condition and a bias", _chosen_biased, _chosen_biased_fused, _TRUTHS, -1.0, _FLOATS)
