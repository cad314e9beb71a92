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
    """For messages that are there: one that is made is made where it is needed, for most operations are right."""
    if not condition:
        raise TypeRule(message)


def listed(types: Types) -> str:
    return "(" + ", ".join(map(str, types)) + ")"


def count(types: Types, *numbers: int) -> None:
    if len(types) not in numbers:
        raise TypeRule(f"takes {' or '.join(map(str, numbers))} operands, not {len(types)}")


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
    if not CLASSES[name](dtype):
        what = "numbers wide enough to compute with" if name == "number" else name
        raise TypeRule(f"takes {what}, not {dtype}")


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
    if types[0] != given.of(I1):
        raise TypeRule(f"the condition is {given.of(I1)}, not {types[0]}")
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
            if not dtype.is_bool:
                raise TypeRule(f"True and False are i1, not {dtype}")
        case int():
            if not dtype.is_integer:
                raise TypeRule(f"{value} is an integer, and {dtype} is none")
            if not (dtype.low <= value <= dtype.high):
                raise TypeRule(f"{value} is no {dtype}")
        case float():
            if not dtype.is_float:
                raise TypeRule(f"{value} is a float, and {dtype} is none")
        case _:
            raise TypeRule(f"{value!r} is no number")
    return (given,)


def arange(types: Types, attrs: Attrs, regions: Sequence[Block]) -> tuple[Type, ...]:
    count(types, 0)
    start, end = attrs["start"], attrs["end"]
    if not (I32.low <= start < end <= I32.high):
        raise TypeRule(f"{start} … {end} is no range of i32")
    return (Type(I32, (end - start,)),)


def axis_number(types: Types, attrs: Attrs, regions: Sequence[Block]) -> tuple[Type, ...]:
    count(types, 0)
    if attrs["axis"] not in (0, 1, 2):
        raise TypeRule(f"a grid has the axes 0, 1 and 2, not {attrs['axis']}")
    return (Type(I32),)


# ---- shapes


def splat(types: Types, attrs: Attrs, regions: Sequence[Block]) -> tuple[Type, ...]:
    count(types, 1)
    if not types[0].is_scalar:
        raise TypeRule(f"takes a scalar, not {types[0]}")
    return (types[0].shaped(*positive(attrs["shape"])),)


def positive(shape: tuple[int, ...]) -> tuple[int, ...]:
    if not all(size > 0 for size in shape):
        raise TypeRule(f"the sizes of {shape} are not all positive")
    return shape


def broadcast(types: Types, attrs: Attrs, regions: Sequence[Block]) -> tuple[Type, ...]:
    count(types, 1)
    shape, given = positive(attrs["shape"]), types[0].shape
    fits = len(shape) == len(given) and all(a in (1, b) for a, b in zip(given, shape, strict=True))
    if not fits:
        raise TypeRule(f"{types[0]} does not broadcast to {shape}: sizes of 1 grow, and no others")
    return (types[0].shaped(*shape),)


def reshape(types: Types, attrs: Attrs, regions: Sequence[Block]) -> tuple[Type, ...]:
    count(types, 1)
    result = types[0].shaped(*positive(attrs["shape"]))
    if result.numel != types[0].numel:
        raise TypeRule(f"{types[0]} has not as many elements as {attrs['shape']}")
    return (result,)


def permute(types: Types, attrs: Attrs, regions: Sequence[Block]) -> tuple[Type, ...]:
    count(types, 1)
    order, given = attrs["order"], types[0]
    if sorted(order) != list(range(given.rank)):
        raise TypeRule(f"{order} is no order of the axes of {given}")
    return (given.shaped(*[given.shape[axis] for axis in order]),)


def axis_within(axis: int, rank: int) -> None:
    if not (0 <= axis < rank):
        raise TypeRule(f"axis {axis} is none of 0 … {rank - 1}")


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
    if not (given.rank and given.shape[-1] == 2):
        raise TypeRule(f"the last size of {given} is not 2")
    half = given.shaped(*given.shape[:-1])
    return (half, half)


def cat(types: Types, attrs: Attrs, regions: Sequence[Block]) -> tuple[Type, ...]:
    count(types, 2)
    a, b = types
    if not (a.rank > 0 and a.element == b.element and a.shape[1:] == b.shape[1:]):
        raise TypeRule(f"cannot join {a} and {b}")
    return (a.shaped(a.shape[0] + b.shape[0], *a.shape[1:]),)


def gather(types: Types, attrs: Attrs, regions: Sequence[Block]) -> tuple[Type, ...]:
    count(types, 2)
    source, index = types
    axis = attrs["axis"]
    axis_within(axis, source.rank)
    if not dtype_of(index).is_integer:
        raise TypeRule(f"positions are integers, not {index}")
    others = [[size for i, size in enumerate(t.shape) if i != axis] for t in types]
    if not (index.rank == source.rank and others[0] == others[1]):
        raise TypeRule(f"{source} and {index} differ in another axis")
    return (index.of(source.element),)


# ---- casts


def cast(types: Types, attrs: Attrs, regions: Sequence[Block]) -> tuple[Type, ...]:
    count(types, 1)
    given, dtype = dtype_of(types[0]), attrs["dtype"]
    if not isinstance(dtype, DType):
        raise TypeRule(f"{dtype} is no dtype: `bitcast` and `int_to_ptr` make pointers")
    narrowing = given.is_float and dtype.is_float and given.bits > dtype.bits
    if not (attrs["rounding"] == "rtne" or narrowing):
        raise TypeRule(f"{given} to {dtype} does not round: only to a narrower float")
    return (types[0].of(dtype),)


def bitcast(types: Types, attrs: Attrs, regions: Sequence[Block]) -> tuple[Type, ...]:
    count(types, 1)
    given, element = types[0].element, attrs["dtype"]
    pointers = isinstance(given, Pointer), isinstance(element, Pointer)
    require(pointers[0] == pointers[1], "`ptr_to_int` and `int_to_ptr` go between pointers and integers")
    if isinstance(given, DType) and isinstance(element, DType) and given.bits != element.bits:
        raise TypeRule(f"{given} and {element} have not as many bits")
    return (types[0].of(element),)


def int_to_ptr(types: Types, attrs: Attrs, regions: Sequence[Block]) -> tuple[Type, ...]:
    count(types, 1)
    given = dtype_of(types[0])
    if not (given.is_integer and given.bits == 64):
        raise TypeRule(f"takes i64 or u64, not {types[0]}")
    if not isinstance(attrs["dtype"], Pointer):
        raise TypeRule(f"{attrs['dtype']} is no pointer")
    return (types[0].of(attrs["dtype"]),)


def ptr_to_int(types: Types, attrs: Attrs, regions: Sequence[Block]) -> tuple[Type, ...]:
    count(types, 1)
    if not types[0].is_pointer:
        raise TypeRule(f"takes pointers, not {types[0]}")
    dtype = attrs["dtype"]
    if not (isinstance(dtype, DType) and dtype.is_integer and dtype.bits == 64):
        raise TypeRule(f"gives i64 or u64, not {dtype}")
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
    if not dtype_of(types[1]).is_integer:
        raise TypeRule(f"an offset is an integer, not {types[1]}")
    if types[0].shape != types[1].shape:
        raise TypeRule(f"{types[0]} and {types[1]} differ in shape")
    return (types[0],)


def masked(types: Types, position: int) -> None:
    if len(types) > position:
        wanted = types[0].of(I1)
        if types[position] != wanted:
            raise TypeRule(f"the mask is {wanted}, not {types[position]}")


def load(types: Types, attrs: Attrs, regions: Sequence[Block]) -> tuple[Type, ...]:
    count(types, 1, 2, 3)
    result = pointee(types[0])
    masked(types, 1)
    if len(types) > 2 and types[2] != result:
        raise TypeRule(f"`other` is {result}, not {types[-1]}")
    return (result,)


def store(types: Types, attrs: Attrs, regions: Sequence[Block]) -> tuple[Type, ...]:
    count(types, 2, 3)
    wanted = pointee(types[0])
    if types[1] != wanted:
        raise TypeRule(f"the value is {wanted}, not {types[1]}")
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
    if types[1] != wanted:
        raise TypeRule(f"the value is {wanted}, not {types[1]}")
    masked(types, 2)
    dtype = dtype_of(wanted)
    in_class(dtype, ATOMICS[attrs["kind"]])
    if dtype.bits < 16:
        raise TypeRule(f"atomics take elements of 16 bits or more, not {dtype}")
    return (wanted,)


def atomic_cas(types: Types, attrs: Attrs, regions: Sequence[Block]) -> tuple[Type, ...]:
    count(types, 3)
    wanted = pointee(types[0])
    if not (types[1] == types[2] == wanted):
        raise TypeRule(f"takes two values of {wanted}, not {listed(types[1:])}")
    if dtype_of(wanted).bits < 16:
        raise TypeRule(f"atomics take elements of 16 bits or more, not {wanted.element}")
    return (wanted,)


# ---- products


def dot(types: Types, attrs: Attrs, regions: Sequence[Block]) -> tuple[Type, ...]:
    count(types, 3)
    a, b, acc = types
    if not (a.rank == b.rank == acc.rank and a.rank in (2, 3)):
        raise TypeRule(f"takes matrices, or batches of them, not {listed(types)}")
    right = a.shape[-1] == b.shape[-2] and a.shape[:-2] == b.shape[:-2]
    if not (right and acc.shape == (*a.shape[:-1], b.shape[-1])):
        raise TypeRule(f"the shapes of {listed(types)} do not fit together")
    left, other, result = map(dtype_of, types)
    if not (left == other or (left.is_fp8 and other.is_fp8)):
        raise TypeRule(f"multiplies one dtype, not {left} and {other}")
    if left.is_float:
        allowed = ["f64"] if left == F64 else ["f32"] if left == F32 else ["f32", "f16", "bf16"]
    else:
        if not (left.is_integer and left.bits == 8):
            raise TypeRule(f"multiplies floats or integers of 8 bits, not {left}")
        allowed = ["i32"]
    if result.name not in allowed:
        raise TypeRule(f"products of {left} are added up in {' or '.join(allowed)}, not {result}")
    return (acc,)


#: A format of an operand of `dot_scaled` → its dtype in the IR; two e2m1 share a byte.
FORMATS = {"e2m1": "u8", "e4m3": "f8e4nv", "e5m2": "f8e5", "fp16": "f16", "bf16": "bf16"}
#: So many elements along the inner axis share a scale, which is a power of two: 2 ** (u8 - 127).
SCALE_GROUP = 32


def dot_scaled(types: Types, attrs: Attrs, regions: Sequence[Block]) -> tuple[Type, ...]:
    scales = [name for name in ("a", "b") if attrs[f"scale_{name}"]]
    count(types, 3 + len(scales))
    a, b, acc = types[:3]
    if not (acc.element == F32 and a.rank == b.rank == acc.rank == 2):
        raise TypeRule(f"takes matrices with sums in f32, not {listed(types)}")
    sizes = []
    for name, given, inner in (("a", a, 1), ("b", b, 0)):
        form = attrs[f"format_{name}"]
        if dtype_of(given).name != FORMATS[form]:
            raise TypeRule(f"{form} is {FORMATS[form]}, not {given}")
        packed = attrs[f"pack_{name}"] if form == "e2m1" else ""
        inside = given.shape[inner] * (2 if packed == "inner" else 1)
        sizes.append((inside, given.shape[1 - inner] * (2 if packed == "outer" else 1)))
    (inner_a, rows), (inner_b, columns) = sizes
    if inner_a != inner_b or acc.shape != (rows, columns):
        raise TypeRule(f"the shapes of {listed(types[:3])} do not fit together")
    for name, given in zip(scales, types[3:], strict=True):
        outer = rows if name == "a" else columns
        wanted = f"u8[{outer}, {inner_a // SCALE_GROUP}]"
        if not (inner_a % SCALE_GROUP == 0 and str(given) == wanted):
            raise TypeRule(f"the scales of {name} are {wanted}, not {given}")
    return (acc,)


# ---- along an axis


def combines(types: Types, regions: Sequence[Block]) -> None:
    """The region of `reduce` and `scan` makes one element of two, of each operand."""
    scalars = [given.scalar for given in types]
    region_takes(regions, 0, scalars * 2)
    region_gives(regions, 0, "yield", scalars)


def one_shape(types: Types, axis: int) -> None:
    require(types, "takes at least one operand")
    if not all(given.shape == types[0].shape for given in types):
        raise TypeRule(f"{listed(types)} differ in shape")
    axis_within(axis, types[0].rank)


def region_takes(regions: Sequence[Block], number: int, types: Types) -> None:
    given = [arg.type for arg in regions[number].args]
    if given != list(types):
        raise TypeRule(f"region {number} takes {listed(types)}, not {listed(given)}")


def region_gives(regions: Sequence[Block], number: int, terminator: str, types: Types | None) -> list[Type]:
    """What a region gives, which is to be `types` where they are known."""
    last = regions[number].terminator
    if last is None or last.op != terminator:
        raise TypeRule(f"region {number} does not end in {terminator}")
    given = [operand.type for operand in last.operands] if last is not None else []
    if types is not None and given != list(types):
        raise TypeRule(f"region {number} gives {listed(given)}, not {listed(types or ())}")
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
    if not (types[0].rank == 1 and dtype_of(types[0]).is_integer):
        raise TypeRule(f"counts one row of integers, not {types[0]}")
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
    if not (types and str(types[0]) == "i1"):
        raise TypeRule(f"takes an i1 first, not {listed(types)}")


def bits_of_truth(types: Types, attrs: Attrs, regions: Sequence[Block]) -> tuple[Type, ...]:
    """`assert` and `assume`: a tile of i1 is one of conditions that all hold."""
    count(types, 1)
    if types[0].element != I1:
        raise TypeRule(f"takes i1, not {types[0]}")
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
    if not all(given.shape == types[0].shape for given in types):
        raise TypeRule(f"{listed(types)} differ in shape")
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
    if len(types) < 3:
        raise TypeRule(f"takes lower, upper and step, then what is carried, not {listed(types)}")
    bound, carried = equal(types[:3]), list(types[3:])
    if not (bound.is_scalar and dtype_of(bound).is_integer):
        raise TypeRule(f"counts with an integer, not {bound}")
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
