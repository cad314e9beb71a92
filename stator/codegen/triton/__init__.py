"""Triton text for kernels: `emit(kernels)` gives one Python file that Triton compiles.

The file holds a `@triton.jit` function for each kernel, and in `LAUNCHES` what is needed to launch it.
Neighbours: `printer.py` writes functions of the kernel IR, `matmul.py` and `attention.py` others, `operators.py` is the
table of spellings; `kernel/` chose how each runs.
"""

from stator.codegen.triton.emit import Shape, emit, plan_of

__all__ = ["Shape", "emit", "plan_of"]
