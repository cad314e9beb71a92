"""The types of numbers, pointers and blocks as kernels name them, each with its type of the tile IR.

A type is equal to another by what it says, not by identity. The numbers of a dtype (bits, kind, limits) are read from
its IR type, so they stand in one place.
Neighbours: `static.py` has their base, `values.py` what is of these types, `stator.tile.ir.types` the IR's.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Any

from stator.tile.errors import InvalidUse
from stator.tile.ir import types as ir
from stator.tile.language.static import base_type, base_value, unwrap

#: The most elements that a block may have.
TRITON_MAX_TENSOR_NUMEL = 1 << 20

#: A dtype's name in kernels → its name in the IR.
IR_NAMES = {
    "int1": "i1", "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64",
    "uint8": "u8", "uint16": "u16", "uint32": "u32", "uint64": "u64",
    "fp8e4nv": "f8e4nv", "fp8e5": "f8e5", "fp8e4b8": "f8e4b8", "fp8e5b16": "f8e5b16", "fp8e4b15": "f8e4b15",
    "fp16": "f16", "bf16": "bf16", "fp32": "f32", "fp64": "f64",
}  # fmt: skip


class dtype(base_type):
    """The type of a number, or `void`."""

    class SIGNEDNESS(Enum):
        """Whether an integer type has negative numbers."""

        SIGNED = 0
        UNSIGNED = 1

    class KIND(Enum):
        """How types rank in promotion."""

        BOOLEAN = 0
        INTEGRAL = 1
        FLOATING = 2

    SINT_TYPES = ("int8", "int16", "int32", "int64")
    UINT_TYPES = ("int1", "uint8", "uint16", "uint32", "uint64")
    FP_TYPES = ("fp8e4b15", "fp8e4nv", "fp8e4b8", "fp8e5", "fp8e5b16", "fp16", "bf16", "fp32", "fp64")
    STANDARD_FP_TYPES = ("fp16", "bf16", "fp32", "fp64")
    OTHER_TYPES = ("void",)

    def __init__(self, name: Any) -> None:
        self.name: str = unwrap(name)
        if not dtype.is_dtype(self.name):
            raise InvalidUse(f"there is no dtype {self.name!r}", "valid: " + ", ".join((*IR_NAMES, "void")))
        self.primitive_bitwidth = self.ir.bits if self.name in IR_NAMES else 0
        self.itemsize = self.primitive_bitwidth // 8
        if self.is_int():
            signed = self.name in dtype.SINT_TYPES
            self.int_signedness = dtype.SIGNEDNESS.SIGNED if signed else dtype.SIGNEDNESS.UNSIGNED
            self.int_bitwidth = self.primitive_bitwidth
        elif self.is_floating():
            self.fp_mantissa_width = self.ir.mantissa
            self.exponent_bias = self.ir.bias

    @staticmethod
    def is_dtype(name: str) -> bool:
        return name in IR_NAMES or name in dtype.OTHER_TYPES

    @property
    def ir(self) -> Any:
        """The element type in the IR."""
        if self.name == "void":
            raise InvalidUse("void is the type of nothing: no value has it")
        return ir.DTYPES[IR_NAMES[self.name]]

    @property
    def scalar(self) -> dtype:
        return self

    @property
    def shape(self) -> tuple[int, ...]:
        return ()

    @property
    def numel(self) -> int:
        return 1

    def is_fp8(self) -> bool:
        return self.name.startswith("fp8")

    def is_floating(self) -> bool:
        return self.name in dtype.FP_TYPES

    def is_standard_floating(self) -> bool:
        return self.name in dtype.STANDARD_FP_TYPES

    def is_int_signed(self) -> bool:
        return self.name in dtype.SINT_TYPES

    def is_int_unsigned(self) -> bool:
        return self.name in dtype.UINT_TYPES

    def is_int(self) -> bool:
        return self.is_int_signed() or self.is_int_unsigned()

    def is_bool(self) -> bool:
        return self.name == "int1"

    def is_void(self) -> bool:
        return self.name == "void"

    def is_block(self) -> bool:
        return False

    def is_ptr(self) -> bool:
        return False

    def is_const(self) -> bool:
        return False

    def __getattr__(self, name: str) -> Any:
        """`is_fp16()`, `is_int32()` and the like, one for each dtype."""
        if name.startswith("is_") and name[3:] in IR_NAMES:
            return lambda: type(self) is dtype and self.name == name[3:]
        raise AttributeError(f"a dtype has no attribute {name!r}")

    def kind(self) -> dtype.KIND:
        if self.is_bool():
            return dtype.KIND.BOOLEAN
        return dtype.KIND.INTEGRAL if self.is_int() else dtype.KIND.FLOATING

    def get_int_max_value(self) -> int:
        return (1 << (self.int_bitwidth - self.is_int_signed())) - 1

    def get_int_min_value(self) -> int:
        return -(1 << (self.int_bitwidth - 1)) if self.is_int_signed() else 0

    def with_element_ty(self, element_ty: dtype) -> dtype:
        """A type of the same shape."""
        return element_ty

    def __eq__(self, other: object) -> bool:
        other = unwrap(other)
        return isinstance(other, dtype) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    def _identity(self) -> tuple[Any, ...]:
        return (self.name,)

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"triton.language.{self.codegen_name()}"

    def codegen_name(self) -> str:
        for short, long in (("fp", "float"), ("bf", "bfloat")):
            if self.name.startswith(short):
                return long + self.name[2:]
        return self.name

    @property
    def cache_key_part(self) -> str:
        return self.name

    def mangle(self) -> str:
        return IR_NAMES.get(self.name, self.name)

    def handle_types(self) -> list[Any]:
        return [] if self.is_void() else [ir.Type(self.scalar.ir, tuple(self.shape))]

    def assemble(self, handles: Iterator[Any]) -> base_value:
        return make_value(next(handles), self)


class pointer_type(dtype):
    """A pointer to numbers of a type, or to other pointers. Nothing is written through one that is `const`."""

    def __init__(self, element_ty: Any, address_space: int = 1, const: Any = False) -> None:
        element_ty = unwrap(element_ty)
        if not isinstance(element_ty, dtype) or element_ty.is_block():
            raise InvalidUse(f"a pointer points to a dtype, not to {element_ty!r}")
        self.element_ty = element_ty
        self.address_space = address_space
        self.const = bool(unwrap(const))
        self.name = f"{'const_' if self.const else ''}pointer<{element_ty}>"
        self.primitive_bitwidth, self.itemsize = 64, 8

    @property
    def ir(self) -> Any:
        return ir.Pointer(self.element_ty.ir)

    def is_ptr(self) -> bool:
        return True

    def is_const(self) -> bool:
        return self.const

    def _identity(self) -> tuple[Any, ...]:
        return ("pointer", self.element_ty, self.address_space, self.const)

    def __repr__(self) -> str:
        return str(self)

    def mangle(self) -> str:
        return f"P{'k' if self.const else ''}{self.element_ty.mangle()}"


class block_type(dtype):
    """A block of numbers or pointers, each dim a power of two."""

    def __init__(self, element_ty: Any, shape: Sequence[Any]) -> None:
        self.element_ty: dtype = unwrap(element_ty)
        self._shape = tuple([_dim(size) for size in unwrap(list(shape))])
        if not self._shape:
            raise InvalidUse("a block has at least one dim", "a number without dims has a scalar type")
        if self.numel > TRITON_MAX_TENSOR_NUMEL:
            text = f"a block of {list(self._shape)} has {self.numel} elements"
            raise InvalidUse(f"{text}, more than {TRITON_MAX_TENSOR_NUMEL}", "loop over smaller blocks")
        self.name = f"<{list(self._shape)}, {self.element_ty}>"
        self.primitive_bitwidth = self.element_ty.primitive_bitwidth
        self.itemsize = self.element_ty.itemsize

    @property
    def shape(self) -> tuple[int, ...]:
        return self._shape

    @property
    def numel(self) -> int:
        return math.prod(self._shape)

    @property
    def nbytes(self) -> int:
        return self.numel * self.primitive_bitwidth // 8

    @property
    def scalar(self) -> dtype:
        return self.element_ty

    @property
    def ir(self) -> Any:
        raise InvalidUse(f"{self} is a block, and no element's type")

    def is_block(self) -> bool:
        return True

    def get_block_shapes(self) -> tuple[int, ...]:
        return self._shape

    def with_element_ty(self, element_ty: dtype) -> dtype:
        return block_type(element_ty, self._shape)

    def _identity(self) -> tuple[Any, ...]:
        return ("block", self.element_ty, self._shape)

    def __repr__(self) -> str:
        return str(self)

    def mangle(self) -> str:
        return f"{self.element_ty.mangle()}S{'_'.join(map(str, self._shape))}S"


def _dim(size: Any) -> int:
    if isinstance(size, bool) or not isinstance(size, int):
        raise InvalidUse(
            f"a block's shape is known while compiling, and {size!r} is no int",
            "declare the parameter that it comes from as `tl.constexpr`",
        )
    if size < 1 or size & (size - 1):
        raise InvalidUse(f"a block's dim must be a power of 2, and {size} is none", "take the next, and a mask")
    return size


class tuple_type(base_type):
    """The type of a tuple: those of its items, and their names if it is a named tuple."""

    def __init__(self, types: Sequence[Any], fields: Sequence[str] | None = None, made_by: Any = None) -> None:
        self.types = list(types)
        self.fields = list(fields) if fields is not None else None
        self.made_by = made_by
        self.name = f"[{','.join(str(item) for item in self.types)}]"

    def __str__(self) -> str:
        return self.name

    def __iter__(self) -> Iterator[Any]:
        return iter(self.types)

    def __len__(self) -> int:
        return len(self.types)

    def __getitem__(self, index: Any) -> Any:
        return self.types[unwrap(index)]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, tuple_type) and (self.types, self.fields) == (other.types, other.fields)

    def __hash__(self) -> int:
        return hash((tuple(self.types), tuple(self.fields or ())))

    def handle_types(self) -> list[Any]:
        return [each for item in self.types for each in item.handle_types()]

    def assemble(self, handles: Iterator[Any]) -> base_value:
        return make_tuple([item.assemble(handles) for item in self.types], self)

    def mangle(self) -> str:
        return f"T{'_'.join(item.mangle() for item in self.types)}T"


class slice_type(base_type):
    """The type of a slice in a subscript."""

    name = "slice_type"

    def handle_types(self) -> list[Any]:
        return []


class const:
    """As an annotation of a pointer parameter: nothing is written through it."""


def make_value(handle: Any, type: dtype) -> base_value:
    """The tensor of a handle; `values.py` has the class."""
    return MAKERS["tensor"](handle, type)


def make_tuple(items: list[Any], type: tuple_type) -> base_value:
    """The tuple of items; `values.py` has the class."""
    return MAKERS["tuple"](items, type)


#: What makes values of these types; filled by `values.py`, which builds upon this file.
MAKERS: dict[str, Any] = {}

void = dtype("void")
int1 = dtype("int1")
int8, int16, int32, int64 = [dtype(name) for name in dtype.SINT_TYPES]
uint8, uint16, uint32, uint64 = [dtype(name) for name in dtype.UINT_TYPES[1:]]
float8e5 = dtype("fp8e5")
float8e5b16 = dtype("fp8e5b16")
float8e4nv = dtype("fp8e4nv")
float8e4b8 = dtype("fp8e4b8")
float8e4b15 = dtype("fp8e4b15")
float16 = dtype("fp16")
bfloat16 = dtype("bf16")
float32 = dtype("fp32")
float64 = dtype("fp64")
pi32_t = pointer_type(int32)

#: A dtype's name in the IR → it; the same object that `tl` names.
BY_IR_NAME = {
    IR_NAMES[type.name]: type
    for type in (
        *(int1, int8, int16, int32, int64, uint8, uint16, uint32, uint64),
        *(float8e4nv, float8e5, float8e4b8, float8e5b16, float8e4b15, float16, bfloat16, float32, float64),
    )
}


def get_int_dtype(bitwidth: Any, signed: Any) -> dtype:
    """The integer type of so many bits."""
    name = f"{'' if unwrap(signed) or unwrap(bitwidth) == 1 else 'u'}int{unwrap(bitwidth)}"
    if name not in IR_NAMES:
        raise InvalidUse(f"there is no integer type of {unwrap(bitwidth)} bits")
    return dtype(name)


def type_of_ir(type: Any) -> dtype:
    """The language's type for one of the IR."""
    element = _element_of_ir(type.element)
    return block_type(element, type.shape) if type.shape else element


def _element_of_ir(element: Any) -> dtype:
    if isinstance(element, ir.Pointer):
        return pointer_type(_element_of_ir(element.to))
    return BY_IR_NAME[element.name]


def as_dtype(value: Any) -> dtype:
    """A dtype that a kernel names, maybe as a constexpr."""
    value = unwrap(value)
    if not isinstance(value, dtype):
        raise InvalidUse(f"{value!r} is no dtype of the language", "dtypes are those of `tl`, such as `tl.float32`")
    return value
