"""Types and numbers of LLVM as numpy has them, for what runs its text."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np

Array = Any
SHARED_BASE = 1 << 60
LOCAL_BASE = 1 << 61
CONSTANT_BASE = 1 << 62
FLOATS = {"float": np.float32, "double": np.float64, "half": np.float16}
_SIZES = {"float": 4, "double": 8, "half": 2, "bfloat": 2, "ptr": 8}


class MachineError(Exception):
    """What a GPU would do wrong, or what this does not know."""


def numpy_of(type_: str) -> Any:
    """The dtype that holds numbers of a type of LLVM, integers without a sign."""
    if type_ in FLOATS:
        return np.dtype(FLOATS[type_])
    if type_ == "i1":
        return np.dtype(np.bool_)
    if type_ == "bfloat":
        return np.dtype(np.uint16)
    if type_.startswith("ptr"):
        return np.dtype(np.uint64)
    bits = int(type_[1:])
    return np.dtype(object) if bits > 64 else np.dtype(f"u{max(bits // 8, 1)}")


def size_of(type_: str) -> int:
    return _SIZES.get(type_.split(" ")[0], 0) or max(int(type_[1:]) // 8, 1)


def split_list(text: str) -> list[str]:
    """At commas outside of brackets and quotes."""
    found, depth, quoted, last = [], 0, False, 0
    for place, letter in enumerate(text):
        if letter == '"':
            quoted = not quoted
        elif not quoted and letter in "([{<":
            depth += 1
        elif not quoted and letter in ")]}>":
            depth -= 1
        elif letter == "," and not depth and not quoted:
            found.append(text[last:place].strip())
            last = place + 1
    rest = text[last:].strip()
    return [*found, rest] if rest else found


def typed(text: str) -> tuple[str, str]:
    """A type and a value."""
    match = re.match(r"(<.*?>|\{.*?\}|ptr addrspace\(\d\)|\w+)\s+(.*)$", text)
    if match is None:
        raise MachineError(f"no typed value: {text}")
    return match.group(1), match.group(2)


def vector_type(type_: str) -> tuple[int, str]:
    match = re.fullmatch(r"<(\d+) x (\w+)>", type_)
    return (int(match.group(1)), match.group(2)) if match else (0, type_)


def as_bytes(values: Array) -> Array:
    if values.dtype == np.bool_:
        values = values.astype(np.uint8)
    return np.ascontiguousarray(values)[:, None].view(np.uint8).reshape(len(values), -1)


def from_bytes(type_: str, data: Array) -> Array:
    found = np.ascontiguousarray(data).view(numpy_of(type_) if type_ != "i1" else np.uint8).reshape(-1)
    return found.astype(bool) if type_ == "i1" else found


def signed(values: Array) -> Array:
    if values.dtype == np.bool_:
        return -values.astype(np.int8)
    return values.view(np.dtype(f"i{values.dtype.itemsize}"))


def saturated(given: Array, target: str, sign: bool) -> Array:
    bits = int(target[1:])
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if sign else (0, (1 << bits) - 1)

    def one(number: float) -> int:
        if math.isnan(number):
            return 0
        return (low if number < low else high if number > high else int(number)) & ((1 << bits) - 1)

    return np.array([one(float(v)) for v in given], numpy_of(target))
