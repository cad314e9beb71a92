"""Kernels of small known sizes that read rows backwards and across: no compiler may leave one out.

g++ 12 made two addresses of one, as 8p - 7p, took that for an access through a null pointer, and left the kernel out:
the result was memory as it was found (`FLAGS` in `codegen/cpp/emit.py`). Of 180 such programs 28 were wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest
import torch
from torch import Tensor

import stator

TURNS: dict[str, Callable[[Tensor], Tensor]] = {
    "along rows": lambda x: x.flip(-1), "along columns": lambda x: x.flip(0), "transposed": lambda x: x.mT,
    "turned left": torch.rot90, "turned right": lambda x: torch.rot90(x, 3), "as it is": lambda x: x,
    "turned twice": lambda x: torch.rot90(x, 2),
}  # fmt: skip
FORWARD = {"transposed", "as it is"}
PAIRS = [pair for pair in product(TURNS, TURNS) if not FORWARD.issuperset(pair)]


@pytest.mark.parametrize("pair", PAIRS, ids=" and ".join)
def test_no_kernel_is_left_out(pair: tuple[str, str]) -> None:
    first, second = [TURNS[name] for name in pair]

    def function(x: Tensor) -> Tensor:
        return torch.add(first(x * 1.7), second(x), alpha=2)

    x = torch.randint(-9, 9, (8, 8), generator=torch.Generator().manual_seed(1))
    compiled = stator.compile(function, fullgraph=True, dynamic=False, options={"cache": False, "strict": True})
    torch.testing.assert_close(compiled(x), function(x))
