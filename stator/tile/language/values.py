"""What kernels compute with: tensors (numbers and blocks) and tuples.

A tensor is a handle of the builder and a type. Its operators and methods stand in `members.py`, which hangs them on the
class: they are functions of the language. While a kernel's text is run directly a handle has numbers, and a tensor of
one can steer Python's own `if`, `while` and `range`.
Neighbours: `types.py`, `context.py`, and every file with functions of the language.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from stator.tile.errors import InvalidUse
from stator.tile.language.static import base_value, constexpr, constexpr_type, unwrap
from stator.tile.language.types import MAKERS, dtype, slice_type, tuple_type


class tensor(base_value):
    """A number, a pointer, or a block of them."""

    def __init__(self, handle: Any, type: dtype) -> None:
        self.handle = handle
        self.type = type

    if TYPE_CHECKING:  # the methods of `members.py`

        def __getattr__(self, name: str) -> Any: ...

        def __add__(self, other: Any) -> Any: ...

        def __sub__(self, other: Any) -> Any: ...

        def __mul__(self, other: Any) -> Any: ...

        def __lt__(self, other: Any) -> Any: ...

        def __and__(self, other: Any) -> Any: ...

    @property
    def dtype(self) -> dtype:
        return self.type.scalar

    @property
    def shape(self) -> tuple:
        return tuple([constexpr(size) for size in self.type.shape])

    @property
    def numel(self) -> constexpr:
        return constexpr(self.type.numel)

    def handles(self) -> list[Any]:
        return [self.handle]

    @property
    def data(self) -> Any:
        """The numbers as an array, where the kernel's text is run directly."""
        data = getattr(self.handle, "data", None)
        if data is None:
            raise InvalidUse(
                "the numbers of a tensor are not known while compiling",
                "compute with tensors, or declare the parameter that this comes from as `tl.constexpr`",
            )
        return data

    def number(self) -> Any:
        """The number of a tensor of one element, where the kernel's text is run directly."""
        if self.type.numel != 1:
            raise InvalidUse(
                f"a block of {self.type} has no one truth value or number",
                "reduce it first, or choose between elements with `tl.where`",
            )
        item = getattr(self.handle, "item", None)
        return self.data if item is None else item()

    def __bool__(self) -> bool:
        return bool(self.number())

    def __index__(self) -> int:
        if not self.dtype.is_int():
            raise InvalidUse(f"a number of {self.dtype} is no index")
        return int(self.number())

    def __int__(self) -> int:
        return int(self.number())

    def __float__(self) -> float:
        return float(self.number())

    def __str__(self) -> str:
        data = getattr(self.handle, "data", None)
        if data is not None:
            return str(data)
        return f"{self.dtype}[{', '.join(str(size) for size in self.type.shape)}]"

    def __repr__(self) -> str:
        data = getattr(self.handle, "data", None)
        return f"tensor({self.type}{'' if data is None else f', {data}'})"

    def __hash__(self) -> int:
        return id(self)

    def __iter__(self) -> Iterator[Any]:
        raise InvalidUse("a tensor's elements are not a sequence of Python's", "use `tl.split`, a reduction or a slice")


class tuple(base_value):
    """Several values under one name; of a named tuple they have names."""

    def __init__(self, args: Sequence[Any], type: Any = None) -> None:
        self.values = list(args)
        self._type = type if type is None or isinstance(type, tuple_type) else tuple_type(type)

    @property
    def type(self) -> tuple_type:
        named = self._type
        return tuple_type(
            [type_of(item) for item in self.values],
            named.fields if named is not None else None,
            named.made_by if named is not None else None,
        )

    def handles(self) -> list[Any]:
        return [handle for item in self.values if isinstance(item, base_value) for handle in item.handles()]

    def __getattr__(self, name: str) -> Any:
        named = self.__dict__.get("_type")
        if named is None or named.fields is None or name not in named.fields:
            raise AttributeError(f"a tuple has no field {name!r}")
        return self.values[named.fields.index(name)]

    def __getitem__(self, index: Any) -> Any:
        index = unwrap(index)
        match index:
            case int():
                return self.values[index]
            case slice():
                return tuple(self.values[unwrap(index.start) : unwrap(index.stop) : unwrap(index.step)])
            case builtins.slice():
                return tuple(self.values[index])
        raise InvalidUse("a tuple's index is known while compiling", f"{index!r} is not; take an int or a constexpr")

    def __add__(self, other: Any) -> Any:
        return tuple([*self.values, *_items(other)])

    def __radd__(self, other: Any) -> Any:
        return tuple([*_items(other), *self.values])

    def __mul__(self, times: Any) -> Any:
        return tuple(self.values * int(unwrap(times)))

    def __eq__(self, other: Any) -> Any:
        return constexpr(unwrap(self.values) == unwrap(list(_items(other))))

    def __ne__(self, other: Any) -> Any:
        return constexpr(not (self == other).value)

    def __hash__(self) -> int:
        return hash(builtins.tuple(self.values))

    def __iter__(self) -> Iterator[Any]:
        return iter(self.values)

    def __len__(self) -> int:
        return len(self.values)

    def __str__(self) -> str:
        return f"({', '.join(map(str, self.values))}{',' if len(self.values) == 1 else ''})"

    __repr__ = __str__


class slice(base_value):
    """A slice in a subscript."""

    def __init__(self, start: Any, stop: Any, step: Any) -> None:
        self.start, self.stop, self.step = start, stop, step
        self.type = slice_type()

    def handles(self) -> list[Any]:
        return []

    def __eq__(self, other: object) -> bool:
        parts = [unwrap(part) for part in (self.start, self.stop, self.step)]
        return isinstance(other, slice) and parts == [unwrap(part) for part in (other.start, other.stop, other.step)]

    def __hash__(self) -> int:
        return hash((unwrap(self.start), unwrap(self.stop), unwrap(self.step)))


def _items(value: Any) -> Any:
    value = unwrap(value) if isinstance(value, constexpr) else value
    return value.values if isinstance(value, tuple) else value


def type_of(value: Any) -> Any:
    """The type of anything that a kernel's name can stand for."""
    if isinstance(value, base_value):
        return value.type
    if isinstance(value, builtins.tuple):
        return tuple_type([type_of(item) for item in value], getattr(value, "_fields", None), type(value))
    return constexpr_type(value)


def make_tuple(items: list[Any], made_of: tuple_type) -> Any:
    """A tuple of items, of a type."""
    return tuple(items, made_of)


def sequence(value: Any) -> list[Any]:
    """The items of a list or tuple of a kernel; of anything else, it alone."""
    value = unwrap(value) if isinstance(value, constexpr) else value
    match value:
        case tuple():
            return list(value.values)
        case list() | builtins.tuple():
            return list(value)
    return [value]


def shape_of(value: Any) -> list[int]:
    """A shape that a kernel names: ints, constexprs, or one list or tuple of them."""
    sizes = [unwrap(size) for size in sequence(value)]
    for size in sizes:
        if isinstance(size, bool) or not isinstance(size, int):
            raise InvalidUse(
                f"a shape is known while compiling, and {size!r} is not",
                "declare the parameter that it comes from as `tl.constexpr`",
            )
    return sizes


MAKERS["tensor"] = tensor
MAKERS["tuple"] = make_tuple
