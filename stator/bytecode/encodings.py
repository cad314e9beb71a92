"""What a neutral instruction becomes: the words of the encoding tables, and the rows all versions share.

An encoding is a tuple of pieces, or a function of the neutral operand that gives one. A piece is a real instruction and
its argument as the library `bytecode` wants it; the pieces run in sequence. `IT` stands for the neutral operand. Slots
and jump targets have been resolved before. Neighbours: `rules.py` (the way back), `encode.py` (applies the tables).
"""

from __future__ import annotations

import dis
from collections.abc import Callable
from typing import Any, NamedTuple

from bytecode import BinaryOp, Compare


class It:
    """The neutral operand itself."""


IT = It()


class Piece(NamedTuple):
    """One real instruction; without an argument where it takes none."""

    name: str
    args: tuple[Any, ...] = ()


Pieces = tuple[Piece, ...]
Encoding = Pieces | Callable[[Any], Pieces]


def real(name: str, *args: Any) -> Pieces:
    return (Piece(name, args),)


def bare(*names: str) -> dict[str, Encoding]:
    """Instructions that keep their name and have no argument."""
    return {name: real(name) for name in names}


def keep(*names: str) -> dict[str, Encoding]:
    """Instructions that keep their name and their operand."""
    return {name: real(name, IT) for name in names}


def number(*names: str) -> dict[str, Encoding]:
    """Instructions whose operand is a flag."""
    return {name: (lambda arg, name=name: real(name, int(arg))) for name in names}  # type: ignore[misc]


def flagged(name: str) -> Encoding:
    """A name with a bit that asks for NULL or a method, which is never set: NULL has an instruction of its own."""
    return lambda arg: real(name, (False, arg))


def intrinsics(opcode: str, kinds: type, names: dict[int, str]) -> dict[str, Encoding]:
    return {name: real(opcode, kinds(value)) for value, name in names.items()}


BINARY = {symbol: BinaryOp(value) for value, (_, symbol) in enumerate(dis._nb_ops[:26])}  # type: ignore[attr-defined]
COMPARE = dict(zip(dis.cmp_op, Compare, strict=False))

#: Attributes of a new function, topmost on the stack first.
FUNCTION_ATTRIBUTES = (8, 4, 2, 1)

SHARED: dict[str, Encoding] = {
    **bare("NOP", "POP_TOP", "PUSH_NULL", "LOAD_ASSERTION_ERROR", "RETURN_VALUE"),
    **keep("COPY", "SWAP", "LOAD_CONST"),
    **keep("STORE_FAST", "DELETE_FAST", "MAKE_CELL", "LOAD_DEREF", "STORE_DEREF", "DELETE_DEREF"),
    # The frame's closure is copied once, by the code that starts it.
    "COPY_FREE_VARS": real("NOP"),
    "LOAD_GLOBAL": flagged("LOAD_GLOBAL"),
    **keep("STORE_GLOBAL", "DELETE_GLOBAL", "STORE_ATTR", "DELETE_ATTR", "IMPORT_NAME", "IMPORT_FROM"),
    **bare("UNARY_NEGATIVE", "UNARY_INVERT", "UNARY_NOT"),
    "BINARY_OP": lambda symbol: real("BINARY_OP", BINARY[symbol]),
    "INPLACE_OP": lambda symbol: real("BINARY_OP", BINARY[symbol + "="]),
    "COMPARE_OP": lambda symbol: real("COMPARE_OP", COMPARE[symbol]),
    **number("IS_OP", "CONTAINS_OP", "CALL_FUNCTION_EX"),
    **bare("BINARY_SUBSCR", "STORE_SUBSCR", "DELETE_SUBSCR", "GET_ITER"),
    **keep("FOR_ITER", "SEND", "JUMP_FORWARD", "JUMP_BACKWARD"),
    "JUMP": real("JUMP_FORWARD", IT),
    **keep("BUILD_TUPLE", "BUILD_LIST", "BUILD_SET", "BUILD_MAP", "BUILD_CONST_KEY_MAP", "BUILD_SLICE"),
    **keep("BUILD_STRING", "LIST_APPEND", "SET_ADD", "MAP_ADD", "LIST_EXTEND", "SET_UPDATE", "DICT_UPDATE"),
    **keep("DICT_MERGE", "UNPACK_SEQUENCE"),
    "UNPACK_EX": lambda ends: real("UNPACK_EX", ends[0] | ends[1] << 8),
    **bare("GET_LEN", "MATCH_MAPPING", "MATCH_SEQUENCE", "MATCH_KEYS"),
    **keep("MATCH_CLASS", "RAISE_VARARGS", "RERAISE"),
    **bare("PUSH_EXC_INFO", "POP_EXCEPT", "CHECK_EXC_MATCH", "BEFORE_WITH", "WITH_EXCEPT_START"),
    **bare("RETURN_GENERATOR", "GET_YIELD_FROM_ITER", "CHECK_EG_MATCH", "GET_AITER", "GET_ANEXT"),
    **bare("BEFORE_ASYNC_WITH", "END_ASYNC_FOR", "LOAD_BUILD_CLASS", "SETUP_ANNOTATIONS"),
    **keep("GET_AWAITABLE", "LOAD_NAME", "STORE_NAME", "DELETE_NAME"),
}


def keyword_call(arg: tuple[int, tuple[str, ...]]) -> Pieces:
    """CALL_KW of 3.12; 3.11 has one instruction more."""
    count, names = arg
    return (*real("KW_NAMES", names), *real("CALL", count))


def function(arg: tuple[Any, int]) -> Pieces:
    """MAKE_FUNCTION where the attributes are flags of the instruction."""
    code, flags = arg
    return (*real("LOAD_CONST", code), *real("MAKE_FUNCTION", flags))


#: FORMAT_VALUE of 3.11 and 3.12: a conversion in two bits, and whether a spec is on the stack.
FORMAT_VALUE: dict[str, Encoding] = {
    "FORMAT_SIMPLE": real("FORMAT_VALUE", IT),
    "FORMAT_WITH_SPEC": lambda conversion: real("FORMAT_VALUE", conversion | 4),
}
