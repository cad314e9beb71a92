"""Python 3.12: what its opcodes become."""

from __future__ import annotations

from bytecode.instr import Intrinsic1Op, Intrinsic2Op

from stator.bytecode import encodings
from stator.bytecode.encodings import (
    FORMAT_VALUE,
    IT,
    Encoding,
    flagged,
    function,
    intrinsics,
    keep,
    keyword_call,
    real,
)
from stator.bytecode.rules import (
    FUNCTION_FOLDS,
    NULL_BELOW,
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


def load_attr(null: Steps) -> Rule:
    """Bit 0: a method is loaded, and `null` puts NULL on its side of it."""
    load = emit("LOAD_ATTR", shifted_name(1))
    return when(1, (*load, *null), load)


def load_super_attr(null: Steps) -> Rule:
    """The same; bit 1: `super` was called with two arguments."""
    load = emit("LOAD_SUPER_ATTR", lambda code, arg, after: (code.co_names[arg >> 2], bool(arg & 2)))
    return when(1, (*load, *null), load)


#: What has its neutral name from 3.12 on.
KEPT_SINCE_312 = (
    "LOAD_FAST_AND_CLEAR", "LOAD_FROM_DICT_OR_DEREF", "LOAD_FROM_DICT_OR_GLOBALS", "END_SEND", "CLEANUP_THROW",
    "LOAD_LOCALS",
)  # fmt: skip

#: Rows that 3.12 and 3.13 share.
SINCE_312: dict[str, Rule] = {
    **SHARED,
    "LOAD_FAST_CHECK": emit("LOAD_FAST", raw),
    "BINARY_SLICE": (*SLICE, *emit("BINARY_SUBSCR")),
    "STORE_SLICE": (*SLICE, *emit("STORE_SUBSCR")),
    "RETURN_CONST": (*emit("LOAD_CONST", constant), *emit("RETURN_VALUE")),
    **{f"POP_JUMP_IF_{test}": emit(f"POP_JUMP_IF_{test}", forward()) for test in ("FALSE", "TRUE", "NONE", "NOT_NONE")},
    # The encoded target is END_SEND, whose work SEND has then done.
    "SEND": emit("SEND", forward(1)),
    **same(*KEPT_SINCE_312, "INTERPRETER_EXIT", "RESERVED"),
    "CALL_INTRINSIC_1": numbered("CALL_INTRINSIC_1", INTRINSIC_1),
    "CALL_INTRINSIC_2": numbered("CALL_INTRINSIC_2", INTRINSIC_2),
}

KINDS = {"CALL_INTRINSIC_1": Intrinsic1Op, "CALL_INTRINSIC_2": Intrinsic2Op}

ENCODINGS_SINCE_312: dict[str, Encoding] = {
    **encodings.SHARED,
    "LOAD_FAST": real("LOAD_FAST_CHECK", IT),
    **keep(*KEPT_SINCE_312),
    "LOAD_ATTR": flagged("LOAD_ATTR"),
    "LOAD_SUPER_ATTR": lambda arg: real("LOAD_SUPER_ATTR", (False, arg[1], arg[0])),
    **keep("POP_JUMP_IF_FALSE", "POP_JUMP_IF_TRUE", "POP_JUMP_IF_NONE", "POP_JUMP_IF_NOT_NONE"),
    **intrinsics("CALL_INTRINSIC_1", Intrinsic1Op, INTRINSIC_1),
    **intrinsics("CALL_INTRINSIC_2", Intrinsic2Op, INTRINSIC_2),
    "TYPE_PARAMETERS": lambda arg: real(arg[0], KINDS[arg[0]](arg[1])),
}

VERSION = Version(
    rules={
        **SINCE_312,
        **same("LOAD_CLOSURE"),
        "LOAD_ATTR": load_attr(NULL_BELOW),
        "LOAD_SUPER_ATTR": load_super_attr(NULL_BELOW),
        "LOAD_GLOBAL": when(1, (*NULL, *GLOBAL), GLOBAL),
        "COMPARE_OP": compare_op(4),
        # The encoded target is END_FOR, which is for generators run in line.
        "FOR_ITER": emit("FOR_ITER", forward(1)),
        "END_FOR": (),
        "KW_NAMES": emit("KW_NAMES", constant),
        "MAKE_FUNCTION": emit("MAKE_FUNCTION", raw),
        "FORMAT_VALUE": format_value,
    },
    folds={
        **FUNCTION_FOLDS,
        ("KW_NAMES", "CALL"): lambda names, count: ("CALL_KW", (count, names)),
    },
    encodings={
        **ENCODINGS_SINCE_312,
        **keep("LOAD_CLOSURE"),
        "TO_BOOL": (*real("UNARY_NOT"), *real("UNARY_NOT")),
        # The argument says how many handlers there are around it; with one, closing the generator does not resume it.
        "YIELD_VALUE": lambda delegating: (*real("YIELD_VALUE", 2), *real("RESUME", 1 + delegating)),
        "CALL_KW": keyword_call,
        "MAKE_FUNCTION": function,
        **FORMAT_VALUE,
    },
    landings={"FOR_ITER": real("END_FOR")},
)
