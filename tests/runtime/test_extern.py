"""Operators bound by name give their results in the layout that was promised, or fail loudly."""

import pytest
import torch

from stator.base.errors import InternalError
from stator.base.workspaces import WORKSPACES
from stator.runtime.extern import into, returning, returning_sized


def test_into_writes_and_returning_makes():
    a, b, out = torch.randn(3, 4), torch.randn(4, 5), torch.empty(3, 5)
    into("aten.mm.out")(a, b, out=out)
    torch.testing.assert_close(out, a @ b)
    (made,) = returning("aten.mm.default", ((3, 5), (5, 1)))(a, b)
    assert torch.equal(made, out)


@pytest.mark.skipif(not hasattr(torch.ops.mkl, "_mkl_linear"), reason="PyTorch's BLAS is not MKL")
def test_into_for_a_product_that_has_no_out_variant():
    x, weight, out = torch.randn(5, 4), torch.randn(3, 4), torch.full((5, 3), torch.nan)
    packed = torch.ops.mkl._mkl_reorder_linear_weight(weight, 5)
    into("mkl._mkl_linear.out")(x, packed, weight, None, 5, out=out)
    torch.testing.assert_close(out, x @ weight.t())


@pytest.mark.parametrize("n", [3, 7])
def test_geometry_as_an_argument(n):
    x = torch.randn(n, 6)
    top = returning_sized("aten.topk.default")
    values, positions = top((((n, 2), (2, 1)), ((n, 2), (1, n))), x, 2)
    assert torch.equal(values, x.topk(2).values) and torch.equal(positions, x.topk(2).indices)
    assert positions.stride() == (1, n)
    with pytest.raises(InternalError, match="its shape function said"):
        top((((n, 3), (3, 1)), ((n, 3), (3, 1))), x, 2)


def test_workspaces_are_results_of_operators() -> None:
    for target, place in WORKSPACES.items():
        namespace, name, overload = target.split(".")
        returns = getattr(getattr(getattr(torch.ops, namespace), name), overload)._schema.returns
        assert place == len(returns) - 1, "what is kept comes last"
