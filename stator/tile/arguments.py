"""What a launch finds of its arguments: the type of each, what is known of it, and the numbers that are passed.

Tensors are whatever has `data_ptr()` and a dtype with a known name, and numpy's arrays: this file knows no framework.
An integer that is 1, None, and whatever a constexpr parameter gets are known while compiling; addresses and integers
that 16 divides are marked so.
Neighbours: `jit.py` keys modules by signatures, `launch.py` passes the numbers.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from stator.tile.errors import LaunchError
from stator.tile.ir.types import DTYPES
from stator.tile.language.aggregates import jit_callable
from stator.tile.language.block_pointers import tensor_descriptor_type
from stator.tile.language.static import base_type, constexpr_type, unwrap
from stator.tile.language.types import (
    BY_IR_NAME,
    const,
    dtype,
    float32,
    int1,
    int32,
    int64,
    pointer_type,
    tuple_type,
    uint64,
)
from stator.tile.tools.tensor_descriptor import TensorDescriptor

#: A dtype of torch, by the end of its name → the language's.
TORCH_NAMES = {
    "bool": "i1", "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64", "uint8": "u8", "uint16": "u16",
    "uint32": "u32", "uint64": "u64", "float16": "f16", "bfloat16": "bf16", "float32": "f32", "float64": "f64",
    "float8_e4m3fn": "f8e4nv", "float8_e5m2": "f8e5", "float8_e4m3fnuz": "f8e4b8", "float8_e5m2fnuz": "f8e5b16",
}  # fmt: skip
_ALIGNMENT = 16


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a kernel, as its text declares it."""

    name: str
    num: int
    is_constexpr: bool
    is_const: bool
    annotation: str
    do_not_specialize: bool
    do_not_specialize_on_alignment: bool
    #: The dtype that the text gives a number, whatever its size.
    dtype: dtype | None = None


#: An annotation → the dtype that it gives a number: the language's names, and those of Triton's signatures.
_ANNOTATED: dict[str, dtype] = {
    **{found.codegen_name(): found for found in BY_IR_NAME.values()},
    **{f"fp{bits}": BY_IR_NAME[f"f{bits}"] for bits in (16, 32, 64)},
    **{short: found for short, found in BY_IR_NAME.items() if short[0] in "iub"},
}


def _annotation(annotation: Any) -> str:
    if annotation is inspect.Parameter.empty:
        return ""
    if isinstance(annotation, dtype):
        return annotation.codegen_name()
    return annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))


def parameters_of(
    signature: inspect.Signature, plain: Sequence[int | str], unaligned: Sequence[int | str]
) -> list[Parameter]:
    """The parameters of a function; those named or numbered in the lists are not specialised."""
    found = []
    for number, (name, parameter) in enumerate(signature.parameters.items()):
        text = _annotation(parameter.annotation)
        kind = text.split(".")[-1].split("[")[0]
        found.append(
            Parameter(
                name, number, kind == "constexpr", kind == "const", text,
                number in plain or name in plain, number in unaligned or name in unaligned, _ANNOTATED.get(kind),
            )
        )  # fmt: skip
    return found


# ---- tensors


@dataclass(frozen=True, slots=True)
class Region:
    """Memory that an argument lets a kernel touch, on the CPU or on a GPU of this number."""

    address: int
    size: int
    device: int | None = None


def torch_dtype(given: Any) -> dtype | None:
    """The language's dtype for one of torch's, or None if this is none."""
    name = str(given)
    short = TORCH_NAMES.get(name.removeprefix("torch."))
    return BY_IR_NAME[short] if name.startswith("torch.") and short is not None else None


def _element(name: str, value: Any) -> dtype:
    if isinstance(value, np.ndarray):
        names = [short for short, type in DTYPES.items() if type.numpy == value.dtype and short != "f8e4b15"]
        found = [BY_IR_NAME[short] for short in names]
    else:
        given = unwrap(value.dtype)
        known = given if isinstance(given, dtype) else torch_dtype(given)
        found = [] if known is None else [known]
    if not found:
        raise LaunchError(f"the argument {name} is a tensor of {value.dtype}, which kernels cannot point to")
    return found[0]


def is_tensor(value: Any) -> bool:
    """Whether an argument is memory: an array of numpy's, or anything with an address."""
    return isinstance(value, np.ndarray) or hasattr(value, "data_ptr")


def _address(value: Any) -> int:
    if isinstance(value, np.ndarray):
        return int(value.__array_interface__["data"][0])
    return int(value.data_ptr())


def _device(name: str, value: Any) -> int | None:
    """The number of the GPU that a tensor is on, or None if it is on the CPU."""
    device = getattr(value, "device", None)
    kind = getattr(device, "type", "cpu")
    if kind not in ("cpu", "cuda"):
        raise LaunchError(
            f"the argument {name} is on the device {kind!r}, and kernels run on CPUs and GPUs of CUDA",
            "move it there: `.cuda()` or `.cpu()`",
        )
    return int(value.get_device()) if kind == "cuda" else None


def _region(name: str, value: Any) -> Region:
    """The whole memory that a tensor is a view of."""
    if isinstance(value, np.ndarray):
        while isinstance(value.base, np.ndarray):
            value = value.base
        low, high = np.lib.array_utils.byte_bounds(value)
        return Region(low, high - low)
    device = _device(name, value)
    storage = getattr(value, "untyped_storage", None)
    if storage is None:
        return Region(int(value.data_ptr()), int(value.numel()) * int(value.element_size()), device)
    return Region(int(storage().data_ptr()), int(storage().nbytes()), device)


# ---- arguments


def device_of(arguments: Mapping[str, Argument]) -> int | None:
    """The GPU that all tensors among the arguments are on, or None for the CPU; LaunchError if they differ."""
    places = {region.device: name for name, argument in arguments.items() for region in argument.regions}
    if len(places) > 1:
        said = [f"{name} on {'the CPU' if place is None else f'cuda:{place}'}" for place, name in places.items()]
        raise LaunchError(f"the tensors of a launch are on one device, not {' and '.join(said)}")
    return next(iter(places), None)


@dataclass(slots=True)
class Argument:
    """One argument: its type, its numbers (one for each handle of the type), what is known of each, and memory."""

    type: base_type
    numbers: list[bool | int | float] = field(default_factory=list)
    hints: list[dict[str, int]] = field(default_factory=list)
    regions: list[Region] = field(default_factory=list)


def describe(parameter: Parameter, value: Any, warmup: bool = False) -> Argument:
    """What is found of an argument; in a warmup, a dtype stands for a tensor."""
    value = unwrap(value)
    if parameter.is_constexpr:
        return Argument(constexpr_type(value))
    if parameter.dtype is not None and isinstance(value, bool | int | float | np.number):
        return _annotated(parameter, parameter.dtype, value)
    return _described(parameter, parameter.name, value, warmup)


def _annotated(parameter: Parameter, type: dtype, value: Any) -> Argument:
    """A number of the dtype that the kernel's text says."""
    if type.is_floating():
        return Argument(type, [float(value)], [{}])
    if type.is_bool():
        return Argument(type, [bool(value)], [{}])
    number = int(value)
    if number != value or not type.get_int_min_value() <= number <= type.get_int_max_value():
        raise LaunchError(f"the argument {parameter.name} is {value}, and the kernel says that it is {type}")
    return Argument(type, [number], [_aligned(parameter, number)])


def _described(parameter: Parameter, name: str, value: Any, warmup: bool) -> Argument:
    match value:
        case None | jit_callable() | str() | dtype():
            return Argument(constexpr_type(value))
        case bool() | np.bool_():
            return Argument(int1, [bool(value)], [{}])
        case int() | np.integer():
            return _integer(parameter, int(value))
        case float() | np.floating():
            return Argument(float32, [float(value)], [{}])
        case TensorDescriptor():
            return _descriptor(parameter, name, value)
        case tuple() | list():
            return _several(parameter, name, value, warmup)
    if is_tensor(value):
        return _pointer(parameter, name, value)
    standing = torch_dtype(value) if warmup else None
    if standing is not None:
        return Argument(pointer_type(standing, const=parameter.is_const), [0], [_aligned(parameter, 0)])
    raise LaunchError(
        f"the argument {name} is a {type(value).__name__}, which kernels cannot take",
        "pass tensors, numbers, None, or tuples of them; anything else as a `tl.constexpr` parameter",
    )


def _aligned(parameter: Parameter, number: int) -> dict[str, int]:
    free = parameter.do_not_specialize or parameter.do_not_specialize_on_alignment
    return {} if free or number % _ALIGNMENT else {"divisibility": _ALIGNMENT}


def _integer(parameter: Parameter, value: int) -> Argument:
    if value == 1 and not parameter.do_not_specialize:
        return Argument(constexpr_type(1))
    for found in (int32, int64, uint64):
        if found.get_int_min_value() <= value <= found.get_int_max_value():
            return Argument(found, [value], [_aligned(parameter, value)])
    raise LaunchError(f"the argument {parameter.name} is {value}, which has more than 64 bits")


def _pointer(parameter: Parameter, name: str, value: Any) -> Argument:
    address = _address(value)
    found = pointer_type(_element(name, value), const=parameter.is_const)
    return Argument(found, [address], [_aligned(parameter, address)], [_region(name, value)])


def _several(parameter: Parameter, name: str, value: Any, warmup: bool) -> Argument:
    parts = [_described(parameter, f"{name}[{place}]", unwrap(item), warmup) for place, item in enumerate(value)]
    made_by = type(value) if hasattr(value, "_fields") else None
    return Argument(
        tuple_type([part.type for part in parts], getattr(value, "_fields", None), made_by),
        [number for part in parts for number in part.numbers],
        [hint for part in parts for hint in part.hints],
        [region for part in parts for region in part.regions],
    )


def _descriptor(parameter: Parameter, name: str, value: TensorDescriptor) -> Argument:
    base = _pointer(parameter, name, value.base)
    found = tensor_descriptor_type(base.type, value.block_shape, value.padding)  # type: ignore[arg-type]
    rest: list[bool | int | float] = [*map(int, value.shape), *map(int, value.strides)]
    return Argument(found, [*base.numbers, *rest], [*base.hints, *({} for _ in rest)], base.regions)


# ---- signatures


@dataclass(frozen=True)
class Signature:
    """The types of a kernel's arguments, and what is known of the numbers that are passed, by position."""

    types: dict[str, base_type]
    hints: dict[int, dict[str, int]]
    key: tuple[Any, ...]

    @classmethod
    def of(cls, arguments: Mapping[str, Argument]) -> Signature:
        types = {name: argument.type for name, argument in arguments.items()}
        flat = [hint for argument in arguments.values() for hint in argument.hints]
        hints = {position: hint for position, hint in enumerate(flat) if hint}
        parts = [(name, *_key(type)) for name, type in types.items()]
        return cls(types, hints, (tuple(parts), tuple(hints)))


def _key(type: base_type) -> Iterator[Any]:
    """A type as a part of a key: values that are known by class too, as 1, 1.0 and True are equal."""
    match type:
        case constexpr_type():
            value = type.value
            yield value.__class__
            yield value if value.__hash__ is not None and _is_hashable(value) else repr(value)
        case tuple_type():
            for item in type.types:
                yield tuple(_key(item))
        case _:
            yield type


def _is_hashable(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


__all__ = ["Argument", "Parameter", "Region", "Signature", "const", "describe", "parameters_of"]
