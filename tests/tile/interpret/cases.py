"""Cases of the conformance suite: one operation on given data, as a module that loads operands and stores results.

The suite runs them by the interpreter against references; whoever generates code runs the same cases against the
interpreter. Data is drawn from a seed of its own, with the numbers in front at which mistakes show.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from stator.tile.interpret.memory import Memory
from stator.tile.interpret.run import run
from stator.tile.ir.build import IRBuilder, new_function
from stator.tile.ir.core import Module, Value
from stator.tile.ir.rules import dtype_of
from stator.tile.ir.types import DTYPES, DType, Pointer, Type
from stator.tile.ir.verify import verify

FLOATS = "f16 bf16 f32 f64".split()
FP8 = "f8e4nv f8e5 f8e4b8 f8e5b16 f8e4b15".split()
SIGNED = "i8 i16 i32 i64".split()
UNSIGNED = "u8 u16 u32 u64".split()
INTEGERS = [*SIGNED, *UNSIGNED]
NUMBERS = ["i1", *INTEGERS, *FLOATS]
EVERY = [*NUMBERS, *FP8]

Data = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Case:
    """An operation, and its operands: each a dtype's name with data."""

    op: str
    operands: tuple[tuple[str, Data], ...]
    attrs: dict[str, Any] = field(default_factory=dict)
    combine: str = ""  # the operator of the region, if the operation has one

    @property
    def types(self) -> list[Type]:
        return [Type(DTYPES[name], data.shape) for name, data in self.operands]

    def __str__(self) -> str:
        operands = "-".join([str(type_).replace(", ", "x") for type_ in self.types])
        attrs = "-".join([f"{name}={value}" for name, value in self.attrs.items()])
        return "-".join(filter(None, [self.op, self.combine, operands, attrs])).replace(" ", "")

    def module(self) -> tuple[Module, list[Type]]:
        """A module whose function `main` takes pointers to operands and to results, and the types of those."""
        probe, builder = new_function(Module(), "probe", {f"a{i}": type_ for i, type_ in enumerate(self.types)})
        results = [value.type for value in self.emit(builder, probe.params)]
        module = Module()
        named = [*[(f"a{i}", t) for i, t in enumerate(self.types)], *[(f"r{i}", t) for i, t in enumerate(results)]]
        function, builder = new_function(module, "main", {name: Type(Pointer(t.element)) for name, t in named})
        places = [places_of(builder, p, t.shape) for p, (_, t) in zip(function.params, named, strict=True)]
        loaded = [builder.emit("load", [place])[0] for place in places[: len(self.operands)]]
        for place, value in zip(places[len(self.operands) :], self.emit(builder, loaded), strict=True):
            builder.emit("store", [place, value])
        builder.emit("return")
        return module, results

    def emit(self, builder: IRBuilder, operands: Sequence[Value]) -> list[Value]:
        regions = []
        if self.combine:
            scalars = [type_.scalar for type_ in self.types]
            regions = [builder.region(scalars * 2, lambda a, b: builder.emit(self.combine, [a, b]))]
        return builder.emit(self.op, operands, self.attrs, regions)

    def run(self) -> list[Data]:
        """The results, as the interpreter has them."""
        module, results = self.module()
        verify(module)
        memory = Memory()
        arrays = [np.array(data) for _, data in self.operands]
        arrays += [np.zeros(type_.shape, type_.element.numpy) for type_ in results]
        run(module, "main", [memory.add_array(array, f"a{i}") for i, array in enumerate(arrays)], memory)
        return arrays[len(self.operands) :]


def places_of(builder: IRBuilder, pointer: Value, shape: tuple[int, ...]) -> Value:
    """Pointers to the elements of a contiguous tile."""
    if not shape:
        return pointer
    size = int(np.prod(shape))
    (row,) = builder.emit("arange", [], {"start": 0, "end": size})
    (spread,) = builder.emit("splat", [pointer], {"shape": (size,)})
    (places,) = builder.emit("addptr", [spread, row])
    return builder.emit("reshape", [places], {"shape": shape})[0]


def draw(name: str, shape: tuple[int, ...], what: str, special: bool = True) -> Data:
    """Numbers of a dtype, the special ones of it in front."""
    dtype = DTYPES[name]
    generator = np.random.default_rng(zlib.crc32(f"{name}{shape}{what}".encode()))
    size = int(np.prod(shape))
    if dtype.is_bool:
        return generator.integers(0, 2, shape).astype(np.bool_)
    if name == "f8e4b15":
        return generator.integers(0, 256, shape).astype(np.uint8)
    if dtype.is_float:
        found = (generator.normal(size=size) * 2.0 ** generator.integers(-3, 4, size)).astype(dtype.numpy)
        edges: list[Any] = [0.0, -0.0, 1.0, -1.0, 0.5, 1.5, 2.5, np.inf, -np.inf, np.nan, 3.4e38, 1e-40, 65504.0, 7e-6]
        with np.errstate(all="ignore"):
            edges = list(np.array(edges).astype(dtype.numpy))
    else:
        found = generator.integers(dtype.low, dtype.high, size, dtype.numpy, endpoint=True)
        found[size // 2 :] %= 11
        edges = [0, 1, dtype.high, dtype.low, dtype.high - 1, 2, 3, 7]
    if special and size > len(edges):
        generator.shuffle(edges)
        found[: len(edges)] = edges
    return found.reshape(shape)


def numbers_of(name: str, data: Data) -> list[Any]:
    """The elements as Python's numbers."""
    if name == "f8e4b15":
        return [_f8e4b15(int(bits)) for bits in data.ravel()]
    if DTYPES[name].is_float:
        return [float(number) for number in data.ravel()]
    return [number.item() for number in data.ravel()]


def _f8e4b15(bits: int) -> float:
    sign, exponent, fraction = -1.0 if bits & 128 else 1.0, bits >> 3 & 15, bits & 7
    return sign * (2.0 ** (exponent - 15) * (1 + fraction / 8) if exponent else 2.0**-14 * fraction / 8)


def wrapped(number: int, dtype: DType) -> Any:
    """An integer in a dtype of integers, or in i1."""
    if dtype.is_bool:
        return bool(number & 1)
    number &= (1 << dtype.bits) - 1
    return number - (1 << dtype.bits) if number > dtype.high else number


def result_dtype(case: Case) -> DType:
    """That of the first result."""
    return dtype_of(case.module()[1][0])
