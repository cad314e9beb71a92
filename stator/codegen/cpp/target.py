"""What C++ is compiled for: vector width and compiler flags, from the processor's flags and the options.

Width is decided here once; emitted text only sees the number of bytes. That no library runs on a machine that lacks an
instruction it uses is `runtime/toolchain.py`'s concern, whose keys hold the processor.
"""

from __future__ import annotations

import platform
from dataclasses import dataclass
from functools import cache

from stator.base.processor import processor

# Vectors are explicit, so -O2 makes no kernel faster (measured) and compiles 1.7 times as long. Combining more than two
# instructions changes 0.2% of them, and takes half of the compiler's time where a kernel gathers much (measured).
# Without expensive optimizations gcc leaves the upper halves of vector registers as they are when a kernel returns or
# calls libm, and code without AVX, such as that of libm and Python, then takes up to ten times as long (AMD Zen 3).
FLAGS = (
    "-std=c++17", "-O1", "-fPIC", "-shared", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=off", "-fwrapv",
    "-fno-strict-aliasing", "-fno-exceptions", "-fno-rtti", "-fno-semantic-interposition", "-w",
    "-fexpensive-optimizations", "--param=max-combine-insns=2",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Target:
    """`vector_bytes` is the width of a register; `flags` all that the compiler is told.

    No kernel takes more than `threads`, where that is not 0, nor more than torch does.
    """

    vector_bytes: int
    flags: tuple[str, ...]
    threads: int = 0


@cache
def native() -> Target:
    """This machine."""
    flags = processor().flags
    if "avx512f" in flags and "avx512dq" in flags and "avx512vl" in flags:
        width = 64
    elif "avx2" in flags and "fma" in flags:
        width = 32
    else:
        width = 16
    arch = ("-march=native",) if platform.machine() in ("x86_64", "AMD64") else ("-mcpu=native",)
    wide = ("-mprefer-vector-width=512",) if width == 64 else ()
    return Target(width, (*FLAGS, *arch, *wide))


def generic(vector_bytes: int = 16) -> Target:
    """Any machine of this family."""
    return Target(vector_bytes, FLAGS)
