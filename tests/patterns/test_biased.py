"""Attention with a bias: which calls are of the other kernel, and that it gets rows that are aligned."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
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
from stator.patterns import biased
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


def turned(length: int, dtype: torch.dtype = HALF, batch: int = 1) -> Tensor:
    """A bias whose heads lie side by side, as rows of a table."""
    return torch.randn(batch, length, length, 3).to(dtype).permute(0, 3, 1, 2)


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
        ((query(65), turned(65)), {}, True),
        ((query(256), turned(256, torch.float32, 8).requires_grad_()), {"dropout_p": 0.1}, True),
        ((query(65).detach().contiguous(), turned(65)), {}, True),
        ((query(65, 136), turned(65)), {}, False),
        ((query(65, 128), turned(65)), {"is_causal": True}, False),
    ],
)
def test_calls(
    inputs: tuple[Tensor, ...], options: dict[str, Any], taken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with torch.autocast("cpu", HALF):
        gm, _ = captured(lambda q, b: attend(q, b, **options), *inputs)
    assert biased.choose(gm) is gm  # on the host
    monkeypatch.setattr(biased, "HOST", "none")
    targets = [node.target for node in biased.choose(gm).graph.nodes]
    assert (biased.KERNEL in targets, F.scaled_dot_product_attention in targets) == (taken, not taken)


@pytest.mark.parametrize("length", [48, 49, 96])
@pytest.mark.parametrize("made", [bias, turned])
def test_rows_of_the_bias_are_aligned_in_memory(
    length: int, made: Callable[[int], Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the values lie elsewhere too, in rows that are not."""
    if length > 64 and made is bias:
        pytest.skip("cuDNN's kernel takes it")
    monkeypatch.setattr(biased, "HOST", "none")
    gm, inputs = captured(attend, query(length), made(length))
    joint = trace(
        biased.choose(gm), inputs, decompositions=prims.DECOMPOSITIONS, random_operators=prims.RANDOM_OPERATORS
    )
    parts = partition(joint)
    assert parts.backward is not None
    for half, place in ((parts.forward, 3), (parts.backward, 4)):
        program = lowering.lower(passes.run(half), "half", typical("cpu"))
        (call,) = [n for n in program.nodes if isinstance(n, Extern) and "efficient_attention" in n.target]
        view = call.args[place]
        assert view.size == (8, 3, length, length) and view.stride[2] % 16 == 0 and view.stride[3] == 1


def test_not_where_it_cuts_a_recording_or_results_are_the_same_in_each_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel's seed is the host's, which gradients and dropout read; and its gradients are not the same."""
    gm, _ = captured(attend, query(65), turned(65))
    monkeypatch.setattr(biased, "HOST", "none")
    assert biased.choose(gm) is not gm and biased.choose(gm, recorded=True) is gm
    with torch.no_grad():
        assert biased.choose(gm, recorded=True) is not gm
        dropping, _ = captured(partial(attend, dropout_p=0.5), query(65), turned(65))
        assert biased.choose(dropping) is not dropping and biased.choose(dropping, recorded=True) is dropping
    monkeypatch.setattr(torch, "are_deterministic_algorithms_enabled", lambda: True)
    assert biased.choose(gm) is gm


@pytest.mark.gpu
@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize("length", [80, 256])
def test_a_bias_whose_rows_lie_apart(length: int, inside: bool) -> None:
    """Values and gradients are as near to float64's as those of the kernel in eager, with a bias in rows; the result
    lies as that of eager's products."""
    q = query(length) if inside else query(length).detach().contiguous().requires_grad_()
    q, b = q.detach().cuda().requires_grad_(), turned(length).cuda().requires_grad_()

    def run(call: Call, q: Tensor, b: Tensor) -> list[Tensor]:
        out = call(q, b)
        loss = out.to(torch.promote_types(q.dtype, torch.float32)).square().sum()
        return [out, *torch.autograd.grad(loss, (q, b))]

    exact = run(attend, q.detach().double().requires_grad_(), b.detach().double().requires_grad_())
    got = run(stator.compile(attend, fullgraph=True, options={"strict": True}), q, b)
    rows = run(attend, q, b.detach().contiguous().requires_grad_())
    for ours, theirs, want in zip(got, rows, exact, strict=True):
        assert (ours.double() - want).norm() <= 1.1 * (theirs.double() - want).norm() + 1e-3 * want.norm()
    assert got[0].stride() == attend(q, b).stride()


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
