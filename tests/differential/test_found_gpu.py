"""Programs that once gave a wrong result on a GPU, shortened."""

from __future__ import annotations

import pytest

from tests.differential.__main__ import judge
from tests.differential.inputs import Input
from tests.differential.programs import Program

pytestmark = pytest.mark.gpu

RIGHT = {
    "a range whose end is on the GPU is on the host": Program(
        (Input((), seed=33, device="cuda"),), ("v0 = torch.linspace(x0, 3, 5)",), ("v0",)
    ),
}


@pytest.mark.parametrize("name", RIGHT)
def test_programs_that_were_wrong(name: str) -> None:
    assert judge(RIGHT[name]) == ("right", "")
