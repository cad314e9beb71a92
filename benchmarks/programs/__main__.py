"""`python -m benchmarks.programs [name …]`: right, as fast as eager, and how long the first call takes.

Every program runs in a fresh process with an empty cache: the first call of both sizes, whose results are held against
eager's and float64's, then calls of eager and stator in turn. The table has the seconds of the first call, how many
times faster than eager a call is (medians, the worse of both sizes), the larger error of both sizes against float64 in
units of eager's, and what stator told. Status 1 where a program is wrong.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from benchmarks.programs import images, learning, physics, relations, sequences  # noqa: F401  (they fill PROGRAMS)
from benchmarks.programs.program import PROGRAMS, Program, tensors, widened

SIZES = 2
#: How far float64 results may be from eager's, relative to the largest number.
ROUNDING = 1e-9


def build(program: Program, size: int) -> tuple[Any, tuple[Any, ...]]:
    """What is compiled and its inputs, the same in every process."""
    torch.manual_seed(1)
    made = program.make()
    torch.manual_seed(2 + size)
    return made, program.inputs(size)


def twin(made: Any) -> Any:
    return copy.deepcopy(made) if isinstance(made, torch.nn.Module) else made


def error(found: Any, truth: Any) -> float:
    """The largest difference relative to the largest number of each tensor, or to a hundredth of that of all.

    A gradient may be zero but for rounding, such as that of a bias in front of a batch norm.
    """
    pairs = [(a.double(), b.double()) for a, b in zip(tensors(found), tensors(truth), strict=True) if b.numel()]
    most = max(float(b.abs().max()) for _, b in pairs)
    return max(float((a - b).abs().max()) / max(float(b.abs().max()), most / 100) for a, b in pairs)


def widened_model(made: Any) -> Any:
    return twin(made).double() if isinstance(made, torch.nn.Module) else made


def compare(program: Program, compiled: Any, made: Any, inputs: tuple[Any, ...]) -> tuple[float, float, float]:
    """Errors against eager in float64: of the compiled program in float64, then of it and of eager in float32.

    Gates and maxima that rounding decides make float32 differ now and then, so float64 says what is right.
    """
    import stator  # its import is part of the first call

    wide = widened(inputs)
    truth = program.run(widened_model(made), *copy.deepcopy(wide))
    exact = program.run(stator.compile(widened_model(made)), *copy.deepcopy(wide))
    eager = program.run(twin(made), *copy.deepcopy(inputs))
    found = program.run(compiled, *copy.deepcopy(inputs))
    return error(exact, truth), error(found, truth), error(eager, truth)


def measure(name: str, seconds: float) -> dict[str, Any]:
    """One program in this process."""
    import stator  # its import is part of the first call

    program = PROGRAMS[name]
    firsts, errors, speeds = [], [], []
    begin = time.perf_counter()
    compiled: Any = None
    told: list[str] = []
    for size in range(SIZES):
        made, inputs = build(program, size)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            compiled = compiled or stator.compile(twin(made))
            if isinstance(made, torch.nn.Module):
                compiled.load_state_dict(made.state_dict())
            begin = time.perf_counter() if size else begin
            program.run(compiled, *copy.deepcopy(inputs))
            firsts.append(time.perf_counter() - begin)
        told += [str(item.message).split("\n")[0] for item in caught]
        if isinstance(made, torch.nn.Module):
            compiled.load_state_dict(made.state_dict())
        errors.append(compare(program, compiled, made, inputs))
        speeds.append(speed(program, made, compiled, inputs, seconds))
    return {"name": name, "firsts": firsts, "errors": errors, "speeds": speeds, "told": told}


def speed(program: Program, made: Any, compiled: Any, inputs: tuple[Any, ...], seconds: float) -> tuple[float, float]:
    """Median seconds of a call of eager and of the compiled program, called in turn."""
    taken: tuple[list[float], list[float]] = ([], [])
    end = time.perf_counter() + seconds
    while len(taken[1]) < 5 or time.perf_counter() < end:
        for one, into in ((made, taken[0]), (compiled, taken[1])):
            begin = time.perf_counter()
            program.run(one, *inputs)
            into.append(time.perf_counter() - begin)
    return statistics.median(taken[0][1:]), statistics.median(taken[1][1:])


def in_process(name: str, seconds: float) -> dict[str, Any]:
    """One program in a fresh process with an empty cache."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "benchmarks.programs", "--one", name, "--seconds", str(seconds)]
        done = subprocess.run(
            command, env={**os.environ, "STATOR_CACHE_DIR": folder}, capture_output=True, text=True, check=False
        )
    if done.returncode:
        return {"name": name, "failed": done.stderr.strip().splitlines()[-1:] or ["no output"]}
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def is_right(row: dict[str, Any]) -> bool:
    return "failed" not in row and all(exact <= ROUNDING for exact, _, _ in row["errors"])


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("names", nargs="*", choices=[[], *PROGRAMS], help="which programs (all)")
    parser.add_argument("--one", help="one program in this process, as JSON")
    parser.add_argument("--seconds", type=float, default=3.0, help="how long the calls of a size are timed")
    given = parser.parse_args()
    if given.one:
        print(json.dumps(measure(given.one, given.seconds)))
        return 0
    table = Table("program", "first s", "second size s", "times eager", "error/eager's", "told", title="programs")
    status = 0
    for name in given.names or PROGRAMS:
        row = in_process(name, given.seconds)
        if "failed" in row:
            table.add_row(name, *[""] * 4, str(row["failed"]))
            status = 1
            continue
        status |= not is_right(row)
        ratio = min(eager / ours for eager, ours in row["speeds"])
        off = max(ours / max(eagers, 1e-12) for _, ours, eagers in row["errors"])
        wrong = "" if is_right(row) else " WRONG"
        first, second = row["firsts"]
        told = "; ".join(row["told"])[:100]
        table.add_row(name, f"{first:.1f}", f"{second:.1f}", f"{ratio:.2f}", f"{off:.2f}{wrong}", told)
        print(json.dumps(row), file=sys.stderr, flush=True)
    Console(width=160).print(table)
    return status


if __name__ == "__main__":
    sys.exit(main())
