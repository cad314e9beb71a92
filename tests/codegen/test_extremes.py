"""An extreme and its position are found together: the first NaN, or the first of equal ones, whatever the lanes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import stator
from stator.kernel.decisions import decide
from stator.kernel.ir import Assign, Best, walk
from stator.kernel.strategies import serial, vectors
from stator.targets import typical
from tests.codegen.harness import at, axes_of, e, kernel, load, params, store

FUNCTIONS: dict[str, Callable[[torch.Tensor], tuple[torch.Tensor, ...]]] = {
    "max of rows": lambda x: tuple(x.max(-1)),
    "min of rows": lambda x: tuple(x.min(-1)),
    "max of columns": lambda x: tuple(x.max(0)),
    "both": lambda x: (x.amax(-1), x.argmax(-1), x.amin(-1), x.argmin(-1)),
    "of all": lambda x: (x.max(), x.argmax(), x.flatten().argmin()),
    "of a sum": lambda x: tuple((x + x).max(1)) + tuple((x + x).min(1)),
}


def numbers(dtype: torch.dtype, rows: int, columns: int) -> torch.Tensor:
    """Many equal ones; among floats zeros of both signs, infinities, and NaN in some rows."""
    torch.manual_seed(rows * columns)
    x = torch.randint(-3, 4, (rows, columns)).clamp(min=0 if dtype == torch.uint8 else -3)
    if not dtype.is_floating_point:
        return x.to(dtype)
    x = torch.where(torch.rand(rows, columns) < 0.3, -x.to(dtype) * 0, x.to(dtype))
    x[0] = -torch.inf
    x[-1, columns // 2 :: 3] = torch.nan
    return x


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.int64, torch.uint8, torch.bool])
@pytest.mark.parametrize("dynamic", [False, True])
def test_as_eager(dtype: torch.dtype, dynamic: bool) -> None:
    for name, function in FUNCTIONS.items():
        if dtype == torch.bool and name in ("both", "of all", "of a sum"):
            continue  # eager refuses truth values
        compiled = stator.compile(function, dynamic=dynamic, options={"check_speed": "off"})
        for shape in ((5, 64), (3, 37), (40, 130), (2, 1000)):
            x = numbers(dtype, *shape)
            for got, want in zip(compiled(x), function(x), strict=True):
                torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True, msg=f"{name} {shape}")


@pytest.mark.parametrize("strategy", ["serial", "vectors"])
def test_one_accumulator_has_both(strategy: str) -> None:
    x, (r,) = axes_of([8]), axes_of([256], "r")
    a, values, positions = torch.randn(8, 256), torch.empty(8), torch.empty(8, dtype=torch.int64)
    body = load(0, a, (*x, r))
    stores = (store(1, at(values, x), e.reduce("max", body)), store(2, at(positions, x), e.reduce("argmax", body)))
    made = kernel(x, (r,), stores, params(a, values, positions, out=[1, 2]))
    function = serial(made, "k") if strategy == "serial" else vectors(decide(made, typical("cpu")), "k")
    found = walk(function.body)
    assert sum(isinstance(s, Best) for s in found) == 1 and not any(isinstance(s, Assign) for s in found)
