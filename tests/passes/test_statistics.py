"""Under fast numerics backward of a norm has the mean and the deviation that forward computed, unrounded."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, fx
from torch.nn import functional as F

import stator
from stator.aot.trace import trace
from stator.fake import FakeMode
from stator.passes import run
from stator.passes.statistics import WidenStatistics
from stator.prims import DECOMPOSITIONS, RANDOM_OPERATORS

FAST = {"numerics": "fast", "check_speed": "off"}
HALVES = (torch.bfloat16, torch.float16)
Norm = Callable[[Tensor, Tensor, Tensor], Tensor]
#: Of what lies ten deviations from zero, so that a rounded mean is off by some of them.
NORMS: dict[str, tuple[tuple[int, ...], Norm]] = {
    "group": ((4, 64, 9, 9), lambda x, w, b: F.group_norm(torch.cosh(x / 8), 4, w, b)),
    "layer": ((128, 64), lambda x, w, b: F.layer_norm(torch.cosh(x / 8), (64,), w, b)),
    "batch": ((64, 64, 5, 5), lambda x, w, b: F.batch_norm(torch.cosh(x / 8), None, None, w, b, True)),
}


def gradients(fn: Norm, given: tuple[Tensor, ...], dtype: torch.dtype) -> list[Tensor]:
    *inputs, cotangent = [x.to(dtype) for x in given]
    leaves = [x.detach().requires_grad_() for x in inputs]
    fn(*leaves).backward(cotangent)
    return [leaf.grad for leaf in leaves if leaf.grad is not None]


def error(found: Tensor, exact: Tensor) -> float:
    """Root of the mean square, as a part of that of what is exact."""
    return float((found.double() - exact).square().mean().sqrt() / exact.square().mean().sqrt())


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("name", NORMS)
def test_gradients_are_as_exact_as_their_dtype(name: str, dtype: torch.dtype) -> None:
    """Those of the weight are ten times as far off in eager, which rounds the mean."""
    shape, fn = NORMS[name]
    torch.manual_seed(0)
    x, w, b, cotangent = [torch.randn(size) for size in (shape, (64,), (64,), shape)]
    given = tuple([value.to(dtype) for value in (x + 10, w, b, cotangent)])
    exact = gradients(fn, given, torch.float64)
    found = gradients(stator.compile(fn, options=FAST), given, dtype)
    eager = gradients(fn, given, dtype)
    errors = [error(*pair) for pair in zip(found, exact, strict=True)]
    assert max(errors) < torch.finfo(dtype).eps
    assert errors[1] < error(eager[1], exact[1]) / 3


def test_a_group_of_one_number_has_no_gradient() -> None:
    def normed(x: Tensor) -> Tensor:
        return F.group_norm(torch.cosh(x).bfloat16(), 5)

    x = torch.rand(2, 5, 1, 1, requires_grad=True)
    stator.compile(normed, options=FAST)(x).backward(torch.randn(2, 5, 1, 1).bfloat16())
    assert x.grad is not None
    torch.testing.assert_close(x.grad, torch.zeros_like(x))


def joint(fn: Callable[..., object], *inputs: Tensor) -> fx.Graph:
    gm = fx.symbolic_trace(fn)
    fakes = [FakeMode().from_real(x.requires_grad_()) for x in inputs]
    return trace(gm, fakes, decompositions=DECOMPOSITIONS, random_operators=RANDOM_OPERATORS).graph


def casts(graph: fx.Graph) -> int:
    return len(graph.find_nodes(op="call_function", target=torch.ops.aten._to_copy.default))


def test_only_what_an_operators_own_backward_reads() -> None:
    """A mean that the program has, too, or rounds itself, is rounded."""

    def own(x: Tensor) -> Tensor:
        return torch.native_group_norm(x, None, None, 4, 8, 9, 2, 1e-5)[0]

    def given_out(x: Tensor) -> tuple[Tensor, ...]:
        return torch.native_group_norm(x, None, None, 4, 8, 9, 2, 1e-5)

    def written(x: Tensor) -> Tensor:
        return x.float().mean(-1, True).bfloat16().float() * x

    x = torch.randn(4, 8, 3, 3, dtype=torch.bfloat16)
    for fn, changes in ((own, 2), (given_out, 0), (written, 0)):
        graph = joint(fn, x.clone())
        before = casts(graph)
        run(graph, ())
        assert WidenStatistics()(graph) == changes
        graph.lint()
        assert casts(graph) == before - 2 * changes
