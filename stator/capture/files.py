"""Whose code a file holds: torch's, stator's, the standard library's, or a program's.

Invariant: what is installed beside the standard library is not of it. Neighbours: `hook.py` (which frames are
captured), `recovery.py` (whose exception it is).
"""

from __future__ import annotations

import functools
import os
import sysconfig
from typing import Final

import torch


def _folder(path: str) -> str:
    return os.path.realpath(path) + os.sep


TORCH: Final = _folder(os.path.dirname(torch.__file__))
_STATOR: Final = _folder(os.path.dirname(os.path.dirname(__file__)))
_STANDARD: Final = tuple({_folder(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib")})

#: Below the standard library's folder, but not of it.
_INSTALLED: Final = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")

#: Modules that are part of the interpreter.
_FROZEN: Final = "<frozen "


@functools.lru_cache(maxsize=4096)
def real(path: str) -> str:
    """The path of a file as it is compared here."""
    return path if path.startswith("<") else os.path.realpath(path)


def of_torch(path: str) -> bool:
    """Whether the file is torch's."""
    return real(path).startswith(TORCH)


def of_stator(path: str) -> bool:
    """Whether the file is ours."""
    return real(path).startswith(_STATOR)


def of_standard_library(path: str) -> bool:
    """Whether the file is Python's own."""
    found = real(path)
    if found.startswith(_FROZEN):
        return True
    return found.startswith(_STANDARD) and not any(folder in found for folder in _INSTALLED)
