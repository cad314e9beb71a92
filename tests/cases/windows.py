"""Pools, folds and borders, with gradients."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from tests.cases.model import BF16, F32, FLOATS, I64, Case, channels_last, gradients, normal, permuted, special, whole

WIDE = (F32, torch.float64)


def pool2d(*args):
    return gradients(lambda x: F.avg_pool2d(x, *args))


def padded(pads, mode):
    return gradients(lambda x: F.pad(x, pads, mode))


def folded(*args):
    return gradients(lambda x: F.fold(F.unfold(x, *args), x.shape[-2:], *args))


CASES = [
    Case(
        "max_pool3d",
        lambda x: (
            *F.max_pool3d(x, 2, return_indices=True),
            *F.max_pool3d(x, (3, 2, 3), (2, 1, 2), (1, 0, 1), return_indices=True, ceil_mode=True),
            *F.max_pool3d(x, 2, 1, 1, (2, 3, 1), return_indices=True),
        ),
        (whole(-9, 9, 2, 3, 5, 6, 7),),
        (F32, BF16, I64),
    ),
    Case(
        "max_pool2d",
        lambda x: (
            *F.max_pool2d(x, 2, return_indices=True),
            *F.max_pool2d(x, (3, 2), (2, 1), (1, 0), return_indices=True, ceil_mode=True),
            *F.max_pool2d(x, 2, 1, 1, (2, 3), return_indices=True),
            *F.max_pool2d(x[0], (1, 3), 4, return_indices=True),
        ),
        (whole(-9, 9, 2, 3, 9, 7),),
        (F32, BF16, I64),
    ),
    Case(
        "max_pool2d_last",
        gradients(lambda x: F.max_pool2d(x, 3, 2, 1)),
        (channels_last(normal(2, 3, 6, 5)),),
        WIDE,
        slack=4.0,
    ),
    Case(
        "max_pool2d_special",
        lambda x: (
            *F.max_pool2d(x.view(1, 4, 3), 2, 1, 1, return_indices=True),
            *F.max_pool2d(x.view(1, 4, 3), 2, 1, 1, (1, 2), return_indices=True),
        ),
        (special,),
    ),
    Case("max_pool2d_long", gradients(lambda x: F.max_pool2d(x, 7, 2, 3)), (normal(1, 2, 9, 8),), slack=8.0),
    Case("max_pool2d_gradients", gradients(lambda x: F.max_pool2d(x, 3, 2, 1)), (normal(2, 3, 9, 36),), slack=4.0),
    Case("max_pool1d_gradients", gradients(lambda x: F.max_pool1d(x, 3, 2, 1)), (normal(2, 3, 9),), slack=4.0),
    Case(
        "max_pool3d_last",
        lambda x: F.max_pool3d(x.contiguous(memory_format=torch.channels_last_3d), 2, return_indices=True),
        (normal(2, 3, 4, 4, 5),),
        (F32,),
    ),
    Case(
        "max_pool3d_special",
        lambda x: (
            *F.max_pool3d(x.view(1, 2, 2, 3), 2, 1, 1, return_indices=True),
            *F.max_pool3d(x.view(1, 2, 2, 3), 2, 1, 1, (1, 2, 1), return_indices=True),
        ),
        (special,),
    ),
    Case(
        "max_pool3d_gradients",
        gradients(lambda x: F.max_pool3d(x, 3, 1, 1, ceil_mode=True)),
        (normal(2, 3, 4, 5, 4),),
        slack=4.0,
    ),
    Case("average_pool", pool2d(2), (normal(2, 3, 8, 9),), FLOATS, slack=4.0),
    Case("average_pool_overlapping", pool2d(3, 2, 1), (normal(2, 3, 8, 9),), FLOATS, slack=4.0),
    Case("average_pool_same", pool2d(3, 1, 1, False, False), (normal(2, 5, 6),), FLOATS, slack=4.0),
    Case("average_pool_ceil", pool2d((3, 2), 2, (1, 0), True, True), (normal(1, 2, 8, 7),), WIDE, slack=4.0),
    Case("average_pool_ceil_inside", pool2d(3, 2, 1, True, False), (normal(1, 2, 8, 7),), WIDE, slack=4.0),
    Case("average_pool_divisor", pool2d(2, 3, 1, False, True, 3), (normal(1, 2, 8, 7),), WIDE, slack=4.0),
    Case("average_pool_large", pool2d(6, 1), (normal(1, 2, 8, 9),), WIDE, slack=16.0),
    Case("average_pool_last", pool2d(3, 2, 1), (channels_last(normal(2, 3, 6, 5)),), WIDE, slack=4.0),
    Case("average_pool_all", pool2d(1280, 1280, 2, True), (normal(2, 3, 5, 4),), WIDE, slack=4.0),
    Case("average_pool_whole_numbers", lambda x: F.avg_pool2d(x, 3, 2, 1), (normal(1, 2, 6, 5),), (I64,)),
    Case("average_pool_lines", gradients(lambda x: F.avg_pool1d(x, 3, 2, 1)), (normal(2, 3, 9),), FLOATS, slack=4.0),
    Case(
        "average_pool_volumes",
        gradients(lambda x: F.avg_pool3d(x, 2, 1, 1)),
        (normal(1, 2, 3, 4, 3),),
        WIDE,
        slack=8.0,
    ),
    Case(
        "adaptive_pool_uneven",
        gradients(lambda x: F.adaptive_avg_pool2d(x, (3, 4))),
        (normal(1, 2, 7, 9),),
        FLOATS,
        slack=4.0,
    ),
    Case(
        "adaptive_pool_growing",
        gradients(lambda x: F.adaptive_avg_pool2d(x, (5, 3))),
        (channels_last(normal(1, 2, 3, 6)),),
        WIDE,
        slack=4.0,
    ),
    Case(
        "adaptive_pool_volumes",
        gradients(lambda x: F.adaptive_avg_pool3d(x, (2, 1, 3))),
        (normal(1, 2, 3, 2, 4),),
        WIDE,
        slack=4.0,
    ),
    Case(
        "adaptive_pool_long",
        gradients(lambda x: F.adaptive_avg_pool1d(x, 2)),
        (normal(1, 2, 67),),
        WIDE,
        slack=16.0,
    ),
    Case("mirrored_lines", padded((2, 1), "reflect"), (normal(2, 3, 4),), FLOATS, slack=4.0),
    Case("mirrored", padded((1, 2, 0, 3), "reflect"), (normal(2, 3, 4, 5),), FLOATS, slack=4.0),
    Case("mirrored_cut", padded((-1, 2, 1, -2), "reflect"), (normal(3, 4, 5),), WIDE, slack=4.0),
    Case("mirrored_last", padded((1, 1, 1, 1), "reflect"), (channels_last(normal(2, 3, 4, 3)),), WIDE, slack=4.0),
    Case("mirrored_volumes", padded((1, 0, 1, 2, 0, 1), "reflect"), (normal(1, 2, 3, 4, 3),), WIDE, slack=4.0),
    Case("repeated_lines", padded((2, 1), "replicate"), (normal(2, 3, 4),), FLOATS, slack=4.0),
    Case("repeated", padded((1, 2, 0, 3), "replicate"), (normal(2, 3, 1, 5),), FLOATS, slack=4.0),
    Case("repeated_cut", padded((-1, 2, 1, -2), "replicate"), (normal(3, 4, 5),), WIDE, slack=4.0),
    Case("repeated_volumes", padded((1, 0, 1, 2, 0, 1), "replicate"), (normal(1, 2, 3, 2, 3),), WIDE, slack=8.0),
    Case("columns", lambda x: F.unfold(x, (2, 3), 1, 1, (2, 1)), (permuted(normal(4, 5, 3, 2), 3, 2, 0, 1),), FLOATS),
    Case("folds", folded(3, 1, 1, 2), (normal(2, 3, 6, 5),), WIDE, slack=16.0),
    Case("folds_dilated", folded((2, 3), (3, 2), 2, (1, 2)), (normal(2, 6, 7),), WIDE, slack=16.0),
    Case("folds_wider_than_the_image", folded(7, 1, 3), (normal(1, 2, 2, 3),), WIDE, slack=64.0),
    Case("folds_beside_the_image", folded(2, 4, 2), (normal(1, 2, 1, 1),), WIDE),
    Case("sliding", gradients(lambda x: x.unfold(1, 3, 2) * 2), (normal(2, 8, 3),), FLOATS, slack=4.0),
    Case("sliding_closely", gradients(lambda x: x.unfold(-1, 4, 1)), (normal(2, 8),), WIDE, slack=8.0),
]
