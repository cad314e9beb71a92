"""Checkpointed regions: their inside is computed again in backward, what they give is kept, gradients are eager's."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import stator
from stator.base import log
from stator.lowering import product

WIDTH, BATCH, HIDDEN = 16, 8, 64
#: The bytes of what one block reads and gives.
BLOCK = WIDTH * BATCH * 4


class Block(nn.Module):
    """Two products with something between them, around which the input goes."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.wide, self.narrow = nn.Linear(WIDTH, HIDDEN), nn.Linear(HIDDEN, WIDTH)
        self.dropout = dropout

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.nn.functional.gelu(self.wide(self.norm(x)))
        return x + self.narrow(torch.nn.functional.dropout(hidden, self.dropout, self.training))


class Attention(nn.Module):
    """Every element of the batch looks at the others."""

    def __init__(self) -> None:
        super().__init__()
        self.three, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.three(x).view(1, BATCH, 3, 2, WIDTH // 2).permute(2, 0, 3, 1, 4)
        mixed = torch.nn.functional.scaled_dot_product_attention(q, k, v)
        return x + self.out(mixed.transpose(1, 2).reshape(BATCH, WIDTH))


class Tower(nn.Module):
    def __init__(self, blocks: list[nn.Module], checkpointed: bool) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)
        self.run: Callable[..., Any] = partial(checkpoint, use_reentrant=False) if checkpointed else _plainly

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = self.run(block, x)
        return x.sin()


def _plainly(block: nn.Module, x: torch.Tensor) -> Any:
    return block(x)


def saved_bytes(model: nn.Module, options: dict[str, Any] | None = None) -> int:
    """What a call keeps for backward besides parameters and the input."""
    x = torch.randn(BATCH, WIDTH, requires_grad=True)
    kept = {t.untyped_storage().data_ptr() for t in (*model.parameters(), x)}
    found: dict[int, int] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.untyped_storage().data_ptr() not in kept:
            found[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        stator.compile(model, fullgraph=True, options=options)(x)
    return sum(found.values())


@pytest.mark.parametrize("kind", [Block, partial(Block, 0.5), Attention], ids=["block", "dropout", "attention"])
def test_saved_bytes_grow_by_what_blocks_read(kind: Callable[[], nn.Module]) -> None:
    torch.manual_seed(0)
    sizes = [saved_bytes(Tower([kind() for _ in range(count)], True)) for count in (1, 3, 5)]
    plain = [saved_bytes(Tower([kind() for _ in range(count)], False)) for count in (1, 3)]
    assert sizes[1] - sizes[0] <= 2 * BLOCK + 64 and sizes[2] - sizes[1] <= 2 * BLOCK + 64
    assert plain[1] - plain[0] > 4 * BLOCK


def step(model: nn.Module, x: torch.Tensor) -> list[torch.Tensor]:
    out = model(x)
    return [out.detach(), *torch.autograd.grad(out.square().sum(), [x, *model.parameters()])]


@pytest.mark.parametrize("kind", [Block, Attention])
def test_gradients(kind: Callable[[], nn.Module]) -> None:
    torch.manual_seed(1)
    model = Tower([kind() for _ in range(3)], True).double()
    x = torch.randn(BATCH, WIDTH, dtype=torch.float64, requires_grad=True)
    torch.testing.assert_close(step(stator.compile(model, fullgraph=True), x), step(model, x))


def test_dropout_draws_the_same_again() -> None:
    """A checkpointed model and a plain one, from one seed."""
    torch.manual_seed(2)
    blocks: list[nn.Module] = [Block(0.5) for _ in range(3)]
    x = torch.randn(BATCH, WIDTH, requires_grad=True)
    found = []
    for checkpointed in (True, False):
        model = stator.compile(Tower(blocks, checkpointed), fullgraph=True)
        torch.manual_seed(3)
        found.append(step(model, x))
    torch.testing.assert_close(*found)


def test_eager_random_keeps_the_masks() -> None:
    torch.manual_seed(4)
    model = Tower([Block(0.5) for _ in range(2)], True)
    x = torch.randn(BATCH, WIDTH, requires_grad=True)
    compiled = stator.compile(model, fullgraph=True, options={"eager_random": True})
    found = []
    for call in (compiled, model):
        torch.manual_seed(5)
        found.append(step(call, x))
    torch.testing.assert_close(*found)


def test_regions_inside_each_other() -> None:
    torch.manual_seed(6)
    inner = Tower([Block(), Block()], True)
    outer = Tower([inner, Attention()], True)
    x = torch.randn(BATCH, WIDTH, requires_grad=True)
    torch.testing.assert_close(step(stator.compile(outer, fullgraph=True), x), step(outer, x))
    assert saved_bytes(outer) <= 2 * BLOCK + 64


def test_products_run_again_and_the_peak_is_lower(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(product, "takes_loop", lambda *_: False)  # calls of a library are counted
    x = torch.randn(64 * BATCH, WIDTH, requires_grad=True)
    peaks, products = [], []
    for checkpointed in (True, False):
        torch.manual_seed(7)
        with log.collect() as seen:
            stator.compile(Tower([Block() for _ in range(6)], checkpointed), fullgraph=True)(x)
        (memory,) = seen.of(log.MEMORY)
        peaks.append(memory["peak"])
        products.append(sum(len(found["externs"]) for found in seen.of(log.KERNELS)))
    assert products[0] >= products[1] + 6
    assert peaks[0] < 0.6 * peaks[1]
