"""Instructions that only move items of the stack."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stator.capture.machine import opcode

if TYPE_CHECKING:
    from stator.capture.machine import Machine


@opcode("NOP")
def nop(tx: Machine, arg: None) -> None:
    """Nothing."""


@opcode("POP_TOP")
def pop_top(tx: Machine, arg: None) -> None:
    tx.stack.pop()


@opcode("COPY")
def copy(tx: Machine, count: int) -> None:
    stack = tx.stack
    stack.append(stack[-count])


@opcode("SWAP")
def swap(tx: Machine, count: int) -> None:
    stack = tx.stack
    stack[-1], stack[-count] = stack[-count], stack[-1]


@opcode("PUSH_NULL")
def push_null(tx: Machine, arg: None) -> None:
    tx.stack.append(None)
