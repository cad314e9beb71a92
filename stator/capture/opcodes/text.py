"""f-strings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stator.base.errors import GraphBreak
from stator.capture.machine import opcode
from stator.capture.opcodes.containers import take

if TYPE_CHECKING:
    from stator.capture.machine import Machine
    from stator.capture.value import Value

CONVERSIONS = {1: str, 2: repr, 3: ascii}


class UnknownText(GraphBreak):
    """An f-string contains something whose text is not known while capturing."""


def formatted(tx: Machine, value: Value, *spec: Value) -> Value:
    """`format(value, spec)`."""
    if not spec and value.python_type() is str:
        return value
    return tx.builtin(format).call(tx, [value, *spec], {})


@opcode("CONVERT_VALUE")
def convert_value(tx: Machine, kind: int) -> None:
    stack: Any = tx.stack
    stack[-1] = tx.builtin(CONVERSIONS[kind]).call(tx, [stack[-1]], {})


@opcode("FORMAT_SIMPLE")
def format_simple(tx: Machine, conversion: int) -> None:
    if conversion:
        convert_value(tx, conversion)
    stack: Any = tx.stack
    stack[-1] = formatted(tx, stack[-1])


@opcode("FORMAT_WITH_SPEC")
def format_with_spec(tx: Machine, conversion: int) -> None:
    stack: Any = tx.stack
    spec = stack.pop()
    if conversion:
        convert_value(tx, conversion)
    stack[-1] = formatted(tx, stack[-1], spec)


@opcode("BUILD_STRING")
def build_string(tx: Machine, count: int) -> None:
    parts = take(tx, count)
    unknown = next((part for part in parts if not part.is_constant() and part.python_type() is str), None)
    if unknown is not None:  # so is every text made of it
        tx.stack.append(tx.builtin(repr).call(tx, [unknown], {}))
        return
    if not all(part.is_constant() for part in parts):
        raise UnknownText("the text of an f-string is not known while compiling", "build the message outside")
    tx.stack.append(tx.build.const("".join(part.constant() for part in parts)))
