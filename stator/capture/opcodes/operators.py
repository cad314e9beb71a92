"""Operators, comparisons and subscripts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stator.capture.machine import opcode

if TYPE_CHECKING:
    from stator.capture.machine import Handler, Machine


def _unary(op: str) -> Handler:
    def unary(tx: Machine, arg: None) -> None:
        stack: Any = tx.stack
        stack[-1] = tx.operators.unary(tx, op, stack[-1])

    return unary


opcode("UNARY_POSITIVE")(_unary("+"))
opcode("UNARY_NEGATIVE")(_unary("-"))
opcode("UNARY_INVERT")(_unary("~"))


@opcode("UNARY_NOT")
def unary_not(tx: Machine, arg: None) -> None:
    stack: Any = tx.stack
    stack[-1] = tx.build.const(not stack[-1].truth(tx))


@opcode("TO_BOOL")
def to_bool(tx: Machine, arg: None) -> None:
    stack: Any = tx.stack
    stack[-1] = tx.build.const(stack[-1].truth(tx))


@opcode("BINARY_OP")
def binary_op(tx: Machine, op: str) -> None:
    stack: Any = tx.stack
    right = stack.pop()
    stack[-1] = tx.operators.binary(tx, op, stack[-1], right)


@opcode("INPLACE_OP")
def inplace_op(tx: Machine, op: str) -> None:
    stack: Any = tx.stack
    right = stack.pop()
    stack[-1] = tx.operators.inplace(tx, op, stack[-1], right)


@opcode("COMPARE_OP")
def compare_op(tx: Machine, op: str) -> None:
    stack: Any = tx.stack
    right = stack.pop()
    stack[-1] = tx.operators.compare(tx, op, stack[-1], right)


@opcode("IS_OP")
def is_op(tx: Machine, inverted: bool) -> None:
    stack: Any = tx.stack
    right, left = stack.pop(), stack[-1]
    same = tx.operators.identical(tx, left, right)
    stack[-1] = tx.build.const(same is not inverted)


@opcode("CONTAINS_OP")
def contains_op(tx: Machine, inverted: bool) -> None:
    stack: Any = tx.stack
    container = stack.pop()
    found = tx.operators.contains(tx, stack[-1], container)
    stack[-1] = tx.build.const(not found.truth(tx)) if inverted else found


@opcode("BINARY_SUBSCR")
def binary_subscr(tx: Machine, arg: None) -> None:
    stack: Any = tx.stack
    key = stack.pop()
    stack[-1] = stack[-1].get_item(tx, key)


@opcode("STORE_SUBSCR")
def store_subscr(tx: Machine, arg: None) -> None:
    stack: Any = tx.stack
    key, container, value = stack.pop(), stack.pop(), stack.pop()
    container.set_item(tx, key, value)


@opcode("DELETE_SUBSCR")
def delete_subscr(tx: Machine, arg: None) -> None:
    stack: Any = tx.stack
    key, container = stack.pop(), stack.pop()
    container.del_item(tx, key)
