"""Which slots an instruction and what follows it may still read.

A backward analysis over neutral instructions; an instruction under a handler leads there as well, before it has stored
anything. Invariant: a slot that is not live may be unset without the function noticing. A function that may look at its
own frame (`locals()`, `super()` without arguments) reads what it can see. Neighbours: `flow.py`, `continuation.py`.
"""

from __future__ import annotations

from stator.bytecode.flow import successors
from stator.bytecode.instructions import Decoded
from stator.bytecode.opcodes import having

READS, WRITES = having("reads"), having("writes")

#: Names of what looks at the variables of the frame that calls it.
FRAME_READERS = frozenset("locals vars dir eval exec _getframe currentframe stack".split())


def live(decoded: Decoded) -> tuple[frozenset[int], ...]:
    """The slots that are live before each instruction."""
    if decoded.live is None:
        sets: dict[int, frozenset[int]] = {}
        decoded.live = tuple(sets.setdefault(mask, _slots(mask)) for mask in _masks(decoded))
    return decoded.live


def _slots(mask: int) -> frozenset[int]:
    return frozenset(slot for slot in range(mask.bit_length()) if mask >> slot & 1)


def _masks(decoded: Decoded) -> list[int]:
    instructions = decoded.instructions
    count = len(instructions)
    always = _always(decoded)
    reads, keeps = [0] * count, [-1] * count
    for index, (name, arg) in enumerate(instructions):
        if name in READS:
            reads[index] = 1 << arg
        if name in WRITES:
            keeps[index] = ~(1 << arg)
        elif name == "COPY_FREE_VARS":
            first = len(decoded.slot_names) - arg
            keeps[index] = (1 << first) - 1
    following = [successors(decoded, index) for index in range(count)]
    handlers = [-1 if (block := decoded.block_at(index)) is None else block.target for index in range(count)]
    masks = [always] * count
    changed = True
    while changed:
        changed = False
        for index in range(count - 1, -1, -1):
            after = 0
            for target in following[index]:
                after |= masks[target]
            mask = reads[index] | after & keeps[index] | always
            if handlers[index] >= 0:
                mask |= masks[handlers[index]]
            if mask != masks[index]:
                masks[index] = mask
                changed = True
    return masks


def _always(decoded: Decoded) -> int:
    """The slots that may be read without an instruction that says so."""
    code = decoded.code
    if FRAME_READERS.intersection(code.co_names):
        return (1 << len(decoded.slot_names)) - 1
    if "__class__" in code.co_freevars and "super" in code.co_names:
        first_free = len(decoded.slot_names) - len(code.co_freevars)
        return 1 | 1 << first_free + code.co_freevars.index("__class__")
    return 0
