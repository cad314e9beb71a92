"""Floats that change reach kernels by their bits: one kernel, every value, and no copy between devices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import stator
from stator.base import log
from stator.capture.entry import versions_of

NUMBERS = (0.1, 0.25, -3.5, 1e-30, 0.0, -0.0, 1 / 3, float("nan"), 2.0)


def kernel_text(tmp_path: Any, device: str) -> str:
    """The kernels of the version for any float."""
    compiled = stator.compile(lambda x, a: x * a + a * 0.5, options={"debug": str(tmp_path)})
    for number in NUMBERS[:2]:
        compiled(torch.ones(5, device=device), number)
    texts = [path.read_text() for path in sorted(tmp_path.glob("**/*forward_kernels*"))]
    assert len(texts) == 2
    return texts[1]


def test_a_native_kernel_takes_bits(tmp_path: Any) -> None:
    text = kernel_text(tmp_path, "cpu")
    assert "const i64_ n1 = (i64_)p[3];" in text
    assert text.count("bits_f64(t") >= 2


def test_an_operator_takes_the_float() -> None:
    compiled = stator.compile(lambda x, a: torch.addmm(x, x, x, alpha=a))
    for number in NUMBERS[:3]:
        x = torch.rand(3, 3)
        torch.testing.assert_close(compiled(x, number), torch.addmm(x, x, x, alpha=number))
    assert len(versions_of(compiled)) == 2


def test_another_process_finds_it() -> None:
    def build() -> Callable[..., Any]:
        return stator.compile(lambda x, a: (x * (3 * a)).exp() * a)

    first, second = build(), build()
    for number in NUMBERS[:4]:
        first(torch.ones(3), number)
    with log.collect() as recorder:
        for number in NUMBERS[:4]:
            x = torch.rand(3)
            torch.testing.assert_close(second(x, number), (x * (3 * number)).exp() * number)
    assert [record["hit"] for record in recorder.of(log.CACHE) if record["what"] == "graph"] == [True, True]


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize(
    "function",
    [
        lambda x, a: x * a,
        lambda x, a: x * (a * 2 + 1) / 3,
        lambda x, a: torch.where(x > 0, x, a),
        lambda x, a: x.masked_fill(x < 0, a),
        lambda x, a: torch.full_like(x, a),
        lambda x, a: (x * a).sum(),
    ],
)
def test_on_a_gpu(function: Callable[..., Any], dtype: torch.dtype) -> None:
    compiled = stator.compile(function)
    for number in NUMBERS:
        x = torch.randn(100, device="cuda").to(dtype)
        torch.testing.assert_close(compiled(x, number), function(x, number), equal_nan=True)
    assert len(versions_of(compiled)) <= 4


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
def test_on_a_gpu_nothing_waits() -> None:
    compiled = stator.compile(lambda x, a: (x * a).sin() * (a + 1))
    x = torch.randn(1000, device="cuda", requires_grad=True)
    for number in NUMBERS[:2]:
        compiled(x, number).sum().backward()
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        for number in NUMBERS:
            compiled(x, number).sum().backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert len(versions_of(compiled)) == 2


@pytest.mark.gpu
@pytest.mark.parametrize("foreach", [False, True])
@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.AdamW])
def test_a_learning_rate_on_a_gpu(optimizer: Any, foreach: bool) -> None:
    ours, theirs = (torch.nn.Parameter(torch.ones(4, 4, device="cuda")) for _ in range(2))
    compiled, eager = optimizer([ours], lr=0.1, foreach=foreach), optimizer([theirs], lr=0.1, foreach=foreach)
    step = stator.compile(compiled.step)
    for i in range(6):
        ours.grad = torch.randn(4, 4, device="cuda")
        theirs.grad = ours.grad.clone()
        for owner, update in ((compiled, step), (eager, eager.step)):
            owner.param_groups[0]["lr"] = 0.1 * 0.9**i
            update()
        torch.testing.assert_close(ours, theirs)
    assert len(versions_of(step)) == 2
