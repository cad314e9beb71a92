"""The C++ compiler: a source text to a shared library in the store.

The key is everything the library depends on: source, flags, which compiler (its file, size and time, so that asking
costs no process) and the processor. Several sources compile at once, each in its own compiler process. A library that
the store finds damaged is gone when asked for, so it is simply built again.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from stator.base import log, processor
from stator.base.errors import BuildError, CompilerMissing
from stator.base.options import Options
from stator.base.store import Store, key_of


class Cpp:
    """A compiler and the store its libraries go to."""

    __slots__ = ("compiler", "store")

    def __init__(self, options: Options | None = None) -> None:
        options = options or Options()
        self.compiler = options.compiler
        self.store = open_store(options)

    def build(self, source: str, flags: Sequence[str] = ()) -> Path:
        """The library of one source."""
        return self.build_all([(source, tuple(flags))])[0]

    def build_all(self, sources: Sequence[tuple[str, tuple[str, ...]]]) -> list[Path]:
        """The libraries of several sources; those not in the store compile side by side."""
        keys = [self.key(source, flags) for source, flags in sources]
        found = [self.store.path(key) for key in keys]
        missing = {key: source for key, source, path in zip(keys, sources, found, strict=True) if path is None}
        if missing:
            with log.span("g++", units=len(missing)):
                self._compile([(key, *source) for key, source in missing.items()])
            found = [path or self.store.path(key) for key, path in zip(keys, found, strict=True)]
        log.record("cache", what="kernels", hits=len(keys) - len(missing), misses=len(missing))
        return [path for path in found if path is not None]

    def rebuild(self, source: str, flags: Sequence[str]) -> Path:
        """Build again, whatever the store has (its library does not load)."""
        key = self.key(source, tuple(flags))
        self._compile([(key, source, tuple(flags))])
        path = self.store.path(key)
        assert path is not None, "the store lost an entry that it just took"
        return path

    def key(self, source: str, flags: tuple[str, ...]) -> str:
        return "cpp-" + key_of(source, flags, *_identity(self.compiler), processor.identity())

    def _compile(self, work: list[tuple[str, str, tuple[str, ...]]]) -> None:
        """At most one compiler process a core; the first failure is raised after all have ended."""
        program = _program(self.compiler)
        failure: BuildError | None = None
        with tempfile.TemporaryDirectory(prefix="stator-build-") as folder:
            for start in range(0, len(work), width := os.cpu_count() or 1):
                running = [(*item, *self._start(program, folder, *item)) for item in work[start : start + width]]
                for key, source, _, process, target in running:
                    output = process.communicate()[0].decode(errors="replace")
                    if process.returncode:
                        failure = failure or BuildError(_kept(key, source), process.returncode, output)
                    else:
                        self.store.put(key, target.read_bytes())
        if failure is not None:
            raise failure

    @staticmethod
    def _start(
        program: str, folder: str, key: str, source: str, flags: tuple[str, ...]
    ) -> tuple[subprocess.Popen[bytes], Path]:
        """A compiler process; it reads a file, since one that was fed would wait until those before it have ended."""
        target = Path(folder) / f"{key}.so"
        text = target.with_suffix(".cpp")
        text.write_text(source, encoding="utf-8")
        command = [program, *flags, text.name, "-o", str(target)]
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=folder
        )
        return process, target


def _kept(key: str, source: str) -> str:
    """Where a source that does not compile was left for a person to look at."""
    path = Path(tempfile.gettempdir()) / f"stator-{key}.cpp"
    path.write_text(source, encoding="utf-8")
    return str(path)


def open_store(options: Options) -> Store:
    """The one store of this process for these options."""
    return _store(options.cache_root(), options.cache_bytes)


@cache
def _store(root: Path, max_bytes: int) -> Store:
    return Store(root, max_bytes)


def _program(compiler: str) -> str:
    found = shutil.which(compiler)
    if found is None:
        raise CompilerMissing(compiler)
    return found


@cache
def _identity(compiler: str) -> tuple[str, int, int]:
    path = os.path.realpath(_program(compiler))
    stat = os.stat(path)
    return path, stat.st_size, stat.st_mtime_ns
