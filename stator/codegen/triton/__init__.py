"""Triton text for kernels: `emit(kernels)` gives one Python file that Triton compiles.

The file holds a `@triton.jit` function for each kernel, and in `LAUNCHES` what is needed to launch it.
Neighbours: `printer.py` writes functions of the kernel IR, `operators.py` is the table of spellings;
`kernel/blocks.py` chose the blocks.
"""

from stator.codegen.triton.emit import emit

__all__ = ["emit"]
