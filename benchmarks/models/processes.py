"""Worker processes: starting them with caches of their own, asking them, and how much memory they take meanwhile.

Neighbours: `worker.py` is what runs in them, `measure.py` asks.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Any

import psutil

MIB = 1 << 20
#: Seconds between two looks at the memory of processes.
INTERVAL = 0.05


class WorkerFailed(RuntimeError):
    """A measuring process ended with an error; carries the end of what it printed."""


class Worker:
    """A process of one compiler; what it keeps for other processes lies under `folder`."""

    def __init__(self, arguments: list[str], folder: Path, threads: int) -> None:
        environment = dict(
            os.environ,
            OMP_NUM_THREADS=str(threads),
            STATOR_CACHE_DIR=str(folder / "stator"),
            TORCHINDUCTOR_CACHE_DIR=str(folder / "torch"),
            TRITON_CACHE_DIR=str(folder / "triton"),
            STATOR_CHECK_SPEED="off",
        )
        self.log = tempfile.TemporaryFile("w+")  # noqa: SIM115  (closed with the worker)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.models.worker", *arguments, "--threads", str(threads)],
            env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True,
        )  # fmt: skip

    def ask(self, order: str) -> Any:
        """The answer to an order."""
        assert self.process.stdin and self.process.stdout
        try:
            print(order, file=self.process.stdin, flush=True)
            return json.loads(self.process.stdout.readline())
        except (OSError, ValueError) as failure:
            self.close()
            self.log.seek(0)
            raise WorkerFailed("\n".join(self.log.read().splitlines()[-15:])) from failure

    def close(self) -> None:
        """End the process."""
        assert self.process.stdin and self.process.stdout
        if not self.process.stdin.closed:
            self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
        self.log.close()


class Peak:
    """The most memory that a process and all below it take at once, in MiB.

    Counted is what no file is behind, and what a process shares with others in parts: libraries and the tables that a
    forked process has from its parent are not counted several times.
    """

    def __init__(self, process: int) -> None:
        self.root = psutil.Process(process)
        self.command = self.root.cmdline()
        self.start = self._now()
        #: What was found, and when.
        self.found: list[tuple[float, float]] = []
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self._watch)

    def __enter__(self) -> Peak:
        self.thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.ended.set()
        self.thread.join()

    def most(self, until: float = math.inf) -> float:
        """The most that was added, by a time of the monotonic clock."""
        return max([taken for when, taken in self.found if when <= until], default=self.start) - self.start

    def _watch(self) -> None:
        while not self.ended.wait(INTERVAL):
            self.found.append((time.monotonic(), self._now()))

    def _now(self) -> float:
        try:
            # A child that has not yet become another program runs on the memory of its parent.
            below = [child for child in self.root.children(recursive=True) if child.cmdline() != self.command]
            return _own(self.root) + sum(_anonymous(child.pid) for child in below)
        except psutil.NoSuchProcess:
            return 0.0


def _own(process: psutil.Process) -> float:
    memory = process.memory_info()
    return float(memory.rss - memory.shared) / MIB


def _anonymous(process: int) -> float:
    """The proportional part of anonymous memory; of a process that has ended nothing."""
    try:
        text = Path(f"/proc/{process}/smaps_rollup").read_text(encoding="ascii")
    except OSError:
        return 0.0
    fields = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    return float(fields["Pss_Anon"].split()[0]) / 1024
