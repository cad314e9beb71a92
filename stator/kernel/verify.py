"""The rules of the kernel IR, as checks. Each raises `GrammarError` with the function's name and the statement.

Checked: a name is defined once, before it is used, in its block or one around it; dtypes agree with the operators;
only variables are assigned to; what an index loads went through `within`; every access whose place is not masked lies
inside its memory, by the bounds of its index; parallel iterations assign to no variable from outside of their loop,
and write different places; those of lanes only add to such a variable, and do not look at it.
Neighbours: `ir` has the grammar, `loop/verify.py` the rules of kernels.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from stator.base import pairs
from stator.base.dtypes import ITEMSIZE
from stator.kernel import ir
from stator.kernel.text import statement_text
from stator.loop import scalar
from stator.loop.collision import MODES, colliding
from stator.loop.index import Axis, Index
from stator.loop.kernel import Param
from stator.loop.scalar import INTEGERS
from stator.loop.space import loops
from stator.loop.verify import GrammarError
from stator.sizes import Extent

#: What holds a position.
POSITIONS = ("i64", "i32")
_OF_LOOPS = ("shared", "folded", "empty", "whole", "axes", "parallel", "lanes")  # what is known in a loop alone


def verify(function: ir.Function) -> None:
    """Raise GrammarError unless the function is well formed."""
    _Checker(function).block(function.body)


class _Checker:
    """Walks a function with what is known at each place."""

    def __init__(self, function: ir.Function) -> None:
        self.function = function
        self.params = {param.name: param for param in function.params}
        axes = {statement.axis.name for statement in ir.walk(function.body) if isinstance(statement, ir.Loop)}
        self.names: set[str] = set(self.params) | {s.name for s in (*function.symbols, *dict(function.named))}
        self.defined = self.names | axes
        self.known: set[ir.Value] = set()
        self.variables: set[ir.Value] = set()
        self.shared: set[ir.Value] = set()  # variables from outside of the innermost parallel loop
        self.folded: set[ir.Value] = set()  # and of the loop of lanes
        self.bounds: dict[ir.Value, object] = {}
        self.axes: list[Axis] = []
        self.parallel: list[Axis] = []
        self.lanes: list[Axis] = []
        self.owners: dict[str, set[Axis]] = {}  # scratch → the parallel loops around it
        self.pieces: dict[Axis, tuple[Axis, Extent]] = {}  # the axis of pieces → what of, and how long each is
        self.whole: ir.Loop | None = None  # the loop around that goes several vectors at a time
        self.empty = False  # inside of a loop without iterations, which touches nothing
        self.statement: ir.Statement | None = None

    def require(self, condition: object, message: str) -> None:
        if not condition:
            place = f": `{statement_text(self.statement)}`" if self.statement is not None else ""
            raise GrammarError(f"{self.function.name}{place}: {message}")

    def block(self, block: ir.Block) -> None:
        known, variables = set(self.known), set(self.variables)
        for statement in block:
            self.statement = statement
            for i, operand in enumerate(ir.operands(statement)):
                self.operand(operand)
                taken = False
                if isinstance(statement, ir.Assign):
                    taken = statement.target == operand and i == ir.FOLDING.get(statement.op)
                self.require(taken or operand not in self.folded, "a lane looks at what others add to")
            self.check(statement)
        self.known, self.variables = known, variables

    def check(self, statement: ir.Statement) -> None:
        match statement:
            case ir.Let(target, op, args):
                self.require(self.result(op, args, target.dtype) == target.dtype, "the operator gives another dtype")
                self.define(target)
            case ir.Position(target, index):
                self.require(target.dtype in POSITIONS, "a position is an i64, or an i32 that it fits in")
                self.index(index)
                self.define(target)
            case ir.Load(target, memory, index, mask):
                self.access(memory, index, target.dtype, "in", mask)
                self.define(target)
            case ir.Within(target, value, bound, _, mask):
                self.require(value.dtype == target.dtype and target.dtype in INTEGERS, "an integer lies within a bound")
                self.require(mask is None or mask.dtype == "bool", "a mask is a bool")
                self.define(target)
                self.bounds[target] = bound
            case ir.Declare(target, start):
                self.require(start.dtype == target.dtype, "a variable starts from another dtype")
                self.define(target)
                self.variables.add(target)
            case ir.Assign(target, op, args):
                self.require(target in self.variables, "only variables are assigned to")
                self.require(target not in self.shared, "parallel iterations share the variable")
                adds = op in ir.FOLDING and args[ir.FOLDING[op]] == target
                self.require(adds or target not in self.folded, "lanes do not only add to the variable")
                given = args[0].dtype if op == "copy" else self.result(op, args, target.dtype)
                self.require(given == target.dtype, "the operator gives another dtype")
            case ir.Flush(target):
                self.require(target in self.variables - self.shared - self.folded, "no variable to flush")
            case ir.Best(best, position, op, value, here):
                self.require({best, position} <= self.variables - self.shared, "only variables are assigned to")
                same = (value.dtype, here.dtype) == (best.dtype, position.dtype)
                self.require(same and position.dtype in POSITIONS and op in ("gt", "lt"), "dtypes differ")
            case ir.Online(states, op, value):
                self.require(self.variables - self.shared >= set(states), "only variables are assigned to")
                same = {value.dtype, *[state.dtype for state in states]} <= {value.dtype} & scalar.FLOATS
                self.require(same and len(states) == ir.ONLINE.get(op), "dtypes or variables differ")
            case ir.Scan(target, op, state, value):
                self.require(state in self.variables - self.shared - self.folded, "no variable that a scan may change")
                self.require(op in scalar.SCANS and target.dtype == value.dtype == state.dtype, "dtypes differ")
                self.define(target)
            case ir.Turn():
                self.turn(statement)
            case ir.Multiply():
                self.multiply(statement)
            case ir.Scratch(name, dtype, numel):
                self.require(name not in self.names and dtype in ITEMSIZE and numel >= 0, "no memory")
                self.names.add(name)
                self.owners[name] = set(self.parallel)
                self.params[name] = Param(name, dtype, "inout", numel)
            case ir.Store(memory, index, value, mode, atomic, stream):
                self.require(mode in MODES and not (atomic and mode == "store"), "an unknown mode")
                self.require(mode == "store" or not stream, "what is combined with what is there is in a cache")
                self.access(memory, index, value.dtype, "out" if mode in ("store", "put") else "inout", None)
                if not atomic:
                    self.disjoint(memory, index, mode)
            case ir.Loop():
                self.loop(statement)

    def loop(self, loop: ir.Loop) -> None:
        axis, piece = loop.axis, loop.piece
        self.require(loop.kind in ir.KINDS, "an unknown kind of loop")
        taken = axis.name in self.names or axis.name in {outer.name for outer in self.axes}
        self.require(not taken, f"{axis.name} is defined already")
        if piece is not None:
            whole = piece.axis in self.axes and piece.step * piece.axis.size - axis.size
            self.require(piece.axis in self.axes, f"{piece.axis} is no axis of a loop around it")
            self.require(type(whole) is not int or 0 <= whole < piece.step, "the pieces are not the whole axis")
        around = {name: getattr(self, name) for name in _OF_LOOPS}
        of_lanes = loop.kind not in ("range", "parallel")
        if of_lanes:
            self.require(loop.lanes > 0 and loop.unroll > 0, "no lanes")
            self.folded = self.folded | self.variables & ir.assigned(loop.body)
            self.lanes = [*self.lanes, axis]
        else:
            self.require((loop.lanes, loop.unroll) == (0, 1), "only a loop of lanes has lanes")
        if loop.kind == "parallel":
            self.shared = set(self.variables)
        if loop.kind != "range":
            self.parallel = [*self.parallel, axis]
        if piece is not None:
            self.pieces[piece.axis] = axis, piece.step
        self.axes = [*self.axes, axis]
        self.empty = self.empty or axis.size == 0
        self.whole = loop if loop.kind == "whole" else self.whole
        self.block(loop.body)
        for name, value in around.items():
            setattr(self, name, value)

    # ---- parts

    def define(self, target: ir.Value) -> None:
        self.require(target.name not in self.defined, f"{target.name} is defined already")
        self.require(target.dtype in ITEMSIZE, f"unknown dtype {target.dtype}")
        self.defined.add(target.name)
        self.known.add(target)

    def operand(self, operand: ir.Operand) -> None:
        if isinstance(operand, ir.Literal):
            self.require(operand.dtype in ITEMSIZE, "a number without a dtype")
            return
        self.require(operand in self.known, f"{operand.name}: {operand.dtype} is not known here")

    def result(self, op: str, args: tuple[ir.Operand, ...], dtype: str) -> str:
        """The dtype that an operator gives, `dtype` where it may be any."""
        given = tuple([arg.dtype for arg in args])
        if op not in ir.SPECIAL:
            self.require(op in scalar.OPS, f"unknown operator {op}")
            try:
                return scalar.result_dtype(op, given)
            except TypeError as error:
                self.require(False, str(error))
        drawn = op in ("uniform", "normal")
        right = len(given) == 2 and given[0] == "i64" and given[1] in POSITIONS if drawn else len(given) == 1
        same = op != "bitcast" or ITEMSIZE[given[0]] == ITEMSIZE[dtype]
        self.require(right and same, f"{op} does not take ({', '.join(given)})")
        return "f32" if drawn else dtype

    def index(self, index: Index) -> None:
        for axis in index.axes():
            self.require(axis in self.axes, f"{axis} is no axis of a loop around it")
        for atom in index.indirects():
            bound = self.bounds.get(atom.expr)  # type: ignore[call-overload]
            self.require(bound is not None and bound == atom.bound, f"{atom.expr} is not known to lie within a bound")

    def access(self, memory: str, index: Index, dtype: str, role: str, mask: ir.Operand | None) -> None:
        self.require(memory in self.params, f"{memory} is no parameter")
        param = self.params[memory]
        self.require(param.dtype == dtype, f"{memory} is {param.dtype}, not {dtype}")
        self.require(param.role in (role, "inout"), f"{memory} is {param.role}")
        self.require(mask is None or mask.dtype == "bool", "a mask is a bool")
        self.index(index)
        inside = mask is not None or self.empty
        inside = inside or any(self.local(same).within(param.numel) for same in self.alike(index))
        self.require(inside, f"the position leaves 0 … {param.numel}-1")

    def alike(self, index: Index) -> Iterator[Index]:
        """The index, or that of the first of several vectors that go at a time: in memory if one of them is."""
        yield index
        if (loop := self.whole) is not None:
            for k in range(1, loop.unroll):
                yield index.substitute({loop.axis: loop.axis.index - k * loop.lanes})

    def local(self, index: Index) -> Index:
        """An index with each axis of a piece as its beginning and the way from there."""
        found: dict[Axis, Index] = {}
        for outer, (axis, step) in self.pieces.items():
            if axis in index.axes() and outer in index.axes():
                found[axis] = outer.index * step + Axis(f"{axis.name}_local", step)
        return index.substitute(found) if found else index

    def turn(self, statement: ir.Turn) -> None:
        """What is turned over is in memory, and the block fits."""
        self.block_of(statement, self.params[statement.memory].dtype)
        self.axes += [statement.rows[0], statement.columns[0]]
        self.access(statement.memory, statement.index, self.params[statement.memory].dtype, "in", None)
        del self.axes[-2:]

    def multiply(self, statement: ir.Multiply) -> None:
        """Factors are in memory, terms side by side in one and all of the other in pairs, and the block fits."""
        self.block_of(statement, "f32")
        (rows, _), (columns, _), terms = statement.rows, statement.columns, statement.terms
        self.require(type(terms.size) is type(columns.size) is int, "a factor in pairs has a known size")
        self.axes += [rows, columns, terms]
        for memory, index in ((statement.left, statement.at), (statement.right, statement.to)):
            self.access(memory, index, "bf16", "in", None)
        del self.axes[-3:]
        self.require(statement.at.stride(terms) == 1 and statement.at.stride(rows) is not None, "no rows of terms")
        assert isinstance(terms.size, int) and isinstance(columns.size, int)
        whole = self.params[statement.right].numel == prod(pairs.shape(columns.size, terms.size))
        paired = statement.to is pairs.place(columns.index, terms.index, terms.size)
        self.require(paired and whole, "the factor does not lie in pairs")

    def block_of(self, statement: ir.Turn | ir.Multiply, dtype: str) -> None:
        """A block of two axes that the loops around it are pieces of, which fills scratch."""
        (_, height), (_, width) = statement.rows, statement.columns
        scratch = self.params.get(statement.scratch)
        self.require(scratch is not None and scratch.dtype == dtype, "dtypes differ")
        self.require({height.axis, width.axis} <= set(self.axes), "no axis of a loop around it")
        size = scratch.numel if scratch is not None else -1
        fits = width.step == statement.width and height.step * width.step == size
        self.require(fits, "the block is not the scratch")

    def disjoint(self, memory: str, index: Index, mode: str) -> None:
        """Parallel iterations store at different places: their axes are digits of the position.

        Each iteration around a block has scratch of its own.
        """
        parallel = [axis for axis in self.parallel if axis not in self.owners.get(memory, ()) and loops(axis)]
        threads = {self.pieces.get(axis, (axis,))[0] for axis in parallel if axis not in self.lanes}
        for axis in threads if mode != "store" else ():  # lanes write one after the other where they meet
            self.require(axis not in colliding([index], [axis]), f"iterations along {axis} may write one place")
        if mode == "store" and not index.has_indirect:
            ways = {
                axis: {axis, *self.pieces.get(axis, ())} for axis in parallel
            }  # its own digit, or that of its points
            missing = [axis for axis in parallel if ways[axis].isdisjoint(index.axes())]
            self.require(not missing, f"iterations along {missing} write one place")
