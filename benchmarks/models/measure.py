"""A row of the table: first calls cold and warm, rounds of calls in turn, memory, and errors against float64.

Each compiler runs in a process of its own. All of a row are alive together, so that a round calls one after the other;
whoever is not called waits for input. Neighbours: `processes.py`, `worker.py`, `table.py`.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks.models.peers import FROZEN
from benchmarks.models.processes import Peak, Worker, WorkerFailed
from benchmarks.models.table import LayersRow, Row

#: Rounds, and seconds that one compiler is called for in each.
ROUNDS, SECONDS = 7, 0.25
#: Layers of the encoders whose first calls are compared.
LAYERS = (1, 6, 12, 24, 48)


def measure(model: str, mode: str, compilers: Iterable[str], size: str, threads: int) -> Row:
    """All figures of one model in one mode."""
    training = mode == "training"
    compared = [name for name in compilers if not (training and name in (FROZEN, "openvino"))]
    with tempfile.TemporaryDirectory() as folder:
        row = Measurement(model, mode, threads, Path(folder))
        with row.workers(compared, "--size", size) as workers:
            row.rounds(workers)
            if not training:
                row.errors(workers)
        for compiler in compared:
            if compiler != "eager" and compiler not in row.made.failed:
                row.first_warm(compiler, size)
    if training:  # dropout draws differently in each, and what compiles is another program without
        with tempfile.TemporaryDirectory() as folder:
            small = Measurement(model, mode, threads, Path(folder))
            with small.workers(compared, "--size", "tiny", "--no-dropout") as workers:
                small.errors(workers)
        row.made.error.update(small.made.error)
    return row.made


def measure_layers(layers: int, mode: str, compilers: Iterable[str], threads: int) -> LayersRow:
    """Seconds of the first call of an encoder of so many layers, for each compiler."""
    with tempfile.TemporaryDirectory() as folder:
        row = Measurement(f"encoder-{layers}", mode, threads, Path(folder))
        with row.workers([name for name in compilers if name in ("stator", "torch.compile")], "--size", "base"):
            return LayersRow(layers, mode, row.made.cold)


class Measurement:
    """A row while it is made."""

    def __init__(self, model: str, mode: str, threads: int, folder: Path) -> None:
        self.made = Row(model, mode, {}, {}, {}, {}, {}, {}, {})
        self.threads, self.folder = threads, folder

    def worker(self, compiler: str, *arguments: str) -> Worker:
        """A process of a compiler, with the caches of this row."""
        given = ["--compiler", compiler, "--model", self.made.model, "--mode", self.made.mode, *arguments]
        return Worker(given, self.folder / compiler.replace(", ", "-"), self.threads)

    @contextmanager
    def failures_of(self, name: str) -> Iterator[None]:
        """What fails is told in the row, and does not end it."""
        try:
            yield
        except WorkerFailed as failure:
            self.made.failed[name] = str(failure)

    @contextmanager
    def workers(self, compilers: Iterable[str], *arguments: str) -> Iterator[dict[str, Worker]]:
        """A process for each compiler that has made its first call."""
        with ExitStack() as stack:
            found = {}
            for compiler in compilers:
                with self.failures_of(compiler):
                    worker = stack.enter_context(self.worker(compiler, *arguments))
                    self.first_cold(compiler, worker)
                    found[compiler] = worker
            with self.failures_of("calls"):
                yield found

    def first_cold(self, compiler: str, worker: Worker) -> None:
        """The first call with an empty cache, and the memory that it takes."""
        worker.ask("wait")
        with Peak(worker.process.pid) as peak:
            answer = worker.ask("first")
        self.made.cold[compiler] = answer["seconds"]
        self.made.memory[compiler] = peak.most - peak.start
        self.made.told[compiler] = answer["told"]

    def first_warm(self, compiler: str, size: str) -> None:
        """The first call in another process, with the cache that the cold one filled."""
        with self.failures_of(compiler), self.worker(compiler, "--size", size) as worker:
            self.made.warm[compiler] = worker.ask("first")["seconds"]

    def rounds(self, workers: dict[str, Worker]) -> None:
        """Each in turn, several times."""
        for _ in range(ROUNDS):
            for compiler, worker in workers.items():
                samples = worker.ask(f"calls {SECONDS}")
                self.made.rounds.setdefault(compiler, []).append(statistics.median(samples))

    def errors(self, workers: dict[str, Worker]) -> None:
        """How far the results of each are from float64."""
        files = {compiler: str(self.folder / f"results{number}") for number, compiler in enumerate(workers)}
        for compiler, worker in workers.items():
            worker.ask(f"save {files[compiler]}")
        judge = next(iter(workers.values()))
        self.made.error.update(zip(files, judge.ask(" ".join(["judge", *files.values()])), strict=True))
