"""Gradients through zeros that eager keeps without memory: products of them are zero, whatever the other factor is."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import stator

BEFORE = {
    "itself": lambda x: x * 1,
    "root": lambda x: x.sqrt(),
    "logarithm": lambda x: x.log(),
    "maximum": lambda x: x.amax((0, 1)),
    "quotient": lambda x: (x - x) / (x - x) * x,
    "turned": lambda x: x.t()[1:].rsqrt() / x.t()[1:],
    "joined": lambda x: torch.cat([x, 2 * x]),
    "dot": lambda x: x.view(-1).dot(x.log().view(-1)),
    "widened": lambda x: x.expand(2, 3, 3) * x.rsqrt(),
    "logarithms added": lambda x: x.log().sum(0),
    "scanned": lambda x: x.log().cumsum(0),
    "power": lambda x: (x * 0).pow(0.5),
    "sum of two": lambda x: x.log() + x.sqrt(),
    "divided by a number": lambda x: x.log() / 0.0,
    "product": lambda x: x.rsqrt() @ x.rsqrt(),
}
AFTER = {
    "alone": torch.sgn,
    "beside another": lambda y: torch.sgn(y).sum() + y.detach().sum(),
    "twice": lambda y: torch.sgn(y) * torch.sgn(2 * y),
}


@pytest.mark.parametrize(("before", "after"), [*itertools.product(BEFORE, AFTER)])
def test_as_eager(before: str, after: str) -> None:
    def function(x: Tensor) -> Tensor:
        return AFTER[after](BEFORE[before](x))  # type: ignore[no-any-return, operator]

    x = torch.randn(3, 3, generator=torch.Generator().manual_seed(0))
    x[0, 0], x[1, 1] = torch.nan, 0.0
    found = []
    backend = "inductor" if after == "alone" else "aot_eager"
    for run in (function, stator.compile(function, backend=backend, fullgraph=True)):
        leaf = x.clone().requires_grad_()
        result = run(leaf)
        found.append(torch.autograd.grad(result, leaf, torch.ones_like(result))[0])
    torch.testing.assert_close(found[1], found[0], equal_nan=True)


#: Their gradients are kernels of their own, which compute with zeros: beside an infinity they are NaN.
KERNELS = (
    "mish silu gelu tanh sigmoid softplus elu selu celu hardswish hardsigmoid hardtanh leaky_relu logsigmoid relu6 "
    "softsign tanhshrink hardshrink softshrink softmax log_softmax"
).split()


@pytest.mark.parametrize("backend", ["inductor", "aot_eager"])
def test_kernels_compute_with_zeros(backend: str) -> None:
    def function(*leaves: Tensor) -> list[Tensor]:
        arguments: dict[str, tuple[int, ...]] = {"softmax": (0,), "log_softmax": (0,)}
        return [
            torch.sgn(getattr(F, name)(x, *arguments.get(name, ()))) for name, x in zip(KERNELS, leaves, strict=True)
        ]

    x = torch.tensor([torch.inf, -torch.inf, 0.0, 1.0, -3.0, 1e30, -1e30])
    found = []
    for run in (function, stator.compile(function, backend=backend, fullgraph=True)):
        leaves = [x.clone().requires_grad_() for _ in KERNELS]
        results = run(*leaves)
        found.append(torch.autograd.grad(results, leaves, [torch.ones_like(result) for result in results]))
    for name, mine, theirs in zip(KERNELS, found[1], found[0], strict=True):
        torch.testing.assert_close(mine, theirs, equal_nan=True, msg=name)
    assert sum(bool(theirs.isnan().any()) for theirs in found[0]) > 3
