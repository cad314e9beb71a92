"""Jumps, loops and the end of a frame."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stator.capture import assertions
from stator.capture.machine import TooLong, opcode

if TYPE_CHECKING:
    from stator.capture.machine import Machine
    from stator.capture.value import Value


@opcode("JUMP")
def jump(tx: Machine, target: int) -> None:
    if target < tx.ip:
        tx.session.jumps -= 1
        if tx.session.jumps < 0:
            raise TooLong("a loop runs too often to be unrolled", "loop over tensors, not over Python numbers")
    tx.ip = target


@opcode("POP_JUMP_IF_FALSE")
def pop_jump_if_false(tx: Machine, target: int) -> None:
    if not assertions.truth(tx, tx.stack.pop(), target, False):  # type: ignore[arg-type]
        jump(tx, target)


@opcode("POP_JUMP_IF_TRUE")
def pop_jump_if_true(tx: Machine, target: int) -> None:
    if assertions.truth(tx, tx.stack.pop(), target, True):  # type: ignore[arg-type]
        jump(tx, target)


@opcode("POP_JUMP_IF_NONE")
def pop_jump_if_none(tx: Machine, target: int) -> None:
    if tx.stack.pop().is_none():  # type: ignore[union-attr]
        jump(tx, target)


@opcode("POP_JUMP_IF_NOT_NONE")
def pop_jump_if_not_none(tx: Machine, target: int) -> None:
    if not tx.stack.pop().is_none():  # type: ignore[union-attr]
        jump(tx, target)


@opcode("GET_ITER")
def get_iter(tx: Machine, arg: None) -> None:
    stack: Any = tx.stack
    stack[-1] = stack[-1].iterate(tx)


@opcode("FOR_ITER")
def for_iter(tx: Machine, target: int) -> None:
    stack: Any = tx.stack
    item = stack[-1].next_item(tx)
    if item is None:
        stack.pop()
        tx.ip = target
    else:
        stack.append(item)


@opcode("RETURN_VALUE")
def return_value(tx: Machine, arg: None) -> Value | None:
    tx.finished = True
    return tx.stack.pop()
