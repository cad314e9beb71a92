"""Where blocks of memory lie in an arena, so that those that are in use at once do not meet. Pure arithmetic.

Blocks are placed from the largest to the smallest, each at the lowest offset that is free during its life. The memory
plan of a graph comes from here, when it is compiled or, where sizes are symbolic, when they are known
(`loop/memory.py`, `runtime/arena.py`).
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence

ALIGNMENT = 64
#: Blocks with longer lives are few, or meet most others anyway.
_SHORTLY = 64

#: Where a block lies: offset and end, first and last step.
Lying = tuple[int, int, int, int]


def place(blocks: Sequence[tuple[int, int, int]]) -> tuple[list[int], int]:
    """The offset of each block (bytes, first and last step of its life), and the size of the arena."""
    sizes = [-(-nbytes // ALIGNMENT) * ALIGNMENT for nbytes, _, _ in blocks]
    offsets = [0] * len(blocks)
    steps = max((last for _, _, last in blocks), default=0) + 1
    placed: list[Lying] = []  # by offset
    # What lives shortly, by all of its steps and by the first; the rest in one list.
    alive: list[list[Lying]] = [[] for _ in range(steps)]
    born: list[list[Lying]] = [[] for _ in range(steps)]
    lasting: list[Lying] = []
    for number in sorted(range(len(blocks)), key=lambda number: (-sizes[number], blocks[number][1:])):
        _, first, last = blocks[number]
        shortly = last - first <= _SHORTLY
        near = placed
        if shortly:
            later = [block for starting in born[first + 1 : last + 1] for block in starting]
            near = sorted([*alive[first], *later, *lasting])
        offset = 0
        for start, end, since, until in near:
            if end <= offset or until < first or last < since:
                continue
            if start >= offset + sizes[number]:
                break
            offset = end
        offsets[number] = offset
        block = offset, offset + sizes[number], first, last
        insort(placed, block)
        if not shortly:
            lasting.append(block)
            continue
        born[first].append(block)
        for step in range(first, last + 1):
            alive[step].append(block)
    return offsets, max((end for _, end, _, _ in placed), default=0)
