"""Patterns of real programs on a GPU: milliseconds and bandwidth of eager, stator and torch.compile.

    python -m benchmarks.gpu.kernels [--only transpose "sum of"] [--dtype bfloat16 float32] [--out kernels.json]
    python -m benchmarks.gpu.kernels --prepare 1/8

The patterns are those of `benchmarks.kernels`, at a size of which no cache holds an operand, and a few of fixed
shapes; what memory bounds also at four times that size, since of 64 MiB a fast memory spends a good part of the time
beginning and ending. Figures are medians of the time that the device takes for a call, by events, in two ways, with the
device kept busy before for long enough that the host is ahead of it, so that launches cost nothing but gaps:

- alone: the cache is overwritten before each call, and what kernels have asked it to keep is let go, so that no call
  finds what another one left;
- in a row, as programs run them: calls one behind the other, each on memory and with results of its own, of more bytes
  together than a cache holds. Each begins as the one before it ends, and writes what that has left in the cache.

Compilers are measured in turn, in a new random order each time. Bytes are those of inputs and results, each once (with
gradients: of inputs, cotangent and gradients); what they are a part of is what copying 256 MiB reaches in the same run,
and a copy that moves as many bytes as the row. By default stator rounds as eager does; with `--numerics fast` it keeps
float32 between the operators of a kernel, as torch.compile does. `--prepare` compiles a part of the rows and times
nothing, for caches on disk.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import math
import random
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.kernels.__main__ import Call, call_with, compiled
from benchmarks.kernels.cases import LARGE, PATTERNS, Pattern

DEVICE = "cuda"
COMPILERS = ("eager", "stator", "torch.compile")
#: Calls alone, and rows of calls, that a median is of.
CALLS, ROWS = 41, 15
#: Cycles of the device in a second, at most, and that it waits at least for the host to be ahead of it.
CYCLES, LEAST_WAIT = 2e9, 1_000_000
#: Bytes that are overwritten before each call, or that calls in a row move at least: more than a cache holds. And how
#: many calls such a row has.
FLUSHED, FEWEST, MOST = 256 << 20, 3, 12
#: Bytes from which on a row counts as one that memory bounds.
LEAST = 64 << 20
#: By how much the same kernel's times differ from run to run.
NEAR = 1.01
#: A row of more than so many times torch.compile's time is named a loser.
SLOWER = 1.05


class Copying(NamedTuple):
    """GB/s that copying reads and writes, alone and in a row."""

    alone: float
    in_a_row: float


class Row(NamedTuple):
    """Median milliseconds a call by compiler, alone and in a row, and the bytes that a call moves at least."""

    pattern: str
    dtype: str
    ms: dict[str, float]
    in_a_row: dict[str, float]
    moved: int
    #: Of a copy that moves as many.
    copying: Copying
    kernels: list[str]

    def ratio(self, other: str, alone: bool = True) -> float:
        """How many times as long stator takes."""
        ms = self.ms if alone else self.in_a_row
        return ms.get("stator", math.nan) / ms.get(other, math.nan)

    def bandwidth(self, compiler: str = "stator", alone: bool = True) -> float:
        """GB/s."""
        ms = self.ms if alone else self.in_a_row
        return self.moved / ms[compiler] / 1e6 if compiler in ms else math.nan


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
    """Times calls on the device: of each compiler some, with memory of their own each."""

    def __init__(self) -> None:
        self.flushed = torch.empty(FLUSHED, dtype=torch.uint8, device=DEVICE)
        self.driver = ctypes.CDLL("libcuda.so.1")
        self.random = random.Random(0)

    def medians(self, calls: dict[str, list[Call]]) -> tuple[dict[str, float], dict[str, float]]:
        """Milliseconds of a call alone and in a row: in turn, so that drift hits all alike, and in any order."""
        alone: dict[str, list[float]] = {name: [] for name in calls}
        in_a_row: dict[str, list[float]] = {name: [] for name in calls}
        waits = {name: self.wait(some) for name, some in calls.items()}
        for times, rounds, time_of in ((alone, CALLS, self.alone), (in_a_row, ROWS, self.in_a_row)):
            for _ in range(rounds):
                for name in self.random.sample(list(calls), len(calls)):
                    times[name].append(time_of(calls[name], waits[name]))
        middle = [{name: statistics.median(ms) for name, ms in times.items()} for times in (alone, in_a_row)]
        return middle[0], middle[1]

    def wait(self, calls: Sequence[Call]) -> int:
        """Cycles that the device is to wait, so that the host is ahead of it by one of these calls."""
        seconds = []
        for _ in range(3):
            torch.cuda.synchronize()
            start = time.perf_counter()
            held = [call() for call in calls]
            seconds.append((time.perf_counter() - start) / len(calls))
            del held
        return int(2 * max(seconds[1:]) * CYCLES)

    def alone(self, calls: Sequence[Call], wait: int) -> float:
        """Milliseconds of the first of these calls, with nothing of it in the cache."""
        self.release()
        self.flushed.zero_()
        torch.cuda._sleep(LEAST_WAIT + wait)
        return elapsed(calls[:1])

    def in_a_row(self, calls: Sequence[Call], wait: int) -> float:
        """Milliseconds of each of these calls, after the same ones."""
        self.release()
        torch.cuda._sleep(LEAST_WAIT + 2 * len(calls) * wait)
        held = [call() for call in calls]
        ms = elapsed(calls) / len(calls)
        del held
        return ms

    def release(self) -> None:
        """Make what kernels have asked the cache to keep like all else in it; overwriting other memory does not."""
        torch.cuda.synchronize()
        if code := self.driver.cuCtxResetPersistingL2Cache():
            raise RuntimeError(f"cuCtxResetPersistingL2Cache: error {code}")

    def copying(self, moved: int = 512 << 20) -> Copying:
        """GB/s that copying reads and writes, of so many bytes both together."""
        numel = max(moved // 2, 1)
        sources = [torch.ones(numel, dtype=torch.uint8, device=DEVICE) for _ in range(calls_in_a_row(2 * numel))]
        calls: list[Call] = [source.clone for source in sources]
        alone, in_a_row = self.medians({"": calls})
        return Copying(2 * numel / alone[""] / 1e6, 2 * numel / in_a_row[""] / 1e6)


def calls_in_a_row(moved: int) -> int:
    """How many calls that move so many bytes each are measured in a row."""
    return min(max(-(-FLUSHED // moved), FEWEST), MOST)


def elapsed(calls: Sequence[Call]) -> float:
    """Milliseconds that the device takes for calls, all of whose results are there until the last has ended."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    held = [call() for call in calls]
    end.record()
    end.synchronize()
    del held
    return start.elapsed_time(end)


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
    pattern: Pattern, sets: Sequence[tuple[Any, ...]], compilers: Iterable[str], numerics: str
) -> tuple[dict[str, list[Call]], dict[str, str]]:
    """A call with each of several inputs by each compiler, the first made once, and what failed."""
    calls, failed = {}, {}
    for compiler in compilers:
        try:
            function = compiled(compiler, pattern.run, numerics)
            made = [call_with(function, pattern, given) for given in sets]
            made[0]()
            torch.cuda.synchronize()
        except Exception as error:  # one that cannot do a row leaves the others theirs, and is told
            failed[compiler] = f"{type(error).__name__}: {str(error)[:300]}"
        else:
            calls[compiler] = made
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
                moved = moved_by(pattern, given)
                more = range(1, calls_in_a_row(moved))
                sets = [given, *[inputs_of(pattern, getattr(torch, dtype)) for _ in more]]
                calls, failed = calls_of(pattern, sets, compilers, numerics)
                for compiler, why in failed.items():
                    print(f"FAILED {name} {dtype} by {compiler}: {why}", flush=True)
                row = Row(name, dtype, *timer.medians(calls), moved, timer.copying(moved), [])
                if details and row.ratio("torch.compile") > SLOWER:
                    row = row._replace(kernels=[f"{c}: {k}" for c in calls for k in kernels_of(calls[c][0])[:6]])
            yield row
            del calls, given, sets
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
                _, failed = calls_of(pattern, [given], compilers, numerics)
            torch.cuda.empty_cache()
            print(f"{name} {dtype} {time.perf_counter() - begun:.1f} s {failed or ''}", flush=True)


def line(row: Row, copying: Copying) -> str:
    """A row: milliseconds alone, stator's as a part of the others', of copying's bandwidth; and the same in a row."""
    ms = " ".join([f"{row.ms.get(c, math.nan):8.3f}" for c in COMPILERS])
    told = []
    for alone, most, as_much in zip((True, False), copying, row.copying, strict=True):
        ratios = " ".join([f"{row.ratio(c, alone):5.3f}" for c in COMPILERS if c != "stator"])
        reached = row.bandwidth(alone=alone)
        told.append(f"{ratios} {reached:5.0f} {reached / most:4.2f} {reached / as_much:4.2f}")
    return f"{row.pattern:36} {row.dtype:8} {ms} | {' | '.join(told)}"


def standing(rows: list[Row], alone: bool) -> str:
    """How the rows stand against torch.compile."""
    ratios = [ratio for row in rows if not math.isnan(ratio := row.ratio("torch.compile", alone))]
    mean = math.exp(-sum(map(math.log, ratios)) / len(ratios))
    fast, near = (sum([ratio <= most for ratio in ratios]) for most in (1.0, NEAR))
    told = f"as fast on {fast} of {len(ratios)}, {near} to within {NEAR - 1:.0%}, worst {1 / max(ratios):.2f}"
    return f"{'alone' if alone else 'in a row'}: {mean:.2f} times torch.compile's speed; {told}"


def summary(rows: list[Row], copying: Copying) -> Iterator[str]:
    """How the rows stand against torch.compile and copying, and which lose with which kernels."""
    if any("torch.compile" in row.ms for row in rows):
        yield from [standing(rows, alone) for alone in (True, False)]
    bound = [row for row in rows if ALL[row.pattern].moved and row.moved >= LEAST]
    smaller, larger = [[row for row in bound if (row.moved < 2 * LEAST) is small] for small in (True, False)]
    for told, some in {"": bound, " of less than 128 MiB": smaller, " of more": larger}.items():
        parts = [
            f"{statistics.median([row.bandwidth(alone=alone) / most for row in some]):.2f}"
            for alone, most in zip((True, False), copying, strict=True)
            if some
        ]
        yield f"{len(some)} rows{told} that memory bounds: {' alone, '.join(parts)} in a row, of copying"
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
    reached = f"{copying.alone:.0f} GB/s alone, {copying.in_a_row:.0f} in a row"
    print(f"{versions}; numerics={options.numerics}; copying reaches {reached}")
    heads = " | ".join([f"{way}: of eager, peer, GB/s, of copying, of as much" for way in ("alone", "in a row")])
    print(f"{'pattern':36} {'dtype':8} {' '.join([f'{c[:8]:>8}' for c in COMPILERS])} | {heads}")
    for row in measure(names, options.dtype, options.compilers, options.numerics, not options.brief):
        rows.append(row)
        print(line(row, copying), flush=True)
        if options.out:
            options.out.write_text(json.dumps([row._asdict() for row in rows], indent=1), encoding="utf-8")
    for text in summary(rows, copying):
        print(text)


if __name__ == "__main__":
    main()
