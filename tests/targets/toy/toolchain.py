"""What is printed is parsed and evaluated; nothing is compiled, and nothing queued."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stator.base.dtypes import ITEMSIZE
from stator.base.options import Options
from stator.kernel.evaluate import run
from stator.kernel.ir import Function
from stator.kernel.parse import parse
from stator.loop.evaluate import Memory
from stator.runtime.artifact import Unit
from stator.sizes.writing import evaluate

#: The kernels that have run.
CALLS: list[str] = []


class Building:
    def expect(self, device: str) -> None: ...

    def begin(self, units: Sequence[Unit], device: str, remarks: Mapping[str, str]) -> tuple[Unit, ...]:
        return tuple(units)

    def finish(self) -> None: ...

    def close(self) -> None: ...


def building(options: Options) -> Building:
    return Building()


@dataclass(frozen=True)
class Kernel:
    """A kernel; `moves` are the bytes by which its arguments are moved."""

    function: Function
    moves: tuple[int, ...] = ()

    def at(self, *moves: int) -> Kernel:
        return Kernel(self.function, moves)

    def __call__(self, *arguments: Any) -> None:
        CALLS.append(self.function.name)
        params = self.function.params
        sizes = dict(zip(self.function.symbols, arguments[len(params) :], strict=True))
        memories = {}
        for param, tensor, move in zip(params, arguments, self.moves or [0] * len(arguments), strict=False):
            nbytes = evaluate(param.numel, sizes) * ITEMSIZE[param.dtype]
            memory = (ctypes.c_char * nbytes).from_address(tensor.data_ptr() + move)
            memories[param.name] = Memory(memoryview(memory).cast("B"), 0, param.dtype)
        if run(self.function, memories, sizes):
            raise IndexError(self.function.name)


def load(units: Sequence[Unit], device: str, options: Options) -> dict[str, Any]:
    return {name: Kernel(parse(unit.source)) for unit in units for name in unit.kernels}


def number(device: str) -> int:
    return 0


def current_stream(number: int) -> int:
    return 0


def stream_getter() -> int:
    return 0


def seconds(call: Callable[[], object], count: int) -> float:
    return 1.0
