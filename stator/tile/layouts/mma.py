"""Layouts of tensor cores: what `mma.sync` takes and gives, one warp at a time, and `wgmma`, four warps at a time.

A result of 16 by 8: a lane has two neighbours of a row, and two more eight rows below. Operands are words of 32 bits of
neighbours along the inner axis: as many elements as fit, in the places that the PTX manual draws for m16n8k16.
Wider products repeat that, warps side by side first. Neighbours: `gpu.instructions` says which dtypes there are.

Of a warp group each warp has 16 rows of 64, and all columns of an instruction, up to 256: within a warp the results lie
as those of `mma.sync` beside one another do, so a left operand in registers is laid out alike for both.
"""

from __future__ import annotations

from collections.abc import Sequence

from stator.tile.layouts.blocked import Filling
from stator.tile.layouts.linear import Base, Layout, LayoutError, axis_bits

#: Rows, columns of one instruction's result.
ROWS, COLUMNS = 16, 8
#: Rows of a warp group's result; its warps; how many columns it may have at most.
GROUP_ROWS, GROUP_WARPS, GROUP_COLUMNS = 64, 4, 256
#: What the lanes' bits and the first registers' are, as elements of an operand or result: (row or column, neighbour).
_LANE_PAIRS = ((0, 2), (0, 4), (1, 0), (2, 0), (4, 0))


def _batched(shape: Sequence[int], base: Base) -> Base:
    return (*[0] * (len(shape) - 2), *base)


def mma(shape: Sequence[int], warps: Sequence[int]) -> Layout:
    """Of a result: so many warps along each axis, side by side; the two last axes are those of the product."""
    rank = len(shape)
    if shape[-2] < ROWS or shape[-1] < COLUMNS:
        raise LayoutError(f"tensor cores give {ROWS} by {COLUMNS} elements at least, not {tuple(shape)}")
    register = tuple([_batched(shape, base) for base in ((0, 1), (8, 0))])
    lane = tuple([_batched(shape, base) for base in _LANE_PAIRS])
    filling = Filling(shape)
    filling.take([*[1] * (rank - 2), ROWS, COLUMNS], range(rank))
    order = list(reversed(range(rank)))
    warp = filling.take(warps, order)
    return Layout(tuple(shape), register + filling.rest(order), lane, warp)


def warp_groups(shape: Sequence[int], groups: Sequence[int]) -> Layout:
    """Of a result of warp groups: so many of them along each of both axes, side by side."""
    if shape[0] < GROUP_ROWS * groups[0] or shape[1] < COLUMNS * groups[1]:
        raise LayoutError(f"{tuple(groups)} warp groups give more than {tuple(shape)}")
    filling = Filling(shape)
    filling.take((ROWS, COLUMNS), (0, 1))
    warp = filling.take((GROUP_WARPS, 1), (0, 1))
    register = filling.take((1, shape[1] // (groups[1] * COLUMNS)), (0, 1))
    warp += filling.take(groups, (0, 1))
    return Layout(tuple(shape), ((0, 1), (8, 0), *register, *filling.rest((0, 1))), _LANE_PAIRS, warp)


def group_columns(layout: Layout) -> int:
    """How many columns one instruction of a warp group gives in a layout of results; 0 where it is none of those."""
    if layout.rank != 2 or not is_mma(layout) or layout.warp[:2] != ((ROWS, 0), (2 * ROWS, 0)):
        return 0
    columns = COLUMNS
    for base in layout.register[2:]:
        if base != (0, columns) or columns == GROUP_COLUMNS:
            break
        columns *= 2
    rest = [*layout.register[columns.bit_length() - 2 :], *layout.warp[2:]]
    whole = all(base[0] % GROUP_ROWS == 0 and base[1] % columns == 0 for base in rest)
    return columns if whole else 0


def is_mma(layout: Layout) -> bool:
    """Whether a layout is one of results of tensor cores."""
    if layout.rank not in (2, 3) or layout.shape[-2] < ROWS or layout.shape[-1] < COLUMNS:
        return False
    head = [_batched(layout.shape, base) for base in ((0, 1), (8, 0), *_LANE_PAIRS)]
    rest = layout.register[2:] + layout.warp
    repeats = all(base[-2] % ROWS == 0 and base[-1] % COLUMNS == 0 for base in rest)
    return [*layout.register[:2], *layout.lane] == head and repeats


def dot_operand(parent: Layout, index: int, inner: int, width: int) -> Layout:
    """Of the first (index 0) or second operand of a product whose result is laid out as `parent`, an mma layout.

    `inner` is the size of the inner axis, `width` how many elements make a word of 32 bits.
    """
    if not is_mma(parent):
        raise LayoutError(f"{parent} is no layout of tensor cores' results")
    if inner < 8 * width:
        raise LayoutError(f"tensor cores multiply {8 * width} elements of this dtype at once, not {inner}")
    outer = -2 if index == 0 else -1
    shape = (
        (*parent.shape[:-2], parent.shape[-2], inner) if index == 0 else (*parent.shape[:-2], inner, parent.shape[-1])
    )

    def along(row: int, neighbour: int) -> Base:
        return _batched(shape, (row, neighbour) if index == 0 else (neighbour, row))

    register = [along(0, 1 << bit) for bit in range(width.bit_length() - 1)]
    register += ([along(8, 0)] if index == 0 else []) + [along(0, 4 * width)]
    lane = [along(0, width), along(0, 2 * width), along(1, 0), along(2, 0), along(4, 0)]
    others = axis_bits(shape, len(shape) - 1 if index == 0 else len(shape) - 2)
    register += [base for base in others if max(base) >= 8 * width]

    def kept(base: Base) -> Base:
        return (*base[:-2], *((base[-2], 0) if index == 0 else (0, base[-1])))

    skipped = 2  # the registers of one instruction
    rest = [kept(base) for base in parent.register[skipped:] if any(base[:-2]) or base[outer]]
    return Layout(shape, (*register, *rest), tuple(lane), tuple([kept(base) for base in parent.warp]))


def fma_operand(parent: Layout, index: int, inner: int) -> Layout:
    """Of an operand of a product without tensor cores: a thread has all that its own results are made of."""
    axis = parent.rank - 1 if index == 0 else parent.rank - 2
    kept = parent.squash([axis])
    shape = [*kept.shape]
    shape[axis] = inner
    return Layout(tuple(shape), (*axis_bits(shape, axis), *kept.register), kept.lane, kept.warp)
