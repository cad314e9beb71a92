"""Products of one operand as one: which they are, what is kept of their weights, and eager's values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from stator.passes import joining
from tests.passes.test_packing import ONEDNN, Network, halves, run, same

pytestmark = pytest.mark.usefixtures("matrix_units")


def _attention(x: Tensor, q: Tensor, k: Tensor, v: Tensor, *biases: Tensor) -> Tensor:
    b = biases or (None, None, None)
    parts = [F.linear(x, w, c).view(2, -1, 4, 64).transpose(1, 2) for w, c in zip((q, k, v), b, strict=True)]
    return F.scaled_dot_product_attention(*parts).transpose(1, 2).reshape(x.shape)


def _layers(x: Tensor, v: Tensor, w: Tensor, b: Tensor, c: Tensor) -> Tensor:
    for _ in range(3):
        x = torch.tanh(F.linear(x, v, b)) * F.linear(x, w, c)
    return x


SQUARE, ROW = (256, 256), (256,)
#: A function of x (128, 256), shapes of its parameters, and how many products are left.
JOINED: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...], int]] = {
    "attention": (_attention, (SQUARE,) * 3, 1),
    "attention with biases": (_attention, (*(SQUARE,) * 3, *(ROW,) * 3), 1),
    "of several widths": (lambda x, v, w: F.silu(x @ v)[:, :64] * (x @ w), ((256, 320), (256, 64)), 1),
    "layers that share": (_layers, (SQUARE, SQUARE, ROW, ROW), 3),
    "a weight from later on": (
        lambda x, v, w: (F.linear(x, v).tanh(), F.linear(x, (w * 2).abs()) + 1),
        (SQUARE, SQUARE),
        1,
    ),
    "with and without bias": (
        lambda x, u, v, w, b: F.linear(x, u, b).tanh() * F.linear(x, v).tanh() + F.linear(x, w).tanh(),
        (SQUARE, SQUARE, SQUARE, ROW),
        2,
    ),
}


@halves
@pytest.mark.parametrize("kind", JOINED)
def test_products_of_one_operand(kind: str) -> None:
    function, shapes, products = JOINED[kind]
    model, x = Network(function, *shapes).bfloat16(), torch.randn(128, 256).bfloat16()
    found, externs, _ = run(model, x)
    assert externs.count(ONEDNN) == products
    same(model, x, found)


@halves
def test_layers_that_share_weights_share_what_is_kept() -> None:
    model, x = Network(_layers, SQUARE, SQUARE, ROW, ROW).bfloat16(), torch.randn(128, 256).bfloat16()
    assert run(model, x)[2] == 2 * (2 * 256 * 256 + 2 * 256) + 2 * (2 * 256 * 256)  # as it is joined, and packed


#: Products that are not joined: a function of x (128, 256), and shapes of its parameters.
APART: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "returned": (lambda x, v, w: (x @ v, x @ w), (SQUARE, SQUARE)),
    "returned as views": (lambda x, v, w: ((x @ v).t(), (x @ w).view(-1)), (SQUARE, SQUARE)),
    "of two operands": (lambda x, v, w: (x @ v).tanh() + (x.tanh() @ w).tanh(), (SQUARE, SQUARE)),
    "biases that are given": (
        lambda x, v, w: F.linear(x, v, x[0]).tanh() * F.linear(x, w, x[1]).tanh(),
        (SQUARE, SQUARE),
    ),
}


@halves
@pytest.mark.parametrize("kind", APART)
def test_what_is_not_joined(kind: str) -> None:
    function, shapes = APART[kind]
    model, x = Network(function, *shapes).bfloat16(), torch.randn(128, 256).bfloat16()
    found, externs, _ = run(model, x)
    assert externs.count(ONEDNN) == 2
    same(model, x, found)


@halves
def test_no_more_is_joined_than_caches_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    def small(self: joining.JoinProducts, group: list[Any]) -> list[list[Any]]:
        return whole(joining.JoinProducts(replace(self.device, cache_bytes=128 * 512 * 2)), group)

    whole = joining.JoinProducts._parts
    monkeypatch.setattr(joining.JoinProducts, "_parts", small)
    model, x = Network(_attention, SQUARE, SQUARE, SQUARE).bfloat16(), torch.randn(128, 256).bfloat16()
    found, externs, _ = run(model, x)
    assert externs.count(ONEDNN) == 2
    same(model, x, found)
