"""The functions of libdevice by the names that kernels call them.

Most are an operation `extern` with the function's name, of fp32 or fp64 as the arguments are; the table of signatures
is the IR's. Those of integers and of bits are made of the language's operations. What is missing is refused by name.
Neighbours: `stator.tile.ir.externs` has the signatures, `stator.tile.interpret` what each computes.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Sequence
from typing import Any

from stator.tile.errors import InvalidUse
from stator.tile.ir.externs import EXTERNS
from stator.tile.language import math
from stator.tile.language.arithmetic import add, and_, compare, invert, mul, or_, shl, shr, sub, where, xor
from stator.tile.language.context import emit
from stator.tile.language.promotion import bitcast_to, broadcast_all, cast_to, is_number, to_tensor, typed_constant
from stator.tile.language.types import BY_IR_NAME, dtype, float32, float64, int32, int64, uint32, uint64
from stator.tile.language.values import tensor

#: Functions that say yes or no: int32 in libdevice, int1 in kernels.
_QUESTIONS = ("isnan", "isinf", "isfinited", "finitef", "signbit")


def _signature(name: str) -> tuple[list[str], str]:
    given, result = EXTERNS[name].split("->")
    return given.split(), result.strip()


def _extern(name: str, args: Sequence[Any]) -> tensor:
    letters, _ = _signature(name)
    if len(args) != len(letters):
        raise InvalidUse(f"libdevice.{name} takes {len(letters)} arguments, not {len(args)}")
    floats = [
        arg.dtype
        for arg, letter in zip(args, letters, strict=True)
        if letter == "F" and isinstance(arg, tensor) and arg.dtype.is_floating()
    ]
    floating = float64 if float64 in floats else float32
    wanted = [floating if letter == "F" else BY_IR_NAME[letter] for letter in letters]
    values = [_argument(name, arg, type) for arg, type in zip(args, wanted, strict=True)]
    result = emit("extern", *broadcast_all(values), symbol=name)
    return compare("ne", result, 0) if name in _QUESTIONS and name != "signbit" else result


def _argument(name: str, value: Any, type: dtype) -> tensor:
    if is_number(value):
        return typed_constant(value, type)
    given = to_tensor(value).dtype
    if given != type and (given.is_floating() or type.is_floating()):
        raise InvalidUse(
            f"libdevice.{name} takes {type} here, not {given}", f"cast it: `x.to(tl.{type.codegen_name()})`"
        )
    return cast_to(value, type)


def _function(name: str) -> Callable[..., tensor]:
    def call(*args: Any) -> tensor:
        return _extern(name, args)

    call.__name__ = call.__qualname__ = name
    call.__module__ = __name__
    call.__doc__ = f"libdevice's {name}: {EXTERNS[name]}."
    return call


for _name in EXTERNS:
    globals()[_name] = _function(_name)


def abs(arg0: Any) -> tensor:
    """The size without sign."""
    return math.abs(arg0)


def pow(arg0: Any, arg1: Any) -> tensor:
    """A power, of a float or an int32."""
    whole = isinstance(arg1, tensor) and arg1.dtype.is_int()
    return _extern("powi" if whole else "pow", [arg0, arg1])


# ---- integers


def _unsigned(value: Any) -> tensor:
    given = to_tensor(value)
    if given.dtype not in (int32, uint32, int64, uint64):
        raise InvalidUse(f"takes integers of 32 or 64 bits, not {given.dtype}")
    return cast_to(given, uint32 if given.dtype.int_bitwidth == 32 else uint64)


def _masks(bits: int) -> list[tuple[int, int]]:
    """For steps of 1, 2, 4 … bits the mask of every other group of so many bits."""
    return [(step, builtins.sum(1 << bit for bit in range(bits) if not bit & step)) for step in _steps(bits)]


def _steps(bits: int) -> list[int]:
    return [1 << power for power in range(bits.bit_length() - 1)]


def popc(arg0: Any) -> tensor:
    """How many bits are set."""
    value = _unsigned(arg0)
    for step, mask in _masks(value.dtype.int_bitwidth):
        value = add(and_(value, mask), and_(shr(value, step), mask), False)
    return cast_to(value, int32)


def brev(arg0: Any) -> tensor:
    """The bits in the other order."""
    value = _unsigned(arg0)
    for step, mask in _masks(value.dtype.int_bitwidth):
        value = or_(shl(and_(value, mask), step), and_(shr(value, step), mask))
    return cast_to(value, to_tensor(arg0).dtype)


def clz(arg0: Any) -> tensor:
    """How many bits are not set above the highest that is."""
    value = _unsigned(arg0)
    for step in _steps(value.dtype.int_bitwidth):
        value = or_(value, shr(value, step))
    return popc(invert(value))


def ffs(arg0: Any) -> tensor:
    """The place of the lowest bit that is set, from 1 on; 0 if none is."""
    value = _unsigned(arg0)
    below = popc(xor(value, sub(value, 1, False)))
    return where(compare("eq", value, 0), 0, below)


def mulhi(arg0: Any, arg1: Any) -> tensor:
    """The upper half of the bits of a product."""
    a, b = to_tensor(arg0), to_tensor(arg1)
    if a.dtype != b.dtype or a.dtype not in (int32, uint32, int64, uint64):
        raise InvalidUse(f"mulhi takes two integers of one type of 32 or 64 bits, not {a.dtype} and {b.dtype}")
    return emit("mulhi", *broadcast_all([a, b]))


def mul24(arg0: Any, arg1: Any) -> tensor:
    """The product of the low 24 bits of two integers."""
    a, b = [shr(shl(item, 8), 8) for item in (to_tensor(arg0), to_tensor(arg1))]
    return mul(a, b, False)


def sad(arg0: Any, arg1: Any, arg2: Any) -> tensor:
    """|x - y| + z."""
    a, b = to_tensor(arg0), to_tensor(arg1)
    apart = where(compare("gt", a, b), sub(a, b, False), sub(b, a, False))
    return cast_to(add(cast_to(apart, uint32), arg2, False), a.dtype)


def hadd(arg0: Any, arg1: Any) -> tensor:
    """The mean of two integers, rounded down."""
    a, b = to_tensor(arg0), to_tensor(arg1)
    return add(and_(a, b), shr(xor(a, b), 1), False)


def rhadd(arg0: Any, arg1: Any) -> tensor:
    """The mean of two integers, rounded up."""
    a, b = to_tensor(arg0), to_tensor(arg1)
    return sub(or_(a, b), shr(xor(a, b), 1), False)


def byte_perm(arg0: Any, arg1: Any, arg2: Any) -> tensor:
    """Four bytes of the eight of two words, each chosen by three bits of a third one's nibbles."""
    low, high, choice = [cast_to(_unsigned(item), uint64) for item in (arg0, arg1, arg2)]
    pool = or_(low, shl(high, 32))
    result = None
    for place in range(4):
        nibble = and_(shr(choice, 4 * place), 7)
        byte = shl(and_(shr(pool, mul(nibble, 8)), 0xFF), 8 * place)
        result = byte if result is None else or_(result, byte)
    assert result is not None
    return cast_to(result, int32)


# ---- bits and conversions

#: A function that gives bits as another dtype → from what, to what.
_AS = {
    "int_as_float": (int32, float32), "uint_as_float": (uint32, float32), "float_as_int": (float32, int32),
    "float_as_uint": (float32, int32), "longlong_as_double": (int64, float64), "double_as_longlong": (float64, int64),
}  # fmt: skip
_TYPES = {"float": float32, "double": float64, "int": int32, "uint": uint32, "ll": int64, "ull": uint64}


def _bits(name: str) -> Callable[[Any], tensor]:
    source, target = _AS[name]
    return lambda arg0: bitcast_to(_argument(name, arg0, source), target)


def _conversion(name: str) -> Callable[[Any], tensor]:
    """`float2int_rd` and the like: to integers all four roundings, to floats the nearest, and exact ones."""
    (source, target), rounding = [_TYPES[part] for part in name[:-3].split("2")], name[-2:]

    def call(arg0: Any) -> tensor:
        value = _argument(name, arg0, source)
        if target.is_int():
            rounded = {"rn": "round", "rz": "trunc", "rd": "floor", "ru": "ceil"}[rounding]
            result = cast_to(emit(rounded, value), target)
            return cast_to(result, int32 if target == uint32 else int64) if target.is_int_unsigned() else result
        return cast_to(value, target, "rtz" if rounding == "rz" and source.is_floating() else None)

    return call


def _names() -> list[str]:
    ints, floats = ("int", "uint", "ll", "ull"), ("float", "double")
    to_ints = [f"{f}2{i}_{r}" for f in floats for i in ints for r in ("rn", "rz", "rd", "ru")]
    to_floats = [f"{i}2{f}_rn" for i in ints for f in floats]
    return [*to_ints, *to_floats, "double2float_rn", "double2float_rz"]


for _name in _AS:
    globals()[_name] = _bits(_name)
for _name in _names():
    globals()[_name] = _conversion(_name)


def hiloint2double(arg0: Any, arg1: Any) -> tensor:
    """A double of its upper and its lower word."""
    high, low = [cast_to(bitcast_to(to_tensor(item), uint32), uint64) for item in (arg0, arg1)]
    return bitcast_to(or_(shl(high, 32), low), float64)


def double2hiint(arg0: Any) -> tensor:
    """The upper word of a double."""
    return cast_to(shr(bitcast_to(_argument("double2hiint", arg0, float64), uint64), 32), int32)


def double2loint(arg0: Any) -> tensor:
    """The lower word of a double."""
    return cast_to(bitcast_to(_argument("double2loint", arg0, float64), uint64), int32)


#: A function that is refused → why.
REFUSED = {
    "rcp64h": "it is an approximation that only the device's instruction defines",
    "double2float_rd": "casts round to nearest even or toward zero",
    "double2float_ru": "casts round to nearest even or toward zero",
    **{
        f"{source}2{target}_{rounding}": "casts of integers to floats round to nearest even"
        for source in ("int", "uint", "ll", "ull")
        for target in ("float", "double")
        for rounding in ("rz", "rd", "ru")
        if target == "float" or source in ("ll", "ull")
    },
}


def _refused(name: str) -> Callable[..., tensor]:
    def call(*args: Any) -> tensor:
        raise InvalidUse(f"libdevice.{name} is not supported: {REFUSED[name]}", "round in the kernel")

    return call


for _name in REFUSED:
    globals()[_name] = _refused(_name)
