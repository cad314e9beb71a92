"""How numbers are held, and how they go from one dtype to another.

In registers f16 and bf16 are f32 that are already rounded, fp8 are their bits, pointers are i64; in buffers they lie
the same way, and truths as bytes. `interpret.casts` says what a cast gives.
Neighbours: `elementwise` rounds what it computes by `rounded`; `access` packs what goes to memory.
"""

from __future__ import annotations

import math

import numpy as np

from stator.tile.cpu.code import Maker
from stator.tile.interpret.casts import cast as cast_of_numpy
from stator.tile.ir.types import F32, F64, DType, Element, Pointer

_FNUZ = ("f8e4b8", "f8e5b16")


def register(element: Element) -> str:
    """The LLVM type of an element in a register."""
    if isinstance(element, Pointer):
        return "i64"
    if element.is_bool:
        return "i1"
    if element.is_float and element.bits > 8:
        return "double" if element.bits == 64 else "float"
    return f"i{element.bits}"


def stored(element: Element) -> str:
    """The LLVM type of an element in a buffer."""
    found = register(element)
    return "i8" if found == "i1" else found


def memory(element: Element) -> str:
    """The LLVM type of an element in the memory of tensors."""
    if isinstance(element, DType) and element.is_float and element.bits == 16:
        return "half" if element.name == "f16" else "i16"
    return stored(element)


def unpack(m: Maker, element: Element, value: str) -> str:
    """From memory to a register."""
    match memory(element), register(element):
        case "half", _:
            return m.convert("fpext", "half", "float", value)
        case "i16", "float":
            wide = m.convert("zext", "i16", "i32", value)
            return m.bits("i32", "float", m.op("shl", "i32", wide, m.number("i32", 16)))
        case "i8", "i1":
            return m.compare("ne", "i8", value, m.number("i8", 0))
    return value


def pack(m: Maker, element: Element, value: str) -> str:
    """From a register to memory."""
    match memory(element), register(element):
        case "half", _:
            return m.convert("fptrunc", "float", "half", value)
        case "i16", "float":
            upper = m.op("lshr", "i32", m.bits("float", "i32", value), m.number("i32", 16))
            return m.convert("trunc", "i32", "i16", upper)
        case "i8", "i1":
            return m.convert("zext", "i1", "i8", value)
    return value


def rounded(m: Maker, dtype: DType, value: str) -> str:
    """f32 numbers rounded to a dtype of 16 bits; those of others are as they are."""
    if dtype.name == "f16":
        return m.convert("fpext", "half", "float", m.convert("fptrunc", "float", "half", value))
    if dtype.name != "bf16":
        return value
    return m.to_bfloat(value)


def to_odd(m: Maker, value: str) -> str:
    """f64 numbers in f32 so that rounding them again is exact: an inexact one has its last bit set."""
    short = m.convert("fptrunc", "double", "float", value)
    back = m.convert("fpext", "float", "double", short)
    bits = m.bits("float", "i32", short)
    magnitude, exact = m.intrinsic("fabs", "double", value), m.intrinsic("fabs", "double", back)
    beyond = m.compare("ogt", "double", exact, magnitude)  # rounded away from zero: one step back, then odd
    bits = m.op("sub", "i32", bits, m.convert("zext", "i1", "i32", beyond))
    inexact = m.compare("one", "double", back, value)
    return m.bits("i32", "float", m.op("or", "i32", bits, m.convert("zext", "i1", "i32", inexact)))


def cut(m: Maker, dtype: DType, value: str) -> str:
    """f64 numbers rounded towards zero to f16, bf16 or f32, as f32."""
    finite = m.compare("olt", "double", m.intrinsic("fabs", "double", value), m.number("double", math.inf))
    zeros = 52 - dtype.mantissa
    least = 2.0 ** (1 - dtype.bias)
    mask = m.number("i64", -(1 << zeros))
    plain = m.bits("i64", "double", m.op("and", "i64", m.bits("double", "i64", value), mask))
    quantum = m.number("double", least * 2.0**-dtype.mantissa)
    steps = m.intrinsic("trunc", "double", m.op("fdiv", "double", value, quantum))
    small = m.compare("olt", "double", m.intrinsic("fabs", "double", value), m.number("double", least))
    found = m.select(small, "double", m.op("fmul", "double", steps, quantum), plain)
    limit = m.number("double", (2 - 2.0**-dtype.mantissa) * 2.0**dtype.bias)
    great = m.compare("ogt", "double", m.intrinsic("fabs", "double", found), limit)
    found = m.select(great, "double", m.intrinsic("copysign", "double", limit, value), found)
    return m.convert("fptrunc", "double", "float", m.select(finite, "double", found, value))


def from_double(m: Maker, dtype: DType, value: str) -> str:
    """f64 numbers in a dtype of floats."""
    if dtype == F64:
        return value
    if dtype == F32:
        return m.convert("fptrunc", "double", "float", value)
    if dtype.is_fp8:
        return encode(m, dtype, value, "rtne")
    return rounded(m, dtype, to_odd(m, value))


def decode(m: Maker, dtype: DType, value: str) -> str:
    """The numbers of bits of fp8, as f32, from a table of all of them."""
    every = np.arange(256, dtype=np.uint8)
    numbers = cast_of_numpy(every if dtype.name == "f8e4b15" else every.view(dtype.numpy), dtype, F32)
    table = m.code.table(f"numbers_of_{dtype.name}", "float", [float(number) for number in numbers])
    index = m.convert("zext", "i8", "i64", value)
    if not m.width:
        return m.code.load("float", m.code.at(table, index, "float"))
    places = m.code.value(f"getelementptr float, ptr {table}, {m.type('i64')} {index}")
    return gather(m, "float", places, m.number("i1", True), m.number("float", 0.0))


def gather(m: Maker, type_: str, places: str, mask: str, other: str) -> str:
    """What lies at pointers where a mask holds."""
    kind = m.type(type_)
    return m.code.call(
        kind, f"llvm.masked.gather.{m.suffix(type_)}.v{m.width}p0",
        (m.type("ptr"), f"{places}"), (m.type("i1"), mask), (kind, other),
    )  # fmt: skip


def encode(m: Maker, dtype: DType, value: str, rounding: str) -> str:
    """f64 numbers as bits of fp8; what is too great becomes the greatest number."""
    sign = m.compare("slt", "i64", m.bits("double", "i64", value), m.number("i64", 0))
    magnitude = m.intrinsic("fabs", "double", value)
    limit = 1.875 if dtype.name == "f8e4b15" else float(np.abs(_finite(dtype)).max())
    great = m.compare("ogt", "double", magnitude, m.number("double", limit))
    magnitude = m.select(great, "double", m.number("double", limit), magnitude)
    least = m.number("double", 2.0 ** (1 - dtype.bias))
    exponent = m.op("and", "i64", m.bits("double", "i64", magnitude), m.number("i64", 0x7FF << 52))
    power = m.bits("i64", "double", exponent)
    power = m.select(m.compare("olt", "double", power, least), "double", least, power)
    quantum = m.op("fmul", "double", power, m.number("double", 2.0**-dtype.mantissa))
    steps = m.op("fdiv", "double", magnitude, quantum)
    steps = m.intrinsic("roundeven" if rounding == "rtne" else "trunc", "double", steps)
    final = m.op("fmul", "double", steps, quantum)
    normal = m.op("lshr", "i64", m.bits("double", "i64", final), m.number("i64", 52 - dtype.mantissa))
    normal = m.op("sub", "i64", normal, m.number("i64", (1023 - dtype.bias) << dtype.mantissa))
    count = m.op("fdiv", "double", final, m.number("double", 2.0 ** (1 - dtype.bias - dtype.mantissa)))
    below = m.compare("olt", "double", final, least)
    small = _whole(m, count)
    bits = m.select(below, "i64", small, normal)
    zero = m.compare("eq", "i64", bits, m.number("i64", 0))
    if dtype.name in _FNUZ:  # there is no negative zero
        sign = m.op("and", "i1", sign, m.op("xor", "i1", zero, m.number("i1", True)))
    bits = m.op("or", "i64", bits, m.select(sign, "i64", m.number("i64", 128), m.number("i64", 0)))
    nan = {"f8e4b15": 127, "f8e4nv": 127, "f8e5": 126}.get(dtype.name, 128)
    unordered = m.compare("uno", "double", value, value)
    if dtype.name in ("f8e4nv", "f8e5"):
        kept = m.select(sign, "i64", m.number("i64", 128 | nan), m.number("i64", nan))
    else:
        kept = m.number("i64", nan)
    return m.convert("trunc", "i64", "i8", m.select(unordered, "i64", kept, bits))


def _finite(dtype: DType) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    numbers = np.arange(256, dtype=np.uint8).view(dtype.numpy).astype(np.float32)
    return numbers[np.isfinite(numbers)]


def _whole(m: Maker, value: str) -> str:
    """f64 numbers that are integers from 0 to 2 ** 50, as i64."""
    magic = m.number("double", 2.0**52)
    shifted = m.bits("double", "i64", m.op("fadd", "double", value, magic))
    return m.op("sub", "i64", shifted, m.bits("double", "i64", magic))


def cast(m: Maker, source: DType, target: DType, rounding: str, value: str) -> str:
    """The value in another dtype."""
    if source == target:
        return value
    if source.is_fp8:
        value, source = decode(m, source, value), F32
        if target == F32:
            return value
    before, after = register(source), register(target)
    if target.is_bool:
        predicate = "une" if source.is_float else "ne"
        return m.compare(predicate, before, value, m.number(before, 0))
    if source.is_float and target.is_float:
        return _between_floats(m, source, target, rounding, value)
    if source.is_float:
        name = "fptosi.sat" if target.kind == "int" else "fptoui.sat"
        kind = m.type(before)
        return m.code.call(m.type(after), f"llvm.{name}.{m.suffix(after)}.{m.suffix(before)}", (kind, value))
    if target.is_float:
        return _from_integer(m, source, target, value)
    if target.bits == source.bits:
        return value
    if target.bits < source.bits:
        return m.convert("trunc", before, after, value)
    return m.convert("sext" if source.kind == "int" else "zext", before, after, value)


def _between_floats(m: Maker, source: DType, target: DType, rounding: str, value: str) -> str:
    if source == F64:
        wide = value
    elif target == F64:
        return m.convert("fpext", "float", "double", value)
    elif target == F32:
        return value
    elif rounding == "rtne" and not target.is_fp8:
        return rounded(m, target, value)
    else:
        wide = m.convert("fpext", "float", "double", value)
    if target.is_fp8:
        return encode(m, target, wide, rounding)
    return cut(m, target, wide) if rounding == "rtz" else from_double(m, target, wide)


def _from_integer(m: Maker, source: DType, target: DType, value: str) -> str:
    name, before = ("sitofp" if source.kind == "int" else "uitofp"), register(source)
    if target in (F32, F64):
        return m.convert(name, before, register(target), value)
    if source.bits == 64:  # what f64 would lose decides nothing but a tie: one bit stands for it
        low = m.op("and", before, value, m.number(before, 2047))
        some = m.select(
            m.compare("ne", before, low, m.number(before, 0)), before, m.number(before, 2048), m.number(before, 0)
        )
        traced = m.op("or", before, m.op("sub", before, value, low), some)
        value = m.select(_is_large(m, source, value), before, traced, value)
    return from_double(m, target, m.convert(name, before, "double", value))


def _is_large(m: Maker, source: DType, value: str) -> str:
    """Whether an integer has more bits than f64 keeps."""
    if source.kind == "uint":
        return m.compare("ugt", "i64", value, m.number("i64", 1 << 53))
    return m.compare("ugt", "i64", m.intrinsic("abs", "i64", value, flag="false"), m.number("i64", 1 << 53))
