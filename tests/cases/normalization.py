"""Normalisations and the blocks around them, with gradients."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from tests.cases.model import (
    BF16,
    F32,
    F64,
    Case,
    channels_last,
    gradients,
    normal,
    permuted,
    positive,
    single,
    special,
)

aten = torch.ops.aten
WIDE = (F32, F64)


def layer_norm(x, w, b):
    return F.layer_norm(x, (x.shape[-1],), w, b)


def rms_by_hand(x, w):
    wide = x.float()
    return w * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)


def residual_block(x, y, w, b):
    return F.gelu(layer_norm(x + y, w, b)) + x


def batch_norm_training(x, w, b, mean, var):
    return aten._native_batch_norm_legit_functional(x, w, b, mean, var, True, 0.1, 1e-5)


CASES = [
    Case("layer_norm", layer_norm, (normal(3, 2, 8), normal(8), normal(8)), slack=2.0),
    Case("layer_norm_gradients", gradients(layer_norm), (normal(3, 2, 8), normal(8), normal(8)), slack=8.0),
    Case("layer_norm_plain", gradients(lambda x: F.layer_norm(x, (2, 4))), (normal(3, 2, 4),), slack=8.0),
    Case("layer_norm_whole", gradients(lambda x: F.layer_norm(x, (6,))), (normal(6),), slack=8.0),
    Case("layer_norm_permuted", layer_norm, (permuted(normal(8, 3, 2), 2, 1, 0), normal(8), normal(8)), slack=2.0),
    Case(
        "layer_norm_mixed",
        gradients(layer_norm),
        (normal(3, 8), single(normal(8)), single(normal(8))),
        (BF16,),
        slack=4.0,
    ),
    Case("rms_norm", gradients(lambda x, w: F.rms_norm(x, (8,), w, 1e-6)), (normal(3, 8), normal(8)), slack=8.0),
    Case("rms_norm_plain", gradients(lambda x: F.rms_norm(x, (8,))), (normal(3, 8),), slack=8.0),
    Case("rms_by_hand", gradients(rms_by_hand), (normal(3, 8), normal(8)), (F32, BF16), slack=8.0),
    Case(
        "residual_block",
        gradients(residual_block),
        (normal(3, 8), normal(3, 8), normal(8), normal(8)),
        (F32, F64),
        slack=16.0,
    ),
    Case(
        "group_norm",
        gradients(lambda x, w, b: F.group_norm(x, 2, w, b)),
        (normal(2, 4, 3, 2), normal(4), normal(4)),
        WIDE,
        slack=16.0,
    ),
    Case("group_norm_plain", gradients(lambda x: F.group_norm(x, 2)), (normal(2, 4, 3),), WIDE, slack=16.0),
    Case("instance_norm", gradients(lambda x: F.instance_norm(x)), (normal(2, 3, 5),), WIDE, slack=16.0),
    Case(
        "batch_norm_training",
        batch_norm_training,
        (normal(3, 2, 4), normal(2), normal(2), normal(2), positive(2)),
        WIDE,
        slack=4.0,
    ),
    Case(
        "batch_norm_gradients",
        gradients(lambda x, w, b: F.batch_norm(x, None, None, w, b, True)),
        (normal(3, 2, 2, 2), normal(2), normal(2)),
        WIDE,
        slack=16.0,
    ),
    Case(
        "batch_norm_eval",
        gradients(lambda x, w, b, m, v: F.batch_norm(x, m.detach(), v.detach(), w, b)),
        (normal(3, 2, 2, 2), normal(2), normal(2), normal(2), positive(2)),
        WIDE,
        slack=4.0,
    ),
    Case(
        "batch_norm_channels_last",
        lambda x, w, b, m, v: F.batch_norm(x, m, v, w, b),
        (channels_last(normal(2, 3, 2, 2)), normal(3), normal(3), normal(3), positive(3)),
        WIDE,
        slack=4.0,
    ),
    Case(
        "batch_norm_reserve",
        lambda g, x, w, m, v: aten.batch_norm_backward(
            g, x, w, m, v, m, v, True, 1e-5, [True] * 3, torch.empty(0, dtype=torch.uint8)
        ),
        (normal(3, 2, 2, 2), normal(3, 2, 2, 2), normal(2), normal(2), positive(2)),
        WIDE,
        slack=16.0,
    ),
    Case(
        "native_dropout_backward",
        lambda g, m: aten.native_dropout_backward(g, m > 0, 1.25),
        (normal(3, 4), normal(3, 4)),
    ),
    Case("safe_softmax", lambda x: aten._safe_softmax(torch.where(x > 1.0, x, float("-inf")), -1), (normal(4, 3),)),
    Case("log_softmax_special", lambda x: F.log_softmax(x, -1), (special,)),
]
