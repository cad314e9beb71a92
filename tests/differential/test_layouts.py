"""How results of templates lie in memory: what was once wrong, and a part of `python -m tests.differential.layouts`."""

from __future__ import annotations

import pytest
import torch

from tests.differential.inputs import LAYOUTS, Input
from tests.differential.layouts import found, programs
from tests.differential.programs import Program

PARTS = 24
IMAGES, LEAF, BATCH = (2, 3, 4, 4), {"grad": "leaf"}, (2, 3, 4, 4, 4)
#: Statements on x0 (float), x1 (int64) and x2 (complex) of a size.
FOUND = {
    "positions of candidates": ((3, 4, 6), "torch.isin(x1, torch.tensor([1, 2]))"),
    "positions of a number": ((3, 4, 6), "torch.isin(x1, 2)"),
    "pooled rows": ((3, 4, 6), "F.max_pool1d(x0.detach(), 2)"),
    "pooled rows with gradients": ((3, 4, 6), "F.max_pool1d(x0, 2)"),
    "drawn around means": ((3, 4, 6), "torch.normal(x0.detach(), 0.0)"),
    "drawn around means by deviations": ((3, 4, 6), "torch.normal(x0.detach(), x0.detach() * 0)"),
    "drawn by deviations": ((3, 4, 6), "torch.normal(1.0, x0.detach() * 0)"),
    "losses of pixels": (IMAGES, "F.nll_loss(x0, x1[:, 0] % 3, reduction='none')"),
    "copies of views": ((4, 6), "torch.view_copy(x0, (3, 8))"),
    "a Kronecker product": ((3, 1), "torch.kron(x0, x0[None].transpose(0, 1))"),
    "angles": (IMAGES, "torch.angle(x2)"),
    "mirrored volumes": (BATCH, "F.pad(x0, (1,) * 6, mode='reflect')"),
    "a mirrored volume": (IMAGES, "F.pad(x0, (1,) * 6, mode='reflect')"),
    "a volume with repeated borders": (IMAGES, "F.pad(x0, (1,) * 6, mode='replicate')"),
    "no images, rolled": ((2, 0, 3, 4), "torch.roll(x0, 1)"),
    "slopes of squares": ((3, 4, 6), "torch.autograd.grad(F.mse_loss(x0, x0.detach() + 1), x0)[0]"),
    "slopes of distances": ((3, 4, 6), "torch.autograd.grad(F.smooth_l1_loss(x0, x0.detach() + 1), x0)[0]"),
    "slopes of robust distances": ((3, 4, 6), "torch.autograd.grad(F.huber_loss(x0, x0.detach() + 1), x0)[0]"),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", FOUND)
def test_once_wrong(name: str, layout: str) -> None:
    size, text = FOUND[name]
    kinds = ((torch.float32, LEAF), (torch.int64, {}), (torch.complex64, {}))
    recipes = [Input(size, dtype, layout, "positive", **how) for dtype, how in kinds]
    assert found(Program(tuple(recipes), (f"v0 = {text}",), ("v0",))) == ""


def test_a_part_of_all_templates() -> None:
    made = list(programs(rounds=1, seed=1, parts=PARTS))
    assert len(made) > 100
    assert [f"{why}\n{program}" for program in made if (why := found(program))] == []
