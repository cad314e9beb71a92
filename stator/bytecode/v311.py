"""Python 3.11: what its opcodes become."""

from __future__ import annotations

from stator.bytecode.rules import (
    FUNCTION_FOLDS,
    SHARED,
    Version,
    backward,
    compare_op,
    constant,
    emit,
    fixed,
    format_value,
    forward,
    name,
    nothing,
    raw,
    same,
    shifted_name,
    when,
)

NULL = emit("PUSH_NULL")
GLOBAL = emit("LOAD_GLOBAL", shifted_name(1))

VERSION = Version(
    rules={
        **SHARED,
        **nothing("PRECALL"),
        **same("UNARY_POSITIVE", "LIST_TO_TUPLE", "IMPORT_STAR", "PRINT_EXPR", "ASYNC_GEN_WRAP", "PREP_RERAISE_STAR"),
        **same("LOAD_CLOSURE", "LOAD_CLASSDEREF", operand=raw),
        **same("LOAD_ATTR", "LOAD_METHOD", operand=name),
        "LOAD_GLOBAL": when(1, (*NULL, *GLOBAL), GLOBAL),
        "COMPARE_OP": compare_op(0),
        "JUMP_IF_FALSE_OR_POP": (
            *emit("COPY", fixed(1)),
            *emit("POP_JUMP_IF_FALSE", forward()),
            *emit("POP_TOP"),
        ),
        "JUMP_IF_TRUE_OR_POP": (
            *emit("COPY", fixed(1)),
            *emit("POP_JUMP_IF_TRUE", forward()),
            *emit("POP_TOP"),
        ),
        **{
            f"POP_JUMP_{way}_IF_{test}": emit(f"POP_JUMP_IF_{test}", target)
            for way, target in (("FORWARD", forward()), ("BACKWARD", backward))
            for test in ("FALSE", "TRUE", "NONE", "NOT_NONE")
        },
        "FOR_ITER": emit("FOR_ITER", forward()),
        "SEND": emit("SEND", forward()),
        "KW_NAMES": emit("KW_NAMES", constant),
        "MAKE_FUNCTION": emit("MAKE_FUNCTION", raw),
        "FORMAT_VALUE": format_value,
    },
    folds={
        **FUNCTION_FOLDS,
        ("KW_NAMES", "CALL"): lambda names, count: ("CALL_KW", (count, names)),
    },
)
