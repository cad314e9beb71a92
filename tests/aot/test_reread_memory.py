"""Memory that `as_strided` reads another way, of tensors that are written to and do not lie without gaps."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import stator
from stator.base.errors import CaptureError

#: Tensors over 64 numbers.
LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "stepped": lambda memory: memory.as_strided((16, 1), (2, 1)),
    "columns": lambda memory: memory.view(8, 8)[:, 1:5],
    "turned": lambda memory: memory.view(8, 8).t(),
    "turned columns": lambda memory: memory.view(8, 8)[1:, ::2].t(),
    "dense": lambda memory: memory.view(8, 8),
    "dense inside": lambda memory: memory[5:41].view(6, 6),
}
WRITES: dict[str, Callable[[Tensor], object]] = {
    "all": lambda x: x.mul_(2),
    "a part": lambda x: x[1:3].fill_(7),
    "through a view": lambda x: x.unsqueeze(0).transpose(0, -1)[:1].add_(1),
}


def program(rng: random.Random, x: Tensor, write: Callable[[Tensor], object]) -> Callable[[Tensor], Tensor]:
    """A function that writes to a tensor laid out as `x`, and then reads some of its memory."""
    reach = sum((n - 1) * s for n, s in zip(x.shape, x.stride(), strict=True))
    size = [rng.randint(1, 4), rng.randint(1, 3)]
    stride = [rng.choice(x.stride()) * rng.randint(0, 2), rng.choice([*x.stride(), 1])]
    least = sum((n - 1) * s for n, s in zip(size, stride, strict=True))
    offset = x.storage_offset() + rng.randint(0, max(reach - least, 0))

    def function(x: Tensor) -> Tensor:
        write(x)
        return x.as_strided(size, stride, offset) * 3

    return function


@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_is_read_is_right_or_refused(layout: str) -> None:
    rng, found = random.Random(layout), 0
    for write in WRITES.values():
        for number in range(24):
            memory = torch.arange(64.0)
            x, y = LAYOUTS[layout](memory.clone()), LAYOUTS[layout](memory)
            function = program(rng, x, write)
            backend = "inductor" if number % 6 == 0 else "aot_eager"
            try:
                got = stator.compile(function, backend=backend, fullgraph=True, options={"strict": True})(x)
            except CaptureError:
                continue
            assert torch.equal(got, function(y)) and torch.equal(x, y), (layout, number, backend)
            found += 1
    assert found > 10
