"""The models of the registry at realistic sizes: stator beside eager, torch.compile and OpenVINO.

    python -m benchmarks.models [model …] [--modes inference bfloat16 training] [--peers eager torch.compile openvino]
                                [--freezing] [--threads 2] [--out models.jsonl]
    python -m benchmarks.models --layers [1 6 …] [--modes inference training] [--out models.jsonl]
    python -m benchmarks.models --read models.jsonl … >> docs/models.md

Each compiler has a process of its own, in which it compiles with empty caches (cold) and is then called in turn with
the others; another process starts with the caches that the first filled (warm). torch.compile's precompiled header,
which lies outside its caches, is built beforehand and not counted. Rows go to the end of the file as they are made, so
that several commands may write to one; a row that is there already is not made again.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import tempfile
from pathlib import Path
from typing import Any

import torch

from benchmarks.models.measure import LAYERS, Measurement, measure, measure_layers
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
    with tempfile.TemporaryDirectory() as folder:
        header = Measurement("bert", "inference", threads, Path(folder))
        with header.workers(["torch.compile"], "--size", "tiny"):
            pass


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
    made.add_argument("--header", action=argparse.BooleanOptionalAction, default=True)
    made.add_argument("--out", type=Path, help="a file to which the rows are added")
    made.add_argument("--read", type=Path, nargs="+", help="print the tables of these files instead")
    return made


def main() -> None:
    """Measure what the command line names, and print it."""
    options = parser().parse_args()
    if options.read:
        print(tables(read(options.read)))
        return
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.threads])
    compilers = ["stator", *[FROZEN] * options.freezing, *options.peers]
    compilers.sort(key=["eager", "stator", FROZEN, "torch.compile", "openvino"].index)
    done = read([options.out]) if options.out and options.out.exists() else []
    known = {(record["row"].get("model", record["row"].get("layers")), record["row"]["mode"]) for record in done}
    if options.header and "torch.compile" in compilers:
        build_header(options.threads)
    found = []
    names = (options.layers or LAYERS) if options.layers is not None else (options.models or MODELS)
    for name in names:
        for mode in options.modes:
            if (name, mode) in known or (options.layers is not None and mode == "bfloat16"):
                continue
            made: Row | LayersRow
            if options.layers is None:
                made = measure(name, mode, compilers, options.size, options.threads)
            else:
                made = measure_layers(name, mode, compilers, options.threads)
            facts = {"machine": platform.machine(), "torch": torch.__version__, "threads": options.threads}
            found.append({**facts, "row": made._asdict()})
            if options.out:
                with options.out.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(found[-1]) + "\n")
    print(tables(done + found))


if __name__ == "__main__":
    main()
