"""Products and attention on a GPU: kernels of ours beside cuBLAS, cuDNN and PyTorch's flash attention, in one run.

    python -m benchmarks.gpu.products [products] [skinny] [followed] [attention] [short] [odd] [rules] [--tried]

Each case is compiled with `autotune`, which times our kernel in several shapes on the device, then the best of them
beside the library's call, with what follows a product in both; the table has what it found, in TFLOP/s or, where memory
decides, in GB/s. `--tried` prints the time of every shape. What was timed before is read from the store:
`STATOR_CACHE_DIR` says where that is. `rules` are whole functions, compiled without measuring, for their sizes alone
and for all, beside eager: products with what follows them, weights in eight bits, sizes that change, `flex_attention`.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import stator
from stator.base import log
from stator.targets import toolchain


@dataclass(frozen=True)
class Case:
    """What is timed: a function, what it takes, its operations and the bytes that it moves at least."""

    name: str
    fn: Callable[..., Any]
    inputs: tuple[Tensor, ...]
    operations: float
    nbytes: float
    backend: SDPBackend | None = None

    def found(self, options: dict[str, Any]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """What was measured of its products, and of the shapes of kernels."""
        stator.reset()
        with log.collect() as recorder, sdpa_kernel(self.backend) if self.backend is not None else nullcontext():
            stator.compile(self.fn, options=options)(*self.inputs)
            torch.cuda.synchronize()
        return recorder.of(log.PRODUCT), recorder.of(log.TILING)


def randn(*size: int) -> Tensor:
    return torch.randn(size, device="cuda", dtype=torch.bfloat16)


def product(name: str, rows: int, terms: int, columns: int, turned: bool, fn: Any = None, more: int = 0) -> Case:
    """A product, of a weight with its terms side by side where it is `turned`, and what follows it."""
    weight = randn(columns, terms) if turned else randn(terms, columns)
    plain = F.linear if turned else torch.matmul
    rest = tuple([randn(columns) if i == 0 else randn(rows, columns) for i in range(more)])
    nbytes = 2 * (rows * terms + terms * columns + rows * columns * (1 + max(more - 1, 0)))
    kind = "x @ w.T" if turned else "x @ w"
    title = f"{name or kind} {rows}×{terms}×{columns}"
    return Case(title, fn or plain, (randn(rows, terms), weight, *rest), 2.0 * rows * terms * columns, nbytes)


def products() -> Iterator[Case]:
    for size in (4096, 8192):
        for turned in (False, True):
            yield product("", size, size, size, turned)
        yield product("x.T @ w", size, size, size, False, lambda x, w: x.T @ w)
    yield product("", 2048, 2048, 2048, True)
    yield product("", 4096, 768, 768, True)
    yield product("", 1024, 1024, 1024, True)
    yield product("", 512, 8192, 512, True)


def skinny() -> Iterator[Case]:
    for rows in (1, 4, 8, 16, 32):
        yield product("", rows, 4096, 4096, True)
    yield product("", 1, 4096, 11008, True)
    yield product("", 8, 768, 3072, True)
    yield product("", 8, 768, 50257, True)
    yield product("", 16, 4096, 1024, True)


def followed() -> Iterator[Case]:
    """Products as models have them: with a bias, an activation, a residual, a gate."""
    yield product("gelu", 4096, 768, 3072, True, lambda x, w, b: F.gelu(F.linear(x, w, b)), 1)
    yield product("residual", 4096, 3072, 768, True, lambda x, w, b, r: F.linear(x, w, b) + r, 2)
    yield product("bias", 4096, 768, 2304, True, F.linear, 1)
    yield product("relu", 8192, 1024, 4096, True, lambda x, w, b: F.relu(F.linear(x, w, b)), 1)
    yield product("gelu", 512, 768, 3072, True, lambda x, w, b: F.gelu(F.linear(x, w, b)), 1)
    yield product("tanh gelu", 4096, 768, 3072, True, lambda x, w: F.gelu(F.linear(x, w), approximate="tanh"))
    yield product("silu", 4096, 2048, 8192, True, lambda x, w: F.silu(F.linear(x, w)))


def attention() -> Iterator[Case]:
    backends = {"flash": SDPBackend.FLASH_ATTENTION, "cuDNN": SDPBackend.CUDNN_ATTENTION}
    for width in (64, 128):
        for causal in (False, True):
            for name, backend in backends.items():
                q, k, v = (randn(4, 2048 // width, 4096, width).requires_grad_() for _ in range(3))
                title = f"{name} {tuple(q.shape)}{' causal' if causal else ''}"

                def fn(q: Tensor, k: Tensor, v: Tensor, causal: bool = causal) -> Tensor:
                    return F.scaled_dot_product_attention(q, k, v, is_causal=causal)

                work = 4.0 * q.shape[0] * q.shape[1] * 4096 * 4096 * width / (2 if causal else 1)
                yield Case(title, fn, (q, k, v), work, 0, backend)


def short() -> Iterator[Case]:
    """Attention of few rows, as BERT and generation have it, and with a mask."""
    flash, efficient = SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION
    for batches, heads, queries, keys, masked in (
        (32, 12, 128, 128, False), (16, 12, 512, 512, False), (8, 16, 1, 1024, False),
        (32, 12, 128, 128, True), (16, 12, 512, 512, True), (4, 16, 2048, 2048, True),
    ):  # fmt: skip
        q, k, v = (randn(batches, heads, n, 64).requires_grad_(not masked) for n in (queries, keys, keys))
        mask = torch.rand(batches, 1, 1, keys, device="cuda") < 0.9 if masked else None
        title = f"{'memory-efficient, mask' if masked else 'flash'} {batches}×{heads}×{queries}×{keys}×64"
        work = 4.0 * batches * heads * queries * keys * 64
        fn = F.scaled_dot_product_attention
        yield Case(title, fn, (q, k, v, mask) if masked else (q, k, v), work, 0, efficient if masked else flash)


def odd() -> Iterator[Case]:
    """A vocabulary of 50,257: its logits, and the gradients of what they are made of and of its weight."""
    yield product("", 512, 768, 50257, True)
    yield product("", 4096, 768, 50257, True)
    yield product("", 4096, 50257, 768, False)
    g, x = randn(4096, 50257), randn(4096, 768)
    nbytes = 2 * (g.numel() + x.numel() + 50257 * 768)
    yield Case("g.T @ x 50257×4096×768", lambda g, x: g.T @ x, (g, x), 2.0 * 4096 * 50257 * 768, nbytes)


GROUPS = {
    "products": products,
    "skinny": skinny,
    "followed": followed,
    "attention": attention,
    "short": short,
    "odd": odd,
}


def row(case: Case, found: dict[str, Any]) -> str:
    """A line of the table."""
    work = case.operations * (2.5 if "backward" in found["product"] else 1)
    ours, library = found["loop"], found["library"]
    if case.nbytes and work / case.nbytes < 100:
        rates, unit = [case.nbytes / time / 1e9 for time in (library, ours)], "GB/s"
    else:
        rates, unit = [work / time / 1e12 for time in (library, ours)], "TFLOP/s"
    name = case.name + (" backward" if "backward" in found["product"] else "")
    taken = "ours" if found["takes_loop"] else "library"
    times = f"{library * 1e6:.1f} | {ours * 1e6:.1f}"
    return f"| {name} | {times} | {rates[0]:.0f} | {rates[1]:.0f} | {unit} | {library / ours:.2f} | {taken} |"


def weights() -> Iterator[Case]:
    """Weights in eight bits, several of them, so that they come from memory as in a model."""

    def step(x: Tensor, scale: Tensor, *weights: Tensor) -> tuple[Tensor, ...]:
        return tuple([F.linear(x, w.to(x.dtype) * scale) for w in weights])

    for dtype in (torch.int8, torch.float8_e4m3fn):
        made = [(randn(4096, 4096) * 8).to(dtype) for _ in range(8)]
        for rows in (1, 8, 32):
            name = str(dtype).removeprefix("torch.")
            yield Case(f"8 weights in {name}, {rows} rows", step, (randn(rows, 4096), randn(4096, 1), *made), 0, 0)


def changing() -> Iterator[Case]:
    """Sizes that are symbolic in one of the two ways."""
    weight, bias = randn(4096, 1024), randn(4096)
    for rows in (8192, 4000):
        yield Case(f"relu {rows}×1024×4096", lambda x: F.relu(F.linear(x, weight, bias)), (randn(rows, 1024),), 0, 0)

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    for rows in (4096, 1500):
        inputs = tuple([randn(4, 16, rows, 64) for _ in range(3)])
        yield Case(f"causal 4×16×{rows}×64", attend, inputs, 0, 0, SDPBackend.FLASH_ATTENTION)


def scored() -> Iterator[Case]:
    """`flex_attention`; eager has its scores in memory."""
    slopes = torch.rand(16, device="cuda")
    causal = create_block_mask(lambda b, h, m, n: m >= n, None, None, 2048, 2048, device="cuda")
    near = create_block_mask(lambda b, h, m, n: (m >= n) & (m - n < 256), None, None, 2048, 2048, device="cuda")
    asked: dict[str, dict[str, Any]] = {
        "plain": {},
        "causal": {"block_mask": causal},
        "near": {"block_mask": near},
        "slopes": {"score_mod": lambda score, b, h, m, n: score + slopes[h] * (n - m)},
        "capped": {"score_mod": lambda score, b, h, m, n: 20 * torch.tanh(score / 20)},
        "slopes, causal": {"score_mod": lambda score, b, h, m, n: score + slopes[h] * (n - m), "block_mask": causal},
    }
    inputs = tuple([randn(4, 16, 2048, 64) for _ in range(3)])
    for name, given in asked.items():

        def step(q: Tensor, k: Tensor, v: Tensor, given: dict[str, Any] = given) -> Any:
            return flex_attention(q, k, v, **given)

        yield Case(f"flex_attention, {name}", step, inputs, 0, 0)


def by_rule(case: Case) -> str:
    """Microseconds of the device for a call: compiled for its sizes, and for all; eager; and whose kernels it has."""
    clock = toolchain("cuda").seconds
    with torch.no_grad(), sdpa_kernel(case.backend) if case.backend is not None else nullcontext():
        ways: list[Callable[..., Any]] = []
        for dynamic in (False, True):
            stator.reset()
            ways.append(stator.compile(case.fn, dynamic=dynamic))
            ways[-1](*case.inputs)
        times = [min(clock(partial(way, *case.inputs), 10) for _ in range(5)) * 1e6 for way in (*ways, case.fn)]
        stator.reset()
        externs = dict.fromkeys(stator.explain(case.fn)(*case.inputs).externs)
    return f"| {case.name} | {times[0]:.1f} | {times[1]:.1f} | {times[2]:.1f} | {', '.join(externs) or 'ours'} |"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu.products")
    parser.add_argument("groups", nargs="*", help=f"of {', '.join(GROUPS)}, rules; all of them if none is named")
    parser.add_argument("--tried", action="store_true", help="print the time of every shape that was tried")
    given = parser.parse_args()
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, bfloat16")
    print("| case | library µs | ours µs | library | ours | unit | times its speed | taken |")
    print("|---|---:|---:|---:|---:|---|---:|---|")
    torch.manual_seed(0)
    for group in [group for group in given.groups or GROUPS if group != "rules"]:
        for case in GROUPS[group]():
            measured, tilings = case.found({"autotune": True})
            for found in measured:
                print(row(case, found), flush=True)
            for tiling in tilings if given.tried else ():
                for shape, time in sorted(tiling["tried"], key=lambda tried: (isinstance(tried[1], str), tried[1])):
                    print(f"    {shape}: {time if isinstance(time, str) else f'{time * 1e6:.1f} µs'}", flush=True)
    if not given.groups or "rules" in given.groups:
        print("\n| case | by rule µs | for all sizes µs | eager µs | by rule |\n|---|---:|---:|---:|---|")
        for case in chain(followed(), weights(), changing(), scored()):
            print(by_rule(case), flush=True)


if __name__ == "__main__":
    main()
