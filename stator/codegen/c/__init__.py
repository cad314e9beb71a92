"""Plain C: kernels as loops over single elements, for compilers without vector extensions and for reading.

`emit` prints functions of the kernel IR; `spelling` has how operators are written, `scalar.h` what they call.
"""

from stator.codegen.c.emit import FLAGS, emit

__all__ = ["FLAGS", "emit"]
