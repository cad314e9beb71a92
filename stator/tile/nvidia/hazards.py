"""Where threads of a program have to wait for one another because of global memory.

A program's operations come one after the other for whoever writes a kernel, but threads go through them alone. Of
two accesses of which one writes, the second waits for all threads unless they go to different arguments of the kernel
(which are taken not to overlap, as far as layouts differ) or by the same pointers, which the same threads have.
Neighbours: `writer` asks before every access.
"""

from __future__ import annotations

from stator.tile.ir.core import Function, Operation, Value

_WRITES = ("store", "atomic_rmw", "atomic_cas")
_ACCESSES = ("load", "async_copy", *_WRITES)
#: Operators whose result points into what their first operand points into.
_VIEWS = frozenset(
    "addptr splat broadcast reshape expand_dims permute bitcast convert_layout join split cat gather".split()
)


class Hazards:
    """What has been accessed since threads have waited for one another: (parameter, pointers, whether written)."""

    def __init__(self, function: Function) -> None:
        self._made: dict[Value, Value | None] = {}  # what a pointer comes from; None where nobody knows
        self._since: set[tuple[Value | None, Value | None, bool]] = set()
        for o in function.body.walk():
            self._note(o)

    def _note(self, o: Operation) -> None:
        if o.op in _VIEWS:
            self._made.update(dict.fromkeys(o.results, o.operands[0]))
        elif o.op == "for":
            self._made.update(zip(o.regions[0].args[1:], o.operands[3:], strict=True))
            self._made.update(zip(o.results, o.operands[3:], strict=True))
        elif o.op == "while":
            self._made.update(zip(o.regions[0].args, o.operands, strict=True))
            self._made.update(dict.fromkeys((*o.results, *o.regions[1].args), None))
        else:
            self._made.update(dict.fromkeys(o.results, None))

    def root(self, pointer: Value) -> Value | None:
        """The parameter that pointers come from, or None where that is not seen."""
        seen: Value | None = pointer
        while seen is not None and seen in self._made:
            seen = self._made[seen]
        return seen

    def meets(self, o: Operation) -> bool:
        """Whether an access has to wait; it is noted, and all before it forgotten if so."""
        pointer, writes = _pointer(o), o.op in _WRITES
        root = self.root(pointer)
        waits = any(
            (writes or written) and (root is None or other is None or other is root) and by is not pointer
            for other, by, written in self._since
        )
        if waits:
            self._since.clear()
        self._since.add((root, pointer, writes))
        return waits

    def again(self, loop: Operation) -> None:
        """A loop begins, whose accesses may all have been made by the turn before."""
        for region in loop.regions:
            for o in region.walk():
                if o.op in _ACCESSES:
                    self._since.add((self.root(_pointer(o)), None, o.op in _WRITES))


def _pointer(o: Operation) -> Value:
    """The pointers of an access; a copy has its buffer before them."""
    return o.operands[1 if o.op == "async_copy" else 0]
