"""Where NVIDIA's library of functions for kernels lies, as bitcode of LLVM: it comes with CUDA and with Triton.

Neighbours: `stator.tile.nvidia.libdevice` links it into kernels; `binaries` has it in the keys of what it files.
"""

from __future__ import annotations

import hashlib
import os
from functools import cache
from importlib.util import find_spec
from pathlib import Path

_NAME = "libdevice.10.bc"


@cache
def place() -> Path | None:
    """What STATOR_LIBDEVICE says (nothing, if that is empty), an installed Triton's, or that of CUDA_HOME."""
    told = os.environ.get("STATOR_LIBDEVICE")
    if told is not None:
        return Path(told) if told else None
    folders = []
    found = find_spec("triton")
    if found is not None and found.origin is not None:
        folders.append(Path(found.origin).parent / "backends" / "nvidia" / "lib")
    for home in (os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"):
        if home:
            folders.append(Path(home) / "nvvm" / "libdevice")
    return next((folder / _NAME for folder in folders if (folder / _NAME).is_file()), None)


@cache
def digest() -> str:
    """Of its content; nothing where there is none."""
    found = place()
    return "" if found is None else hashlib.sha256(found.read_bytes()).hexdigest()
