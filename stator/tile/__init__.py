"""stator's Triton language: `import stator.tile as triton; import stator.tile.language as tl`.

Kernels written for Triton run unchanged. This file has the names that programs use; `language` has those of kernels.
Neighbours: `jit.py`, `autotune.py` and `testing.py`; docs/tile.md has the language on a page.
"""

from __future__ import annotations

from typing import Any

from stator.tile import language, runtime, testing, tools
from stator.tile.allocation import set_allocator
from stator.tile.autotune import Config, autotune, heuristics
from stator.tile.errors import CompilationError, InterpreterError, OutOfResources, TritonError
from stator.tile.jit import JITFunction, KernelInterface, constexpr_function, jit
from stator.tile.layouts.picture import show_layout
from stator.tile.wrappers import MockTensor, TensorWrapper, must_use_result, reinterpret

__all__ = [
    "CompilationError", "Config", "InterpreterError", "JITFunction", "KernelInterface", "MockTensor",
    "OutOfResources", "TensorWrapper", "TritonError", "autotune", "cdiv", "constexpr_function", "heuristics", "jit",
    "language", "must_use_result", "next_power_of_2", "reinterpret", "runtime", "set_allocator", "show_layout",
    "testing", "tools",
]  # fmt: skip


#: A name that Triton has and this does not → why.
REFUSED = {
    "AsyncCompileMode": "kernels are compiled where they are launched",
    "FutureKernel": "kernels are compiled where they are launched",
    "compile": "kernels are compiled where they are launched; `kernel.warmup(…)` gives a kernel's tile IR",
}


def __getattr__(name: str) -> Any:
    if name in REFUSED:
        raise AttributeError(f"triton.{name} is not supported: {REFUSED[name]}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


@constexpr_function
def cdiv(x: Any, y: Any) -> Any:
    """The quotient of positive integers, rounded up."""
    return -(-x // y)


@constexpr_function
def next_power_of_2(n: int) -> int:
    """The least power of 2 that is not less than a positive integer."""
    return 1 << (n - 1).bit_length() if n > 0 else 0
