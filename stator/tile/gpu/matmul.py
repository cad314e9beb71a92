"""Which products tensor cores compute, and how their results are laid out.

Warps stand so that each has a part of the result that is nearly square, for then it reads the least. Where a product's
result becomes an operand of another one, as in attention, all warps stand one above the other instead: each thread then
has the operand already. Groups of four warps, where the target multiplies by such, stand one above the other as well:
each has as many columns as there are. Products that tensor cores do not compute are laid out so that a thread has a
small square.
Neighbours: `instructions` is the table of tensor cores; `preferences` and `assign` ask here.
"""

from __future__ import annotations

from stator.tile.gpu.flow import Flow
from stator.tile.gpu.instructions import GROUP_INSTRUCTIONS, Instruction, instruction
from stator.tile.ir.core import Function, Operation
from stator.tile.ir.types import F16, F32, I32, DType, Type
from stator.tile.layouts.blocked import blocked
from stator.tile.layouts.linear import LANES, Layout
from stator.tile.layouts.mma import COLUMNS, GROUP_ROWS, GROUP_WARPS, ROWS, mma, warp_groups

#: Results of a thread along each of both axes, where there are no tensor cores.
_SQUARE = 4
#: Columns that an instruction of a warp group has at least: neighbours along them make a row that descriptors know; and
#: where groups stand side by side, that no two of them share a row.
_GROUP_COLUMNS, _APART = 16, 64


def multiplied(type_: Type) -> DType:
    """The dtype in which operands are multiplied: fp8 as f16, which has all of its numbers."""
    assert isinstance(type_.element, DType)
    return F16 if type_.element.is_fp8 else type_.element


def summed(type_: Type, operand: Type) -> DType:
    """The dtype in which products are added up; a narrower result is rounded at the end."""
    assert isinstance(type_.element, DType) and isinstance(operand.element, DType)
    if not operand.element.is_float:
        return I32
    return F32 if type_.element.bits < F32.bits else type_.element


class Products:
    """The products of a function."""

    def __init__(self, function: Function, warps: int, group_registers: int = 0) -> None:
        self.warps, self.group_registers = warps, group_registers
        flow = Flow(function)
        dots = [operation for operation in function.body.walk() if operation.op == "dot"]
        self.chained: set[int] = set()
        for later in dots:
            for operand in later.operands[:2]:
                for earlier in flow.sources(operand, lambda operation: operation.op == "dot"):
                    self.chained |= {id(earlier), id(later)}

    def instruction(self, operation: Operation) -> Instruction | None:
        """The tensor cores' instruction, if they compute it."""
        a, b, acc = [operand.type for operand in operation.operands]
        found = instruction(multiplied(a), multiplied(b), summed(acc, a), operation.attrs["precision"])
        (rows, inner), columns = a.shape[-2:], b.shape[-1]
        if found is None or rows < ROWS or columns < COLUMNS or inner < found.inner:
            return None
        return found

    def group_instruction(self, operation: Operation) -> Instruction | None:
        """That of warp groups, if they compute it: there are rows and columns for all groups, and registers for sums.

        While it computes its sums are nowhere else.
        """
        a, b, acc = [operand.type for operand in operation.operands]
        found = instruction(
            multiplied(a), multiplied(b), summed(acc, a), operation.attrs["precision"], GROUP_INSTRUCTIONS
        )
        if found is None or acc.rank != 2 or a.shape[1] < found.inner or not self.fits(acc.numel):
            return None
        return found if self._groups(acc.shape) is not None else None

    def fits(self, numel: int) -> bool:
        """Whether so many words, no two of them in one thread, may be in registers while a warp group multiplies."""
        return numel <= self.group_registers * (self.warps << LANES)

    def _groups(self, shape: tuple[int, ...]) -> tuple[int, int] | None:
        """How many groups stand one above the other and side by side, or None where a result has no room for them."""
        rows, columns = shape
        down = min(rows // GROUP_ROWS, self.warps // GROUP_WARPS)
        across = self.warps // GROUP_WARPS // down if down else 0
        fits = across == 1 or columns // max(across, 1) >= _APART
        return (down, across) if across and fits and columns >= _GROUP_COLUMNS else None

    def layout(self, operation: Operation) -> Layout:
        """Of the result."""
        shape = operation.result.type.shape
        if self.group_instruction(operation) is not None:
            groups = self._groups(shape)
            assert groups is not None
            return warp_groups(shape, groups)
        batches, (rows, columns) = shape[:-2], shape[-2:]
        outer = min(self.warps, batches[0]) if batches else 1
        left = self.warps // outer
        if self.instruction(operation) is None:
            return _squares(shape, outer, left)
        across = 1 if id(operation) in self.chained else _columns_of_warps(rows, columns, left)
        return mma(shape, (*[outer] * len(batches), left // across, across))


def _columns_of_warps(rows: int, columns: int, warps: int) -> int:
    """How many warps stand side by side, so that a warp's part is nearly square and no two have the same part."""
    across, down = 1, 1
    while across * down < warps:
        tall, wide = rows // down, columns // across
        if (tall >= wide and tall > ROWS) or wide <= COLUMNS:
            down *= 2
        else:
            across *= 2
    return across


def _squares(shape: tuple[int, ...], outer: int, warps: int) -> Layout:
    rank = len(shape)
    each = [*[1] * (rank - 2), min(_SQUARE, shape[-2]), min(_SQUARE, shape[-1])]
    lanes, groups = [1] * rank, [*[outer] * (rank - 2), 1, 1]
    for counts, left in ((lanes, 1 << LANES), (groups, warps)):
        while left > 1:
            free = [max(shape[axis] // (each[axis] * lanes[axis] * groups[axis]), 1) for axis in (-2, -1)]
            counts[-1 if free[1] >= free[0] else -2] *= 2
            left //= 2
    return blocked(shape, each, lanes, groups, tuple(reversed(range(rank))))
