"""Products of bfloat16 that are multiplied as float32: which, and that they are at least as exact."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import stator
from stator.aot.trace import trace
from stator.graphs.frozen import FROZEN
from stator.passes import run
from stator.passes.halves import WidenProducts
from stator.prims import DECOMPOSITIONS, PRIMITIVES, RANDOM_OPERATORS
from stator.targets import typical
from stator.targets.cpu import record
from tests.aot.models import Function, captured

aten = torch.ops.aten
LOOPS = frozenset([op for op, line in PRIMITIVES.items() if line.kind != "extern"])
WIDENS = replace(typical("cpu"), widens_halves=True)


def halves(*size: int, seed: int = 0) -> Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(seed)).bfloat16()


X, Y = halves(128, 256), halves(256, 192, seed=1)
IMAGE, WINDOWS = halves(2, 32, 24, 24), halves(48, 32, 3, 3, seed=2)
WIDE, ONES = halves(2, 24, 56, 56, seed=4), halves(48, 24, 1, 1, seed=5)
#: Products, and how many of them are widened.
PRODUCTS: dict[str, tuple[Callable[..., Tensor], tuple[Tensor, ...], int]] = {
    "matrices": (torch.mm, (X, Y), 1),
    "a turned matrix": (lambda x, y: x @ y.t(), (X, halves(192, 256)), 1),
    "with a bias": (F.linear, (X, halves(192, 256), halves(192)), 1),
    "with factors": (lambda b, x, y: torch.addmm(b, x, y, beta=0.5, alpha=2), (halves(192), X, Y), 1),
    "batches": (torch.bmm, (halves(3, 128, 256), halves(3, 256, 192)), 1),
    "batches added to": (torch.baddbmm, (halves(192), halves(3, 128, 256), halves(3, 256, 192)), 1),
    "a convolution": (F.conv2d, (IMAGE, WINDOWS, halves(48)), 1),
    "two of one operand": (lambda x, y, z: x @ y + x @ z, (X, Y, halves(256, 192, seed=3)), 2),
    "few channels, and kernels around": (lambda x, w: F.conv2d(x.relu(), w).relu(), (WIDE, ONES), 1),
    "few channels": (F.conv2d, (WIDE, ONES), 0),
    "few rows": (torch.mm, (X[:16], Y), 0),
    "few rows by a turned matrix": (lambda x, y: x @ y.t(), (halves(24, 1024), halves(2048, 1024)), 0),
    "few multiplications": (torch.mm, (X[:, :32], Y[:32]), 0),
    "float32": (torch.mm, (X.float(), Y.float()), 0),
    "float16": (torch.mm, (X.half(), Y.half()), 0),
    "channels alone": (lambda x, w: F.conv2d(x, w, groups=32), (IMAGE, halves(32, 1, 3, 3)), 0),
    "the gradient's convolution": (F.conv_transpose2d, (IMAGE, halves(32, 48, 3, 3)), 0),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_which_are_widened(name: str) -> None:
    function, operands, count = PRODUCTS[name]
    gm = captured(Function(function), operands)
    joint = trace(gm, operands, decompositions=DECOMPOSITIONS, random_operators=RANDOM_OPERATORS)
    graph = joint.graph
    assert WidenProducts(typical("cpu"), LOOPS)(graph) == 0
    assert WidenProducts(WIDENS, LOOPS)(graph) == count
    run(graph)
    casts = [node for node in graph.nodes if node.target is aten._to_copy.default]
    if count:
        assert sum(node.meta["val"].dtype is torch.bfloat16 for node in casts) == count
        assert len({node.args[0] for node in casts}) == len(casts), "each operand is converted once"


def test_few_rows_by_parameters_converted_once() -> None:
    x, weight = halves(24, 1024), halves(2048, 1024)
    gm = captured(Function(lambda x, y: x @ y.t()), (x, weight))
    graph = trace(gm, (x, weight), decompositions=DECOMPOSITIONS, random_operators=RANDOM_OPERATORS).graph
    graph.find_nodes(op="placeholder")[1].meta[FROZEN] = True
    assert WidenProducts(WIDENS, LOOPS)(graph) == 1


@pytest.mark.parametrize("frozen", [False, True], ids=["inference", "freezing"])
@pytest.mark.parametrize("name", [name for name, (_, _, count) in PRODUCTS.items() if count])
def test_as_exact_as_eager(name: str, frozen: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "multiplies_halves_slowly", lambda: True)
    function, operands, _ = PRODUCTS[name]
    compiled = stator.compile(function, fullgraph=True, options={"strict": True, "cache": False})
    if frozen:
        module = Held(function, operands[1:])
        held = stator.compile(module, fullgraph=True, options={"freezing": True, "cache": False})
        with torch.no_grad():
            got = held(operands[0])
    else:
        got = compiled(*operands)
    exact, eager = function(*[x.double() for x in operands]), function(*operands)
    assert got.dtype is torch.bfloat16 and got.stride() == eager.stride()
    error, allowed = (got.double() - exact).abs().max(), (eager.double() - exact).abs().max()
    assert error <= 1.01 * allowed, (error, allowed)


class Held(torch.nn.Module):
    """A product with the operands behind the first as parameters."""

    def __init__(self, function: Callable[..., Tensor], operands: tuple[Tensor, ...]) -> None:
        super().__init__()
        self.function = function
        self.operands = torch.nn.ParameterList([torch.nn.Parameter(x, requires_grad=False) for x in operands])

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x, *self.operands)


def test_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "multiplies_halves_slowly", lambda: True)

    def gradients(function: Callable[..., Tensor], dtype: torch.dtype) -> list[Tensor]:
        operands = [x.to(dtype).requires_grad_() for x in (X, Y)]
        return list(torch.autograd.grad(function(*operands).sum(), operands))

    def product(x: Tensor, y: Tensor) -> Tensor:
        return torch.tanh(x @ y / 16)

    compiled = stator.compile(product, fullgraph=True, options={"strict": True, "cache": False})
    for got, eager, exact in zip(
        gradients(compiled, torch.bfloat16),
        gradients(product, torch.bfloat16),
        gradients(product, torch.float64),
        strict=True,
    ):
        assert (got.double() - exact).abs().max() <= 1.05 * (eager.double() - exact).abs().max()
