"""Attention of few keys with a bias: which calls are of the other kernel, and that it gets rows that are aligned."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, fx
from torch.nn import functional as F

import stator
from stator import lowering, passes, prims
from stator.aot.partition import partition
from stator.aot.trace import trace
from stator.loop.nest import Extern
from stator.patterns import short
from stator.targets import typical

HALF = torch.bfloat16
Call = Callable[..., Tensor]


def attend(q: Tensor, bias: Tensor, **options: Any) -> Tensor:
    return F.scaled_dot_product_attention(q * 1, q, q, attn_mask=bias, scale=0.3, **options)


def captured(function: Call, *inputs: Tensor) -> tuple[fx.GraphModule, list[Any]]:
    found: list[tuple[fx.GraphModule, list[Any]]] = []

    def backend(gm: fx.GraphModule, example_inputs: list[Any], **_: Any) -> Any:
        found.append((gm, example_inputs))
        return gm.forward

    stator.compile(function, fullgraph=True, backend=backend)(*inputs)
    return found[0]


def query(length: int = 49, width: int = 32, dtype: torch.dtype = HALF) -> Tensor:
    return torch.randn(8, length, 3, width, dtype=dtype).transpose(1, 2).requires_grad_()


def bias(length: int = 49, dtype: torch.dtype = HALF) -> Tensor:
    return torch.randn(1, 3, length, length).to(dtype)


@pytest.mark.parametrize(
    ("inputs", "options", "taken"),
    [
        ((query(), bias()), {}, True),
        ((query(), bias(dtype=torch.float32)), {}, True),
        ((query(64, 64), bias(64)), {"dropout_p": 0.0}, True),
        ((query(65), bias(65)), {}, False),
        ((query().detach().contiguous(), bias()), {}, False),
        ((query(49, 72), bias()), {}, False),
        ((query(dtype=torch.float32), bias(dtype=torch.float32)), {}, False),
        ((query(), torch.ones(49, 49, dtype=torch.bool)), {}, False),
    ],
)
def test_calls(
    inputs: tuple[Tensor, ...], options: dict[str, Any], taken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with torch.autocast("cpu", HALF):
        gm, _ = captured(lambda q, b: attend(q, b, **options), *inputs)
    assert short.choose(gm) is gm  # on the host
    monkeypatch.setattr(short, "HOST", "none")
    targets = [node.target for node in short.choose(gm).graph.nodes]
    assert (short.KERNEL in targets, F.scaled_dot_product_attention in targets) == (taken, not taken)


@pytest.mark.parametrize("length", [48, 49])
def test_rows_of_the_bias_are_aligned_in_memory(length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the values lie elsewhere too, in rows that are not."""
    monkeypatch.setattr(short, "HOST", "none")
    gm, inputs = captured(attend, query(length), bias(length))
    joint = trace(
        short.choose(gm), inputs, decompositions=prims.DECOMPOSITIONS, random_operators=prims.RANDOM_OPERATORS
    )
    parts = partition(joint)
    assert parts.backward is not None
    for half, place in ((parts.forward, 3), (parts.backward, 4)):
        program = lowering.lower(passes.run(half), "half", typical("cpu"))
        (call,) = [n for n in program.nodes if isinstance(n, Extern) and "efficient_attention" in n.target]
        view = call.args[place]
        assert view.size == (8, 3, length, length) and view.stride[2] % 16 == 0 and view.stride[3] == 1


@pytest.mark.gpu
@pytest.mark.parametrize("length", [49, 64])
def test_values_and_gradients(length: int) -> None:
    q, b = query(length).detach().cuda().requires_grad_(), bias(length).cuda().requires_grad_()
    results = []
    for call in (stator.compile(attend, fullgraph=True, options={"strict": True}), attend):
        out = call(q, b)
        results.append([out, *torch.autograd.grad(out.float().square().sum(), (q, b))])
    torch.testing.assert_close(*results, rtol=2e-2, atol=5e-2)
    assert results[0][0].stride() == results[1][0].stride()
