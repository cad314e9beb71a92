"""Random programs that ask what tensors are: a few of fixed seeds, and that answers differ where they should."""

from __future__ import annotations

import random
import warnings

import pytest
import torch

import stator
from stator.base.errors import StatorWarning
from tests.aot import metadata


@pytest.mark.parametrize(("backend", "seeds"), [("aot_eager", 120), ("inductor", 8)])
@pytest.mark.filterwarnings("ignore")  # eager's own, about what random programs do
def test_random_programs(backend: str, seeds: int) -> None:
    for seed in range(9000, 9000 + seeds):
        program = metadata.write(random.Random(seed))
        assert not metadata.wrong(program, backend), f"seed {seed}\n{program}"


def test_differences_are_seen() -> None:
    given = (metadata.Given("plain", torch.float32),)
    plain = metadata.Program(given, ("v0 = x0.t()",), ("v0",))
    want = metadata.seen(plain, plain.function())
    for line in ("v0 = x0.t().clone()", "v0 = x0.mT.contiguous().mT", "v0 = x0.t(); x0.add_(0)", "v0 = x0"):
        other = metadata.Program(given, (line,), ("v0",))
        assert [*metadata.differing(metadata.seen(other, other.function()), want)], line
    assert not [*metadata.differing(want, want)]


def test_a_view_from_outside_cannot_be_detached_in_place() -> None:
    """And what is none, can be, by the same compiled function."""

    def program(x: torch.Tensor) -> torch.Tensor:
        x.detach_()
        return x * 2

    compiled = stator.compile(program)
    for _ in range(2):
        torch.testing.assert_close(compiled(torch.ones(3)), torch.full((3,), 2.0))
        with pytest.raises(RuntimeError, match="Can't detach views in-place"), warnings.catch_warnings():
            warnings.simplefilter("ignore", StatorWarning)
            compiled(torch.ones(3, 4)[:, 1])
