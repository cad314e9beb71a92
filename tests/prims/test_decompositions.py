"""Every case, traced with the decompositions and run by eager kernels, against eager itself."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from stator.prims import DECOMPOSITIONS, PRIMITIVES
from stator.prims.decompositions import activation, normalization
from stator.prims.set import TABLE
from tests.cases import CASES, Case, assert_close
from tests.cases.graphs import trace
from tests.cases.model import flat


def decomposed(fn: Callable[..., Any], inputs: tuple[Any, ...]) -> tuple[Any, set[Any]]:
    """(what eager kernels give for the graph of the function, the operators in it)."""
    gm, given = trace(fn, inputs, DECOMPOSITIONS)
    left = {node.target for node in gm.graph.nodes if node.op == "call_function"} - {operator.getitem}
    return gm(*given), left


RUNS = [pytest.param(case, dtype, id=f"{case.name}-{str(dtype)[6:]}") for case in CASES for dtype in case.dtypes]


#: Operators of the cases that nothing reduces: PyTorch's kernels compute them.
KERNELS = {
    "aten._pdist_backward.default",
    "aten._pdist_forward.default",
    "aten.erfinv.default",
    "aten.max_pool3d_with_indices.default",
    "aten.max_pool3d_with_indices_backward.default",
    "aten.igamma.default",
    "aten.igammac.default",
    "aten.polygamma.default",
    "aten.sort.default",
    "aten.special_chebyshev_polynomial_t.default",
    "aten.special_chebyshev_polynomial_t.n_scalar",
    "aten.special_chebyshev_polynomial_t.x_scalar",
    "aten.special_legendre_polynomial_p.default",
    "aten.special_legendre_polynomial_p.n_scalar",
    "aten.special_legendre_polynomial_p.x_scalar",
    "aten.special_zeta.default",
    "aten.special_zeta.other_scalar",
    "aten.special_zeta.self_scalar",
    "aten.topk.default",
}


@pytest.mark.parametrize(("case", "dtype"), RUNS)
def test_agrees_with_eager(case: Case, dtype: torch.dtype) -> None:
    """In values, and what is left is of the set."""
    eager = case.fn(*case.make_inputs(dtype))
    ours, left = decomposed(case.fn, case.make_inputs(dtype))
    assert_close(ours, eager, case, dtype)
    assert {str(op) for op in left if op not in PRIMITIVES} <= KERNELS


def test_names_are_unique() -> None:
    names = [case.name for case in CASES]
    assert sorted(set(names)) == sorted(names)


def test_the_set_is_small_and_closed() -> None:
    assert sum(len(lines.strip().splitlines()) for lines in TABLE.values()) <= 120
    assert {str(op) for op in PRIMITIVES if op.namespace != "aten"} == {
        "stator.check_divisor.default",
        "stator.check_positions.default",
        "stator.random.default",
        "stator.special.default",
        "stator.fma.default",
    }
    both = {str(op) for op in DECOMPOSITIONS if op in PRIMITIVES}
    assert both == {
        "aten.pow.Tensor_Scalar",
        "aten.index.Tensor",
        "aten.index_add.default",
        "aten.index_put.default",
        "aten.index_reduce.default",
        "aten.index_select.default",
        "aten.max_pool2d_with_indices.default",
        "aten.scatter_reduce.two",
    }  # some of their calls have simpler forms


#: Programs whose way of summing decides their accuracy.
DELICATE = (
    "layer_norm", "rms_norm", "group_norm", "batch_norm", "softmax", "log_softmax", "var", "cross_entropy", "logsumexp",
)  # fmt: skip
BOTH = {torch.float32, torch.float64}
CHECKED = [case for case in CASES if case.name.startswith(DELICATE) and set(case.dtypes) >= BOTH]


def distance(value: Any, exact: Any) -> float:
    """The largest error, in units of the largest exact value."""
    errors = [
        float((a.double() - b.double()).abs().nan_to_num().max() / (b.double().abs().nan_to_num().max() + 1e-30))
        for a, b in zip(flat(value), flat(exact), strict=True)
        if a.is_floating_point() and a.numel()
    ]
    return max(errors, default=0.0)


@pytest.mark.parametrize("case", CHECKED, ids=lambda case: case.name)
def test_as_accurate_as_eager(case: Case) -> None:
    inputs = case.make_inputs(torch.float32)
    exact = case.fn(*[t.double() if t.is_floating_point() else t for t in inputs])
    eager = case.fn(*case.make_inputs(torch.float32))
    ours, _ = decomposed(case.fn, case.make_inputs(torch.float32))
    assert distance(ours, exact) <= 2 * distance(eager, exact) + 5e-7


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_gradients_of_large_groups_are_made_of_sums_of_channels(affine: bool, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x = (torch.randn(2, 6, 64, 96, dtype=dtype) + 2).requires_grad_()
    w, b = (torch.randn(6, dtype=dtype, requires_grad=True) if affine else None for _ in range(2))
    y, mean, rstd = torch.ops.aten.native_group_norm(x, w, b, 2, 6, 64 * 96, 2, 1e-5)
    grad = torch.randn_like(y)
    wanted = torch.autograd.grad(y, [t for t in (x, w, b) if t is not None], grad)
    with torch.no_grad():
        given = (grad, x, mean, rstd, w, 2, 6, 64 * 96, 2, [True, affine, affine])
        found = DECOMPOSITIONS[torch.ops.aten.native_group_norm_backward.default](*given)
    for ours, theirs in zip([t for t in found if t is not None], wanted, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-3 if dtype is torch.float32 else 1e-9)


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("mask", [(True, True, True), (True, False, False), (False, True, True)])
def test_gradients_of_group_norms_by_channels(
    affine: bool, mask: tuple[bool, bool, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What large groups are computed by on a GPU."""
    monkeypatch.setattr(normalization, "HOST", "another device")
    monkeypatch.setattr(normalization, "_BY_CHANNELS", 1)
    torch.manual_seed(0)
    grad, x = torch.randn(2, 6, 4, 5).double(), torch.randn(2, 6, 4, 5).double()
    weight = torch.randn(6).double() if affine else None
    _, mean, rstd = torch.ops.aten.native_group_norm(x, weight, None, 2, 6, 20, 3, 1e-5)
    given = grad, x, mean, rstd, weight, 2, 6, 20, 3, list(mask if affine else (mask[0], False, False))
    wanted = torch.ops.aten.native_group_norm_backward(*given)
    for ours, theirs in zip(normalization.group_norm_backward(*given), wanted, strict=True):
        assert (ours is None) == (theirs is None)
        if theirs is not None:
            torch.testing.assert_close(ours, theirs)


def gelu_by_a_sigmoid(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Value and slope, without what cancels in the formula by a tanh."""
    scale = 2 * (2 / torch.pi) ** 0.5
    inner = scale * (x + 0.044715 * x**3)
    share, rest = torch.sigmoid(inner), torch.sigmoid(-inner)
    return x * share, share + x * share * rest * scale * (1 + 3 * 0.044715 * x * x)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_gelu_by_a_sigmoid_is_as_exact_as_by_a_tanh(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of every half: the exact number, rounded, where that is no tie, nearly; and NaN where eager has one."""
    monkeypatch.setattr(activation, "_by_shares", lambda x, approximate: True)
    x = torch.arange(-(2**15), 2**15).to(torch.int16).view(dtype)
    one = torch.ones_like(x)
    ours = activation.gelu(x, "tanh"), activation.gelu_backward(one, x, "tanh")
    eager = F.gelu(x, approximate="tanh"), torch.ops.aten.gelu_backward(one, x, approximate="tanh")
    for mine, theirs, exact in zip(ours, eager, gelu_by_a_sigmoid(x.double()), strict=True):
        assert torch.equal(mine.isnan(), theirs.isnan())
        known = exact.isfinite() & theirs.isfinite()
        unit = torch.finfo(dtype).eps * (exact.abs() + torch.finfo(dtype).tiny)
        near = 0.51 * unit + 1e-36 + 2e-6 * (theirs is eager[1])
        assert ((mine.double() - exact).abs() <= near)[known].all()
        assert (mine != exact.to(dtype))[known].float().mean() < 1e-3
