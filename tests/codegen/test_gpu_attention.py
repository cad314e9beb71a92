"""Attention by kernels of ours on a GPU: random sizes, heads, layouts and blocks against float64; and as models ask."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from stator.kernel.attention import Rows, candidates
from stator.loop.attention import Attention
from stator.targets import typical
from tests.codegen.test_attention import EFFICIENT, FLASH, FLASH_BACK, SHAPES, Graph, close, exact, heads

pytestmark = pytest.mark.gpu


def blocks(kind: str, shape: tuple[Any, ...], dtype: str = "bf16") -> list[Rows]:
    """All blocks that are tried for a kernel."""
    batches, count, shared, queries, keys, width, causal = shape
    made = Attention(kind, dtype, batches, count, count // shared, queries, keys, width, width, (), 1.0, causal)
    return candidates(made, typical("cuda"))


def random_shape(pick: random.Random) -> tuple[Any, ...]:
    shared, group = pick.choice([1, 2, 3]), pick.choice([1, 1, 2, 4])
    causal = pick.random() < 0.5
    queries = pick.choice([1, 7, 64, 65, 100, 128, 197, 256, 500, 1024])
    keys = queries if causal else pick.choice([1, 9, 64, 100, 128, 333, 512, 1000])
    width = pick.choice([16, 24, 32, 40, 64, 64, 72, 80, 96, 128, 128, 160, 256])
    return pick.choice([1, 2, 3]), shared * group, shared, queries, keys, width, causal


@pytest.mark.parametrize("seed", range(60))
def test_random_forward(seed: int, tmp_path: Path) -> None:
    pick = random.Random(seed)
    torch.manual_seed(seed)
    shape = batches, count, shared, queries, keys, width, causal = random_shape(pick)
    dtype, inside = pick.choice([torch.bfloat16, torch.float16]), pick.random() < 0.5
    q = heads(batches, count, queries, width, dtype, inside)
    k, v = (heads(batches, shared, keys, width, dtype, inside) for _ in range(2))
    made = Graph()
    node = made.call(FLASH, *map(made.given, (q, k, v)), 0.0, causal)
    rows = pick.choice(blocks("forward", shape))
    o, logs = made.run([made.part(node, 0), made.part(node, 1)], tmp_path, rows, "cuda")
    torch.cuda.synchronize()
    wanted, sums = exact(q.double().cuda(), k.double().cuda(), v.double().cuda(), None, causal, None)
    try:
        close(o, wanted)
        close(logs, sums)
    except AssertionError as error:
        raise AssertionError(f"{shape} {dtype} {rows}: {error}") from error


@pytest.mark.parametrize("seed", range(40))
def test_random_backward(seed: int, tmp_path: Path) -> None:
    pick = random.Random(seed + 1000)
    torch.manual_seed(seed)
    shape = random_shape(pick)
    while shape[4] == 1:  # scores have no gradients there, and only their errors would be compared
        shape = random_shape(pick)
    batches, count, shared, queries, keys, width, causal = shape
    q, g = (heads(batches, count, queries, width, torch.bfloat16) for _ in range(2))
    k, v = (heads(batches, shared, keys, width, torch.bfloat16) for _ in range(2))
    wide = [x.double().cuda().requires_grad_() for x in (q, k, v)]
    wanted, sums = exact(*wide, None, causal, None)
    wanted.backward(g.double().cuda())
    made = Graph(rounds=seed % 2 == 0)
    given = [made.given(x) for x in (g, q, k, v, wanted.detach().bfloat16().cpu(), sums.detach().float().cpu())]
    seeds = [made.given(torch.zeros(())) for _ in range(2)]
    node = made.call(FLASH_BACK, *given, None, None, queries, keys, 0.0, causal, *seeds)
    rows = pick.choice([None, *{*blocks("keys", shape)} & {*blocks("queries", shape)}])
    found = made.run([made.part(node, i) for i in range(3)], tmp_path, rows, "cuda")
    torch.cuda.synchronize()
    for name, ours, leaf in zip("qkv", found, wide, strict=True):
        try:
            close(ours, leaf.grad, 6.0)
        except AssertionError as error:
            raise AssertionError(f"d{name} {shape} {rows}: {error}") from error


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_block(shape: tuple[Any, ...], tmp_path: Path) -> None:
    batches, count, shared, queries, keys, width, causal = shape
    q = heads(batches, count, queries, width, torch.bfloat16)
    k, v = (heads(batches, shared, keys, width, torch.bfloat16) for _ in range(2))
    for rows in blocks("forward", shape):
        made = Graph()
        node = made.call(FLASH, *map(made.given, (q, k, v)), 0.0, causal)
        (o,) = made.run([made.part(node, 0)], tmp_path, rows, "cuda")
        close(o, exact(q.double().cuda(), k.double().cuda(), v.double().cuda(), None, causal, None)[0])


@pytest.mark.parametrize("sizes", [(2, 4, 200, 200), (1, 1, 200, 333), (2, 1, 1, 333)])
def test_a_bias(sizes: tuple[int, ...], tmp_path: Path) -> None:
    q, k, v = (heads(2, 4, n, 64, torch.bfloat16) for n in (200, sizes[-1], sizes[-1]))
    bias = torch.randn(sizes).bfloat16().masked_fill(torch.rand(sizes) < 0.3, -torch.inf)
    expanded = bias.expand(2, 4, 200, sizes[-1])
    made = Graph()
    node = made.call(EFFICIENT, *map(made.given, (q, k, v, expanded)), True, 0.0, False, scale=0.3)
    (o,) = made.run([made.part(node, 0)], tmp_path, None, "cuda")
    wide = [x.double().cuda() for x in (q, k, v, expanded)]
    close(o, exact(*wide, False, 0.3)[0])


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("backend", ["FLASH_ATTENTION", "EFFICIENT_ATTENTION"])
def test_compiled_with_gradients(backend: str, causal: bool) -> None:
    """By rule it is ours where PyTorch takes one of these; the kernels are those of the plan."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    import stator

    q, k, v = (torch.randn(2, 4, 128, 64, device="cuda", dtype=torch.bfloat16).requires_grad_() for _ in range(3))

    def step(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal) * 2

    with sdpa_kernel(getattr(SDPBackend, backend)):
        explained = stator.explain(step)(q, k, v)
        print(explained)
        assert not [name for name in explained.externs if "attention" in name]
        explained.result.float().square().sum().backward()
    found = [x.grad.clone() for x in (q, k, v)]
    wide = [x.detach().double().requires_grad_() for x in (q, k, v)]
    wanted = F.scaled_dot_product_attention(*wide, is_causal=causal) * 2
    close(explained.result, wanted.detach())
    wanted.square().sum().backward()
    for ours, leaf in zip(found, wide, strict=True):
        close(ours, leaf.grad, 12.0)
