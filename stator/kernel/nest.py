"""A kernel as loops over its axes: what every strategy starts from, and rewrites.

`Order` says which loops there are around which; what is computed where follows from that (`placement`). Neighbours:
`strategies` has the orders, `writing` writes the values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

from stator.kernel import ir
from stator.kernel.facts import Axes
from stator.kernel.pairs import Pairs
from stator.kernel.tiles import Tile
from stator.kernel.writing import COMBINE, Writer
from stator.loop import kernel as loop_kernel
from stator.loop.collision import colliding, scatters
from stator.loop.expr import Expr
from stator.loop.index import Axis, Index
from stator.loop.kernel import Kernel
from stator.loop.scalar import identity
from stator.loop.space import flat, loops


@dataclass(frozen=True, slots=True)
class Order:
    """The loops of a nest, outermost first.

    Nothing is computed between loops over the axes of one group of `outer`. A loop over an axis of `pieces` runs over
    a piece of it; one thread goes along `swept`. What a `tile` loads is turned over inside of the first group, and the
    sums of `pairs` are multiplied there. `staged`
    are values that the first loop over a row that computes them keeps for the next ones, `ahead` those that a loop
    along `swept` computes before all others.
    With `blocks` nothing is computed between loops over reduce axes, and outer iterations go in any order: where they
    meet they write atomically. `narrow`, `guarded`, `deps` and `lanes` are as for `Writer`.
    """

    outer: tuple[tuple[Axis, ...], ...]
    reduced: tuple[Axis, ...]
    pieces: Mapping[Axis, ir.Piece] = field(default_factory=dict)
    swept: Axis | None = None
    tile: Tile | None = None
    staged: tuple[Expr, ...] = ()
    ahead: tuple[Expr, ...] = ()
    blocks: bool = False
    narrow: frozenset[Expr] = frozenset()
    guarded: set[Expr] | None = None
    deps: dict[Expr, Axes] | None = None
    lanes: Axis | None = None
    pairs: Pairs | None = None

    @staticmethod
    def of(kernel: Kernel) -> Order:
        """As the kernel has its axes, each on its own."""
        return Order(tuple((axis,) for axis in kernel.axes), kernel.reduce_axes)


def nest(kernel: Kernel, name: str, order: Order) -> ir.Function:
    """A function of that name which runs the kernel, with one accumulator for each reduction."""
    body: tuple[ir.Statement, ...] = ()
    if kernel.outer_numel != 0:
        body = _Nest(kernel, order).body()
    return ir.Function(name, kernel.params, kernel.symbols, body)


class _Nest:
    """Writes the loops of one kernel."""

    def __init__(self, kernel: Kernel, order: Order) -> None:
        self.kernel, self.order = kernel, order
        self.writer = Writer(kernel, order.narrow, order.guarded, order.deps, order.lanes)
        reduced = [axis for axis in order.reduced if loops(axis)]
        self.reduced = [reduced] if order.blocks and reduced else [[axis] for axis in reduced]
        self.kept: dict[Expr, str] = {}  # what is staged: the scratch that has it
        self.multiplied: dict[Expr, tuple[str, Index]] = {}  # sums of a block: the scratch, and the place in it

    def body(self) -> tuple[ir.Statement, ...]:
        kernel, writer = self.kernel, self.writer
        collide = colliding([store.index for store in kernel.stores if scatters(store)], kernel.axes)
        parts = {piece.axis for piece in self.order.pieces.values()}
        in_turn = {*self.order.pieces, self.order.swept, *(() if self.order.blocks else collide)}
        groups = [[axis for axis in group if loops(axis) or axis in parts] for group in self.order.outer]
        groups = [group for group in groups if group]
        if self.order.ahead:
            self.compute_ahead()
        for i, group in enumerate(groups):
            writer.enter(*group)
            if i == 0 and self.order.tile is not None:
                self.turn(self.order.tile)
            if i == 0 and self.order.pairs is not None:
                self.multiply(self.order.pairs)
        self.take_kept()
        self.point()
        for group in reversed(groups):
            body = writer.leave()
            for axis in reversed(group):
                kind = "range" if axis in in_turn else "parallel"
                body = (ir.Loop(axis, kind, body, self.order.pieces.get(axis)),)
            writer.scope.statements.extend(body)
        return tuple(writer.scope.statements)

    def compute_ahead(self) -> None:
        """What all rows share, in a loop of its own."""
        writer, axis = self.writer, self.order.swept
        assert axis is not None and type(axis.size) is int
        writer.enter(axis)
        for i, node in enumerate(self.order.ahead):
            writer.scope.statements.append(ir.Store(f"s{i}", axis.index, writer.value(node)))
        loop = ir.Loop(axis, "parallel", writer.leave())
        self.kept = {node: f"s{i}" for i, node in enumerate(self.order.ahead)}
        scratch = [ir.Scratch(name, node.dtype, axis.size) for node, name in self.kept.items()]
        writer.scope.statements += [*scratch, loop]

    def take_kept(self) -> None:
        """What is kept of a row, at the place where the loops are."""
        for node, scratch in self.kept.items():
            target = self.writer.fresh(node.dtype)
            self.writer.scope.statements.append(ir.Load(target, scratch, self.row))
            self.writer.scope.names[node, None] = target

    def turn(self, tile: Tile) -> None:
        """Blocks of what lies across the lanes, with their rows along them."""
        rows, swept = tile.axis, self.order.swept
        assert swept is not None
        height, width = self.order.pieces[rows], self.order.pieces[swept]
        across, along = rows.index - height.axis.index * height.step, swept.index - width.axis.index * width.step
        place = across * tile.width + along
        for load, scratch in tile.buffers.items():
            memory, index = load.attr
            turned = ir.Turn(scratch, tile.width, memory, index, (rows, height), (swept, width))
            self.writer.scope.statements += [ir.Scratch(scratch, load.dtype, tile.columns * tile.width), turned]
            self.writer.tiled[load] = scratch, place

    def multiply(self, pairs: Pairs) -> None:
        """Sums of a block of rows by columns, in scratch."""
        rows, columns = [(axis, self.order.pieces[axis]) for axis in (pairs.rows, pairs.columns)]
        across, along = [axis.index - piece.axis.index * piece.step for axis, piece in (rows, columns)]
        height, width = rows[1].step, columns[1].step
        assert isinstance(height, int) and isinstance(width, int)
        for i, (node, factors) in enumerate(pairs.sums.items()):
            (left, at), (right, to) = factors.left.attr, factors.right.attr
            made = ir.Multiply(f"s{i}", width, left, at, right, to, rows, columns, pairs.terms, pairs.by_columns)
            self.writer.scope.statements += [ir.Scratch(f"s{i}", "f32", height * width), made]
            self.multiplied[node] = f"s{i}", across * width + along

    def point(self) -> None:
        """What happens at one point of the outer axes: a loop for each level of reductions, then the stores."""
        kernel = self.kernel
        levels: dict[int, list[Expr]] = {}
        for node in kernel.nodes:
            if node.op == "reduce":
                levels.setdefault(node.level, []).append(node)
        inner = [store for store in kernel.stores if store.space == "inner"]
        last = max(levels, default=0)
        merged = merges(kernel, inner)
        for level in sorted(levels):
            self.reductions(levels[level], inner if merged and level == last else [])
        if inner and not merged:
            self.enter()
            self.store(inner)
            self.leave()
        self.store([store for store in kernel.stores if store.space == "outer"])

    def store(self, stores: Sequence[loop_kernel.Store]) -> None:
        """All values first, then what writes memory."""
        writer, made = self.writer, []
        for store in stores:
            value = writer.cast(writer.value(store.value), store.value.dtype)
            atomic = self.order.blocks and scatters(store)
            made.append(ir.Store(store.buffer, writer.index(store.index), value, store.mode, atomic))
        writer.scope.statements.extend(made)

    # ---- reductions

    def reductions(self, nodes: Sequence[Expr], stores: Sequence[loop_kernel.Store]) -> None:
        """One loop over the reduce axes for all reductions of a level, and for stores that need none of them."""
        writer = self.writer
        if self.multiplied:
            for node in nodes:
                sum_ = writer.fresh("f32")
                writer.scope.statements.append(ir.Load(sum_, *self.multiplied[node]))
                writer.bind(node, sum_)
            return
        if self.kernel.reduce_numel == 0:
            for node in nodes:
                dtype = writer.dtype(node)
                nothing = 0 if node.attr.startswith("arg") else identity(node.attr, dtype)
                writer.bind(node, ir.Literal(nothing, dtype))
            return
        found_beside = _found_beside(nodes)
        accumulators = {node: self.declare(node) for node in nodes if node not in found_beside}
        self.enter()
        steps: list[ir.Statement] = []
        for node, variables in accumulators.items():
            value = writer.cast(writer.value(node.args[0]), variables[0].dtype)
            if len(variables) == 2:
                steps.append(self.best(node, value, *variables))
            else:
                steps.append(ir.Assign(variables[0], COMBINE[node.attr], (variables[0], value)))
        writer.scope.statements.extend(steps)
        self.store(stores)
        self.leave()
        for node, variables in accumulators.items():
            writer.bind(node, variables[-1])
        for node, beside in found_beside.items():
            writer.bind(node, accumulators[beside][0])

    def declare(self, node: Expr) -> tuple[ir.Value, ...]:
        """The accumulator of a reduction; of the position of an extreme, that value and the position."""
        writer, (body,) = self.writer, node.args
        best = node.attr.startswith("arg")
        dtype = writer.dtype(body) if best else writer.dtype(node)
        accumulator = writer.fresh(dtype, "a")
        writer.scope.statements.append(ir.Declare(accumulator, ir.Literal(identity(node.attr, dtype), dtype)))
        if not best:
            return (accumulator,)
        position = writer.fresh(writer.dtype(node), "a")
        writer.scope.statements.append(ir.Declare(position, ir.Literal(0, position.dtype)))
        return accumulator, position

    def best(self, node: Expr, value: ir.Operand, best: ir.Value, position: ir.Value) -> ir.Best:
        """Takes a value that is better than all before it."""
        here = self.writer.fresh(position.dtype)
        self.writer.scope.statements.append(ir.Position(here, flat(self.kernel.reduce_axes)))
        in_turn = self.order.reduced == self.kernel.reduce_axes
        return ir.Best(best, position, "gt" if node.attr == "argmax" else "lt", value, here, in_turn)

    def enter(self) -> None:
        """Into the loops over the reduce axes; also where none of them runs more than once."""
        self.writer.before = self.writer.scope
        self.writer.enter()
        for axes in self.reduced:
            self.writer.enter(*axes)
        self.take_kept()

    def leave(self) -> None:
        writer = self.writer
        for node in self.order.staged:
            value = writer.scope.names.get((node, None))
            if value is not None and node not in self.kept:
                scratch = self.kept[node] = f"s{len(self.kept)}"
                size = prod([axis.size for axes in self.reduced for axis in axes])
                assert type(size) is int
                writer.before.statements.append(ir.Scratch(scratch, node.dtype, size))
                writer.scope.statements.append(ir.Store(scratch, self.row, value))
        for axes in (*reversed(self.reduced), ()):
            body = writer.leave()
            for axis in reversed(axes):
                body = (ir.Loop(axis, "range", body, self.order.pieces.get(axis)),)
            writer.scope.statements.extend(body)

    @property
    def row(self) -> Index:
        """The place in a row that is kept."""
        if self.order.ahead and self.order.swept is not None:
            return self.order.swept.index
        return flat([axis for axes in self.reduced for axis in axes])


def _found_beside(nodes: Sequence[Expr]) -> dict[Expr, Expr]:
    """The extremes whose position is asked for too: what finds that finds them. Truth values are numbers there."""
    positions = {(node.attr, node.args[0]): node for node in nodes if node.attr.startswith("arg")}
    extremes = {node: positions.get((f"arg{node.attr}", node.args[0])) for node in nodes if node.dtype != "bool"}
    return {node: beside for node, beside in extremes.items() if beside is not None}


def merges(kernel: Kernel, stores: Sequence[loop_kernel.Store]) -> bool:
    """Whether the last loop that reduces makes these inner stores too: they need nothing that it finds."""
    last = max([node.level for node in kernel.nodes if node.op == "reduce"], default=0)
    return bool(stores) and last > 0 and all(store.value.level < last for store in stores)
