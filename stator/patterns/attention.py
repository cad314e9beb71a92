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
from torch import fx
from torch.nn.functional import scaled_dot_product_attention as attention

from stator.base.device import HOST
from stator.fake.symbolic import extents
from stator.patterns.matcher import Match
from stator.patterns.normal import Form, form, name_of, number, tensor
from stator.patterns.pattern import Pattern
from stator.patterns.registry import enter
from stator.sizes import hint

_INFINITE, _NAN = -math.inf, math.nan
#: A number below this plus any score is the number itself, as float32 rounds.
_LOW = -1e30
#: It pays from so many bytes of scores on, those of a mask that is read with them left out; in training, where fewer
#: heads than this leave the gradients' products large, from so many heads (of all batches) too. See docs/patterns.md.
LARGE, HEADS = 5 << 19, 24


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
    lost = bias.amax(-1, keepdim=True) == _INFINITE
    return attention(q, k, v, bias, scale=scale) * torch.ones_like(lost, dtype=q.dtype).masked_fill(lost, _NAN)


def _twice(q: Any, k: Any, v: Any, scale: float, bias: Any, mask: Any) -> Any:
    return torch.softmax(_scores(q, k, scale) + bias + mask, -1) @ v


def _twice_fused(q: Any, k: Any, v: Any, scale: float, bias: Any, mask: Any) -> Any:
    return _biased_fused(q, k, v, scale, bias + mask)


def _chosen(q: Any, k: Any, v: Any, scale: float, keep: Any, low: float) -> Any:
    return torch.softmax(torch.where(keep, _scores(q, k, scale), low), -1) @ v


def _chosen_fused(q: Any, k: Any, v: Any, scale: float, keep: Any, low: float) -> Any:
    return _biased_fused(q, k, v, scale, _additive(q, keep, low))


def _both(q: Any, k: Any, v: Any, scale: float, keep: Any, low: float, bias: Any) -> Any:
    return torch.softmax(torch.where(keep, _scores(q, k, scale), low) + bias, -1) @ v


def _both_fused(q: Any, k: Any, v: Any, scale: float, keep: Any, low: float, bias: Any) -> Any:
    return _biased_fused(q, k, v, scale, _additive(q, keep, low) + bias)


def _additive(q: Any, keep: Any, low: float) -> Any:
    """What to add to scores so that only those are left that are kept."""
    return torch.zeros_like(keep, dtype=q.dtype).masked_fill(torch.logical_not(keep), low)


def _repeated(q: Any, k: Any) -> Any:
    """Every head of the keys for several heads of the queries."""
    batch, heads, length, width = k.shape
    return k[:, :, None].expand(batch, heads, q.shape[1] // heads, length, width).reshape(batch, -1, length, width)


def _grouped(q: Any, k: Any, v: Any, scale: float) -> Any:
    return attention(q, _repeated(q, k), _repeated(q, v), scale=scale)


def _grouped_fused(q: Any, k: Any, v: Any, scale: float) -> Any:
    return attention(q, k, v, scale=scale, enable_gqa=True)


def _grouped_masked(q: Any, k: Any, v: Any, scale: float, bias: Any) -> Any:
    return attention(q, _repeated(q, k), _repeated(q, v), bias, scale=scale)


def _grouped_masked_fused(q: Any, k: Any, v: Any, scale: float, bias: Any) -> Any:
    return attention(q, k, v, bias, scale=scale, enable_gqa=True)


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
    training = _trains(match)
    if training and masks:
        return "where a mask leaves nothing of a row, the kernel's gradients are not eager's"
    if not torch._C._get_flash_sdp_enabled():
        return "PyTorch's flash attention is switched off"
    read = max([math.prod(_sizes(mask)) * mask.element_size() for mask in masks], default=0)
    batch, heads, queries, _ = _sizes(q)
    scores = batch * heads * queries * _sizes(k)[2] * q.element_size()
    if scores - read < LARGE or (training and batch * heads < HEADS):
        return "it is small: its scores stay in caches"
    return True


def _trains(match: Match) -> bool:
    """Whether gradients are wanted."""
    return any(node.meta["val"].requires_grad for node in match.covered)


def _of_finite(match: Match) -> bool | str:
    """With a mask that has no -inf: no row can be NaN."""
    return _is_finite(match.inputs["bias"]) and _pays(match)


def _groups(match: Match) -> bool | str:
    """Whether it was measured to pay: in training the gradients are slower at times. Values are the same to the bit."""
    if match.values["q"].device.type != HOST:
        return "it was not measured on this type of device"
    return "its gradients are not always faster" if _trains(match) else True


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


def _is_large(softmax: fx.Node) -> bool:
    """Whether as many scores as there are probabilities are worth a look."""
    value = tensor(softmax)
    return value is not None and math.prod(_sizes(value)) * value.element_size() >= LARGE


def _has_views(fused: fx.Node) -> bool:
    """Whether the keys are reshaped, as repeated ones are."""
    key = fused.args[1] if len(fused.args) > 1 else None
    return isinstance(key, fx.Node) and name_of(key) == "reshape"


_Q, _K = torch.empty(2, 3, 4, 8), torch.empty(2, 3, 5, 8)
_FLOATS, _TRUTHS = torch.empty(4, 5), torch.empty(4, 5, dtype=torch.bool)
_RANKS = frozenset({"bias", "mask", "keep"})
for _name, _search, _replace, _more, _check in (
    ("", _plain, _plain_fused, (), _pays),
    (", finite mask", _biased, _finite_fused, (_FLOATS,), _of_finite),
    (", mask", _biased, _biased_fused, (_FLOATS,), _pays),
    (", two masks", _twice, _twice_fused, (_FLOATS, _FLOATS), _pays),
    (", condition", _chosen, _chosen_fused, (_TRUTHS, -1.0), _pays),
    (", condition and mask", _both, _both_fused, (_TRUTHS, -1.0, _FLOATS), _pays),
):
    _examples = (_Q, _K, _K, 0.5, *_more)
    enter(Pattern(f"attention{_name}", _search, _replace, _examples, _check, _RANKS, "softmax", _is_large))
for _name, _search, _replace, _more in (
    ("", _grouped, _grouped_fused, ()),
    (", mask", _grouped_masked, _grouped_masked_fused, (_FLOATS[None, None],)),
):
    _examples = (torch.empty(2, 6, 4, 8), _K, _K, 0.5, *_more)
    _fused = "scaled_dot_product_attention"
    enter(Pattern(f"grouped heads{_name}", _search, _replace, _examples, _groups, _RANKS, _fused, _has_views))
