"""Calls. A callable on the stack is two items: (callable, NULL), (NULL, callable) or (function, self)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stator.capture.machine import opcode

if TYPE_CHECKING:
    from stator.capture.machine import Machine
    from stator.capture.value import Value


def take(tx: Machine, count: int) -> tuple[Value, list[Value]]:
    """Pops the callable and `count` arguments."""
    stack: Any = tx.stack
    base = len(stack) - count
    args = stack[base:]
    second, first = stack[base - 1], stack[base - 2]
    del stack[base - 2 :]
    if first is None:
        return second, args
    if second is not None:
        args.insert(0, second)
    return first, args


@opcode("CALL")
def call(tx: Machine, count: int) -> None:
    function, args = take(tx, count)
    tx.stack.append(function.call(tx, args, {}))


@opcode("CALL_KW")
def call_kw(tx: Machine, arg: tuple[int, tuple[str, ...]]) -> None:
    count, names = arg
    function, args = take(tx, count)
    first = len(args) - len(names)
    kwargs = dict(zip(names, args[first:], strict=True))
    tx.stack.append(function.call(tx, args[:first], kwargs))


@opcode("CALL_FUNCTION_EX")
def call_function_ex(tx: Machine, has_mapping: bool) -> None:
    stack: Any = tx.stack
    mapping = stack.pop() if has_mapping else None
    sequence = stack.pop()
    function, _ = take(tx, 0)
    kwargs: dict[str, Value] = {}
    if mapping is not None:
        for key, value in mapping.pairs(tx):
            name = key.constant()
            if type(name) is not str:
                tx.raise_exception(TypeError, "keywords must be strings")
            kwargs[name] = value
    stack.append(function.call(tx, sequence.unpack(tx), kwargs))
