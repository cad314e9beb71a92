"""Displays, comprehensions and unpacking."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stator.capture.machine import opcode
from stator.capture.value import Raised
from stator.capture.values.lookup import MISSING, look_up
from stator.capture.values.methods import type_name

if TYPE_CHECKING:
    from stator.capture.machine import Machine
    from stator.capture.value import Value


def take(tx: Machine, count: int) -> list[Any]:
    """Pops `count` items, the deepest first."""
    if not count:
        return []
    stack = tx.stack
    items = stack[-count:]
    del stack[-count:]
    return items


@opcode("BUILD_TUPLE")
def build_tuple(tx: Machine, count: int) -> None:
    tx.stack.append(tx.build.make_tuple(take(tx, count)))


@opcode("BUILD_LIST")
def build_list(tx: Machine, count: int) -> None:
    tx.stack.append(tx.build.make_list(take(tx, count)))


@opcode("BUILD_SET")
def build_set(tx: Machine, count: int) -> None:
    tx.stack.append(tx.build.make_set(tx, take(tx, count)))


@opcode("BUILD_MAP")
def build_map(tx: Machine, count: int) -> None:
    items = take(tx, 2 * count)
    tx.stack.append(tx.build.make_dict(tx, list(zip(items[::2], items[1::2], strict=True))))


@opcode("BUILD_CONST_KEY_MAP")
def build_const_key_map(tx: Machine, count: int) -> None:
    keys: Any = tx.stack.pop()
    const = tx.build.const
    pairs = [(const(key), value) for key, value in zip(keys.constant(), take(tx, count), strict=True)]
    tx.stack.append(tx.build.make_dict(tx, pairs))


@opcode("BUILD_SLICE")
def build_slice(tx: Machine, count: int) -> None:
    start, stop, *step = take(tx, count)
    tx.stack.append(tx.build.make_slice(start, stop, *(step or [tx.session.none])))


@opcode("LIST_APPEND", "SET_ADD")
def add_item(tx: Machine, depth: int) -> None:
    stack: Any = tx.stack
    item = stack.pop()
    stack[-depth].add_item(tx, item)


@opcode("MAP_ADD")
def map_add(tx: Machine, depth: int) -> None:
    stack: Any = tx.stack
    value, key = stack.pop(), stack.pop()
    stack[-depth].set_item(tx, key, value)


@opcode("LIST_EXTEND", "SET_UPDATE")
def add_items(tx: Machine, depth: int) -> None:
    stack: Any = tx.stack
    value = stack.pop()
    target = stack[-depth]
    if target.python_type() is list:
        check_iterable(tx, value, "Value after * must be an iterable, not {}")
    for item in value.unpack(tx):
        target.add_item(tx, item)


@opcode("DICT_UPDATE")
def dict_update(tx: Machine, depth: int) -> None:
    stack: Any = tx.stack
    mapping = stack.pop()
    target = stack[-depth]
    if not is_mapping(tx, mapping):
        tx.raise_exception(TypeError, f"{type_name(mapping.python_type())!r} object is not a mapping")
    for key, value in mapping.pairs(tx):
        target.set_item(tx, key, value)


def check_iterable(tx: Machine, value: Value, text: str) -> None:
    """Raises the TypeError of an instruction that wants an iterable."""
    cls = value.python_type()
    if look_up(tx, cls, "__getitem__") is MISSING and look_up(tx, cls, "__iter__") in (None, MISSING):
        tx.raise_exception(TypeError, text.format(type_name(cls)))


def is_mapping(tx: Machine, value: Value) -> bool:
    """Whether `**value` may be written: whether it has `keys`."""
    if look_up(tx, value.python_type(), "keys") is not MISSING:
        return True
    if not value.python_type().__dictoffset__ and look_up(tx, value.python_type(), "__getattr__") is MISSING:
        return False
    try:
        value.get_attr(tx, "keys")
    except Raised as raised:
        if issubclass(raised.value.python_type(), AttributeError):
            return False
        raise
    return True


@opcode("DICT_MERGE")
def dict_merge(tx: Machine, depth: int) -> None:
    """`f(**a, **b)`: a key that is there already is an error."""
    stack: Any = tx.stack
    mapping = stack.pop()
    target = stack[-depth]
    if not is_mapping(tx, mapping):
        kind = type_name(mapping.python_type())
        function = _function_text(stack[: len(stack) - depth])
        tx.raise_exception(TypeError, f"{function} argument after ** must be a mapping, not {kind}")
    for key, value in mapping.pairs(tx):
        if target.contains(tx, key).truth(tx):
            name = _function_text(stack[: len(stack) - depth])
            tx.raise_exception(TypeError, f"{name} got multiple values for keyword argument {key.constant()!r}")
        target.set_item(tx, key, value)


def _function_text(stack: list[Value | None]) -> str:
    """How CPython names the function that a call under construction is for."""
    # Below the dict are the positional arguments, then the callable with its NULL before or after.
    function: Any = stack[-2] if stack[-2] is not None else stack[-3]
    owner = function.constant() if function.is_constant() else function
    if owner is not function:
        module, name = getattr(owner, "__module__", None), getattr(owner, "__qualname__", None)
    elif hasattr(function, "globals"):
        module, name = function.globals.get("__name__"), function.qualname
    else:
        raise function.refuse("its text in an error")
    return f"{name}()" if module in (None, "builtins") else f"{module}.{name}()"


@opcode("LIST_TO_TUPLE")
def list_to_tuple(tx: Machine, arg: None) -> None:
    stack: Any = tx.stack
    stack[-1] = tx.build.make_tuple(stack[-1].unpack(tx))


@opcode("UNPACK_SEQUENCE")
def unpack_sequence(tx: Machine, count: int) -> None:
    value: Any = tx.stack.pop()
    items = _up_to(tx, value, count + 1)
    if len(items) < count:
        tx.raise_exception(ValueError, f"not enough values to unpack (expected {count}, got {len(items)})")
    if len(items) > count:
        tx.raise_exception(ValueError, f"too many values to unpack (expected {count})")
    tx.stack.extend(reversed(items))


def _up_to(tx: Machine, value: Value, count: int) -> list[Value]:
    """The first items of an iterable; an iterator is not asked for more than `count`."""
    if value.python_type() in (tuple, list):
        return value.unpack(tx)
    check_iterable(tx, value, "cannot unpack non-iterable {} object")
    iterator = value.iterate(tx)
    items: list[Value] = []
    while len(items) < count and (item := iterator.next_item(tx)) is not None:
        items.append(item)
    return items


@opcode("UNPACK_EX")
def unpack_ex(tx: Machine, arg: tuple[int, int]) -> None:
    before, after = arg
    value: Any = tx.stack.pop()
    check_iterable(tx, value, "cannot unpack non-iterable {} object")
    items = list(value.unpack(tx))
    if len(items) < before + after:
        text = f"not enough values to unpack (expected at least {before + after}, got {len(items)})"
        tx.raise_exception(ValueError, text)
    end = len(items) - after
    tx.stack.extend(reversed(items[end:]))
    tx.stack.append(tx.build.make_list(items[before:end]))
    tx.stack.extend(reversed(items[:before]))
