"""How control and the stack flow through neutral instructions.

`successors` gives where an instruction leads, `layouts` what the stack holds before each one: for every position
whether it is an ordinary item or what PUSH_EXC_INFO has put there. Invariant: a reachable instruction has one layout,
by whatever way it is reached, as the compiler guarantees. Neighbours: `liveness.py`, `continuation.py`.
"""

from __future__ import annotations

from typing import Any

from stator.base.errors import Unsupported
from stator.bytecode.encode import FINAL, JUMPS
from stator.bytecode.instructions import Decoded
from stator.bytecode.opcodes import OPCODES, Effect

#: What a position of the stack holds: anything, or the state of exception handling that POP_EXCEPT restores.
ITEM, HANDLED = "item", "handled"

Layout = tuple[str, ...]

#: Items popped and pushed, where no jump is taken and the operand says nothing about it.
_FIXED: dict[str, Effect] = {
    name: row.stack[:2]
    for name, row in OPCODES.items()
    if row.stack and not (row.stack.popped_each or row.stack.pushed_each)
}


def successors(decoded: Decoded, index: int) -> tuple[int, ...]:
    """The instructions that may follow, exceptions aside; a jump's target comes last."""
    name, arg = decoded.instructions[index]
    following = () if name in FINAL else (index + 1,)
    return (*following, arg) if name in JUMPS else following


def effect(name: str, arg: Any) -> Effect:
    """How many items an instruction pops and pushes when it does not jump."""
    found = _FIXED.get(name) or OPCODES[name].effect(arg)
    if found is None:
        raise Unsupported(name, "its effect on the stack depends on the version of Python")
    return found


def layouts(decoded: Decoded) -> tuple[Layout | None, ...]:
    """The stack before each instruction; None for one that cannot be reached."""
    if decoded.layouts is None:
        decoded.layouts = _layouts(decoded)
    return decoded.layouts


def _layouts(decoded: Decoded) -> tuple[Layout | None, ...]:
    found: list[Layout | None] = [None] * len(decoded.instructions)
    waiting: list[tuple[int, Layout]] = [(0, ())]
    while waiting:
        index, before = waiting.pop()
        if found[index] is not None:
            continue
        found[index] = before
        name, arg = decoded.instructions[index]
        block = decoded.block_at(index)
        if block is not None:
            pushed = (ITEM,) * (1 + block.lasti)
            waiting.append((block.target, (*before[: block.depth], *pushed)))
        for target in successors(decoded, index):
            jumping = OPCODES[name].jumping if target == arg else None
            waiting.append((target, _after(before, name, arg, jumping)))
    return tuple(found)


def pushed_by(decoded: Decoded, start: int, position: int) -> int | None:
    """Which instruction, in the order of the text, pushed what stands at a position of the stack before `start`."""
    found = layouts(decoded)
    for index in range(start - 1, -1, -1):
        before = found[index]
        if before is None:
            continue
        depth, (name, arg) = len(before), decoded.instructions[index]
        if name == "SWAP":
            position = {depth - 1: depth - arg, depth - arg: depth - 1}.get(position, position)
        elif name == "COPY":
            position = depth - arg if position == depth else position
        else:
            popped, pushed = effect(name, arg)
            if 0 <= position - (depth - popped) < pushed:
                return index
    return None


def _after(before: Layout, name: str, arg: Any, jumping: Effect | None) -> Layout:
    match name:
        case "SWAP":
            stack = list(before)
            stack[-1], stack[-arg] = stack[-arg], stack[-1]
            return tuple(stack)
        case "COPY":
            return (*before, ITEM)
        case "PUSH_EXC_INFO":
            return (*before[:-1], HANDLED, ITEM)
    popped, pushed = jumping or effect(name, arg)
    assert popped <= len(before), f"{name} {arg} pops {popped} of {len(before)}"
    return (*before[: len(before) - popped], *(ITEM,) * pushed)
