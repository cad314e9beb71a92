"""Lists every architecture with its graphs, breaks and reasons: `python -m tests.architectures [names…] [--jobs 2]`.

The work is spread over processes. The exit status says whether at least 95%
are whole in both modes and none is wrong.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import platform
import sys
from pathlib import Path

import torch
import transformers

from tests.architectures.catalogue import TABLE
from tests.architectures.check import MODES, Verdict, work

SHARE = 0.95


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=list(TABLE))
    parser.add_argument("--modes", nargs="*", default=list(MODES))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path, help="a JSON file for the verdicts")
    arguments = parser.parse_args()
    tasks = [(name, mode) for name in arguments.names for mode in arguments.modes]
    found: list[Verdict] = []
    with multiprocessing.get_context("spawn").Pool(arguments.jobs, maxtasksperchild=20) as pool:
        for verdict in pool.imap(work, tasks):
            found.append(verdict)
            print(line(verdict), flush=True)
    if arguments.out:
        stack = (
            f"Python {platform.python_version()}, torch {torch.__version__}, transformers {transformers.__version__}"
        )
        verdicts = [verdict._asdict() for verdict in found]
        arguments.out.write_text(json.dumps({"stack": stack, "verdicts": verdicts}, indent=1))
    whole = {name for name in arguments.names if all(v.whole and not v.wrong for v in found if v.name == name)}
    wrong = [verdict for verdict in found if verdict.wrong]
    print(f"\n{len(arguments.names)} architectures, whole and right in all modes: {len(whole)}; wrong: {len(wrong)}")
    return int(len(whole) < SHARE * len(arguments.names) or bool(wrong))


def line(verdict: Verdict) -> str:
    """One line, and one for each break."""
    state = "WRONG" if verdict.wrong else "whole" if verdict.whole else "parts"
    head = f"{state}  {verdict.family:11}  {verdict.name:30} {verdict.mode:9} {verdict.graphs:3} graphs"
    rest = [f"       break: {stop}" for stop in verdict.breaks] + ([f"       {verdict.wrong}"] if verdict.wrong else [])
    return "\n".join([head, *rest])


if __name__ == "__main__":
    sys.exit(main())
