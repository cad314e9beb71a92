"""Reads the printed form of tile IR, with Python's own parser: see the grammar in `core`.

Types of results follow from the operators' rules; where the text says one, it must be the same. What is read is not yet
verified. Neighbours: `text` prints what is read here; `verify` checks it.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping, Sequence
from keyword import iskeyword
from typing import Any

from stator.tile.ir.build import complete, infer
from stator.tile.ir.core import Block, Function, Location, Module, Operation, Value
from stator.tile.ir.operators import HINTS, OPERATORS, Operator, Operators
from stator.tile.ir.rules import TypeRule
from stator.tile.ir.types import DTYPES, Element, Pointer, Type
from stator.tile.layouts.linear import LayoutError
from stator.tile.layouts.text import AnyLayout, read

_NUMBERS = {"inf": math.inf, "nan": math.nan}


class ParseError(ValueError):
    """A text that the grammar does not have, with its line."""


def parse(text: str, operators: Operators = OPERATORS) -> Module:
    """The module of a text, of a table's operators; ParseError where it is none."""
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        raise ParseError(f"line {error.lineno}: {error.msg}") from error
    module, layouts = Module(), dict[str, AnyLayout]()
    for node in tree.body:
        match node:
            case ast.Assign([ast.Name(name)], ast.Constant(str(line))) if name not in layouts:
                layouts[name] = _layout(node, line)
                continue
        if not isinstance(node, ast.FunctionDef):
            raise _error(node, "a module has layouts, each with a name of its own, and functions, and nothing else")
        if node.name in module.functions:
            raise _error(node, f"there is a function {node.name} already")
        module.add(_Reader(operators, layouts).function(node))
    return module


class _Reader:
    """What is known at a place of a function: values and layouts by name."""

    def __init__(self, operators: Operators, layouts: Mapping[str, AnyLayout]) -> None:
        self.operators, self.layouts = operators, layouts
        self.values: dict[str, Value] = {}

    def function(self, node: ast.FunctionDef) -> Function:
        attrs: dict[str, Any] = {}
        for decorator in node.decorator_list:
            match decorator:
                case ast.Call(ast.Name("function"), [], keywords):
                    attrs |= {str(keyword.arg): self.value(keyword.value) for keyword in keywords}
                case _:
                    raise _error(decorator, "a function is decorated by function(attribute=…) alone")
        location, noinline = _location(node, attrs.pop("at", None)), attrs.pop("noinline", False)
        hints: dict[str, dict[str, Any]] = {}
        for arg in node.args.args:
            match arg.annotation:
                case ast.Call(annotation, [], keywords):
                    arg.annotation = annotation
                    hints[arg.arg] = {str(keyword.arg): self.value(keyword.value) for keyword in keywords}
        _only_names(node)
        params = tuple([self.define(arg) for arg in node.args.args])
        results: tuple[Type, ...] = ()
        match node.returns:
            case ast.Tuple(types):
                results = tuple([self.type(item) for item in types])
            case ast.expr():
                results = (self.type(node.returns),)
        body = Block((), self.block(node.body))
        return Function(node.name, params, results, body, attrs, location, noinline, hints)

    def define(self, arg: ast.arg) -> Value:
        if arg.annotation is None:
            raise _error(arg, f"{arg.arg} has no type")
        return self.named(arg.arg, self.type(arg.annotation), arg)

    def named(self, name: str, type_: Type, node: ast.AST) -> Value:
        if name in self.values:
            raise _error(node, f"{name} is defined already")
        self.values[name] = Value(name, type_)
        return self.values[name]

    def block(self, nodes: Sequence[ast.stmt]) -> list[Operation]:
        found, rest = [], list(nodes)
        while rest:
            node = rest.pop(0)
            if isinstance(node, ast.Pass):
                continue
            names, annotation, call = _statement(node)
            op, operator = self.operator(call)
            regions = []
            for name in operator.regions:
                match rest[:1]:
                    case [ast.FunctionDef(name=str(given)) as region] if given == name:
                        _only_names(region)
                        regions.append(
                            Block(tuple([self.define(a) for a in region.args.args]), self.block(region.body))
                        )
                        rest.pop(0)
                    case _:
                        raise _error(node, f"{op} is followed by its region {name}")
            found.append(self.operation(node, op, operator, call, names, annotation, tuple(regions)))
        return found

    def operation(
        self,
        node: ast.stmt,
        op: str,
        operator: Operator,
        call: ast.Call,
        names: Sequence[ast.expr],
        annotation: ast.expr | None,
        regions: tuple[Block, ...],
    ) -> Operation:
        operands = tuple([self.operand(argument) for argument in call.args])
        given = {str(keyword.arg): keyword.value for keyword in call.keywords}
        at = given.pop("at", None)
        try:
            attrs = complete(
                op, {name: self.attribute(operator, name, value) for name, value in given.items()}, self.operators
            )
            types = infer(op, [operand.type for operand in operands], attrs, regions, self.operators)
        except TypeRule as error:
            raise _error(node, str(error)) from error
        if annotation is not None and (wanted := self.type(annotation)) != types[0]:
            raise _error(node, f"{op} gives {types[0]}, not {wanted}")
        if len(names) != len(types):
            raise _error(node, f"{op} gives {len(types)} results, not {len(names)}")
        results = [self.named(_name(name), type_, name) for name, type_ in zip(names, types, strict=True)]
        return Operation(
            op, operands, attrs, tuple(results), regions, _location(node, self.value(at) if at is not None else None)
        )

    def operand(self, node: ast.expr) -> Value:
        name = _name(node)
        if name not in self.values:
            raise _error(node, f"{name} is not defined")
        return self.values[name]

    def operator(self, call: ast.Call) -> tuple[str, Operator]:
        name = _name(call.func)
        op = name[:-1] if iskeyword(name[:-1]) else name
        if op not in self.operators:
            raise _error(call, f"there is no operator {name}")
        return op, self.operators[op]

    def type(self, node: ast.expr) -> Type:
        match node:
            case ast.Name(name) if name in DTYPES:
                return Type(DTYPES[name])
            case ast.Subscript(ast.Name("ptr"), ast.Tuple([to, ast.Name(space)])):
                return Type(Pointer(self.element(to), space))
            case ast.Subscript(ast.Name("ptr"), to):
                return Type(Pointer(self.element(to)))
            case ast.Subscript(element, places):
                items = places.elts if isinstance(places, ast.Tuple) else [places]
                layout = self.layout(items[-1])
                sizes = [self.value(item) for item in (items if layout is None else items[:-1])]
                if all(type(size) is int for size in sizes):
                    return Type(self.element(element), tuple(sizes), layout)
        raise _error(node, f"{ast.unparse(node)} is no type")

    def layout(self, node: ast.expr) -> AnyLayout | None:
        """The layout that an expression names or is the text of, if it is one."""
        match node:
            case ast.Name(name) if name in self.layouts:
                return self.layouts[name]
            case ast.Constant(str(text)):
                return _layout(node, text)
        return None

    def element(self, node: ast.expr) -> Element:
        found = self.type(node)
        if not found.is_scalar:
            raise _error(node, f"{found} is no element")
        return found.element

    def value(self, node: ast.expr) -> Any:
        """The value of an attribute; a dtype as the type of a scalar."""
        match node:
            case ast.Tuple(items):
                return tuple([self.value(item) for item in items])
            case ast.Name(name) if name in _NUMBERS:
                return _NUMBERS[name]
            case ast.Name(name) if name in self.layouts:
                return self.layouts[name]
            case ast.UnaryOp(ast.USub(), operand):
                return -self.value(operand)
            case ast.Constant(value):
                return value
        return self.type(node)

    def attribute(self, operator: Operator, name: str, node: ast.expr) -> Any:
        """A value as the attribute takes it: a type, the element of one, or a layout."""
        value = self.value(node)
        attribute = operator.attributes.get(name)
        if name in HINTS or attribute is None or attribute.accepts(value):
            return value
        match value:
            case Type(shape=()):
                return value.element
            case tuple() if all(isinstance(item, Type) and item.is_scalar for item in value):
                return tuple([item.element for item in value])
            case str(text) if name == "layout":
                return _layout(node, text)
        return value


def _only_names(node: ast.FunctionDef) -> None:
    """A function and a region have parameters with types, and nothing else that Python has there."""
    given = node.args
    others = [given.vararg, given.kwarg, *given.posonlyargs, *given.kwonlyargs, *given.defaults]
    if any(others):
        raise _error(node, f"{node.name} has parameters that are no names with types")


def _statement(node: ast.stmt) -> tuple[Sequence[ast.expr], ast.expr | None, ast.Call]:
    """The names that a statement defines, their type if it says one, and what it calls."""
    match node:
        case ast.AnnAssign(ast.Name() as name, annotation, ast.Call() as call):
            return [name], annotation, call
        case ast.Assign([ast.Tuple(names)], ast.Call() as call):
            return names, None, call
        case ast.Expr(ast.Call() as call):
            return [], None, call
    raise _error(node, "no operation of tile IR")


def _name(node: ast.expr) -> str:
    if not isinstance(node, ast.Name):
        raise _error(node, f"{ast.unparse(node)} is no name")
    return node.id


def _layout(node: ast.AST, text: str) -> AnyLayout:
    try:
        return read(text)
    except LayoutError as error:
        raise _error(node, str(error)) from error


def _location(node: ast.AST, text: str | None) -> Location | None:
    if text is None:
        return None
    match text.rsplit(":", 2):
        case [file, line, column] if line.isdigit() and column.isdigit():
            return Location(file, int(line), int(column))
    raise _error(node, f"{text!r} is no file:line:column")


def _error(node: ast.AST, message: str) -> ParseError:
    return ParseError(f"line {getattr(node, 'lineno', 1)}: {message}")
