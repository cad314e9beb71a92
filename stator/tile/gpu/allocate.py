"""Places buffers and scratch in shared memory: what is not needed at the same time may lie in the same bytes.

A buffer is needed from its `local_alloc` to its last use, of a product of warp groups to the wait for that; where it is
in a loop that the buffer comes from outside of, to the end of the loop. Scratch is needed by its operation alone.
Largest first, each lies as low as it can.
Neighbours: `scratch` counts, `buffers` reads what is written here; `barriers` comes behind.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from stator.tile.gpu.buffers import PARTS, owners
from stator.tile.gpu.operators import buffer_bytes
from stator.tile.gpu.scratch import scratch_bytes
from stator.tile.ir.core import Block, Function, Operation, Value

#: Buffers begin at multiples of so many bytes, which rows of banks want; what warp groups read, at whole atoms.
ALIGNMENT, ATOM = 128, 1024
#: Scratch of operations that are so near to one another is apart, for then no barrier is needed between them, unless
#: more than so many bytes come of it.
APART, ENOUGH = 24, 32768


@dataclass
class _Need:
    """So many bytes from one operation to another, by their numbers in the function."""

    operation: Operation
    attribute: str
    size: int
    first: int
    last: int
    alignment: int = ALIGNMENT
    offset: int = 0


class _Numbering:
    """Numbers operations in order; of each loop and branch also the last one within."""

    def __init__(self, function: Function) -> None:
        self.number: dict[int, int] = {}
        self.end: dict[int, int] = {}
        self.around: dict[int, tuple[Operation, ...]] = {}
        self._next = 0
        self._block(function.body, ())

    def _block(self, block: Block, around: tuple[Operation, ...]) -> None:
        for operation in block.operations:
            self.number[id(operation)] = self._next
            self.around[id(operation)] = around
            self._next += 1
            for region in operation.regions:
                self._block(region, (*around, operation))
            self.end[id(operation)] = self._next - 1


def allocate(function: Function) -> None:
    """Sets `offset` and `scratch` of all operations, and the function's attribute `shared`, in bytes."""
    for apart in (APART, 0):
        needs = _needs(function, apart)
        _place(needs)
        function.attrs["shared"] = max([need.offset + need.size for need in needs], default=0)
        if function.attrs["shared"] <= ENOUGH:
            break


def _place(needs: list[_Need]) -> None:
    placed: list[_Need] = []
    for need in sorted(needs, key=lambda need: (-need.size, need.first)):
        taken = sorted([(o.offset, o.offset + o.size) for o in placed if o.first <= need.last and need.first <= o.last])
        for start, end in taken:
            if need.offset + need.size <= start:
                break
            need.offset = max(need.offset, _up(end, need.alignment))
        placed.append(need)
        need.operation.attrs[need.attribute] = need.offset


def _up(offset: int, alignment: int) -> int:
    return -(-offset // alignment) * alignment


def _needs(function: Function, apart: int) -> list[_Need]:
    numbering, owner = _Numbering(function), owners(function)
    products = {o.result: o for o in function.body.walk() if o.op == "wgmma"}
    found: dict[int, _Need] = {}
    for operation in function.body.walk():
        number = numbering.number[id(operation)]
        if operation.op == "local_alloc":
            size = buffer_bytes(operation.result.type)
            found[id(operation)] = _Need(operation, "offset", size, number, number)
        elif size := scratch_bytes(operation):
            found[-id(operation)] = _Need(operation, "scratch", size, number, number + apart)
        for operand in _touched(operation, products):
            if operand in owner and operation.op not in PARTS:
                need = found[id(owner[operand])]
                need.last = max(need.last, _last(numbering, owner[operand], operation))
                if operation.op == "wgmma":
                    need.alignment = ATOM
    return list(found.values())


def _touched(operation: Operation, products: Mapping[Value, Operation]) -> tuple[Value, ...]:
    """The operands, and what a product that is waited for has been reading until then."""
    if operation.op != "wgmma_wait" or operation.operands[0] not in products:
        return operation.operands
    return products[operation.operands[0]].operands


def _last(numbering: _Numbering, alloc: Operation, use: Operation) -> int:
    """The end of the outermost loop around a use that the buffer comes from outside of; or the use itself."""
    outside = numbering.around[id(alloc)]
    for loop in numbering.around[id(use)]:
        if loop not in outside and loop.op in ("for", "while"):
            return numbering.end[id(loop)]
    return numbering.number[id(use)]
