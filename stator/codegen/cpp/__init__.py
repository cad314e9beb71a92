"""C++ code generation: kernels of `loop` to one translation unit with explicit vectors, no framework headers.

`emit(kernels, target)` is the way in. `target` says for which machine, `plan` decides how a kernel runs, `body` writes
expressions, `emit` the loops around them, `ops` holds the texts; the headers beside them are the unit's own library,
included as text.
"""

from stator.codegen.cpp.emit import emit, emit_units
from stator.codegen.cpp.target import Target, generic, native

__all__ = ["Target", "emit", "emit_units", "generic", "native"]
