"""Operands of warp groups in shared memory, as the descriptors of `wgmma` say where they lie.

An operand is made of rows of 32, 64 or 128 bytes with neighbours along one of its axes, whose vectors of 16 bytes are
exchanged by the row's number: `memory.rows_of_banks` has these forms. Eight rows are an atom. The atoms of a column of
rows follow one another; what is longer than a row is a column of its own.
Neighbours: `gpu.rules` checks operands by this, `nvidia.warp_groups` writes descriptors.
"""

from __future__ import annotations

from dataclasses import dataclass

from stator.tile.layouts.memory import Shared, rows_of_banks

#: Elements of 16 bits are those that may have neighbours along either axis.
ITEM_BYTES = 2
#: Bytes of a row → how a descriptor names it.
SWIZZLES = {128: 1, 64: 2, 32: 3}
ATOM_ROWS = 8


@dataclass(frozen=True)
class Matrix:
    """`inner` is the axis of a row's neighbours, `row` its bytes, `column` those of a column of rows."""

    inner: int
    row: int
    column: int

    @property
    def atom(self) -> int:
        """Bytes of an atom, at a multiple of which a buffer has to lie."""
        return self.row * ATOM_ROWS


def plan_matrix(shared: Shared, itemsize: int) -> Matrix | None:
    """How a descriptor describes a buffer; None where it cannot."""
    if itemsize != ITEM_BYTES or shared.rank != 2:
        return None
    for inner in (1, 0):
        row = min(shared.shape[inner] * itemsize, max(SWIZZLES))
        if row in SWIZZLES and shared == rows_of_banks(shared.shape, itemsize, (inner, 1 - inner)):
            return Matrix(inner, row, row * shared.shape[1 - inner])
    return None
