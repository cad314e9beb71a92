"""Python 3.13: what its opcodes become."""

from __future__ import annotations

from types import CodeType

from bytecode.instr import FormatValue

from stator.bytecode.encodings import FUNCTION_ATTRIBUTES, IT, Pieces, keep, real
from stator.bytecode.rules import (
    FUNCTION_FOLDS,
    Version,
    compare_op,
    emit,
    fixed,
    forward,
    high,
    low,
    raw,
    same,
    shifted_name,
    when,
)
from stator.bytecode.v312 import ENCODINGS_SINCE_312, SINCE_312, load_attr, load_super_attr

NULL = emit("PUSH_NULL")
GLOBAL = emit("LOAD_GLOBAL", shifted_name(1))


def function(arg: tuple[CodeType, int]) -> Pieces:
    """MAKE_FUNCTION: attributes are set one by one, the topmost first."""
    code, flags = arg
    attributes = [real("SET_FUNCTION_ATTRIBUTE", bit) for bit in FUNCTION_ATTRIBUTES if flags & bit]
    return (*real("LOAD_CONST", code), *real("MAKE_FUNCTION"), *(piece for pieces in attributes for piece in pieces))


VERSION = Version(
    rules={
        **SINCE_312,
        "LOAD_FAST_LOAD_FAST": (*emit("LOAD_FAST", high), *emit("LOAD_FAST", low)),
        "STORE_FAST_LOAD_FAST": (*emit("STORE_FAST", high), *emit("LOAD_FAST", low)),
        "STORE_FAST_STORE_FAST": (*emit("STORE_FAST", high), *emit("STORE_FAST", low)),
        # NULL comes after the callable since 3.13.
        "LOAD_GLOBAL": when(1, (*GLOBAL, *NULL), GLOBAL),
        "COMPARE_OP": compare_op(5, bool_bit=16),
        "LOAD_ATTR": load_attr(NULL),
        "LOAD_SUPER_ATTR": load_super_attr(NULL),
        **same("TO_BOOL", "EXIT_INIT_CHECK"),
        "FORMAT_SIMPLE": emit("FORMAT_SIMPLE", fixed(0)),
        "FORMAT_WITH_SPEC": emit("FORMAT_WITH_SPEC", fixed(0)),
        **same("CONVERT_VALUE", "CALL_KW", "ENTER_EXECUTOR"),
        # The encoded target is END_FOR followed by POP_TOP, which are for generators run in line.
        "FOR_ITER": emit("FOR_ITER", forward(2)),
        "END_FOR": (),
        "MAKE_FUNCTION": emit("MAKE_FUNCTION", fixed(0)),
        "SET_FUNCTION_ATTRIBUTE": emit("SET_FUNCTION_ATTRIBUTE", raw),
    },
    folds={
        **FUNCTION_FOLDS,
        ("LOAD_CONST", "CALL_KW"): lambda names, count: ("CALL_KW", (count, names)),
        ("MAKE_FUNCTION", "SET_FUNCTION_ATTRIBUTE"): lambda made, bit: ("MAKE_FUNCTION", (made[0], made[1] | bit)),
    },
    encodings={
        **ENCODINGS_SINCE_312,
        "LOAD_CLOSURE": real("LOAD_FAST", IT),
        **keep("TO_BOOL"),
        "FORMAT_SIMPLE": real("FORMAT_SIMPLE"),
        "FORMAT_WITH_SPEC": real("FORMAT_WITH_SPEC"),
        "CONVERT_VALUE": lambda kind: real("CONVERT_VALUE", FormatValue(kind)),
        "YIELD_VALUE": lambda delegating: (*real("YIELD_VALUE", int(delegating)), *real("RESUME", 1 + delegating)),
        "CALL_KW": lambda arg: (*real("LOAD_CONST", arg[1]), *real("CALL_KW", arg[0])),
        "MAKE_FUNCTION": function,
    },
    landings={"FOR_ITER": (*real("END_FOR"), *real("POP_TOP"))},
    trailing={"END_FOR": 1},
)
