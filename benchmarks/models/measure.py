"""Rows of the table: first calls cold and warm, rounds of calls in turn, memory, and errors against float64.

Each compiler runs in a process of its own. All of a row are alive together, so that a round calls one after the other;
whoever is not called waits for input. Several rows may compile side by side, each on cores of its own; calls are timed
while nothing else runs. Neighbours: `processes.py`, `worker.py`, `table.py`.
"""

from __future__ import annotations

import os
import queue
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks.models.peers import FROZEN
from benchmarks.models.processes import Peak, Worker, WorkerFailed
from benchmarks.models.table import LayersRow, Row

#: Rounds, and seconds that one compiler is called for in each.
ROUNDS, SECONDS = 7, 0.25
#: Layers of the encoders whose first calls are compared.
LAYERS = (1, 6, 12, 24, 48)


class Cores(ThreadPoolExecutor):
    """Threads that each have cores of their own, which the processes that they start inherit.

    Raises ValueError where the machine has too few.
    """

    def __init__(self, jobs: int, cores: int) -> None:
        free = sorted(os.sched_getaffinity(0))
        if jobs * cores > len(free):
            raise ValueError(f"{jobs} jobs of {cores} cores each do not fit on {len(free)} cores")
        self.shares: queue.SimpleQueue[list[int]] = queue.SimpleQueue()
        for job in range(jobs):
            self.shares.put(free[job * cores : (job + 1) * cores])
        super().__init__(jobs, initializer=lambda: os.sched_setaffinity(0, self.shares.get()))


def measure(
    rows: Sequence[tuple[str, str]],
    compilers: Sequence[str],
    size: str,
    threads: int,
    pool: Cores,
    *,
    caches: Path | None = None,
    rounds: int = ROUNDS,
    brief: bool = False,
) -> list[Row]:
    """All figures of rows, each a model and a mode; where they are `brief` neither errors nor warm first calls.

    With a folder for `caches` a row's are empty only once: what is there already makes its first calls warm ones.
    """
    with ExitStack() as stack:
        made = []
        for model, mode in rows:
            folder = caches or Path(stack.enter_context(tempfile.TemporaryDirectory()))
            made.append(stack.enter_context(Measurement(model, mode, compilers, size, threads, folder)))
        list(pool.map(Measurement.start, made))
        for row in made:
            row.rounds(rounds)
        if not brief:
            list(pool.map(Measurement.finish, made))
        return [row.made for row in made]


def measure_layers(
    rows: Sequence[tuple[int, str]], compilers: Sequence[str], threads: int, pool: Cores
) -> list[LayersRow]:
    """Seconds of the first call of encoders of so many layers, for each compiler; a row is a count and a mode."""

    def seconds(row: tuple[int, str]) -> LayersRow:
        compared = [name for name in compilers if name in ("stator", "torch.compile")]
        with (
            tempfile.TemporaryDirectory() as folder,
            Measurement(f"encoder-{row[0]}", row[1], compared, "base", threads, Path(folder)) as made,
        ):
            made.start()
            return LayersRow(*row, made.made.cold)

    return list(pool.map(seconds, rows))


class Measurement:
    """A row while it is made; what it started ends with it."""

    def __init__(
        self, model: str, mode: str, compilers: Sequence[str], size: str, threads: int, folder: Path, *given: str
    ) -> None:
        self.made = Row(model, mode, {}, {}, {}, {}, {}, {}, {}, {})
        self.compilers = [name for name in compilers if not (mode == "training" and name in (FROZEN, "openvino"))]
        self.size, self.threads, self.folder = size, threads, folder
        self.given = ["--model", model, "--mode", mode, "--size", size, *given]
        self.alive = ExitStack()
        self.workers: dict[str, Worker] = {}

    def __enter__(self) -> Measurement:
        return self

    def __exit__(self, *_: object) -> None:
        self.alive.close()

    def worker(self, compiler: str) -> Worker:
        """A process of a compiler, with the caches of this row."""
        given = ["--compiler", compiler, *self.given]
        return Worker(given, self.cache(compiler), self.threads)

    def cache(self, compiler: str) -> Path:
        """What the processes of a compiler keep."""
        return self.folder / compiler.replace(", ", "-")

    def filled(self, compiler: str) -> Path:
        """A file that says that this row is in the cache."""
        return self.cache(compiler) / "filled" / " ".join(self.given)

    @contextmanager
    def failures_of(self, name: str) -> Iterator[None]:
        """What fails is told in the row, and does not end it."""
        try:
            yield
        except WorkerFailed as failure:
            self.made.failed[name] = str(failure)

    def start(self) -> None:
        """A process for each compiler, which makes its first call."""
        for compiler in self.compilers:
            with self.failures_of(compiler):
                worker = self.alive.enter_context(self.worker(compiler))
                if self.filled(compiler).exists():
                    self.made.warm[compiler] = worker.ask("first")["seconds"]
                else:
                    self.first_cold(compiler, worker)
                self.workers[compiler] = worker

    def rounds(self, count: int) -> None:
        """Call each in turn, so many times."""
        with self.failures_of("calls"):
            for _ in range(count):
                for compiler, worker in self.workers.items():
                    samples = worker.ask(f"calls {SECONDS}")
                    self.made.rounds.setdefault(compiler, []).append(statistics.median(samples))

    def finish(self) -> None:
        """Errors, and first calls that find what the first processes kept."""
        with self.failures_of("errors"):
            if self.made.mode == "training":
                self.errors_of_small()
            else:
                self.errors()
        self.alive.close()
        for compiler in self.workers:
            if compiler != "eager" and compiler not in self.made.warm:
                with self.failures_of(compiler), self.worker(compiler) as worker:
                    self.made.warm[compiler] = worker.ask("first")["seconds"]

    def first_cold(self, compiler: str, worker: Worker) -> None:
        """The first call with an empty cache, and the memory that it takes."""
        worker.ask("wait")
        with Peak(worker.process.pid) as peak:
            answer = worker.ask("first")
        self.made.cold[compiler] = answer["seconds"]
        self.made.memory[compiler] = peak.most()
        for end in answer["forward"]:
            self.made.compiling[compiler] = peak.most(end)
        self.made.told[compiler] = answer["told"]
        self.filled(compiler).parent.mkdir(parents=True, exist_ok=True)
        self.filled(compiler).touch()

    def errors(self) -> None:
        """How far the results of each are from float64."""
        with tempfile.TemporaryDirectory() as folder:
            files = {compiler: f"{folder}/results{number}" for number, compiler in enumerate(self.workers)}
            for compiler, worker in self.workers.items():
                worker.ask(f"save {files[compiler]}")
            judge = next(iter(self.workers.values()))
            self.made.error.update(zip(files, judge.ask(" ".join(["judge", *files.values()])), strict=True))

    def errors_of_small(self) -> None:
        """The same of a small version without dropout, which each compiler would draw differently."""
        with (
            tempfile.TemporaryDirectory() as folder,
            Measurement(
                self.made.model, self.made.mode, self.compilers, "tiny", self.threads, Path(folder), "--no-dropout"
            ) as small,
        ):
            small.start()
            small.errors()
            self.made.error.update(small.made.error)
            self.made.failed.update({f"{name}, small": text for name, text in small.made.failed.items()})
