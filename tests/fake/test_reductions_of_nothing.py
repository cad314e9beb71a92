"""Reductions of tensors without elements: size, strides and dtype as eager's kernels give, or an error if they do."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from stator.fake import FakeMode

aten = torch.ops.aten
DIMS: list[Any] = [[0], [-3], [1], [-4], [-2], [0, 2], [-1, -3], [-2, -4]]


def calls(dtype: torch.dtype) -> Iterator[tuple[Any, list[Any], dict[str, Any]]]:
    """(operator, what follows the tensor)."""
    real = torch.promote_types(dtype, torch.float64)
    for dims, keep in itertools.product(DIMS, (False, True)):
        for order in (2, 0, 0.5, float("inf"), -1):
            yield aten.linalg_vector_norm.default, [order, dims, keep], {}
            yield aten.linalg_vector_norm.default, [order, dims, keep], {"dtype": real}
            yield aten.norm.ScalarOpt_dim, [order, dims, keep], {}
        yield aten.sum.dim_IntList, [dims, keep], {}
        yield aten.mean.dim, [dims, keep], {}
        yield aten.var.correction, [dims], {"keepdim": keep}
        yield aten.var_mean.correction, [dims], {"keepdim": keep}
        if len(dims) == 1:
            yield aten.prod.dim_int, [dims[0], keep], {}


def geometry(function: Any, x: torch.Tensor, rest: list[Any], named: dict[str, Any]) -> list[Any] | None:
    try:
        found = function(x, *rest, **named)
    except (RuntimeError, IndexError):
        return None
    return [(one.shape, one.stride(), one.dtype) for one in (found if isinstance(found, tuple) else (found,))]


@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64])
@pytest.mark.parametrize("size", [(1, 3, 0, 3), (0, 2, 1, 1), (0, 0, 2, 1)])
def test_a_reduction_of_nothing_is_shaped_as_in_eager(size: tuple[int, ...], dtype: torch.dtype) -> None:
    x = torch.empty(size, dtype=dtype)
    for function, rest, named in calls(dtype):
        want = geometry(function, x, rest, named)
        mode = FakeMode()
        with mode:
            got = geometry(function, mode.from_real(x), rest, named)
        assert got == want, (function, rest, named)
