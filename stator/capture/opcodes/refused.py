"""Why instructions are not interpreted: by the reason that their rows name, the sentence that the user reads."""

from __future__ import annotations

from stator.bytecode.opcodes import OPCODES
from stator.capture.machine import REFUSED

REASONS = {
    "async": "async code is not captured: await it outside of the compiled function",
    "class_body": "a class statement with annotations or type parameters runs inside the compiled function",
    "except_star": "'except*' is not supported",
    "generic": "type parameters and type aliases inside a function are not supported",
    "internal": "this instruction is internal to the interpreter and is never in a code object's own text",
    "module_body": "module-level code cannot be captured",
}

REFUSED.update({name: REASONS[row.refused] for name, row in OPCODES.items() if row.refused})
