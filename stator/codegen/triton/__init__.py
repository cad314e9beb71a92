"""Triton text for kernels: `emit(kernels)` gives one Python file that Triton compiles.

The file holds a `@triton.jit` function `k<i>` for each kernel and a plain function `launch_k<i>(*tensors)` that runs
it with the blocks chosen here. What is fused was decided in `loop`; nothing here changes it.
Neighbours: `kernel.py` writes one kernel, `blocks.py` chooses its shape, `operators.py` is the table of spellings.
"""

from stator.codegen.triton.blocks import Blocks, choose
from stator.codegen.triton.kernel import checks_indices, emit, emit_kernel

__all__ = ["Blocks", "checks_indices", "choose", "emit", "emit_kernel"]
