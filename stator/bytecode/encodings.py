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

from stator.bytecode.opcodes import OPCODES, having


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


def _number(name: str) -> Encoding:
    return lambda arg: real(name, int(arg))


def _ends(name: str) -> Encoding:
    return lambda arg: real(name, arg[0] | arg[1] << 8)


def _as_it_is(name: str) -> Encoding:
    return real(name, IT)


#: How an instruction that keeps its name takes its operand, by the kind of that; the others take it as it is.
ENCODED: dict[str, Callable[[str], Encoding]] = {"-": real, "flag": _number, "ends": _ends}


def keep(*names: str) -> dict[str, Encoding]:
    """Instructions that keep their name, and have the operand that their row says."""
    return {each: ENCODED.get(OPCODES[each].operand, _as_it_is)(each) for each in names}


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
    **keep(*having("same")),
    # The frame's closure is copied once, by the code that starts it.
    "COPY_FREE_VARS": real("NOP"),
    "LOAD_GLOBAL": flagged("LOAD_GLOBAL"),
    "BINARY_OP": lambda symbol: real("BINARY_OP", BINARY[symbol]),
    "INPLACE_OP": lambda symbol: real("BINARY_OP", BINARY[symbol + "="]),
    "COMPARE_OP": lambda symbol: real("COMPARE_OP", COMPARE[symbol]),
    **keep("FOR_ITER", "SEND"),
    "JUMP": real("JUMP_FORWARD", IT),
    "JUMP_FORWARD": real("JUMP_FORWARD", IT),
    "JUMP_BACKWARD": real("JUMP_BACKWARD", IT),
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
