"""Scans: along every dim, beside reductions and pointwise work, backwards, and over infinities, NaN and ties."""

from __future__ import annotations

import torch
from torch import Tensor

from tests.cases.model import (
    ALL_FLOATS,
    BF16,
    BOOL,
    F32,
    F64,
    FLOATS,
    I32,
    I64,
    INTEGERS,
    U8,
    Case,
    gradients,
    mask,
    normal,
    permuted,
    special,
    strided,
    unit,
    whole,
)


def _top_p(x: Tensor) -> Tensor:
    return x.softmax(-1).cumsum(-1) < 0.9


def _share(x: Tensor) -> tuple[Tensor, Tensor]:
    running = x.exp().cumsum(1)
    return running, running / running.sum(1, keepdim=True)


CASES = [
    Case("running_sum", lambda x: (x.cumsum(0), x.cumsum(1), x.cumsum(-1)), (normal(3, 4, 21),), ALL_FLOATS, slack=2.0),
    Case("running_sum_long", lambda x: (x.cumsum(1) * 2, x.t().cumsum(0)), (normal(3, 75),), slack=4.0),
    Case("running_sum_wide", lambda x: (x.cumsum(0), x.cumsum(0).sum(0)), (normal(5, 70),), (F32, F64), slack=8.0),
    Case("running_sum_strided", lambda x: (x.cumsum(0), x.cumsum(1)), (permuted(strided(normal(4, 6)), 1, 0),)),
    Case("running_sum_whole", lambda x: (x.cumsum(0), x.cumprod(1)), (whole(0, 5, 3, 9),), (*INTEGERS, BOOL)),
    Case(
        "running_sum_typed",
        lambda x: (x.cumsum(0, dtype=F64), x.cumsum(0, dtype=I32), x.cumprod(0, dtype=torch.int8)),
        (normal(4, 3),),
        (F32, BF16, I64),
    ),
    Case("running_huge", lambda x: ((x * 2).cumsum(1), *x.cummax(1)), (normal(2, 8200),), (F32,), slack=64.0),
    Case("running_small", lambda x: (x.cumsum(0), x.cumprod(1), *x.cummax(1)), (normal(1, 1),)),
    Case("running_single", lambda x: (x.cumsum(0), x.logcumsumexp(0), *x.cummin(0)), (normal(),), (F32, F64)),
    Case("running_empty", lambda x: (x.cumsum(0), x.cumsum(1), *x.cummax(0)), (normal(3, 0),)),
    Case("running_product", lambda x: (x.cumprod(0), x.cumprod(1)), (normal(4, 19),), ALL_FLOATS, slack=4.0),
    Case("running_extremes", lambda x: (*x.cummax(0), *x.cummin(1)), (normal(5, 19),), ALL_FLOATS),
    Case("running_extremes_tied", lambda x: (*x.cummax(1), *x.cummin(0)), (whole(0, 3, 5, 19),), (F32, I64, I32, U8)),
    Case("running_extremes_flags", lambda x: (*x.cummax(1), *x.cummin(0)), (mask(5, 19),), (BOOL,)),
    Case("running_extremes_special", lambda x: (*x.cummax(0), *x.cummin(0)), (special,)),
    Case("running_special", lambda x: (x.cumsum(0), x.cumprod(0), x.logcumsumexp(0)), (special,)),
    Case("running_logsumexp_rows", lambda x: x.logcumsumexp(1) * 2, (normal(19, 11),), (F32, F64), slack=8.0),
    Case("running_logsumexp", lambda x: (x.logcumsumexp(0), x.logcumsumexp(1)), (normal(4, 19),), slack=4.0),
    Case(
        "running_backwards",
        lambda x: (x.flip(1).cumsum(1).flip(1) + x, (x > 0).flip(1).cumsum(1).flip(1), (x > 0).flip(1) * 2),
        (normal(3, 37),),
        slack=2.0,
    ),
    Case("running_top_p", _top_p, (normal(3, 40),), (F32, F64)),
    Case("running_share", _share, (unit(3, 40),), (F32, F64), slack=8.0),
    Case("running_count", lambda x: ((x > 0).cumsum(1) - 1) * (x > 0), (normal(3, 40),), FLOATS),
    Case("running_twice", lambda x: x.cumsum(0).cumsum(1).cumsum(1), (normal(4, 6),), (F32, F64), slack=8.0),
    Case("running_sum_gradients", gradients(lambda x: (x * 2).cumsum(0)), (normal(5, 18),), slack=8.0),
    Case("running_product_gradients", gradients(lambda x: x.cumprod(1)), (normal(2, 4),), (F32, F64), slack=32.0),
    Case(
        "running_extremes_gradients", gradients(lambda x: x.cummax(1)[0] - x.cummin(0)[0]), (normal(4, 6),), (F32, F64)
    ),
    Case(
        "running_logsumexp_gradients",
        gradients(lambda x: x.logcumsumexp(1)),
        (normal(3, 8),),
        (F32, F64),
        slack=32.0,
    ),
    Case(
        "running_differences",
        lambda x: (x.diff(dim=1), torch.trapezoid(x, dim=0), torch.cumulative_trapezoid(x, dim=1)),
        (normal(4, 9),),
        (F32, F64),
        slack=8.0,
    ),
]
