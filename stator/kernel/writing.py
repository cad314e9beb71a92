"""Writes expressions as statements of the kernel IR, each where `placement` says.

A loaded integer goes through `Within` before it stands in an index: proved to lie within its bound, or checked.
Neighbours: `serial` makes loops and asks for values here.
"""

from __future__ import annotations

from stator.kernel.facts import Axes, dependencies, stays_inside
from stator.kernel.ir import Assign, Declare, Let, Literal, Load, Operand, Position, Statement, Value, Within
from stator.kernel.placement import Placement, Scope, guarded_nodes
from stator.loop.expr import Expr
from stator.loop.index import Index, Indirect
from stator.loop.kernel import Kernel
from stator.loop.ranges import Ranges
from stator.loop.scalar import identity
from stator.sizes import Extent

#: Reduction or scan → the operator that takes the next value.
COMBINE = {"sum": "add", "prod": "mul", "max": "maximum", "min": "minimum", "any": "or", "all": "and"}


class Block(Scope[Operand]):
    """Its statements, and the integers that lie within bounds there."""

    __slots__ = ("bounded", "statements")

    def __init__(self, parent: Block | None, axes: Axes) -> None:
        super().__init__(parent, axes)
        self.statements: list[Statement] = []
        self.bounded: dict[tuple[Expr, Extent, Expr | None], Value] = {}


class Writer(Placement[Operand]):
    """Writes the expressions of one kernel."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.ranges = Ranges(kernel.reduce_numel)
        numels = {param.name: param.numel for param in kernel.params}
        deps = dependencies(kernel)
        guarded = guarded_nodes(deps, lambda load: stays_inside(load, numels, self.ranges))
        super().__init__(Block(None, frozenset()), deps, guarded)
        self.checks: dict[Extent, int] = {}  # the bounds that loaded integers are checked against, and their numbers
        self._count: dict[str, int] = {}

    # ---- blocks

    def leave(self) -> tuple[Statement, ...]:
        """Close the block: its statements are the caller's to place in the one around it."""
        inner = self.scope
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

    # ---- values

    def find(self, node: Expr | Indirect, mask: Expr | None) -> Operand | None:
        """As for any writer; a constant is known everywhere."""
        if isinstance(node, Expr) and node.op == "const":
            return Literal(node.attr, node.dtype)
        return super().find(node, mask)

    def index(self, index: Index, mask: Expr | None = None) -> Index:
        """An index with names for what it loads."""
        if not index.has_indirect:
            return index
        made = {atom.expr: self._within(atom, mask) for atom in index.indirects()}
        return index.substitute({}, lambda loaded: made[loaded])

    def define(self, node: Expr, mask: Expr | None) -> None:
        here, self.scope = self.scope, self.home(node, mask)
        self.scope.names[node, mask] = self._operand(node, mask)
        self.scope = here

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
                body = self.value(node.args[1], self.both(mask, node.args[0]))
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
        guard = self.value(mask) if mask is not None and not proved else None
        number = 0 if proved else self.checks.setdefault(atom.bound, len(self.checks) + 1)
        home, target = self.home(node, key[2]), self.fresh(node.dtype, "i")
        home.statements.append(Within(target, value, atom.bound, number, guard))
        home.bounded[key] = target
        return target
