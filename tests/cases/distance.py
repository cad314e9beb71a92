"""Distances between rows, with gradients, for orders that have formulas of their own."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F

from tests.cases.model import F32, F64, Case, gradients, normal, whole

ORDERS = {"none": 0.0, "half": 0.5, "one": 1.0, "more": 1.5, "two": 2.0, "three": 3.0, "most": math.inf}

CASES = [
    *[
        Case(
            f"distances_{name}",
            gradients(lambda a, b, order=order: torch.cdist(a, b, order)),
            (normal(2, 5, 3), normal(4, 3)),
            (F32, F64),
            slack=16.0,
        )
        for name, order in ORDERS.items()
    ],
    *[
        Case(
            f"pair_distances_{name}",
            gradients(lambda a, order=order: F.pdist(a, order)),
            (normal(6, 3),),
            (F32, F64),
            slack=16.0,
        )
        for name, order in ORDERS.items()
    ],
    Case("distances_of_equal_rows", gradients(lambda a: torch.cdist(a, a)), (whole(0, 2, 9, 2),), (F32,), slack=4.0),
    Case("pair_distances_of_equal_rows", gradients(F.pdist), (whole(0, 2, 9, 2),), (F32,), slack=4.0),
    Case("pair_distances_of_one_row", gradients(F.pdist), (normal(1, 3),), (F32,)),
    Case("pair_distances_of_no_columns", gradients(F.pdist), (normal(4, 0),), (F32,)),
    Case("distances_of_no_columns", gradients(torch.cdist), (normal(2, 4, 0), normal(3, 0)), (F32,)),
    Case("distances_of_no_rows", gradients(torch.cdist), (normal(4, 2), normal(3, 0, 2)), (F32,)),
    Case("distances_of_many_rows", gradients(torch.cdist), (normal(30, 3), normal(27, 3)), (F32, F64), slack=512.0),
]
