"""The types of tile IR: what an element is (a dtype or a pointer), and the tile that it fills.

A dtype is one of a closed set and says its signedness itself: there are no signed and unsigned operators. `numpy` is
how its elements lie in memory and in the interpreter; `f8e4b15` has none in numpy and lies as its bits in `uint8`.
A scalar is a tile of shape (). Types are values: equal ones are interchangeable, and `str` of one is its printed form.
Neighbours: `core` has the values that have types, `rules` what types an operator takes and gives.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np

from stator.tile.layouts.text import AnyLayout


@dataclass(frozen=True, slots=True)
class DType:
    """What one element is. `mantissa` counts the stored bits of a float's fraction, `bias` is that of its exponent."""

    name: str
    kind: str  # "bool", "int", "uint" or "float"
    bits: int
    numpy: np.dtype[Any] = field(compare=False, repr=False)
    mantissa: int = 0
    bias: int = 0

    @property
    def is_bool(self) -> bool:
        return self.kind == "bool"

    @property
    def is_float(self) -> bool:
        return self.kind == "float"

    @property
    def is_integer(self) -> bool:
        """An int or uint; i1 is neither."""
        return self.kind in ("int", "uint")

    @property
    def is_signed(self) -> bool:
        return self.kind in ("int", "float")

    @property
    def is_fp8(self) -> bool:
        return self.is_float and self.bits == 8

    @property
    def itemsize(self) -> int:
        """Bytes of an element in memory: an i1 takes a whole one."""
        return max(self.bits // 8, 1)

    @property
    def low(self) -> int:
        """The least value of an integer or i1."""
        return -(1 << (self.bits - 1)) if self.kind == "int" else 0

    @property
    def high(self) -> int:
        """The greatest value of an integer or i1."""
        return (1 << (self.bits - (self.kind == "int"))) - 1

    def __str__(self) -> str:
        return self.name


def _integers() -> list[DType]:
    kinds = {"int": "i", "uint": "u"}
    return [
        DType(f"{letter}{bits}", kind, bits, np.dtype(f"{kind}{bits}"))
        for kind, letter in kinds.items()
        for bits in (8, 16, 32, 64)
    ]


#: Every dtype by its name.
DTYPES: dict[str, DType] = {
    dtype.name: dtype
    for dtype in [
        DType("i1", "bool", 1, np.dtype(np.bool_)),
        *_integers(),
        DType("f8e4nv", "float", 8, np.dtype(ml_dtypes.float8_e4m3fn), 3, 7),
        DType("f8e5", "float", 8, np.dtype(ml_dtypes.float8_e5m2), 2, 15),
        DType("f8e4b8", "float", 8, np.dtype(ml_dtypes.float8_e4m3fnuz), 3, 8),
        DType("f8e5b16", "float", 8, np.dtype(ml_dtypes.float8_e5m2fnuz), 2, 16),
        DType("f8e4b15", "float", 8, np.dtype(np.uint8), 3, 15),
        DType("f16", "float", 16, np.dtype(np.float16), 10, 15),
        DType("bf16", "float", 16, np.dtype(ml_dtypes.bfloat16), 7, 127),
        DType("f32", "float", 32, np.dtype(np.float32), 23, 127),
        DType("f64", "float", 64, np.dtype(np.float64), 52, 1023),
    ]
}
I1, I8, I16, I32, I64 = (DTYPES[name] for name in "i1 i8 i16 i32 i64".split())
U8, U16, U32, U64 = (DTYPES[name] for name in "u8 u16 u32 u64".split())
F16, BF16, F32, F64 = (DTYPES[name] for name in "f16 bf16 f32 f64".split())


@dataclass(frozen=True, slots=True)
class Pointer:
    """The address of an element of memory, 64 bits wide."""

    to: Element
    space: str = "global"

    @property
    def itemsize(self) -> int:
        """Bytes of a pointer that itself lies in memory."""
        return 8

    @property
    def numpy(self) -> np.dtype[Any]:
        return np.dtype(np.int64)

    def __str__(self) -> str:
        return f"ptr[{self.to}]" if self.space == "global" else f"ptr[{self.to}, {self.space}]"


Element: TypeAlias = DType | Pointer


@dataclass(frozen=True, slots=True)
class Type:
    """An element, or a tile of a shape of them.

    `layout` is how a tile is spread over threads, or, of pointers into shared memory, where its elements lie: None
    until a pass has decided it.
    """

    element: Element
    shape: tuple[int, ...] = ()
    layout: AnyLayout | None = None

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def numel(self) -> int:
        return prod(self.shape)

    @property
    def is_scalar(self) -> bool:
        return not self.shape

    @property
    def is_pointer(self) -> bool:
        return isinstance(self.element, Pointer)

    @property
    def scalar(self) -> Type:
        """The type of one element."""
        return Type(self.element)

    def of(self, element: Element) -> Type:
        """A tile like this one with other elements."""
        return Type(element, self.shape, self.layout)

    def shaped(self, *shape: int) -> Type:
        """A tile of the same elements in another shape, whose layout is not decided."""
        return Type(self.element, shape)

    def __str__(self) -> str:
        return self.text({})

    def text(self, names: Mapping[AnyLayout, str]) -> str:
        """The printed form, in which layouts may have names."""
        spread = [] if self.layout is None else [names.get(self.layout) or f'"{self.layout}"']
        places = [*map(str, self.shape), *spread]
        return f"{self.element}[{', '.join(places)}]" if places else str(self.element)
