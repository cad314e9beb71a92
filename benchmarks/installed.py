"""The package as an installer leaves it: with its modules compiled to bytecode.

A first call imports some 400 modules. From a checkout, or where Python may not write files, it would compile their
sources too, which takes seconds and is nothing that a user of an installed package waits for.
Neighbours: what measures first calls asks for it before.
"""

from __future__ import annotations

import compileall
from pathlib import Path

import stator


def compile_bytecode() -> None:
    """Bring the bytecode of the package up to date."""
    compileall.compile_dir(Path(stator.__file__).parent, quiet=1)
