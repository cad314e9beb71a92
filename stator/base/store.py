"""A content-addressed store on disk, shared by all processes of a user.

One entry is one file: the bytes, then a fixed-size trailer with their checksum, written as a comment line so that a
shared library or a Python source stays usable in place. Entries appear by rename, so a reader sees a whole entry or
none; one that does not match its checksum is deleted and reported once. The store is bounded: the least recently used
go first. A folder that cannot be written is reported once, and a private folder of this process takes the writes.
"""

from __future__ import annotations

import atexit
import hashlib
import itertools
import os
import re
import shutil
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from stator.base.errors import CacheWarning

_MARK: Final = b"\n# stator blake2b "
_DIGEST: Final = 16
_TRAILER: Final = len(_MARK) + 2 * _DIGEST + 1
_KEY: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{2,199}")
_STALE_SECONDS: Final = 3600.0
_TEMPORARY: Final = "tmp-"


def key_of(*parts: object) -> str:
    """The key of a sequence of parts (bytes as they are, anything else by `str`); where one part ends matters."""
    digest = hashlib.blake2b(digest_size=20)
    for part in parts:
        data = part if isinstance(part, bytes) else str(part).encode()
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


def _seal(data: bytes) -> bytes:
    return data + _MARK + hashlib.blake2b(data, digest_size=_DIGEST).hexdigest().encode() + b"\n"


def _open_seal(sealed: bytes) -> bytes | None:
    """The data of a sealed entry, or None when it is damaged."""
    data = sealed[:-_TRAILER]
    return data if len(sealed) >= _TRAILER and _seal(data)[-_TRAILER:] == sealed[-_TRAILER:] else None


class Store:
    """Bytes by key. Every method is safe to call from many threads and processes; none raises for the disk's sake."""

    __slots__ = ("_bytes", "_counter", "_lock", "_private", "_reported", "max_bytes", "root")

    def __init__(self, root: Path | str, max_bytes: int = 4 << 30) -> None:
        self.root = Path(root) / "entries"  # a folder of our own: the bound deletes files in it
        self.max_bytes = max_bytes
        self._private: Path | None = None  # takes the writes once `root` has refused one
        self._bytes: int | None = None  # size of the folder as last counted, plus what was written since
        self._counter = itertools.count()
        self._lock = threading.Lock()
        self._reported = False  # one warning a process is enough: what follows has the same cause

    def get(self, key: str) -> bytes | None:
        """The bytes of an entry, or None."""
        found = self._find(key)
        return found[1] if found else None

    def path(self, key: str) -> Path | None:
        """The file of an entry whose checksum holds (followed by the trailer), or None."""
        found = self._find(key)
        return found[0] if found else None

    def put(self, key: str, data: bytes) -> None:
        """Write an entry; an equal key means equal bytes, so whoever comes last changes nothing."""
        sealed = _seal(data)
        if self._private is None:
            try:
                self._write(self._place(self.root, key), sealed)
            except OSError as error:
                why = error.strerror or error
                self._report(f"the cache folder {self.root} cannot be written ({why}); this process goes on without it")
                self._private = Path(tempfile.mkdtemp(prefix="stator-"))
                atexit.register(shutil.rmtree, self._private, ignore_errors=True)
        if self._private is not None:
            self._write(self._place(self._private, key), sealed)
        elif self._grown(len(sealed)) > self.max_bytes:
            self._shrink(keep=self._place(self.root, key))

    def usage(self) -> tuple[int, int]:
        """How many entries there are, and their bytes."""
        sizes = [stat.st_size for _, stat in self._entries()]
        return len(sizes), sum(sizes)

    def clear(self) -> None:
        """Delete every entry."""
        with self._lock:
            for path, _ in self._entries():
                _remove(path)
            self._bytes = 0

    def _place(self, folder: Path, key: str) -> Path:
        if not _KEY.fullmatch(key):
            raise ValueError(f"not a store key: {key!r}")
        return folder / key[:2] / key

    def _find(self, key: str) -> tuple[Path, bytes] | None:
        for folder in (self._private, self.root):
            if folder is None:
                continue
            place = self._place(folder, key)
            try:
                sealed = place.read_bytes()
            except OSError:
                continue
            data = _open_seal(sealed)
            if data is None:
                self._report(f"a damaged entry of the cache {self.root} was removed")
                _remove(place)
                continue
            _touch(place)
            return place, data
        return None

    def _write(self, place: Path, sealed: bytes) -> None:
        place.parent.mkdir(parents=True, exist_ok=True)
        temporary = place.parent / f"{_TEMPORARY}{os.getpid()}-{threading.get_ident()}-{next(self._counter)}"
        try:
            temporary.write_bytes(sealed)
            os.replace(temporary, place)
        except OSError:
            _remove(temporary)
            raise

    def _report(self, text: str) -> None:
        if not self._reported:
            self._reported = True
            warnings.warn(text, CacheWarning, stacklevel=4)

    def _grown(self, size: int) -> int:
        """How large the folder is now; counted once a process, then kept by adding."""
        with self._lock:
            if self._bytes is None:
                self._bytes = sum(entry.st_size for _, entry in self._entries())
            else:
                self._bytes += size
            return self._bytes

    def _shrink(self, keep: Path) -> None:
        """Remove the least recently used entries until a tenth of the bound is free again.

        An entry that another process has just found may go: on Linux an open or mapped file stays readable, and a path
        that vanished reads as a miss.
        """
        with self._lock:
            entries = sorted(self._entries(), key=lambda item: item[1].st_mtime)
            total = sum(stat.st_size for _, stat in entries)
            stale = time.time() - _STALE_SECONDS
            for path, stat in entries:
                if path.name.startswith(_TEMPORARY):
                    remove = stat.st_mtime < stale  # left by a process that died while writing
                else:
                    remove = total > self.max_bytes * 0.9 and path != keep
                if remove:
                    _remove(path)
                    total -= stat.st_size
            self._bytes = total

    def _entries(self) -> Iterator[tuple[Path, os.stat_result]]:
        for folder in self.root.glob("??"):
            for path in folder.iterdir():
                try:
                    yield path, path.stat()
                except OSError:
                    continue


def _remove(path: Path) -> None:
    """Delete a file that may be gone, or not ours to delete: both leave the store correct."""
    try:
        path.unlink()
    except OSError:
        return


def _touch(path: Path) -> None:
    """Mark as used. On a read-only store recency is not kept."""
    try:
        os.utime(path)
    except OSError:
        return
