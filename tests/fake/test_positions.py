"""How what is read at positions lies in memory, where the tensor and the positions lie in many ways."""

from __future__ import annotations

import random

import torch
from torch import Tensor

from stator.fake import FakeMode

CASES = 1500
#: What the model of the iterator does not tell: overlapping dims of one element, about one case in a thousand.
LEFT = CASES // 300


def permuted(rng: random.Random, size: list[int], dtype: torch.dtype) -> Tensor:
    """A tensor of the size with its dims in some order, with steps or repeated."""
    order = rng.sample(range(len(size)), len(size))
    made = torch.zeros([size[dim] for dim in order], dtype=dtype).permute(
        [order.index(dim) for dim in range(len(size))]
    )
    match rng.random() if size else 1.0:
        case chance if chance < 0.2:
            return torch.zeros([*size[:-1], size[-1] * 2], dtype=dtype)[..., ::2]
        case chance if chance < 0.3:
            return torch.zeros([1, *size[1:]], dtype=dtype).expand(size)
    return made


def case(rng: random.Random) -> tuple[Tensor, list[Tensor | None]]:
    size = [rng.choice((1, 1, 2, 3)) for _ in range(rng.randint(1, 5))]
    x = permuted(rng, size, torch.float32)
    shape = [rng.choice((1, 2, 3)) for _ in range(rng.randint(0, 3))]
    indices: list[Tensor | None] = [None] * len(size)
    for dim in rng.sample(range(len(size)), rng.randint(1, min(3, len(size)))):
        own = [extent if rng.random() < 0.8 else 1 for extent in shape][rng.choice((0, 0, 0, len(shape) // 2)) :]
        indices[dim] = permuted(rng, own, torch.int64)
    while indices[-1] is None:
        indices.pop()
    return x, indices


def lies(tensor: Tensor) -> list[tuple[int, int]]:
    return [(extent, step) for extent, step in zip(tensor.shape, tensor.stride(), strict=True) if extent > 1]


def test_what_is_read_at_positions_lies_as_in_eager() -> None:
    rng = random.Random(5)
    other = []
    for _ in range(CASES):
        x, indices = case(rng)
        want = torch.ops.aten.index.Tensor(x, indices)
        mode = FakeMode()
        with mode:
            fakes = [None if index is None else mode.from_real(index) for index in indices]
            got = torch.ops.aten.index.Tensor(mode.from_real(x), fakes)
        assert got.shape == want.shape
        if lies(got) != lies(want):
            other.append((x.shape, x.stride(), [None if i is None else (i.shape, i.stride()) for i in indices]))
    assert len(other) <= LEFT, other[:5]
