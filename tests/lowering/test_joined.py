"""Tensors that a program fills slice by slice, and reads slices of: eager's results, read from the parts themselves."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import stator
from stator.aot.partition import partition
from stator.aot.trace import trace
from stator.loop.expr import postorder
from stator.loop.nest import Nest
from stator.lowering import lower
from stator.lowering.joined import MOST_PARTS
from stator.prims import DECOMPOSITIONS, RANDOM_OPERATORS
from stator.targets import typical
from tests.aot.models import Function, captured

SIZE = (5, 4, 6)


def program(seed: int) -> Callable[[Tensor, Tensor], list[Tensor]]:
    """Writes to random slices of what was joined or copied before, from slices of it and of the operand."""
    choose = random.Random(seed)
    steps = []
    for _ in range(choose.randint(1, 8)):
        dim = choose.randrange(3)
        count = choose.randint(0 if choose.random() < 0.1 else 1, SIZE[dim])
        start, origin = [choose.randint(0, SIZE[dim] - max(count, 1)) for _ in range(2)]
        steps.append((dim, start, origin, count, choose.randrange(6), choose.randrange(3), choose.random() < 0.3))

    def run(x: Tensor, filled: Tensor) -> list[Tensor]:
        y, seen = filled.clone(), []
        for dim, start, origin, count, kind, which, read in steps:
            source = (x, y, torch.cat([y.narrow(dim, 2, 2), x], dim))[which].narrow(dim, origin, count)
            match kind:
                case 0:
                    y.narrow(dim, start, count).copy_(source.clone())
                case 1:
                    y.narrow(dim, start, count).copy_(source * 2)
                case 2:
                    y.select(dim, start).copy_(y.select(dim, origin).clone())
                case 3:
                    y = torch.slice_scatter(y, source, dim, start, start + count)
                case 4:
                    y = y + 0
                case _:
                    y = y.clone()
            if read:
                seen.append(y.select(dim, origin) * 3 + y.narrow(dim, start, 1).sum(dim))
        return [y, *seen]

    return run


@pytest.mark.parametrize("seed", range(60))
def test_slices_of_what_is_filled_slice_by_slice_are_eager_s(seed: int) -> None:
    torch.manual_seed(seed)
    operands = [torch.randn(SIZE, requires_grad=True) for _ in range(2)]
    run = program(seed)
    expected, found = run(*operands), stator.compile(run, fullgraph=True)(*operands)
    torch.testing.assert_close(found, expected, rtol=0, atol=0)
    cotangents = [torch.randn_like(one) for one in expected]
    wanted = torch.autograd.grad(expected, operands, cotangents, allow_unused=True)
    torch.testing.assert_close(torch.autograd.grad(found, operands, cotangents, allow_unused=True), wanted)


def test_parts_do_not_double_with_every_write() -> None:
    def run(x: Tensor) -> Tensor:
        y = torch.zeros(8, 8)
        for k in range(40):
            y.narrow(k % 2, k % 7, 2).copy_(x.narrow(k % 2, k % 5, 2) + k)
        return y

    x = torch.randn(8, 8)
    torch.testing.assert_close(stator.compile(run, fullgraph=True)(x), run(x), rtol=0, atol=0)
    assert MOST_PARTS <= 64


def nests(run: Callable[[Tensor], Tensor], x: Tensor, half: str) -> list[Nest]:
    gm = captured(Function(run), [x])
    parts = partition(trace(gm, [x], decompositions=DECOMPOSITIONS, random_operators=RANDOM_OPERATORS))
    found = lower(getattr(parts, half), "half", typical("cpu")).nodes
    assert all(isinstance(node, Nest) for node in found)
    return found


def test_circular_padding_reads_each_element_from_where_it_is() -> None:
    x = torch.randn(2, 3, 16, 16, requires_grad=True)
    made = nests(lambda x: F.pad(x, (3, 3, 3, 3), "circular"), x, "forward")
    assert len(made) == 3
    assert all(sum(node.op == "load" for node in postorder([nest.value])) == 3 for nest in made)


def test_gradients_of_written_slices_need_no_positions() -> None:
    """Autograd copies the gradient into what `new_empty_strided` makes, and writes to that."""

    def run(x: Tensor) -> Tensor:
        y = x * 2
        y[:, 1:3] = y[:, 3:5].clone()
        return y

    for made in (torch.randn(6, 8), torch.randn(8, 6).t()):
        for nest in nests(run, made.requires_grad_(), "backward"):
            assert nest.mode == "store"
