"""Programs that once gave a wrong result on a GPU, shortened."""

from __future__ import annotations

import pytest
import torch

from tests.differential.__main__ import judge
from tests.differential.inputs import Input
from tests.differential.programs import Program

pytestmark = pytest.mark.gpu

RIGHT = {
    "a range whose end is on the GPU is on the host": Program(
        (Input((), seed=33, device="cuda"),), ("v0 = torch.linspace(x0, 3, 5)",), ("v0",)
    ),
    "what is next above a number below the normal ones is 1": Program(
        (Input((7, 8), values="edges", seed=24, device="cuda"),),
        ("v0 = torch.ceil(x0)", "v1 = torch.remainder(v0, v0)"),
        ("v1",),
    ),
    "positions of 64 bits along an axis in one block": Program(
        (Input((2,), seed=1, device="cuda"),), ("v0 = torch.arange(2, device=x0.device) * 2**61",), ("v0",)
    ),
    "a number of the host is a result in many places": Program(
        (Input((17, 8), torch.uint8, "transposed", seed=99, device="cuda"), Input((4, 2), seed=78, device="cuda")),
        ("x0.clamp_(0,1)", "v0 = torch.tensor(1.7).expand_as(x1)"),
        ("x0", "v0"),
    ),
}


@pytest.mark.parametrize("name", RIGHT)
def test_programs_that_were_wrong(name: str) -> None:
    assert judge(RIGHT[name]) == ("right", "")
