"""What many sources begin with, parsed once: g++ keeps what it has read in a file (a precompiled header).

To read the functions that every unit of C++ may call takes g++ a quarter of its time for a small kernel. A process that
has compiled many units goes on with a precompiled header in its temporary folder; what becomes of a unit is the same.
Whoever compiles gives the whole source to a compiler that fails with one, and `give_up`s it.
Neighbours: `toolchain.py` compiles; `base/preamble.py` says where the beginning of a source ends.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from stator.base import preamble, temporary

#: Units after which the header is precompiled: that takes as long as it saves for eight of them (measured).
MANY: Final = 16

_known: dict[tuple[str, tuple[str, ...], str], Header] = {}


class Header:
    """The beginning of sources, for one compiler and the flags that it is given."""

    __slots__ = ("_given_up", "_uses", "path", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.path: Path | None = None  # of the text, with what was precompiled beside it, once that is there
        self._uses = 0
        self._given_up = False

    def due(self) -> bool:
        """Counts a unit; whether the header is to be precompiled now."""
        self._uses += 1
        return not self._uses % MANY and self.path is None and not self._given_up

    def begin(self) -> tuple[Path, list[str]]:
        """A file of the text, and the arguments by which a compiler precompiles it, beside its flags."""
        path = temporary.fresh("header") / "preamble.h"
        path.write_text(self.text, encoding="utf-8")
        return path, ["-x", "c++-header", str(path), "-o", f"{path}.gch"]

    def give_up(self) -> None:
        """It is not used from now on."""
        self.path, self._given_up = None, True


def header_of(program: str, flags: tuple[str, ...], source: str) -> tuple[Header | None, str]:
    """What a source begins with, and the rest of it; None and all of it where that is not known to be shared."""
    text, rest = preamble.split(source)
    if not text:
        return None, source
    return _known.setdefault((program, flags, text), Header(text)), rest
