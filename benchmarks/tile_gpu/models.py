"""`python -m benchmarks.tile_gpu.models [model …]`: whole models, their kernels by stator's compiler and by Triton.

Graphs and kernels' texts are the same: `options={"triton": "stator"}` says who compiles them. Each row is a process
with both. `--only check` compiles into the caches, side by side with other rows: seconds of first calls, how far
results are from float64 and from those of the other compiler, and what is refused. `--only time` times calls in turn,
one row after the other, and what kernels take by their names: of all, and of those that stator writes, worst first.
Inference is in bfloat16, training under autocast to it, with AdamW (`benchmarks.gpu.step`).
"""

from __future__ import annotations

import argparse
import multiprocessing
import re
import statistics
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import torch

from benchmarks.gpu.models import TASKS
from benchmarks.gpu.step import EAGER, STATOR, Program, Row
from benchmarks.gpu.worker import root_mean_square

MODELS = ("gpt2", "bert", "resnet50")
#: Who compiles kernels, the one that is measured first.
ROUTES = ("stator", "triton")
#: Names of kernels that stator writes.
WRITTEN = re.compile(r"\w+_[0-9a-f]{6}$")
#: Steps before anything is timed, and those that a profile has.
SETTLED, PROFILED = 4, 3


class Routed(Program):
    """A row's model whose kernels one of the two compiles; what cannot be compiled is an error."""

    def __init__(self, row: Row, route: str, device: str, *, comparable: bool = False, scale: int = 1) -> None:
        super().__init__(row, STATOR, device, comparable=comparable, scale=scale)
        self.route = route

    def compile(self) -> None:
        import stator  # its import is part of the first call

        self.called = stator.compile(self.module, options={"triton": self.route, "strict": True})


class Settings(NamedTuple):
    """What is asked for; `scale` divides batches, for devices with less memory or none."""

    only: str
    device: str
    scale: int
    rounds: int
    seconds: float
    kernels: int


def synchronize(device: str) -> None:
    if device != "cpu":
        torch.cuda.synchronize()


# ---- right or wrong


def first_call(program: Program, device: str) -> tuple[float, list[torch.Tensor]]:
    """Seconds, and the results."""
    start = time.perf_counter()
    program.compile()
    found = [value.detach().clone() for value in program.step()]
    synchronize(device)
    return time.perf_counter() - start, found


def check(row: Row, settings: Settings) -> Iterator[str]:
    """Lines of what the two compilers give, with all layers and dropout (the losses alone) and without."""
    device, scale = settings.device, settings.scale
    exact = Program(row, EAGER, device, exact=True, comparable=True, scale=scale)
    exact.compile()
    want = [value.detach() for value in exact.step()]
    del exact
    found: dict[str, list[torch.Tensor]] = {}
    for route in ROUTES:
        try:
            seconds, found[route] = first_call(Routed(row, route, device, comparable=True, scale=scale), device)
        except Exception:
            yield f"{row} {route} REFUSED\n{traceback.format_exc()[-3000:]}"
            continue
        yield f"{row} {route}: {root_mean_square(found[route], want):.2e} from float64, first call {seconds:.1f} s"
    if len(found) == len(ROUTES):
        ours, theirs = (found[route] for route in ROUTES)
        same = sum([torch.equal(a, b) for a, b in zip(ours, theirs, strict=True)])
        apart = root_mean_square(ours, theirs)
        yield f"{row}: {apart:.2e} from one another, {same} of {len(ours)} results are equal"
    del found, want
    for route in ROUTES:
        try:
            program = Routed(row, route, device, scale=scale)
            torch.manual_seed(1)
            seconds, results = first_call(program, device)
        except Exception:
            yield f"{row} {route}, as timed, REFUSED\n{traceback.format_exc()[-3000:]}"
            continue
        size = results[0].double().abs().mean().item()
        yield f"{row} {route}, as timed: first call {seconds:.1f} s, mean of the first result {size:.6f}"


# ---- times


def back_to_back(step: Callable[[], Any], seconds: float) -> float:
    """Milliseconds of a call, of many that the device has one after the other: the median."""
    marks = [torch.cuda.Event(enable_timing=True)]
    marks[0].record()
    end = time.perf_counter() + seconds
    while len(marks) < 5 or time.perf_counter() < end:
        step()
        marks.append(torch.cuda.Event(enable_timing=True))
        marks[-1].record()
        if len(marks) > 3:
            marks[-3].synchronize()
    torch.cuda.synchronize()
    return statistics.median([one.elapsed_time(other) for one, other in pairwise(marks)])


def kernel_times(step: Callable[[], Any]) -> dict[str, tuple[float, float]]:
    """A kernel's name → its microseconds in a step, and how often it runs in one."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as found:
        for _ in range(PROFILED):
            step()
        torch.cuda.synchronize()
    return {
        event.key: (event.self_device_time_total / PROFILED, event.count / PROFILED)
        for event in found.key_averages()
        if event.self_device_time_total
    }


class Timed(NamedTuple):
    """Of one compiler: milliseconds of a call, and its kernels."""

    call: float
    kernels: dict[str, tuple[float, float]]

    def sum(self, written: bool) -> float:
        """Milliseconds of all kernels, or of those that stator writes."""
        return sum([us for name, (us, _) in self.kernels.items() if WRITTEN.match(name) or not written]) / 1e3


def prepared(row: Row, settings: Settings, programs: dict[str, Program]) -> Iterator[str]:
    """Programs that have run often enough to be timed."""
    for route in ROUTES:
        program = Routed(row, route, settings.device, scale=settings.scale)
        seconds, _ = first_call(program, settings.device)
        for _ in range(SETTLED):
            program.step()
        programs[route] = program
        yield f"{row} {route}: first call {seconds:.1f} s"
    synchronize(settings.device)


def timed(row: Row, programs: dict[str, Program], settings: Settings) -> Iterator[str]:
    """A row of the table, and kernels by how much longer they take than Triton's, in microseconds of a step."""
    calls: dict[str, list[float]] = {route: [] for route in programs}
    for _ in range(settings.rounds):
        for route, program in programs.items():
            calls[route].append(back_to_back(program.step, settings.seconds))
    found = {route: Timed(min(calls[route]), kernel_times(programs[route].step)) for route in programs}
    ours, theirs = (found[route] for route in ROUTES)
    pairs = [(ours.call, theirs.call), *[(ours.sum(written), theirs.sum(written)) for written in (False, True)]]
    numbers = [f"{a:.3f} | {b:.3f} | {a / b if b else float('nan'):.2f}" for a, b in pairs]
    yield f"| {row} | {' | '.join(numbers)} |"
    names = [name for name in ours.kernels if WRITTEN.match(name)]
    names += [name for name in theirs.kernels if WRITTEN.match(name) and name not in ours.kernels]
    nothing = (0.0, 0.0)
    lost = {name: ours.kernels.get(name, nothing)[0] - theirs.kernels.get(name, nothing)[0] for name in names}
    for name in sorted(names, key=lambda name: -lost[name])[: settings.kernels]:
        (mine, times), (other, _) = (found[route].kernels.get(name, nothing) for route in ROUTES)
        ratio = mine / other if other else float("nan")
        yield f"    {lost[name]:+9.1f} µs  {mine:9.1f} {other:9.1f}  {ratio:5.2f}  {times:.0f} x {name}"


HEAD = (
    "| | call: stator, ms | Triton, ms | ratio | kernels: stator, ms | Triton, ms | ratio "
    "| written by stator: stator, ms | Triton, ms | ratio |\n|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|"
)


def serve(row: Row, settings: Settings, ready: Any, alone: Any) -> None:
    """A row in a process of its own; it is timed when all are ready, and alone."""
    warnings.simplefilter("default")
    torch.set_num_threads(1)
    if settings.only == "check":
        show(row, lambda: check(row, settings))
        return
    start, programs = time.perf_counter(), dict[str, Program]()
    show(row, lambda: prepared(row, settings, programs))
    print(f"{row}: ready after {time.perf_counter() - start:.1f} s", flush=True)
    ready.wait()
    with alone:
        if len(programs) == len(ROUTES):
            show(row, lambda: timed(row, programs, settings))


def show(row: Row, lines: Callable[[], Iterator[str]]) -> None:
    """Prints lines as they come; the other rows go on where one fails."""
    try:
        for line in lines():
            print(line, flush=True)
    except Exception:
        print(f"{row} FAILED\n{traceback.format_exc()[-3000:]}", flush=True)


def main(given: Sequence[str] | None = None) -> None:
    """Parse, and run each row in a process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=[])
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=TASKS)
    parser.add_argument("--only", default="time", choices=("check", "time"))
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--scale", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.2)
    parser.add_argument("--kernels", type=int, default=12, help="how many are listed of a row")
    options = parser.parse_args(given)
    rows = [Row(model, task) for model in options.models or MODELS for task in options.tasks]
    settings = Settings(options.only, options.device, options.scale, options.rounds, options.seconds, options.kernels)
    spawn = multiprocessing.get_context("spawn")
    ready, alone = spawn.Barrier(len(rows)), spawn.Lock()
    if settings.only == "time":
        print(HEAD, flush=True)
    processes = [spawn.Process(target=serve, args=(row, settings, ready, alone)) for row in rows]
    for process in processes:
        process.start()
    for process in processes:
        process.join()


if __name__ == "__main__":
    main()
