"""What is known while a kernel is compiled: `constexpr`, and the base of all that a kernel's names can stand for.

A value has a type; a value's handles are what the builder knows of it (none, for what is known while compiling), and a
type makes a value of handles again. So control flow carries tensors, tuples and aggregates alike.
Neighbours: `types.py` has the types of numbers and pointers, `values.py` tensors and tuples.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any


class base_type:
    """The type of something that a kernel's name can stand for."""

    def handle_types(self) -> list[Any]:
        """The types of the handles that a value of this type has."""
        raise NotImplementedError(f"{type(self).__name__} says nothing of its handles")

    def assemble(self, handles: Iterator[Any]) -> base_value:
        """A value of this type, of the next handles."""
        raise NotImplementedError(f"{type(self).__name__} cannot be made of handles")

    def mangle(self) -> str:
        """The type as a part of a function's name."""
        raise NotImplementedError(f"{type(self).__name__} cannot be an argument of a function")


class base_value:
    """Something that a kernel's name can stand for."""

    type: Any

    def handles(self) -> list[Any]:
        """What the builder knows of it."""
        raise NotImplementedError(f"{type(self).__name__} has no handles")


class constexpr_type(base_type):
    """The type of one number, string or object that is known while compiling."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, constexpr_type) and self.value == other.value

    def __hash__(self) -> int:
        return hash(self.value)

    def __repr__(self) -> str:
        return f"constexpr_type[{self.value}]"

    def handle_types(self) -> list[Any]:
        return []

    def assemble(self, handles: Iterator[Any]) -> constexpr:
        return constexpr(self.value)

    def mangle(self) -> str:
        return f"c{self.value!r}"


def unwrap(value: Any) -> Any:
    """The plain Python value of a constexpr, through lists and tuples of them; anything else as it is."""
    while isinstance(value, constexpr):
        value = value.value
    match value:
        case list():
            return [unwrap(item) for item in value]
        case _ if type(value) is tuple:
            return tuple([unwrap(item) for item in value])
    return value


def _known(value: Any) -> bool:
    return isinstance(value, constexpr) or not isinstance(value, base_value)


class constexpr(base_value):
    """A value that is known while a kernel is compiled. Operators between two of them are computed at once."""

    def __init__(self, value: Any) -> None:
        self.value: Any = unwrap(value) if isinstance(value, constexpr) else value

    @property
    def type(self) -> constexpr_type:
        return constexpr_type(self.value)

    def handles(self) -> list[Any]:
        return []

    def __repr__(self) -> str:
        return f"constexpr[{self.value}]"

    def __hash__(self) -> int:
        return hash(self.value)

    def __index__(self) -> int:
        return operator.index(self.value)

    def __int__(self) -> int:
        return int(self.value)

    def __float__(self) -> float:
        return float(self.value)

    def __bool__(self) -> bool:
        return bool(self.value)

    def __str__(self) -> str:
        return str(self.value)

    def __format__(self, spec: str) -> str:
        return format(self.value, spec)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.value)

    def __len__(self) -> int:
        return len(self.value)

    def __call__(self, *args: Any, **named: Any) -> Any:
        return self.value(*args, **named)

    def __getitem__(self, key: Any) -> Any:
        return self.value[unwrap(key)]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "value":
            raise AttributeError(name)
        return getattr(self.value, name)

    def logical_and(self, other: Any) -> constexpr:
        return constexpr(self.value and unwrap(other))

    def logical_or(self, other: Any) -> constexpr:
        return constexpr(self.value or unwrap(other))

    def __not__(self) -> constexpr:
        return constexpr(not self.value)


def _binary(apply: Callable[[Any, Any], Any], swapped: bool = False) -> Callable[[constexpr, Any], Any]:
    def method(self: constexpr, other: Any) -> Any:
        if not _known(other):
            return NotImplemented
        left, right = self.value, unwrap(other)
        return constexpr(apply(right, left) if swapped else apply(left, right))

    return method


def _unary(apply: Callable[[Any], Any]) -> Callable[[constexpr], constexpr]:
    return lambda self: constexpr(apply(self.value))


_ARITHMETIC = "add sub mul truediv floordiv mod pow lshift rshift and_ or_ xor".split()
for _name in _ARITHMETIC:
    _function = getattr(operator, _name)
    setattr(constexpr, f"__{_name.rstrip('_')}__", _binary(_function))
    setattr(constexpr, f"__r{_name.rstrip('_')}__", _binary(_function, swapped=True))
for _name in "eq ne lt le gt ge".split():
    setattr(constexpr, f"__{_name}__", _binary(getattr(operator, _name)))
for _name in "neg pos invert abs".split():
    setattr(constexpr, f"__{_name}__", _unary(getattr(operator, _name)))
