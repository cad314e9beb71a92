"""Activations, softmax and losses, with their gradients."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from tests.cases.model import (
    BF16,
    F32,
    FLOATS,
    I64,
    U8,
    Case,
    gradients,
    normal,
    permuted,
    positions,
    probability,
    special,
    strided,
    whole,
)

ACTIVATIONS = {
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "relu": F.relu,
    "relu6": F.relu6,
    "leaky_relu": F.leaky_relu,
    "elu": lambda x: F.elu(x, 1.5),
    "selu": F.selu,
    "celu": F.celu,
    "hardtanh": F.hardtanh,
    "hardsigmoid": F.hardsigmoid,
    "hardswish": F.hardswish,
    "softplus": lambda x: F.softplus(x, 2.0, 3.0),
    "mish": F.mish,
    "logsigmoid": F.logsigmoid,
    "sigmoid_": lambda x: torch.sigmoid(x),
    "tanh_": lambda x: torch.tanh(x),
    "hardshrink": F.hardshrink,
    "softshrink": F.softshrink,
    "threshold": lambda x: F.threshold(x, 0.3, -1.0),
    "glu": F.glu,
    "softmax": lambda x: F.softmax(x, -1),
    "softmax_first": lambda x: F.softmax(x, 0),
    "log_softmax": lambda x: F.log_softmax(x, -1),
    "log_softmax_first": lambda x: F.log_softmax(x, 0),
}

LOSSES = {
    "mse": F.mse_loss,
    "mse_none": lambda a, b: F.mse_loss(a, b, reduction="none"),
    "l1": F.l1_loss,
    "smooth_l1": lambda a, b: F.smooth_l1_loss(a, b, beta=0.7),
    "huber": lambda a, b: F.huber_loss(a, b, delta=0.8),
    "huber_sum": lambda a, b: F.huber_loss(a, b, delta=0.8, reduction="sum"),
    "kl_div": lambda a, b: F.kl_div(F.log_softmax(a, -1), F.softmax(b, -1), reduction="batchmean"),
    "soft_margin": lambda a, b: F.soft_margin_loss(a, b.detach()),
    "cosine": lambda a, b: F.cosine_similarity(a, b, dim=-1),
    "bce_logits": lambda a, b: F.binary_cross_entropy_with_logits(a, torch.sigmoid(b)),
}

CASES = [
    Case(
        "rrelu_gradients",
        lambda g, x, n: tuple(
            torch.ops.aten.rrelu_with_noise_backward(g, x, n, 0.1, upper, training, False)
            for upper, training in ((0.3, True), (0.3, False), (0.1, True))
        ),
        (normal(3, 4), normal(3, 4), normal(3, 4)),
    ),
    *[Case(name, fn, (normal(4, 6),)) for name, fn in ACTIVATIONS.items()],
    Case("threshold_of_ints", lambda x: F.threshold(x, 1.7, 3.9), (whole(-4, 5, 4, 6),), (I64, U8)),
    *[Case(f"{name}_gradients", gradients(fn), (normal(3, 6),), slack=4.0) for name, fn in ACTIVATIONS.items()],
    *[Case(f"{name}_gradients", gradients(fn), (normal(3, 4), normal(3, 4)), slack=4.0) for name, fn in LOSSES.items()],
    Case("gelu_strided", F.gelu, (permuted(normal(2, 3, 4), 2, 0, 1),)),
    Case("softmax_permuted", lambda x: F.softmax(x, 1), (permuted(normal(2, 3, 4), 2, 0, 1),)),
    Case("softmax_strided_gradients", gradients(lambda x: F.softmax(x, -1)), (strided(normal(3, 8)),), slack=4.0),
    Case("softmax_to_float", lambda x: F.softmax(x, -1, dtype=F32), (normal(3, 5),), (BF16,)),
    Case("softmax_one", lambda x: F.softmax(x, -1), (normal(3, 1),)),
    Case("softmax_empty", lambda x: F.softmax(x, -1), (normal(3, 0),)),
    Case("relu_specials_here", F.relu, (special,)),
    Case("silu_special", F.silu, (special,)),
    Case(
        "bce_gradients",
        gradients(lambda a, b: F.binary_cross_entropy(a, b.detach())),
        (probability(3, 4), probability(3, 4)),
        slack=8.0,
    ),
    Case("cross_entropy", F.cross_entropy, (normal(5, 7), positions(7, 5))),
    Case("cross_entropy_gradients", gradients(F.cross_entropy), (normal(5, 7), positions(7, 5)), slack=2.0),
    Case(
        "cross_entropy_ignored",
        gradients(lambda x, y: F.cross_entropy(x, y, ignore_index=2)),
        (normal(5, 4), positions(4, 5)),
        slack=2.0,
    ),
    Case(
        "cross_entropy_weighted",
        gradients(lambda x, y, w: F.cross_entropy(x, y, w.detach())),
        (normal(5, 4), positions(4, 5), probability(4)),
        slack=2.0,
    ),
    Case(
        "cross_entropy_sum",
        gradients(lambda x, y: F.cross_entropy(x, y, reduction="sum")),
        (normal(5, 4), positions(4, 5)),
        slack=2.0,
    ),
    Case(
        "cross_entropy_none",
        gradients(lambda x, y: F.cross_entropy(x, y, reduction="none")),
        (normal(5, 4), positions(4, 5)),
        slack=2.0,
    ),
    Case(
        "cross_entropy_smooth",
        gradients(lambda x, y: F.cross_entropy(x, y, label_smoothing=0.1)),
        (normal(5, 4), positions(4, 5)),
        slack=4.0,
    ),
    Case("cross_entropy_2d", gradients(F.cross_entropy), (normal(2, 4, 3, 2), positions(4, 2, 3, 2)), slack=2.0),
    Case("nll_single", F.nll_loss, (normal(4), positions(4)), FLOATS),
    Case("prelu_gradients", gradients(F.prelu), (normal(2, 3, 2), normal(3)), slack=4.0),
]
