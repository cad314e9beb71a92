"""Kernels that are evaluated beside what they were compiled to, where they are small: what is written is the same.

A kernel's function in the kernel IR runs on copies of its arguments before the C++ runs on the arguments themselves.
Numbers differ by how many terms were added before a rounding, and by the libraries of functions; integers do not.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from typing import Any

from stator.base.dtypes import ITEMSIZE
from stator.kernel.evaluate import run
from stator.kernel.ir import Function
from stator.loop.evaluate import Memory
from stator.loop.kernel import Kernel
from stator.loop.scalar import FLOATS
from stator.sizes.writing import evaluate as value_of

#: What is evaluated takes at most so many operators, one after the other in Python.
MOST = 20_000
#: How far results may be apart, as a part of the largest number.
FAR = {"f64": 1e-9, "f32": 1e-3, "bf16": 0.05, "f16": 0.02}


class Evaluated:
    """A kernel that Python calls with tensors and numbers; `moves` are the bytes by which arguments are moved."""

    def __init__(self, native: Any, kernel: Kernel, function: Function, moves: Sequence[int] = ()) -> None:
        self.native, self.kernel, self.function, self.moves = native, kernel, function, moves
        self.dtypes = {node.dtype for node in kernel.nodes}

    def at(self, *moves: int) -> Evaluated:
        return Evaluated(self.native.at(*moves), self.kernel, self.function, moves)

    def __call__(self, *arguments: Any) -> None:
        params, symbols = self.kernel.params, self.kernel.symbols
        sizes = dict(zip(symbols, arguments[len(params) :], strict=True))
        starts = [t if isinstance(t, int) else t.data_ptr() for t in arguments[: len(params)]]
        places = [start + move for start, move in zip(starts, self.moves or [0] * len(params), strict=False)]
        counts = [value_of(param.numel, sizes) for param in params]
        count_of = {param.name: count for param, count in zip(params, counts, strict=True)}
        points = value_of(self.kernel.outer_numel, sizes) * value_of(self.kernel.reduce_numel, sizes)
        if points * len(self.kernel.nodes) > MOST or sum(counts) > MOST:
            self.native(*arguments)
            return
        memories = {
            param.name: Memory(bytearray(ctypes.string_at(place, count * ITEMSIZE[param.dtype])), 0, param.dtype)
            for param, place, count in zip(params, places, counts, strict=True)
        }
        largest = max(
            (abs(n) for p in params if p.role != "out" for n in finite(memories[p.name], count_of[p.name])), default=1.0
        )
        failed = run(self.function, memories, sizes)
        try:
            self.native(*arguments)
        except IndexError:
            assert failed
            raise
        assert not failed
        for param, place in zip(params, places, strict=True):
            if param.role != "in":
                self.compare(param.name, memories[param.name], place, count_of[param.name], largest)

    def compare(self, name: str, memory: Memory, place: int, count: int, largest: float) -> None:
        """`largest` is the largest number that was read: terms as large may have cancelled."""
        found, wanted = Memory(bytearray(ctypes.string_at(place, count * memory.itemsize)), 0, memory.dtype), memory
        coarse = max([FAR[dtype] for dtype in (memory.dtype, *self.dtypes) if dtype in FAR], default=0.0)
        far = coarse * max([largest, *map(abs, finite(wanted, count))]) if memory.dtype in FAR else 0
        for i in range(count):
            mine, theirs = found.read(i), wanted.read(i)
            same = mine == theirs or (mine != mine and theirs != theirs) or abs(mine - theirs) <= far
            assert same, f"{name}[{i}] of {self.function.name} is {mine}, evaluated {theirs}"


def finite(memory: Memory, count: int) -> list[float]:
    """The numbers in memory, of floats those that are finite."""
    found = [memory.read(i) for i in range(count)]
    return [n for n in found if math.isfinite(n)] if memory.dtype in FLOATS else found
