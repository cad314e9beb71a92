"""Products and attention of sizes that change: one kernel for all of them, as numbers and in machine code."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from stator.codegen import triton
from stator.kernel.attention import Rows
from stator.kernel.matmul import Tiling, candidates, matmul_of
from stator.loop.kernel import Schedule
from stator.targets import typical
from tests.codegen import hopper, tiled
from tests.codegen import test_attention as attention_cases
from tests.codegen.test_attention import exact, heads
from tests.codegen.test_matmul import TILINGS, close

aten = torch.ops.aten
HALF = torch.bfloat16


def randn(*size: int) -> Tensor:
    return torch.randn(size).to(HALF)


#: A function, what sizes (input, dim) are symbolic, its inputs for two numbers, and how many kernels it is.
Case = tuple[Callable[..., Any], set[tuple[int, int]], Callable[[int, int], list[Tensor]], int]
CASES: dict[str, Case] = {
    "rows": (
        lambda x, w, b: F.relu(F.linear(x, w, b)),
        {(0, 0), (0, 1)},
        lambda n, m: [randn(n, m, 40), randn(48, 40), randn(48)],
        1,
    ),
    "columns": (lambda x, w: x @ w + 1, {(1, 1)}, lambda n, m: [randn(33, 24), randn(24, n * m)], 1),
    "terms": (lambda x, g: x.mT @ g, {(0, 0), (1, 0)}, lambda n, m: [randn(n * m, 40), randn(n * m, 24)], 1),
    "all": (
        lambda a, b: F.silu(a @ b),
        {(0, 0), (0, 1), (1, 0), (1, 1)},
        lambda n, m: [randn(9 * n, m + 3), randn(m + 3, 5 * n)],
        1,
    ),
    "batch": (
        lambda a, b: torch.bmm(a, b.mT) * 0.5,
        {(0, 0), (1, 0), (0, 1)},
        lambda n, m: [randn(n, m, 33), randn(n, 20, 33)],
        1,
    ),
    "scores": (
        lambda q, k: torch.bmm(q, k.mT),
        {(0, 1), (1, 1)},
        lambda n, m: [randn(6, m, 16), randn(6, m, 16)],
        1,
    ),
    "heads": (
        lambda x, w: torch.mm(x.view(-1, 40), w.t()).view(x.shape[0], x.shape[1], 4, 12).transpose(1, 2) * 2,
        {(0, 0), (0, 1)},
        lambda n, m: [randn(n, m, 40), randn(48, 40)],
        1,
    ),
    "gated": (
        lambda x, w, v: F.silu(F.linear(x, w)) * F.linear(x, v),
        {(0, 0)},
        lambda n, m: [randn(n * m, 40), randn(48, 40), randn(48, 40)],
        1,
    ),
    "many terms": (
        lambda x, w: F.linear(x, w),
        {(0, 0)},
        lambda n, m: [randn(m, 2050), randn(40, 2050)],
        2,
    ),
}
#: What the two numbers are: those of the first call first.
SIZES = [(3, 21), (2, 70), (5, 2), (7, 33)]


def made_for(name: str) -> Schedule:
    fn, dynamic, inputs, kernels = CASES[name]
    (made,) = tiled.symbolic(fn, inputs(*SIZES[0]), dynamic)
    assert len(made.kernels) == kernels, made.text()
    return made


@pytest.mark.parametrize("name", CASES)
def test_products(name: str, tmp_path: Path) -> None:
    """One schedule for all sizes, in tilings in which something is left over, and in the one that is taken."""
    fn, _, inputs, _ = CASES[name]
    made = made_for(name)
    products = [kernel for kernel in made.kernels if matmul_of(kernel, typical("cuda"))]
    assert products and all(kernel.symbols for kernel in products)
    for numbers, tiling in zip(SIZES, [*TILINGS, None], strict=True):
        given = inputs(*numbers)
        (found,) = tiled.run(made, given, tmp_path, dict.fromkeys(products, tiling) if tiling else {})
        close(found, fn, given)


@pytest.mark.gpu
@pytest.mark.parametrize("name", CASES)
def test_products_on_a_gpu(name: str, tmp_path: Path) -> None:
    fn, _, inputs, _ = CASES[name]
    made, device = made_for(name), typical("cuda")
    (product,) = [kernel for kernel in made.kernels if matmul_of(kernel, device)][:1]
    for tiling in candidates(matmul_of(product, device), device)[:4]:  # type: ignore[arg-type]
        for numbers in SIZES:
            given = [x.cuda() for x in inputs(*numbers)]
            (found,) = tiled.run(made, given, tmp_path, {product: tiling})
            close(found, fn, given)


def flash(causal: bool) -> Callable[..., Any]:
    return lambda q, k, v: aten._scaled_dot_product_flash_attention(q, k, v, 0.0, causal)[:2]


def gradients(causal: bool) -> Callable[..., Any]:
    def fn(g: Tensor, q: Tensor, k: Tensor, v: Tensor, o: Tensor, logs: Tensor, seed: Tensor) -> Any:
        many = q.shape[2], k.shape[2]
        op = aten._scaled_dot_product_flash_attention_backward
        return op(g, q, k, v, o, logs, None, None, *many, 0.0, causal, seed, seed)

    return fn


def efficient(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Any:
    return aten._scaled_dot_product_efficient_attention(q, k, v, bias, True, 0.0, False)[:2]


def qkv(batches: int, queries: int, keys: int, inside: bool) -> list[Tensor]:
    return [heads(batches, n, rows, 32, HALF, inside) for n, rows in ((4, queries), (2, keys), (2, keys))]


#: Batches, rows of queries and rows of keys.
ROWS = [(2, 40, 40), (1, 16, 16), (3, 70, 70), (1, 1, 1), (1, 129, 129)]
BLOCKS = [Rows(16, 32, 2, 1), Rows(32, 16, 2, 1)]
CHANGING = {(i, dim) for i in range(6) for dim in (0, 2)}


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("inside", [False, True])
def test_attention(causal: bool, inside: bool, tmp_path: Path) -> None:
    """Forward, and the gradients, of heads that share keys."""
    attend(causal, inside, tmp_path, "cpu", [*BLOCKS, *BLOCKS, BLOCKS[0]])


@pytest.mark.gpu
@pytest.mark.parametrize("causal", [False, True])
def test_attention_on_a_gpu(causal: bool, tmp_path: Path) -> None:
    attend(causal, True, tmp_path, "cuda", [None] * len(ROWS))


def attend(causal: bool, inside: bool, folder: Path, device: str, blocks: list[Any]) -> None:
    first = qkv(*ROWS[0], inside)
    (forward,) = tiled.symbolic(flash(causal), first, CHANGING)
    example = [first[0], *first, first[0], torch.zeros(2, 4, 40), torch.zeros(())]
    (backward,) = tiled.symbolic(gradients(causal), example, CHANGING)
    assert len(forward.kernels) == 1 and len(backward.kernels) == 3
    for (batches, queries, keys), rows in zip(ROWS, blocks, strict=True):
        q, k, v = (x.to(device) for x in qkv(batches, queries, keys, inside))
        wide = [x.double().requires_grad_() for x in (q, k, v)]
        wanted, sums = exact(*wide, None, causal, None)
        o, logs = run(forward, [q, k, v], folder, rows)
        attention_cases.close(o, wanted.detach())
        attention_cases.close(logs, sums)
        if queries == 1:
            continue  # scores have no gradients there, and only their errors would be compared
        g = torch.randn_like(q)
        wanted.backward(g.double())
        given = [g, q, k, v, wanted.detach().to(HALF), sums.float(), torch.zeros((), device=device)]
        given[4] = given[4].transpose(1, 2).contiguous().transpose(1, 2) if inside else given[4]
        for ours, leaf in zip(run(backward, given, folder, rows), wide, strict=True):
            attention_cases.close(ours, leaf.grad, 6.0)  # type: ignore[arg-type]


def run(made: Schedule, given: list[Tensor], folder: Path, rows: Rows | None) -> list[Tensor]:
    shapes = {kernel: rows for kernel in made.kernels if kernel.attention is not None} if rows else {}
    return tiled.run(made, given, folder, shapes)


@pytest.mark.parametrize("shape", [(True, False), (False, True)], ids=["of each row", "of each batch"])
def test_a_bias(shape: tuple[bool, bool], tmp_path: Path) -> None:
    """Of a size that changes with the rows, broadcast along batches and heads or along rows."""

    def given(batches: int, queries: int, keys: int) -> list[Tensor]:
        q, k, v = qkv(batches, queries, keys, False)
        bias = randn(1, 1, queries, keys) if shape[0] else randn(batches, 1, 1, keys)
        return [q, *[x.repeat_interleave(2, 1) for x in (k, v)], bias.masked_fill(bias > 1, -torch.inf)]

    def fn(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Any:
        return efficient(q, k, v, bias.expand(q.shape[0], 4, q.shape[2], k.shape[2]))

    dynamic = {(0, 0), (0, 2), (1, 0), (1, 2), (2, 0), (2, 2), *({(3, 2), (3, 3)} if shape[0] else {(3, 0), (3, 3)})}
    (made,) = tiled.symbolic(fn, given(2, 20, 40), dynamic)
    for sizes, rows in zip([(2, 20, 40), (1, 33, 7), (3, 2, 65)], [*BLOCKS, None], strict=True):
        q, k, v, bias = given(*sizes)
        wanted, sums = exact(*[x.double() for x in (q, k, v, bias)], False, None)
        o, logs = run(made, [q, k, v, bias], tmp_path, rows)
        attention_cases.close(o, wanted)
        seen = sums.isfinite()
        torch.testing.assert_close(logs[..., : sizes[1]][seen].double(), sums[seen], rtol=1e-2, atol=1e-2)
        assert (logs[..., sizes[1] :] == torch.inf).all() and logs.shape[-1] == -(-sizes[1] // 32) * 32


def test_machine_code() -> None:
    """With positions of 32 bits, and of 64."""
    pytest.importorskip("triton", reason="Triton comes with torch for CUDA only")
    first = qkv(*ROWS[0], True)
    schedules = [made_for(name) for name in ("rows", "terms", "batch")]
    schedules += tiled.symbolic(flash(True), first, CHANGING)
    example = [first[0], *first, first[0], torch.zeros(2, 4, 40), torch.zeros(())]
    schedules += tiled.symbolic(gradients(False), example, CHANGING)
    for made in schedules:
        assert all(stages["cubin"] for stages in hopper.built(made.kernels))


def test_kernels_of_other_sizes_are_one() -> None:
    """Names of symbols and what they were in the first call are no part of a kernel."""
    fn, dynamic, inputs, _ = CASES["rows"]
    (one,) = tiled.symbolic(fn, inputs(3, 21), dynamic)
    (other,) = tiled.symbolic(fn, inputs(4, 50), dynamic)
    assert one.kernels == other.kernels
    (one,) = tiled.symbolic(flash(True), qkv(2, 40, 40, True), CHANGING)
    (other,) = tiled.symbolic(flash(True), qkv(3, 70, 70, True), CHANGING)
    assert one.kernels == other.kernels


def test_by_rule() -> None:
    """What is decided of sizes that change goes by the first ones, and by whether rows begin where vectors do."""

    def ours(fn: Callable[..., Any], inputs: list[Tensor], dynamic: set[tuple[int, int]]) -> bool:
        (made,) = tiled.symbolic(fn, inputs, dynamic, ours=None)
        return any(matmul_of(kernel, typical("cuda")) is not None for kernel in made.kernels)

    def step(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        return F.relu(F.linear(x, w, b))

    meta = [torch.empty(size, dtype=HALF) for size in ((8192, 1024), (4096, 1024), (4096,))]
    assert ours(step, meta, {(0, 0)})
    assert not ours(step, [meta[0][:32], *meta[1:]], {(0, 0)})
    assert not ours(step, meta, {(0, 1), (1, 1)})


def test_text(golden: Callable[[str, str], None]) -> None:
    made = made_for("batch")
    text = triton.emit(made.kernels, typical("cuda"), ["k0"], shapes={made.kernels[0]: Tiling(32, 16, 32, 3, 2)})
    golden("symbolic_matmul", "@triton.jit\ndef k0" + text.partition("def k0")[2])
