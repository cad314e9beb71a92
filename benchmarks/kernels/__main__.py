"""Patterns of real programs at five sizes: microseconds a call of eager, stator and torch.compile.

    python -m benchmarks.kernels [pattern …] [--sizes 16 100000] [--threads 2] [--peer] [--out kernels.json]
    python -m benchmarks.kernels --odd --dtype bfloat16 --threads 1
    python -m benchmarks.kernels --read kernels.json … >> docs/kernels.md

All of a row are measured in turn in one process, allocations and calls included; a figure is the least of several
rounds, as the machine is shared. `--peer` adds torch.compile. `--odd` and `--dtype` sweep beside the table: other
sizes, and operands of another dtype in those patterns whose operands are float32. Of patterns that memory bounds the
last columns are the bandwidth that they reach, and which part that is of what copying reaches that moves as many bytes
and is measured in turn with them: into memory that is there, and into fresh memory (`clone`).
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from rich.console import Console
from rich.table import Table

import stator
from benchmarks.kernels.cases import ODD_SIZES, PATTERNS, SIZES, Pattern
from benchmarks.worker import flat_outputs

Call = Callable[[], Any]
#: Seconds that a round of one compiler takes at least, and rounds.
ROUND, ROUNDS = 0.004, 9
#: What counts as slower than eager, and than torch.compile.
SLOWER_THAN_EAGER, SLOWER_THAN_PEER = 1.03, 1.10


class Copying(NamedTuple):
    """Bytes a microsecond that copying reads and writes: into memory that is there, and into fresh memory."""

    held: float
    fresh: float


class Row(NamedTuple):
    """Least microseconds a call by compiler, the bytes that a call moves, and how fast as many are copied."""

    pattern: str
    size: int
    us: dict[str, float]
    moved: int
    copying: Copying | None = None

    def ratio(self, other: str) -> float:
        """How many times as long stator takes."""
        return self.us["stator"] / self.us[other] if other in self.us else math.nan

    @property
    def bandwidth(self) -> float:
        """Bytes a microsecond."""
        return self.moved / self.us["stator"]


def is_bound(pattern: Pattern, size: int) -> bool:
    """Whether memory bounds a pattern at a size."""
    return pattern.moved and not pattern.grad and size == max(SIZES)


def compiled(compiler: str, function: Callable[..., Any], numerics: str = "eager") -> Callable[..., Any]:
    """A new function of the same code under a compiler, for static shapes; `numerics` are stator's."""
    match compiler:
        case "stator":
            return stator.compile(function, dynamic=False, fullgraph=True, options={"numerics": numerics})
        case "torch.compile":
            torch._dynamo.reset()
            return torch.compile(function, dynamic=False, fullgraph=True)
    return function


def call_of(compiler: str, pattern: Pattern, given: tuple[Any, ...], numerics: str = "eager") -> Call:
    """A call by a compiler forward, or forward and backward with a cotangent of random numbers."""
    return call_with(compiled(compiler, pattern.run, numerics), pattern, given)


def call_with(function: Callable[..., Any], pattern: Pattern, given: tuple[Any, ...]) -> Call:
    """A call of what a compiler has made of a pattern."""
    if not pattern.grad:
        return lambda: function(*given)
    inputs = [x.requires_grad_() if x.is_floating_point() else x for x in given]
    wanted = [x for x in inputs if x.requires_grad]
    cotangent = torch.randn_like(function(*inputs))
    return lambda: torch.autograd.grad(function(*inputs), wanted, cotangent)


def timed(call: Call, count: int) -> float:
    """Microseconds a call over so many calls."""
    start = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - start) / count * 1e6


def least(calls: dict[str, Call], rounds: int = ROUNDS) -> dict[str, float]:
    """The least time of each, measured in turn."""
    counts = {}
    for name, call in calls.items():
        call()
        counts[name] = max(1, int(ROUND * 1e6 / max(min(timed(call, 1), timed(call, 1)), 0.1)))
    found = [{name: timed(call, counts[name]) for name, call in calls.items()} for _ in range(rounds)]
    return {name: min(round[name] for round in found) for name in calls}


def inputs_of(pattern: Pattern, size: int, dtype: torch.dtype) -> tuple[Any, ...]:
    """Random inputs, in a dtype instead of float32; none where no operand is float32."""
    torch.manual_seed(0)
    given = pattern.inputs(size)
    if all(x.dtype != torch.float32 for x in given):
        return given if dtype == torch.float32 else ()
    return tuple([x.to(dtype) if x.dtype == torch.float32 else x for x in given])


def measure(
    names: Iterable[str],
    sizes: Iterable[int],
    compilers: Iterable[str],
    dtype: torch.dtype = torch.float32,
    rounds: int = ROUNDS,
) -> Iterator[Row]:
    """The rows, one after the other."""
    for name in names:
        pattern = PATTERNS[name]
        for size in sizes:
            given = inputs_of(pattern, size, dtype)
            if not given:
                continue
            with torch.set_grad_enabled(pattern.grad):
                calls = {compiler: call_of(compiler, pattern, given) for compiler in compilers}
                moved = sum(t.nbytes for t in (*given, *flat_outputs(pattern.run(*given))))
                us = least(calls | (copies(moved) if is_bound(pattern, size) else {}), rounds)
                copying = Copying(moved / us.pop("held"), moved / us.pop("fresh")) if "held" in us else None
                yield Row(name, size, us, moved, copying)


def copies(moved: int) -> dict[str, Call]:
    """Copying that reads and writes so many bytes."""
    source = torch.ones(moved // 8)
    target = torch.zeros_like(source)
    return {"held": lambda: target.copy_(source), "fresh": source.clone}


def report(rows: list[Row], compilers: list[str]) -> Table:
    """Microseconds, ratios (stator's time as a part of the other's), bandwidth."""
    others = [c for c in compilers if c != "stator"]
    table = Table("pattern", "size", *compilers, *[f"of {c}" for c in others], "GB/s", "of copying", "of cloning")
    for row in rows:
        reached = _reached(row, row.copying) if row.copying else []
        us = [f"{row.us[c]:.1f}" for c in compilers]
        table.add_row(row.pattern, f"{row.size:,}", *us, *[_ratio(row, c) for c in others], *reached)
    return table


def _reached(row: Row, copying: Copying) -> list[str]:
    """The bandwidth of a row, and which part it is of what copying reaches."""
    parts = [f"{row.bandwidth / reached:.2f}" for reached in copying]
    return [f"{row.bandwidth / 1e3:.1f}", *parts]


def _ratio(row: Row, other: str) -> str:
    limit = SLOWER_THAN_EAGER if other == "eager" else SLOWER_THAN_PEER
    ratio = row.ratio(other)
    return f"[bold]{ratio:.2f}[/bold]" if ratio > limit else f"{ratio:.2f}"


def page(rows: list[Row]) -> str:
    """The rows of a processor as a table: times as a part of eager's and of torch.compile's, by size."""
    sizes = sorted({row.size for row in rows})
    cells = {(row.pattern, row.size): row for row in rows}
    lines = [f"| pattern | {' | '.join(f'{size:,}' for size in sizes)} |", "|---|" + "---:|" * len(sizes)]
    for name in dict.fromkeys(row.pattern for row in rows):
        found = [cells.get((name, size)) for size in sizes]
        parts = [f"{row.ratio('eager'):.2f} / {row.ratio('torch.compile'):.2f}" if row else "" for row in found]
        lines.append(f"| {name} | {' | '.join(parts)} |")
    return "\n".join([*lines, "", *summary(rows), "", *bound(rows)])


def bound(rows: list[Row]) -> list[str]:
    """The rows that memory bounds, as a table: what a call moves, how fast, and which part of copying it is."""
    lines = ["| pattern | MB | GB/s | of copying | of cloning |", "|---|" + "---:|" * 4]
    found = [(row, row.copying) for row in rows if row.copying]
    lines += [f"| {row.pattern} | {row.moved / 1e6:.0f} | {' | '.join(_reached(row, c))} |" for row, c in found]
    return lines if found else []


def summary(rows: list[Row]) -> list[str]:
    """A line for each of the others: how much faster stator is, and where it is slower."""
    lines = []
    for other, limit in (("eager", SLOWER_THAN_EAGER), ("torch.compile", SLOWER_THAN_PEER)):
        if all(other in row.us for row in rows):
            slower = sum(row.ratio(other) > limit for row in rows)
            part = f"slower than {limit} times its time in {slower} of {len(rows)} rows"
            lines.append(f"{mean(rows, other):.2f} times {other}'s speed; {part}")
    return lines


def mean(rows: list[Row], other: str) -> float:
    """The geometric mean of how many times as fast stator is."""
    return math.exp(-sum(math.log(row.ratio(other)) for row in rows) / len(rows))


def read(path: Path) -> list[Row]:
    """What was measured and written to a file."""
    rows = [Row(**row) for row in json.loads(path.read_text(encoding="utf-8"))]
    return [row._replace(copying=Copying(*row.copying)) if row.copying else row for row in rows]


def main() -> None:
    """Parse, measure, print, and write what was measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("patterns", nargs="*", help="parts of names; all patterns where there are none")
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES), choices=(*SIZES, *ODD_SIZES))
    parser.add_argument("--odd", action="store_const", dest="sizes", const=list(ODD_SIZES), help="odd sizes")
    parser.add_argument("--dtype", default="float32", choices=("float32", "float64", "bfloat16", "float16"))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="more of them on a machine that others share")
    parser.add_argument("--peer", action="store_true", help="torch.compile too")
    parser.add_argument("--out", type=Path, help="a file for the figures")
    parser.add_argument("--read", type=Path, nargs="+", help="print the table of these files instead")
    options = parser.parse_args()
    if options.read:
        print(page([row for path in options.read for row in read(path)]))
        return
    torch.set_num_threads(options.threads)
    compilers = ["eager", "stator", *["torch.compile"] * options.peer]
    names = [name for name in PATTERNS if not options.patterns or any(part in name for part in options.patterns)]
    console, rows = Console(), []
    for row in measure(names, options.sizes, compilers, getattr(torch, options.dtype), options.rounds):
        rows.append(row)
        if options.out:
            options.out.write_text(json.dumps([row._asdict() for row in rows], indent=1), encoding="utf-8")
    console.print(report(rows, compilers))
    for line in summary(rows):
        console.print(line)


if __name__ == "__main__":
    main()
