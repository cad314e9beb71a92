"""Units of C++ and C to kernels: libraries that g++ makes and the store keeps.

A unit carries the key of its library, by which a warm start finds it without a compiler; what is missing, or does not
load, is built again. Nothing is queued: a call is done when it returns.
Neighbours: `runtime/toolchain.py` runs the compiler, `csrc/kernels.c` loads.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from stator.base import temporary
from stator.base.device import HOST
from stator.base.options import Options
from stator.runtime.artifact import Unit
from stator.runtime.toolchain import Compilation, Cpp


class Libraries:
    """Libraries on their way into the store."""

    __slots__ = ("_compilation", "_cpp")

    def __init__(self, options: Options) -> None:
        self._cpp = Cpp(options)
        self._compilation = Compilation(self._cpp)

    def expect(self, device: str) -> None:
        """A compiler starts as fast as it can."""

    def begin(
        self, units: Sequence[Unit], device: str = HOST, remarks: Mapping[str, str] | None = None
    ) -> tuple[Unit, ...]:
        """The same with the keys of their libraries. A compiler tells its errors by the lines of the source."""
        keys = [self._cpp.key(unit.source, unit.flags) for unit in units]
        self._compilation.add(keys, [(unit.source, unit.flags) for unit in units])
        return tuple([replace(unit, library=key) for unit, key in zip(units, keys, strict=True)])

    def finish(self) -> None:
        """Wait until all libraries are in the store."""
        self._compilation.finish()

    def close(self) -> None:
        """End what still runs."""
        self._compilation.close()


def building(options: Options) -> Libraries:
    """What compiles units."""
    return Libraries(options)


def load(units: Sequence[Unit], device: str, options: Options) -> dict[str, Any]:
    """The kernels of libraries."""
    from stator._native import load_kernels  # needs torch, which this package does not

    cpp = Cpp(options)
    found: dict[str, Any] = {}
    for unit in units:
        path = (unit.library and cpp.store.path(unit.library)) or cpp.build(unit.source, unit.flags)
        try:
            kernels = load_kernels(str(path), unit.kernels)
        except OSError:  # a whole file that this system cannot load: made by another one
            fresh = cpp.rebuild(unit.source, unit.flags)
            kernels = load_kernels(str(_renamed(fresh)), unit.kernels)
        found.update(zip(unit.kernels, kernels, strict=True))
    return found


def _renamed(path: Path) -> Path:
    """The same library under another name: the loader remembers names."""
    return Path(shutil.copy(path, temporary.fresh("library")))


def number(device: str) -> int:
    """There is one host."""
    return 0


def current_stream(number: int) -> int:
    """There is one order."""
    return 0


def stream_getter() -> int:
    """Nothing is queued."""
    return 0


def seconds(call: Callable[[], object], count: int) -> float:
    """How long a call takes, of so many in a row."""
    start = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - start) / count
