"""Where ways of a kernel meet: the one type that a name has afterwards, whichever way was gone.

Values that are equal and known stay known. A number that is known takes the type of the tensor that it meets; two
different ones become a tensor. Tuples meet item by item. Anything else has to be of one type already.
Neighbours: `branches.py` and `loops.py`, which say which name it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stator.tile.errors import InvalidUse
from stator.tile.frontend.generator import Undefined, same_type
from stator.tile.language.promotion import is_number, number_type, typed_constant
from stator.tile.language.static import base_type, base_value, constexpr, constexpr_type, unwrap
from stator.tile.language.types import dtype, tuple_type
from stator.tile.language.values import tensor, tuple, type_of


def _same_known(a: Any, b: Any) -> bool:
    a, b = unwrap(a), unwrap(b)
    return a is b or (type(a) is type(b) and bool(a == b))


def common_type(values: Sequence[Any]) -> base_type:
    """The type that values of several ways have where they meet; `InvalidUse` says why they have none."""
    undefined = [value for value in values if isinstance(value, Undefined)]
    if undefined:
        raise InvalidUse(undefined[0].why, undefined[0].hint)
    first = values[0]
    if all(isinstance(value, tuple) and len(value) == len(first) for value in values):
        fields = first.type
        return tuple_type([common_type(items) for items in zip(*values, strict=True)], fields.fields, fields.made_by)
    known = [value for value in values if _is_known(value)]
    if len(known) == len(values) and all(_same_known(value, first) for value in known):
        return constexpr_type(unwrap(first))
    given = [type_of(value) for value in values if not _is_known(value)]
    types = given or [_number_type(value) for value in known]
    for type in types[1:]:
        if not same_type(types[0], type):
            raise InvalidUse(f"{types[0]} in one and {type} in another")
    _check_numbers(known, types[0])
    return types[0]


def _is_known(value: Any) -> bool:
    return not isinstance(value, base_value) or isinstance(value, constexpr)


def _number_type(value: Any) -> dtype:
    if not is_number(value):
        raise InvalidUse(f"{unwrap(value)!r} in one and something else in another")
    return number_type(unwrap(value))


def _check_numbers(known: Sequence[Any], type: Any) -> None:
    """Numbers that are known can become tensors of a scalar type of their kind or a greater one."""
    for value in known:
        if not is_number(value) or not isinstance(type, dtype) or type.is_block() or type.is_ptr():
            raise InvalidUse(f"{type} in one and {unwrap(value)!r} in another")
        if number_type(unwrap(value)).kind().value > type.kind().value:
            raise InvalidUse(f"{type} in one and {unwrap(value)!r} in another", "cast the tensor")


def handles_as(value: Any, type: base_type) -> list[Any]:
    """The handles of a value as one of a common type; numbers that are known are made tensors here."""
    match type:
        case constexpr_type():
            return []
        case tuple_type():
            parts = zip(value, type.types, strict=True)
            return [handle for item, item_type in parts for handle in handles_as(item, item_type)]
        case dtype() if not isinstance(value, tensor):
            return typed_constant(value, type).handles()
    found: list[Any] = value.handles()
    return found
