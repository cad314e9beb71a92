"""Python 3.13: what its opcodes become."""

from __future__ import annotations

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
from stator.bytecode.v312 import SINCE_312

NULL = emit("PUSH_NULL")
GLOBAL = emit("LOAD_GLOBAL", shifted_name(1))

VERSION = Version(
    rules={
        **SINCE_312,
        "LOAD_FAST_LOAD_FAST": (*emit("LOAD_FAST", high), *emit("LOAD_FAST", low)),
        "STORE_FAST_LOAD_FAST": (*emit("STORE_FAST", high), *emit("LOAD_FAST", low)),
        "STORE_FAST_STORE_FAST": (*emit("STORE_FAST", high), *emit("STORE_FAST", low)),
        # NULL comes after the callable since 3.13.
        "LOAD_GLOBAL": when(1, (*GLOBAL, *NULL), GLOBAL),
        "COMPARE_OP": compare_op(5, bool_bit=16),
        **same("TO_BOOL", "FORMAT_SIMPLE", "FORMAT_WITH_SPEC", "EXIT_INIT_CHECK"),
        **same("CONVERT_VALUE", "CALL_KW", "ENTER_EXECUTOR", operand=raw),
        # The encoded target is END_FOR followed by POP_TOP, which are for generators run in line.
        "FOR_ITER": emit("FOR_ITER", forward(2)),
        "END_FOR": emit("POP_TOP"),
        "MAKE_FUNCTION": emit("MAKE_FUNCTION", fixed(0)),
        "SET_FUNCTION_ATTRIBUTE": emit("SET_FUNCTION_ATTRIBUTE", raw),
    },
    folds={
        **FUNCTION_FOLDS,
        ("LOAD_CONST", "CALL_KW"): lambda names, count: ("CALL_KW", (count, names)),
        ("MAKE_FUNCTION", "SET_FUNCTION_ATTRIBUTE"): lambda made, bit: ("MAKE_FUNCTION", (made[0], made[1] | bit)),
    },
)
