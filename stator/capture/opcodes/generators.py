"""Yield, yield from and what generator functions start with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stator.capture.generators import GeneratorValue
from stator.capture.machine import opcode
from stator.capture.value import Raised

if TYPE_CHECKING:
    from stator.capture.machine import Machine
    from stator.capture.value import Value


@opcode("RETURN_GENERATOR")
def return_generator(tx: Machine, arg: None) -> None:
    """The generator exists already (`Machine.inline` makes it); this is its first resumption."""
    tx.stack.append(tx.session.none)


@opcode("YIELD_VALUE")
def yield_value(tx: Machine, arg: None) -> Value | None:
    return tx.stack.pop()


@opcode("GET_YIELD_FROM_ITER")
def get_yield_from_iter(tx: Machine, arg: None) -> None:
    stack: Any = tx.stack
    stack[-1] = stack[-1].iterate(tx)


@opcode("SEND")
def send(tx: Machine, target: int) -> None:
    stack: Any = tx.stack
    sent = stack.pop()
    receiver = stack[-1]
    result: Any = tx.session.none
    if isinstance(receiver, GeneratorValue):
        item = receiver.resume(tx, sent)
        result = receiver.result or result
    elif sent.is_none():
        item = receiver.next_item(tx)
    else:
        item = receiver.get_attr(tx, "send").call(tx, [sent], {})
    if item is None:
        stack[-1] = result
        tx.ip = target
    else:
        stack.append(item)


@opcode("END_SEND")
def end_send(tx: Machine, arg: None) -> None:
    del tx.stack[-2]


@opcode("CLEANUP_THROW")
def cleanup_throw(tx: Machine, arg: None) -> None:
    stack: Any = tx.stack
    exception = stack[-1]
    if not issubclass(exception.python_type(), StopIteration):
        raise Raised(exception)
    value = exception.get_attr(tx, "value")
    del stack[-3:]
    stack.append(None)
    stack.append(value)


@opcode("STOPITERATION_ERROR")
def stopiteration_error(tx: Machine, arg: None) -> None:
    stack: Any = tx.stack
    if issubclass(stack[-1].python_type(), StopIteration):
        stack[-1] = tx.build.make_exception(tx, RuntimeError, [tx.build.const("generator raised StopIteration")])
