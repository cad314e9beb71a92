"""Symbolic sizes through every stage: programs compiled once for all sizes give what eager gives, gradients too."""

from __future__ import annotations

import pytest
import torch

import stator
from stator.base import log
from stator.capture.entry import versions_of
from tests.capture.changing_sizes import rand, same
from tests.capture.test_dynamic import PROGRAMS

SHAPES = [(4, 6), (5, 7), (9, 8), (12, 3), (33, 40)]


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_of_sizes(name: str) -> None:
    program = PROGRAMS[name]
    compiled = stator.compile(program, fullgraph=True)
    with log.collect() as recorder:
        for shape in SHAPES:
            x = rand(*shape)
            same(compiled(x), program(x))
    refusals = [r["reason"] for r in recorder.of(log.RECOMPILE) if "are not symbolic" in r["reason"]]
    assert not refusals
    assert len(versions_of(compiled)) <= 3


def test_training_with_growing_batches() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.LayerNorm(8), torch.nn.GELU(), torch.nn.Linear(8, 3))
    compiled = stator.compile(model, fullgraph=True)
    for rows in (2, 3, 7, 64, 5):
        x = torch.randn(rows, 6)
        found = torch.autograd.grad(compiled(x).square().mean(), list(model.parameters()))
        expected = torch.autograd.grad(model(x).square().mean(), list(model.parameters()))
        for ours, theirs in zip(found, expected, strict=True):
            torch.testing.assert_close(ours, theirs)
    assert len(versions_of(compiled)) == 2


def test_attention_over_lengths() -> None:
    def f(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        _, t, d = q.shape
        mask = torch.arange(t)[:, None] >= torch.arange(k.size(1))
        scores = (q @ k.transpose(1, 2)).masked_fill(~mask, float("-inf")) / d**0.5
        return torch.softmax(scores, -1) @ k

    compiled = stator.compile(f, fullgraph=True)
    for batch, length in ((2, 8), (3, 9), (2, 31), (5, 16)):
        q, k = torch.randn(batch, length, 16), torch.randn(batch, length, 16)
        torch.testing.assert_close(compiled(q, k), f(q, k))
    assert len(versions_of(compiled)) == 2


def test_a_cache_that_grows() -> None:
    def f(cache: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
        return torch.cat([cache, new], 1)

    compiled = stator.compile(f, fullgraph=True)
    cache = expected = torch.randn(2, 3, 4)
    for _ in range(8):
        new = torch.randn(2, 1, 4)
        cache, expected = compiled(cache, new), f(expected, new)
        torch.testing.assert_close(cache, expected)
    assert len(versions_of(compiled)) == 2


def test_an_int_reaches_the_kernels() -> None:
    def f(x: torch.Tensor, n: int) -> torch.Tensor:
        return torch.arange(n) * n + x[:n].sum()

    compiled = stator.compile(f, fullgraph=True)
    for n in (3, 4, 5, 9):
        x = torch.randn(10)
        torch.testing.assert_close(compiled(x, n), f(x, n))
    assert len(versions_of(compiled)) == 2
