"""What `special_values.py` generates, against eager; every decided difference is one."""

from __future__ import annotations

import pytest
import torch

from tests.differential.special_values import BINARY, DECIDED, DTYPES, UNARY, differing


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("functions", "count"), [(UNARY, 1), (BINARY, 2)], ids=["of one", "of two"])
def test_special_values(functions: dict[str, object], count: int, dtype: torch.dtype) -> None:
    found = list(differing(dtype, functions, count))  # type: ignore[arg-type]
    assert [line for line in found if line.split("(")[0] not in DECIDED] == []
    if dtype is torch.float32:
        assert {name for name in DECIDED if name in functions} <= {line.split("(")[0] for line in found} | {
            "fmax",
            "fmin",
        }
