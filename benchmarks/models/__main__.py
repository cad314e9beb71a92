"""The models of the registry at realistic sizes: stator beside eager, torch.compile and OpenVINO.

    python -m benchmarks.models [model …] [--modes inference bfloat16 training] [--peers eager torch.compile openvino]
                                [--freezing] [--threads 2] [--jobs 1] [--caches folder] [--rounds 7] [--brief]
                                [--out models.jsonl]
    python -m benchmarks.models --layers [1 6 …] [--modes inference training] [--out models.jsonl]
    python -m benchmarks.models --read models.jsonl … >> docs/models.md

Each compiler has a process of its own, in which it compiles with empty caches (cold) and is then called in turn with
the others; another process starts with the caches that the first filled (warm). torch.compile's precompiled header,
which lies outside its caches, is built beforehand and not counted. Rows go to the end of the file as they are made, so
that several commands may write to one; a row that is there already is not made again. With several jobs so many rows
compile side by side, on cores of their own; calls are timed in one row after the other all the same. With a folder for
caches, a second run has no cold first calls, and takes a minute a row; `--brief` leaves out all but first calls and
calls.
"""

from __future__ import annotations

import argparse
import json
import platform
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from benchmarks.installed import compile_bytecode
from benchmarks.models.measure import LAYERS, ROUNDS, Cores, Measurement, measure, measure_layers
from benchmarks.models.peers import FROZEN, MODES
from benchmarks.models.table import LayersRow, Row, layers_table, page
from benchmarks.registry import MODELS

Record = dict[str, Any]


def read(paths: list[Path]) -> list[Record]:
    """The rows of the files, as they were written."""
    return [json.loads(line) for path in paths for line in path.read_text(encoding="utf-8").splitlines()]


def tables(records: list[Record]) -> str:
    """The tables of the rows: of a model and mode the last row counts, and models stand as in the registry."""
    rows = [Row(**record["row"]) for record in records if "model" in record["row"]]
    latest = {(row.model, row.mode): row for row in rows}
    layers = [LayersRow(**record["row"]) for record in records if "layers" in record["row"]]
    parts = [page(sorted(latest.values(), key=lambda row: list(MODELS).index(row.model)))] if latest else []
    if layers:
        parts += ["### Seconds of the first call against layers", layers_table(layers)]
    return "\n\n".join(parts)


def build_header(threads: int) -> None:
    """Let torch.compile build its precompiled header."""
    with (
        tempfile.TemporaryDirectory() as folder,
        Measurement("bert", "inference", ["torch.compile"], "tiny", threads, Path(folder)) as header,
    ):
        header.start()


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("models", nargs="*", help="all where there are none", choices=[*MODELS, []])
    made.add_argument("--modes", nargs="+", default=list(MODES), choices=MODES)
    made.add_argument("--peers", nargs="+", default=["eager", "torch.compile"])
    made.add_argument("--freezing", action="store_true", help="stator with freezing too")
    made.add_argument("--layers", type=int, nargs="*", help="encoders of so many layers instead of models")
    made.add_argument("--size", default="base", choices=["base", "tiny"])
    made.add_argument("--threads", type=int, default=2)
    made.add_argument("--jobs", type=int, default=1, help="rows that compile side by side")
    made.add_argument("--caches", type=Path, help="a folder in which compilers keep what they compiled")
    made.add_argument("--rounds", type=int, default=ROUNDS, help="in which all compilers of a row are called in turn")
    made.add_argument("--brief", action="store_true", help="neither errors nor first calls from filled caches")
    made.add_argument("--header", action=argparse.BooleanOptionalAction, default=True)
    made.add_argument("--out", type=Path, help="a file to which the rows are added")
    made.add_argument("--read", type=Path, nargs="+", help="print the tables of these files instead")
    return made


def missing(options: argparse.Namespace, done: list[Record]) -> list[tuple[Any, str]]:
    """The rows that the command line names and the file does not have: a model or a count of layers, and a mode."""
    known = {(record["row"].get("model", record["row"].get("layers")), record["row"]["mode"]) for record in done}
    layers = options.layers is not None
    names: Iterable[Any] = (options.layers or LAYERS) if layers else (options.models or MODELS)
    modes = [mode for mode in options.modes if not (layers and mode == "bfloat16")]
    return [(name, mode) for mode in modes for name in names if (name, mode) not in known]


def main() -> None:
    """Measure what the command line names, and print it."""
    options = parser().parse_args()
    if options.read:
        print(tables(read(options.read)))
        return
    compilers = ["stator", *[FROZEN] * options.freezing, *options.peers]
    compilers.sort(key=["eager", "stator", FROZEN, "torch.compile", "openvino"].index)
    done = read([options.out]) if options.out and options.out.exists() else []
    rows = missing(options, done)
    compile_bytecode()
    with Cores(options.jobs, options.threads) as pool:
        if options.header and "torch.compile" in compilers:
            pool.submit(build_header, options.threads).result()
        for first in range(0, len(rows), options.jobs):
            some = rows[first : first + options.jobs]
            made: list[Row] | list[LayersRow]
            if options.layers is None:
                how = {"caches": options.caches, "rounds": options.rounds, "brief": options.brief}
                made = measure(some, compilers, options.size, options.threads, pool, **how)
            else:
                made = measure_layers(some, compilers, options.threads, pool)
            facts = {"machine": platform.machine(), "torch": torch.__version__, "threads": options.threads}
            found = [{**facts, "jobs": options.jobs, "row": row._asdict()} for row in made]
            done += found
            if options.out:
                with options.out.open("a", encoding="utf-8") as file:
                    file.writelines(json.dumps(record) + "\n" for record in found)
    print(tables(done))


if __name__ == "__main__":
    main()
