"""`python -m benchmarks.tile_gpu [kernel …]`: milliseconds on a GPU by stator's compiler and by the installed Triton.

Each kernel is run by both on the same tensors, and beside PyTorch (cuBLAS for products); results are compared. Times
are of CUDA events around launches in turn, behind a flush of the cache, forwards and backwards alternately; a speed is
the median over turns of the ratio within a turn. Compiling is a launch of a kernel that has never been compiled, with
what it loads and one run, in turn as well, the median of some; nothing comes from a cache but what a language keeps for
every kernel. A launch is what the host needs.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
import traceback
from collections.abc import Callable
from typing import Any

import torch

from benchmarks.tile_gpu.cases import LANGUAGES, Case, cases, kernels

COLUMNS = (
    "kernel", "stator ms", "triton ms", "torch ms", "times Triton's speed", "times torch's speed", "stator compiles ms",
    "triton compiles ms",
)  # fmt: skip
NAN = float("nan")


def milliseconds(calls: dict[str, Callable[[], Any]], seconds: float) -> dict[str, list[float]]:
    """The times of each, turn by turn, with a cold cache."""
    flush = torch.empty(1 << 26, dtype=torch.int32, device="cuda")
    times: dict[str, list[float]] = {name: [] for name in calls}
    end, order = time.perf_counter() + seconds, list(calls)
    while time.perf_counter() < end or len(times[order[0]]) < 5:
        for name in order:
            flush.zero_()
            start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            calls[name]()
            stop.record()
            torch.cuda.synchronize()
            times[name].append(start.elapsed_time(stop))
        order.reverse()
    return times


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


def compile_milliseconds(case: Case, languages: list[str], rounds: int) -> dict[str, list[float]]:
    """What a first launch takes, of kernels that no cache has."""
    times: dict[str, list[float]] = {name: [] for name in languages}
    for _ in range(rounds):
        for name in languages:
            with tempfile.TemporaryDirectory() as folder:
                os.environ["STATOR_CACHE_DIR"] = folder
                module = kernels(name)
                torch.cuda.synchronize()
                start = time.perf_counter()
                case.launch(module)
                torch.cuda.synchronize()
                times[name].append(1e3 * (time.perf_counter() - start))
    return times


def speed(ours: list[float], theirs: list[float]) -> float:
    """How many times as fast, by what was measured in the same turns."""
    return statistics.median([b / a for a, b in zip(ours, theirs, strict=True)]) if ours and theirs else NAN


def measure(case: Case, modules: dict[str, Any], seconds: float, rounds: int) -> tuple[list[str], list[str]]:
    """A row of the table, and remarks of what went wrong."""
    calls, remarks = {}, []
    for name, module in modules.items():
        case.found.zero_()
        try:
            case.launch(module)
            torch.cuda.synchronize()
            torch.testing.assert_close(case.found, case.expected(), rtol=2e-2, atol=2e-2)
            calls[name] = lambda module=module: case.launch(module)
        except Exception:
            remarks.append(f"{case.name} by {name}:\n{traceback.format_exc()[-1500:]}")
    if not calls:
        return [], remarks
    compiled = compile_milliseconds(case, list(calls), rounds)
    times = milliseconds({**calls, "torch": case.expected}, seconds)
    ours = times.get("stator", [])
    found = [f"{statistics.median(times.get(name) or [NAN]):.4f}" for name in (*LANGUAGES, "torch")]
    found += [f"{speed(ours, times.get(name, [])):.3f}" for name in ("triton", "torch")]
    found += [f"{statistics.median(compiled.get(name) or [NAN]):.0f}" for name in LANGUAGES]
    return [case.name, *found], remarks


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kernels", nargs="*")
    parser.add_argument("--seconds", type=float, default=1.0, help="of measuring a kernel")
    parser.add_argument("--rounds", type=int, default=5, help="how often a kernel is compiled")
    given = parser.parse_args()
    os.environ["TRITON_CACHE_DIR"], os.environ["TRITON_ALWAYS_COMPILE"] = tempfile.mkdtemp(), "1"
    modules = {name: kernels(name) for name in LANGUAGES}
    print(" | ".join(COLUMNS))
    for case in cases():
        if given.kernels and not any(case.name.startswith(name) for name in given.kernels):
            continue
        row, remarks = measure(case, modules, given.seconds, given.rounds)
        print(" | ".join(row), *remarks, sep="\n", flush=True)
    x = torch.zeros(1024, device="cuda")
    for name, module in modules.items():
        found = launch_microseconds(lambda module=module: module.add_kernel[(1,)](x, x, x, 1024, BLOCK=1024))
        print(f"launch by {name}: {found:.2f} µs", flush=True)


if __name__ == "__main__":
    main()
