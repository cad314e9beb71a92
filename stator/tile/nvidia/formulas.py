"""Functions of floats as a GPU computes them; exponentials by its own instruction.

Neighbours: `elementwise` has the table, `stator.tile.cpu.formulas` what is shared with the CPU.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stator.tile.cpu import elementwise as shared
from stator.tile.cpu.casts import cast as shared_cast
from stator.tile.cpu.code import Maker
from stator.tile.cpu.elementwise import Row
from stator.tile.cpu.refused import Refused
from stator.tile.ir.types import F64, DType

cast = shared_cast


def _no_double(name: str) -> Row:
    def row(m: Maker, dtype: DType, attrs: Mapping[str, Any], *args: str) -> str:
        if dtype == F64:
            raise Refused(name, "there is no code for it in f64 on a GPU")
        return shared.ROWS[name](m, dtype, attrs, *args)

    return row


ROWS: dict[str, Row] = {name: _no_double(name) for name in ("exp", "exp2", "log", "log2", "sin", "cos", "tanh", "erf")}
