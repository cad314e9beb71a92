"""Products of operands that differ in dtype and have no elements: eager looks at the dtypes of some of them."""

from __future__ import annotations

import pytest
import torch

import stator
from stator.base.errors import CaptureError
from tests.differential.__main__ import BACKENDS

F32, F64, I64, BF16 = torch.float32, torch.float64, torch.int64, torch.bfloat16

PRODUCTS: dict[str, tuple[tuple[int, ...], ...]] = {
    "mv": ((3, 0), (0,)), "addmv": ((3,), (3, 0), (0,)), "mm": ((2, 0), (0, 3)), "addmm": ((2, 3), (2, 0), (0, 3)),
    "bmm": ((2, 2, 0), (2, 0, 2)), "baddbmm": ((2, 2, 3), (2, 2, 0), (2, 0, 3)),
    "addbmm": ((2, 3), (2, 2, 0), (2, 0, 3)), "dot": ((0,), (0,)), "addr": ((0, 2), (0,), (2,)), "outer": ((0,), (2,)),
}  # fmt: skip


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtypes", [(F64, F32), (F32, I64), (I64, F32), (BF16, F32)], ids=str)
@pytest.mark.parametrize("name", PRODUCTS)
def test_mixed_dtypes(name: str, dtypes: tuple[torch.dtype, torch.dtype], backend: str) -> None:
    function = getattr(torch, name)
    *first, last = (torch.randn(size) for size in PRODUCTS[name])
    operands = [*[x.to(dtypes[0]) for x in first], last.to(dtypes[1])]
    compiled = stator.compile(lambda *xs: function(*xs), backend=backend, fullgraph=True, options={"strict": True})
    try:
        want = function(*operands)
    except RuntimeError as error:
        with pytest.raises(type(error)):
            compiled(*operands)
        return
    try:
        got = compiled(*operands)
    except CaptureError:  # a refusal: our shape functions look at more dtypes than kernels
        return
    torch.testing.assert_close(got, want, rtol=0, atol=0)


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", [F32, BF16, I64])
@pytest.mark.parametrize("beta", [0, 1, 2])
@pytest.mark.parametrize("bias", [(), (1,)])
@pytest.mark.parametrize("matrix", [(0, 0), (0, 3), (3, 0), (1, 0)])
def test_a_bias_of_an_empty_matrix(
    matrix: tuple[int, int], bias: tuple[int, ...], beta: int, dtype: torch.dtype, backend: str
) -> None:
    """Eager gives the bias as it is, which is of fewer rows than the matrix or of more."""
    operands = torch.full(bias, 5).to(dtype), torch.ones(matrix).to(dtype), torch.ones(matrix[1:]).to(dtype)
    compiled = stator.compile(
        lambda *xs: torch.addmv(*xs, beta=beta), backend=backend, fullgraph=True, options={"strict": True}
    )
    torch.testing.assert_close(compiled(*operands), torch.addmv(*operands, beta=beta), rtol=0, atol=0)
