"""A training step with dropout on a GPU: slices and seeds as moved arguments, indices checked on the device."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest
import torch

from stator import driver
from stator.base.options import Options
from tests.aot.models import GPT, captured

pytestmark = pytest.mark.gpu

WRONG = """
import torch
from tests.codegen.test_gpu_training import step
call, tokens = step(0.0)
tokens[0, 0] = 99
call(tokens, tokens.clamp(max=31))
torch.cuda.synchronize()
"""


def step(dropout: float) -> tuple[Callable[..., tuple[torch.Tensor, ...]], torch.Tensor]:
    """A compiled GPT in training, as a function of tokens and targets, and tokens for it."""
    torch.manual_seed(0)
    model = GPT(vocabulary=32, length=8, width=64, layers=3, heads=2, dropout=dropout).cuda()
    tokens = torch.randint(0, 32, (2, 8), device="cuda")
    gm = captured(model, [tokens, tokens])
    return driver.compile_graph(gm, [tokens, tokens], options=Options(cache=False)), tokens


def test_dropout_follows_the_seed() -> None:
    call, tokens = step(0.5)
    losses = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        loss = call(tokens, tokens)[1]
        loss.backward()
        losses.append(loss.item())
    assert losses[0] == losses[1] != losses[2]


def test_an_index_out_of_range_stops_the_device() -> None:
    done = subprocess.run([sys.executable, "-c", WRONG], check=False, capture_output=True, text=True)
    assert done.returncode != 0 and "index out of range" in done.stderr + done.stdout
