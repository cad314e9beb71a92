"""What is padded lies as eager has it: packed, or cloned as it lay where nothing is added."""

from __future__ import annotations

import random

import pytest
import torch

from stator.fake.mode import FakeMode


def drawn(draw: random.Random) -> torch.Tensor:
    """A tensor whose dims are permuted, cut or expanded."""
    x = torch.randn([draw.choice((1, 2, 3, 5)) for _ in range(draw.randint(1, 5))])
    for _ in range(draw.randint(0, 2)):
        match draw.randrange(3):
            case 0:
                x = x.permute(draw.sample(range(x.dim()), x.dim()))
            case 1:
                x = x[tuple(slice(draw.randrange(min(n, 2)), None, draw.randint(1, 2)) for n in x.shape)]
            case _:
                x = x.expand([draw.choice((1, 2, 3)) if n == 1 else n for n in x.shape])
    return x


@pytest.mark.parametrize("seed", range(8))
def test_as_eager(seed: int) -> None:
    draw = random.Random(seed)
    for _ in range(100):
        x = drawn(draw)
        most = draw.randint(0, 2)
        padding = [draw.randint(-1, most) for _ in range(2 * draw.randint(1, x.dim()))]
        try:
            expected = torch.constant_pad_nd(x, padding, 0.5)
        except RuntimeError:
            expected = None
        mode = FakeMode()
        fake = mode.from_real(x)
        with mode:
            if expected is None:
                with pytest.raises(RuntimeError):
                    torch.constant_pad_nd(fake, padding, 0.5)
                continue
            found = torch.constant_pad_nd(fake, padding, 0.5)
        assert (found.shape, found.stride()) == (expected.shape, expected.stride()), (x.shape, x.stride(), padding)
