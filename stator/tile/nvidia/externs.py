"""The functions of libdevice that there is code for on a GPU.

Neighbours: `stator.tile.cpu.externs` has those that are operators or instructions of LLVM.
"""

from __future__ import annotations

from collections.abc import Sequence

from stator.tile.cpu import externs as shared
from stator.tile.cpu.code import Maker
from stator.tile.ir.core import Location
from stator.tile.ir.types import DType


def extern(
    m: Maker, symbol: str, types: Sequence[DType], result: DType, args: Sequence[str], location: Location | None
) -> str:
    """A function on numbers."""
    return shared.extern(m, symbol, types, result, args, location)
