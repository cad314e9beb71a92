"""The operators and methods of tensors: a table of names and the functions of the language that they are.

Importing this file hangs them on the class; `values.py`, which has the class, is below the functions.
Neighbours: every file with functions of the language.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stator.tile.errors import InvalidUse
from stator.tile.language import arithmetic, block_pointers, math, memory, reductions, shapes
from stator.tile.language.static import base_value, constexpr
from stator.tile.language.values import tensor

_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "add": arithmetic.add,
    "sub": arithmetic.sub,
    "mul": arithmetic.mul,
    "truediv": arithmetic.truediv,
    "floordiv": arithmetic.floordiv,
    "mod": arithmetic.mod,
    "and": arithmetic.and_,
    "or": arithmetic.or_,
    "xor": arithmetic.xor,
    "lshift": arithmetic.shl,
    "rshift": arithmetic.shr,
}
_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
_UNARY: dict[str, Callable[[Any], Any]] = {
    "neg": arithmetic.minus,
    "pos": arithmetic.plus,
    "invert": arithmetic.invert,
    "abs": math.abs,
}


def cdiv(x: Any, div: Any) -> Any:
    """The quotient of positive integers, rounded up."""
    return (x + (div - 1)) // div


def _method(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: tensor, *args: Any, **named: Any) -> Any:
        return function(self, *args, **named)

    method.__name__, method.__doc__ = name, function.__doc__
    return method


def _operator(function: Callable[[Any, Any], Any], swapped: bool = False) -> Callable[[tensor, Any], Any]:
    def method(self: tensor, other: Any) -> Any:
        if not _takes(other):
            return NotImplemented
        return function(other, self) if swapped else function(self, other)

    return method


def _takes(other: Any) -> bool:
    return isinstance(other, tensor | bool | int | float) or (
        isinstance(other, constexpr) and isinstance(other.value, bool | int | float)
    )


def _comparison(name: str) -> Callable[[tensor, Any], Any]:
    def method(self: tensor, other: Any) -> Any:
        if not _takes(other):
            if isinstance(other, base_value) or other is None:
                raise InvalidUse(f"a tensor cannot be compared with {other}", "`is None` asks for None")
            return NotImplemented
        return arithmetic.compare(name, self, other)

    return method


_METHODS: dict[str, Callable[..., Any]] = {
    "to": shapes.cast,
    "cast": shapes.cast,
    "logical_and": arithmetic.logical_and,
    "logical_or": arithmetic.logical_or,
    "__getitem__": shapes.subscript,
    "cdiv": cdiv,
    "store": memory.store,
    "sigmoid": reductions.sigmoid,
    "softmax": reductions.softmax,
}
_METHODS |= {
    name: getattr(shapes, name)
    for name in "broadcast_to expand_dims gather item permute ravel reshape split trans view".split()
}
_METHODS |= {
    name: getattr(reductions, name)
    for name in (
        "argmax argmin associative_scan cumprod cumsum flip histogram max min reduce reduce_or sort sum xor_sum".split()
    )
}
_METHODS |= {name: getattr(math, name) for name in "abs ceil cos erf exp exp2 floor log log2 rsqrt sin sqrt".split()}
_METHODS |= {
    name: getattr(memory, name)
    for name in "atomic_add atomic_and atomic_cas atomic_max atomic_min atomic_or atomic_xchg atomic_xor".split()
}
_METHODS["advance"] = block_pointers.advance

for _name, _call in _BINARY.items():
    setattr(tensor, f"__{_name}__", _operator(_call))
    setattr(tensor, f"__r{_name}__", _operator(_call, swapped=True))
for _name in _COMPARISONS:
    setattr(tensor, f"__{_name}__", _comparison(_name))
for _name, _negate in _UNARY.items():
    setattr(tensor, f"__{_name}__", _method(_name, _negate))
for _name, _function in _METHODS.items():
    setattr(tensor, _name, _method(_name, _function))
setattr(tensor, "T", property(shapes.trans))  # noqa: B010
