"""Products whose sizes are no multiples of 8: which are bordered, and that results and gradients are eager's.

The host stands in for the GPU.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

import stator
from benchmarks.worker import error
from stator.base.device import Device
from stator.loop.kernel import Call, Launch
from stator.loop.schedule import schedule
from stator.lowering import lower
from stator.passes import ragged
from stator.prims import DECOMPOSITIONS, PRIMITIVES
from stator.targets import typical
from stator.targets.cpu import record
from tests.cases.graphs import trace
from tests.codegen import tiled

OPTIONS: dict[str, object] = {"strict": True, "cache": False}
WORDS = 1003
LOOPS = {operator for operator, line in PRIMITIVES.items() if line.kind != "extern"}


@pytest.fixture(autouse=True)
def bordering(monkeypatch: pytest.MonkeyPatch) -> None:
    """A device whose products want it, and whose copies cost nothing."""
    read = record.read

    def found(device: str = "cpu", threads: int = 0) -> Device:
        plain = read(device, threads)
        return replace(plain, pads_products=True, product_blocks=False, product_work=0, launch_cost=0.0, bandwidth=1e20)

    monkeypatch.setattr(record, "read", found)


@pytest.fixture
def sizes(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[int, ...]]]:
    """The sizes (rows, terms, columns) of products in graphs that were bordered while the test runs."""
    found: list[tuple[int, ...]] = []
    pad = ragged.pad

    def padded(graph: fx.Graph, *args: Any) -> dict[fx.Node, fx.Node]:
        gone = pad(graph, *args)
        for node in graph.nodes:
            if node.target in tiled.PRODUCTS:
                a, b = (operand.meta["val"].shape for operand in node.args[-2:])
                found.append((*a, b[-1]))
        return gone

    monkeypatch.setattr(ragged, "pad", padded)
    yield found


class Head(nn.Module):
    def __init__(self, bias: bool) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(WORDS, 64), nn.Linear(64, WORDS, bias)

    def forward(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        logits = self.head(torch.tanh(self.table(ids)))
        return F.cross_entropy(logits.flatten(0, 1).float(), ids.flatten()), logits


def results(call: Any, model: nn.Module, ids: Tensor, dtype: torch.dtype) -> list[Tensor]:
    with torch.autocast("cpu", torch.bfloat16, enabled=dtype is torch.float32):
        loss, logits = call(ids)
    wanted = loss.double() + (logits.double() * 1e-3).sum()
    return [loss.detach(), logits.detach(), *torch.autograd.grad(wanted, list(model.parameters()))]


@pytest.mark.parametrize("bias", [False, True])
def test_a_training_step(bias: bool, sizes: list[tuple[int, ...]]) -> None:
    torch.manual_seed(0)
    model, ids = Head(bias), torch.randint(0, WORDS, (4, 80))
    found = results(stator.compile(model, fullgraph=True, options=OPTIONS), model, ids, torch.float32)
    assert sorted(sizes) == sorted([(320, 64, 1008), (320, 1008, 64), (1008, 320, 64)])
    wanted = results(model, model, ids, torch.float32)
    assert [t.stride() for t in found] == [t.stride() for t in wanted]
    exact = results(model.double(), model, ids, torch.float64)
    assert error(found, exact) <= 1.5 * error(wanted, exact) + 1e-3


class Mixed(nn.Module):
    """Rows are mixed by two layers, as in an image model without attention: both products are turned."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(196, 72), nn.Linear(72, 196)

    def forward(self, x: Tensor) -> Tensor:
        turned = F.layer_norm(x, x.shape[-1:]).transpose(1, 2)
        return x + self.down(torch.tanh(self.up(turned))).transpose(1, 2)


def test_rows_that_are_mixed(sizes: list[tuple[int, ...]]) -> None:
    """In training and without gradients, where the products of turned rows are a batch; the weight is not repeated."""
    torch.manual_seed(0)
    model, x = Mixed().bfloat16(), torch.randn(3, 196, 40).bfloat16().requires_grad_()
    compiled = stator.compile(model, fullgraph=True, options=OPTIONS)
    exact = Mixed().double()
    exact.load_state_dict(model.state_dict())
    gradients = []
    for call, given in ((compiled, x), (model, x), (exact, x.detach().double().requires_grad_())):
        out = call(given)
        parameters = exact.parameters() if call is exact else model.parameters()
        gradients.append([out.detach(), *torch.autograd.grad(out.sin().sum(), [given, *parameters])])
    assert all(size % 8 == 0 for product in sizes for size in product[-3:]), sizes
    assert error(gradients[0], gradients[2]) <= 1.5 * error(gradients[1], gradients[2]) + 1e-3
    sizes.clear()
    model.requires_grad_(False)
    with torch.no_grad():
        found, wanted = stator.compile(model, fullgraph=True, options=OPTIONS)(x), exact(x.double())
    assert sorted(sizes) == [(3, 40, 200, 72), (120, 72, 200)]
    assert error([found], [wanted]) <= 1.5 * error([model(x)], [wanted]) + 1e-3


def turned(x: Tensor, h: Tensor, w: Tensor) -> tuple[Tensor, ...]:
    """What a layer gives for each column, added to the rows."""
    return (x + F.linear(h, w).transpose(1, 2),)


def test_tiles_store_turned_results_as_they_are_read() -> None:
    """On a GPU: no kernel reads the result across its rows, and nothing is bordered for it."""
    inputs = [torch.ones(32, 196, 768).bfloat16(), torch.ones(32, 768, 384).bfloat16(), torch.ones(196, 384).bfloat16()]
    gm, _ = trace(turned, inputs, DECOMPOSITIONS)
    tiled.on_a_device(gm)
    assert not ragged.pad(gm.graph, set(), typical("cuda"), LOOPS)
    made = schedule(lower(gm, "turned", typical("cuda")), typical("cuda"))
    (launch,) = made.steps
    assert isinstance(launch, Launch) and made.outputs[0].stride == (150528, 768, 1)


def test_zeros_meet_no_infinities(sizes: list[tuple[int, ...]]) -> None:
    """Terms are bordered on both sides, so what is not finite stays where it was."""
    a, b = torch.randn(64, 259).bfloat16(), torch.randn(259, 64).bfloat16()
    a[3, 5], b[258, 7] = float("inf"), float("nan")
    found = stator.compile(torch.mm, fullgraph=True, options=OPTIONS)(a, b)
    assert sizes == [(64, 264, 64)]
    torch.testing.assert_close(found, a @ b, equal_nan=True, rtol=2e-2, atol=0.2)


@pytest.mark.parametrize(
    ("rows", "terms", "columns", "dtype"),
    [(64, 256, 512, torch.bfloat16), (64, 64, 9, torch.bfloat16), (64, 64, 515, torch.float32)],
)
def test_others_stay(rows: int, terms: int, columns: int, dtype: torch.dtype, sizes: list[tuple[int, ...]]) -> None:
    a, b = torch.randn(rows, terms, dtype=dtype), torch.randn(terms, columns, dtype=dtype)
    stator.compile(torch.mm, fullgraph=True, options=OPTIONS)(a, b)
    assert sizes == [(rows, terms, columns)]


def test_copies_are_paid_for(sizes: list[tuple[int, ...]], monkeypatch: pytest.MonkeyPatch) -> None:
    read = record.read
    monkeypatch.setattr(record, "read", lambda *given: replace(read(*given), bandwidth=1e9))
    a, b = torch.randn(64, 64).bfloat16(), torch.randn(64, 515).bfloat16()
    stator.compile(torch.mm, fullgraph=True, options=OPTIONS)(a, b)
    assert sizes == [(64, 64, 515)]


def test_a_small_product_is_not_worth_a_kernel(sizes: list[tuple[int, ...]], monkeypatch: pytest.MonkeyPatch) -> None:
    """Which an operand's border may take, though a kernel computes the operand."""
    read = record.read
    monkeypatch.setattr(record, "read", lambda *given: replace(read(*given), launch_cost=3e-6))
    a, b = torch.randn(64, 64).bfloat16(), torch.randn(64, 515).bfloat16()
    stator.compile(lambda a, b: torch.tanh(a) @ torch.tanh(b), fullgraph=True, options=OPTIONS)(a, b)
    assert sizes == [(64, 64, 515)]


def head(x: Tensor, w: Tensor, dtype: torch.dtype) -> tuple[Tensor, ...]:
    """Logits for the caller; in float32 they are a kernel's, which reads those of half type wherever they lie."""
    logits = (x.flatten(0, 1) @ w.t()).view(*x.shape[:2], -1)
    return (logits if logits.dtype is dtype else logits.to(dtype),)


@pytest.mark.parametrize(("dtype", "bordered"), [(torch.bfloat16, False), (torch.float32, True)])
def test_tiles_store_what_would_be_cut(dtype: torch.dtype, bordered: bool) -> None:
    """On a GPU the caller's logits are in memory once, whatever their columns are: a kernel of ours computes them."""
    device, inputs = typical("cuda"), [torch.ones(8, 512, 768).bfloat16(), torch.ones(50257, 768).bfloat16()]
    gm, _ = trace(partial(head, dtype=dtype), inputs, DECOMPOSITIONS)
    tiled.on_a_device(gm)
    result = gm.graph.output_node()
    kept = {node for node in result.all_input_nodes if isinstance(node, fx.Node)}
    ragged.pad(gm.graph, kept, device, LOOPS)
    assert any(node.target is torch.ops.aten.constant_pad_nd.default for node in gm.graph.nodes) is bordered
    made = schedule(lower(gm, "head", device), device)
    assert any(isinstance(step, Call) and step.extern.target == "aten.mm.default" for step in made.steps) is bordered
    assert sorted(buffer.size for buffer in made.buffers.values() if 4096 in buffer.size) == (
        [(4096, 50264)] if bordered else []
    )
