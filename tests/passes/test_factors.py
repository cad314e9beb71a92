"""Products of float32 whose factors were halves: which are products of halves, and of the same numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, fx

import stator
from stator.loop.kernel import Call
from stator.loop.schedule import schedule
from stator.lowering import lower
from stator.passes import factors
from stator.prims import DECOMPOSITIONS
from stator.targets import typical
from tests.cases.graphs import trace
from tests.codegen import tiled

aten = torch.ops.aten
GPU = typical("cuda")
X, Y, H = torch.randn(5, 8, 16), torch.randn(5, 8, 16), torch.randn(5, 16, 16).half()


def plain(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attention as PyTorch has it in float32, of halves."""
    return aten._scaled_dot_product_attention_math.default(q, k, v, None, 0.0, False, None, scale=1.0)[0]


#: What is computed, of what, and how many products are of halves.
CASES: dict[str, tuple[Callable[..., Tensor], tuple[Tensor, ...], int]] = {
    "batches": (lambda x, y: x.float() @ y.float().transpose(1, 2), (X.bfloat16(), Y.bfloat16()), 1),
    "matrices": (lambda x, y: x.float().t() @ y.float(), (X[0].half(), Y[0].half()), 1),
    "moved and scaled by one": (
        lambda x, y: (x.float() * 1.0).contiguous() @ (y.float() * 1.0).permute(0, 2, 1).contiguous(),
        (X.bfloat16(), Y.bfloat16()),
        1,
    ),
    "scaled": (lambda x, y: (x.float() * 0.5) @ y.float().transpose(1, 2), (X.bfloat16(), Y.bfloat16()), 0),
    "one of float32": (lambda x, y: x.float() @ y.transpose(1, 2), (X.bfloat16(), Y), 0),
    "two kinds": (lambda x, h: x.float() @ h.float(), (X.bfloat16(), H), 0),
    "halves": (lambda x, y: x @ y.transpose(1, 2), (X.bfloat16(), Y.bfloat16()), 0),
    "in float64": (lambda x, y: x.double() @ y.double().transpose(1, 2), (X.bfloat16(), Y.bfloat16()), 0),
    "nothing": (lambda x, y: x.float() @ y.float().transpose(1, 2), (X[:, :0].bfloat16(), Y.bfloat16()), 0),
    "attention": (plain, tuple([t.bfloat16()[None] for t in (X, Y, X)]), 1),
}


@pytest.mark.parametrize("name", CASES)
def test_which_are_of_halves(name: str) -> None:
    function, inputs, count = CASES[name]
    gm, given = trace(function, inputs, DECOMPOSITIONS)
    wanted = gm(*given)
    gone = factors.narrow(gm.graph, GPU)
    assert len(gone) == count
    gm.graph.lint()
    for node in gone.values():
        assert node.meta["val"].dtype is torch.float32
        node.target = _product  # the host has none
    gm.graph.eliminate_dead_code()
    assert not count or name == "attention" or not any(_widens(node) for node in gm.graph.nodes)
    torch.testing.assert_close(fx.GraphModule({}, gm.graph)(*given), wanted, rtol=0, atol=0)


def _product(a: Tensor, b: Tensor, dtype: torch.dtype) -> Tensor:
    assert a.dtype == b.dtype != dtype
    return a.to(dtype) @ b.to(dtype)


def _widens(node: Any) -> bool:
    return node.target is aten._to_copy.default and node.kwargs["dtype"] is torch.float32


def test_other_devices_keep_them() -> None:
    function, inputs, _ = CASES["batches"]
    gm, _ = trace(function, inputs, DECOMPOSITIONS)
    assert not factors.narrow(gm.graph, typical("cpu"))


def test_a_product_is_stored_where_it_is_planned() -> None:
    """Nothing is widened before it, and what is moved is a view."""
    function, inputs, _ = CASES["batches"]
    gm, _ = trace(function, inputs, DECOMPOSITIONS)
    factors.narrow(gm.graph, GPU)
    gm.graph.eliminate_dead_code()
    made = schedule(lower(tiled.on_a_device(gm), "test", GPU), GPU)
    (call,) = made.steps
    assert isinstance(call, Call) and call.extern.out_target == "aten.bmm.dtype_out", made.text()


@pytest.mark.gpu
@pytest.mark.parametrize("name", [name for name, (*_, count) in CASES.items() if count])
def test_on_a_gpu(name: str) -> None:
    function, inputs, _ = CASES[name]
    given = [t.cuda() for t in inputs]
    found = stator.compile(function, fullgraph=True, options={"strict": True, "cache": False})(*given)
    torch.testing.assert_close(found, function(*given), rtol=1e-5, atol=1e-5 if found.dtype is torch.float32 else 1e-2)
