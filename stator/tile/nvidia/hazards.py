"""Where threads of a program have to wait for one another because of global memory.

A program's operations come one after the other for whoever writes a kernel, but threads go through them alone. Of
two accesses of which one writes, the second waits for all threads unless they go to different arguments of the kernel
(which are taken not to overlap, as far as layouts differ) or by the same pointers, each of which one thread alone has.
What has been accessed is followed along control flow: behind a branch either side may have been taken, and a loop may
have had no turn.
Neighbours: `writer` asks before every access, and says where branches and loops begin and end.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from stator.tile.gpu.flow import Flow
from stator.tile.ir.core import Function, Operation, Value
from stator.tile.ir.types import Pointer

_WRITES = ("store", "atomic_rmw", "atomic_cas")
_ACCESSES = ("load", "async_copy", *_WRITES)
#: Operators whose result points into what their operands point into.
_VIEWS = frozenset(
    "addptr splat broadcast reshape expand_dims permute bitcast convert_layout join split cat gather".split()
)


class Access(NamedTuple):
    """The arguments that pointers come from, or None where that is not seen; the pointers; whether it writes."""

    roots: frozenset[Value] | None
    pointers: Value | None
    writes: bool

    def meets(self, other: Access, own: bool) -> bool:
        """Whether one of two may write what the other touches in another thread.

        `own`: each thread has pointers of its own.
        """
        if not self.writes and not other.writes:
            return False
        if own and self.pointers is other.pointers:
            return False
        return self.roots is None or other.roots is None or not self.roots.isdisjoint(other.roots)


class Hazards:
    """What may have been accessed since threads have waited for one another."""

    def __init__(self, function: Function) -> None:
        self.since: frozenset[Access] = frozenset()
        self._params, self._flow = frozenset(function.params), Flow(function)
        self._known: dict[Value, frozenset[Value] | None] = {}

    def roots(self, pointer: Value) -> frozenset[Value] | None:
        """The arguments of the kernel that pointers may come from, or None where that is not seen."""
        if pointer not in self._known:
            self._known[pointer] = self._found(pointer)
        return self._known[pointer]

    def _found(self, pointer: Value) -> frozenset[Value] | None:
        found: set[Value] = set()
        seen, stack = {pointer}, [pointer]
        while stack:
            value = stack.pop()
            if value in self._params:
                found.add(value)
                continue
            made = self._flow.made.get(value)
            passed = value in self._flow.given or (made is not None and made.op in _VIEWS)
            before = [each for each in self._flow.before(value) if isinstance(each.type.element, Pointer)]
            if not passed or not before:
                return None
            fresh = [each for each in before if each not in seen]
            seen.update(fresh)
            stack += fresh
        return frozenset(found)

    def meets(self, o: Operation, own: bool) -> bool:
        """Whether an access has to wait; it is noted, and all before it forgotten if so.

        `own`: of the pointers each is one thread's alone.
        """
        pointers = pointers_of(o)
        access = Access(self.roots(pointers), pointers, o.op in _WRITES)
        waits = any(access.meets(other, own) for other in self.since)
        self.since = frozenset([access]) if waits else self.since | {access}
        return waits

    def again(self, loop: Operation) -> None:
        """A loop begins, whose accesses may all have been made by the turn before, through other pointers."""
        inside = [o for region in loop.regions for o in region.walk() if o.op in _ACCESSES]
        self.since |= {Access(self.roots(pointers_of(o)), None, o.op in _WRITES) for o in inside}

    def joined(self, ends: Iterable[frozenset[Access]]) -> None:
        """Control flow comes from one of several places, where these had been accessed."""
        self.since = frozenset().union(*ends)


def pointers_of(o: Operation) -> Value:
    """The pointers of an access; a copy has its buffer before them."""
    return o.operands[1 if o.op == "async_copy" else 0]
