"""Numbered files of every stage, for people: `DIR/<graph>/<NN>_<name>.<suffix>`.

Nothing is written unless the option `debug` (or STATOR_DEBUG) names a folder; then whoever compiles a graph opens its
folder with `writing`, and each stage below hands its text to `stage`. A text that costs something to make is passed as
a callable, which is called only when it is written. Files are for reading: nothing in stator reads them back.
What a failure is understood by is kept without being asked for, in the cache folder, of the last failures only.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Final

from stator.base import temporary, trust
from stator.base.options import Options

#: How many failures are kept where nobody has named a folder.
_FAILURES: Final = 20


class Folder:
    """The artifacts of one graph; numbers follow the order of writing."""

    __slots__ = ("_count", "path")

    def __init__(self, path: Path) -> None:
        self.path = path
        self._count = 0

    def write(self, name: str, text: str, suffix: str) -> Path:
        """Write the next file and give its path."""
        self.path.mkdir(parents=True, exist_ok=True)
        target = self.path / f"{self._count:02d}_{_safe(name)}.{suffix.lstrip('.')}"
        self._count += 1
        target.write_text(text if text.endswith("\n") else text + "\n", encoding="utf-8")
        return target


_folder: ContextVar[Folder | None] = ContextVar("stator_artifacts", default=None)
_outside: dict[str, Folder] = {}


@contextmanager
def writing(directory: str, graph: str) -> Iterator[Folder | None]:
    """Send the stages inside to `directory/graph`; an empty directory means that nothing is written.

    A graph of that name already in the folder is kept: the new one gets the next free `graph_2`, `graph_3`, …
    """
    if not directory:
        yield None
        return
    folder = Folder(_fresh(Path(directory) / _safe(graph)))
    token = _folder.set(folder)
    try:
        yield folder
    finally:
        _folder.reset(token)


def current() -> Folder | None:
    """Where stages go now: the folder opened by `writing`, else one for the whole process when STATOR_DEBUG is set."""
    folder = _folder.get()
    if folder is not None:
        return folder
    directory = os.environ.get("STATOR_DEBUG", "")
    if not directory:
        return None
    if directory not in _outside:
        _outside[directory] = Folder(_fresh(Path(directory) / "process"))
    return _outside[directory]


def stage(name: str, text: str | Callable[[], str], suffix: str = "txt") -> Path | None:
    """Write one stage's text if anybody asked for it; gives the path, or None when nothing was written."""
    folder = current()
    if folder is None:
        return None
    return folder.write(name, text if isinstance(text, str) else text(), suffix)


def for_failure(options: Options, graph: str) -> Folder:
    """Where to keep what a failure is understood by: with the other stages, else with the last failures."""
    folder = current()
    if folder is not None:
        return folder
    if options.debug:
        return Folder(_fresh(Path(options.debug) / _safe(graph)))
    failures = options.cache_root() / "failures"
    try:
        failures.mkdir(mode=0o700, parents=True, exist_ok=True)
        if trust.objection(failures) is None:
            return Folder(_among_the_last(failures, graph))
    except OSError:  # no cache folder: what is kept is gone with the process
        pass
    return Folder(temporary.fresh(_safe(graph)))


def _among_the_last(failures: Path, graph: str) -> Path:
    """A new folder; the oldest goes when there are more than enough."""
    kept = sorted((path for path in failures.iterdir() if path.is_dir()), key=lambda path: path.stat().st_mtime)
    for path in kept[: len(kept) - _FAILURES + 1]:
        shutil.rmtree(path, ignore_errors=True)
    return _fresh(failures / _safe(graph))


def _safe(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]+", "_", name).strip("._") or "unnamed"


def _fresh(path: Path) -> Path:
    """Claim a folder that did not exist; making it is the claim, so that two processes never share one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    candidate, number = path, 1
    while True:
        try:
            candidate.mkdir()
        except FileExistsError:
            number += 1
            candidate = path.with_name(f"{path.name}_{number}")
        else:
            return candidate
