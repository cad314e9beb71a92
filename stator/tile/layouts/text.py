"""The printed forms of layouts, of whichever kind: a line that `read` makes the same layout of.

The word behind the shape says the kind. Neighbours: `linear` and `memory` print and read theirs; types of tile IR have
any of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from stator.tile.layouts.linear import Layout, LayoutError, read_layout
from stator.tile.layouts.memory import Shared, read_shared

AnyLayout: TypeAlias = Layout | Shared
#: The first word behind the shape → what reads the line. A kind of layout of another memory is a row more.
_KINDS: dict[str, Callable[[str], AnyLayout]] = {"register": read_layout, "offset": read_shared}


def read(text: str) -> AnyLayout:
    """The layout of a line; LayoutError where it is none."""
    _, _, rest = text.partition(":")
    word = rest.split(maxsplit=1)[:1]
    kind = word[0].rstrip(";") if word else ""
    if kind not in _KINDS:
        raise LayoutError(f"{text!r} is no layout: `shape: register …; lane …; warp …` or `shape: offset …`")
    return _KINDS[kind](text)
