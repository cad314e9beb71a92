"""One program in one process, which does what it is asked and answers each question with data.

The process is forked from one that has imported torch, transformers and timm but no compiler and no CUDA, so that many
start fast, and what a first call takes is the compiler's import, compiling and running. Orders, each a method of
`Session`: `build`, `first`, `calls`, `errors`, `memory`, `profile`.
Neighbours: `processes.py` starts and asks, `step.py` has the programs.
"""

from __future__ import annotations

import os
import sys
import time
import traceback
import warnings
from collections.abc import Mapping
from contextlib import suppress
from itertools import pairwise
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import torch
import transformers

from benchmarks.gpu.step import EAGER, FAST, STATOR, Program, Row
from benchmarks.worker import counts, error

with suppress(ImportError):  # the rows that need it fail, and say so
    import timm  # noqa: F401  (loaded before processes are forked)

#: Steps until both compilers have recorded what they will, results that move included.
_UNTIL_RECORDED = 10


class Spec(NamedTuple):
    """What a process runs."""

    row: Row
    compiler: str
    device: str = "cuda"
    comparable: bool = False
    scale: int = 1


def serve(connection: Connection, spec: Spec, environment: Mapping[str, str], log: str) -> None:
    """Answer orders until there are none: (True, answer) or (False, the traceback)."""
    os.environ.update(environment)
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(file, 1)
    os.dup2(file, 2)
    warnings.simplefilter("default")
    transformers.utils.logging.set_verbosity_error()
    torch.set_num_threads(1)
    session = Session(spec)
    while True:
        try:
            name, *given = connection.recv()
        except EOFError:
            break
        try:
            answer = True, getattr(session, name)(*given)
        except Exception:
            text = traceback.format_exc()
            print(text, file=sys.stderr, flush=True)
            answer = False, text
        connection.send(answer)


class Session:
    """The orders."""

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self.program: Program | None = None

    @property
    def made(self) -> Program:
        """The program, built when it is first needed."""
        if self.program is None:
            spec = self.spec
            self.program = Program(spec.row, spec.compiler, spec.device, comparable=spec.comparable, scale=spec.scale)
        return self.program

    def build(self) -> None:
        """Have the program there, so that what follows is the compiler's."""
        self.made  # noqa: B018  (it is made when it is asked for)
        _warm_libraries(self.spec.device)

    def first(self) -> dict[str, Any]:
        """Seconds of the first call, what is warned of meanwhile, and what the compiler says that it made."""
        program = self.made
        _warm_libraries(self.spec.device)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            start = time.perf_counter()
            program.compile()
            program.step()
            self._synchronize()
            seconds = time.perf_counter() - start
        self._check_faults()
        told = sorted({f"{item.category.__name__}: {item.message}" for item in caught})
        return {
            "seconds": seconds,
            "told": told if self.spec.compiler in (STATOR, FAST) else [],
            "made": self._counts(),
        }

    def calls(self, seconds: float) -> dict[str, list[float]]:
        """Milliseconds of each call, of the device back to back, and of the host when the device has nothing to do."""
        step = self.made.step
        self._settle()
        ms = self._back_to_back(seconds)
        host: list[float] = []
        end = time.perf_counter() + seconds / 3
        while not host or time.perf_counter() < end:
            start = time.perf_counter()
            step()
            host.append((time.perf_counter() - start) * 1e3)
            self._synchronize()
        return {"ms": ms, "host": host}

    def _settle(self) -> None:
        """Steps until what they take is what all later ones take: calls are recorded some steps after the first."""
        for _ in range(_UNTIL_RECORDED if self.spec.row.graphs else 3):
            self.made.step()
        self._synchronize()

    def _back_to_back(self, seconds: float) -> list[float]:
        step = self.made.step
        samples: list[float] = []
        end = time.perf_counter() + seconds
        if self.spec.device == "cpu":
            while not samples or time.perf_counter() < end:
                start = time.perf_counter()
                step()
                samples.append((time.perf_counter() - start) * 1e3)
            return samples
        marks = [torch.cuda.Event(enable_timing=True)]
        marks[0].record()
        while len(marks) < 4 or time.perf_counter() < end:
            step()
            marks.append(torch.cuda.Event(enable_timing=True))
            marks[-1].record()
            if len(marks) > 3:
                marks[-3].synchronize()  # the host is never more than two calls ahead
        self._synchronize()
        return [one.elapsed_time(other) for one, other in pairwise(marks)]

    def errors(self, draws: int) -> dict[str, Any]:
        """How far the results are from float64: the worst tensor's largest element, and all in the mean square.

        Both are means over so many draws of weights and inputs, as one alone may be off by a quarter; `of_draws` has
        the mean squares of each.
        """
        program, spec = self.made, self.spec
        self._settle()
        worst, means = [], []
        for draw in range(draws):
            how = {"comparable": spec.comparable, "scale": spec.scale, "draw": draw}
            program.take(Program(spec.row, EAGER, spec.device, **how))
            got = [value.detach().clone() for value in program.step()]
            exact = Program(spec.row, EAGER, spec.device, exact=True, **how)
            exact.compile()
            want = exact.step()
            worst.append(error(got, want))
            means.append(root_mean_square(got, want))
        self._check_faults()
        return {"error": sum(worst) / draws, "rms": sum(means) / draws, "of_draws": means}

    def memory(self) -> dict[str, float]:
        """MiB of the device that a step takes at most, weights included: in tensors, and held by PyTorch's allocator.

        What lives in a CUDA graph alone is in a pool that the allocator holds, but no tensor, so with CUDA graphs
        `peak_mib` says nothing of a compiler that has its activations there, while `reserved_mib` has all of it. That
        also has what no tensor takes of the segments that the allocator asks the device for, whoever compiles; those
        that are free altogether are given back before.
        """
        if self.spec.device == "cpu":
            return {}
        self._synchronize()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        self.made.step()
        self._synchronize()
        found = torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved(), before
        return dict(zip(("peak_mib", "reserved_mib", "held_mib"), [nbytes / 2**20 for nbytes in found], strict=True))

    def profile(self, calls: int = 3) -> str:
        """What kernels of the device take in a step, by name."""
        step = self.made.step
        step()
        self._synchronize()
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as found:
            for _ in range(calls):
                step()
            self._synchronize()
        return kernel_table(found, calls)

    def _check_faults(self) -> None:
        """What ran in eager because a compiler failed is no figure of that compiler's."""
        if self.spec.compiler in (STATOR, FAST):
            from stator.base import faults  # only where it is loaded anyway

            if faults.total():
                raise RuntimeError(f"stator failed, and eager ran: {faults.recent()[0]}")

    def _counts(self) -> dict[str, Any]:
        return {} if self.spec.compiler == EAGER else counts(self.spec.compiler.split(",")[0])

    def _synchronize(self) -> None:
        if self.spec.device != "cpu":
            torch.cuda.synchronize()


def _warm_libraries(device: str) -> None:
    """Load what every program needs, whoever compiles: the driver's context, cuBLAS and cuDNN's attention aside."""
    x = torch.ones(16, 16, device=device, dtype=torch.bfloat16)
    (x @ x).sum().item()


def root_mean_square(got: list[torch.Tensor], want: list[torch.Tensor]) -> float:
    """The mean over tensors of |got - want| / |want| (Euclidean norms), squared, and its root.

    Tensors of which the norm is a thousandth of the largest one's or less count as that large.
    """
    if len(got) != len(want):
        return float("inf")
    norms = [value.double().norm().item() for value in want]
    least = max(norms, default=0.0) * 1e-3
    ratios = [
        (a.double() - b.double()).norm().item() / max(norm, least)
        for a, b, norm in zip(got, want, norms, strict=True)
        if max(norm, least)
    ]
    return (sum(ratio * ratio for ratio in ratios) / len(ratios)) ** 0.5 if ratios else 0.0


def kernel_table(found: Any, calls: int) -> str:
    """Kernels by their time in a step: microseconds, launches, name."""
    rows = [
        (event.self_device_time_total / calls, event.count / calls, event.key)
        for event in found.key_averages()
        if event.self_device_time_total
    ]
    rows.sort(reverse=True)
    total = sum(row[0] for row in rows)
    lines = [f"{total:10.1f} µs in {sum(row[1] for row in rows):.0f} launches"]
    lines += [f"{time:10.1f} µs {time / total:6.1%} {count:6.1f} x  {name[:150]}" for time, count, name in rows]
    return "\n".join(lines) + "\n"
