"""Processes that run programs: starting them with caches of their own, asking them, and what became of them.

Neighbours: `worker.py` is what runs in them, `measure.py` asks.
"""

from __future__ import annotations

import multiprocessing
import os
from pathlib import Path
from types import TracebackType
from typing import Any

from benchmarks.gpu.worker import Spec, serve


class WorkerFailed(RuntimeError):
    """A process failed at an order, took too long, or ended; carries the traceback, or the end of what it printed."""


class TookTooLong(WorkerFailed):
    """A process had no time to answer an order."""


def context() -> Any:
    """Forks of a process that has imported what all need."""
    made = multiprocessing.get_context("forkserver")
    made.set_forkserver_preload(["benchmarks.gpu.worker"])
    return made


class Worker:
    """A process of one program; what its compiler keeps for other processes lies under `caches`.

    It is one of `side_by_side`, so each compiler has `compile_threads` for kernels.
    """

    def __init__(self, spec: Spec, caches: Path, log: Path, side_by_side: int, compile_threads: int) -> None:
        self.spec, self.log = spec, log
        environment = {
            "STATOR_CACHE_DIR": str(caches / "stator"),
            "TORCHINDUCTOR_CACHE_DIR": str(caches / "torch"),
            "TRITON_CACHE_DIR": str(caches / "triton"),
            "TORCHINDUCTOR_COMPILE_THREADS": str(compile_threads),
            "LOCAL_WORLD_SIZE": str(side_by_side),  # by which stator shares out the cores
            "STATOR_CHECK_SPEED": "off",
        }
        log.parent.mkdir(parents=True, exist_ok=True)
        start = context()
        self.connection, theirs = start.Pipe()
        self.process = start.Process(target=serve, args=(theirs, spec, environment, str(log)), daemon=False)
        self.process.start()
        theirs.close()

    def ask(self, name: str, *given: Any, limit: float = 600.0) -> Any:
        """The answer to an order, within so many seconds."""
        try:
            self.connection.send((name, *given))
            if not self.connection.poll(limit):
                self.close(kill=True)
                raise TookTooLong(f"{name} took longer than {limit:.0f} s")
            good, answer = self.connection.recv()
        except (OSError, EOFError) as failure:
            self.close(kill=True)
            end = self.log.read_text(errors="replace").splitlines()[-15:] if self.log.exists() else []
            raise WorkerFailed("\n".join([*end, f"the process ended at {name}: {self.process.exitcode}"])) from failure
        if not good:
            raise WorkerFailed(answer)
        return answer

    def close(self, kill: bool = False) -> None:
        """End the process."""
        if kill and self.process.is_alive():
            self.process.kill()
        self.connection.close()
        self.process.join(20)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0))
