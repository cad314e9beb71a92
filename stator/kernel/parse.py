"""Reads the printed form of functions, with Python's own parser: see the grammar in `ir`.

What is read is the same object as what was printed: an index comes back in its normal form.
"""

from __future__ import annotations

import ast
import math
import operator
from keyword import iskeyword
from typing import Any

from stator.base.dtypes import ITEMSIZE
from stator.kernel import ir
from stator.kernel.text import ROLES
from stator.loop.index import Axis, Index, indirect
from stator.loop.kernel import Param
from stator.loop.scalar import FLOATS
from stator.sizes import Extent, Symbol, maximum, minimum

_ROLES = {name: role for role, name in ROLES.items()}
_ARITHMETIC: dict[type[ast.operator], Any] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}  # fmt: skip


class ParseError(ValueError):
    """A text that the grammar does not have, with its line."""


def parse(text: str) -> ir.Function:
    """The function of a text; ParseError where it is none."""
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        raise ParseError(f"line {error.lineno}: {error.msg}") from error
    match tree.body:
        case [ast.FunctionDef() as function]:
            return _Reader().function(function)
    raise ParseError("line 1: one function is expected")


class _Reader:
    """What is known at a place of the text: names and what they are."""

    def __init__(self) -> None:
        self.values: dict[str, ir.Value] = {}
        self.bounds: dict[str, Extent] = {}  # of integers that may stand in an index
        self.axes: dict[str, Axis] = {}
        self.symbols: dict[str, Symbol] = {}
        self.params: dict[str, Param] = {}
        self.scratch: dict[str, ir.Scratch] = {}

    def function(self, node: ast.FunctionDef) -> ir.Function:
        for given in node.args.args:  # symbols first: sizes of memory are made of them
            match given.annotation:
                case ast.Subscript(ast.Name("Size"), ast.Tuple([low, high, hint])):
                    self.symbols[given.arg] = Symbol(given.arg, *map(ast.literal_eval, (low, high, hint)))
        for given in node.args.args:
            match given.annotation:
                case ast.Subscript(ast.Name("Size")):
                    pass
                case ast.Subscript(ast.Name(role), ast.Tuple([ast.Name(dtype), numel])) if role in _ROLES:
                    self.params[given.arg] = Param(given.arg, dtype, _ROLES[role], self.extent(numel))
                case _:
                    raise _error(given, "a parameter is In, Out or InOut of memory, or a Size")
        params, symbols = tuple(self.params.values()), tuple(self.symbols.values())
        named: list[tuple[Symbol, Extent]] = []
        lines = list(node.body)
        while lines and (found := self.named(lines[0])) is not None:
            named.append(found)
            lines.pop(0)
        match node.returns:
            case None:
                threads: Extent = 1
            case ast.Subscript(ast.Name("Threads"), count):
                threads = self.extent(count)
            case _:
                raise _error(node.returns, "a function runs on a number of Threads")
        return ir.Function(node.name, params, symbols, self.block(lines), tuple(named), threads)

    def named(self, node: ast.stmt) -> tuple[Symbol, Extent] | None:
        """A number that is made of symbols, or None."""
        match node:
            case ast.AnnAssign(ast.Name(name), ast.Subscript(ast.Name("Size"), ast.Tuple(bounds)), ast.expr() as value):
                extent = self.extent(value)
                symbol = self.symbols[name] = Symbol(name, *map(ast.literal_eval, bounds))
                return symbol, extent
        return None

    def block(self, nodes: list[ast.stmt]) -> ir.Block:
        return tuple([self.statement(node) for node in nodes if not isinstance(node, ast.Pass)])

    # ---- statements

    def statement(self, node: ast.stmt) -> ir.Statement:
        match node:
            case ast.AnnAssign(ast.Name(name), ast.Name(dtype), ast.expr() as value):
                made = self.definition(ir.Value(name, dtype), value)
                self.values[name] = made.target
                return made
            case ast.AnnAssign(ast.Name(name), ast.Subscript(ast.Name("Var"), ast.Name(dtype)), ast.expr() as start):
                target = self.values[name] = ir.Value(name, dtype)
                return ir.Declare(target, self.operand(start, dtype))
            case ast.AnnAssign(ast.Name(name), ast.Subscript(ast.Name("Scratch"), ast.Tuple([dtype, numel])), None):
                found = self.scratch[name] = ir.Scratch(name, ast.unparse(dtype), ast.literal_eval(numel))
                return found
            case ast.Assign([ast.Tuple([_, _] as names)], ast.Call(ast.Name(name), [ast.Name(op), value, here])):
                best, position = map(self.value, names)
                given = self.operand(value, best.dtype), self.operand(here, position.dtype)
                return ir.Best(best, position, op, *given, name == "best_in_turn")
            case ast.Assign([ast.Tuple(names)], ast.Call(ast.Name(op), [value])) if op in ir.ONLINE:
                states = tuple(map(self.value, names))
                return ir.Online(states, op, self.operand(value, states[0].dtype))
            case ast.Expr(ast.Call(ast.Name("turn"), [ast.Subscript(ast.Name(scratch), width), place, *pieces])):
                return self.turn(scratch, ast.literal_eval(width), place, pieces)
            case ast.Expr(ast.Call(ast.Name("multiply"), [ast.Subscript(ast.Name(scratch), width), *operands])):
                return self.multiply(scratch, ast.literal_eval(width), operands)
            case ast.Expr(ast.Call(ast.Name("flush"), [target])):
                return ir.Flush(self.value(target))
            case ast.Assign([ast.Name()] as targets, value):
                return self.assignment(self.value(targets[0]), value)
            case ast.Assign([ast.Subscript() as place], value):
                return ir.Store(*self.place(place), self.operand(value))
            case ast.Expr(ast.Call(ast.Name("stream"), [ast.Subscript() as place, value])):
                return ir.Store(*self.place(place), self.operand(value), stream=True)
            case ast.Expr(ast.Call(ast.Name(mode), [ast.Subscript() as place, value])):
                atomic = mode.startswith("atomic_")
                return ir.Store(*self.place(place), self.operand(value), mode.removeprefix("atomic_"), atomic)
            case ast.For(ast.Name(name), ast.Call(ast.Name(kind), args), body) if kind in ir.KINDS:
                return self.loop(name, kind, args, body, node)
        raise _error(node, "no statement of the kernel IR")

    def definition(self, target: ir.Value, node: ast.expr) -> ir.Let | ir.Position | ir.Load | ir.Within | ir.Scan:
        match node:
            case ast.Subscript():
                return ir.Load(target, *self.place(node))
            case ast.IfExp(mask, ast.Subscript() as place, ast.Constant(0)):
                return ir.Load(target, *self.place(place), self.operand(mask, "bool"))
            case ast.Call(ast.Name("index"), [position]):
                return ir.Position(target, self.index(position))
            case ast.Call(ast.Name("within"), [value, bound, *rest]) if len(rest) <= 2:
                number = ast.literal_eval(rest[0]) if rest else 0
                guard = self.operand(rest[1], "bool") if len(rest) == 2 else None
                made = ir.Within(target, self.operand(value, target.dtype), self.extent(bound), number, guard)
                self.bounds[target.name] = made.bound
                return made
            case ast.Call(ast.Name("scan"), [ast.Name(op), state, value]):
                return ir.Scan(target, op, self.value(state), self.operand(value, target.dtype))
            case ast.Call(ast.Name(op), args):
                return ir.Let(target, _operator(op), tuple([self.operand(arg, target.dtype) for arg in args]))
        raise _error(node, "no value of the kernel IR")

    def assignment(self, target: ir.Value, node: ast.expr) -> ir.Assign:
        match node:
            case ast.Call(ast.Name(op), args) if op not in ITEMSIZE:
                return ir.Assign(target, _operator(op), tuple([self.operand(arg, target.dtype) for arg in args]))
        return ir.Assign(target, "copy", (self.operand(node, target.dtype),))

    def turn(self, scratch: str, width: int, place: ast.expr, pieces: list[ast.expr]) -> ir.Turn:
        rows, columns = self.pieces(pieces)
        assert isinstance(place, ast.Subscript)
        return ir.Turn(scratch, width, *self.place(place), rows, columns)

    def multiply(self, scratch: str, width: int, operands: list[ast.expr]) -> ir.Multiply:
        ahead = isinstance(operands[-1], ast.Name) and operands[-1].id == "ahead"
        match operands[:-1] if ahead else operands:
            case [ast.Subscript() as left, ast.Subscript() as right, *pieces, ast.Name(name), extent]:
                rows, columns = self.pieces(pieces)
                terms = self.axes[name] = Axis(name, self.extent(extent))
                return ir.Multiply(scratch, width, *self.place(left), *self.place(right), rows, columns, terms, ahead)
        raise _error(operands[0], "a block is multiplied of two factors, along pieces of two axes, and terms")

    def pieces(self, given: list[ast.expr]) -> list[tuple[Axis, ir.Piece]]:
        """The two axes of a block, each with its piece."""
        blocks: list[tuple[Axis, ir.Piece]] = []
        for i in range(0, len(given), 3):
            match given[i : i + 3]:
                case [ast.Name(name), ast.BinOp(step, ast.Mult(), ast.Name(outer)), extent] if outer in self.axes:
                    axis = self.axes[name] = Axis(name, self.extent(extent))
                    blocks.append((axis, ir.Piece(self.axes[outer], self.extent(step))))
                case _:
                    raise _error(given[i], "a block goes along pieces of two axes")
        if len(blocks) != 2:
            raise _error(given[0], "a block goes along pieces of two axes")
        return blocks

    def loop(self, name: str, kind: str, args: list[ast.expr], body: list[ast.stmt], node: ast.AST) -> ir.Loop:
        lanes, unroll = 0, 1
        if kind not in ("range", "parallel") and args:
            match args.pop(0):
                case ast.Constant(int() as lanes):
                    pass
                case ast.BinOp(ast.Constant(int() as lanes), ast.Mult(), ast.Constant(int() as unroll)):
                    pass
        match args:
            case [extent]:
                piece = None
            case [ast.BinOp(step, ast.Mult(), ast.Name(outer)), ast.Call(ast.Name("min"), [_, extent])]:
                if outer not in self.axes:
                    raise _error(node, f"{outer} is no axis of an enclosing loop")
                piece = ir.Piece(self.axes[outer], self.extent(step))
            case _:
                raise _error(node, "a loop runs over an extent, or a piece of one")
        axis = self.axes[name] = Axis(name, self.extent(extent))
        return ir.Loop(axis, kind, self.block(body), piece, lanes, unroll)

    def place(self, node: ast.Subscript) -> tuple[str, Index]:
        match node.value:
            case ast.Name(name) if name in self.params or name in self.scratch:
                return name, self.index(node.slice)
        raise _error(node, "what is indexed is a parameter or scratch")

    # ---- numbers

    def value(self, node: ast.expr) -> ir.Value:
        if isinstance(node, ast.Name) and node.id in self.values:
            return self.values[node.id]
        raise _error(node, f"{ast.unparse(node)} is not defined")

    def operand(self, node: ast.expr, dtype: str = "") -> ir.Operand:
        match node:
            case ast.Name(name) if name not in ("inf", "nan"):
                return self.value(node)
            case ast.Call(ast.Name(given), [number]) if given in ITEMSIZE:
                return self.operand(number, given)
        number = _number(node)
        return ir.Literal(float(number) if dtype in FLOATS else number, dtype)

    def extent(self, node: ast.expr) -> Extent:
        """A number made of symbols."""
        found = self._folded(node)
        if isinstance(found, Index):
            if found.terms:
                raise _error(node, "an extent is made of numbers and symbols")
            return found.const
        return found

    def index(self, node: ast.expr) -> Index:
        """A position."""
        return Index.of(self._folded(node))

    def _folded(self, node: ast.expr) -> Any:
        match node:
            case ast.Constant(int() as number):
                return number
            case ast.Name(name):
                return self._named(node, name)
            case ast.UnaryOp(ast.USub(), operand):
                return -self._folded(operand)
            case ast.Call(ast.Name("max" | "min" as name), [left, right]):
                choose = maximum if name == "max" else minimum
                return choose(self._folded(left), self._folded(right))
            case ast.BinOp(left, op, right) if type(op) in _ARITHMETIC:
                a, b = self._folded(left), self._folded(right)
                if isinstance(b, Index):
                    a, b = (b, a) if isinstance(op, ast.Mult) else (Index.of(a), b)
                return _ARITHMETIC[type(op)](a, b)
        raise _error(node, f"{ast.unparse(node)} is no integer")

    def _named(self, node: ast.expr, name: str) -> Any:
        if name in self.axes:
            return self.axes[name].index
        if name in self.symbols:
            return self.symbols[name].size
        if name in self.bounds:
            return indirect(self.values[name], self.bounds[name])
        raise _error(node, f"{name} is no axis, no symbol, and not known to lie within a bound")


def _operator(name: str) -> str:
    """The operator of a name: those that are Python's keywords have an underscore."""
    return name[:-1] if iskeyword(name[:-1]) else name


def _number(node: ast.expr) -> Any:
    match node:
        case ast.Name("inf"):
            return math.inf
        case ast.Name("nan"):
            return math.nan
        case ast.UnaryOp(ast.USub(), operand):
            return -_number(operand)
        case ast.Constant(bool() | int() | float() as number):
            return number
    raise _error(node, f"{ast.unparse(node)} is no number")


def _error(node: ast.AST, message: str) -> ParseError:
    return ParseError(f"line {getattr(node, 'lineno', 1)}: {message}")
