"""Upsampling and downsampling in all modes, with gradients."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from tests.cases.model import F32, FLOATS, U8, Case, channels_last, gradients, normal, whole

WIDE = (F32, torch.float64)
SHAPES = {1: (2, 3, 5), 2: (1, 2, 5, 4), 3: (1, 2, 3, 4, 2)}


def resized(mode, **options):
    return gradients(lambda x: F.interpolate(x, mode=mode, **options))


def each_rank(name, modes, slack, **options):
    """The same for lines, images and volumes; a mode of each."""
    return [
        Case(f"{name}_{rank}d", resized(mode, **options), (normal(*SHAPES[rank]),), FLOATS, slack=slack)
        for rank, mode in modes.items()
    ]


NEAREST = dict.fromkeys((1, 2, 3), "nearest")
EXACT = dict.fromkeys((1, 2, 3), "nearest-exact")
LINEAR = {1: "linear", 2: "bilinear", 3: "trilinear"}

CASES = [
    *each_rank("nearest_doubled", NEAREST, 4.0, scale_factor=2),
    *each_rank("nearest_scaled", NEAREST, 4.0, scale_factor=1.3),
    *each_rank("nearest_smaller", NEAREST, 4.0, scale_factor=0.6),
    *each_rank("exact_tripled", EXACT, 4.0, scale_factor=3),
    *each_rank("exact_scaled", EXACT, 4.0, scale_factor=1.3),
    *each_rank("linear_doubled", LINEAR, 16.0, scale_factor=2),
    *each_rank("linear_smaller", LINEAR, 16.0, scale_factor=0.7),
    *each_rank("linear_aligned", LINEAR, 16.0, scale_factor=1.3, align_corners=True),
    *each_rank("linear_scaled", LINEAR, 16.0, scale_factor=1.3),
    Case("cubic_scaled", resized("bicubic", scale_factor=1.3), (normal(1, 2, 3, 5),), WIDE, slack=32.0),
    Case("linear_sized", resized("bilinear", size=(5, 7)), (normal(1, 2, 5, 3),), WIDE, slack=16.0),
    Case("linear_far", resized("linear", scale_factor=20), (normal(1, 2, 4),), WIDE, slack=32.0),
    Case("linear_last", resized("bilinear", size=(3, 7)), (channels_last(normal(2, 3, 4, 5)),), WIDE, slack=16.0),
    Case("cubic", resized("bicubic", size=(7, 3)), (normal(1, 2, 4, 5),), FLOATS, slack=32.0),
    Case(
        "cubic_aligned", resized("bicubic", scale_factor=2, align_corners=True), (normal(1, 2, 4, 3),), WIDE, slack=32.0
    ),
    Case("nearest_bytes", lambda x: F.interpolate(x, size=(7, 3)), (whole(0, 255, 1, 2, 4, 5),), (U8,)),
]
