"""Numbers at and past the ends of 32 bits, and past those of a dtype, in kernels for a GPU.

Triton refuses a number that the tensor beside it does not hold; where positions grow past 32 bits they are of 64, also
along an axis that one block covers.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor

import stator
from stator.loop.kernel import Launch
from stator.targets.cuda.platform import AMD
from stator.targets.cuda.record import typical
from tests.codegen import hopper, tiled

NUMBERS = (2**31 - 1, 2**31, -(2**31), -(2**31) - 1, 2**40, 2**61, 2**63 - 1, -(2**63), 256, -129, 1e300, -1e39)
FUNCTIONS: dict[str, Callable[[Tensor, float], Tensor]] = {
    "add": lambda x, c: x + c,
    "mul": lambda x, c: x * c,
    "rsub": lambda x, c: c - x,
    "floordiv": lambda x, c: x // c,
    "divided": lambda x, c: c // (x.abs() + 1),
    "mod": lambda x, c: x % c,
    "rest": lambda x, c: torch.remainder(c, x.abs() + 1),
    "lt": lambda x, c: x < c,
    "clamp": lambda x, c: torch.clamp(x, -3, c),
    "where": lambda x, c: torch.where(x > 0, c, 7),
    "fill": lambda x, c: x.masked_fill(x > 0, c),
    "and": lambda x, c: x & c,  # type: ignore[operator]
    "base": lambda x, c: c**x,
    "pad": lambda x, c: torch.nn.functional.pad(x, (1, 1), value=c),
    "amax": lambda x, c: (x + c).amax(1),
    "range": lambda x, c: torch.arange(5, device=x.device) * int(c) + x[:, 0].long(),
    "two ranges": lambda x, c: torch.arange(5, device=x.device)[:, None] * int(c) + torch.arange(3, device=x.device),
    "steps": lambda x, c: torch.arange(int(c) // 2**20 * 3, int(c) // 2**20 * 3 + 15, device=x.device).view(5, 3) + x,
    "xlogy": lambda x, c: torch.special.xlogy(c, x.abs() + 1),
}
DTYPES = (torch.float32, torch.int64, torch.int32, torch.uint8)


def programs(
    name: str, dtypes: Sequence[torch.dtype] = DTYPES
) -> list[tuple[Callable[[Tensor], Tensor], Tensor, Tensor]]:
    """Functions, their input and what eager gives, of all numbers that eager takes."""
    found = []
    for dtype in dtypes:
        x = torch.arange(-7, 8).view(5, 3).to(dtype)
        for number in NUMBERS:

            def function(x: Tensor, number: float = number) -> Tensor:
                return FUNCTIONS[name](x, number)

            try:
                found.append((function, x, function(x)))
            except (RuntimeError, OverflowError):
                continue
    return found


@pytest.mark.parametrize("name", FUNCTIONS)
def test_triton_takes_them(name: str) -> None:
    pytest.importorskip("triton", reason="Triton comes with torch for CUDA only")
    for function, x, _ in programs(name):
        hopper.parsed(tiled.scheduled(function, x)[0].kernels)


@pytest.mark.parametrize("name", ["range", "two ranges", "steps", "rest", "divided", "mod"])
@pytest.mark.filterwarnings("ignore:.*is interpreted, slowly:stator.tile.errors.CodeWarning")
def test_on_the_cpu(name: str, tmp_path: Path) -> None:
    device = typical(platform=AMD)  # its text has no instructions of one maker's
    for function, x, wanted in programs(name, (torch.int64, torch.int32)):
        made, given = tiled.scheduled(function, x, device=device)
        assert all(isinstance(step, Launch) for step in made.steps)
        (found,) = tiled.run(made, given, tmp_path, record=device)
        torch.testing.assert_close(found, wanted, equal_nan=True)


@pytest.mark.gpu
@pytest.mark.parametrize("name", FUNCTIONS)
def test_on_a_gpu(name: str) -> None:
    for function, x, _ in programs(name):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found = stator.compile(function, options={"cache": False, "strict": True})(x.cuda())
        torch.testing.assert_close(found, function(x.cuda()), equal_nan=True)
        stator.reset()
