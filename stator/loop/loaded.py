"""An integer expression as the index algebra sees it: what is loaded at run time, and counts positions.

Neighbours: `index.py` has the algebra; `expr.py` and the values of kernels (`kernel/ir.py`) are such expressions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from stator.loop.index import Axis, Index


class Loaded(Protocol):
    """What the algebra needs of the integer expression behind an `Indirect`."""

    @property
    def constant(self) -> int | None: ...

    @property
    def digest(self) -> int: ...

    @property
    def axes(self) -> frozenset[Axis]: ...

    def substitute(self, mapping: Mapping[Axis, Index]) -> Any: ...
