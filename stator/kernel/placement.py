"""Where values are computed: every node once, in the outermost block where all it varies along is known.

So common subexpressions are shared, and what a loop does not change leaves it. What holds a load that may leave its
memory is computed once for each mask around it; all else once, whatever the masks say. Neighbour: `writing`, which
makes statements of the values.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator

from stator.kernel.facts import Axes
from stator.kernel.ir import Operand, Statement, Value
from stator.loop import expr
from stator.loop.expr import Expr
from stator.loop.index import Axis, Indirect
from stator.sizes import Extent

#: A node, or a loaded integer that was checked, and the mask that it was computed under.
Key = tuple[Expr | Indirect, Expr | None]


class Block:
    """A block under construction, which runs once for each point of `axes`: its statements, the values that it makes,
    the integers that lie within bounds there, and what was made of another dtype.
    """

    __slots__ = ("axes", "bounded", "casts", "names", "parent", "statements")

    def __init__(self, parent: Block | None, axes: Axes) -> None:
        self.parent, self.axes = parent, axes
        self.statements: list[Statement] = []
        self.names: dict[Key, Operand] = {}
        self.bounded: dict[tuple[Expr, Extent, Expr | None], Value] = {}
        self.casts: dict[tuple[Operand, str], Value] = {}

    def chain(self) -> Iterator[Block]:
        """This block and those around it."""
        block: Block | None = self
        while block is not None:
            yield block
            block = block.parent


class Placement:
    """Finds the values of one kernel, and has those written that there are not yet; `scope` is where the caller is."""

    __slots__ = ("_floor", "_guarded", "_wider", "before", "deps", "scope")

    def __init__(self, deps: dict[Expr, Axes], guarded: set[Expr]) -> None:
        self.scope = Block(None, frozenset())
        self.before = self.scope  # around the loops over the reduce axes that are being written
        self.deps = deps
        self._guarded = guarded
        self._floor: Block | None = None  # where reductions are known: what uses them is not further out
        self._wider: dict[Expr, Expr] = {}  # of a mask inside of another: the outer one

    @abstractmethod
    def define(self, node: Expr, mask: Expr | None) -> None:
        """Write a node whose operands are known, and keep what stands for it in the block that is its home."""

    def enter(self, *axes: Axis) -> None:
        """Go into a block inside of loops over these axes."""
        self.scope = Block(self.scope, self.scope.axes | set(axes))

    def leave(self) -> tuple[Statement, ...]:
        """Close the block: its statements are the caller's to place in the one around it."""
        inner = self.scope
        assert inner.parent is not None
        self.scope = inner.parent
        return tuple(inner.statements)

    def value(self, node: Expr, mask: Expr | None = None) -> Operand:
        """What stands for a node, written here or further out; under `mask` its loads are guarded."""
        wanted = self._key(node, mask)
        found = self.find(*wanted)
        stack = [wanted] if found is None else []
        while stack:
            item, guard = stack[-1]
            if self.find(item, guard) is not None:
                stack.pop()
            elif missing := self._missing(item, guard):
                stack.extend(reversed(missing))
            else:
                stack.pop()
                self.define(item, guard)
        found = self.find(*wanted) if found is None else found
        assert found is not None
        return found

    def bind(self, node: Expr, held: Operand) -> None:
        """Make the result of a reduction known from here on."""
        self._floor = self.scope
        self.scope.names[node, None] = held

    def find(self, node: Expr | Indirect, mask: Expr | None) -> Operand | None:
        """What stands for a node under this mask, or under a wider one, under which each of its loads happened too."""
        while True:
            key = node, mask
            block: Block | None = self.scope
            while block is not None:  # no generator: most of what is asked is asked here
                found = block.names.get(key)
                if found is not None:
                    return found
                block = block.parent
            if mask is None:
                return None
            mask = self._wider.get(mask)

    def both(self, outer: Expr | None, inner: Expr) -> Expr:
        """The mask under two masks."""
        if outer is None:
            return inner
        both = expr.op("and", outer, inner)
        if both is not outer:
            self._wider.setdefault(both, outer)
        if inner in self._guarded:
            self._guarded.add(both)
        return both

    def home(self, node: Expr, mask: Expr | None) -> Block:
        """The outermost block where all is known that a node under a mask varies along."""
        axes, level = self.axes(node), node.level
        if mask is not None:
            axes, level = axes | self.axes(mask), max(level, mask.level)
        home = self.scope
        for scope in self.scope.chain():
            if not axes <= scope.axes:
                break
            home = scope
            if level and scope is self._floor:
                break
        return home

    def axes(self, node: Expr) -> Axes:
        """The axes along which a node differs."""
        found = self.deps.get(node)
        if found is None:  # a conjunction of masks made here
            found = self.deps[node] = frozenset().union(*[self.axes(arg) for arg in node.args])
        return found

    def _key(self, node: Expr, mask: Expr | None) -> tuple[Expr, Expr | None]:
        return node, mask if node in self._guarded else None

    def _missing(self, node: Expr, mask: Expr | None) -> list[tuple[Expr, Expr | None]]:
        """What is to be written before a node, each with its guard."""
        assert node.op != "reduce", f"a reduction is used before its loop: {node!r}"
        if node.op == "masked":
            inner = self.both(mask, node.args[0])
            # The other operand first: what both are made of is then known when the body needs it under the mask.
            wanted = [(node.args[0], mask), (inner, mask), (node.args[2], mask), (node.args[1], inner)]
        elif node.op == "scan":
            wanted = [(node.args[0], None)]  # goes on whether somebody looks or not
        else:
            wanted = [(child, mask) for child in node.children]
        if mask is not None and node.op == "load":
            wanted.append((mask, None))
        return [key for key in [self._key(*pair) for pair in wanted] if self.find(*key) is None]


def guarded_nodes(nodes: Iterable[Expr], free: Callable[[Expr], bool]) -> set[Expr]:
    """The nodes, given operands first, holding a load that a mask around them matters to; to `free` ones none does."""
    found: set[Expr] = set()
    for node in nodes:
        guarded = node.op not in ("reduce", "scan") and any(child in found for child in node.children)
        if guarded or (node.op == "load" and not free(node)):
            found.add(node)
    return found
