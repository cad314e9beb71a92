"""Short programs of exact operators at special values, bit for bit: a few of fixed seeds, and the comparison itself."""

from __future__ import annotations

import random

import pytest
import torch

from tests.differential.exact import bits_differ, write, wrong


@pytest.mark.parametrize("seed", range(31_000, 31_024))
@pytest.mark.filterwarnings("ignore")  # eager's own, about what random programs do
def test_random_program(seed: int) -> None:
    program = write(random.Random(seed))
    assert not wrong(program), program


def test_bits_are_compared() -> None:
    zeros = torch.tensor([0.0, -0.0])
    assert bits_differ(zeros, -zeros) and not bits_differ(zeros, -zeros, zeros=False)
    assert bits_differ(zeros, zeros + 1e-45, zeros=False) and bits_differ(zeros, zeros.double())
    nan = torch.tensor([torch.nan, 1.0], dtype=torch.bfloat16)
    assert not bits_differ(nan, nan * torch.tensor([-1.0, 1.0], dtype=torch.bfloat16)) and not bits_differ(
        nan[0], -nan[0]
    )
    assert bits_differ(torch.tensor(1), torch.tensor(2)) and bits_differ(nan, nan.flip(0))
