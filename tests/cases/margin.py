"""Losses that compare classes pair by pair, with gradients, and maxima taken back to their places."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from tests.cases.model import F32, FLOATS, Case, gradients, normal, positions, positive

aten = torch.ops.aten
WIDE = (F32, torch.float64)


def one_class(**options):
    return gradients(lambda x, y: F.multi_margin_loss(x, y, **options))


def class_list(dtype):
    return torch.tensor([[3, 0, -1, 1, 2], [2, 2, 3, -1, 0], [-1, 1, 2, 3, 4], [0, 1, 2, 3, 4]])


def unpooled(pool, unpool, *shape):
    def run(x):
        value, places = pool(x, 2, return_indices=True)
        return unpool(value * 2, places, 2, output_size=shape)

    return gradients(run)


CASES = [
    Case("margin_one_class", one_class(), (normal(4, 5), positions(5, 4)), WIDE, slack=8.0),
    Case("margin_one_class_sum", one_class(p=2, reduction="sum"), (normal(4, 5), positions(5, 4)), WIDE, slack=32.0),
    Case("margin_one_row", one_class(margin=0.5, reduction="none"), (normal(5), positions(5)), WIDE, slack=8.0),
    Case(
        "margin_one_class_weighted",
        lambda x, y, w: F.multi_margin_loss(x, y, 2, weight=w, reduction="none"),
        (normal(4, 5), positions(5, 4), positive(5)),
        WIDE,
        slack=32.0,
    ),
    *[
        Case(
            f"margin_several_classes_{how}",
            gradients(lambda x, y, how=how: F.multilabel_margin_loss(x, y, reduction=how)),
            (normal(4, 5), class_list),
            WIDE,
            slack=16.0,
        )
        for how in ("none", "mean", "sum")
    ],
    Case(
        "margin_several_classes_row",
        gradients(lambda x, y: F.multilabel_margin_loss(x, y[0])),
        (normal(5), class_list),
        WIDE,
        slack=16.0,
    ),
    Case("unpool_images", unpooled(F.max_pool2d, F.max_unpool2d, 5, 6), (normal(2, 3, 5, 6),), FLOATS),
    Case("unpool_volumes", unpooled(F.max_pool3d, F.max_unpool3d, 4, 2, 5), (normal(1, 2, 4, 2, 5),), WIDE),
]
