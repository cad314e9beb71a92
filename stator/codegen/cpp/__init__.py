"""C++ code generation: kernels of `loop` to one translation unit with explicit vectors, no framework headers.

`emit(kernels, device)` is the way in. `kernel/` decides how a kernel runs, `printer` writes its statements, `ops` holds
the texts; the headers beside them are the unit's own library, included as text.
"""

from stator.codegen.cpp.emit import FLAGS, emit, emit_units

__all__ = ["FLAGS", "emit", "emit_units"]
