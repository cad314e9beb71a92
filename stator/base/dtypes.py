"""Dtypes by their short names: the bytes of an element, what loops copy it as, and what torch calls it.

Neighbours: `loop/scalar.py` says what is computed on them; plans and kernels name them.
"""

from __future__ import annotations

from typing import Final

#: Bytes of an element of a dtype that loops compute on or convert.
ITEMSIZE: Final = {
    "f64": 8, "f32": 4, "bf16": 2, "f16": 2, "i64": 8, "i32": 4, "i16": 2, "i8": 1, "u8": 1, "bool": 1,
}  # fmt: skip
#: Dtypes that only operators compute on → what loops copy an element as, and how many of those it consists of.
OPAQUE: Final = {
    "c128": ("f64", 2), "c64": ("f32", 2), "c32": ("f16", 2), "u64": ("i64", 1), "u32": ("i32", 1), "u16": ("i16", 1),
    "f8e4m3": ("u8", 1), "f8e5m2": ("u8", 1), "f8e4m3z": ("u8", 1), "f8e5m2z": ("u8", 1), "f8e8m0": ("u8", 1),
}  # fmt: skip
#: Bytes of an element of any dtype.
NBYTES: Final = ITEMSIZE | {dtype: ITEMSIZE[part] * width for dtype, (part, width) in OPAQUE.items()}
#: What torch calls it.
TORCH: Final = {
    "f64": "float64", "f32": "float32", "bf16": "bfloat16", "f16": "float16",
    "i64": "int64", "i32": "int32", "i16": "int16", "i8": "int8", "u8": "uint8", "bool": "bool",
    "c128": "complex128", "c64": "complex64", "c32": "complex32", "u64": "uint64", "u32": "uint32", "u16": "uint16",
    "f8e4m3": "float8_e4m3fn", "f8e5m2": "float8_e5m2", "f8e4m3z": "float8_e4m3fnuz", "f8e5m2z": "float8_e5m2fnuz",
    "f8e8m0": "float8_e8m0fnu",
}  # fmt: skip
#: Dtype → dtypes that hold each of its values exactly.
_WIDER: Final = {
    "bf16": {"f32", "f64"}, "f16": {"f32", "f64"}, "f32": {"f64"}, "i32": {"i64", "f64"},
    "i16": {"i32", "i64", "f32", "f64"}, "i8": {"i16", "i32", "i64", "f32", "f64", "f16", "bf16"},
    "u8": {"i16", "i32", "i64", "f32", "f64", "f16", "bf16"}, "bool": {*ITEMSIZE} - {"bool"},
}  # fmt: skip


def contains(wide: str, narrow: str) -> bool:
    """Whether every value of `narrow` is exact in `wide`; never said of a dtype that loops do not compute on."""
    return wide in _WIDER.get(narrow, ()) or (wide == narrow and wide in ITEMSIZE)
