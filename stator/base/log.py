"""What the compiler did, as data: spans (named, nested, timed) and records (a kind with facts).

Packages call `span` and `record` and never print. `collect()` gathers both on the calling thread, for `stator.explain`
and the benchmarks; `STATOR_LOGS` (or the option `logs`) prints them to stderr as they happen. With nobody listening, a
call costs a dictionary and a test. The kinds and their facts are the constants below: writers and readers share them.
`count` adds to totals of the process, which are always kept.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final

GRAPH: Final = "graph"  # name: str, ops: int, text: str (optional), operators: dict[str, int] (optional)
BREAK: Final = "break"  # reason: str, file: str, line: int, hint: str
GUARDS: Final = "guards"  # guards: list[str]
FUSION: Final = "fusion"  # graph: str, question: inspect.question.Question, which tells why steps are apart
KERNELS: Final = "kernels"  # graph: str, names: list[str] (one a launch), externs: list[str] (one a call)
MEMORY: Final = "memory"  # a training step: the fields of `aot.metadata.Memory`, in bytes
PATTERN: Final = "pattern"  # name, graph, file: str, line: int, refused: str ("" where it was replaced)
CACHE: Final = "cache"  # hit: bool, key: str
RECOMPILE: Final = "recompile"  # reason: str
SPEED: Final = (
    "speed"  # graph: str, compiled, eager: float (seconds a call), slower, runs_eager: bool, why: str (if not measured)
)
RECORDING: Final = "recording"  # graph: str, recorded: bool, told: str (what of it is, or why it is not)
PRODUCT: Final = "product"  # told: str, and the fields of `tuning.Tuned`: loop, library: float (seconds), …
TILING: Final = "tiling"  # told, kernel: str, tried: list of (tiling: str, seconds: float or why it does not run: str)
FAULT: Final = "fault"  # the fields of `faults.Fault`, its location as file: str, line: int
NOTE: Final = "note"  # text: str; what was accepted and has no effect here

# Name in STATOR_LOGS -> kind of record. "timing" stands for spans.
TIMING: Final = "timing"
LOG_KINDS: Final[dict[str, str]] = {
    TIMING: TIMING,
    "graphs": GRAPH,
    "guards": GUARDS,
    "breaks": BREAK,
    "recompiles": RECOMPILE,
    "kernels": KERNELS,
    "patterns": PATTERN,
    "cache": CACHE,
    "speed": SPEED,
    "products": PRODUCT,
    "recordings": RECORDING,
    "tilings": TILING,
    "faults": FAULT,
    "notes": NOTE,
}

#: Totals of this process, by name.
totals: Final[Counter[str]] = Counter()


@dataclass(slots=True)
class Span:
    """A finished stretch of work; `depth` counts the spans around it, `start` is on the recorder's clock."""

    name: str
    facts: dict[str, Any]
    start: float
    seconds: float
    depth: int


@dataclass(slots=True)
class Record:
    """One thing that happened."""

    kind: str
    facts: dict[str, Any]


@dataclass(slots=True)
class Recorder:
    """What one `collect()` gathered: spans in the order in which they ended, records in the order of happening."""

    spans: list[Span] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)

    def of(self, kind: str) -> list[dict[str, Any]]:
        """The facts of all records of one kind."""
        return [record.facts for record in self.records if record.kind == kind]

    def seconds(self) -> dict[str, float]:
        """Seconds by span name, summed; a span inside another of the same name counts once."""
        totals: dict[str, float] = {}
        for name, group in self._by_name().items():
            outer = [s for s in group if not any(_inside(s, other) for other in group)]
            totals[name] = sum(s.seconds for s in outer)
        return totals

    def _by_name(self) -> dict[str, list[Span]]:
        groups: dict[str, list[Span]] = {}
        for item in sorted(self.spans, key=lambda s: s.start):
            groups.setdefault(item.name, []).append(item)
        return groups


def _inside(inner: Span, outer: Span) -> bool:
    return (
        inner is not outer
        and inner.depth > outer.depth
        and outer.start <= inner.start
        and inner.start + inner.seconds <= outer.start + outer.seconds
    )


class _Local(threading.local):
    """The recorders and the nesting depth of one thread."""

    def __init__(self) -> None:
        self.recorders: list[Recorder] = []
        self.depth = 0


_local = _Local()
_printed: set[str] = set()


def enable(logs: str) -> None:
    """Also print the kinds in a comma list (names of `LOG_KINDS`); names not in the table are left out."""
    _printed.update(LOG_KINDS[name] for name in split(logs) if name in LOG_KINDS)


def split(logs: str) -> list[str]:
    """The names in a comma list."""
    return [name for part in logs.split(",") if (name := part.strip())]


class _Open:
    """A span that somebody listens to, while it runs."""

    __slots__ = ("facts", "name", "start")

    def __init__(self, name: str, facts: dict[str, Any]) -> None:
        self.name = name
        self.facts = facts
        self.start = 0.0

    def __enter__(self) -> dict[str, Any]:
        _local.depth += 1
        self.start = time.perf_counter()
        return self.facts

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        seconds = time.perf_counter() - self.start
        _local.depth -= 1
        done = Span(self.name, self.facts, self.start, seconds, _local.depth)
        for recorder in _local.recorders:
            recorder.spans.append(done)
        if TIMING in _printed:
            _print(f"{'  ' * done.depth}{self.name} {seconds * 1e3:.1f} ms", self.facts)


class _Silent:
    """A span that nobody listens to: one shared object, no clock."""

    __slots__ = ()

    def __enter__(self) -> dict[str, Any]:
        return {}

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        return None


_SILENT = _Silent()


def span(name: str, **facts: Any) -> AbstractContextManager[dict[str, Any]]:
    """Time a stretch of work. The context gives the facts, so that more can be added on the way."""
    if not _local.recorders and TIMING not in _printed:
        return _SILENT
    return _Open(name, facts)


def record(kind: str, **facts: Any) -> None:
    """Note that something happened; `kind` is one of the constants above."""
    for recorder in _local.recorders:
        recorder.records.append(Record(kind, facts))
    if kind in _printed:
        _print(kind, facts)


def count(**amounts: int) -> None:
    """Add to totals of the process."""
    totals.update(amounts)


def wanted(kind: str) -> bool:
    """Whether anybody listens to a kind: ask before computing facts that cost something."""
    return bool(_local.recorders) or kind in _printed


@contextmanager
def collect() -> Iterator[Recorder]:
    """Gather every span and record of this thread while the context lasts; collections nest."""
    recorder = Recorder()
    _local.recorders.append(recorder)
    try:
        yield recorder
    finally:
        # By identity: two empty recorders are equal as dataclasses.
        _local.recorders[:] = [r for r in _local.recorders if r is not recorder]


def _print(head: str, facts: dict[str, Any]) -> None:
    parts = [head]
    for key, value in facts.items():
        text = str(value)
        parts.append(f"{key}:\n{text}" if "\n" in text else f"{key}={text}")
    sys.stderr.write("stator: " + " ".join(parts) + "\n")


enable(os.environ.get("STATOR_LOGS", ""))
