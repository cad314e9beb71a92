"""Norms of a row that a GPU computes in each program of the kernel that reads them, against eager and float64."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import stator

pytestmark = pytest.mark.gpu

WIDTH = 48
ROWS: dict[str, Callable[[Tensor], Tensor]] = {
    "layer norm": lambda x: F.layer_norm(x, x.shape[-1:]),
    "rms norm": lambda x: F.rms_norm(x, x.shape[-1:]),
    "softmax": lambda x: x.softmax(-1) * WIDTH,
    "length 1": lambda x: F.normalize(x, dim=-1),
    "largest": lambda x: x / x.abs().amax(-1, keepdim=True),
}


class Block(nn.Module):
    """A residual block; the first product reads a row that is made of all of x."""

    def __init__(self, row: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.row, self.up, self.down = row, nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        inner: Tensor = self.down(F.gelu(self.up(self.row(x))))
        return x + inner


@pytest.mark.parametrize("numerics", ["eager", "fast"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ROWS)
def test_blocks_of_one_row(name: str, dtype: torch.dtype, numerics: str) -> None:
    torch.manual_seed(7)
    model = nn.Sequential(*[Block(ROWS[name]) for _ in range(3)]).cuda()
    x = torch.randn(1, WIDTH, device="cuda")
    exact = copy.deepcopy(model).double()(x.double())
    model.to(dtype)
    with torch.no_grad():
        want = model(x.to(dtype))
        got = stator.compile(model, options={"numerics": numerics, "strict": True})(x.to(dtype))
    error, least = ((out.double() - exact).square().mean().sqrt() for out in (got, want))
    assert error <= 1.5 * least + torch.finfo(dtype).eps * exact.abs().max()
