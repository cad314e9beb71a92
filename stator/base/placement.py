"""Where blocks of memory lie in an arena, so that those that are in use at once do not meet. Pure arithmetic.

Blocks are placed from the largest to the smallest, each at the lowest offset that is free during its life. The memory
plan of a graph comes from here, when it is compiled or, where sizes are symbolic, when they are known
(`loop/memory.py`, `runtime/arena.py`).
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence

ALIGNMENT = 64


def place(blocks: Sequence[tuple[int, int, int]]) -> tuple[list[int], int]:
    """The offset of each block (bytes, first and last step of its life), and the size of the arena."""
    sizes = [-(-nbytes // ALIGNMENT) * ALIGNMENT for nbytes, _, _ in blocks]
    offsets = [0] * len(blocks)
    placed: list[tuple[int, int, int, int]] = []  # offset, end, first, last; by offset
    for number in sorted(range(len(blocks)), key=lambda number: (-sizes[number], blocks[number][1:])):
        _, first, last = blocks[number]
        offset = 0
        for start, end, born, dead in placed:
            if end <= offset or dead < first or last < born:
                continue
            if start >= offset + sizes[number]:
                break
            offset = end
        offsets[number] = offset
        insort(placed, (offset, offset + sizes[number], first, last))
    return offsets, max((end for _, end, _, _ in placed), default=0)
