"""Function definitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stator.capture.machine import opcode

if TYPE_CHECKING:
    from types import CodeType

    from stator.capture.machine import Machine

DEFAULTS, KEYWORD_DEFAULTS, ANNOTATIONS, CLOSURE = 1, 2, 4, 8


@opcode("MAKE_FUNCTION")
def make_function(tx: Machine, arg: tuple[CodeType, int]) -> None:
    code, flags = arg
    stack: Any = tx.stack
    closure = stack.pop().unpack(tx) if flags & CLOSURE else []
    annotations = stack.pop() if flags & ANNOTATIONS else None
    keywords = stack.pop().pairs(tx) if flags & KEYWORD_DEFAULTS else []
    defaults = stack.pop().unpack(tx) if flags & DEFAULTS else []
    keyword_defaults = {name.constant(): value for name, value in keywords}
    made = tx.build.make_function(tx, code, code.co_qualname, closure, defaults, keyword_defaults, annotations)
    stack.append(made)
