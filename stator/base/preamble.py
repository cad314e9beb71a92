"""Where what many sources begin with ends: a line of the text, which says so to who compiles it.

Neighbours: `codegen/cpp/emit.py` writes the line, `runtime/precompiled.py` looks for it.
"""

from __future__ import annotations

from typing import Final

#: The line.
END: Final = "// ---- the kernels\n"


def split(source: str) -> tuple[str, str]:
    """What a source begins with, and the rest; the first is empty where no line ends it."""
    before, line, rest = source.partition(END)
    return (before, rest) if line else ("", source)
