"""`python -m benchmarks.tile_gpu [kernel …]`: milliseconds on a GPU by stator's compiler and by the installed Triton.

Each kernel is run by both on the same tensors, which are compared; times are medians of CUDA events around launches in
turn, behind a flush of the cache. Compile times are of kernels that are in no cache; a launch is what the host needs.
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch

TEXTS = Path(__file__).with_name("texts.py")
Launch = Callable[[Any], Any]


class Case(NamedTuple):
    """A launch of a kernel of either language, and the tensor that it writes and what that should be."""

    name: str
    launch: Launch
    found: torch.Tensor
    expected: Callable[[], torch.Tensor]


def languages() -> dict[str, Any]:
    """The kernels' file as a module of each language."""
    found = {}
    for name, triton, tl in (
        ("stator", "stator.tile", "stator.tile.language"),
        ("triton", "triton", "triton.language"),
    ):
        text = TEXTS.read_text(encoding="utf-8")
        text = text.replace("import triton.language as tl", f"import {tl} as tl")
        text = text.replace("import triton\n", f"import {triton} as triton\n")
        place = Path(tempfile.mkdtemp()) / f"{name}_kernels.py"
        place.write_text(text, encoding="utf-8")
        spec = importlib.util.spec_from_file_location(place.stem, place)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[place.stem] = module
        spec.loader.exec_module(module)
        found[name] = module
    return found


def cdiv(a: int, b: int) -> int:
    return -(-a // b)


def cases() -> Iterator[Case]:
    """All kernels, the tensors of each made when it is its turn."""
    n = 1 << 26
    x, y = torch.randn(n, device="cuda"), torch.randn(n, device="cuda")
    out = torch.empty_like(x)
    yield Case(
        "add", lambda m: m.add_kernel[(cdiv(n, 1024),)](x, y, out, n, BLOCK=1024), out, lambda: x + y
    )  # fmt: skip
    yield Case(
        "dropout",
        lambda m: m.dropout_kernel[(cdiv(n, 1024),)](x, out, n, 0.5, 123, BLOCK=1024),
        out,
        lambda: torch.where(out != 0, x * 2, 0.0),
    )
    for columns in (1024, 8192):
        rows = 1 << 25 >> columns.bit_length() - 1
        a = torch.randn(rows, columns, device="cuda")
        b = torch.empty_like(a)
        warps = 4 if columns == 1024 else 8
        yield Case(
            f"softmax {columns}",
            lambda m, a=a, b=b, r=rows, c=columns, w=warps: m.softmax_kernel[(r,)](b, a, c, c, BLOCK=c, num_warps=w),
            b,
            lambda a=a: a.softmax(-1),
        )
        weight, bias = torch.randn(columns, device="cuda"), torch.randn(columns, device="cuda")
        yield Case(
            f"layer_norm {columns}",
            lambda m, a=a, b=b, r=rows, c=columns, w=warps, p=weight, q=bias: m.layer_norm_kernel[(r,)](
                a, b, p, q, c, c, 1e-5, BLOCK=c, num_warps=w
            ),
            b,
            lambda a=a, c=columns, p=weight, q=bias: torch.nn.functional.layer_norm(a, (c,), p, q),
        )
    size = 4096
    left, right = (torch.randn(size, size, device="cuda", dtype=torch.float16) for _ in range(2))
    product = torch.empty_like(left)
    for bm, bn, bk, warps, stages in ((128, 128, 32, 4, 3), (128, 256, 64, 8, 3), (128, 128, 64, 8, 3)):
        grid = (cdiv(size, bm) * cdiv(size, bn),)
        yield Case(
            f"matmul {bm}/{bn}/{bk} w{warps} s{stages}",
            lambda m, g=grid, bm=bm, bn=bn, bk=bk, w=warps, s=stages: m.matmul_kernel[g](
                left, right, product, size, size, size, size, 1, size, 1, size, 1,
                BM=bm, BN=bn, BK=bk, GROUP=8, num_warps=w, num_stages=s,
            ),
            product,
            lambda: left @ right,
        )  # fmt: skip
    heads, length, d = 64, 2048, 64
    q, k, v = (torch.randn(heads, length, d, device="cuda", dtype=torch.float16) for _ in range(3))
    result = torch.empty_like(q)
    for causal in (False, True):
        yield Case(
            f"attention{' causal' if causal else ''}",
            lambda m, causal=causal: m.attention_kernel[(length // 128, heads)](
                q, k, v, result, 0.125, length * d, d, length,
                BM=128, BN=64, D=d, CAUSAL=causal, num_warps=4, num_stages=3,
            ),
            result,
            lambda causal=causal: torch.nn.functional.scaled_dot_product_attention(
                q, k, v, is_causal=causal, scale=0.125
            ),
        )  # fmt: skip


def milliseconds(calls: dict[str, Callable[[], Any]], seconds: float) -> dict[str, float]:
    """The median of each, in turn, with a cold cache."""
    flush = torch.empty(1 << 26, dtype=torch.int32, device="cuda")
    times: dict[str, list[float]] = {name: [] for name in calls}
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(next(iter(times.values()))) < 5:
        for name, call in calls.items():
            flush.zero_()
            start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            call()
            stop.record()
            torch.cuda.synchronize()
            times[name].append(start.elapsed_time(stop))
    return {name: statistics.median(found) for name, found in times.items()}


def launch_microseconds(call: Callable[[], Any], count: int = 300) -> float:
    """What the host needs for a launch, the least of some rounds."""
    best = float("inf")
    for _ in range(10):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(count):
            call()
        best = min(best, (time.perf_counter() - start) / count)
    return 1e6 * best


def measure(case: Case, modules: dict[str, Any], seconds: float) -> tuple[list[str], list[Any]]:
    """A row of the table, and remarks of what went wrong."""
    calls, compiled, remarks = {}, {}, []
    for name, module in modules.items():
        case.found.zero_()
        start = time.perf_counter()
        try:
            case.launch(module)
            torch.cuda.synchronize()
            compiled[name] = time.perf_counter() - start
            torch.testing.assert_close(case.found, case.expected(), rtol=2e-2, atol=2e-2)
            calls[name] = lambda module=module: case.launch(module)
        except Exception:
            remarks.append(f"{case.name} by {name}:\n{traceback.format_exc()[-1500:]}")
    if not calls:
        return [], remarks
    calls["torch"] = case.expected
    found = milliseconds(calls, seconds)
    ours, theirs = found.get("stator", float("nan")), found.get("triton", float("nan"))
    numbers = [f"{ours:.4f}", f"{theirs:.4f}", f"{found['torch']:.4f}", f"{theirs / ours:.3f}"]
    numbers += [f"{1e3 * compiled.get(name, float('nan')):.0f}" for name in modules]
    return [case.name, *numbers], remarks


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kernels", nargs="*")
    parser.add_argument("--seconds", type=float, default=1.0)
    given = parser.parse_args()
    modules = languages()
    print("kernel | stator ms | triton ms | torch ms | times Triton's speed | stator compiles ms | triton compiles ms")
    for case in cases():
        if given.kernels and not any(case.name.startswith(name) for name in given.kernels):
            continue
        row, remarks = measure(case, modules, given.seconds)
        print(" | ".join(row), *remarks, sep="\n", flush=True)
    x = torch.zeros(1024, device="cuda")
    for name, module in modules.items():
        found = launch_microseconds(lambda module=module: module.add_kernel[(1,)](x, x, x, 1024, BLOCK=1024))
        print(f"launch by {name}: {found:.2f} µs", flush=True)


if __name__ == "__main__":
    main()
