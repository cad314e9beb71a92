"""Writes expressions as statements of the kernel IR, each where `placement` says.

A loaded integer goes through `Within` before it stands in an index: proved to lie within its bound, or checked.
Neighbours: `nest` makes loops and asks for values here.
"""

from __future__ import annotations

import math
from collections.abc import Set as AbstractSet

from stator.kernel.facts import INT32, Axes, dependencies, stays_inside
from stator.kernel.ir import Declare, Let, Literal, Load, Operand, Position, Scan, Value, Within
from stator.kernel.placement import Placement, guarded_nodes
from stator.loop import expr
from stator.loop.expr import Expr
from stator.loop.index import Axis, Index, Indirect
from stator.loop.kernel import Kernel
from stator.loop.ranges import Ranges
from stator.loop.scalar import identity
from stator.sizes import Extent

#: Reduction or scan → the operator that takes the next value.
COMBINE = {"sum": "add", "prod": "mul", "max": "maximum", "min": "minimum", "any": "or", "all": "and"}
COMPARISONS = frozenset(("eq", "ne", "lt", "le", "gt", "ge"))


class Writer(Placement):
    """Writes the expressions of one kernel; i64 that are `narrow` are i32, in which they fit.

    `guarded` are the nodes that hold a load that a mask matters to: without it, those that may leave their memory.
    `deps` are `facts.dependencies`, where they are known already; iterations along `lanes` will be lanes.
    """

    def __init__(
        self,
        kernel: Kernel,
        narrow: AbstractSet[Expr] = frozenset(),
        guarded: set[Expr] | None = None,
        deps: dict[Expr, Axes] | None = None,
        lanes: Axis | None = None,
    ) -> None:
        self.kernel, self.narrow, self.lanes = kernel, set(narrow), lanes
        self.ranges = Ranges(kernel.reduce_numel)
        numels = {param.name: param.numel for param in kernel.params}
        deps = dependencies(kernel) if deps is None else deps
        if guarded is None:
            guarded = guarded_nodes(deps, lambda load: stays_inside(load, numels, self.ranges))
        super().__init__(deps, guarded)
        self.tiled: dict[Expr, tuple[str, Index]] = {}  # loads of a block that was turned over: where it is now
        self.checks: dict[Extent, int] = {}  # the bounds that loaded integers are checked against, and their numbers
        self._count: dict[str, int] = {}

    # ---- blocks

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

    def dtype(self, node: Expr) -> str:
        """The dtype that a node is computed in."""
        return "i32" if node in self.narrow else node.dtype

    def cast(self, operand: Operand, dtype: str) -> Operand:
        """The operand in this dtype."""
        if operand.dtype == dtype:
            return operand
        if isinstance(operand, Literal):
            return Literal(operand.number, dtype)
        for scope in self.scope.chain():
            if (operand, dtype) in scope.casts:
                return scope.casts[operand, dtype]
        made = self.scope.casts[operand, dtype] = self.let("cast", dtype, operand)
        return made

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
        dtype = self.dtype(node)
        match node.op:
            case "load":
                memory, index = self.tiled.get(node, node.attr)
                target, place = self.fresh(node.dtype), self.index(index, mask)
                guard = self.value(mask) if mask is not None else None
                self.scope.statements.append(Load(target, memory, place, guard))
                return self.cast(target, dtype)
            case "index":
                place, target = self.index(node.attr, mask), self.fresh(dtype)
                self.scope.statements.append(Position(target, place))
                return target
            case "masked":
                inner = self.both(mask, node.args[0])
                body = self.value(node.args[1], inner)
                if _is_nothing(node.args[2]) and self._ends(node.args[1], inner):
                    return self.cast(body, dtype)
                parts = [self.cast(part, dtype) for part in (body, self.value(node.args[2], mask))]
                return self.let("where", dtype, self.value(node.args[0], mask), *parts)
            case "known" | "cast":
                given = self.value(node.args[0], mask)
                same = node.op == "known" or dtype == given.dtype
                return self.cast(given, dtype) if same else self.let("cast", dtype, given)
            case "random":
                drawn = self.let(node.attr, "f32", *[self.value(arg, mask) for arg in node.args])
                return drawn if node.dtype == "f32" else self.let("cast", node.dtype, drawn)
            case "scan":
                return self._scan(node)
            case "bitcast":
                (arg,) = node.args
                return self.cast(self.let("bitcast", node.dtype, self.cast(self.value(arg, mask), arg.dtype)), dtype)
            case _:
                return self._computed(node, mask)

    def _ends(self, node: Expr, mask: Expr) -> bool:
        """Whether what was written of a node under a mask is 0 where that does not hold, as its load is."""
        key = node, mask
        if node not in self._guarded or all(key not in scope.names for scope in self.scope.chain()):
            return False
        match node.op:
            case "cast":
                return self._ends(node.args[0], mask)
            case "masked":
                return _is_nothing(node.args[2]) and self._ends(node.args[1], self.both(mask, node.args[0]))
        return node.op == "load"

    def _computed(self, node: Expr, mask: Expr | None) -> Operand:
        """An operator, on integers of the wider dtype of its operands and its result."""
        args = self._clamped(node, mask) if node.op in COMPARISONS else node.args
        given = [self.value(arg, mask) for arg in args]
        whole = {self.dtype(arg) for arg in args if arg.dtype == "i64"}
        result = node.dtype
        if node.dtype == "i64":
            whole.add(self.dtype(node))
            result = "i64" if "i64" in whole else "i32"
        if whole:
            common = "i64" if "i64" in whole else "i32"
            given = [self.cast(g, common) if a.dtype == "i64" else g for g, a in zip(given, args, strict=True)]
        return self.cast(self.let(node.op, result, *given), self.dtype(node))

    def _clamped(self, node: Expr, mask: Expr | None) -> tuple[Expr, ...]:
        """The operands of a comparison of i32 lanes with one wider number, which is made to fit.

        Beyond either end of the range of the other it compares as at the end.
        """
        left, right = node.args
        if {self.dtype(left), self.dtype(right)} != {"i32", "i64"} or "i32" in (left.dtype, right.dtype):
            return node.args
        small, wide = (left, right) if self.dtype(left) == "i32" else (right, left)
        ends = self.ranges.numbers(small)
        if ends is None or not -INT32 < ends[0] <= ends[1] < INT32 - 1:
            return node.args
        if self.lanes not in self.axes(small) or self.lanes in self.axes(wide):
            return node.args
        low, high = (expr.const(end, "i64") for end in (ends[0] - 1, ends[1] + 1))
        held = expr.op("minimum", expr.op("maximum", wide, low), high)
        self.narrow.add(held)
        return (small, held) if small is left else (held, small)

    def _scan(self, node: Expr) -> Operand:
        """One step of a scan, whose state stands around the loops."""
        dtype = self.dtype(node)
        state, value = self.fresh(dtype, "a"), self.cast(self.value(node.args[0]), dtype)
        self.before.statements.append(Declare(state, Literal(identity(node.attr, dtype), dtype)))
        target = self.fresh(dtype)
        self.scope.statements.append(Scan(target, node.attr, state, value))
        return target

    def _within(self, atom: Indirect, mask: Expr | None) -> Value:
        """A loaded integer that lies within its bound, checked once for each mask that it is used under."""
        node: Expr = atom.expr  # type: ignore[assignment]
        proved = self.ranges.within(node, atom.bound)
        if node not in self._guarded:  # under no mask it is not 0
            mask = None if proved else mask
        key = node, atom.bound, mask
        for scope in self.scope.chain():
            if key in scope.bounded:
                return scope.bounded[key]
        value = self.value(node, mask)
        guard = self.value(mask) if mask is not None else None
        number = 0 if proved else self.checks.setdefault(atom.bound, len(self.checks) + 1)
        home, target = self.home(node, key[2]), self.fresh(value.dtype, "i")
        home.statements.append(Within(target, value, atom.bound, number, guard))
        home.bounded[key] = target
        return target


def _is_nothing(node: Expr) -> bool:
    """Whether it is the 0 that has no sign."""
    return node.op == "const" and node.attr == 0 and math.copysign(1.0, node.attr) > 0
