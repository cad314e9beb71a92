"""Sums of products become one product of more terms, where that pays."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

import stator
from stator.base import log
from stator.passes.sums import JoinTerms
from stator.targets.cpu import record
from tests.passes.test_passes import Build

aten = torch.ops.aten
DEVICE = record.typical()


def _products(b: Build, count: int, *, turned: bool = True) -> list:
    """Products of 512 × 8 by 8 × 256, of left factors that are views of what lies the other way round."""
    made = []
    for i in range(count):
        left = b(aten.permute.default, b.x[2 * i], [1, 0]) if turned else b.x[2 * i]
        made.append(b(aten.mm.default, left, b.x[2 * i + 1]))
    return made


def _inputs(count: int, *, turned: bool = True, terms: int = 8, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    left = (terms, 512) if turned else (512, terms)
    return [torch.randn(shape, dtype=dtype) for _ in range(count) for shape in (left, (terms, 256))]


@pytest.mark.parametrize("turned, calls", [(True, "cat permute cat mm"), (False, "cat cat mm")])
def test_a_sum_of_products_is_one(turned: bool, calls: str) -> None:
    b = Build(*_inputs(3, turned=turned))
    first, second, third = _products(b, 3, turned=turned)
    total = b(aten.add.Tensor, third, b(aten.add.Tensor, first, second))
    b.check([JoinTerms(DEVICE)], [total], calls, 1e-5, 1e-4)


def test_what_a_product_or_a_sum_is_used_for_besides_stays() -> None:
    b = Build(*_inputs(3))
    first, second, third = _products(b, 3)
    inner = b(aten.add.Tensor, first, second)
    outs = [b(aten.add.Tensor, inner, third), b(aten.neg.default, inner)]
    b.check([JoinTerms(DEVICE)], outs, "permute mm cat permute cat mm add neg", 1e-5, 1e-4)


def test_sums_that_stay() -> None:
    plain = "permute mm permute mm add"
    for inputs in (_inputs(2, dtype=torch.bfloat16), _inputs(2, terms=128), _inputs(2, terms=1)):
        b = Build(*inputs)
        b.check([JoinTerms(DEVICE)], [b(aten.add.Tensor, *_products(b, 2))], plain)
    b = Build(*[x[:, :64].contiguous() for x in _inputs(2)])
    b.check([JoinTerms(DEVICE)], [b(aten.add.Tensor, *_products(b, 2))], plain)
    b = Build(*_inputs(2))
    b.check([JoinTerms(DEVICE)], [b(aten.add.Tensor, *_products(b, 2), alpha=2)], plain)
    b = Build(*_inputs(2))
    b.check([JoinTerms(replace(DEVICE, kind="gpu"))], [b(aten.add.Tensor, *_products(b, 2))], plain)
    b = Build(*_inputs(1), torch.randn(512, 256))
    b.check([JoinTerms(DEVICE)], [b(aten.add.Tensor, _products(b, 1)[0], b.x[2])], "permute mm add")
    b = Build(*_inputs(1))
    (product,) = _products(b, 1)
    b.check([JoinTerms(DEVICE)], [b(aten.add.Tensor, product, product)], "permute mm add")


def test_gradients_of_a_layer_that_runs_several_times() -> None:
    """Six products forward, five for what lies between, and one for the weight; values near to float64's."""
    layer, x = torch.nn.Linear(300, 300), torch.randn(32, 300)
    exact = torch.nn.Linear(300, 300, dtype=torch.float64)
    exact.load_state_dict(layer.state_dict())

    def loss(layer: torch.nn.Module, x: Tensor) -> Tensor:
        for _ in range(6):
            x = torch.tanh(layer(x))
        return x.square().mean()

    with log.collect() as recorder:
        found = torch.autograd.grad(stator.compile(loss, fullgraph=True)(layer, x), list(layer.parameters()))
    externs = [name for linked in recorder.of(log.KERNELS) for name in linked["externs"]]
    assert len([name for name in externs if "mm" in name or "linear" in name]) == 12
    for one, other in zip(found, torch.autograd.grad(loss(exact, x.double()), list(exact.parameters())), strict=True):
        assert (one - other).abs().max() <= 1e-5 * other.abs().max()


def test_symbolic_sizes_are_not_compared() -> None:
    """Products that grow with a size stay, and nothing is asked of the size."""

    def program(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
        return x @ y + (2 * x) @ z

    compiled = stator.compile(program, fullgraph=True, dynamic=True)
    with log.collect() as recorder:
        for n in (3, 512, 300):
            given = torch.randn(n, 8), torch.randn(8, 512), torch.randn(8, 512)
            torch.testing.assert_close(compiled(*given), program(*given))
    assert len(recorder.of(log.GRAPH)) == 1
