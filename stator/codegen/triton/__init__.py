"""Triton text for kernels: `emit(kernels)` gives one Python file that Triton compiles.

The file holds a `@triton.jit` function for each kernel, and in `LAUNCHES` what is needed to launch it.
Neighbours: `printer.py` writes functions of the kernel IR, `matmul.py` those of products, `operators.py` is the table
of spellings; `kernel/blocks.py` chose the blocks, `kernel/matmul.py` the tiles.
"""

from stator.codegen.triton.emit import emit, plan_of

__all__ = ["emit", "plan_of"]
