"""The C++ compiler: a source text to a shared library in the store.

The key is everything the library depends on, by content: source, flags, what the compiler says it is, and the
processor. Only building asks the compiler; an artifact holds the keys of its libraries, so a warm start needs none.
Several sources compile at once, each in its own compiler process. A library that the store finds damaged is gone when
asked for, so it is simply built again.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from stator.base import artifacts, log, processor, temporary
from stator.base.errors import BuildError, CompilerMissing
from stator.base.options import Options
from stator.base.store import Store, key_of


class Cpp:
    """A compiler and the store its libraries go to."""

    __slots__ = ("compiler", "options", "store")

    def __init__(self, options: Options | None = None) -> None:
        options = options or Options()
        self.options = options
        self.compiler = options.compiler
        self.store = open_store(options)

    def build(self, source: str, flags: Sequence[str] = ()) -> Path:
        """The library of one source."""
        return self.build_all([(source, tuple(flags))])[0]

    def build_all(self, sources: Sequence[tuple[str, tuple[str, ...]]]) -> list[Path]:
        """The libraries of several sources; those not in the store compile side by side."""
        return self.build_keys([self.key(source, flags) for source, flags in sources], sources)

    def build_keys(self, keys: Sequence[str], sources: Sequence[tuple[str, tuple[str, ...]]]) -> list[Path]:
        """The same, where the keys are known."""
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
        """Where the library of a source is filed that this compiler makes."""
        return "cpp-" + key_of(source, flags, _identity(_program(self.compiler)), processor.identity())

    def _compile(self, work: list[tuple[str, str, tuple[str, ...]]]) -> None:
        """At most one compiler process a core; the first failure is raised after all have ended."""
        program = _program(self.compiler)
        failure: BuildError | None = None
        folder = temporary.fresh("build")
        try:
            for start in range(0, len(work), width := os.cpu_count() or 1):
                running = [(*item, *self._start(program, folder, *item)) for item in work[start : start + width]]
                for key, source, _, process, target in running:
                    output = process.communicate()[0].decode(errors="replace")
                    if process.returncode:
                        failure = failure or BuildError(self._kept(source), process.returncode, output)
                    else:
                        self.store.put(key, target.read_bytes())
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        if failure is not None:
            raise failure

    @staticmethod
    def _start(
        program: str, folder: Path, key: str, source: str, flags: tuple[str, ...]
    ) -> tuple[subprocess.Popen[bytes], Path]:
        """A compiler process; it reads a file, since one that was fed would wait until those before it have ended."""
        target = folder / f"{key}.so"
        text = target.with_suffix(".cpp")
        text.write_text(source, encoding="utf-8")
        command = [program, *flags, text.name, "-o", str(target)]
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=folder
        )
        return process, target

    def _kept(self, source: str) -> str:
        """Where a source that does not compile was left for a person to look at."""
        return str(artifacts.for_failure(self.options, "build").write("kernels", source, "cpp"))


def open_store(options: Options) -> Store:
    """The one store of this process for these options; with the first, what crashed processes left is removed."""
    root = options.cache_root() if options.cache else temporary.folder() / "store"
    return _store(root, options.cache_bytes)


@cache
def _store(root: Path, max_bytes: int) -> Store:
    _sweep_once()
    return Store(root, max_bytes)


@cache
def _sweep_once() -> None:
    temporary.sweep()


def _program(compiler: str) -> str:
    found = shutil.which(compiler)
    if found is None:
        raise CompilerMissing(compiler)
    return found


@cache
def _identity(program: str) -> str:
    """What a compiler says it is: name, version and distribution, without the path by which it was called."""
    try:
        told = subprocess.run(
            [program, "--version"], stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace"
        )
    except OSError as error:
        raise CompilerMissing(program) from error
    return told.stdout.replace(program, os.path.basename(program)) or os.path.basename(program)
