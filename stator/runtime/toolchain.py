"""The C++ compiler: a source text to a shared library in the store.

The key is everything the library depends on, by content: source, flags, what the compiler says it is, and the
processor. Only building asks the compiler; an artifact holds the keys of its libraries, so a warm start needs none.
Several sources compile at once, each in its own compiler process. A library that the store finds damaged is gone when
asked for, so it is simply built again.
"""

from __future__ import annotations

import os
import selectors
import shutil
import subprocess
from collections import deque
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Final

from stator.base import artifacts, log, processor, temporary
from stator.base.errors import BuildError, CompilerMissing
from stator.base.options import Options
from stator.base.store import Store, key_of
from stator.runtime.precompiled import Header, header_of


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
        with Compilation(self) as compilation:
            compilation.add(keys, sources)
            compilation.finish()
        return [path for path in map(self.store.path, keys) if path is not None]

    def rebuild(self, source: str, flags: Sequence[str]) -> Path:
        """Build again, whatever the store has (its library does not load)."""
        key = self.key(source, tuple(flags))
        with Compilation(self) as compilation:
            compilation.add([key], [(source, tuple(flags))], again=True)
            compilation.finish()
        path = self.store.path(key)
        assert path is not None, "the store lost an entry that it just took"
        return path

    def key(self, source: str, flags: tuple[str, ...]) -> str:
        """Where the library of a source is filed that this compiler makes."""
        return "cpp-" + key_of(source, flags, _identity(_program(self.compiler)), processor.identity())

    def kept(self, source: str) -> str:
        """Where a source that does not compile was left for a person to look at."""
        return str(artifacts.for_failure(self.options, "build").write("kernels", source, "cpp"))


#: What gcc says when it fails in itself, and what is tried then: first the other level of optimization.
_CRASHED: Final = "internal compiler error"
_OTHER_LEVEL: Final = {"-O1": "-O2", "-O2": "-O1"}
#: And then the pass that joins instructions left out: g++ 12 makes some that it cannot write.
_UNJOINED: Final = "-fdisable-rtl-combine"


class Compilation:
    """Libraries in the making: at most one compiler process a core, which run while their caller goes on.

    `add` starts what is not in the store, and `finish` waits for it. Leaving the context ends what still runs.
    """

    __slots__ = ("_cpp", "_failure", "_folder", "_keys", "_known", "_running", "_waiting")

    def __init__(self, cpp: Cpp) -> None:
        self._cpp = cpp
        self._keys: set[str] = set()
        self._known = 0  # how many of them the store had
        self._waiting: deque[tuple[str, str, tuple[str, ...]]] = deque()
        self._running = selectors.DefaultSelector()
        self._folder: Path | None = None
        self._failure: BuildError | None = None

    def __enter__(self) -> Compilation:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End what still runs, and leave no files."""
        for entry in self._running.get_map().values():
            process = entry.data[0]
            process.kill()
            process.communicate()
        self._running.close()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def add(self, keys: Sequence[str], sources: Sequence[tuple[str, tuple[str, ...]]], again: bool = False) -> None:
        """Compile sources, each to the library of its key; with `again` also what the store has."""
        for key, source in zip(keys, sources, strict=True):
            if key in self._keys:
                continue
            self._keys.add(key)
            if not again and self._cpp.store.path(key) is not None:
                self._known += 1
            else:
                self._waiting.append((key, *source))
        self._proceed(0)

    def finish(self) -> None:
        """Wait for all; the first failure is raised after all have ended."""
        missing = len(self._keys) - self._known
        if missing:
            with log.span("g++", units=missing):
                while self._running.get_map():
                    self._proceed(None)
        if self._keys:
            log.record("cache", what="kernels", hits=self._known, misses=missing)
        if self._failure is not None:
            raise self._failure

    def _proceed(self, timeout: float | None) -> None:
        """Take what has ended, for which it waits so long, and start as many as there are cores."""
        for entry, _ in self._running.select(timeout) if self._running.get_map() else ():
            self._running.unregister(entry.fileobj)
            process, end = entry.data
            end(process.communicate()[0].decode(errors="replace"), process.returncode)
        while self._waiting and len(self._running.get_map()) < (os.cpu_count() or 1):
            self._start(*self._waiting.popleft())

    def _start(self, key: str, source: str, flags: tuple[str, ...]) -> None:
        """A compiler process; it reads a file, since one that was fed would wait until those before it have ended."""
        self._folder = self._folder or temporary.fresh("build")
        program = _program(self._cpp.compiler)
        target = self._folder / f"{key}.so"
        command = [program, *flags, f"{key}.cpp", "-lm", "-o", str(target)]
        header, rest = header_of(program, flags, source)
        if header is not None and header.due() and _precompiles(program):
            self._precompile(header, [program, *flags])
        if header is None or header.path is None:
            self._compile(key, source, target, command)
        else:
            end = partial(self._end_with, header, key, source, target, command)
            target.with_suffix(".cpp").write_text(rest, encoding="utf-8")
            self._run([*command, "-include", str(header.path)], end)

    def _compile(self, key: str, source: str, target: Path, command: list[str]) -> None:
        """By the whole text."""
        target.with_suffix(".cpp").write_text(source, encoding="utf-8")
        self._run(command, partial(self._end, key, source, target, command))

    def _precompile(self, header: Header, command: list[str]) -> None:
        """For the units to come."""
        path, arguments = header.begin()

        def end(output: str, code: int) -> None:
            if code:
                header.give_up()
            else:
                header.path = path

        self._run([*command, *arguments], end)

    def _run(self, command: list[str], end: Callable[[str, int], None]) -> None:
        """Start a process; `end` is told what it said and how it ended, which closes what it says."""
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=self._folder
        )
        assert process.stdout is not None
        self._running.register(process.stdout, selectors.EVENT_READ, (process, end))

    def _end_with(
        self, header: Header, key: str, source: str, target: Path, command: list[str], output: str, code: int
    ) -> None:
        """What was compiled with a precompiled header; where that failed, the whole source is compiled."""
        if code:
            header.give_up()
            self._compile(key, source, target, command)
        else:
            self._cpp.store.put(key, target.read_bytes())

    def _end(self, key: str, source: str, target: Path, command: list[str], output: str, code: int) -> None:
        """What was compiled.

        A compiler that crashes takes the same text with other optimizations, mostly, and is asked once more.
        """
        if not code:
            self._cpp.store.put(key, target.read_bytes())
        elif _CRASHED in output and (other := _otherwise(command)) is not None:
            self._compile(key, source, target, other)
        elif self._failure is None:
            self._failure = BuildError(self._cpp.kept(source), code, output)


def _otherwise(command: list[str]) -> list[str] | None:
    """What to try after a command with which the compiler has crashed."""
    levels = [flag for flag in command if flag in _OTHER_LEVEL]
    if len(levels) < 2:
        return [*command, _OTHER_LEVEL[levels[0]] if levels else "-O2"]
    return [*command, _UNJOINED] if _UNJOINED not in command else None


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


def _precompiles(program: str) -> bool:
    """Whether it is gcc: that finds what was precompiled beside a header, and reads the text where it is of no use."""
    return "Free Software Foundation" in _identity(program)


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
