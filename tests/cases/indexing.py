"""Lookups, scatters, products, pools and other operators that end in extern calls."""

from __future__ import annotations

import warnings

import torch
import torch.nn.functional as F

from tests.cases.model import (
    BOOL,
    F32,
    F64,
    FLOATS,
    I32,
    I64,
    SINGLE,
    Case,
    distinct,
    gradients,
    mask,
    normal,
    permuted,
    positions,
    special,
    whole,
)

WIDE = (F32, F64)
aten = torch.ops.aten


def _columns(_):
    """A permutation in each row."""
    return torch.stack([torch.randperm(3) for _ in range(3)])


def quiet(fn):
    """Without eager's warnings that an operator is new, or old."""

    def run(*inputs):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return fn(*inputs)

    return run


def mlp(x, w1, b1, w2, b2):
    return F.linear(F.gelu(F.linear(x, w1, b1)), w2, b2)


def attention(q, k, v):
    scores = (q @ k.transpose(-1, -2)) / 2.0
    rows = torch.arange(scores.shape[-2])
    causal = rows[:, None] >= rows[None, :]
    return F.softmax(scores.masked_fill(~causal, float("-inf")), -1) @ v


CASES = [
    Case("embedding", lambda w, i: F.embedding(i, w), (normal(7, 4), positions(7, 2, 3)), (*FLOATS, I64)),
    Case(
        "embedding_gradients",
        gradients(lambda w, i: F.embedding(i, w, padding_idx=1)),
        (normal(5, 4), positions(5, 6)),
        WIDE,
    ),
    Case("index_first", lambda x, i: x[i] * 2, (normal(5, 3), positions(5, 4, low=-5)), FLOATS),
    Case("index_pair", lambda x, i, j: x[i, j], (normal(4, 5, 2), positions(4, 3), positions(5, 2, 3)), FLOATS),
    Case("index_middle", lambda x, i: x[:, i] + x[:, i], (normal(3, 5, 2), positions(5, 2, 2)), FLOATS),
    Case("index_apart", lambda x, i, j: x[i, :, j], (normal(4, 3, 5), positions(4, 2), positions(5, 2)), FLOATS),
    Case("index_gradients", gradients(lambda x, i: x[i].sin()), (normal(5, 3), positions(5, 4)), WIDE, slack=4.0),
    Case(
        "index_select",
        lambda x, i: torch.index_select(x, 1, i),
        (permuted(normal(4, 3), 1, 0), positions(4, 6)),
        FLOATS,
    ),
    Case("gather", gradients(lambda x, i: torch.gather(x, 1, i)), (normal(3, 5), positions(5, 3, 2)), WIDE),
    Case("take", lambda x, i: torch.take(x, i), (normal(3, 4), positions(12, 5)), FLOATS),
    Case(
        "scatter",
        lambda x, i, y: (x.scatter(1, i, y), x.scatter(1, i, 2.0), x.scatter_add(0, i, y)),
        (normal(3, 3), _columns, normal(3, 3)),
        WIDE,
        slack=4.0,
    ),
    Case(
        "index_add",
        lambda x, i, y: torch.index_add(x, 0, i, y, alpha=2),
        (normal(4, 3), positions(4, 5), normal(5, 3)),
        WIDE,
        slack=4.0,
    ),
    Case(
        "index_copy", lambda x, i, y: torch.index_copy(x, 1, i, y), (normal(3, 4), distinct(4, 2), normal(3, 2)), FLOATS
    ),
    Case(
        "scatter_combined",
        quiet(
            lambda x, i, y: (
                x.scatter(0, i, y, reduce="add"),
                x.scatter(1, i, y, reduce="multiply"),
                x.scatter(0, i, 0.5, reduce="add"),
            )
        ),
        (normal(3, 3), positions(3, 3, 3), normal(3, 3)),
        WIDE,
        slack=8.0,
    ),
    *[
        Case(
            f"scatter_reduce_{kind}",
            lambda x, i, y, kind=kind: (
                x.scatter_reduce(1, i, y, kind),
                x.scatter_reduce(0, i[:2], y, kind, include_self=False),
            ),
            (normal(3, 4), positions(3, 3, 3), normal(3, 5)),
            FLOATS,
            slack=8.0,
        )
        for kind in ("sum", "prod", "mean", "amax", "amin")
    ],
    *[
        Case(
            f"index_reduce_{kind}",
            quiet(
                lambda x, i, y, kind=kind: (
                    x.index_reduce(1, i, y, kind),
                    x.index_reduce(1, i, y, kind, include_self=False),
                )
            ),
            (normal(3, 4), positions(4, 5), normal(3, 5)),
            FLOATS,
            slack=8.0,
        )
        for kind in ("prod", "mean", "amax", "amin")
    ],
    Case(
        "scatter_whole",
        lambda x, i, y: (
            x.scatter_add(0, i, y),
            x.scatter_reduce(1, i, y, "amax", include_self=False),
            x.scatter_reduce(1, i, y, "prod"),
            x.scatter_reduce(0, i, y, "mean"),
        ),
        (whole(-5, 5, 4, 4), positions(4, 4, 3), whole(-3, 4, 4, 4)),
        (I64, I32),
    ),
    Case(
        "last_wins",
        lambda x, i, j, y: (
            x.scatter(0, i[:, None].expand(9, 3), y),
            torch.index_put(x, (i,), y),
            torch.index_copy(x, 0, i, y),
            x.put(i, y[:, 0]),
            aten.index_put(x.unsqueeze(1), [i, None, j], y[:, :1]),
        ),
        (normal(4, 3), positions(4, 9), positions(3, 9), normal(9, 3)),
        (*FLOATS, I64),
    ),
    Case(
        "scatter_single",
        lambda x, i, y: (x.scatter_add(0, i, y), x.index_add(0, i, y), x.index_copy(0, i, y)),
        (normal(), positions(1), normal()),
        FLOATS,
    ),
    Case(
        "put_rows",
        lambda x, i, y: (torch.index_put(x, (i[:0],), y[:0]), torch.index_put(x, (i,), y, accumulate=True)),
        (normal(4, 3), positions(4, 9, low=-4), normal(9, 3)),
        FLOATS,
        slack=8.0,
    ),
    Case(
        "put_apart",
        lambda x, i, j, y: (
            aten.index_put(x, [i, None, j], y, True),
            aten.index_put(x, [None, i, j], y.t(), True),
            aten.index_put(x, [None, i[:, None] * 0 + j], y.t()[:, :1, None, None], True),
        ),
        (normal(3, 3, 3), positions(3, 5), positions(3, 5), normal(5, 3)),
        WIDE,
        slack=8.0,
    ),
    Case(
        "put_flags",
        lambda x, i, y: torch.index_put(x, (i,), y, accumulate=True),
        (mask(4), positions(4, 3), mask(3)),
        (BOOL,),
    ),
    Case(
        "put_flat",
        lambda x, i, y: (x.put(i[:1, 0], y[:1]), x.put(i, y, accumulate=True)),
        (normal(3, 4), positions(12, 2, 3, low=-12), normal(6)),
        FLOATS,
        slack=8.0,
    ),
    Case("take_gradients", gradients(lambda x, i: torch.take(x, i)), (normal(3, 4), positions(12, 7)), WIDE),
    Case(
        "masked_scatter",
        gradients(lambda x, m, y: x.masked_scatter(m, y)),
        (normal(3, 4), mask(3, 4), normal(4, 4)),
        WIDE,
    ),
    Case(
        "as_strided_scatter",
        lambda x, y: torch.as_strided_scatter(x, y, (2, 3), (1, 4), 2),
        (normal(3, 5), normal(2, 3)),
        FLOATS,
    ),
    Case(
        "masked_index",
        lambda x, m, i, y: (
            aten._unsafe_masked_index(x, m, [i], 0.5),
            aten._unsafe_masked_index_put_accumulate(x, m, [i], y),
        ),
        (normal(4), mask(5), positions(9, 5, low=-8), normal(5)),
        WIDE,
        slack=8.0,
    ),
    Case(
        "nonzero_static",
        lambda x: tuple(torch.nonzero_static(x > 0, size=size, fill_value=-7) for size in (0, 3, 40)),
        (normal(3, 2, 4),),
        SINGLE,
    ),
    Case("extremes_of_flags", lambda x: (*torch.max(x, 1), *torch.min(x, 0, keepdim=True)), (mask(3, 5),), (BOOL,)),
    Case("chunk_cat", lambda x, y: aten._chunk_cat([x, y], 0, 2), (normal(3, 2), normal(5, 2)), FLOATS),
    Case(
        "renorm",
        lambda x: (torch.renorm(x, 2, 0, 1.5), torch.renorm(x, 1, -1, 3.0)),
        (normal(3, 4),),
        FLOATS,
        slack=8.0,
    ),
    Case(
        "isin",
        lambda x, y: (
            torch.isin(x, y),
            torch.isin(x, torch.arange(80).to(x.dtype) * 3, invert=True),
            torch.isin(x, 2),
            torch.isin(3, y),
        ),
        (whole(0, 60, 3, 5), whole(0, 60, 4)),
        (I64, I32),
    ),
    Case(
        "searched",
        lambda x, y: (
            torch.searchsorted(torch.sort(x, 1)[0], y),
            torch.searchsorted(x, y, right=True, sorter=torch.argsort(x, 1), out_int32=True),
            torch.searchsorted(torch.sort(x[0])[0], y, side="right"),
            torch.searchsorted(torch.sort(x[0])[0], 0.25),
            torch.bucketize(y, torch.sort(x[1])[0]),
        ),
        (normal(2, 7), normal(2, 4)),
        FLOATS,
    ),
    Case(
        "searched_special",
        lambda x: (torch.bucketize(x, torch.sort(x)[0]), torch.bucketize(x, x[:0]), torch.bucketize(x, x[2:3])),
        (special,),
        FLOATS,
    ),
    Case(
        "index_fill_single",
        lambda x, i: (torch.index_fill(x, 1, i, x[0, 0]), x[0, 0].index_fill(0, i * 0, 2)),
        (normal(3, 4), positions(4)),
        FLOATS,
    ),
    Case("index_fill", lambda x, i: torch.index_fill(x, 1, i, 2.0), (normal(3, 4), distinct(4, 2)), FLOATS),
    *[
        Case(
            f"mask_put_of_{name}",
            gradients(lambda x, y, m=mask, add=add: torch.index_put(x, (m,), y, accumulate=add)),
            (normal(5, 4), normal(*size)),
        )
        for add in (False, True)
        for name, mask, size in (
            (f"rows_{add}", torch.tensor([True, False, True, True, False]), (3, 4)),
            (f"one_row_{add}", torch.tensor([True, False, True, True, False]), (1, 4)),
            (f"one_row_less_{add}", torch.tensor([True, False, True, True, False]), (4,)),
            (f"elements_{add}", torch.arange(20).view(5, 4) % 3 == 1, (7,)),
            (f"one_element_{add}", torch.arange(20).view(5, 4) % 3 == 1, ()),
        )
    ],
    Case("mask_put", lambda x: torch.index_put(x, (x > 0,), torch.tensor(0.0, dtype=x.dtype)), (normal(3, 4),), FLOATS),
    Case("computed_index", lambda x: x[(x[:, 0] > 0).long() + 1], (normal(4, 3),), FLOATS),
    Case("linear", gradients(F.linear), (normal(2, 3, 4), normal(5, 4), normal(5)), WIDE, slack=8.0),
    Case("linear_half", F.linear, (normal(3, 4), normal(5, 4), normal(5)), (torch.bfloat16,), slack=2.0),
    Case("mlp", gradients(mlp), (normal(3, 4), normal(8, 4), normal(8), normal(4, 8), normal(4)), WIDE, slack=64.0),
    Case(
        "attention",
        gradients(attention),
        (normal(1, 2, 4, 3), normal(1, 2, 4, 3), normal(1, 2, 4, 3)),
        WIDE,
        slack=32.0,
    ),
    Case(
        "sdpa",
        gradients(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True)),
        (normal(1, 2, 4, 3),) * 3,
        (F32,),
        slack=32.0,
    ),
    Case(
        "addbmm",
        gradients(lambda x, a, b: torch.addbmm(x, a, b, beta=0.5, alpha=2)),
        (normal(4, 5), normal(3, 4, 2), normal(3, 2, 5)),
        (F32, F64),
        slack=16.0,
    ),
    Case(
        "addbmm_whole",
        lambda x, a, b: (torch.addbmm(x, a, b), torch.addbmm(x, a.transpose(1, 2)[:, :, :4], b[:, :4], beta=0)),
        (whole(0, 9, 4, 5), whole(0, 9, 3, 4, 4), whole(0, 9, 3, 4, 5)),
        (I64,),
    ),
    Case(
        "bilinear_layer",
        gradients(lambda x, y, w, b: F.bilinear(x, y, w, b)),
        (normal(2, 3, 4), normal(2, 3, 5), normal(6, 4, 5), normal(6)),
        (F32, F64),
        slack=32.0,
    ),
    Case(
        "addr_of_flags",
        lambda m, a, b: (torch.addr(m, a, b, beta=3, alpha=2), torch.addr(m, a, b, beta=0)),
        (mask(4, 3), mask(4), mask(3)),
        (BOOL,),
    ),
    Case(
        "products",
        lambda a, b, c: (torch.baddbmm(c, a, b, beta=0.5, alpha=2), a @ b[0], torch.einsum("bij,bjk->bki", a, b)),
        (normal(2, 3, 4), normal(2, 4, 5), normal(2, 3, 5)),
        WIDE,
        slack=16.0,
    ),
    Case(
        "vectors",
        lambda a, b, m: (torch.dot(a, b), torch.mv(m, b), torch.addmv(a, m, b), torch.outer(a, b), torch.addr(m, a, b)),
        (normal(4), normal(4), normal(4, 4)),
        WIDE,
        slack=16.0,
    ),
    Case(
        "addmm_scaled",
        lambda c, a, b: torch.addmm(c, a, b, beta=0.5, alpha=2),
        (normal(5), normal(3, 4), normal(4, 5)),
        WIDE,
        slack=16.0,
    ),
    Case("matmul_transposed", lambda a, b: (a * 2).t() @ b.relu(), (normal(4, 3), normal(4, 5)), WIDE, slack=16.0),
    Case(
        "conv",
        gradients(lambda x, w, b: F.relu(F.conv2d(x, w, b, padding=1))),
        (normal(1, 2, 5, 5), normal(3, 2, 3, 3), normal(3)),
        WIDE,
        slack=64.0,
    ),
    Case("max_pool", gradients(lambda x: F.max_pool2d(x * 2, 2)), (normal(1, 2, 4, 4),), WIDE),
    Case("avg_pool", gradients(lambda x: F.avg_pool2d(x, 2)), (normal(1, 2, 4, 4),), WIDE, slack=4.0),
    Case("adaptive_pool", gradients(lambda x: F.adaptive_avg_pool2d(x, 1)), (normal(2, 3, 4, 4),), WIDE, slack=4.0),
    Case("adaptive_pool_2", gradients(lambda x: F.adaptive_avg_pool2d(x, 2)), (normal(2, 3, 4, 4),), WIDE, slack=4.0),
    Case(
        "nearest",
        lambda x: (F.interpolate(x, scale_factor=2), F.interpolate(x, size=(5, 3))),
        (normal(1, 2, 4, 4),),
        FLOATS,
    ),
    Case(
        "bilinear",
        lambda x: (
            F.interpolate(x, size=(6, 7), mode="bilinear"),
            F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=True),
        ),
        (normal(1, 2, 4, 4),),
        WIDE,
        slack=8.0,
    ),
    Case("sorted", lambda x: (*torch.sort(x, 1), *torch.topk(x * 2, 2)), (normal(3, 5),), FLOATS),
]
