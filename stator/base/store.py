"""A content-addressed store on disk, shared by all processes of a user.

One entry is one file: the bytes, then a fixed-size trailer with their checksum, written as a comment line so that a
shared library or a Python source stays usable in place. Entries appear by rename, so a reader sees a whole entry or
none; one that does not match its checksum is deleted and reported once. The store is bounded: the least recently used
go first. A folder that cannot be written is reported once, and a private folder of this process takes the writes;
so is one that others can write to (`trust.py`), from which nothing is read either: entries are code.
"""

from __future__ import annotations

import errno
import hashlib
import itertools
import os
import re
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from stator.base import temporary, trust
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

    __slots__ = ("_bytes", "_counter", "_lock", "_private", "_reported", "_trusted", "max_bytes", "root")

    def __init__(self, root: Path | str, max_bytes: int = 4 << 30) -> None:
        self.root = Path(root).absolute() / "entries"  # a folder of our own: the bound deletes files in it
        self.max_bytes = max_bytes
        self._trusted: bool | None = None  # whether nobody else can write to `root`, once that was looked at
        self._private = False  # whether a folder of this process takes the writes: `root` has refused one
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
        if self.trusted() and not self._private:
            try:
                self._write(self._place(self.root, key), sealed)
            except OSError as error:
                why = error.strerror or error
                self._report(f"the cache folder {self.root} cannot be written ({why}); this process goes on without it")
                self._private = True
        if self._private:
            self._write(self._place(self._own(), key), sealed)
        elif self._grown(len(sealed)) > self.max_bytes:
            self._shrink(keep=self._place(self.root, key))

    def trusted(self) -> bool:
        """Whether what is in the folder can only come from this user or the system; told once where it is not so."""
        if self._trusted is None:
            why = trust.objection(self.root)
            self._trusted = why is None
            self._private = self._private or why is not None
            if why is not None:
                text = f"the cache folder is not used, because others can put files into it: {why}"
                self._report(f"{text}; make it yours alone (chown, chmod go-w) or name another with STATOR_CACHE_DIR")
        return self._trusted

    def usage(self) -> tuple[int, int]:
        """How many entries there are, and their bytes."""
        sizes = [found.st_size for _, found in self._entries()]
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

    def _own(self) -> Path:
        return temporary.folder() / f"entries-{key_of(self.root)}"

    def _find(self, key: str) -> tuple[Path, bytes] | None:
        folders = [self.root] if self.trusted() else []
        for folder in [self._own(), *folders] if self._private else folders:
            place = self._place(folder, key)
            try:
                sealed = self._read(place)
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

    def _read(self, place: Path) -> bytes:
        """The bytes of a file that is nobody else's, in a folder that is nobody else's."""
        user = os.geteuid()
        with open(place, "rb") as file:
            for name, found in ((place, os.fstat(file.fileno())), (place.parent, os.stat(place.parent))):
                if why := trust.writable_by_others(found, user):
                    self._report(f"an entry of the cache is not used: {name} {why}")
                    raise PermissionError(errno.EPERM, why)
            return file.read()

    def _write(self, place: Path, sealed: bytes) -> None:
        _make(place.parent)
        if why := trust.objection(place.parent):  # it is new, or has changed since the folder was looked at
            raise PermissionError(errno.EPERM, why)
        draft = place.parent / f"{_TEMPORARY}{os.getpid()}-{threading.get_ident()}-{next(self._counter)}"
        try:
            with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                file.write(sealed)
            os.replace(draft, place)
        except OSError:
            _remove(draft)
            raise

    def _report(self, text: str) -> None:
        if not self._reported:
            self._reported = True
            warnings.warn(text, CacheWarning, stacklevel=4)

    def _grown(self, size: int) -> int:
        """How large the folder is now; counted once a process, then kept by adding."""
        with self._lock:
            if self._bytes is None:
                self._remove_stale()
                self._bytes = sum(found.st_size for _, found in self._entries())
            else:
                self._bytes += size
            return self._bytes

    def _shrink(self, keep: Path) -> None:
        """Remove the least recently used entries until a tenth of the bound is free again.

        An entry that another process has just found may go: on Linux an open or mapped file stays readable, and a path
        that vanished reads as a miss.
        """
        with self._lock:
            self._remove_stale()
            entries = sorted(self._entries(), key=lambda item: item[1].st_mtime)
            total = sum(found.st_size for _, found in entries)
            for path, found in entries:
                if total > self.max_bytes * 0.9 and path != keep and not path.name.startswith(_TEMPORARY):
                    _remove(path)
                    total -= found.st_size
            self._bytes = total

    def _remove_stale(self) -> None:
        """Remove what processes left that died while writing."""
        before = time.time() - _STALE_SECONDS
        for path, found in self._entries():
            if path.name.startswith(_TEMPORARY) and found.st_mtime < before:
                _remove(path)

    def _entries(self) -> Iterator[tuple[Path, os.stat_result]]:
        for folder in self.root.glob("??") if self.trusted() else ():
            for path in folder.iterdir():
                try:
                    yield path, path.stat()
                except OSError:
                    continue


def _make(folder: Path) -> None:
    """Make a folder and those above it that are missing, open to this user alone."""
    if folder.is_dir():
        return
    _make(folder.parent)
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        if not folder.is_dir():
            raise


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
