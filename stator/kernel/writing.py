"""Writes expressions as statements: every node once, in the outermost block where all it varies along is known.

So common subexpressions are shared, and what a loop does not change leaves it. Loads that may leave their memory
happen under the masks around them; a load that lies in it whatever the masks say is made once, for all of them.
Neighbours: `serial` makes loops and asks for values here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from stator.kernel.facts import Axes, dependencies
from stator.kernel.ir import Assign, Declare, Let, Literal, Load, Operand, Position, Statement, Value, Within
from stator.loop import expr
from stator.loop.expr import Expr
from stator.loop.index import Axis, Index, Indirect
from stator.loop.kernel import Kernel
from stator.loop.ranges import Ranges
from stator.loop.scalar import identity
from stator.sizes import Extent

Key = tuple[Expr, Expr | None]
#: Reduction or scan → the operator that takes the next value.
COMBINE = {"sum": "add", "prod": "mul", "max": "maximum", "min": "minimum", "any": "or", "all": "and"}


@dataclass(slots=True)
class Scope:
    """A block under construction: statements that run once for each point of `axes`."""

    parent: Scope | None
    axes: Axes
    statements: list[Statement] = field(default_factory=list)
    names: dict[Key, Operand] = field(default_factory=dict)
    bounded: dict[tuple[Expr, Extent, Expr | None], Value] = field(default_factory=dict)

    def chain(self) -> Iterator[Scope]:
        """This block and those around it."""
        scope: Scope | None = self
        while scope is not None:
            yield scope
            scope = scope.parent


class Writer:
    """Writes the expressions of one kernel; `scope` is where the caller is."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.deps = dependencies(kernel)
        self.ranges = Ranges(kernel.reduce_numel)
        self.scope = Scope(None, frozenset())
        self.before = self.scope  # around the loops over the reduce axes that are being written
        self.checks: dict[Extent, int] = {}  # the bounds that loaded integers are checked against, and their numbers
        self._count: dict[str, int] = {}
        self._floor: Scope | None = None  # where reductions are known: what uses them is not further out
        self._guarded = self._guarded_nodes()
        self._wider: dict[Expr, Expr] = {}  # of a mask inside of another: the outer one

    # ---- blocks

    def enter(self, *axes: Axis) -> Scope:
        """Go into a block inside of loops over these axes."""
        self.scope = Scope(self.scope, self.scope.axes | set(axes))
        return self.scope

    def leave(self) -> tuple[Statement, ...]:
        """Close the block: its statements are the caller's to place in the one around it."""
        inner = self.scope
        assert inner.parent is not None
        self.scope = inner.parent
        return tuple(inner.statements)

    def fresh(self, dtype: str, letter: str = "t") -> Value:
        """A name that nothing has."""
        self._count[letter] = self._count.get(letter, -1) + 1
        return Value(f"{letter}{self._count[letter]}", dtype)

    def let(self, op: str, dtype: str, *args: Operand) -> Value:
        """The name of what an operator gives, at the end of this block."""
        target = self.fresh(dtype)
        self.scope.statements.append(Let(target, op, args))
        return target

    def bind(self, node: Expr, operand: Operand) -> None:
        """Make the result of a reduction known from here on."""
        self._floor = self.scope
        self.scope.names[node, None] = operand

    # ---- values

    def value(self, node: Expr, mask: Expr | None = None) -> Operand:
        """What holds a node, written here or further out; under `mask` its loads are guarded."""
        stack = [self._key(node, mask)]
        while stack:
            key = stack[-1]
            missing = [] if self._find(key) is not None else [k for k in self._needs(*key) if self._find(k) is None]
            if missing:
                stack.extend(reversed(missing))
                continue
            stack.pop()
            if self._find(key) is None:
                self._write(*key)
        found = self._find(self._key(node, mask))
        assert found is not None
        return found

    def index(self, index: Index, mask: Expr | None = None) -> Index:
        """An index with names for what it loads."""
        if not index.has_indirect:
            return index
        made = {atom.expr: self._within(atom, mask) for atom in index.indirects()}
        return index.substitute({}, lambda loaded: made[loaded])

    def _key(self, node: Expr, mask: Expr | None) -> Key:
        return node, mask if node in self._guarded else None

    def _find(self, key: Key) -> Operand | None:
        """What holds a node under this mask, or under a wider one, under which each of its loads happened too."""
        node, mask = key
        if node.op == "const":
            return Literal(node.attr, node.dtype)
        while True:
            for scope in self.scope.chain():
                found = scope.names.get((node, mask))
                if found is not None:
                    return found
            if mask is None:
                return None
            mask = self._wider.get(mask)

    def _needs(self, node: Expr, mask: Expr | None) -> list[Key]:
        """What must be written before a node."""
        assert node.op != "reduce", f"a reduction is used before its loop: {node!r}"
        if node.op == "masked":
            inner = self._both(mask, node.args[0])
            # The other operand first: what both are made of is then known when the body needs it under the mask.
            wanted = [(node.args[0], mask), (inner, mask), (node.args[2], mask), (node.args[1], inner)]
        elif node.op == "scan":
            wanted = [(node.args[0], None)]  # goes on whether somebody looks or not
        else:
            wanted = [(child, mask) for child in node.children()]
        if mask is not None and node.op == "load":
            wanted.append((mask, None))
        return [self._key(*pair) for pair in wanted]

    def _both(self, outer: Expr | None, inner: Expr) -> Expr:
        """The mask under two masks."""
        if outer is None:
            return inner
        both = expr.op("and", outer, inner)
        if both is not outer:
            self._wider.setdefault(both, outer)
        if inner in self._guarded:
            self._guarded.add(both)
        return both

    def _write(self, node: Expr, mask: Expr | None) -> None:
        axes = self._axes(node) | (self._axes(mask) if mask is not None else frozenset())
        level = max(node.level, mask.level if mask is not None else 0)
        home = self._home(axes, level)
        here, self.scope = self.scope, home
        home.names[node, mask] = self._operand(node, mask)
        self.scope = here

    def _home(self, axes: Axes, level: int) -> Scope:
        home = self.scope
        for scope in self.scope.chain():
            if not axes <= scope.axes:
                break
            home = scope
            if level and scope is self._floor:
                break
        return home

    def _axes(self, node: Expr) -> Axes:
        found = self.deps.get(node)
        if found is None:  # a conjunction of masks made here
            found = self.deps[node] = frozenset().union(*[self._axes(arg) for arg in node.args])
        return found

    def _operand(self, node: Expr, mask: Expr | None) -> Operand:
        match node.op:
            case "load":
                memory, index = node.attr
                target, place = self.fresh(node.dtype), self.index(index, mask)
                guard = self.value(mask) if mask is not None else None
                self.scope.statements.append(Load(target, memory, place, guard))
                return target
            case "index":
                place, target = self.index(node.attr, mask), self.fresh("i64")
                self.scope.statements.append(Position(target, place))
                return target
            case "masked":
                body = self.value(node.args[1], self._both(mask, node.args[0]))
                parts = self.value(node.args[0], mask), body, self.value(node.args[2], mask)
                return self.let("where", node.dtype, *parts)
            case "known":
                return self.value(node.args[0], mask)
            case "random":
                drawn = self.let(node.attr, "f32", *[self.value(arg, mask) for arg in node.args])
                return drawn if node.dtype == "f32" else self.let("cast", node.dtype, drawn)
            case "scan":
                return self._scan(node)
            case _:
                return self.let(node.op, node.dtype, *[self.value(arg, mask) for arg in node.args])

    def _scan(self, node: Expr) -> Operand:
        """One step of a scan, whose state stands around the loops."""
        state, value = self.fresh(node.dtype, "a"), self.value(node.args[0])
        self.before.statements.append(Declare(state, Literal(identity(node.attr, node.dtype), node.dtype)))
        if node.attr == "logsumexp":
            made = self._logaddexp(state, value)
            self.scope.statements.append(Assign(state, "copy", (made,)))
        else:
            self.scope.statements.append(Assign(state, COMBINE[node.attr], (state, value)))
        return state

    def _logaddexp(self, a: Operand, b: Operand) -> Operand:
        """log(exp(a) + exp(b)); of two equal infinities it is one of them."""
        dtype = a.dtype
        low, high = self.let("minimum", dtype, a, b), self.let("maximum", dtype, a, b)
        raised = self.let("log1p", dtype, self.let("exp", dtype, self.let("sub", dtype, low, high)))
        same = self.let("and", "bool", self.let("eq", "bool", low, high), self.let("isinf", "bool", low))
        return self.let("where", dtype, same, high, self.let("add", dtype, raised, high))

    def _within(self, atom: Indirect, mask: Expr | None) -> Value:
        """A loaded integer that lies within its bound, checked once for each mask that it is used under."""
        node: Expr = atom.expr  # type: ignore[assignment]
        proved = node not in self._guarded and self.ranges.within(node, atom.bound)  # under no mask it is 0
        key = node, atom.bound, None if proved else mask
        for scope in self.scope.chain():
            if key in scope.bounded:
                return scope.bounded[key]
        value = self.value(node, mask)
        axes, level = self._axes(node), node.level
        if key[2] is not None:
            axes, level = axes | self._axes(key[2]), max(level, key[2].level)
        guard = self.value(mask) if mask is not None and not proved else None
        number = 0 if proved else self.checks.setdefault(atom.bound, len(self.checks) + 1)
        home, target = self._home(axes, level), self.fresh(node.dtype, "i")
        home.statements.append(Within(target, value, atom.bound, number, guard))
        home.bounded[key] = target
        return target

    # ---- facts

    def _guarded_nodes(self) -> set[Expr]:
        """The nodes that hold a load that may leave its memory where a mask around it does not hold."""
        numels = {param.name: param.numel for param in self.kernel.params}
        found: set[Expr] = set()
        for node in self.deps:
            guarded = node.op not in ("reduce", "scan") and any(child in found for child in node.children())
            if node.op == "load" and not guarded:
                memory, index = node.attr
                known = all(self.ranges.within(atom.expr, atom.bound) for atom in index.indirects())
                guarded = not (known and index.within(numels[memory]))
            if guarded:
                found.add(node)
        return found
