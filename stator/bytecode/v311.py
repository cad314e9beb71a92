"""Python 3.11: what its opcodes become."""

from __future__ import annotations

from stator.bytecode import encodings
from stator.bytecode.encodings import FORMAT_VALUE, IT, function, keep, real
from stator.bytecode.rules import (
    FUNCTION_FOLDS,
    NULL_BELOW,
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

#: What has its neutral name here, and another one later.
KEPT = (
    "UNARY_POSITIVE", "LIST_TO_TUPLE", "IMPORT_STAR", "PRINT_EXPR", "ASYNC_GEN_WRAP", "PREP_RERAISE_STAR",
    "LOAD_CLOSURE", "LOAD_CLASSDEREF", "LOAD_ATTR",
)  # fmt: skip

VERSION = Version(
    rules={
        **SHARED,
        **nothing("PRECALL"),
        **same(*KEPT),
        "LOAD_METHOD": (*emit("LOAD_ATTR", name), *NULL_BELOW),
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
    encodings={
        **encodings.SHARED,
        **keep(*KEPT),
        "TO_BOOL": (*real("UNARY_NOT"), *real("UNARY_NOT")),
        **{
            f"POP_JUMP_IF_{test}": real(f"POP_JUMP_FORWARD_IF_{test}", IT)
            for test in ("FALSE", "TRUE", "NONE", "NOT_NONE")
        },
        **{
            f"POP_JUMP_BACKWARD_IF_{test}": real(f"POP_JUMP_BACKWARD_IF_{test}", IT)
            for test in ("FALSE", "TRUE", "NONE", "NOT_NONE")
        },
        "YIELD_VALUE": lambda delegating: (*real("YIELD_VALUE"), *real("RESUME", 1 + delegating)),
        "CALL": (*real("PRECALL", IT), *real("CALL", IT)),
        "CALL_KW": lambda arg: (*real("KW_NAMES", arg[1]), *real("PRECALL", arg[0]), *real("CALL", arg[0])),
        "MAKE_FUNCTION": function,
        **FORMAT_VALUE,
    },
)
