"""What one operator does and another undoes is not done: library calls read what was there before."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import stator
from stator.lowering.product import ONEDNN

Moves = Callable[[Tensor, Tensor], Tensor]

UNDONE: dict[str, Moves] = {
    "turned round and back": lambda x, y: x.flip(0).flip(0),
    "permuted and back": lambda x, y: x.t().contiguous().t().contiguous(),
    "permuted as three and back": lambda x, y: (
        x.view(-1, 2, 64).permute(1, 0, 2).contiguous().permute(1, 0, 2).reshape(x.shape)
    ),
    "split and joined": lambda x, y: torch.cat(x.split(32, 1), 1),
    "unbound and stacked": lambda x, y: torch.stack(x.unbind(1), 1),
    "joined and split": lambda x, y: torch.cat([y, x], 1).split(128, 1)[1],
    "joined and sliced": lambda x, y: torch.cat([x, y], 1)[:, :128],
    "stacked and selected": lambda x, y: torch.stack([x, y])[0],
    "rolled and back": lambda x, y: x.roll(5, 1).roll(-5, 1),
    "padded and cut": lambda x, y: F.pad(x, (2, 3))[:, 2:-3],
    "repeated and cut": lambda x, y: x.repeat(1, 2)[:, 128:],
    "negated twice": lambda x, y: x.neg().neg(),
    "widened and back": lambda x, y: x.double().float(),
}


@pytest.mark.parametrize("rows", [96, None], ids=["known sizes", "any number of rows"])
@pytest.mark.parametrize("name", UNDONE)
def test_a_product_reads_what_was_moved_and_moved_back(name: str, rows: int | None) -> None:
    moves = UNDONE[name]
    weight = torch.randn(128, 300)

    def product(x: Tensor, y: Tensor) -> Tensor:
        return moves(x, y) @ weight

    x, y = torch.randn(96, 128), torch.randn(96, 128)
    if rows is None:
        for operand in (x, y):
            stator.mark_dynamic(operand, 0)
    told = stator.explain(product)(x, y)
    torch.testing.assert_close(stator.compile(product, fullgraph=True)(x, y), product(x, y))
    assert not told.kernels and told.externs in [("aten.mm.default",), (ONEDNN,)]  # whichever is faster here


@pytest.mark.parametrize("name", UNDONE)
def test_the_result_is_memory_of_its_own(name: str) -> None:
    x, y = torch.randn(96, 128), torch.randn(96, 128)
    want = UNDONE[name](x, y)
    made = stator.compile(UNDONE[name], fullgraph=True)(x, y)
    torch.testing.assert_close(made, want, rtol=0, atol=0)
    assert made.stride() == want.stride()
    shares = made.untyped_storage().data_ptr() in (x.untyped_storage().data_ptr(), y.untyped_storage().data_ptr())
    assert not shares


def test_parts_that_are_read_more_than_once_are_not_joined() -> None:
    def gated(x: Tensor, y: Tensor) -> Tensor:
        left, right = torch.cat([x, y], 1).chunk(2, 1)
        return left * right.sigmoid()

    x, y = torch.randn(64, 128), torch.randn(64, 128)
    told = stator.explain(gated)(x, y)
    assert (len(told.kernels), told.externs) == (1, ())
    torch.testing.assert_close(stator.compile(gated, fullgraph=True)(x, y), gated(x, y))


def test_what_is_written_to_afterwards_was_read_before() -> None:
    weight = torch.randn(128, 128)

    def program(x: Tensor, y: Tensor) -> Tensor:
        moved = x.flip(0).flip(0)
        x.mul_(2)
        return moved @ weight + moved

    x, y = torch.randn(64, 128), torch.randn(64, 128)
    ours = x.clone()
    want, found = program(x, y), stator.compile(program, fullgraph=True)(ours, y)
    torch.testing.assert_close(found, want)
    torch.testing.assert_close(ours, x)
