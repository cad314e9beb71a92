"""Results of scatters begin in memory where their operand does, in eager: what counts from there is refused."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import stator
from stator.base.errors import CaptureError

STRICT = {"cache": False, "strict": True}
MEMORY = torch.arange(12.0)
SCATTERS = {
    "slice_scatter": lambda x: torch.slice_scatter(x, torch.full((1, 3), -1.0), 0, 0, 1),
    "select_scatter": lambda x: torch.select_scatter(x, torch.full((3,), -1.0), 0, 0),
    "diagonal_scatter": lambda x: torch.diagonal_scatter(x, torch.full((3,), -1.0)),
    "twice": lambda x: torch.select_scatter(torch.diagonal_scatter(x, x[0]), x[1], 0, 2),
}


def _at(offset: int) -> Tensor:
    return MEMORY[offset : offset + 9].view(3, 3)


@pytest.mark.parametrize("name", SCATTERS)
def test_what_counts_from_the_start_of_memory(name: str) -> None:
    def program(x: Tensor) -> Tensor:
        return SCATTERS[name](x).as_strided((2,), (1,), 2)

    compiled = stator.compile(program, fullgraph=True, options=STRICT)
    torch.testing.assert_close(compiled(_at(0)), program(_at(0)))
    for offset in (1, 2):
        with pytest.raises(CaptureError, match="start of memory"):
            compiled(_at(offset))


@pytest.mark.parametrize("name", SCATTERS)
def test_what_counts_from_where_it_begins(name: str) -> None:
    def program(x: Tensor) -> Tensor:
        return SCATTERS[name](x).as_strided((2,), (1,))

    compiled = stator.compile(program, fullgraph=True, options=STRICT)
    for offset in (0, 1, 2):
        torch.testing.assert_close(compiled(_at(offset)), program(_at(offset)))


@pytest.mark.parametrize("backend", ["inductor", "aot_eager"])
def test_strides_of_repeated_operands(backend: str) -> None:
    x = torch.arange(7 * 7 * 17).view(1, 7, 7, 17).expand(2, 7, 7, 17).permute(2, 0, 3, 1)

    def program(x: Tensor) -> Tensor:
        return torch.slice_scatter(x, x[1:2] + 1, 0, 1, 2)

    got, want = stator.compile(program, backend=backend, fullgraph=True, options={"strict": True})(x), program(x)
    assert torch.equal(got, want) and got.stride() == want.stride()
