"""Puts `barrier` where one thread touches shared memory that another one has touched since the last barrier.

Reads that follow writes, writes that follow reads or writes of the same bytes have a barrier between. A copy is a write
from `async_wait` on; which slot of a buffer it may fill while others are read is the pipeline's care. An operation that
works in scratch has a barrier of its own between its writes and its reads. Conditions of branches and bounds of loops
are the same in all threads, so all come to each barrier. Warp groups read shared memory by another way than threads
(a proxy) write it: before the barrier each thread has a `proxy_fence`. What they read they may be reading until
`wgmma_wait`, which the pipeline takes care of where it is some turns later.
Neighbours: `buffers` says what is touched; `allocate` has placed it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import NamedTuple

from stator.tile.gpu.buffers import COPIES, READS, WRITES, Bytes, bytes_of, owners, scratch_of
from stator.tile.ir.core import Block, Function, Operation


class _Touch(NamedTuple):
    """Bytes, and the `local_alloc` of the buffer that they are (by its id; 0 for scratch)."""

    bytes: Bytes
    owner: int


_Touched = frozenset[_Touch]
_NOTHING: _Touched = frozenset()
#: Operators that, where they work in scratch, have all threads wait for one another, whatever becomes of the result.
_WAITS = frozenset(["convert_layout", "reduce"])
_TOUCHES = READS.keys() | WRITES.keys() | COPIES.keys()


@dataclass(frozen=True)
class _Since:
    """What has been touched since the last barrier, and what copies may be writing; of what has been written ever what
    no fence is behind, and what no barrier is behind that fence; what warp groups may be reading."""

    reads: _Touched = frozenset()
    writes: _Touched = frozenset()
    copies: _Touched = frozenset()
    unfenced: _Touched = frozenset()
    fenced: _Touched = frozenset()
    multiplied: _Touched = frozenset()

    def __or__(self, other: _Since) -> _Since:
        if other == _CLEAN:
            return self
        return _Since(*[getattr(self, each.name) | getattr(other, each.name) for each in fields(self)])

    def passed(self) -> _Since:
        return replace(self, reads=frozenset(), writes=frozenset(), fenced=frozenset())

    def behind_fence(self) -> _Since:
        return replace(self, unfenced=frozenset(), fenced=self.fenced | self.unfenced)


_CLEAN = _Since()


def insert_barriers(function: Function) -> None:
    """Inserts them; those that are there already count."""
    _Inserter(function).block(function.body, _Since(), insert=True)


class _Inserter:
    def __init__(self, function: Function) -> None:
        self.owners = owners(function)

    def touched(self, operation: Operation, table: Mapping[str, tuple[int, ...]]) -> _Touched:
        places = table.get(operation.op)
        if places is None:
            return _NOTHING
        allocs = [self.owners[value] for place in places if (value := operation.operands[place]) in self.owners]
        return frozenset([_Touch(bytes_of(alloc), id(alloc)) for alloc in allocs])

    def block(self, block: Block, since: _Since, insert: bool) -> _Since:
        """What has been touched at the end of a block, for what has been at its start."""
        for operation in list(block.operations):
            if self.unseen(operation, since):
                before, since = ["proxy_fence", "barrier"], since.behind_fence().passed()
            elif self.conflict(operation, since):
                before, since = ["barrier"], since.passed()
            else:
                before = []
            if insert and before:
                place = block.operations.index(operation)
                block.operations[place:place] = [Operation(op, (), {}, location=operation.location) for op in before]
            since = self.after(operation, since, insert)
        return since

    def unseen(self, operation: Operation, since: _Since) -> bool:
        """Whether warp groups read what has been written, and may not see it."""
        return operation.op == "wgmma" and _meet(self.touched(operation, READS), since.unfenced | since.fenced)

    def conflict(self, operation: Operation, since: _Since) -> bool:
        reads = self.touched(operation, READS)
        writes = self.touched(operation, WRITES)
        scratch = scratch_of(operation)
        if scratch is None and operation.op not in _TOUCHES:
            return False
        if scratch is not None:
            writes |= {_Touch(scratch, 0)}
        before = since.reads | since.writes
        copies = self.touched(operation, COPIES)
        slots = frozenset([touch for touch in before if touch.owner not in {copy.owner for copy in copies}])
        return _meet(reads, since.writes) or _meet(writes, before) or _meet(copies, slots)

    def after(self, operation: Operation, since: _Since, insert: bool) -> _Since:
        match operation.op:
            case "barrier":
                return since.passed()
            case "proxy_fence":
                return since.behind_fence()
            case "async_wait":
                rest = since.copies if operation.attrs["pending"] else frozenset()
                written = since.writes | since.copies
                return replace(since, writes=written, copies=rest, unfenced=since.unfenced | since.copies)
            case "wgmma":
                return replace(since, multiplied=since.multiplied | self.touched(operation, READS))
            case "wgmma_wait":
                rest = since.multiplied if operation.attrs["pending"] else frozenset()
                return replace(since, reads=since.reads | since.multiplied, multiplied=rest)
            case "if":
                ends = [self.block(region, since, insert) for region in operation.regions]
                return ends[0] | ends[1]
            case "for" | "while":
                return self.loop(operation, since, insert)
        scratch = scratch_of(operation)
        if scratch is not None and operation.op in _WAITS:
            return replace(since.passed(), reads=frozenset([_Touch(scratch, 0)]))
        if scratch is not None:
            return since | _Since(reads=frozenset([_Touch(scratch, 0)]), writes=frozenset([_Touch(scratch, 0)]))
        writes = self.touched(operation, WRITES)
        return since | _Since(self.touched(operation, READS), writes, self.touched(operation, COPIES), unfenced=writes)

    def loop(self, operation: Operation, since: _Since, insert: bool) -> _Since:
        start = since
        while True:
            end = start
            for region in operation.regions:
                end = self.block(region, end, insert=False)
            if end | start == start:
                break
            start |= end
        if insert:
            end = start
            for region in operation.regions:
                end = self.block(region, end, insert=True)
        # A `for` may have no turn at all, and a `while` ends behind its test.
        return start | end


def _meet(some: _Touched, others: _Touched) -> bool:
    return bool(some and others) and any(one.bytes.overlaps(other.bytes) for one in some for other in others)
