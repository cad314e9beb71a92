"""Whose code a file holds: torch's, stator's, the standard library's, generated, or a program's.

Invariant: what is installed beside the standard library is not of it, and torch is found without being imported.
Neighbours: `capture/hook.py` (which frames are captured), `capture/recovery.py` and `aot/runtime.py` (whose exception
it is).
"""

from __future__ import annotations

import functools
import os
import sysconfig
from collections.abc import Iterator
from importlib.util import find_spec
from types import CodeType
from typing import Final


def _folder(path: str) -> str:
    return os.path.realpath(path) + os.sep


def _torch() -> str:
    spec = find_spec("torch")
    return _folder(os.path.dirname(spec.origin)) if spec is not None and spec.origin else os.devnull


TORCH: Final = _torch()
_STATOR: Final = _folder(os.path.dirname(os.path.dirname(__file__)))
#: What it compiles are programs, like a user's.
_COVERAGE: Final = os.path.join(_STATOR, "coverage", "")
_STANDARD: Final = tuple({_folder(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib")})

#: Below the standard library's folder, but not of it.
_INSTALLED: Final = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")

#: Modules that are part of the interpreter.
_FROZEN: Final = "<frozen "

#: What backends make of graphs.
_GENERATED: Final = ("<stator ", "<eval_with_key>")


@functools.lru_cache(maxsize=4096)
def real(path: str) -> str:
    """The path of a file as it is compared here."""
    return path if path.startswith("<") else os.path.realpath(path)


def of_torch(path: str) -> bool:
    """Whether the file is torch's."""
    return real(path).startswith(TORCH)


def of_stator(path: str) -> bool:
    """Whether the file is ours."""
    found = real(path)
    return found.startswith(_STATOR) and not found.startswith(_COVERAGE)


def of_standard_library(path: str) -> bool:
    """Whether the file is Python's own."""
    found = real(path)
    if found.startswith(_FROZEN):
        return True
    return found.startswith(_STANDARD) and not any(folder in found for folder in _INSTALLED)


def passed(error: BaseException) -> Iterator[CodeType]:
    """The code that an exception has passed through below where it was caught, outermost first."""
    step = error.__traceback__.tb_next if error.__traceback__ is not None else None
    while step is not None:
        yield step.tb_frame.f_code
        step = step.tb_next


def called_back(error: BaseException) -> bool:
    """Whether an exception comes out of Python code of the program that a graph has called: mostly an operator's."""
    called = False
    for code in passed(error):
        path = code.co_filename
        if of_torch(path) or path.startswith(_GENERATED):
            called = True
        elif called and not of_stator(path):
            return True
    return False
