"""Six programs as graphs: captured, with their gradients, and divided into forward and backward.

`pytest --accept` writes the goldens; the difference is what a change does to capture, autograd and the partition.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import stator

STAGES = ("captured", "joint", "forward", "backward")


def mlp(x: Tensor, w: Tensor, v: Tensor) -> Tensor:
    return F.relu(x @ w) @ v


def attention(x: Tensor, w: Tensor) -> Tensor:
    q, k, v = (x @ w).chunk(3, -1)
    return F.scaled_dot_product_attention(q, k, v, is_causal=True) + x


def steps(x: Tensor, state: Tensor) -> Tensor:
    """Writes to an input, in a loop."""
    for i in range(2):
        state.mul_(0.5).add_(x[i])
    return state.tanh()


def dropped(x: Tensor, w: Tensor) -> Tensor:
    return F.dropout(F.gelu(x), 0.25) * w


def sized(x: Tensor, y: Tensor) -> Tensor:
    """Sizes are symbols."""
    return torch.cat([x, y]).sum(0) / x.shape[0]


def classified(x: Tensor, table: Tensor, at: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(F.layer_norm(x + table[at], x.shape[-1:]), labels)


def leaf(*size: int) -> Tensor:
    return torch.randn(size, requires_grad=True)


PROGRAMS: dict[str, tuple[Callable[..., Tensor], Callable[[], tuple[Any, ...]]]] = {
    "mlp": (mlp, lambda: (torch.randn(4, 32), leaf(32, 64), leaf(64, 8))),
    "attention": (attention, lambda: (leaf(2, 2, 6, 16), leaf(16, 48))),
    "steps": (steps, lambda: (leaf(2, 5), torch.randn(5))),
    "dropped": (dropped, lambda: (leaf(10, 20), leaf(20))),
    "sized": (sized, lambda: (leaf(3, 7), leaf(4, 7))),
    "classified": (
        classified,
        lambda: (leaf(5, 12), leaf(9, 12), torch.tensor([0, 3, 8, 3, 1]), torch.tensor([0, 11, 2, 2, 5])),
    ),
}


def body(text: str) -> str:
    """The graph's function, without what makes the file a program, and without where the lines of the user's are."""
    function = text[text.index("def ") : text.index("\n\n\ndef inputs")]
    return re.sub(rf"{re.escape(__file__)}:\d+", Path(__file__).name, function).rstrip()


@pytest.mark.parametrize("name", PROGRAMS)
def test_graphs(name: str, tmp_path: Path, golden: Callable[[str, str], None]) -> None:
    function, make = PROGRAMS[name]
    dynamic = True if name == "sized" else None
    options = {"debug": str(tmp_path), "cache": False, "strict": True, "verify": True}
    stator.compile(function, fullgraph=True, dynamic=dynamic, options=options)(*make())
    texts = {stage: [body(path.read_text()) for path in sorted(tmp_path.rglob(f"??_{stage}.py"))] for stage in STAGES}
    assert all(len(found) == 1 for found in texts.values()), texts
    golden(name, "\n\n".join(f"==== {stage}\n\n{text}" for stage, (text,) in texts.items()) + "\n")
