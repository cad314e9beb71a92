"""Products in tiles on a GPU: random sizes, layouts, dtypes, tilings and readers against float64."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import stator
from stator.base import log
from stator.kernel.matmul import Tiling, candidates, matmul_of
from stator.targets import typical
from tests.codegen import tiled
from tests.codegen.test_matmul import BATCHES, READERS, close, turned

pytestmark = pytest.mark.gpu

SIDES = [1, 2, 3, 7, 8, 16, 17, 31, 32, 33, 48, 64, 65, 100, 128, 129, 200, 256, 257, 384, 500, 512, 768, 1000, 1024]


def on_gpu(fn: Any, inputs: tuple[Tensor, ...], folder: Path, pick: random.Random | None = None) -> None:
    """The first result of a function whose products are tiles, of the first tiling or of any."""
    inputs = tuple([x.cuda() for x in inputs])
    made, given = tiled.scheduled(fn, *[x.cpu() for x in inputs])
    device = typical("cuda")
    found = {kernel: product for kernel in made.kernels if (product := matmul_of(kernel, device))}
    tilings: dict[Any, Tiling] = {}
    for kernel, product in found.items():
        fitting = candidates(product, device)
        tilings[kernel] = pick.choice(fitting) if pick else fitting[0]
    (result,) = tiled.run(made, [x.cuda() for x in given], folder, tilings)
    torch.cuda.synchronize()
    try:
        close(result, fn, list(inputs))
    except AssertionError as error:
        raise AssertionError(f"{[tuple(x.shape) for x in inputs]} {inputs[0].dtype} {tilings.values()}") from error


@pytest.mark.parametrize("seed", range(120))
def test_random_products(seed: int, tmp_path: Path) -> None:
    pick = random.Random(seed)
    torch.manual_seed(seed)
    dtype = pick.choice([torch.bfloat16, torch.float16, torch.bfloat16, torch.float32])
    rows, columns = pick.choice(SIDES[1:]), pick.choice(SIDES[1:])
    terms = pick.choice(SIDES[1:])
    a, b = torch.randn(rows, terms, dtype=dtype), torch.randn(terms, columns, dtype=dtype)
    if pick.random() < 0.3:  # as a part of a larger one
        wide = torch.randn(rows, terms + pick.choice([1, 8]), dtype=dtype)
        a = wide[:, :terms]
    a, b = turned(a, pick.random() < 0.5), turned(b, pick.random() < 0.5)
    bias, rest = torch.randn(columns, dtype=dtype), torch.randn(rows, columns, dtype=dtype)
    fn: Any = pick.choice([
        lambda a, b, bias, rest: a @ b,
        lambda a, b, bias, rest: torch.addmm(bias, a, b),
        lambda a, b, bias, rest: F.gelu(torch.addmm(bias, a, b)) + rest,
        lambda a, b, bias, rest: F.silu(a @ b) * rest,
        lambda a, b, bias, rest: (a @ b).float() * 0.5,
        lambda a, b, bias, rest: torch.tanh(a @ b + bias),
        lambda a, b, bias, rest: (a @ b).mT.contiguous(),
    ])  # fmt: skip
    on_gpu(fn, (a, b, bias, rest), tmp_path, pick)


@pytest.mark.parametrize("name", READERS)
def test_readers(name: str, tmp_path: Path) -> None:
    if name != "causal":  # makes a mask of its own on the host
        on_gpu(READERS[name][0], READERS[name][1], tmp_path)


@pytest.mark.parametrize("name", BATCHES)
def test_batches(name: str, tmp_path: Path) -> None:
    on_gpu(BATCHES[name][0], BATCHES[name][1], tmp_path)


@pytest.mark.parametrize("batches", [1, 5, 40])
def test_random_batches(batches: int, tmp_path: Path) -> None:
    for seed in range(4):
        pick = random.Random(seed)
        rows, terms, columns = (pick.choice(SIDES[1:18]) for _ in range(3))
        a = turned(torch.randn(batches + 1, rows, terms, dtype=torch.bfloat16)[1:], pick.random() < 0.5)
        b = turned(torch.randn(batches, terms, columns, dtype=torch.bfloat16), pick.random() < 0.5)
        on_gpu(lambda a, b: torch.bmm(a, b) * 0.5, (a, b), tmp_path, pick)


@pytest.mark.parametrize("size", [2048, 4096])
def test_large_products(size: int, tmp_path: Path) -> None:
    a, b = (torch.randn(size, size, dtype=torch.bfloat16) for _ in range(2))
    on_gpu(lambda a, b: a @ b, (a, b), tmp_path)
    on_gpu(lambda a, b: F.relu(a @ b.mT), (a, b), tmp_path)


def test_by_measurement(tmp_path: Path) -> None:
    """Every product is measured once; a second compilation finds what was measured."""
    torch.manual_seed(0)
    x, w, b = (
        torch.randn(512, 768).cuda().bfloat16(),
        torch.randn(3072, 768).cuda().bfloat16(),
        torch.randn(3072).cuda().bfloat16(),
    )

    def step(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        return F.gelu(F.linear(x, w, b))

    def again(x: Tensor, w: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        return F.gelu(F.linear(x, w, b)), x * 2  # another graph, with the same kernel in it

    options = {"autotune": True, "cache_dir": str(tmp_path)}
    explained = stator.explain(step, options=options)(x, w, b)
    print(explained)
    assert len(explained.products) == 1
    close(explained.result, step, [x, w, b])
    entries = {path.name for path in tmp_path.rglob("*") if "tiles-" in path.name or "product-" in path.name}
    assert any("tiles-" in name for name in entries) and any("product-" in name for name in entries)
    stator.reset()
    assert stator.explain(again, options=options)(x, w, b).products == explained.products
    after = {path.name for path in tmp_path.rglob("*") if "tiles-" in path.name or "product-" in path.name}
    assert after == entries


def test_by_measurement_of_sizes_that_change(tmp_path: Path) -> None:
    """At those of the first call that they are symbolic in; what was found serves all of them."""
    torch.manual_seed(0)
    w, b = torch.randn(3072, 768).cuda().bfloat16(), torch.randn(3072).cuda().bfloat16()

    def step(x: Tensor) -> Tensor:
        return F.silu(F.linear(x, w, b))

    call = stator.compile(step, options={"autotune": True, "cache_dir": str(tmp_path)})
    found: list[list[Any]] = []
    for rows in (512, 304, 1000, 77):
        x = torch.randn(rows, 768).cuda().bfloat16()
        with log.collect() as recorder:
            result = call(x)
        close(result, lambda x: F.silu(F.linear(x, w.to(x.dtype), b.to(x.dtype))), [x])
        found.append([recorder.of(log.PRODUCT), recorder.of(log.TILING)])
    print(found)
    assert all(found[1]) and not any([*found[2], *found[3]]), "the second number of rows is that of all others"
