"""Instructions that capture does not interpret, each with the reason that the user reads."""

from __future__ import annotations

from stator.capture.machine import REFUSED

ASYNC = "async code is not captured: await it outside of the compiled function"
CLASS_BODY = "a class statement with annotations or type parameters runs inside the compiled function"
MODULE_BODY = "module-level code cannot be captured"
EXCEPT_STAR = "'except*' is not supported"
INTERNAL = "this instruction is internal to the interpreter and is never in a code object's own text"

REFUSED.update(
    {
        **dict.fromkeys(("GET_AWAITABLE", "GET_AITER", "GET_ANEXT", "BEFORE_ASYNC_WITH"), ASYNC),
        **dict.fromkeys(("END_ASYNC_FOR", "ASYNC_GEN_WRAP"), ASYNC),
        **dict.fromkeys(("SETUP_ANNOTATIONS", "LOAD_FROM_DICT_OR_GLOBALS"), CLASS_BODY),
        **dict.fromkeys(("CHECK_EG_MATCH", "PREP_RERAISE_STAR"), EXCEPT_STAR),
        **dict.fromkeys(("IMPORT_STAR", "PRINT_EXPR"), MODULE_BODY),
        **dict.fromkeys(("EXIT_INIT_CHECK", "INTERPRETER_EXIT", "ENTER_EXECUTOR", "RESERVED"), INTERNAL),
        "TYPE_PARAMETERS": "type parameters and type aliases inside a function are not supported",
    }
)
