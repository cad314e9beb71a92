"""The one temporary folder of a process: made when first needed, gone when the process is.

It is `stator-…` in the system's temporary folder, open to its owner only. While the process lives it holds a lock on
a file in it, which the system releases however the process ends; `sweep` removes the folders whose lock is free, so
what a crash leaves behind goes at the next start, and what another process uses stays. A forked child has a folder of
its own. Neighbours: `store.py`, `artifacts.py` and `runtime/toolchain.py` keep things here.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import re
import shutil
import stat
import tempfile
import threading
import time
from pathlib import Path
from typing import Final

_PREFIX: Final = "stator-"
_LOCK: Final = "in-use"
_OURS: Final = re.compile(_PREFIX + r"(build-)?[a-z0-9_]{8}")
#: How old a folder without a lock file is left: its process died between making the one and the other.
_UNLOCKED_SECONDS: Final = 3600.0

_lock = threading.Lock()
#: The folder of each process that this one descends from by fork, itself included; with the lock, which stays open.
_made: dict[int, tuple[Path, int]] = {}


def folder() -> Path:
    """This process's temporary folder."""
    with _lock:
        mine = _made.get(os.getpid())
        if mine is None:
            mine = _made[os.getpid()] = _make()
            atexit.register(_remove_at_exit, os.getpid(), mine[0])
        return mine[0]


def fresh(name: str) -> Path:
    """A new, empty folder in it."""
    return Path(tempfile.mkdtemp(prefix=f"{name}-", dir=folder()))


def sweep() -> None:
    """Remove the folders of processes that are gone."""
    try:
        places = [Path(entry.path) for entry in os.scandir(tempfile.gettempdir()) if _OURS.fullmatch(entry.name)]
    except OSError:
        return
    for place in places:
        _remove_if_left(place)


def _make() -> tuple[Path, int]:
    while True:
        place = Path(tempfile.mkdtemp(prefix=_PREFIX))
        lock = os.open(place / _LOCK, os.O_CREAT | os.O_RDWR, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.stat(place / _LOCK).st_ino == os.fstat(lock).st_ino:
                return place, lock
        except OSError:  # a sweep came between the two: the folder is going, or gone
            pass
        os.close(lock)


def _remove_if_left(place: Path) -> None:
    """Delete a folder of ours whose process has ended."""
    try:
        found = os.lstat(place)
    except OSError:
        return
    if found.st_uid != os.geteuid() or not stat.S_ISDIR(found.st_mode):
        return
    try:
        lock = os.open(place / _LOCK, os.O_RDWR | os.O_NOFOLLOW)
    except OSError:
        if time.time() - found.st_mtime > _UNLOCKED_SECONDS:
            shutil.rmtree(place, ignore_errors=True)
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(place, ignore_errors=True)
    except OSError:  # its process lives
        return
    finally:
        os.close(lock)


def _remove_at_exit(process: int, place: Path) -> None:
    if os.getpid() == process:  # a forked child runs what its parent has registered
        shutil.rmtree(place, ignore_errors=True)
