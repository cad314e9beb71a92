"""Kernels that stator writes for graphs, as a GPU's code on the CPU: parts of models as they are trained and served."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from stator.targets import typical
from tests.codegen import tiled
from tests.tile.nvidia import emulated

aten = torch.ops.aten
BF16 = torch.bfloat16


def layer_norm_gradients(g: Tensor, x: Tensor, w: Tensor, b: Tensor) -> tuple[Tensor, ...]:
    y, mean, rstd = aten.native_layer_norm(x.float(), [x.shape[-1]], w, b, 1e-5)
    found = aten.native_layer_norm_backward(g.float(), x.float(), [x.shape[-1]], mean, rstd, w, b, [True] * 3)
    return (y.to(BF16), (found[0] + g).to(BF16), *found[1:])


def batch_norm_relu(x: Tensor, w: Tensor, b: Tensor) -> tuple[Tensor, ...]:
    y, mean, rstd = aten.native_batch_norm(x, w, b, None, None, True, 0.1, 1e-5)
    return F.relu(y), mean, rstd


def batch_norm_gradients(g: Tensor, x: Tensor, w: Tensor, b: Tensor) -> tuple[Tensor, ...]:
    _, mean, rstd = aten.native_batch_norm(x, w, b, None, None, True, 0.1, 1e-5)
    return tuple(aten.native_batch_norm_backward(g, x, w, None, None, mean, rstd, True, 1e-5, [True] * 3))


def heads(x: Tensor) -> tuple[Tensor, Tensor]:
    q, k, _ = x.split(x.shape[-1] // 3, -1)
    return tuple([part.reshape(*x.shape[:2], 4, -1).transpose(1, 2).contiguous() for part in (q, k)])  # type: ignore[return-value]


def image(*shape: int) -> Tensor:
    return torch.randn(shape).to(BF16).to(memory_format=torch.channels_last)


#: A part of a model, and what it takes.
PARTS: dict[str, tuple[Callable[..., Any], Callable[[], tuple[Tensor, ...]]]] = {
    "layer norm, gradients": (
        layer_norm_gradients,
        lambda: (torch.randn(64, 96).to(BF16), torch.randn(64, 96).to(BF16), torch.randn(96), torch.randn(96)),
    ),
    "gelu": (F.gelu, lambda: (torch.randn(8, 512).to(BF16) * 3,)),
    "gelu by tanh": (lambda x: F.gelu(x, approximate="tanh"), lambda: (torch.randn(8, 512).to(BF16) * 3,)),
    "heads": (heads, lambda: (torch.randn(2, 16, 3 * 64).to(BF16),)),
    "batch norm": (batch_norm_relu, lambda: (image(2, 32, 8, 8), torch.randn(32), torch.randn(32))),
    "batch norm, gradients": (
        batch_norm_gradients,
        lambda: (image(2, 32, 8, 8), image(2, 32, 8, 8), torch.randn(32), torch.randn(32)),
    ),
    "max pool": (lambda x: F.max_pool2d(x, 3, 2, 1), lambda: (image(2, 32, 8, 8),)),
    "cross entropy": (
        lambda x, y: F.cross_entropy(x.float(), y),
        lambda: (torch.randn(24, 257).to(BF16), torch.randint(0, 257, (24,))),
    ),
    "embedding, gradient": (
        lambda g, i: aten.embedding_dense_backward(g, i, 40, -1, False),
        lambda: (torch.randn(4, 16, 48), torch.randint(0, 40, (4, 16))),
    ),
    "softmax": (lambda x: (x.float() * 0.125).softmax(-1).to(BF16), lambda: (torch.randn(16, 1000).to(BF16),)),
}


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch, few_objects: None) -> None:
    """Kernels run thread by thread, and a refusal is an error."""
    monkeypatch.setenv("STATOR_TILE_CODE", "1")
    monkeypatch.setenv("STATOR_TILE_STRICT", "1")
    monkeypatch.setattr(sys.modules["stator.tile.jit"], "code_of", emulated.code_of)


@pytest.mark.parametrize("name", PARTS)
def test_parts_of_models_agree_with_eager(name: str, threads: None, tmp_path: Path) -> None:
    torch.manual_seed(0)
    function, made = PARTS[name]
    given = made()
    schedule, lifted = tiled.scheduled(function, *given)
    found = tiled.run(schedule, lifted, tmp_path, record=typical("cuda"))
    wanted = function(*given)
    for ours, theirs in zip(found, wanted if isinstance(wanted, tuple) else (wanted,), strict=True):
        places = 2e-2 if theirs.dtype == BF16 else 1e-3
        torch.testing.assert_close(ours.reshape(theirs.shape), theirs, rtol=places, atol=places)
