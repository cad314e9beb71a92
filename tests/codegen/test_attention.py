"""Attention by kernels of ours: the text's numbers on the CPU against float64, forward and backward."""

from __future__ import annotations

import operator
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, fx

from stator.codegen import triton
from stator.fake.tensor import make
from stator.kernel.attention import Rows
from stator.loop import tables
from stator.loop.kernel import Schedule
from stator.loop.schedule import schedule
from stator.lowering import lower
from stator.lowering.product import TAKES_LOOP
from stator.targets import typical
from tests.codegen import tiled

aten = torch.ops.aten
FLASH, FLASH_BACK = aten._scaled_dot_product_flash_attention, aten._scaled_dot_product_flash_attention_backward
EFFICIENT = aten._scaled_dot_product_efficient_attention
EFFICIENT_BACK = aten._scaled_dot_product_efficient_attention_backward


class Graph:
    """A graph of one operator on a GPU, whose results have the geometry that PyTorch gives them."""

    def __init__(self, rounds: bool = True) -> None:
        self.graph, self.inputs, self.rounds = fx.Graph(), [], rounds
        self.metas: dict[fx.Node, Any] = {}

    def given(self, x: Tensor) -> fx.Node:
        node = self.graph.placeholder(f"x{len(self.inputs)}")
        self.inputs.append(x)
        node.meta["val"] = _fake(x)
        self.metas[node] = torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device="meta")
        return node

    def call(self, op: Any, *args: Any, **kwargs: Any) -> fx.Node:
        node = self.graph.call_function(op.default, args, kwargs)
        found = op.default(*fx.node.map_arg(args, self.metas.__getitem__), **kwargs)
        self.metas[node] = found
        node.meta.update(val=tuple([_fake(x) if isinstance(x, Tensor) else x for x in found]))
        node.meta[TAKES_LOOP] = True
        return node

    def part(self, node: fx.Node, i: int) -> fx.Node:
        made = self.graph.call_function(operator.getitem, (node, i))
        made.meta["val"], self.metas[made] = node.meta["val"][i], self.metas[node][i]
        return made

    def scheduled(self, results: list[fx.Node]) -> Schedule:
        """Its kernels."""
        self.graph.output(tuple(results))
        record = typical("cuda")
        program = lower(fx.GraphModule({}, self.graph), "test", record, self.rounds)
        return schedule(program, record, self.rounds)

    def run(self, results: list[fx.Node], folder: Path, rows: Rows | None = None, device: str = "cpu") -> list[Tensor]:
        """The results, by kernels with so many rows at once, or by rule."""
        made = self.scheduled(results)
        shapes = {kernel: rows for kernel in made.kernels if kernel.attention is not None} if rows else {}
        return tiled.run(made, [tiled.moved(x, device) for x in self.inputs], folder, shapes)


def _fake(x: Tensor) -> Tensor:
    return make(tuple(x.shape), x.dtype, torch.device("cuda"), tuple(x.stride()))


def exact(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, causal: bool, scale: float | None
) -> tuple[Tensor, Tensor]:
    """The result and the logarithms of sums; a row of nothing gives zeros."""
    groups = q.shape[1] // k.shape[1]
    k, v = (x.repeat_interleave(groups, 1) for x in (k, v))
    scores = q @ k.mT * (q.shape[-1] ** -0.5 if scale is None else scale)
    if bias is not None:
        scores = scores + bias
    if causal:
        scores = scores.masked_fill(torch.ones(scores.shape[-2:], device=q.device).triu(1).bool(), -torch.inf)
    nothing = (scores == -torch.inf).all(-1, keepdim=True)
    shares = scores.masked_fill(nothing, 0.0).softmax(-1).masked_fill(nothing, 0.0)
    return shares @ v, scores.detach().logsumexp(-1)


def close(found: Tensor, wanted: Tensor, times: float = 4.0) -> None:
    step = torch.finfo(torch.bfloat16 if found.dtype is torch.float32 else found.dtype).eps
    assert found.shape == wanted.shape and torch.isfinite(found).all()
    error = (found.double() - wanted).abs().max() / wanted.abs().max().clamp(min=1e-3)
    assert error <= times * step, (error, times * step)


def heads(batches: int, count: int, rows: int, width: int, dtype: torch.dtype, inside: bool = True) -> Tensor:
    """`[batches, count, rows, width]`, with heads side by side in each row or one after the other."""
    if inside:
        return torch.randn(batches, rows, count, width).to(dtype).transpose(1, 2)
    return torch.randn(batches, count, rows, width).to(dtype)


#: batches, heads, heads of keys, queries, keys, width, causal
SHAPES = [
    (1, 2, 2, 40, 40, 16, False),
    (2, 2, 2, 33, 33, 32, True),
    (1, 4, 2, 20, 50, 40, False),
    (1, 1, 1, 64, 64, 64, True),
    (1, 2, 1, 70, 70, 24, True),
    (1, 1, 1, 5, 3, 96, False),
    (1, 1, 1, 1, 37, 128, False),
]
ROWS = [Rows(16, 32, 2, 1), Rows(32, 16, 2, 1)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_forward(shape: tuple[Any, ...], tmp_path: Path) -> None:
    batches, count, shared, queries, keys, width, causal = shape
    for rows, dtype, inside in zip(ROWS, (torch.bfloat16, torch.float16), (True, False), strict=True):
        q = heads(batches, count, queries, width, dtype, inside)
        k, v = (heads(batches, shared, keys, width, dtype, inside) for _ in range(2))
        made = Graph()
        node = made.call(FLASH, *map(made.given, (q, k, v)), 0.0, causal)
        o, logs = made.run([made.part(node, 0), made.part(node, 1)], tmp_path, rows)
        wanted, sums = exact(q.double(), k.double(), v.double(), None, causal, None)
        close(o, wanted)
        close(logs, sums)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("rounds", [True, False])
def test_backward(shape: tuple[Any, ...], rounds: bool, tmp_path: Path) -> None:
    batches, count, shared, queries, keys, width, causal = shape
    for rows in ROWS:
        q, g = (heads(batches, count, queries, width, torch.bfloat16) for _ in range(2))
        k, v = (heads(batches, shared, keys, width, torch.bfloat16) for _ in range(2))
        wide = [x.double().requires_grad_() for x in (q, k, v)]
        wanted, sums = exact(*wide, None, causal, None)
        wanted.backward(g.double())
        made = Graph(rounds)
        given = [made.given(x) for x in (g, q, k, v, wanted.detach().bfloat16(), sums.detach().float())]
        seeds = [made.given(torch.zeros(())) for _ in range(2)]
        node = made.call(FLASH_BACK, *given, None, None, queries, keys, 0.0, causal, *seeds)
        found = made.run([made.part(node, i) for i in range(3)], tmp_path, rows)
        for ours, leaf in zip(found, wide, strict=True):
            close(ours, leaf.grad, 6.0)


@pytest.mark.parametrize("causal", [False, True])
def test_gradients_of_values_that_are_much_alike(causal: bool, tmp_path: Path) -> None:
    """What is taken off gradients is of a rounded result, but where roundings are left out: then it is exact."""
    q, k, g = (heads(1, 2, 70, 32, torch.bfloat16) for _ in range(3))
    v = (heads(1, 2, 70, 32, torch.float32) * 0.1 + torch.randn(2, 1, 32)).bfloat16()
    wide = [x.double().requires_grad_() for x in (q, k, v)]
    wanted, sums = exact(*wide, None, causal, None)
    wanted.backward(g.double())
    errors = []
    for rounds in (True, False):
        made = Graph(rounds)
        given = [made.given(x) for x in (g, q, k, v, wanted.detach().bfloat16(), sums.detach().float())]
        seeds = [made.given(torch.zeros(())) for _ in range(2)]
        node = made.call(FLASH_BACK, *given, None, None, 70, 70, 0.0, causal, *seeds)
        found = made.run([made.part(node, i) for i in range(2)], tmp_path, ROWS[0])
        pairs = zip(found, wide, strict=False)
        errors.append([(x.double() - leaf.grad).norm() / leaf.grad.norm() for x, leaf in pairs])
    for rounded, ours in zip(*errors, strict=True):
        assert ours < torch.finfo(torch.bfloat16).eps < rounded, errors


BIASES = {
    "full": (2, 2, 20, 40),
    "rows": (1, 1, 20, 40),
    "keys": (2, 1, 1, 40),
}


@pytest.mark.parametrize("name", BIASES)
@pytest.mark.parametrize("causal", [False, True])
def test_a_bias(name: str, causal: bool, tmp_path: Path) -> None:
    """Added to scores; -inf hides keys, and all of them of some rows."""
    keys = 20 if causal else 40
    q, k, v = (heads(2, 2, n, 32, torch.bfloat16) for n in (20, keys, keys))
    bias = torch.randn(BIASES[name])[..., :keys].bfloat16()
    bias = bias.masked_fill(torch.rand(bias.shape) < 0.3, -torch.inf)
    if name == "rows":
        bias[..., 3, :] = -torch.inf
    made = Graph()
    expanded = bias.expand(2, 2, 20, keys)
    node = made.call(EFFICIENT, *map(made.given, (q, k, v, expanded)), True, 0.0, causal, scale=0.3)
    o, logs = made.run([made.part(node, 0), made.part(node, 1)], tmp_path, ROWS[0])
    wide = [x.double().requires_grad_() for x in (q, k, v)]
    wanted, sums = exact(*wide, expanded.double(), causal, 0.3)
    close(o, wanted.detach())
    assert logs.shape[-1] == 32 and (logs[..., 20:] == torch.inf).all()
    torch.testing.assert_close(logs[..., :20].double(), sums.detach(), rtol=1e-2, atol=1e-2)
    g = heads(2, 2, 20, 32, torch.bfloat16)
    wanted.backward(g.double())
    back = Graph()
    given = [back.given(x) for x in (g, q, k, v, expanded, o, logs, torch.zeros(()), torch.zeros(()))]
    node = back.call(EFFICIENT_BACK, *given, 0.0, [True, True, True, False], causal, scale=0.3)
    found = back.run([back.part(node, i) for i in range(3)], tmp_path, ROWS[1])
    for ours, leaf in zip(found, wide, strict=True):
        close(ours, leaf.grad, 6.0)


def test_what_is_no_number_stays_none(tmp_path: Path) -> None:
    """In the rows that see it, and in no others."""
    q, k, v = (heads(1, 1, 40, 32, torch.bfloat16) for _ in range(3))
    q[0, 0, 3], v[0, 0, 20, 5] = torch.nan, torch.inf
    made = Graph()
    node = made.call(FLASH, *map(made.given, (q, k, v)), 0.0, True)
    o, logs = made.run([made.part(node, 0), made.part(node, 1)], tmp_path, ROWS[0])
    wanted, _ = exact(q.double(), k.double(), v.double(), None, True, None)
    assert torch.equal(o.isnan(), wanted.isnan()) and torch.equal(o.isinf(), wanted.isinf())
    assert logs.isnan().nonzero().tolist() == [[0, 0, 3]]


def test_text(golden: Callable[[str, str], None]) -> None:
    """Forward with a bias; both kernels of gradients, where heads share keys and the diagonal is the end."""
    with tables.session():
        q, k, v = (torch.zeros(2, count, 1000, 64, dtype=torch.bfloat16) for count in (4, 2, 2))
        forward, backward = Graph(), Graph()
        bias = torch.zeros(1, 1, 1000, 1000, dtype=torch.bfloat16).expand(2, 4, 1000, 1000)
        keys = (x.repeat_interleave(2, 1) for x in (k, v))
        node = forward.call(EFFICIENT, *map(forward.given, (q, *keys, bias)), True)
        given = [backward.given(x) for x in (q, q, k, v, q, torch.zeros(2, 4, 1000))]
        seeds = [backward.given(torch.zeros(())) for _ in range(2)]
        back = backward.call(FLASH_BACK, *given, None, None, 1000, 1000, 0.0, True, *seeds)
        texts = []
        gradients = [backward.part(back, i) for i in range(3)]
        schedules = forward.scheduled([forward.part(node, 0)]), backward.scheduled(gradients)
        for made in schedules:
            kernels = [kernel for kernel in made.kernels if kernel.attention is not None]
            text = triton.emit(kernels, typical("cuda"))
            texts.append("@triton.jit\ndef k0" + text.partition("def k0")[2])
    golden("attention", "\n".join(texts))
