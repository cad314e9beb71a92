"""One compiler in one process, which does what lines of its input say and answers each with a line of JSON.

`first` compiles and makes the first call; `calls SECONDS` one call that is not timed and as many as take so long;
`save FILE` keeps results; `judge FILE …` says how far kept results are from float64. So several processes can be called
in turn, with the memory, the hooks and the threads of only one compiler in each. Run by `__main__.py`.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import warnings
from typing import Any

import torch
import transformers

from benchmarks.models.peers import COMPILERS, MODES, Step, exact_results, make_step
from benchmarks.worker import counts, error


def first(step: Step, compiler: str, forwards: list[float]) -> dict[str, Any]:
    """Seconds of the first call, what it warned of, what the compiler says that it made, and when forward had ended, in
    training.
    """
    torch.ones(4).mul(2).sum().item()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        start = time.perf_counter()
        step()
        seconds = time.perf_counter() - start
    told = [f"{item.category.__name__}: {item.message}" for item in caught]
    said = {"seconds": seconds, "told": told if compiler.startswith("stator") else [], "forward": forwards[:1]}
    return {**said, **counts(compiler.split(",")[0])}


def calls(step: Step, seconds: float) -> list[float]:
    """Milliseconds of each call."""
    step()
    samples: list[float] = []
    end = time.perf_counter() + seconds
    while not samples or time.perf_counter() < end:
        start = time.perf_counter()
        step()
        samples.append((time.perf_counter() - start) * 1e3)
    return samples


def judge(args: argparse.Namespace, files: list[str]) -> list[float]:
    """The error of the results in each file against float64."""
    exact = exact_results(args.model, args.size, args.mode, dropout=args.dropout)
    return [error(torch.load(file), exact) for file in files]


def main() -> None:
    """Answer until the input ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--compiler", default="eager", choices=COMPILERS)
    parser.add_argument("--model", required=True)
    parser.add_argument("--size", default="base")
    parser.add_argument("--mode", default="inference", choices=MODES)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--dropout", action=argparse.BooleanOptionalAction, default=True)
    args = parser.parse_args()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer
    torch.set_num_threads(args.threads)
    transformers.utils.logging.set_verbosity_error()
    forwards: list[float] = []  # when each had ended, by the clock that processes have in common
    step = make_step(
        args.compiler,
        args.model,
        args.size,
        args.mode,
        dropout=args.dropout,
        forwarded=lambda: forwards.append(time.monotonic()),
    )
    for line in sys.stdin:
        answer: Any = None
        match line.split():
            case ["first"]:
                answer = first(step, args.compiler, forwards)
            case ["calls", seconds]:
                answer = calls(step, float(seconds))
            case ["save", file]:
                torch.save(step(), file)
            case ["judge", *files]:
                answer = judge(args, files)
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
