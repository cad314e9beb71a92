"""Products in tiles: the text's numbers on the CPU, in every layout, of odd sizes, with what follows them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from stator.codegen import triton
from stator.kernel.matmul import Tiling, matmul_of
from stator.loop import tables
from stator.targets import typical
from tests.codegen import tiled

#: rows, terms, columns
SIZES = [(33, 48, 70), (64, 96, 128), (128, 33, 40), (3, 100, 65), (130, 64, 16), (17, 7, 19)]
#: Tilings in which rows, columns and terms are left over.
TILINGS = [Tiling(16, 32, 16, 2, 1), Tiling(32, 16, 32, 3, 2, 2, persistent=True), Tiling(64, 64, 64, 2, 4)]


def turned(a: Tensor, turn: bool) -> Tensor:
    return a.mT.contiguous().mT if turn else a


def close(found: Tensor, fn: Callable[..., Any], inputs: list[Tensor]) -> None:
    """As near to float64 as eager is, within a rounding; of float32, which libraries add up in parts, within some."""
    exact = fn(*[x.double() if x.is_floating_point() else x for x in inputs])
    eager = fn(*inputs)
    times, steps = (3.0, 8.0) if found.dtype is torch.float32 else (1.5, 1.0)
    ours, theirs = (x.double() - exact for x in (found, eager))
    bound = theirs.abs().max() * times + steps * torch.finfo(found.dtype).eps * exact.abs().max()
    assert found.shape == eager.shape and torch.isfinite(found).all()
    assert ours.abs().max() <= bound, (ours.abs().max(), bound)


def agree(fn: Callable[..., Any], *inputs: Tensor, folder: Path, tiling: Tiling | None = None, kernels: int = 1) -> str:
    made, given = tiled.scheduled(fn, *inputs)
    products = [kernel for kernel in made.kernels if matmul_of(kernel, typical("cuda"))]
    assert products and len(made.kernels) == kernels, made.text()
    (found,) = tiled.run(made, given, folder, dict.fromkeys(products, tiling) if tiling else {})
    close(found, fn, list(inputs))
    return made.text()


LAYOUTS = [(False, False), (False, True), (True, False), (True, True)]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("number", range(len(SIZES)))
def test_layouts_and_sizes(number: int, dtype: torch.dtype, tmp_path: Path) -> None:
    rows, terms, columns = SIZES[number]
    a, b = torch.randn(rows, terms, dtype=dtype), torch.randn(terms, columns, dtype=dtype)
    for i, tiling in enumerate((*TILINGS, None)):
        layout = LAYOUTS[(i + number) % len(LAYOUTS)]
        agree(torch.mm, turned(a, layout[0]), turned(b, layout[1]), folder=tmp_path, tiling=tiling)


HALF = torch.bfloat16
X, W, V = torch.randn(2, 21, 40, dtype=HALF), torch.randn(48, 40, dtype=HALF), torch.randn(48, 40, dtype=HALF)
BIAS, REST = torch.randn(48, dtype=HALF), torch.randn(2, 21, 48, dtype=HALF)
ROWS, COLUMNS = torch.rand(2, 21, 1), torch.rand(48)
READERS: dict[str, tuple[Callable[..., Any], tuple[Tensor, ...]]] = {
    "bias": (F.linear, (X, W, BIAS)),
    "relu": (lambda x, w, b: F.relu(F.linear(x, w, b)), (X, W, BIAS)),
    "gelu": (lambda x, w, b: F.gelu(F.linear(x, w, b)), (X, W, BIAS)),
    "tanh_gelu": (lambda x, w: F.gelu(F.linear(x, w), approximate="tanh"), (X, W)),
    "residual": (lambda x, w, r: r + F.linear(x, w), (X, W, REST)),
    "float_result": (lambda x, w: F.linear(x, w).float(), (X, W)),
    "scales": (lambda x, w, r, c: (F.linear(x, w).float() * r * c).bfloat16(), (X, W, ROWS, COLUMNS)),
    "causal": (lambda x, w: F.linear(x, w).masked_fill(torch.arange(48) > torch.arange(21)[:, None], -1.0), (X, W)),
    "heads": (lambda x, w: F.linear(x, w).view(2, 21, 4, 12).transpose(1, 2) * 2, (X, W)),
    "turned": (lambda x, w: F.linear(x, w).mT.contiguous(), (X, W)),
    "gated": (lambda x, w, v: F.silu(F.linear(x, w)) * F.linear(x, v), (X, W, V)),
    "half": (lambda x, w: F.linear(x, w)[..., ::2] + 1, (X, W)),
}


@pytest.mark.parametrize("name", READERS)
def test_what_is_computed_of_a_product(name: str, tmp_path: Path) -> None:
    fn, inputs = READERS[name]
    apart = {"half": 2}  # another number of results
    text = agree(fn, *inputs, folder=tmp_path, tiling=Tiling(32, 32, 32, 2, 2), kernels=apart.get(name, 1))
    assert text.count("sum(") == 1 + (name == "gated"), text


def test_several_results(tmp_path: Path) -> None:
    made, given = tiled.scheduled(lambda x, w: (F.linear(x, w), F.relu(F.linear(x, w)), F.linear(x, w).float()), X, W)
    assert len(made.kernels) == 1, made.text()
    plain, positive, wide = tiled.run(made, given, tmp_path)
    close(plain, F.linear, [X, W])
    assert torch.equal(F.relu(plain), positive) and torch.equal(plain.float(), wide)


A, B, TURNED = (torch.randn(size).half() for size in ((3, 20, 33), (3, 33, 18), (3, 18, 33)))
SHARED, HEADS = torch.randn(1, 33, 18).half().expand(3, 33, 18), torch.randn(2, 9, 3, 16).half()
BATCHES: dict[str, tuple[Callable[..., Any], tuple[Tensor, ...]]] = {
    "plain": (torch.bmm, (A, B)),
    "turned": (lambda a, b: torch.bmm(a, b.mT), (A, TURNED)),
    "shared": (torch.matmul, (A, SHARED)),
    "heads": (lambda a, b: a.transpose(1, 2) @ b.permute(0, 2, 3, 1), (HEADS, HEADS.clone())),
    "scaled": (lambda a, b: torch.bmm(a, b) * 0.125 + 1, (A, B)),
}


@pytest.mark.parametrize("name", BATCHES)
def test_batches(name: str, tmp_path: Path) -> None:
    fn, inputs = BATCHES[name]
    agree(fn, *inputs, folder=tmp_path, tiling=Tiling(16, 16, 16, 2, 1))


def test_a_reduction_of_results_is_another_kernel(tmp_path: Path) -> None:
    """Even where there is nothing else to share a kernel with."""
    agree(lambda x, w: F.linear(x, w).float().softmax(-1), X, W, folder=tmp_path, kernels=2)
    agree(lambda x, w: F.layer_norm(F.linear(x, w), (48,)), X, W, folder=tmp_path, kernels=2)


def test_products_in_a_chain(tmp_path: Path) -> None:
    inputs = (torch.randn(32, 32).half(), torch.randn(32, 32).half(), torch.randn(32, 32).half())
    agree(lambda a, b, c: F.relu(a @ b) @ c, *inputs, folder=tmp_path, kernels=2)


def test_many_terms_of_few_results_are_split(tmp_path: Path) -> None:
    """Pieces of the terms are a batch; another kernel adds them up, with what is computed of the results."""
    x, w, b = torch.randn(24, 2050).half(), torch.randn(40, 2050).half(), torch.randn(40).half()
    text = agree(lambda x, w, b: F.relu(F.linear(x, w, b)), x, w, b, folder=tmp_path, kernels=2)
    assert "x0 < 4, x1 < 24, x2 < 40" in text or "x2 < 4" in text, text


def test_a_weight_that_is_read_once_is_computed_where_it_is_read(tmp_path: Path) -> None:
    """Of few rows, a tile has all: a weight in eight bits is never in memory as anything else."""

    def dequantized(x: Tensor, w: Tensor, scale: Tensor) -> Tensor:
        return F.linear(x, w.to(x.dtype) * scale)

    w, scale = torch.randint(-127, 127, (48, 40), dtype=torch.int8), torch.rand(48, 1).bfloat16()
    text = agree(dequantized, X[0, :8], w, scale, folder=tmp_path)
    assert "in i8[1920]" in text
    agree(dequantized, torch.randn(64, 40, dtype=HALF), w, scale, folder=tmp_path, kernels=2)


def test_quotients_are_those_of_the_instruction(tmp_path: Path) -> None:
    """To the last bit, but near the ends of the range, where they are within two of them."""
    x, w, b = torch.randn(64, 32).half(), torch.randn(32, 32).half(), torch.randn(64, 32).exp2()
    ends = [0.0, -0.0, 1e-44, 3e-39, 1e-38, 2e38, -3e38, torch.inf, -torch.inf, torch.nan]
    far = b.clone()
    far.view(-1)[: len(ends)] = torch.tensor(ends)
    for divisor in (b, far):
        made, given = tiled.scheduled(lambda x, w, b: (x @ w).float() / b, x, w, divisor)
        assert len(made.kernels) == 1
        (found,) = tiled.run(made, given, tmp_path, {made.kernels[0]: Tiling(32, 32, 32, 2, 1)})
        product, _ = tiled.scheduled(lambda x, w: (x @ w).float(), x, w)
        (plain,) = tiled.run(product, [x, w], tmp_path, {product.kernels[0]: Tiling(32, 32, 32, 2, 1)})
        torch.testing.assert_close(found, plain / divisor, rtol=3e-7, atol=0.0, equal_nan=True)
        near = (divisor.abs() > 1e-20) & (divisor.abs() < 1e20)
        assert torch.equal(found[near], (plain / divisor)[near])


def test_costly_things_are_computed_of_some_columns_at_a_time(tmp_path: Path) -> None:
    fn, inputs = READERS["gated"]
    text = agree(fn, *inputs, folder=tmp_path, tiling=Tiling(64, 64, 32, 2, 1))
    assert text
    made, given = tiled.scheduled(fn, *inputs)
    shapes = {made.kernels[0]: Tiling(64, 64, 32, 2, 1, persistent=True)}
    source = triton.emit(made.kernels, typical("cuda"), shapes=shapes)
    assert source.count("_halves(a0") == source.count("_halves(a1") == 3
    close(tiled.run(made, given, tmp_path, shapes)[0], fn, list(inputs))


def test_text(golden: Callable[[str, str], None]) -> None:
    """Two products with an activation, and a persistent one with a bias, as Triton has them."""
    with tables.session():
        gated, _ = tiled.scheduled(lambda x, w, v: F.silu(F.linear(x, w)) * F.linear(x, v), X, W, V)
        x, w, b = (torch.zeros(size).half() for size in ((4100, 512), (4096, 512), (4096,)))
        biased, _ = tiled.scheduled(F.linear, x, w, b)
        tilings = Tiling(32, 16, 32, 3, 2), Tiling(128, 256, 64, 3, 8, persistent=True)
        shapes = {gated.kernels[0]: tilings[0], biased.kernels[0]: tilings[1]}
        texts = []
        for made in (gated, biased):
            device = typical("cuda")
            plan = triton.plan_of(made.kernels[0], device, shapes[made.kernels[0]])
            text = triton.emit(made.kernels, device, made.names, True, shapes)
            texts.append(f"# {plan.reason(device)}\n@triton.jit{text.rpartition('@triton.jit')[2]}")
    golden("matmul", "\n".join(texts))
