"""Symbolic sizes from end to end: one artifact for many sizes, found again by another process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import stator
from stator.base import log

Sizes = list[tuple[int, ...]]


def flat(out: Any) -> list[Any]:
    return list(out) if isinstance(out, (tuple, list)) else [out]


def compare(function: Callable[..., Any], make: Callable[..., list[Any]], sizes: Sizes, backend: str) -> None:
    """Results and gradients are eager's for all sizes, of one compiled graph."""
    torch.manual_seed(0)
    compiled = stator.compile(function, dynamic=True, fullgraph=True, backend=backend)
    parameters = list(function.parameters()) if isinstance(function, nn.Module) else []
    with log.collect() as recorder:
        for size in sizes:
            inputs = make(*size)
            leaves = [t for t in (*inputs, *parameters) if isinstance(t, torch.Tensor) and t.requires_grad]
            runs = []
            for call in (compiled, function):
                results = flat(call(*inputs))
                roots = [t for t in results if isinstance(t, torch.Tensor) and t.requires_grad]
                loss = sum((t * torch.arange(1.0, t.numel() + 1).view(t.shape)).mean() for t in roots)
                gradients = torch.autograd.grad(loss, leaves) if isinstance(loss, torch.Tensor) else ()
                runs.append([*results, *gradients])
            for a, b in zip(*runs, strict=True):
                if isinstance(b, torch.Tensor):
                    assert (a.shape, a.stride()) == (b.shape, b.stride())
                    torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-4)
                else:
                    assert a == b
    assert sum(span.name == "backend" for span in recorder.spans) == 1


def randn(*size: int) -> torch.Tensor:
    return torch.randn(*size, requires_grad=True)


class Attention(nn.Module):
    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t, width = x.shape
        q, k, v = (y.view(b, t, 2, width // 2).transpose(1, 2) for y in self.qkv(self.norm(x)).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + self.out(y.transpose(1, 2).reshape(b, t, width))


class Language(nn.Module):
    """A small model of tokens: logits and loss."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(31, 8), nn.Embedding(64, 8)
        self.blocks = nn.Sequential(Attention(), Attention())

    def forward(self, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = self.blocks(self.tokens(tokens) + self.places(torch.arange(tokens.shape[1])))
        logits = x @ self.tokens.weight.t()
        return logits, F.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())


SIZES: Sizes = [(6, 9), (4, 7), (11, 3), (2, 16), (33, 64)]
PROGRAMS: dict[str, tuple[Callable[..., Any], Callable[..., list[Any]], Sizes]] = {
    "pointwise": (lambda x, y: (x * y + 1).relu(), lambda n, m: [randn(n, m), randn(n, m)], SIZES),
    "softmax": (lambda x: (F.softmax(x, -1), x.shape[0] * 2), lambda n, m: [randn(n, m)], SIZES),
    "views": (lambda x: (y := x * 2, y.t(), y[1:].flatten()), lambda n, m: [randn(n, m)], [(6, 9), (4, 7), (33, 2)]),
    "reductions": (lambda x: (x.mean(), x.var(0), x.sum(1)), lambda n, m: [randn(n, m)], SIZES),
    "product": (lambda x, y: x @ y.t(), lambda n, m: [randn(n, m), randn(n, m)], SIZES),
    "number": (lambda x, n: x[:, :n] * n, lambda b, n: [randn(b, 70), n], SIZES),
    "mlp": (
        nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 8)),
        lambda n: [randn(n, 8)],
        [(3,), (7,), (12,), (200,)],
    ),
    "attention": (Attention(), lambda b, t: [randn(b, t, 8)], [(2, 5), (3, 9), (8, 32)]),
    "language": (Language(), lambda b, t: [torch.randint(0, 31, (b, t))], [(2, 6), (3, 9), (5, 31), (2, 64)]),
    "products": (
        lambda x, y: (x @ y[0], y.mT @ x[0, 0], torch.matmul(x, y), x[0, 0] @ y, F.linear(y.mT, x[0])),
        lambda b, n: [randn(b, n, 7), randn(b, 7, 3)],
        [(5, 8), (2, 9), (11, 32)],
    ),
    "heads": (
        nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True),
        lambda b, t: [randn(b, t, 8)],
        [(2, 5), (3, 9), (6, 32)],
    ),
    "steps": (lambda x: x * torch.linspace(-1, 3, x.shape[0]), lambda n: [randn(n)], [(5,), (8,), (33,)]),
    "convolution": (
        nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4).eval(), nn.ReLU(), nn.AvgPool2d(2)),
        lambda b, n: [randn(b, 3, n, n + 2)],
        [(5, 8), (2, 10), (9, 12)],
    ),
}


@pytest.mark.parametrize("backend", ["inductor", "aot_eager", "eager"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_one_graph_for_many_sizes(name: str, backend: str) -> None:
    compare(*PROGRAMS[name], backend)


def test_decisions_of_the_backend_are_guards() -> None:
    """A graph that was traced for few rows is not used for many."""

    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x.view(-1, 2) * y  # an even number of elements, and as many rows as `y` has, unless it has one

    compiled = stator.compile(f, dynamic=True, fullgraph=True)
    for n, rows in ((8, 4), (12, 6), (10, 1), (4, 2)):
        x, y = torch.randn(n), torch.randn(rows, 2)
        torch.testing.assert_close(compiled(x, y), f(x, y))
    with pytest.raises(RuntimeError):
        compiled(torch.randn(12), torch.randn(5, 2))


def test_random_numbers_follow_the_sizes() -> None:
    compiled = stator.compile(lambda x: (F.dropout(x, 0.5), torch.rand_like(x)), dynamic=True, fullgraph=True)
    for n, m in SIZES:
        torch.manual_seed(n)
        dropped, uniform = compiled(torch.ones(n, m))
        torch.manual_seed(n)
        again, _ = compiled(torch.ones(n, m))
        assert torch.equal(dropped, again) and dropped.shape == uniform.shape == (n, m)
        assert set(dropped.unique().tolist()) <= {0.0, 2.0} and uniform.min() >= 0 and uniform.max() < 1


SCRIPT = """
import json, sys
import torch, stator
from stator.base import log

def f(x, y):
    return (x[1:].softmax(-1) @ y).relu().sum(0)

n, m = map(int, sys.argv[1:])
with log.collect() as recorder:
    compiled = stator.compile(f, dynamic=True, fullgraph=True, options={"strict": True})
    for n, m in ((n, m), (n + 3, m + 5), (2 * n, 3)):
        x, y = torch.randn(n, m, requires_grad=True), torch.randn(m, 5)
        out = compiled(x, y)
        torch.testing.assert_close(out, f(x, y))
        (got,), (expected,) = [torch.autograd.grad(r.sum(), x) for r in (out, f(x, y))]
        torch.testing.assert_close(got, expected, atol=1e-5, rtol=1e-4)
guards = [g for record in recorder.of("guards") for g in record["guards"] if "size" in g]
print(json.dumps([[span.name for span in recorder.spans], guards]))
"""


def run(folder: Path, *size: int) -> tuple[list[str], list[str]]:
    root = str(Path(stator.__file__).parents[1])
    environment = {**os.environ, "STATOR_CACHE_DIR": str(folder), "PYTHONPATH": root, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", SCRIPT, *map(str, size)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=environment, check=True, timeout=120)
    spans, guards = json.loads(done.stdout)
    return spans, guards


def test_another_process_finds_the_graph_for_its_sizes(tmp_path: Path) -> None:
    spans, guards = run(tmp_path, 12, 6)
    assert spans.count("trace") == 1 and spans.count("backend") == 1
    again, same_guards = run(tmp_path, 13, 7)
    assert "trace" not in again and again.count("backend") == 1
    assert same_guards == guards


def test_mapped_functions_of_symbolic_sizes_are_stored_and_told_apart(tmp_path: Path) -> None:
    """What is mapped has inputs without values, whose sizes are symbols of the graph around it."""

    def rows(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.vmap(lambda a, b: (a * b.exp()).cumsum(0), (0, None))(x, y)

    def columns(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.vmap(lambda a, b: (a * b.exp()).sum(0) + a, (1, None), 1)(x, y.new_ones(x.size(0)))

    for function in (rows, columns):
        for first in (True, False):
            options = {"cache_dir": str(tmp_path), "strict": True}
            compiled = stator.compile(function, dynamic=True, fullgraph=True, options=options)
            with log.collect() as recorder:
                for n, m in ((4, 6), (5, 7), (9, 3)):
                    x, y = torch.randn(n, m), torch.randn(m)
                    torch.testing.assert_close(compiled(x, y), function(x, y))
            hits = [facts["hit"] for facts in recorder.of(log.CACHE) if facts.get("what") == "graph"]
            assert hits == [not first], "one graph for all sizes, in the store from the first one on"
