"""Models on a GPU: stator beside eager and torch.compile, without and with CUDA graphs.

    python -m benchmarks.gpu [model …] [--tasks inference training] [--graphs off on] [--only check|time]
                             [--caches folder] [--out gpu.jsonl] [--jobs 1] [--firsts 0] [--alone 0] [--draws 5]
                             [--rounds 5] [--profile]
    python -m benchmarks.gpu --read gpu.jsonl … >> docs/benchmarks.md

Each compiler has a process and caches of its own. `--only check` makes first calls with empty caches and compares
results with float64; `--only time` times calls, and first calls with what is in the caches; without it both are done.
With several jobs so many programs run side by side, but first calls only `--firsts` at a time, each with its part of
the cores (how many is in their records); for the first seconds of `--alone` they are made alone, both compilers' of
one row after the other. Calls are timed while nothing else runs all the same. Records go to the end of the file as
they are made.

All of it on an H100 with 16 threads, in two commands of less than 560 seconds each (docs/gpu.md has them, too):

    python -m benchmarks.gpu --only check --jobs 14 --firsts 4 --limit 525 --caches C --out F --logs L
    python -m benchmarks.gpu --only time --jobs 14 --firsts 4 --limit 525 --caches C --out F --logs L \\
                             --rounds 3 --seconds 0.12
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

import torch

from benchmarks.gpu.measure import Book, Plan, Record, Rows
from benchmarks.gpu.models import MODELS, TASKS
from benchmarks.gpu.processes import cores
from benchmarks.gpu.step import COMPILERS, EAGER, FAST, PEER, STATOR, Row
from benchmarks.gpu.table import merge, page
from benchmarks.installed import compile_bytecode


def read(paths: list[Path]) -> list[Record]:
    """The records of files."""
    return [json.loads(line) for path in paths for line in path.read_text(encoding="utf-8").splitlines()]


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("models", nargs="*", help="all where there are none", choices=[*MODELS, []])
    made.add_argument("--tasks", nargs="+", default=list(TASKS), choices=TASKS)
    made.add_argument("--graphs", nargs="+", default=["off", "on"], choices=["off", "on"])
    made.add_argument(
        "--compilers", nargs="+", choices=COMPILERS, help=f"{EAGER}, {STATOR} and {PEER}, and for errors {FAST!r}"
    )
    made.add_argument("--only", choices=["check", "time"])
    made.add_argument("--device", default="cuda")
    made.add_argument("--scale", type=int, default=1, help="divides batches")
    made.add_argument("--caches", type=Path, help="a folder in which compilers keep what they compiled")
    made.add_argument("--filled", action="store_true", help="time only what is in the caches")
    made.add_argument("--jobs", type=int, default=1, help="programs that run side by side")
    made.add_argument("--firsts", type=int, default=0, help="how many first calls are made at once; 0: as many as jobs")
    made.add_argument("--alone", type=float, default=0.0, help="seconds for first calls that are made alone")
    made.add_argument("--draws", type=int, default=5, help="of weights and inputs, of which errors are means")
    made.add_argument("--rounds", type=int, default=5, help="in which all compilers of a row are called in turn")
    made.add_argument("--seconds", type=float, default=0.5, help="that one is called for in a round")
    made.add_argument("--profile", nargs="*", help="also write what kernels take, of these models, or of all")
    made.add_argument("--limit", type=float, default=float("inf"), help="seconds after which nothing more is begun")
    made.add_argument("--logs", type=Path, help="a folder for what is printed, failures and profiles")
    made.add_argument("--out", type=Path, help="a file to which records are added")
    made.add_argument("--read", type=Path, nargs="+", help="print the tables of these files instead")
    return made


def rows(options: argparse.Namespace) -> list[Row]:
    """What the command line names: all without CUDA graphs first."""
    names = options.models or MODELS
    return [Row(name, task, graphs == "on") for graphs in options.graphs for name in names for task in options.tasks]


def facts(device: str) -> Record:
    """What records say of the machine."""
    name = torch.cuda.get_device_name() if device.startswith("cuda") and torch.cuda.is_available() else device
    return {"device": name, "torch": torch.__version__, "date": time.strftime("%Y-%m-%d")}


def main() -> None:
    """Measure what the command line names, and print it."""
    options = parser().parse_args()
    if options.read:
        print(page(merge(read(options.read))))
        return
    begun = time.monotonic()
    compile_bytecode()
    wanted = rows(options)
    profiled = frozenset(
        [row for row in wanted if options.profile is not None and row.model in (options.profile or MODELS)]
    )
    with tempfile.TemporaryDirectory() as folder:
        plan = Plan(
            options.compilers or COMPILERS, options.compilers or [EAGER, STATOR, PEER], options.device,
            options.caches or Path(folder) / "caches", options.logs or Path(folder) / "logs", options.jobs,
            cores(), options.rounds, options.seconds, options.scale, profiled, options.filled,
            begun + options.limit, options.alone, options.firsts, options.draws,
        )  # fmt: skip
        plan.logs.mkdir(parents=True, exist_ok=True)
        book = Book(options.out, facts(options.device))
        measured = Rows(plan, book)
        if options.only != "time":
            measured.check(wanted)
        if options.only != "check":
            measured.time(wanted)
    print(page(merge(book.records)))


if __name__ == "__main__":
    main()
