"""How control and the stack flow through neutral instructions.

`successors` gives where an instruction leads, `layouts` what the stack holds before each one: for every position
whether it is an ordinary item or what PUSH_EXC_INFO has put there. Invariant: a reachable instruction has one layout,
by whatever way it is reached, as the compiler guarantees. Neighbours: `liveness.py`, `continuation.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stator.base.errors import Unsupported
from stator.bytecode.encode import FINAL, JUMPS
from stator.bytecode.instructions import Decoded

#: What a position of the stack holds: anything, or the state of exception handling that POP_EXCEPT restores.
ITEM, HANDLED = "item", "handled"

Layout = tuple[str, ...]

Effect = tuple[int, int]


def _each(effect: Effect, names: str) -> dict[str, Effect]:
    return dict.fromkeys(names.split(), effect)


#: Items popped and pushed, where no jump is taken.
FIXED: dict[str, Effect] = {
    **_each((0, 0), "NOP DELETE_FAST MAKE_CELL COPY_FREE_VARS DELETE_GLOBAL DELETE_DEREF JUMP SETUP_ANNOTATIONS"),
    **_each((0, 0), "DELETE_NAME"),
    **_each((0, 1), "PUSH_NULL LOAD_CONST LOAD_FAST LOAD_FAST_AND_CLEAR LOAD_CLOSURE LOAD_DEREF LOAD_GLOBAL"),
    **_each((0, 1), "LOAD_ASSERTION_ERROR IMPORT_FROM FOR_ITER GET_LEN MATCH_MAPPING MATCH_SEQUENCE MATCH_KEYS"),
    **_each((0, 1), "WITH_EXCEPT_START RETURN_GENERATOR GET_ANEXT LOAD_BUILD_CLASS LOAD_NAME LOAD_LOCALS"),
    **_each((0, 1), "LOAD_CLASSDEREF"),
    **_each((1, 0), "POP_TOP STORE_FAST STORE_DEREF STORE_GLOBAL STORE_NAME DELETE_ATTR POP_EXCEPT RERAISE"),
    **_each((1, 0), "POP_JUMP_IF_FALSE POP_JUMP_IF_TRUE POP_JUMP_IF_NONE POP_JUMP_IF_NOT_NONE RETURN_VALUE"),
    **_each((1, 0), "LIST_APPEND SET_ADD LIST_EXTEND SET_UPDATE DICT_UPDATE DICT_MERGE"),
    **_each((1, 1), "LOAD_ATTR UNARY_POSITIVE UNARY_NEGATIVE UNARY_INVERT UNARY_NOT TO_BOOL GET_ITER LIST_TO_TUPLE"),
    **_each((1, 1), "CONVERT_VALUE FORMAT_SIMPLE CHECK_EXC_MATCH YIELD_VALUE GET_YIELD_FROM_ITER SEND"),
    **_each((1, 1), "STOPITERATION_ERROR GET_AWAITABLE GET_AITER ASYNC_GEN_WRAP LOAD_FROM_DICT_OR_DEREF"),
    **_each((1, 1), "LOAD_FROM_DICT_OR_GLOBALS"),
    **_each((1, 2), "PUSH_EXC_INFO BEFORE_WITH BEFORE_ASYNC_WITH"),
    **_each((2, 0), "STORE_ATTR DELETE_SUBSCR MAP_ADD END_ASYNC_FOR"),
    **_each((2, 1), "IMPORT_NAME BINARY_OP INPLACE_OP COMPARE_OP IS_OP CONTAINS_OP BINARY_SUBSCR FORMAT_WITH_SPEC"),
    **_each((2, 1), "END_SEND PREP_RERAISE_STAR"),
    **_each((2, 2), "CHECK_EG_MATCH"),
    **_each((3, 0), "STORE_SUBSCR"),
    **_each((3, 1), "LOAD_SUPER_ATTR MATCH_CLASS"),
    **_each((3, 2), "CLEANUP_THROW"),
}

#: The same, by operand.
BY_OPERAND: dict[str, Callable[[Any], Effect]] = {
    **dict.fromkeys(("BUILD_TUPLE", "BUILD_LIST", "BUILD_SET", "BUILD_SLICE", "BUILD_STRING"), lambda n: (n, 1)),
    "BUILD_MAP": lambda n: (2 * n, 1),
    "BUILD_CONST_KEY_MAP": lambda n: (n + 1, 1),
    "CALL": lambda n: (n + 2, 1),
    "CALL_KW": lambda arg: (arg[0] + 2, 1),
    "CALL_FUNCTION_EX": lambda mapping: (3 + mapping, 1),
    "MAKE_FUNCTION": lambda arg: (arg[1].bit_count(), 1),
    "UNPACK_SEQUENCE": lambda n: (1, n),
    "UNPACK_EX": lambda ends: (1, ends[0] + 1 + ends[1]),
    "RAISE_VARARGS": lambda n: (n, 0),
    "TYPE_PARAMETERS": lambda arg: (2, 1) if arg[0] == "CALL_INTRINSIC_2" else (1, 1),
}

#: Items popped and pushed on the way to the target of a jump, where it differs.
JUMPING: dict[str, Effect] = {"FOR_ITER": (1, 0), "SEND": (2, 1)}

#: Only code that is not a function's has these, or their effect depends on the version.
NOT_IN_FUNCTIONS = frozenset("IMPORT_STAR PRINT_EXPR EXIT_INIT_CHECK INTERPRETER_EXIT ENTER_EXECUTOR RESERVED".split())


def successors(decoded: Decoded, index: int) -> tuple[int, ...]:
    """The instructions that may follow, exceptions aside; a jump's target comes last."""
    name, arg = decoded.instructions[index]
    following = () if name in FINAL else (index + 1,)
    return (*following, arg) if name in JUMPS else following


def effect(name: str, arg: Any) -> Effect:
    """How many items an instruction pops and pushes when it does not jump."""
    found = FIXED.get(name)
    if found is not None:
        return found
    if name in BY_OPERAND:
        return BY_OPERAND[name](arg)
    raise Unsupported(name, "its effect on the stack is not described")


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
            jumps = name in JUMPING and target == arg
            waiting.append((target, _after(before, name, arg, JUMPING[name] if jumps else None)))
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
