"""What functions mean: they run here on Python numbers, for small sizes.

Scalars, memory and the random stream are those of `loop/evaluate.py`, against which functions are held.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from stator.base.dtypes import ITEMSIZE
from stator.kernel import ir
from stator.loop import scalar
from stator.loop.evaluate import Memory, random
from stator.loop.index import Axis, Index
from stator.loop.scalar import Number
from stator.sizes import Extent, Symbol, substitute


def run(function: ir.Function, memories: Mapping[str, Memory], sizes: Mapping[Symbol, int] | None = None) -> int:
    """Run it on memory by parameter; gives the number of a check that failed, or 0."""
    machine = _Machine(memories, dict(sizes or {}))
    for symbol, extent in function.named:
        machine.sizes[symbol] = machine.extent(extent)
    machine.block(function.body)
    return machine.failed


def _exp_sum(best: float, total: float, value: float) -> tuple[float, float]:
    if value != value or best != best:
        return math.nan, total
    e = math.exp(-abs(value - best)) if value != best else 1.0
    return (value, total * e + 1) if value > best else (best, total + e)


def _welford(count: float, mean: float, squares: float, value: float) -> tuple[float, float, float]:
    new = mean + (value - mean) / (count + 1)
    return count + 1, new, squares + (value - mean) * (value - new)


_ONLINE: dict[str, Callable[..., tuple[float, ...]]] = {"exp_sum": _exp_sum, "welford": _welford}


class _Machine:
    """The values of names and axes; names are unique, so that one table does."""

    def __init__(self, memories: Mapping[str, Memory], sizes: dict[Symbol, int]) -> None:
        self.memories, self.sizes = dict(memories), sizes
        self.values: dict[ir.Value, Number] = {}
        self.totals: dict[ir.Value, float] = {}  # of sums: what was flushed, in double
        self.axes: dict[Axis, int] = {}
        self.failed = 0

    def block(self, block: ir.Block) -> None:
        for statement in block:
            match statement:
                case ir.Let(target, op, args):
                    self.values[target] = self.computed(op, target.dtype, args)
                case ir.Assign(target, op, args):
                    total = self.totals.pop(target, None)  # it adds to what was not flushed
                    self.values[target] = self.computed(op, target.dtype, args)
                    if total is not None:
                        self.totals[target] = total
                case ir.Position(target, index):
                    self.values[target] = self.index(index)
                case ir.Load(target, memory, index, mask):
                    read = mask is None or self.operand(mask)
                    self.values[target] = (
                        self.memories[memory].read(self.index(index)) if read else scalar.round_to(target.dtype, 0)
                    )
                case ir.Within():
                    self.within(statement)
                case ir.Declare(target, start):
                    self.values[target] = self.operand(start)
                    self.totals.pop(target, None)
                case ir.Store(memory, index, value, mode):
                    self.store(self.memories[memory], self.index(index), self.operand(value), mode)
                case ir.Best():
                    self.best(statement)
                case ir.Online(states, op, value):
                    taken = _ONLINE[op](*[self.values[state] for state in states], self.operand(value))
                    for state, number in zip(states, taken, strict=True):
                        self.values[state] = scalar.round_to(state.dtype, number)
                case ir.Scratch(name, dtype, numel):
                    self.memories[name] = Memory(bytearray(b"\xff" * (numel * ITEMSIZE[dtype])), 0, dtype)
                case ir.Flush(target):
                    self.totals[target] = self.totals.get(target, 0.0) + self.values[target]
                    self.values[target] = 0.0
                case ir.Scan(target, op, state, value):
                    step = scalar.SCANS[op](self.values[state], self.operand(value))
                    self.values[target] = self.values[state] = scalar.round_to(target.dtype, step)
                case ir.Turn():
                    self.turn(statement)
                case ir.Multiply():
                    self.multiply(statement)
                case ir.Loop():
                    self.loop(statement)

    def loop(self, loop: ir.Loop) -> None:
        points, together = self.points(loop.axis, loop.piece), loop.lanes * loop.unroll
        if loop.kind in ("whole", "rest"):
            left = len(points) - len(points) % together
            firsts = [i for i in range(left) if i % together < loop.lanes]
            points = [points[i] for i in firsts] if loop.kind == "whole" else points[left:]
        in_order = loop.kind == "range" or any(isinstance(s, ir.Scan) for s in ir.walk(loop.body))
        for point in points if in_order else reversed(points):  # any order: not the one that all expect
            self.axes[loop.axis] = point
            self.block(loop.body)

    def points(self, axis: Axis, piece: ir.Piece | None) -> Sequence[int]:
        """What a loop over an axis, or a piece of it, runs over."""
        size = self.extent(axis.size)
        if piece is None:
            return range(size)
        step = self.extent(piece.step)
        start = step * self.axes[piece.axis]
        return range(start, min(start + step, size))

    def turn(self, statement: ir.Turn) -> None:
        (rows, _), (columns, _) = statement.rows, statement.columns
        for i, row in enumerate(self.points(*statement.rows)):
            for j, column in enumerate(self.points(*statement.columns)):
                self.axes[rows], self.axes[columns] = row, column
                value = self.memories[statement.memory].read(self.index(statement.index))
                self.memories[statement.scratch].write(statement.width * i + j, value)

    def multiply(self, statement: ir.Multiply) -> None:
        (rows, _), (columns, _) = statement.rows, statement.columns
        left, right = self.memories[statement.left], self.memories[statement.right]
        for i, row in enumerate(self.points(*statement.rows)):
            for j, column in enumerate(self.points(*statement.columns)):
                self.axes[rows], self.axes[columns] = row, column
                total = 0.0
                for term in range(self.extent(statement.terms.size)):
                    self.axes[statement.terms] = term
                    product = left.read(self.index(statement.at)) * right.read(self.index(statement.to))
                    total = scalar.round_to("f32", total + product)
                self.memories[statement.scratch].write(statement.width * i + j, total)

    def best(self, statement: ir.Best) -> None:
        value, here = self.operand(statement.value), self.operand(statement.here)
        best, position = self.values[statement.best], self.values[statement.position]
        better = value > best if statement.op == "gt" else value < best
        alike = value == best or (value != value and best != best)
        if better or (value != value and best == best) or (alike and here < position):
            self.values[statement.best], self.values[statement.position] = value, here

    def within(self, statement: ir.Within) -> None:
        value, bound = self.operand(statement.value), self.extent(statement.bound)
        inside = 0 <= value < bound
        if not inside and (statement.mask is None or self.operand(statement.mask)):
            assert statement.number, f"{value} was proved to lie in 0 … {bound - 1}"
            self.failed = statement.number
        self.values[statement.target] = value if inside else 0

    @staticmethod
    def store(memory: Memory, position: int, value: Number, mode: str) -> None:
        if mode not in ("store", "put"):
            value = scalar.apply(mode, memory.dtype, memory.read(position), value)
        memory.write(position, value)

    def computed(self, op: str, dtype: str, args: tuple[ir.Operand, ...]) -> Number:
        given = [self.operand(arg) for arg in args]
        match op:
            case "copy":
                return given[0]
            case "cast":
                return scalar.convert(dtype, given[0])
            case "bitcast":
                return scalar.unpack(dtype, scalar.pack(args[0].dtype, given[0]))
            case "uniform" | "normal":
                return random(op, *given)
            case _:
                return scalar.apply(op, dtype, *given)

    def operand(self, operand: ir.Operand) -> Number:
        if isinstance(operand, ir.Literal):
            return operand.number
        value, total = self.values[operand], self.totals.get(operand)
        return value if total is None else scalar.round_to(operand.dtype, total + value)

    def extent(self, extent: Extent) -> int:
        found = substitute(extent, self.sizes)
        assert isinstance(found, int), f"{extent} has symbols without a value"
        return found

    def index(self, index: Index) -> int:
        fixed = index if index.fixed else index.resized(self.extent, lambda loaded: loaded)
        return fixed.evaluate(self._points(fixed), lambda loaded: self.values[loaded])

    def _points(self, index: Index) -> dict[Axis, int]:
        """The points of an index's axes, which have other sizes where symbols became numbers."""
        by_name = {axis.name: point for axis, point in self.axes.items()}
        return {axis: by_name[axis.name] for axis in index.axes()}
