"""Type rules: what an operator gives for the types and attributes it is given, or `TypeRule` with what is wrong.

A rule takes the types of the operands, the attributes (complete: defaults are filled in) and the regions, and gives the
types of the results. Nothing is converted here: promotion, splats and broadcasts are operations that who builds the IR
puts there. Neighbours: `operators` has a rule for each operator; `build` and `verify` apply it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from stator.tile.ir.core import Block
from stator.tile.ir.types import F32, F64, I1, I32, DType, Element, Pointer, Type

Types: TypeAlias = Sequence[Type]
Attrs: TypeAlias = Mapping[str, Any]
Rule: TypeAlias = Callable[[Types, Attrs, Sequence[Block]], tuple[Type, ...]]


class TypeRule(Exception):
    """Operands or attributes that an operator does not take."""


def require(condition: object, message: str) -> None:
    if not condition:
        raise TypeRule(message)


def listed(types: Types) -> str:
    return "(" + ", ".join(map(str, types)) + ")"


def count(types: Types, *numbers: int) -> None:
    wanted = " or ".join(map(str, numbers))
    require(len(types) in numbers, f"takes {wanted} operands, not {len(types)}")


def dtype_of(type_: Type) -> DType:
    """The dtype of elements that are no pointers."""
    element = type_.element
    if isinstance(element, Pointer):
        raise TypeRule(f"does not take pointers ({type_})")
    return element


def equal(types: Types) -> Type:
    """The type that all have."""
    if any(given != types[0] for given in types):  # asked of most operations: nothing is made in vain
        raise TypeRule(f"takes operands of one type, not {listed(types)}")
    return types[0]


#: A class of dtypes that an operator takes → what is in it.
CLASSES: dict[str, Callable[[DType], bool]] = {
    "number": lambda dtype: not dtype.is_fp8,
    "float": lambda dtype: dtype.is_float and not dtype.is_fp8,
    "integer": lambda dtype: dtype.is_integer,
    "bits": lambda dtype: dtype.is_integer or dtype.is_bool,
    "signed": lambda dtype: dtype.kind == "int" or (dtype.is_float and not dtype.is_fp8),
    "wide": lambda dtype: dtype.is_integer and dtype.bits >= 32,
}


def in_class(dtype: DType, name: str) -> None:
    what = "numbers wide enough to compute with" if name == "number" else name
    require(CLASSES[name](dtype), f"takes {what}, not {dtype}")


def elementwise(arity: int, name: str, result: Element | None = None) -> Rule:
    """So many operands of one type of a class; the result is the same, or of other elements."""

    def rule(types: Types, attrs: Attrs, regions: Sequence[Block]) -> tuple[Type, ...]:
        count(types, arity)
        given = equal(types)
        in_class(dtype_of(given), name)
        return (given if result is None else given.of(result),)

    return rule


def compare(types: Types, attrs: Attrs, regions: Sequence[Block]) -> tuple[Type, ...]:
    count(types, 2)
    given = equal(types)
    if not given.is_pointer:
        in_class(dtype_of(given), "number")
    return (given.of(I1),)


def select(types: Types, attrs: Attrs, regions: Sequence[Block]) -> tuple[Type, ...]:
    count(types, 3)
    given = equal(types[1:])
    require(types[0] == given.of(I1), f"the condition is {given.of(I1)}, not {types[0]}")
    return (given,)


# ---- values from nothing


def constant(types: Types, attrs: Attrs, regions: Sequence[Block]) -> tuple[Type, ...]:
    count(types, 0)
    given, value = attrs["type"], attrs["value"]
    if given.is_pointer:
        require(type(value) is int, "an address is an int")
        return (given,)
    dtype = dtype_of(given)
    match value:
        case bool():
            require(dtype.is_bool, f"True and False are i1, not {dtype}")
        case int():
            require(dtype.is_integer, f"{value} is an integer, and {dtype} is none")
            require(dtype.low <= value <= dtype.high, f"{value} is no {dtype}")
        case float():
            require(dtype.is_float, f"{value} is a float, and {dtype} is none")
        case _:
            raise TypeRule(f"{value!r} is no number")
    return (given,)


def arange(types: Types, attrs: Attrs, regions: Sequence[Block]) -> tuple[Type, ...]:
    count(types, 0)
    start, end = attrs["start"], attrs["end"]
    require(I32.low <= start < end <= I32.high, f"{start} … {end} is no range of i32")
    return (Type(I32, (end - start,)),)


def axis_number(types: Types, attrs: Attrs, regions: Sequence[Block]) -> tuple[Type, ...]:
    count(types, 0)
    require(attrs["axis"] in (0, 1, 2), f"a grid has the axes 0, 1 and 2, not {attrs['axis']}")
    return (Type(I32),)


# ---- shapes


def splat(types: Types, attrs: Attrs, regions: Sequence[Block]) -> tuple[Type, ...]:
    count(types, 1)
    require(types[0].is_scalar, f"takes a scalar, not {types[0]}")
    return (types[0].shaped(*positive(attrs["shape"])),)


def positive(shape: tuple[int, ...]) -> tuple[int, ...]:
    require(all(size > 0 for size in shape), f"the sizes of {shape} are not all positive")
    return shape


def broadcast(types: Types, attrs: Attrs, regions: Sequence[Block]) -> tuple[Type, ...]:
    count(types, 1)
    shape, given = positive(attrs["shape"]), types[0].shape
    fits = len(shape) == len(given) and all(a in (1, b) for a, b in zip(given, shape, strict=True))
    require(fits, f"{types[0]} does not broadcast to {shape}: sizes of 1 grow, and no others")
    return (types[0].shaped(*shape),)


def reshape(types: Types, attrs: Attrs, regions: Sequence[Block]) -> tuple[Type, ...]:
    count(types, 1)
    result = types[0].shaped(*positive(attrs["shape"]))
    require(result.numel == types[0].numel, f"{types[0]} has not as many elements as {attrs['shape']}")
    return (result,)


def permute(types: Types, attrs: Attrs, regions: Sequence[Block]) -> tuple[Type, ...]:
    count(types, 1)
    order, given = attrs["order"], types[0]
    require(sorted(order) == list(range(given.rank)), f"{order} is no order of the axes of {given}")
    return (given.shaped(*[given.shape[axis] for axis in order]),)


def axis_within(axis: int, rank: int) -> None:
    require(0 <= axis < rank, f"axis {axis} is none of 0 … {rank - 1}")


def expand_dims(types: Types, attrs: Attrs, regions: Sequence[Block]) -> tuple[Type, ...]:
    count(types, 1)
    axis, given = attrs["axis"], types[0]
    axis_within(axis, given.rank + 1)
    return (given.shaped(*given.shape[:axis], 1, *given.shape[axis:]),)


def join(types: Types, attrs: Attrs, regions: Sequence[Block]) -> tuple[Type, ...]:
    count(types, 2)
    given = equal(types)
    return (given.shaped(*given.shape, 2),)


def split(types: Types, attrs: Attrs, regions: Sequence[Block]) -> tuple[Type, ...]:
    count(types, 1)
    given = types[0]
    require(given.rank and given.shape[-1] == 2, f"the last size of {given} is not 2")
    half = given.shaped(*given.shape[:-1])
    return (half, half)


def cat(types: Types, attrs: Attrs, regions: Sequence[Block]) -> tuple[Type, ...]:
    count(types, 2)
    a, b = types
    require(a.rank > 0 and a.element == b.element and a.shape[1:] == b.shape[1:], f"cannot join {a} and {b}")
    return (a.shaped(a.shape[0] + b.shape[0], *a.shape[1:]),)


def gather(types: Types, attrs: Attrs, regions: Sequence[Block]) -> tuple[Type, ...]:
    count(types, 2)
    source, index = types
    axis = attrs["axis"]
    axis_within(axis, source.rank)
    require(dtype_of(index).is_integer, f"positions are integers, not {index}")
    others = [[size for i, size in enumerate(t.shape) if i != axis] for t in types]
    require(index.rank == source.rank and others[0] == others[1], f"{source} and {index} differ in another axis")
    return (index.of(source.element),)


# ---- casts


def cast(types: Types, attrs: Attrs, regions: Sequence[Block]) -> tuple[Type, ...]:
    count(types, 1)
    given, dtype = dtype_of(types[0]), attrs["dtype"]
    require(isinstance(dtype, DType), f"{dtype} is no dtype: `bitcast` and `int_to_ptr` make pointers")
    narrowing = given.is_float and dtype.is_float and given.bits > dtype.bits
    require(attrs["rounding"] == "rtne" or narrowing, f"{given} to {dtype} does not round: only to a narrower float")
    return (types[0].of(dtype),)


def bitcast(types: Types, attrs: Attrs, regions: Sequence[Block]) -> tuple[Type, ...]:
    count(types, 1)
    given, element = types[0].element, attrs["dtype"]
    pointers = isinstance(given, Pointer), isinstance(element, Pointer)
    require(pointers[0] == pointers[1], "`ptr_to_int` and `int_to_ptr` go between pointers and integers")
    if isinstance(given, DType) and isinstance(element, DType):
        require(given.bits == element.bits, f"{given} and {element} have not as many bits")
    return (types[0].of(element),)


def int_to_ptr(types: Types, attrs: Attrs, regions: Sequence[Block]) -> tuple[Type, ...]:
    count(types, 1)
    given = dtype_of(types[0])
    require(given.is_integer and given.bits == 64, f"takes i64 or u64, not {types[0]}")
    require(isinstance(attrs["dtype"], Pointer), f"{attrs['dtype']} is no pointer")
    return (types[0].of(attrs["dtype"]),)


def ptr_to_int(types: Types, attrs: Attrs, regions: Sequence[Block]) -> tuple[Type, ...]:
    count(types, 1)
    require(types[0].is_pointer, f"takes pointers, not {types[0]}")
    dtype = attrs["dtype"]
    require(isinstance(dtype, DType) and dtype.is_integer and dtype.bits == 64, f"gives i64 or u64, not {dtype}")
    return (types[0].of(dtype),)


# ---- memory


def pointee(type_: Type) -> Type:
    """What lies where pointers point."""
    element = type_.element
    if not isinstance(element, Pointer):
        raise TypeRule(f"takes pointers first, not {type_}")
    return type_.of(element.to)


def addptr(types: Types, attrs: Attrs, regions: Sequence[Block]) -> tuple[Type, ...]:
    count(types, 2)
    pointee(types[0])
    require(dtype_of(types[1]).is_integer, f"an offset is an integer, not {types[1]}")
    require(types[0].shape == types[1].shape, f"{types[0]} and {types[1]} differ in shape")
    return (types[0],)


def masked(types: Types, position: int) -> None:
    if len(types) > position:
        wanted = types[0].of(I1)
        require(types[position] == wanted, f"the mask is {wanted}, not {types[position]}")


def load(types: Types, attrs: Attrs, regions: Sequence[Block]) -> tuple[Type, ...]:
    count(types, 1, 2, 3)
    result = pointee(types[0])
    masked(types, 1)
    require(len(types) < 3 or types[2] == result, f"`other` is {result}, not {types[-1]}")
    return (result,)


def store(types: Types, attrs: Attrs, regions: Sequence[Block]) -> tuple[Type, ...]:
    count(types, 2, 3)
    wanted = pointee(types[0])
    require(types[1] == wanted, f"the value is {wanted}, not {types[1]}")
    masked(types, 2)
    return ()


#: A kind of `atomic_rmw` → the class of dtypes that it takes.
ATOMICS = {
    "add": "number",
    "max": "number",
    "min": "number",
    "xchg": "number",
    "and": "bits",
    "or": "bits",
    "xor": "bits",
}


def atomic_rmw(types: Types, attrs: Attrs, regions: Sequence[Block]) -> tuple[Type, ...]:
    count(types, 2, 3)
    wanted = pointee(types[0])
    require(types[1] == wanted, f"the value is {wanted}, not {types[1]}")
    masked(types, 2)
    dtype = dtype_of(wanted)
    in_class(dtype, ATOMICS[attrs["kind"]])
    require(dtype.bits >= 16, f"atomics take elements of 16 bits or more, not {dtype}")
    return (wanted,)


def atomic_cas(types: Types, attrs: Attrs, regions: Sequence[Block]) -> tuple[Type, ...]:
    count(types, 3)
    wanted = pointee(types[0])
    require(types[1] == types[2] == wanted, f"takes two values of {wanted}, not {listed(types[1:])}")
    require(dtype_of(wanted).bits >= 16, f"atomics take elements of 16 bits or more, not {wanted.element}")
    return (wanted,)


# ---- products


def dot(types: Types, attrs: Attrs, regions: Sequence[Block]) -> tuple[Type, ...]:
    count(types, 3)
    a, b, acc = types
    require(
        a.rank == b.rank == acc.rank and a.rank in (2, 3), f"takes matrices, or batches of them, not {listed(types)}"
    )
    right = a.shape[-1] == b.shape[-2] and a.shape[:-2] == b.shape[:-2]
    require(right and acc.shape == (*a.shape[:-1], b.shape[-1]), f"the shapes of {listed(types)} do not fit together")
    left, other, result = map(dtype_of, types)
    require(left == other or (left.is_fp8 and other.is_fp8), f"multiplies one dtype, not {left} and {other}")
    if left.is_float:
        allowed = ["f64"] if left == F64 else ["f32"] if left == F32 else ["f32", "f16", "bf16"]
    else:
        require(left.is_integer and left.bits == 8, f"multiplies floats or integers of 8 bits, not {left}")
        allowed = ["i32"]
    require(result.name in allowed, f"products of {left} are added up in {' or '.join(allowed)}, not {result}")
    return (acc,)


#: A format of an operand of `dot_scaled` → its dtype in the IR; two e2m1 share a byte.
FORMATS = {"e2m1": "u8", "e4m3": "f8e4nv", "e5m2": "f8e5", "fp16": "f16", "bf16": "bf16"}
#: So many elements along the inner axis share a scale, which is a power of two: 2 ** (u8 - 127).
SCALE_GROUP = 32


def dot_scaled(types: Types, attrs: Attrs, regions: Sequence[Block]) -> tuple[Type, ...]:
    scales = [name for name in ("a", "b") if attrs[f"scale_{name}"]]
    count(types, 3 + len(scales))
    a, b, acc = types[:3]
    require(
        acc.element == F32 and a.rank == b.rank == acc.rank == 2,
        f"takes matrices with sums in f32, not {listed(types)}",
    )
    sizes = []
    for name, given, inner in (("a", a, 1), ("b", b, 0)):
        form = attrs[f"format_{name}"]
        require(dtype_of(given).name == FORMATS[form], f"{form} is {FORMATS[form]}, not {given}")
        packed = attrs[f"pack_{name}"] if form == "e2m1" else ""
        inside = given.shape[inner] * (2 if packed == "inner" else 1)
        sizes.append((inside, given.shape[1 - inner] * (2 if packed == "outer" else 1)))
    (inner_a, rows), (inner_b, columns) = sizes
    require(
        inner_a == inner_b and acc.shape == (rows, columns), f"the shapes of {listed(types[:3])} do not fit together"
    )
    for name, given in zip(scales, types[3:], strict=True):
        outer = rows if name == "a" else columns
        wanted = f"u8[{outer}, {inner_a // SCALE_GROUP}]"
        require(inner_a % SCALE_GROUP == 0 and str(given) == wanted, f"the scales of {name} are {wanted}, not {given}")
    return (acc,)


# ---- along an axis


def combines(types: Types, regions: Sequence[Block]) -> None:
    """The region of `reduce` and `scan` makes one element of two, of each operand."""
    scalars = [given.scalar for given in types]
    region_takes(regions, 0, scalars * 2)
    region_gives(regions, 0, "yield", scalars)


def one_shape(types: Types, axis: int) -> None:
    require(types, "takes at least one operand")
    require(all(given.shape == types[0].shape for given in types), f"{listed(types)} differ in shape")
    axis_within(axis, types[0].rank)


def region_takes(regions: Sequence[Block], number: int, types: Types) -> None:
    given = [arg.type for arg in regions[number].args]
    require(given == list(types), f"region {number} takes {listed(types)}, not {listed(given)}")


def region_gives(regions: Sequence[Block], number: int, terminator: str, types: Types | None) -> list[Type]:
    """What a region gives, which is to be `types` where they are known."""
    last = regions[number].terminator
    require(last is not None and last.op == terminator, f"region {number} does not end in {terminator}")
    given = [operand.type for operand in last.operands] if last is not None else []
    require(types is None or given == list(types), f"region {number} gives {listed(given)}, not {listed(types or ())}")
    return given


def reduce(types: Types, attrs: Attrs, regions: Sequence[Block]) -> tuple[Type, ...]:
    axis = attrs["axis"]
    one_shape(types, axis)
    return tuple([given.shaped(*given.shape[:axis], *given.shape[axis + 1 :]) for given in types])


def scan(types: Types, attrs: Attrs, regions: Sequence[Block]) -> tuple[Type, ...]:
    one_shape(types, attrs["axis"])
    return tuple(types)


def histogram(types: Types, attrs: Attrs, regions: Sequence[Block]) -> tuple[Type, ...]:
    count(types, 1, 2)
    require(types[0].rank == 1 and dtype_of(types[0]).is_integer, f"counts one row of integers, not {types[0]}")
    masked(types, 1)
    require(attrs["bins"] > 0, "has at least one bin")
    return (Type(I32, (attrs["bins"],)),)


def sort(types: Types, attrs: Attrs, regions: Sequence[Block]) -> tuple[Type, ...]:
    count(types, 1)
    in_class(dtype_of(types[0]), "number")
    axis_within(attrs["axis"], types[0].rank)
    return (types[0],)


# ---- what only has an effect


def condition_scalar(types: Types) -> None:
    require(types and str(types[0]) == "i1", f"takes an i1 first, not {listed(types)}")


def bits_of_truth(types: Types, attrs: Attrs, regions: Sequence[Block]) -> tuple[Type, ...]:
    """`assert` and `assume`: a tile of i1 is one of conditions that all hold."""
    count(types, 1)
    require(types[0].element == I1, f"takes i1, not {types[0]}")
    return ()


def nothing(types: Types, attrs: Attrs, regions: Sequence[Block]) -> tuple[Type, ...]:
    """Any operands, no result: the terminators, `print`."""
    return ()


def no_operands(types: Types, attrs: Attrs, regions: Sequence[Block]) -> tuple[Type, ...]:
    count(types, 0)
    return ()


def condition(types: Types, attrs: Attrs, regions: Sequence[Block]) -> tuple[Type, ...]:
    condition_scalar(types)
    return ()


def inline_asm(types: Types, attrs: Attrs, regions: Sequence[Block]) -> tuple[Type, ...]:
    require(types, "takes at least one operand")
    require(all(given.shape == types[0].shape for given in types), f"{listed(types)} differ in shape")
    return tuple([types[0].of(element) for element in attrs["dtypes"]])


# ---- control flow


def if_(types: Types, attrs: Attrs, regions: Sequence[Block]) -> tuple[Type, ...]:
    count(types, 1)
    condition_scalar(types)
    for number in (0, 1):
        region_takes(regions, number, [])
    results = region_gives(regions, 0, "yield", None)
    return tuple(region_gives(regions, 1, "yield", results))


def for_(types: Types, attrs: Attrs, regions: Sequence[Block]) -> tuple[Type, ...]:
    require(len(types) >= 3, f"takes lower, upper and step, then what is carried, not {listed(types)}")
    bound, carried = equal(types[:3]), list(types[3:])
    require(bound.is_scalar and dtype_of(bound).is_integer, f"counts with an integer, not {bound}")
    region_takes(regions, 0, [bound, *carried])
    return tuple(region_gives(regions, 0, "yield", carried))


def while_(types: Types, attrs: Attrs, regions: Sequence[Block]) -> tuple[Type, ...]:
    region_takes(regions, 0, types)
    given = region_gives(regions, 0, "condition", None)
    condition_scalar(given)
    region_takes(regions, 1, given[1:])
    region_gives(regions, 1, "yield", types)
    return tuple(given[1:])


def call(types: Types, attrs: Attrs, regions: Sequence[Block]) -> tuple[Type, ...]:
    """What is called gives `types`; that it does, and takes the operands, is checked where the module is known."""
    return tuple(attrs["types"])
