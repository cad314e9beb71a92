"""Fakes lie as eager's results for any order of dims, many of them with one element, whose strides may be any."""

from __future__ import annotations

import itertools
import random
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from stator.base.errors import StatorError
from stator.fake import FakeMode
from stator.graphs import composite

#: Operators, and of how many dims.
OPERATORS: dict[str, tuple[Callable[[Any], Any], tuple[int, ...]]] = {
    "max_pool3d": (lambda x: F.max_pool3d(x, 1), (4, 5)),
    "positions of max_pool3d": (lambda x: F.max_pool3d(x, 1, return_indices=True)[1], (4,)),
    "nearest": (lambda x: F.interpolate(x, scale_factor=2), (3, 4, 5)),
    "bilinear": (lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), (4,)),
    "bicubic": (lambda x: F.interpolate(x, scale_factor=2, mode="bicubic"), (4,)),
    "trilinear": (lambda x: F.interpolate(x, scale_factor=2, mode="trilinear"), (5,)),
    "channel_shuffle": (lambda x: F.channel_shuffle(x, 2) if x.shape[1] == 2 else x, (3, 4)),
    "group_norm": (lambda x: F.group_norm(x, 1), (2, 3, 4, 5)),
    "unfold": (lambda x: F.unfold(x, 1), (3, 4)),
    "pad": (lambda x: F.pad(x, (1, 0)), (3, 4, 5)),
    "glu": (lambda x: F.glu(x, 1) if x.shape[1] == 2 else x, (3, 4)),
    "prelu": (lambda x: F.prelu(x, torch.ones(1)), (3, 4)),
    "hardtanh": (F.hardtanh, (3, 4)),
    "nan_to_num": (torch.nan_to_num, (3, 4)),
    "rot90": (torch.rot90, (3, 4)),
    "roll": (lambda x: x.roll((1, 2), (1, 0)), (3, 4, 5)),
    "cat": (lambda x: torch.cat([x, x], 1), (3, 4)),
    "stack at the end": (lambda x: torch.stack([x, x], -1), (3, 4)),
    "conv1d": (lambda x: F.conv1d(x, torch.ones(2, x.shape[1], 1)), (3,)),
    "frexp": (lambda x: torch.frexp(x)[0], (3, 4)),
    "addr": (lambda x: torch.addr(x, torch.ones(x.shape[0]), torch.ones(x.shape[1])), (2,)),
    "a loss": (lambda x: F.binary_cross_entropy_with_logits(x, x * 1, reduction="none"), (3, 4)),
    "a robust loss": (lambda x: F.huber_loss(x, x + 1, reduction="none"), (3, 4)),
    "slice_scatter": (lambda x: torch.slice_scatter(x, x[:1], 0, 0, 1), (3, 4)),
    "select_scatter": (lambda x: torch.select_scatter(x, x[0], 0, 0), (3, 4)),
    "diagonal_scatter": (lambda x: torch.diagonal_scatter(x, x.diagonal()), (3, 4)),
    "index_add": (lambda x: x.index_add(0, torch.tensor([0]), x[:1]), (3, 4)),
    "index_copy": (lambda x: x.index_copy(0, torch.tensor([0]), x[:1]), (3, 4)),
    "index_fill": (lambda x: x.index_fill(0, torch.tensor([0]), 1.0), (3, 4)),
    "index_put": (lambda x: x.index_put((torch.tensor([0]),), x[0]), (3, 4)),
    "scatter_add": (lambda x: x.scatter_add(0, torch.zeros((1,) * x.dim(), dtype=torch.long), x), (3, 4)),
    "of no elements": (lambda x: x[:0] * 2, (2, 3, 4)),
}


def laid_out(size: Sequence[int], rng: random.Random, dtype: torch.dtype = torch.float32) -> Tensor:
    """A tensor whose dims lie in any order, at times with gaps, or with a dim that repeats."""
    order = rng.sample(range(len(size)), len(size))
    gaps = [n + int(rng.random() < 0.15) for n in size]
    made = torch.zeros([gaps[d] for d in order], dtype=dtype).permute([order.index(d) for d in range(len(size))])
    made = made[tuple(slice(0, n) for n in size)]
    if size and rng.random() < 0.15:
        made = made.narrow(rng.randrange(len(size)), 0, 1).expand(size)
    return made


def _inputs(ranks: Sequence[int], rng: random.Random, extents: Sequence[int]) -> Iterator[Tensor]:
    for rank in ranks:
        for size in itertools.product(extents, repeat=rank):
            for _ in range(4):
                yield laid_out(size, rng)


@pytest.mark.parametrize("name", OPERATORS)
def test_results_lie_as_in_eager(name: str) -> None:
    function, ranks = OPERATORS[name]
    rng = random.Random(name)
    for x in _inputs(ranks, rng, (1, 2, 4) if max(ranks) < 5 else (1, 2)):
        for grad in (False, True):
            x = x.detach().requires_grad_(grad)
            mode = FakeMode()
            found: Any = None
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    want: Any = composite.call(function, (x,), {})
                except (RuntimeError, ValueError, IndexError) as error:
                    want = error
                try:
                    with mode:
                        found = composite.call(function, (mode.from_real(x),), {})
                except (RuntimeError, ValueError, IndexError) as error:
                    assert not isinstance(error, StatorError)
                    found = error
            assert isinstance(found, Exception) == isinstance(want, Exception), (x.shape, x.stride(), want, found)
            if isinstance(want, Tensor):
                assert (found.shape, found.stride()) == (want.shape, want.stride()), (x.shape, x.stride())


def test_what_lies_at_positions_does() -> None:
    rng = random.Random(3)
    for _ in range(1500):
        x = laid_out([rng.choice((1, 2, 3)) for _ in range(rng.randint(1, 4))], rng)
        size = [rng.choice((1, 2, 3)) for _ in range(rng.randint(0, 3))]
        indices = []
        for _ in range(x.dim()):
            own = [1 if rng.random() < 0.3 else n for n in size][
                rng.randint(0, len(size)) if rng.random() < 0.3 else 0 :
            ]
            indices.append(None if rng.random() < 0.5 else laid_out(own, rng, torch.int64))
        if not any(index is not None for index in indices):
            continue
        want = torch.ops.aten.index.Tensor(x, indices)
        mode = FakeMode()
        with mode:
            fakes = [None if index is None else mode.from_real(index) for index in indices]
            found = torch.ops.aten.index.Tensor(mode.from_real(x), fakes)
        places = [(tuple(index.shape), index.stride()) if index is not None else None for index in indices]
        assert (found.shape, found.stride()) == (want.shape, want.stride()), (x.shape, x.stride(), places)
