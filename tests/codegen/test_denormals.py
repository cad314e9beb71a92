"""Numbers below the normal ones, and past the inverses of them: a GPU's kernels take and give them as eager's do."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import stator
from tests.codegen import hopper, tiled

#: To what is normal, what is below it, and back; and what divides by what has no normal inverse.
FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    **{
        name: getattr(torch, name)
        for name in (
            "ceil", "floor", "trunc", "round", "frac", "sign", "rsqrt", "sqrt", "reciprocal", "exp", "exp2", "expm1",
            "log", "log2", "log10", "log1p", "sin", "tan", "tanh", "asin", "atan", "sinh", "cosh", "asinh", "atanh",
            "erf", "erfc", "lgamma", "sigmoid", "square", "logit",
        )
    },
    "remainder of the next whole": lambda x: torch.remainder(x.ceil(), x.ceil()),
    "remainder": lambda x: torch.remainder(1.5, x),
    "fmod": lambda x: torch.fmod(x, x.flip(0)),
    "quotient": lambda x: x / x.flip(0),
    "power": lambda x: x.abs() ** 0.3,
    "angle": lambda x: torch.atan2(x, x.flip(0)),
    "softplus": torch.nn.functional.softplus,
    "silu": torch.nn.functional.silu,
}  # fmt: skip


def numbers() -> Tensor:
    """Of all magnitudes and both signs; every tenth one is below the normal ones, or has no normal inverse."""
    tiny = torch.finfo(torch.float32).tiny
    spread = torch.logspace(-44, 38, 400, dtype=torch.float64).float()
    edges = torch.tensor([0.0, tiny, tiny / 8, 1e-45, 3e38, 1.2e38, 5e37, 1.0, 88.5, 103.0, 0.5])
    found = torch.cat([spread, edges])
    return torch.cat([found, -found])


@pytest.mark.parametrize("name", FUNCTIONS)
def test_no_function_takes_them_for_nothing(name: str) -> None:
    """Instructions that flush are those of approximations, behind which what they are given is scaled."""
    pytest.importorskip("triton", reason="Triton comes with torch for CUDA only")
    made, _ = tiled.scheduled(FUNCTIONS[name], numbers())
    (text,) = [asm["ptx"] for asm in hopper.built(made.kernels)]
    flushing = set(re.findall(r"[\w.]+\.ftz\.\w+", text))
    assert not [each for each in flushing if ".approx." not in each]


@pytest.mark.gpu
@pytest.mark.parametrize("name", FUNCTIONS)
def test_on_a_gpu(name: str) -> None:
    function, x = FUNCTIONS[name], numbers().cuda()
    wanted = function(x)
    got = stator.compile(function, options={"cache": False, "strict": True})(x)
    assert got.isnan().equal(wanted.isnan())
    least = torch.finfo(torch.float32).smallest_normal * 2**-20
    torch.testing.assert_close(got, wanted, rtol=1e-5, atol=least, equal_nan=True)
