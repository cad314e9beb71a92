"""The rules of the kernel IR, as checks. Each raises `GrammarError` with the function's name and the statement.

Checked: a name is defined once, before it is used, in its block or one around it; dtypes agree with the operators;
only variables are assigned to; what an index loads went through `within`; every access whose place is not masked lies
inside its memory, by the bounds of its index; parallel iterations assign to no variable from outside of their loop,
and write different places. Neighbours: `ir` has the grammar, `loop/verify.py` the rules of kernels.
"""

from __future__ import annotations

from stator.base.dtypes import ITEMSIZE
from stator.kernel.ir import (
    KINDS,
    SPECIAL,
    Assign,
    Block,
    Declare,
    Function,
    Let,
    Literal,
    Load,
    Loop,
    Operand,
    Position,
    Statement,
    Store,
    Value,
    Within,
    operands,
    walk,
)
from stator.kernel.text import statement_text
from stator.loop import scalar
from stator.loop.collision import MODES, colliding
from stator.loop.index import Axis, Index
from stator.loop.scalar import INTEGERS
from stator.loop.space import loops
from stator.loop.verify import GrammarError


def verify(function: Function) -> None:
    """Raise GrammarError unless the function is well formed."""
    _Checker(function).block(function.body)


class _Checker:
    """Walks a function with what is known at each place."""

    def __init__(self, function: Function) -> None:
        self.function = function
        self.params = {param.name: param for param in function.params}
        axes = {statement.axis.name for statement in walk(function.body) if isinstance(statement, Loop)}
        self.names: set[str] = set(self.params) | {symbol.name for symbol in function.symbols}
        self.defined = self.names | axes
        self.known: set[Value] = set()
        self.variables: set[Value] = set()
        self.shared: set[Value] = set()  # variables from outside of the innermost parallel loop
        self.bounds: dict[Value, object] = {}
        self.axes: list[Axis] = []
        self.parallel: list[Axis] = []
        self.empty = False  # inside of a loop without iterations, which touches nothing
        self.statement: Statement | None = None

    def require(self, condition: object, message: str) -> None:
        if not condition:
            place = f": `{statement_text(self.statement)}`" if self.statement is not None else ""
            raise GrammarError(f"{self.function.name}{place}: {message}")

    def block(self, block: Block) -> None:
        known, variables = set(self.known), set(self.variables)
        for statement in block:
            self.statement = statement
            for operand in operands(statement):
                self.operand(operand)
            self.check(statement)
        self.known, self.variables = known, variables

    def check(self, statement: Statement) -> None:
        match statement:
            case Let(target, op, args):
                self.require(self.result(op, args, target.dtype) == target.dtype, "the operator gives another dtype")
                self.define(target)
            case Position(target, index):
                self.require(target.dtype == "i64", "a position is an i64")
                self.index(index)
                self.define(target)
            case Load(target, memory, index, mask):
                self.access(memory, index, target.dtype, "in", mask)
                self.define(target)
            case Within(target, value, bound, _, mask):
                self.require(value.dtype == target.dtype and target.dtype in INTEGERS, "an integer lies within a bound")
                self.require(mask is None or mask.dtype == "bool", "a mask is a bool")
                self.define(target)
                self.bounds[target] = bound
            case Declare(target, start):
                self.require(start.dtype == target.dtype, "a variable starts from another dtype")
                self.define(target)
                self.variables.add(target)
            case Assign(target, op, args):
                self.require(target in self.variables, "only variables are assigned to")
                self.require(target not in self.shared, "parallel iterations share the variable")
                given = args[0].dtype if op == "copy" else self.result(op, args, target.dtype)
                self.require(given == target.dtype, "the operator gives another dtype")
            case Store(memory, index, value, mode):
                self.require(mode in MODES, "an unknown mode")
                self.access(memory, index, value.dtype, "out" if mode in ("store", "put") else "inout", None)
                self.disjoint(index, mode)
            case Loop():
                self.loop(statement)

    def loop(self, loop: Loop) -> None:
        axis, piece = loop.axis, loop.piece
        self.require(loop.kind in KINDS, "an unknown kind of loop")
        taken = axis.name in self.names or axis.name in {outer.name for outer in self.axes}
        self.require(not taken, f"{axis.name} is defined already")
        if piece is not None:
            whole = piece.axis in self.axes and piece.step * piece.axis.size - axis.size
            self.require(piece.axis in self.axes, f"{piece.axis} is no axis of a loop around it")
            self.require(type(whole) is not int or 0 <= whole < piece.step, "the pieces are not the whole axis")
        shared, empty = self.shared, self.empty
        if loop.kind == "parallel":
            self.parallel.append(axis)
            self.shared = set(self.variables)
        self.axes.append(axis)
        self.empty = empty or axis.size == 0
        self.block(loop.body)
        self.axes.pop()
        self.shared, self.empty = shared, empty
        if loop.kind == "parallel":
            self.parallel.pop()

    # ---- parts

    def define(self, target: Value) -> None:
        self.require(target.name not in self.defined, f"{target.name} is defined already")
        self.require(target.dtype in ITEMSIZE, f"unknown dtype {target.dtype}")
        self.defined.add(target.name)
        self.known.add(target)

    def operand(self, operand: Operand) -> None:
        if isinstance(operand, Literal):
            self.require(operand.dtype in ITEMSIZE, "a number without a dtype")
            return
        self.require(operand in self.known, f"{operand.name}: {operand.dtype} is not known here")

    def result(self, op: str, args: tuple[Operand, ...], dtype: str) -> str:
        """The dtype that an operator gives, `dtype` where it may be any."""
        given = tuple([arg.dtype for arg in args])
        if op not in SPECIAL:
            self.require(op in scalar.OPS, f"unknown operator {op}")
            try:
                return scalar.result_dtype(op, given)
            except TypeError as error:
                self.require(False, str(error))
        right = given == ("i64", "i64") if op in ("uniform", "normal") else len(given) == 1
        same = op != "bitcast" or ITEMSIZE[given[0]] == ITEMSIZE[dtype]
        self.require(right and same, f"{op} does not take ({', '.join(given)})")
        return "f32" if op in ("uniform", "normal") else dtype

    def index(self, index: Index) -> None:
        for axis in index.axes():
            self.require(axis in self.axes, f"{axis} is no axis of a loop around it")
        for atom in index.indirects():
            bound = self.bounds.get(atom.expr)  # type: ignore[call-overload]
            self.require(bound is not None and bound == atom.bound, f"{atom.expr} is not known to lie within a bound")

    def access(self, memory: str, index: Index, dtype: str, role: str, mask: Operand | None) -> None:
        self.require(memory in self.params, f"{memory} is no parameter")
        param = self.params[memory]
        self.require(param.dtype == dtype, f"{memory} is {param.dtype}, not {dtype}")
        self.require(param.role in (role, "inout"), f"{memory} is {param.role}")
        self.require(mask is None or mask.dtype == "bool", "a mask is a bool")
        self.index(index)
        inside = mask is not None or self.empty or index.within(param.numel)
        self.require(inside, f"the position leaves 0 … {param.numel}-1")

    def disjoint(self, index: Index, mode: str) -> None:
        """Parallel iterations store at different places: their axes are digits of the position."""
        for axis in self.parallel if mode != "store" else ():
            self.require(axis not in colliding([index], [axis]), f"iterations along {axis} may write one place")
        if mode == "store" and not index.has_indirect:
            missing = [axis for axis in self.parallel if loops(axis) and axis not in index.axes()]
            self.require(not missing, f"iterations along {missing} write one place")
