"""What is measured, in which order: first calls and errors side by side, times of calls while nothing else runs.

A row's compilers each have a process and caches of their own; the row with CUDA graphs has those of the one without,
for the kernels are the same. `check` makes first calls with empty caches, a few at once, the compilers of a row next to
each other, so that all compile under the same load, and compares results with float64, as many at once as there are
jobs. `time` starts rows side by side too, makes their first calls, a few at once, and calls the compilers of one row
after the other in rounds, so that drift hits all alike and nothing else is on the device or the processor. Every figure
becomes a record in a file at once, so that a run that is cut short loses none; what there was no time for is a record
too.
Neighbours: `processes.py`, `worker.py`, `table.py`.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.gpu.models import MODELS, TRAINING
from benchmarks.gpu.processes import TookTooLong, Worker, WorkerFailed
from benchmarks.gpu.step import EAGER, FAST, PEER, STATOR, Row
from benchmarks.gpu.worker import Spec

Record = dict[str, Any]
#: The compilers: those that have CUDA graphs, and whose first calls are of interest.
_RECORDING = (STATOR, FAST, PEER)
#: Of the device's memory, GiB that programs take together at most, and that one takes in inference.
MEMORY, IN_INFERENCE = 66, 3


@dataclass(slots=True)
class Plan:
    """What a command asks for."""

    #: Of which errors are wanted, and times.
    checked: Sequence[str]
    timed: Sequence[str]
    device: str
    caches: Path
    logs: Path
    jobs: int
    cores: int
    rounds: int
    seconds: float
    scale: int = 1
    #: Rows that are profiled after they are timed.
    profiled: frozenset[Row] = frozenset()
    #: Only first calls that find what others kept.
    filled_only: bool = False
    #: When nothing more is begun, by `time.monotonic`.
    end: float = float("inf")
    #: For so many seconds first calls are made alone, with all cores.
    alone: float = 0.0
    #: How many first calls are made side by side, by which the cores are shared out; 0 for as many as there are jobs.
    firsts: int = 0
    #: Of how many draws of weights and inputs errors are.
    draws: int = 1

    @property
    def left(self) -> float:
        """Seconds."""
        return self.end - time.monotonic()

    def compilers(self, row: Row) -> list[str]:
        """Those that a row is timed with; eager has no CUDA graphs, and its figures are those of the row without."""
        return [name for name in self.timed if not (row.graphs and name == EAGER and len(self.timed) > 1)]


class Book:
    """Records, kept in a file as they are made."""

    def __init__(self, path: Path | None, facts: Record) -> None:
        self.path, self.facts = path, facts
        self.records: list[Record] = []
        self.lock = threading.Lock()

    def note(self, row: Row, compiler: str, **figures: Any) -> None:
        """Figures of a row under a compiler."""
        record = {**row._asdict(), "compiler": compiler, **self.facts, **figures}
        if not figures:
            return
        with self.lock:
            self.records.append(record)
            print(f"{row}: {compiler}: {_short(figures)}", flush=True)
            if self.path is not None:
                with self.path.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(record) + "\n")

    @contextmanager
    def failures(self, row: Row, compiler: str, stage: str, log: Path) -> Iterator[None]:
        """What fails is a record, and does not end the rest; the whole traceback lies beside the log."""
        try:
            yield
        except TookTooLong:
            self.leave_out(row, compiler, stage)
        except WorkerFailed as failure:
            text = str(failure)
            log.with_suffix(f".{stage}.failed").write_text(text, encoding="utf-8")
            lines = [line for line in text.splitlines() if line.strip()]
            self.note(row, compiler, failed=lines[-1][:300] if lines else "nothing was said", stage=stage)

    def leave_out(self, row: Row, compiler: str, stage: str) -> None:
        """There was no time for a stage."""
        self.note(row, compiler, left_out=stage)


def _short(figures: Record) -> str:
    parts = []
    for name, value in figures.items():
        match value:
            case float():
                parts.append(f"{name} {value:.4g}")
            case list() if value and isinstance(value[0], float):
                parts.append(f"{name} {min(value):.4g}..{max(value):.4g}")
            case _ if value not in ([], {}, ""):
                parts.append(f"{name} {value}")
    return ", ".join(parts)


@dataclass(slots=True)
class Budget:
    """GiB of the device's memory that are shared out."""

    free: float = MEMORY
    changed: threading.Condition = field(default_factory=threading.Condition)

    @contextmanager
    def taking(self, gib: float) -> Iterator[None]:
        """Wait until there is so much, and keep it meanwhile; who asks for more than there is at all gets all."""
        gib = min(gib, MEMORY)
        with self.changed:
            self.changed.wait_for(lambda: self.free >= gib)
            self.free -= gib
        try:
            yield
        finally:
            with self.changed:
                self.free += gib
                self.changed.notify_all()


def gib(row: Row) -> float:
    """What a program of a row takes, roughly."""
    known = MODELS[row.model]
    return known.gib if row.task == TRAINING else max(IN_INFERENCE, known.gib / 2)


class Job(NamedTuple):
    """A stage of a row under a compiler, and what asks for it."""

    stage: str
    ask: Callable[[Row, str], None]
    row: Row
    compiler: str


class Rows:
    """Rows while they are measured."""

    def __init__(self, plan: Plan, book: Book) -> None:
        self.plan, self.book, self.budget = plan, book, Budget()
        #: How many programs compile at once, which share the cores.
        self.side_by_side = plan.firsts or plan.jobs

    # -- first calls and errors

    def check(self, rows: Sequence[Row]) -> None:
        """First calls with empty caches, and errors. A run that is cut short has all of its first rows."""
        jobs = [job for row in rows for job in self._checks(row)]
        firsts = [job for job in jobs if job.stage == "first" and not job.row.graphs]
        made = self._alone(firsts)
        if self.plan.firsts:
            self._beside(self.plan.firsts, self._done, [job for job in firsts if job not in made])
            made = firsts
        self._beside(self.plan.jobs, self._done, [job for job in jobs if job not in made])

    def _beside(self, count: int, done: Callable[[Any], None], jobs: Iterable[Any]) -> None:
        """Do so many jobs at once; those that compile have their part of the cores."""
        before, self.side_by_side = self.side_by_side, count
        with ThreadPoolExecutor(count) as pool:
            list(pool.map(done, jobs))
        self.side_by_side = before

    def _done(self, job: Job) -> None:
        if self.plan.left > 0:
            job.ask(job.row, job.compiler)
        else:
            self.book.leave_out(job.row, job.compiler, job.stage)

    def _alone(self, jobs: Sequence[Job]) -> list[Job]:
        """Do what there is time for, row by row, while nothing else runs; gives what was done."""
        made: list[Job] = []
        start = time.monotonic()
        before, self.side_by_side = self.side_by_side, 1
        for row in dict.fromkeys([job.row for job in jobs]):
            if time.monotonic() - start >= self.plan.alone:
                break
            for job in [job for job in jobs if job.row == row]:
                self._done(job)
                made.append(job)
        self.side_by_side = before
        return made

    def _checks(self, row: Row) -> Iterator[Job]:
        """What is asked of a row: with CUDA graphs errors alone, of those who have them."""
        named = [name for name in (STATOR, FAST, PEER, EAGER) if name in self.plan.checked]
        named = [name for name in named if name in _RECORDING or not row.graphs]
        firsts = [name for name in named if name in _RECORDING]
        if row.task != TRAINING:
            yield from [Job("first", self._check_both, row, name) for name in firsts]
        elif not row.graphs:
            yield from [Job("first", self._check_first, row, name) for name in firsts]
        rest = [name for name in named if row.task == TRAINING or name not in firsts]
        yield from [Job("errors", self._check_errors, row, name) for name in rest]

    def _check_both(self, row: Row, compiler: str) -> None:
        with self._running(row, compiler, "first") as worker:
            self._first(row, compiler, worker)
            self.book.note(row, compiler, **self._ask(worker, "errors", self.plan.draws))

    def _check_first(self, row: Row, compiler: str) -> None:
        with self._running(row, compiler, "first") as worker:
            self._first(row, compiler, worker)

    def _check_errors(self, row: Row, compiler: str) -> None:
        """Without dropout, and in training of few layers."""
        with self._running(row, compiler, "errors", comparable=True) as worker:
            self._ask(worker, "first")
            self.book.note(row, compiler, **self._ask(worker, "errors", self.plan.draws))

    @contextmanager
    def _running(self, row: Row, compiler: str, stage: str, comparable: bool = False) -> Iterator[Worker]:
        """A process that ends with the block; what fails in it is noted."""
        with (
            self.book.failures(row, compiler, stage, self._log(row, compiler, "-comparable" * comparable)),
            self.budget.taking(gib(row)),
            self._worker(row, compiler, comparable) as worker,
        ):
            yield worker

    def _first(self, row: Row, compiler: str, worker: Worker) -> None:
        """The first call: `cold` with empty caches, `warm` with those of an earlier one, `kernels_kept` with those of
        the row without CUDA graphs, which has the same kernels. Eager keeps nothing.
        """
        mark, plain = self._mark(row, compiler), self._mark(row._replace(graphs=False), compiler)
        kind = "warm" if mark.exists() else "kernels_kept" if plain.exists() else "cold"
        kind = "cold" if compiler == EAGER else kind
        answer = self._ask(worker, "first")
        self.book.note(row, compiler, **{kind: answer.pop("seconds")}, jobs=self.side_by_side, **answer)
        mark.parent.mkdir(parents=True, exist_ok=True)
        mark.touch()

    # -- times

    def time(self, rows: Sequence[Row]) -> None:
        """Times of calls, memory, and first calls with filled caches."""
        waiting = list(rows)
        self._alone([
            Job("first", self._check_first, row, name)
            for row in rows
            for name in self.plan.compilers(row)
            if name in _RECORDING and self._mark(row, name).exists()
        ])  # fmt: skip
        while waiting and self.plan.left > 0:
            some = self._batch(waiting)
            self._time(some)
            if not self.plan.filled_only:
                self._warm(some)
        for row in waiting:
            for compiler in self.plan.compilers(row):
                self.book.leave_out(row, compiler, "calls")

    def _batch(self, waiting: list[Row]) -> list[Row]:
        """Take as many rows as fit: a process for each of their compilers."""
        some: list[Row] = []
        free, places = float(MEMORY), self.plan.jobs
        while waiting:
            count = len(self.plan.compilers(waiting[0]))
            places -= count
            free -= gib(waiting[0]) * count
            if some and (free < 0 or places < 0):
                break
            some.append(waiting.pop(0))
        return some

    def _time(self, some: Sequence[Row]) -> None:
        jobs = [(row, compiler) for row in some for compiler in self.plan.compilers(row)]
        if self.plan.filled_only:
            jobs = [job for job in jobs if job[1] == EAGER or self._mark(*job).exists()]
        started: dict[tuple[Row, str], Worker] = {}
        built: dict[tuple[Row, str], Worker] = {}
        ready: dict[tuple[Row, str], Worker] = {}

        def build(job: tuple[Row, str]) -> None:
            with self.book.failures(*job, "first", self._log(*job)):
                started[job] = worker = self._worker(*job)
                self._ask(worker, "build")
                built[job] = worker

        def call(job: tuple[Row, str]) -> None:
            with self.book.failures(*job, "first", self._log(*job)):
                self._first(*job, built[job])
                ready[job] = built[job]

        with ThreadPoolExecutor(self.plan.jobs) as pool:
            try:
                list(pool.map(build, jobs))
                self._beside(self.side_by_side, call, [job for job in jobs if job in built])
                for row in some:
                    self._timed(row, {name: ready[row, name] for name in self.plan.timed if (row, name) in ready})
            finally:
                list(pool.map(Worker.close, started.values()))

    def _timed(self, row: Row, workers: dict[str, Worker]) -> None:
        self._rounds(row, workers)
        for compiler, worker in workers.items():
            with self.book.failures(row, compiler, "memory", self._log(row, compiler)):
                self.book.note(row, compiler, **self._ask(worker, "memory"))
                if row in self.plan.profiled:
                    text = self._ask(worker, "profile")
                    name = f"profile {row} {compiler}.txt".replace(" ", "-")
                    (self.plan.logs / name).write_text(text, encoding="utf-8")

    def _rounds(self, row: Row, workers: dict[str, Worker]) -> None:
        samples: dict[str, list[list[float]]] = {}
        host: dict[str, list[list[float]]] = {}
        for _ in range(self.plan.rounds):
            for compiler, worker in list(workers.items()):
                with self.book.failures(row, compiler, "calls", self._log(row, compiler)):
                    try:
                        answer = self._ask(worker, "calls", self.plan.seconds)
                    except WorkerFailed:
                        del workers[compiler]
                        raise
                    samples.setdefault(compiler, []).append(answer["ms"])
                    host.setdefault(compiler, []).append(answer["host"])
        for compiler, rounds in samples.items():
            self.book.note(row, compiler, ms=[_median(r) for r in rounds], host=[_median(r) for r in host[compiler]])

    def _warm(self, some: Sequence[Row]) -> None:
        jobs = [(row, compiler) for row in some for compiler in self.plan.compilers(row) if compiler != EAGER]

        def again(job: tuple[Row, str]) -> None:
            noted = any("warm" in r for r in self._noted(*job))
            if not noted and self._mark(*job).exists() and self.plan.left > 0:
                with self._running(*job, "warm") as worker:
                    self._first(*job, worker)

        self._beside(self.side_by_side, again, jobs)

    # -- processes

    def _noted(self, row: Row, compiler: str) -> list[Record]:
        return [
            r for r in self.book.records if Row(r["model"], r["task"], r["graphs"]) == row and r["compiler"] == compiler
        ]

    def _ask(self, worker: Worker, name: str, *given: Any) -> Any:
        return worker.ask(name, *given, limit=max(min(self.plan.left + 5, 900), 1))

    def _worker(self, row: Row, compiler: str, comparable: bool = False) -> Worker:
        plan = self.plan
        spec = Spec(row, compiler, plan.device, comparable, plan.scale)
        suffix = "-comparable" * comparable
        caches = self._caches(row, compiler, suffix)
        threads = max(plan.cores // self.side_by_side, 1)
        return Worker(spec, caches, self._log(row, compiler, suffix), self.side_by_side, threads)

    def _caches(self, row: Row, compiler: str, suffix: str = "") -> Path:
        return self.plan.caches / _name(row._replace(graphs=False), compiler + suffix)

    def _mark(self, row: Row, compiler: str) -> Path:
        """There once a first call has filled the caches."""
        return self._caches(row, compiler) / f"filled{'-graphs' * row.graphs}"

    def _log(self, row: Row, compiler: str, suffix: str = "") -> Path:
        return self.plan.logs / f"{_name(row, compiler + suffix)}.log"


def _name(row: Row, compiler: str) -> str:
    return f"{row} {compiler}".replace(",", "").replace(" ", "-").replace("torch.compile", "peer")


def _median(values: Sequence[float]) -> float:
    ordered = sorted(values)
    return ordered[len(ordered) // 2]
