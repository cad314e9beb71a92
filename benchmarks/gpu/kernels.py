"""Patterns of real programs on a GPU: milliseconds and bandwidth of eager, stator and torch.compile.

    python -m benchmarks.gpu.kernels [--only transpose "sum of"] [--dtype bfloat16 float32] [--out kernels.json]
    python -m benchmarks.gpu.kernels --prepare 1/8

The patterns are those of `benchmarks.kernels`, at a size of which no cache holds an operand, and a few of fixed
shapes; what memory bounds also at four times that size, since of 64 MiB a fast memory spends a good part of the time
beginning and ending. A figure is the median time that the device takes for a call, by events: before each call the
cache is overwritten and the device kept busy for long enough that the host is ahead of it, so that launches cost
nothing but gaps. Bytes are those of inputs and results, each once (with gradients: of inputs, cotangent and
gradients); the last columns are which part that is of what copying 256 MiB reaches in the same run, and stator's of a
copy that moves as many bytes as the row. By default stator rounds as eager does; with `--numerics fast` it keeps
float32 between the operators of a kernel, as torch.compile does. `--prepare` compiles a part of the rows and times
nothing, for caches on disk.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.kernels.__main__ import call_of
from benchmarks.kernels.cases import LARGE, PATTERNS, Pattern

DEVICE = "cuda"
COMPILERS = ("eager", "stator", "torch.compile")
#: Calls that a median is of, and cycles that the device waits so that the host is ahead.
CALLS, AHEAD = 41, 1_500_000
#: Bytes that are overwritten before each call: more than a cache holds.
FLUSHED = 256 << 20
#: Bytes from which on a row counts as one that memory bounds.
LEAST = 64 << 20
#: By how much the same kernel's times differ from run to run.
NEAR = 1.01
#: A row of more than so many times torch.compile's time is named a loser.
SLOWER = 1.05


class Row(NamedTuple):
    """Median milliseconds a call by compiler, and the bytes that a call moves at least."""

    pattern: str
    dtype: str
    ms: dict[str, float]
    moved: int
    kernels: list[str]
    #: GB/s of a copy that moves as many.
    copying: float = math.nan

    def ratio(self, other: str) -> float:
        """How many times as long stator takes."""
        return self.ms.get("stator", math.nan) / self.ms.get(other, math.nan)

    def bandwidth(self, compiler: str = "stator") -> float:
        """GB/s."""
        return self.moved / self.ms[compiler] / 1e6 if compiler in self.ms else math.nan


def shaped(*shapes: tuple[int, ...]) -> Callable[[int], tuple[Tensor, ...]]:
    """Random tensors of these shapes, whatever the size."""
    return lambda size: tuple([torch.randn(shape) for shape in shapes])


def statistics_of_images(x: Tensor) -> tuple[Tensor, Tensor]:
    return x.mean((0, 2, 3)), x.var((0, 2, 3), unbiased=False)


def optimiser_step(*given: Tensor) -> tuple[Tensor, ...]:
    """Several parameters of one shape each, and their gradients."""
    half = len(given) // 2
    return tuple([p * 0.999 - 1e-3 * g for p, g in zip(given[:half], given[half:], strict=True)])


#: Rows of fixed shapes: those that were found to be slow.
FIXED: dict[str, Pattern] = {
    "transposed [8192, 3072]": Pattern(lambda x: x.t().contiguous(), shaped((8192, 3072)), moved=True),
    "column sum [8192, 3072]": Pattern(lambda x: x.sum(0), shaped((8192, 3072)), moved=True),
    "column sum + cast [8192, 768]": Pattern(lambda x: x.float().sum(0), shaped((8192, 768)), moved=True),
    "sum of all [8192, 3072]": Pattern(torch.sum, shaped((8192, 3072)), moved=True),
    "batch statistics [64, 64, 56, 56]": Pattern(statistics_of_images, shaped((64, 64, 56, 56)), moved=True),
    "layer_norm, gradients [8192, 768]": Pattern(
        lambda x, w, b: F.layer_norm(x, x.shape[-1:], w, b), shaped((8192, 768), (768,), (768,)), grad=True
    ),
    "softmax [16, 12, 512, 512]": Pattern(lambda x: x.softmax(-1), shaped((16, 12, 512, 512)), moved=True),
    "heads [16, 512, 12, 64]": Pattern(lambda x: x.transpose(1, 2).contiguous(), shaped((16, 512, 12, 64))),
    "optimiser of eight": Pattern(optimiser_step, shaped(*[(1024, 1024)] * 16), moved=True),
}
#: What memory bounds on a GPU, though arithmetic does on a CPU: every operand is read, and every result written, once.
STREAMED = (
    "layer_norm", "rms_norm", "group_norm", "softmax", "gelu", "silu", "swiglu", "rope", "masked scores",
    "var of rows", "transpose", "add of a transpose", "channels last", "cumsum of rows", "circular pad", "gather",
    "bfloat16 bias+gelu", "bfloat16 softmax", "float to int8",
)  # fmt: skip
#: What is told of a size that is not `LARGE`.
FOURFOLD = ", fourfold"


def _fourfold(pattern: Pattern) -> Pattern:
    return pattern._replace(inputs=lambda size: pattern.inputs(4 * size))


BOUND = {name: pattern._replace(moved=True) for name, pattern in PATTERNS.items() if pattern.moved or name in STREAMED}
ALL = {**FIXED, **PATTERNS, **BOUND, **{f"{name}{FOURFOLD}": _fourfold(pattern) for name, pattern in BOUND.items()}}


def inputs_of(pattern: Pattern, dtype: torch.dtype) -> tuple[Any, ...]:
    """Random inputs on the device, in a dtype instead of float32; none where none is float32 or nothing is computed."""
    torch.manual_seed(0)
    with torch.device(DEVICE):
        given = pattern.inputs(LARGE)
    if all(x.dtype != torch.float32 for x in given):
        return given if dtype is torch.float32 else ()
    given = tuple([x.to(dtype) if x.dtype == torch.float32 else x for x in given])
    return () if pattern.run(*given) is given[0] else given


class Timer:
    """Times calls on the device."""

    def __init__(self) -> None:
        self.flushed = torch.empty(FLUSHED, dtype=torch.uint8, device=DEVICE)

    def once(self, call: Callable[[], Any]) -> float:
        """Milliseconds of one call."""
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        self.flushed.zero_()
        torch.cuda._sleep(AHEAD)
        start.record()
        held = call()
        end.record()
        end.synchronize()
        del held
        return start.elapsed_time(end)

    def medians(self, calls: dict[str, Callable[[], Any]]) -> dict[str, float]:
        """Milliseconds of each, in turn, so that drift hits all alike; none always comes after the same one."""
        names = list(calls)
        orders = [names[i % len(names) :] + names[: i % len(names)] for i in range(CALLS)]
        rounds = [{name: self.once(calls[name]) for name in order} for order in orders]
        return {name: statistics.median(round[name] for round in rounds) for name in calls}

    def copying(self, moved: int = 512 << 20) -> float:
        """GB/s that copying reads and writes, of so many bytes both together."""
        source = torch.ones(max(moved // 2, 1), dtype=torch.uint8, device=DEVICE)
        target = torch.empty_like(source)
        return 2 * source.nbytes / self.medians({"": lambda: target.copy_(source)})[""] / 1e6


def kernels_of(call: Callable[[], Any]) -> list[str]:
    """What a call runs on the device, with microseconds, longest first."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as found:
        call()
        torch.cuda.synchronize()
    events = [(event.name, event.device_time_total) for event in found.events() if event.device_time_total]
    return [f"{name.split('(')[0][:60]} {us:.0f}" for name, us in sorted(events, key=lambda item: -item[1])]


def moved_by(pattern: Pattern, given: tuple[Tensor, ...]) -> int:
    """Bytes of inputs and results, and of cotangent and gradients."""
    results = pattern.run(*given)
    results = results if isinstance(results, tuple) else (results,)
    wanted = sum([x.nbytes for x in given if x.is_floating_point()]) if pattern.grad else 0
    return sum([x.nbytes for x in (*given, *results)]) + wanted


def calls_of(
    pattern: Pattern, given: tuple[Any, ...], compilers: Iterable[str], numerics: str
) -> tuple[dict[str, Callable[[], Any]], dict[str, str]]:
    """A call by each compiler, made once, and what failed."""
    calls, failed = {}, {}
    for compiler in compilers:
        try:
            call = call_of(compiler, pattern, given, numerics)
            call()
            torch.cuda.synchronize()
        except Exception as error:  # one that cannot do a row leaves the others theirs, and is told
            failed[compiler] = f"{type(error).__name__}: {str(error)[:300]}"
        else:
            calls[compiler] = call
    return calls, failed


def measure(
    names: Iterable[str], dtypes: Iterable[str], compilers: Iterable[str], numerics: str, details: bool
) -> Iterator[Row]:
    """The rows, one after the other."""
    timer = Timer()
    for dtype in dtypes:
        for name in names:
            pattern = ALL[name]
            given = inputs_of(pattern, getattr(torch, dtype))
            if not given:
                continue
            with torch.set_grad_enabled(pattern.grad):
                calls, failed = calls_of(pattern, given, compilers, numerics)
                for compiler, why in failed.items():
                    print(f"FAILED {name} {dtype} by {compiler}: {why}", flush=True)
                ms = timer.medians(calls)
                moved = moved_by(pattern, given)
                row = Row(name, dtype, ms, moved, [], timer.copying(moved))
                if details and row.ratio("torch.compile") > SLOWER:
                    row = row._replace(kernels=[f"{c}: {k}" for c in calls for k in kernels_of(calls[c])[:6]])
            yield row
            del calls, given
            torch.cuda.empty_cache()


def prepare(part: str, names: list[str], dtypes: Iterable[str], compilers: Iterable[str], numerics: str) -> None:
    """Compile every n-th row."""
    number, count = map(int, part.split("/"))
    rows = [(name, dtype) for dtype in dtypes for name in names]
    for name, dtype in rows[number - 1 :: count]:
        pattern, begun = ALL[name], time.perf_counter()
        given = inputs_of(pattern, getattr(torch, dtype))
        if given:
            with torch.set_grad_enabled(pattern.grad):
                _, failed = calls_of(pattern, given, compilers, numerics)
            torch.cuda.empty_cache()
            print(f"{name} {dtype} {time.perf_counter() - begun:.1f} s {failed or ''}", flush=True)


def line(row: Row, copying: float) -> str:
    """A row: milliseconds, stator's as a part of the others', bandwidth, and which part it is of copying."""
    ms = " ".join([f"{row.ms.get(c, math.nan):8.3f}" for c in COMPILERS])
    ratios = " ".join([f"{row.ratio(c):5.2f}" for c in COMPILERS if c != "stator"])
    reached = f"{row.bandwidth():6.0f} {row.bandwidth() / copying:5.2f} {row.bandwidth('torch.compile') / copying:5.2f}"
    return f"{row.pattern:36} {row.dtype:8} {ms}  {ratios}  {reached} {row.bandwidth() / row.copying:5.2f}"


def summary(rows: list[Row], copying: float) -> Iterator[str]:
    """How the rows stand against torch.compile, and which lose with which kernels."""
    ratios = [row.ratio("torch.compile") for row in rows if not math.isnan(row.ratio("torch.compile"))]
    if ratios:
        mean = math.exp(-sum(map(math.log, ratios)) / len(ratios))
        fast, near = (sum([ratio <= most for ratio in ratios]) for most in (1.0, NEAR))
        told = f"as fast on {fast} of {len(ratios)}, {near} to within {NEAR - 1:.0%}, worst {1 / max(ratios):.2f}"
        yield f"{mean:.2f} times torch.compile's speed; {told}"
    bound = [row for row in rows if ALL[row.pattern].moved and row.moved >= LEAST]
    smaller, larger = [[row for row in bound if (row.moved < 2 * LEAST) is small] for small in (True, False)]
    for told, some in {"": bound, " of less than 128 MiB": smaller, " of more": larger}.items():
        if some:
            of_most = statistics.median([row.bandwidth() / copying for row in some])
            of_as_much = statistics.median([row.bandwidth() / row.copying for row in some])
            yield f"{len(some)} rows{told} that memory bounds: {of_most:.2f} of copying, {of_as_much:.2f} of as much"
    for row in sorted(rows, key=lambda row: -row.ratio("torch.compile")):
        if row.ratio("torch.compile") > SLOWER:
            yield f"loses {row.ratio('torch.compile'):.2f} {row.pattern} {row.dtype}"
            yield from [f"    {kernel}" for kernel in row.kernels]


def main() -> None:
    """Parse, measure, print, and write what was measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=[], help="parts of names; all patterns where there are none")
    parser.add_argument("--dtype", nargs="+", default=["bfloat16"], choices=("float32", "bfloat16", "float16"))
    parser.add_argument("--compilers", nargs="+", default=list(COMPILERS), choices=COMPILERS)
    parser.add_argument("--numerics", default="eager", choices=("eager", "fast"), help="of stator")
    parser.add_argument("--prepare", metavar="I/N", help="compile the I-th of N parts of the rows, and time nothing")
    parser.add_argument("--brief", action="store_true", help="no kernels of the rows that lose")
    parser.add_argument("--out", type=Path, help="a file for the figures")
    options = parser.parse_args()
    names = [name for name in ALL if not options.only or any(part in name for part in options.only)]
    if options.prepare:
        prepare(options.prepare, names, options.dtype, options.compilers, options.numerics)
        return
    copying, rows = Timer().copying(), []
    versions = f"{torch.cuda.get_device_name()}, torch {torch.__version__}"
    print(f"{versions}; numerics={options.numerics}; copying reaches {copying:.0f} GB/s")
    print(
        f"{'pattern':36} {'dtype':8} {' '.join([f'{c[:8]:>8}' for c in COMPILERS])}  of eager, peer  GB/s, of copying"
    )
    for row in measure(names, options.dtype, options.compilers, options.numerics, not options.brief):
        rows.append(row)
        print(line(row, copying), flush=True)
        if options.out:
            options.out.write_text(json.dumps([row._asdict() for row in rows], indent=1), encoding="utf-8")
    for text in summary(rows, copying):
        print(text)


if __name__ == "__main__":
    main()
