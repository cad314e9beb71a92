"""How operands of different types and shapes come together: numbers become tensors, dtypes one dtype, shapes one shape.

The rules are Triton's: a Python number takes the type of the tensor beside it where its kind is not greater; of two
tensors the wider float wins, half types divide in fp32, integers follow C. Casts are here too, as promotion is casts.
Neighbours: `arithmetic.py` and all others that take several operands.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stator.tile.errors import InvalidUse
from stator.tile.language.context import active, constant, emit
from stator.tile.language.static import unwrap
from stator.tile.language.types import (
    as_dtype,
    bfloat16,
    block_type,
    dtype,
    float16,
    float32,
    float64,
    int1,
    int32,
    int64,
    uint32,
    uint64,
)
from stator.tile.language.values import tensor

_FLOAT_MIN, _FLOAT_MAX = 2.0**-126, (2 - 2.0**-23) * 2.0**127
#: The types that an integer takes, the first that has it.
_INTEGERS = (int32, uint32, int64, uint64)


def number_type(value: float) -> dtype:
    """The dtype that a Python number has where nothing beside it says another."""
    if isinstance(value, bool):
        return int1
    if isinstance(value, int):
        for type in _INTEGERS:
            if type.get_int_min_value() <= value <= type.get_int_max_value():
                return type
        raise InvalidUse(f"{value} has more than 64 bits")
    size = abs(value)
    plain = size == 0 or size != size or size == float("inf") or _FLOAT_MIN <= size <= _FLOAT_MAX
    return float32 if plain else float64


def typed_constant(value: Any, type: dtype) -> tensor:
    """A Python number as a tensor of a dtype; it is converted as a cast would."""
    value = unwrap(value)
    if type.is_floating():
        return constant(float(value), type)
    if type.is_bool():
        return constant(bool(value), type)
    if type.is_ptr():
        return cast(typed_constant(value, int64), type)
    if isinstance(value, float):
        if not value.is_integer():
            return cast(constant(value, number_type(value)), type)
        value = int(value)
    value = int(value) & ((1 << type.int_bitwidth) - 1)
    return constant(value - (1 << type.int_bitwidth) if value > type.get_int_max_value() else value, type)


def is_number(value: Any) -> bool:
    """Whether this is a number that is known while compiling."""
    return isinstance(unwrap(value), bool | int | float)


def to_tensor(value: Any) -> tensor:
    """A tensor as it is, a number of Python's as one."""
    if isinstance(value, tensor):
        return value
    number = _number(value)
    return constant(number, number_type(number))


def _number(value: Any) -> Any:
    number = unwrap(value)
    if not is_number(number):
        raise InvalidUse(f"{number!r} ({type(number).__name__}) is no number or tensor, where one is needed")
    return number


# ---- casts


def cast_to(input: tensor, type: dtype, rounding: str | None = None) -> tensor:
    """The same numbers in another dtype; see `cast`."""
    target = as_dtype(type).scalar
    source = input.dtype
    if rounding not in (None, "rtne", "rtz"):
        raise InvalidUse(f"there is no rounding mode {rounding!r}", "the modes are 'rtne' and 'rtz'")
    narrowing = source.is_floating() and target.is_floating() and target.primitive_bitwidth < source.primitive_bitwidth
    if rounding is not None and not narrowing and source != target:
        raise InvalidUse(
            f"a cast from {source} to {target} does not round", "only one to a narrower float has a rounding mode"
        )
    if source == target:
        return input
    result = input.type.with_element_ty(target)
    match source.is_ptr(), target.is_ptr():
        case True, True:
            return emit("bitcast", input, dtype=target.ir, type=result)
        case True, False:
            return _from_pointer(input, target)
        case False, True:
            if not source.is_int():
                raise InvalidUse(f"{source} cannot become a pointer", "cast to `tl.int64` first")
            wide = input if source.primitive_bitwidth == 64 else cast_to(input, int64)
            active().makes_pointers = True
            return emit("int_to_ptr", wide, dtype=target.ir, type=result)
    if target.is_bool():
        zero = broadcast_to(typed_constant(0, source), input.type.shape)
        return emit("ne", input, zero, type=result)
    return emit("cast", input, dtype=target.ir, rounding=rounding or "rtne", type=result)


cast = cast_to


def _from_pointer(input: tensor, target: dtype) -> tensor:
    if target.is_bool():
        return cast_to(_from_pointer(input, int64), int1)
    if target.primitive_bitwidth != 64 or not target.is_int():
        raise InvalidUse(f"a pointer has 64 bits, and cannot become {target}", "cast to `tl.int64` or `tl.uint64`")
    return emit("ptr_to_int", input, dtype=target.ir, type=input.type.with_element_ty(target))


def bitcast_to(input: tensor, type: dtype) -> tensor:
    """The same bits as another dtype."""
    target, source = as_dtype(type).scalar, input.dtype
    if source == target:
        return input
    if source.is_ptr() or target.is_ptr():
        return cast_to(input, target)
    if source.primitive_bitwidth != target.primitive_bitwidth:
        raise InvalidUse(
            f"{source} and {target} have not as many bits, so one's bits are not the other's",
            "without `bitcast=True` a cast converts the number",
        )
    return emit("bitcast", input, dtype=target.ir, type=input.type.with_element_ty(target))


# ---- dtypes


def integer_type(a: dtype, b: dtype) -> dtype:
    """Of two integer types the one that C computes in."""
    if a.int_signedness == b.int_signedness:
        return a if a.int_bitwidth > b.int_bitwidth else b
    unsigned, signed = (a, b) if a.is_int_unsigned() else (b, a)
    return unsigned if unsigned.int_bitwidth >= signed.int_bitwidth else signed


def _common_type(a: dtype, b: dtype, divides: bool) -> dtype:
    """The dtype that two tensors are computed in."""
    for wide in (float64, float32):
        if wide in (a, b):
            return wide
    if float16 in (a, b):
        return float32 if divides else float16
    if bfloat16 in (a, b):
        return bfloat16 if a == b and not divides else float32
    if a.is_fp8() and b.is_fp8():
        return a if a == b else float16
    if not (a.is_int() and b.is_int()):
        raise InvalidUse(f"{a} and {b} have no common type", "cast one of them, for instance to `tl.float16`")
    if divides and a.int_signedness != b.int_signedness:
        raise InvalidUse(
            f"{a} and {b} differ in signedness, and a quotient of them hardly means what it says",
            "cast them to the same signedness",
        )
    return integer_type(a, b)


def _type_beside_number(number: dtype, other: dtype, divides: bool) -> dtype:
    """The dtype that a Python number and a tensor are computed in."""
    if number.kind().value > other.kind().value:
        return _common_type(number, other, divides)
    return float32 if divides and other in (float16, bfloat16) else other


def _check_fits(number: Any, type: dtype) -> None:
    number = unwrap(number)
    if not type.is_int() or isinstance(number, float) or type.is_bool():
        return
    if number < 0 and type.is_int_unsigned():
        raise InvalidUse(f"{number} is negative, and beside it is a tensor of {type}", "cast the tensor first")
    if not type.get_int_min_value() <= number <= type.get_int_max_value():
        raise InvalidUse(f"{number} is no {type}, the type of the tensor beside it", "cast the tensor first")


def _check_pointers(a: dtype, b: dtype, allowed: bool) -> None:
    if not a.is_ptr():
        return
    if not allowed:
        raise InvalidUse(f"operands of {a} and {b} cannot be computed with", "cast pointers to `tl.int64` first")
    if b.is_floating() or (b.is_ptr() and a != b):
        raise InvalidUse(f"operands of {a} and {b} do not go together", "offsets of pointers are integers")


def promote(
    left: Any, right: Any, *, left_pointer: bool = False, right_pointer: bool = False, divides: bool = False
) -> tuple[tensor, tensor]:
    """Both operands as tensors of one dtype and one shape. Pointers, where they are allowed, keep their type."""
    numbers = is_number(left), is_number(right)
    types = [_scalar_type(value) for value in (left, right)]
    _check_pointers(types[0], types[1], left_pointer)
    _check_pointers(types[1], types[0], right_pointer)
    if types[0].is_ptr() or types[1].is_ptr():
        return broadcast_pair(to_tensor(left), to_tensor(right))
    if numbers[0] != numbers[1]:
        number, other = types if numbers[0] else types[::-1]
        common = _type_beside_number(number, other, divides)
    else:
        common = _common_type(types[0], types[1], divides)
    return broadcast_pair(_converted(left, common), _converted(right, common))


def _scalar_type(value: Any) -> dtype:
    """The dtype of an operand, which is a tensor or a number."""
    return value.dtype if isinstance(value, tensor) else number_type(_number(value))


def _converted(given: Any, common: dtype) -> tensor:
    if isinstance(given, tensor):
        return cast_to(given, common)
    _check_fits(given, common)
    return typed_constant(given, common)


# ---- shapes


def broadcast_to(input: tensor, shape: Sequence[int]) -> tensor:
    """A tensor in a shape: a scalar fills it, dims of one grow."""
    shape = tuple(shape)
    given = input.type.shape
    if given == shape:
        return input
    if not given:
        return emit("splat", input, shape=shape, type=block_type(input.dtype, shape))
    if len(given) != len(shape):
        raise InvalidUse(
            f"a block of {list(given)} does not broadcast to {list(shape)}: it has {len(given)} dims",
            "add dims with `x[:, None]` or `tl.expand_dims`",
        )
    for axis, (have, want) in enumerate(zip(given, shape, strict=True)):
        if have not in (1, want):
            raise InvalidUse(f"a block of {list(given)} does not broadcast to {list(shape)}: dim {axis} is not 1")
    return emit("broadcast", input, shape=shape, type=block_type(input.dtype, shape))


def broadcast_pair(a: tensor, b: tensor) -> tuple[tensor, tensor]:
    """Two tensors in the shape that both broadcast to; missing dims are added in front."""
    a, b = broadcast_all([a, b])
    return a, b


def broadcast_all(tensors: Sequence[tensor]) -> list[tensor]:
    """Tensors in the shape that all of them broadcast to."""
    rank = max(len(item.type.shape) for item in tensors)
    tensors = [_with_rank(item, rank) for item in tensors]
    shape: list[int] = []
    for axis, sizes in enumerate(zip(*[item.type.shape for item in tensors if item.type.shape], strict=True)):
        wide = {size for size in sizes if size != 1}
        if len(wide) > 1:
            shapes = " and ".join(str(list(item.type.shape)) for item in tensors)
            raise InvalidUse(f"blocks of {shapes} do not go together: dim {axis} differs")
        shape.append(wide.pop() if wide else 1)
    return [broadcast_to(item, shape) for item in tensors]


def _with_rank(input: tensor, rank: int) -> tensor:
    while 0 < len(input.type.shape) < rank:
        type = block_type(input.dtype, (1, *input.type.shape))
        input = emit("expand_dims", input, axis=0, type=type)
    return input
