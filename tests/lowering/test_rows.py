"""Rows that are apart from each other: where, and that kernels, products and the caller take them for what they are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

import stator
from stator.base.device import Device
from stator.lowering import extern, rows
from stator.targets.cpu import record

OPTIONS: dict[str, object] = {"strict": True, "cache": False}
RAGGED = 131


@pytest.fixture(autouse=True)
def aligned(monkeypatch: pytest.MonkeyPatch) -> None:
    """A device that wants it."""
    read = record.read

    def found(device: str = "cpu", threads: int = 0) -> Device:
        return replace(read(device, threads), row_bytes=16, product_blocks=False, product_work=0)

    monkeypatch.setattr(record, "read", found)


@pytest.fixture
def spaced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The nodes of which rows are apart, while the test runs."""
    found: list[str] = []
    decide = rows.spaced

    def decided(node: torch.fx.Node, *args: object) -> object:
        stride = decide(node, *args)  # type: ignore[arg-type]
        found.extend([str(node.target)] * (stride is not None))
        return stride

    monkeypatch.setattr("stator.lowering.engine.spaced", decided)
    return found


def head(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    logits = x @ w.t()
    return logits, logits.float().logsumexp(-1)


def inside(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
    return torch.tanh((x @ w.t()).view(4, 32, RAGGED)).sum(1), (x.neg() @ w.t()).sort(-1)[0]


def between(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
    y = torch.exp(x[:, :1] * 0.1 + w[:, 0])  # computed by a kernel, read by two products
    return y @ w, y.t() @ x


def returned(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
    y = torch.exp(x[:, :1] * 0.1 + w[:, 0])
    return y @ w, y


#: Function → the targets of what is apart.
CASES: dict[Callable[..., tuple[Tensor, ...]], list[str]] = {
    head: ["aten.mm.default"], inside: ["aten.mm.default"], between: ["aten.exp.default"], returned: [],
}  # fmt: skip


@pytest.mark.parametrize("function", CASES)
def test_values_and_strides(function: Callable[..., tuple[Tensor, ...]], spaced: list[str]) -> None:
    x, w = torch.randn(128, 48).bfloat16(), torch.randn(RAGGED, 48).bfloat16()
    found = stator.compile(function, fullgraph=True, options=OPTIONS)(x, w)
    for one, other in zip(found, function(x, w), strict=True):
        assert one.stride() == other.stride()
        torch.testing.assert_close(one, other, rtol=2e-2, atol=2e-2 * other.float().abs().max().item())
    assert spaced == CASES[function]


def test_gradients(spaced: list[str]) -> None:
    x = torch.randn(128, 48, dtype=torch.bfloat16, requires_grad=True)
    w = torch.randn(RAGGED, 48, dtype=torch.bfloat16, requires_grad=True)
    results = []
    for call in (stator.compile(head, fullgraph=True, options=OPTIONS), head):
        logits, sums = call(x, w)
        results.append(torch.autograd.grad((logits * 0.01).float().sum() + sums.sum(), (x, w)))
    torch.testing.assert_close(*results, rtol=5e-2, atol=5e-2)
    assert "aten.mm.default" in spaced and len(spaced) > 1  # what backward multiplies is, too


def test_calls_write_so() -> None:
    """PyTorch's product writes to rows that are apart, without a copy of the result."""
    a, b = torch.randn(70, 20).bfloat16(), torch.randn(20, RAGGED).bfloat16()
    memory = torch.zeros(70, 136).bfloat16()
    torch.mm(a, b, out=memory[:, :RAGGED])
    torch.testing.assert_close(memory[:, :RAGGED], a @ b)
    assert not memory[:, RAGGED:].any() and "aten.mm.default" in extern._TO_ROWS
