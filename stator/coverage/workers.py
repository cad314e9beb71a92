"""Many entries in processes that may crash or hang: what a process dies of is a failure of the sample that it was at.

A worker gets (entry, dtype, samples, first, end) and answers with each sample's judgement; a new process takes over
behind the sample that killed it, or that left the device unusable. An entry with very many samples is shared among
workers. An entry's row is plain data, one line of JSON in the result file, so a run that is stopped goes on where it
was. Neighbours: `judge.py`, which makes the verdicts; `report.py`, which reads the rows.
"""

from __future__ import annotations

import json
import multiprocessing
import queue
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from stator.coverage import database
from stator.coverage.derived import derivable, derive
from stator.coverage.judge import VERDICTS, Judgement, judge

#: How long one sample may take, in seconds, where nobody says otherwise.
TIMEOUT = 120.0
#: After how many entries a process is replaced: compilers keep memory for the life of a process.
LIFE = 40
#: How many samples of an entry a worker takes at once.
SHARE = 120

Row = dict[str, Any]
Judgements = dict[int, Judgement]


def run(
    tasks: Iterable[tuple[str, str]],
    engine: str,
    samples: int,
    jobs: int,
    done: Callable[[Row], None],
    timeout: float = TIMEOUT,
    device: str = "cpu",
    derived: int = 0,
) -> None:
    """Judge every (entry, dtype); `engine` is `module:class`, `done` gets each row.

    With `derived`, so many samples of each one whose tensors the graph makes itself, in place of it.
    """
    entries = [_Entry(name, dtype) for name, dtype in tasks]
    waiting: queue.SimpleQueue[tuple[_Entry, int] | None] = queue.SimpleQueue()
    ended: queue.SimpleQueue[tuple[_Entry, int] | BaseException] = queue.SimpleQueue()
    for entry in entries:
        waiting.put((entry, 0))

    def serve() -> None:
        worker = Worker(engine, timeout, device, derived)
        try:
            while (task := waiting.get()) is not None:
                entry, first = task
                start = time.perf_counter()
                found, total = worker.judged(entry.name, entry.dtype, samples, first, first + SHARE)
                entry.add(found, time.perf_counter() - start)
                ended.put((entry, total if first == 0 else 0))
        except BaseException as error:
            ended.put(error)
        finally:
            worker.stop()

    for _ in range(jobs):
        threading.Thread(target=serve, daemon=True).start()
    shares = len(entries)
    while shares:
        match ended.get():
            case BaseException() as error:
                raise error
            case entry, total:
                shares -= 1
                entry.left -= 1
                for first in range(SHARE, total, SHARE):
                    waiting.put((entry, first))
                    entry.left, shares = entry.left + 1, shares + 1
                if not entry.left:
                    done(entry.row())
    for _ in range(jobs):
        waiting.put(None)


class _Entry:
    """What is known of one entry so far; `left` is how many shares of it are not judged."""

    __slots__ = ("dtype", "judged", "left", "lock", "name", "seconds")

    def __init__(self, name: str, dtype: str) -> None:
        self.name, self.dtype = name, dtype
        self.judged: Judgements = {}
        self.seconds = 0.0
        self.left = 1
        self.lock = threading.Lock()

    def add(self, judged: Judgements, seconds: float) -> None:
        """What a worker has found."""
        with self.lock:
            self.judged.update(judged)
            self.seconds += seconds

    def row(self) -> Row:
        """The worst sample's verdict, and all that was seen."""
        items = sorted(self.judged.items())
        worst = max((item.verdict for _, item in items), key=VERDICTS.index, default="unusable")
        bad = [(i, item) for i, item in items if item.verdict == worst]
        return {
            "entry": self.name,
            "dtype": self.dtype,
            "verdict": worst,
            "samples": len(items),
            "at": [i for i, _ in bad],
            "why": list(dict.fromkeys(item.why[:400] for _, item in bad if item.why))[:4],
            "kernels": sorted({kernel for _, item in items for kernel in item.kernels}),
            "seconds": round(self.seconds, 2),
        }


class Worker:
    """A process that may die; another takes over then."""

    def __init__(
        self, engine: str, timeout: float = TIMEOUT, device: str = "cpu", derived: int = 0, life: int = LIFE
    ) -> None:
        self.engine = engine
        self.life = life
        self.derived = derived
        self.timeout = timeout
        self.device = device
        self.context = multiprocessing.get_context("spawn")
        self._start()

    def _start(self) -> None:
        self.pipe, theirs = self.context.Pipe()
        self.process = self.context.Process(
            target=_serve, args=(theirs, self.engine, self.device, self.derived), daemon=True
        )
        self.process.start()
        self.age = 0
        theirs.close()
        self.pipe.recv()  # it has imported everything, which no sample is to blame for

    def row(self, name: str, dtype: str, limit: int) -> Row:
        """The row of one entry."""
        entry, start = _Entry(name, dtype), time.perf_counter()
        found, _ = self.judged(name, dtype, limit)
        entry.add(found, time.perf_counter() - start)
        return entry.row()

    def judged(
        self, name: str, dtype: str, limit: int, first: int = 0, end: int | None = None
    ) -> tuple[Judgements, int]:
        """Judgements of samples by number, from `first` to before `end`; and how many samples there are."""
        self.age += 1
        if self.age > self.life:
            self.stop()
            self._start()
        found: Judgements = {}
        while True:
            current = first
            cause = "the process died"
            try:
                self.pipe.send((name, dtype, limit, first, end))
                while True:
                    if not self.pipe.poll(self.timeout):
                        cause = f"it took more than {self.timeout:.0f} s"
                        raise EOFError
                    message = self.pipe.recv()
                    if isinstance(message, int):
                        return found, message
                    current, judgement = message
                    if judgement is not None:
                        found[current] = Judgement(*judgement)
            except (EOFError, OSError):
                found.setdefault(current, Judgement("fails", cause))
                first = current + 1
                self.process.kill()
                self._start()

    def stop(self) -> None:
        """End the process."""
        try:
            self.pipe.send(None)
            self.process.join(10)
        except OSError:
            self.process.kill()


def _serve(pipe: Connection, engine: str, device: str, derived: int) -> None:
    """A worker: for each task, (number, None) as a sample starts, (number, judgement) as it ends, then their number.

    It ends behind a sample that leaves the device unusable.
    """
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.deterministic = True
    module, _, kind = engine.partition(":")
    compiler = getattr(import_module(module), kind)()
    database.names("bool")
    pipe.send(None)
    while (task := pipe.recv()) is not None:
        name, dtype, limit, first, end = task
        samples = _samples(name, dtype, limit, device, derived)
        for i, sample in list(enumerate(samples))[first:end]:
            pipe.send((i, None))
            try:
                found = judge(compiler, name, sample)
            except Exception as error:
                found = Judgement("fails", _short(error))
            broken = _broken(device)
            if broken and found.verdict != "fails":
                found = Judgement("fails", broken)
            pipe.send((i, (found.verdict, found.why, found.kernels)))
            if broken:
                return
        pipe.send(len(samples))


def _broken(device: str) -> str:
    """What the device reports once all work is done, or "": from then on it refuses everything in this process."""
    try:
        if device == "cuda":
            torch.cuda.synchronize()
    except Exception as error:
        return _short(error)
    return ""


def _short(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".replace("\n", " ")


def _samples(name: str, dtype: str, limit: int, device: str, derived: int) -> Sequence[database.Sample]:
    """The entry's samples; none where the database itself fails on this machine (a library that is not there)."""
    try:
        found = database.samples(name, dtype, limit, device)
        if derived:
            return [derive(sample, turn) for sample in found if derivable(sample) for turn in range(derived)]
        return found
    except Exception as error:
        warnings.warn(f"no samples of {name}: {error}", stacklevel=1)
        return ()


def read(path: Path) -> list[Row]:
    """The rows of a result file; the last one of an entry counts."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    rows = [json.loads(line) for line in lines if line.endswith("}")]
    return list({(row["entry"], row["dtype"]): row for row in rows}.values())
