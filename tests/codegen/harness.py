"""What the tests of C++ kernels share: one unit for many kernels, and kernels written in one line."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import torch

from stator.base.device import Device
from stator.base.options import Options
from stator.codegen import c
from stator.codegen.cpp import emit
from stator.loop import expr as e
from stator.loop.index import Axis, Index
from stator.loop.kernel import Kernel, Param, Store, kernel
from stator.runtime import Cpp
from stator.targets import typical
from stator.targets.cpu.printer import flags
from stator.targets.cpu.record import read

DTYPES = {
    "f64": torch.float64, "f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16, "i64": torch.int64,
    "i32": torch.int32, "i16": torch.int16, "i8": torch.int8, "u8": torch.uint8, "bool": torch.bool,
}  # fmt: skip
NAMES = {dtype: name for name, dtype in DTYPES.items()}


def generic(vector_bytes: int = 16) -> Device:
    """Any machine of this family."""
    return replace(typical("cpu"), vector_bytes=vector_bytes)


class Built:
    """A compiled unit; `run(i, tensors)` calls kernel i. Without a target it is C++ for this machine."""

    def __init__(self, kernels: Sequence[Kernel], target: Device | Literal["c"] | None = None) -> None:
        target = target or read()
        self.source, told = (c.emit(kernels), c.FLAGS) if target == "c" else (emit(kernels, target), flags(target))
        self.library = ctypes.CDLL(str(Cpp(Options.from_user()).build(self.source, told)))

    def run(self, number: int, *tensors: torch.Tensor) -> None:
        pointers = (ctypes.c_void_p * len(tensors))(*[t.data_ptr() for t in tensors])
        getattr(self.library, f"k{number}")(pointers)


class Batch:
    """Kernels collected one by one with their tensors and expected results, built and checked together.

    Without a target they are checked in plain C too; the tensors hold the results of C++ afterwards.
    """

    def __init__(self, target: Device | None = None) -> None:
        self.target = target
        self.cases: list[tuple[str, Kernel, list[torch.Tensor], dict[int, torch.Tensor], dict[str, float]]] = []

    def add(
        self,
        name: str,
        made: Kernel,
        tensors: Sequence[torch.Tensor],
        expected: dict[int, torch.Tensor],
        **tolerance: float,
    ) -> None:
        """`expected` maps the position of a result among the tensors to what it should hold."""
        self.cases.append((name, made, list(tensors), expected, tolerance))

    def check(self) -> None:
        assert self.cases
        kernels = [case[1] for case in self.cases]
        if self.target is None:
            self._check(Built(kernels, "c"), {id(t): _copied(t) for case in self.cases for t in case[2]})
        self._check(Built(kernels, self.target), {})

    def _check(self, built: Built, copies: dict[int, torch.Tensor]) -> None:
        for number, (name, made, tensors, expected, tolerance) in enumerate(self.cases):
            given = [copies.get(id(tensor), tensor) for tensor in tensors]
            built.run(number, *given)
            for position, wanted in expected.items():
                try:
                    torch.testing.assert_close(given[position], wanted, equal_nan=True, **tolerance)
                except AssertionError as error:
                    raise AssertionError(f"{name}{' in plain C' if copies else ''}: {error}\n{made.text()}") from None


def _copied(tensor: torch.Tensor) -> torch.Tensor:
    """The same with memory of its own, laid out alike."""
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype).copy_(tensor)


def params(*tensors: torch.Tensor, out: Sequence[int]) -> tuple[Param, ...]:
    """Parameters p0, p1, … for tensors; `out` are the positions that are written."""
    made = []
    for i, tensor in enumerate(tensors):
        span = 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True)) if tensor.numel() else 0
        made.append(Param(f"p{i}", NAMES[tensor.dtype], "out" if i in out else "in", span))
    return tuple(made)


def at(tensor: torch.Tensor, axes: Sequence[Axis | Index | int]) -> Index:
    """The flat position of an element; size-1 dimensions are broadcast."""
    position = Index.of(0)
    for axis, size, stride in zip(axes, tensor.shape, tensor.stride(), strict=True):
        position = position + Index.of(axis) * (stride if size != 1 else 0)
    return position


def load(number: int, tensor: torch.Tensor, axes: Sequence[Axis | Index | int]) -> e.Expr:
    """The element of p<number>."""
    return e.load(f"p{number}", at(tensor, axes), NAMES[tensor.dtype])


def axes_of(size: Sequence[int], letter: str = "x") -> tuple[Axis, ...]:
    return tuple(Axis(f"{letter}{i}", n) for i, n in enumerate(size))


def store(number: int, index: Index, value: e.Expr, space: str = "outer", mode: str = "store") -> Store:
    return Store(f"p{number}", index, value, space, mode)


__all__ = ["Axis", "Batch", "Built", "Index", "at", "axes_of", "e", "kernel", "load", "params", "store"]
