"""Runs a kernel's machine code for the programs of a grid, on as many threads as torch has.

Threads are those of the OpenMP that torch has loaded; without one, for a single program, and for kernels that print,
the caller's thread runs all. Threads take programs, a few at a time, until none is left.
Neighbours: `kernel` says what is in the context; `stator.tile.jit` launches.
"""

from __future__ import annotations

import ctypes
import functools
import linecache
import struct
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from stator.tile.analysis.axes import analyse
from stator.tile.cpu.buffers import place
from stator.tile.cpu.build import Loaded, target
from stator.tile.cpu.casts import stored
from stator.tile.cpu.kernel import Text, write
from stator.tile.cpu.plan import Plan
from stator.tile.cpu.prepare import prepare
from stator.tile.cpu.schedule import Scheduler
from stator.tile.cpu.writer import Site, Word
from stator.tile.errors import InterpreterError, Place
from stator.tile.interpret.casts import Data, narrow
from stator.tile.interpret.program import printed
from stator.tile.ir.core import Module
from stator.tile.ir.operators import OPERATORS
from stator.tile.ir.types import Type

#: So many chunks of programs for each thread: they need not take equally long.
_CHUNKS = 8
_PRINT = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.POINTER(ctypes.c_void_p))


def plan_of(module: Module, name: str) -> Plan:
    """What is decided of a kernel."""
    scheduler = Scheduler(prepare(module, name))
    plan = scheduler.plan()
    place(plan, scheduler.inlining)
    return plan


def text_of(plan: Plan, lanes: int) -> Text:
    """A kernel's text for vectors of so many lanes."""
    axes = analyse(plan.function, lambda op: op in OPERATORS and OPERATORS[op].elementwise)
    return write(plan, axes, lanes)


@functools.cache
def _parallel() -> Any:
    """`GOMP_parallel`, if an OpenMP is loaded."""
    if "torch" not in sys.modules:
        return None
    try:
        function = ctypes.CDLL(None).GOMP_parallel
    except AttributeError:
        function = _from_loaded_library()
    if function is not None:
        function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint]
        function.restype = None
    return function


def _from_loaded_library() -> Any:
    """Libraries that are loaded need not be visible to the process: torch's is found by its path."""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        paths = {line.split()[-1] for line in maps if "libgomp" in line}
    return ctypes.CDLL(min(paths)).GOMP_parallel if paths else None


def threads() -> int:
    """As many as torch uses."""
    torch = sys.modules.get("torch")
    return 1 if torch is None else int(torch.get_num_threads())


class Kernel:
    """A kernel as machine code."""

    def __init__(self, module: Module, name: str) -> None:
        self.name = name
        self.plan = plan_of(module, name)
        self.text = text_of(self.plan, target().lanes)
        self.loaded = Loaded(self.text.llvm, "run")
        self._call = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self.loaded.address)
        params = [param.type for param in self.plan.function.params]
        self._head = struct.Struct(f"={int(Word.ARGUMENTS)}q")
        self._pack = struct.Struct("=" + "".join(map(parameter_format, params)))
        self._unsigned = [_is_unsigned(type_) for type_ in params]

    def run(self, numbers: Sequence[bool | int | float], grid: tuple[int, int, int]) -> None:
        """All programs of a grid; InterpreterError where one fails."""
        total = grid[0] * grid[1] * grid[2]
        if not total:
            return
        count = 1 if self.text.prints else min(threads(), total)
        chunk = max(total // (count * _CHUNKS), 1)
        callback = _PRINT(functools.partial(self._print, grid)) if self.text.prints else None
        address = ctypes.cast(callback, ctypes.c_void_p).value if callback is not None else 0
        head = self._head.pack(0, total, chunk, *grid, 0, 0, address or 0)
        context = ctypes.create_string_buffer(head + self._pack.pack(*numbers))
        parallel = _parallel() if count > 1 else None
        if parallel is None:
            self._call(ctypes.addressof(context))
        else:
            parallel(self.loaded.address, ctypes.addressof(context), count, 0)
        fault, program = struct.unpack_from("=2q", context, 8 * Word.FAULT)
        if fault:
            self._fail(self.text.sites[fault - 1], program, grid)

    def _fail(self, site: Site, program: int, grid: tuple[int, int, int]) -> None:
        found = None
        if site.location is not None:
            line = linecache.getline(site.location.file, site.location.line).rstrip("\n")
            found = Place(site.location.file, site.location.line, site.location.column, line, self.name)
        raise InterpreterError(f"{site.message}, in program {_place(program, grid)}", found)

    def _print(self, grid: tuple[int, int, int], number: int, program: int, places: Any) -> None:
        site = self.text.sites[number - 1]
        where = ", ".join(map(str, _place(program, grid)))
        for type_, address in zip(site.types, places, strict=False):
            print(f"pid ({where}) {site.message}{printed(type_, _read(type_, address), site.hex)}")
        if not site.types:
            print(f"pid ({where}) {site.message}")


def _place(program: int, grid: tuple[int, int, int]) -> tuple[int, int, int]:
    rest, x = divmod(program, grid[0])
    z, y = divmod(rest, grid[1])
    return x, y, z


def _read(type_: Type, address: int) -> Data:
    """A tile that lies in a buffer, as the interpreter has it."""
    kind = {"float": "float32", "double": "float64"}.get(stored(type_.element))
    element = type_.element
    numpy = np.dtype(kind) if kind is not None else element.numpy
    size = type_.numel * numpy.itemsize
    data = np.frombuffer(ctypes.string_at(address, size), numpy).reshape(type_.shape)
    return narrow(data, element) if kind is not None and data.dtype != element.numpy else data  # type: ignore[arg-type]


_FORMATS = {"i1": "?7x", "f64": "d", "u64": "Q"}


def parameter_format(type_: Type) -> str:
    """How an argument lies in its word."""
    element = type_.element
    name = str(element)
    if name in _FORMATS:
        return _FORMATS[name]
    if getattr(element, "is_float", False):
        return "f4x"
    return "q" if not _is_unsigned(type_) else "Q"


def _is_unsigned(type_: Type) -> bool:
    return getattr(type_.element, "kind", "") == "uint"
