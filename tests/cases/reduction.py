"""Reductions: dims, keeping them, dtypes, sizes 0 and 1."""

from __future__ import annotations

import torch

from tests.cases.model import BOOL, F32, F64, FLOATS, I32, I64, Case, gradients, mask, normal, permuted, special, whole

CASES = [
    Case(
        "sum",
        lambda x: (x.sum(), x.sum(1), x.sum((0, 2), keepdim=True), x.sum(-1, keepdim=True)),
        (normal(2, 3, 4),),
        slack=4.0,
    ),
    Case("sum_permuted", lambda x: (x.sum(0), x.sum((0, 1))), (permuted(normal(2, 3, 4), 2, 0, 1),), slack=4.0),
    Case("sum_whole", lambda x: (x.sum(), x.sum(0)), (whole(0, 9, 3, 4),), (I64, I32, BOOL)),
    Case("sum_typed", lambda x: x.sum(0, dtype=F64), (normal(3, 4),), (F32,)),
    Case("sum_empty", lambda x: (x.sum(1), x.sum()), (normal(3, 0),)),
    Case("sum_ones", lambda x: (x.sum(1), x.sum(1, keepdim=True), x.sum()), (normal(3, 1),), slack=4.0),
    Case("sum_zero_dim", lambda x: (x.sum(), x.mean(), x.amax()), (normal(),)),
    Case("mean", lambda x: (x.mean(), x.mean(1), x.mean((0, 2), keepdim=True)), (normal(2, 3, 4),), slack=2.0),
    Case("prod", lambda x: (x.prod(), x.prod(1)), (normal(3, 4),), slack=4.0),
    Case("prod_of_flags", lambda x: (x.prod(dtype=BOOL), x.prod(1, dtype=BOOL), x.prod(1)), (mask(3, 4),), (BOOL,)),
    Case("extrema", lambda x: (x.amax(1), x.amin((0, 1)), x.max(), x.min()), (normal(3, 4),)),
    Case("extrema_whole", lambda x: (x.amax(1), x.amin((0, 1)), x.max(), x.min()), (whole(-9, 9, 3, 4),), (I64, I32)),
    Case("extrema_special", lambda x: (x.amax(), x.amin()), (special,)),
    Case("positions", lambda x: (x.argmax(), x.argmax(1), x.argmin(0, keepdim=True)), (normal(3, 4),)),
    Case("positions_tied", lambda x: (x.argmax(), x.argmax(1), x.argmin(0)), (whole(0, 3, 4, 5),), (F32, I64)),
    Case("max_dim", lambda x: (*x.max(1), *x.min(0, keepdim=True)), (normal(3, 4),)),
    Case("max_gradients", gradients(lambda x: x.max(1)[0]), (normal(3, 4),)),
    Case("amax_gradients", gradients(lambda x: x.amax(1)), (normal(3, 4),)),
    Case(
        "any_all",
        lambda x: (x.any(), x.all(), x.any(1), x.all(0), x.all(1, keepdim=True)),
        (whole(0, 2, 3, 4),),
        (F32, I64, BOOL),
    ),
    Case("any_all_bool", lambda x: (x.any(), x.all(), x.amax(0), x.amin(0)), (mask(3, 4),), (F32,)),
    Case(
        "var",
        lambda x: (x.var(), x.var(1), x.var((0, 1), correction=0), x.std(1, keepdim=True)),
        (normal(3, 4),),
        slack=4.0,
    ),
    Case(
        "var_mean",
        lambda x: (*torch.var_mean(x, 1), *torch.std_mean(x, (0, 1), keepdim=True)),
        (normal(3, 4),),
        slack=4.0,
    ),
    Case("var_gradients", gradients(lambda x: x.var(1)), (normal(3, 4),), slack=4.0),
    Case("var_offset", lambda x: (x + 1000).var(1), (normal(3, 8),), (F32, F64), slack=100.0),
    Case("logsumexp", gradients(lambda x: x.logsumexp(-1)), (normal(3, 4),), slack=4.0),
    Case(
        "logsumexp_whole", lambda x: (x.logsumexp(0), x.logsumexp((0, 1))), (whole(0, 9, 3, 4),), (I64, BOOL), slack=4.0
    ),
    Case("logsumexp_special", lambda x: x.logsumexp(0, keepdim=True), (special,)),
    Case(
        "norms",
        lambda x: (x.norm(), x.norm(1, dim=1), x.norm(3, dim=0), x.norm(float("inf"))),
        (normal(3, 4),),
        slack=8.0,
    ),
    Case(
        "norm_of_one", lambda x: (x.norm(0.5, dim=0), x.norm(3, dim=0, keepdim=True), x.norm(0, dim=0)), (normal(1, 9),)
    ),
    Case("norm_of_none", lambda x: (x.norm(), x.norm(3, dim=1), x.norm(0, dim=1, keepdim=True)), (normal(3, 0),)),
    Case("norm_gradients", gradients(lambda x: x.norm(dim=1)), (normal(3, 4),), slack=4.0),
    Case("count_nonzero", lambda x: (x.count_nonzero(), x.count_nonzero(1)), (whole(0, 2, 3, 4),), (F32, I64)),
    Case("nansum", lambda x: x[:4].nansum(), (special,), FLOATS),
    Case("aminmax", lambda x: tuple(torch.aminmax(x, dim=1)), (normal(3, 4),)),
]
