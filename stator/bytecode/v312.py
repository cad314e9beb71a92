"""Python 3.12: what its opcodes become."""

from __future__ import annotations

from stator.bytecode.rules import (
    FUNCTION_FOLDS,
    SHARED,
    SLICE,
    Rule,
    Steps,
    Version,
    compare_op,
    constant,
    emit,
    format_value,
    forward,
    name,
    numbered,
    raw,
    same,
    shifted_name,
    when,
)

NULL = emit("PUSH_NULL")
GLOBAL = emit("LOAD_GLOBAL", shifted_name(1))

#: CALL_INTRINSIC_1 and _2 by number; the others make type parameters.
INTRINSIC_1 = {
    1: "PRINT_EXPR",
    2: "IMPORT_STAR",
    3: "STOPITERATION_ERROR",
    4: "ASYNC_GEN_WRAP",
    5: "UNARY_POSITIVE",
    6: "LIST_TO_TUPLE",
}
INTRINSIC_2 = {1: "PREP_RERAISE_STAR"}


def load_super_attr(arg: int) -> Steps:
    """Bit 0: a method is loaded, bit 1: `super` was called with two arguments."""
    load = emit("LOAD_SUPER_ATTR", lambda code, arg, after: (code.co_names[arg >> 2], bool(arg & 2)))
    return (*load, *NULL) if arg & 1 else load


#: Rows that 3.12 and 3.13 share.
SINCE_312: dict[str, Rule] = {
    **SHARED,
    "LOAD_ATTR": when(1, emit("LOAD_METHOD", shifted_name(1)), emit("LOAD_ATTR", shifted_name(1))),
    "LOAD_SUPER_ATTR": load_super_attr,
    "LOAD_FAST_CHECK": emit("LOAD_FAST", raw),
    **same("LOAD_FAST_AND_CLEAR", operand=raw),
    "BINARY_SLICE": (*SLICE, *emit("BINARY_SUBSCR")),
    "STORE_SLICE": (*SLICE, *emit("STORE_SUBSCR")),
    "RETURN_CONST": (*emit("LOAD_CONST", constant), *emit("RETURN_VALUE")),
    **{f"POP_JUMP_IF_{test}": emit(f"POP_JUMP_IF_{test}", forward()) for test in ("FALSE", "TRUE", "NONE", "NOT_NONE")},
    # The encoded target is END_SEND, whose work SEND has then done.
    "SEND": emit("SEND", forward(1)),
    **same("END_SEND", "CLEANUP_THROW", "LOAD_LOCALS", "INTERPRETER_EXIT", "RESERVED"),
    **same("LOAD_FROM_DICT_OR_DEREF", operand=raw),
    **same("LOAD_FROM_DICT_OR_GLOBALS", operand=name),
    "CALL_INTRINSIC_1": numbered(INTRINSIC_1, "TYPE_PARAMETERS"),
    "CALL_INTRINSIC_2": numbered(INTRINSIC_2, "TYPE_PARAMETERS"),
}

VERSION = Version(
    rules={
        **SINCE_312,
        **same("LOAD_CLOSURE", operand=raw),
        "LOAD_GLOBAL": when(1, (*NULL, *GLOBAL), GLOBAL),
        "COMPARE_OP": compare_op(4),
        # The encoded target is END_FOR, which is for generators run in line.
        "FOR_ITER": emit("FOR_ITER", forward(1)),
        "END_FOR": (*emit("POP_TOP"), *emit("POP_TOP")),
        "KW_NAMES": emit("KW_NAMES", constant),
        "MAKE_FUNCTION": emit("MAKE_FUNCTION", raw),
        "FORMAT_VALUE": format_value,
    },
    folds={
        **FUNCTION_FOLDS,
        ("KW_NAMES", "CALL"): lambda names, count: ("CALL_KW", (count, names)),
    },
)
