"""Lookups, scatters, products, pools and other operators that end in extern calls."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from tests.cases.model import BOOL, F32, F64, FLOATS, I64, Case, distinct, gradients, mask, normal, permuted, positions

WIDE = (F32, F64)


def _columns(_):
    """A permutation in each row."""
    return torch.stack([torch.randperm(3) for _ in range(3)])


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
    Case("index_fill", lambda x, i: torch.index_fill(x, 1, i, 2.0), (normal(3, 4), distinct(4, 2)), FLOATS),
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
    Case("cumsum", gradients(lambda x: torch.cumsum(x * 2, 1)), (normal(3, 5),), WIDE, slack=4.0),
]
