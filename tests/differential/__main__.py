"""Many random programs: `python -m tests.differential --examples 5000 --seed 1 --jobs 2`.

Failures are shortened and printed.
Every program is compiled twice, by the default backend and by "aot_eager", and called with up to three sizes each.
"""

from __future__ import annotations

import argparse
import collections
import json
import random
import re
import signal
import subprocess
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import torch

import stator
from stator.base import faults
from stator.base.errors import CaptureError, DataDependent, FallbackWarning, Unsupported
from stator.coverage.compare import EPSILON, Seen, judged
from tests.differential.observe import observe
from tests.differential.programs import MOST_STATEMENTS, Program, generate, shorten

BACKENDS = ("inductor", "aot_eager")
#: How many times as great sizes are in further calls.
FACTORS = (2, 3)
#: After how many programs a process is replaced: compilers keep memory for the life of a process.
LIFE = 50
#: After how many seconds a program that is compiled and run is taken not to end.
LIMIT = 300.0
#: What such a process runs.
COMMAND = ("-m", "tests.differential")


class Result(NamedTuple):
    """What became of one program."""

    number: int
    verdict: str
    why: str
    text: str = ""


def judge(program: Program, backend: str = "inductor", factors: Sequence[int] = ()) -> tuple[str, str]:
    """The verdict on one program: right, refused, wrong or unusable; and why.

    One compiled function is called with each size: the program's own, and so many times as great ones.
    """
    want = observe(program.function(), program.inputs)
    if want.failed is not None:
        return "unusable", str(want.failed)
    stator.reset()
    options = {"strict": True} | ({"cache": False} if backend == "inductor" else {})
    compiled = stator.compile(program.function(), backend=backend, fullgraph=True, options=options)
    verdict, why = _compare(program, compiled, want)
    for factor in factors if verdict == "right" else ():
        larger = program.resized(factor)
        if larger is not None:
            verdict, why = _compare(larger, compiled, observe(larger.function(), larger.inputs))
            if verdict == "wrong":
                return "wrong", f"sizes times {factor}: {why}"
    return ("refused", why) if verdict == "refused" else (verdict, why)


def _compare(program: Program, compiled: Callable[..., Any], want: Seen) -> tuple[str, str]:
    """The verdict on one call."""
    function = program.function()

    def eager(**how: Any) -> Seen:
        return observe(function, program.inputs, **how)

    before = faults.total()
    with warnings.catch_warnings():
        warnings.simplefilter("error", FallbackWarning)
        got = observe(compiled, program.inputs)
    if faults.total() != before:
        return "wrong", "; ".join(map(str, faults.recent(before)))
    for error in (got.failed, got.backward_failed):
        if isinstance(error, (CaptureError, Unsupported, DataDependent)):
            return "refused", str(error).split("\n")[0]
    coarse = min(max((EPSILON.get(item.dtype, 1e-7) for item in program.inputs), default=0.0), EPSILON[torch.float32])
    for dtype, text in ((torch.float16, r"\bfloat16|half\("), (torch.bfloat16, "bfloat16")):
        if re.search(text, program.source):  # a result of another type may have been of this one
            coarse = max(coarse, EPSILON[dtype])
    found = judged(got, eager, want, coarse)
    return ("wrong", "; ".join(found)) if found else ("right", "")


def kind(why: str) -> str:
    """A message without its numbers, to tell failures apart."""
    return re.sub(r"[-\d.]+|\[.*?\]|\(.*?\)|nan|inf", "#", why.split(";")[0])[:80]


def examine(number: int, program: Program, shrink: int, begin: Callable[[], None]) -> Iterator[Result]:
    """The program of a seed, under each backend; `begin` is called before each judgement."""
    for backend in BACKENDS:

        def verdict(p: Program, backend: str = backend) -> tuple[str, str]:
            begin()
            try:
                return judge(p, backend, FACTORS)
            except Exception:
                return "wrong", traceback.format_exc()[-600:]

        found, why = verdict(program)
        if found != "wrong":
            yield Result(number, found, why)
            continue
        what = kind(why)
        short = shorten(program, lambda p, what=what, verdict=verdict: kind(verdict(p)[1]) == what, shrink)
        yield Result(number, found, why, f"# seed {number}, {backend}: {why}\n# now: {verdict(short)[1]}\n{short}\n")


def serve(first: int, count: int, shrink: int, statements: int) -> None:
    """What a process does: lines of JSON with the number of each program, its text, its results; null in between."""

    def begin() -> None:
        print(json.dumps(None), flush=True)

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    for number in range(first, first + count):
        print(json.dumps(number), flush=True)
        program = generate(random.Random(number), statements)
        print(json.dumps(str(program)), flush=True)
        for result in examine(number, program, shrink, begin):
            print(json.dumps(result), flush=True)


def served(first: int, count: int, shrink: int, statements: int = MOST_STATEMENTS) -> Iterator[Result]:
    """The results of some programs, run in processes of their own: that one dies, or does not end, is a result too.

    One that dies before it has told its program died in eager, which runs while the program is written.
    """
    end = first + count
    while first < end:
        numbers = {"seed": first, "examples": min(end - first, LIFE), "shrink": shrink, "statements": statements}
        given = ["--serve", *[f"--{name}={number}" for name, number in numbers.items()]]
        text = ""
        with subprocess.Popen([sys.executable, *COMMAND, *given], stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for line in _watched(process.stdout, process.kill):
                match json.loads(line):
                    case int(number):
                        first, text = number, ""
                    case str(program):
                        text = program
                    case list(found):
                        yield Result(*found)
        if process.returncode > 0:
            raise RuntimeError(f"the run of program {first} failed; its output is above")
        if process.returncode:
            why = f"the process ended with {process.returncode}, {-signal.SIGKILL} perhaps after {LIMIT:.0f} s"
            yield Result(first, "wrong" if text else "unusable", why, f"# seed {first}: {why}\n{text}\n")
        first += 1


def _watched(lines: Iterator[str], kill: Callable[[], None]) -> Iterator[str]:
    """The lines of a process, which is killed when one takes too long."""
    while True:
        watch = threading.Timer(LIMIT, kill)
        watch.start()
        line = next(lines, None)
        watch.cancel()
        if line is None:
            return
        yield line


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--examples", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--shrink", type=int, default=60, help="tries to shorten a failing program")
    parser.add_argument("--statements", type=int, default=MOST_STATEMENTS, help="the most that a program has")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.serve:
        serve(given.seed, given.examples, given.shrink, given.statements)
        return 0
    report = Report()
    with ThreadPoolExecutor(given.jobs) as pool:
        starts = range(given.seed, given.seed + given.examples, LIFE)
        parts = [(start, min(LIFE, given.seed + given.examples - start)) for start in starts]

        def run(part: tuple[int, int]) -> None:
            for result in served(*part, given.shrink, given.statements):
                report.add(result)

        for _ in pool.map(run, parts):
            report.line()
    report.line()
    for why, count in report.refusals.most_common(40):
        print(f"#   {count} refused: {why}")
    return int(report.counts["wrong"] > 0)


class Report:
    """What has been found so far; wrong programs are printed as they are found."""

    def __init__(self) -> None:
        self.counts: collections.Counter[str] = collections.Counter()
        self.refusals: collections.Counter[str] = collections.Counter()
        self.start = time.perf_counter()

    def add(self, result: Result) -> None:
        self.counts[result.verdict] += 1
        self.refusals.update([kind(result.why)] * (result.verdict == "refused"))
        if result.verdict == "wrong":
            print(result.text, flush=True)

    def line(self) -> None:
        print(f"# {dict(self.counts)} in {time.perf_counter() - self.start:.0f} s", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
