"""Where blocks of memory lie in an arena, so that those that are in use at once do not meet. Pure arithmetic.

Blocks are placed from the largest to the smallest, each at the lowest offset that is free during its life. The memory
plan of a graph comes from here, when it is compiled or, where sizes are symbolic, when they are known
(`loop/memory.py`, `runtime/arena.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

ALIGNMENT = 64


def place(blocks: Sequence[tuple[int, int, int]]) -> tuple[list[int], int]:
    """The offset of each block (bytes, first and last step of its life), and the size of the arena."""
    sizes = [-(-nbytes // ALIGNMENT) * ALIGNMENT for nbytes, _, _ in blocks]
    offsets = [0] * len(blocks)
    steps = max((last for _, _, last in blocks), default=0) + 1
    alive: list[list[tuple[int, int]]] = [[] for _ in range(steps)]  # offsets and ends of those placed, by step
    born: list[list[tuple[int, int]]] = [[] for _ in range(steps)]
    for number in sorted(range(len(blocks)), key=lambda number: (-sizes[number], blocks[number][1:])):
        _, first, last = blocks[number]
        offset = 0
        later = [block for starting in born[first + 1 : last + 1] for block in starting]
        for start, end in sorted([*alive[first], *later]):
            if start >= offset + sizes[number]:
                break
            offset = max(offset, end)
        offsets[number] = offset
        block = offset, offset + sizes[number]
        born[first].append(block)
        for step in range(first, last + 1):
            alive[step].append(block)
    return offsets, max((offset + size for offset, size in zip(offsets, sizes, strict=True)), default=0)
