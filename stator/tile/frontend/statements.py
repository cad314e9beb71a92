"""Statements of kernels: assignments, returns, assertions, and expressions for their effect.

Neighbours: `branches.py` and `loops.py` have the statements with blocks, `expressions.py` what stands in these.
"""

from __future__ import annotations

import ast
from typing import Any

from stator.tile.errors import InvalidUse
from stator.tile.frontend.expressions import binary
from stator.tile.frontend.generator import Generator, Returned, is_known, lift, plain, statement
from stator.tile.language.effects import StaticAssertion, device_assert
from stator.tile.language.static import base_value, constexpr
from stator.tile.language.values import tuple


@statement(ast.Expr)
def visit_expression(g: Generator, node: ast.Expr) -> None:
    g.evaluate(node.value)


@statement(ast.Pass)
def visit_pass(g: Generator, node: ast.Pass) -> None:
    """Nothing."""


@statement(ast.Return)
def visit_return(g: Generator, node: ast.Return) -> Returned:
    if g.loops:
        raise g.unsupported(node, "a return inside of a loop", "carry the result and a condition in a `while`")
    return Returned(None if node.value is None else g.evaluate(node.value))


@statement(ast.Assign)
def visit_assign(g: Generator, node: ast.Assign) -> None:
    value = g.evaluate(node.value)
    for target in node.targets:
        assign(g, target, value)


def assign(g: Generator, target: ast.expr, value: Any) -> None:
    """Gives a target of an assignment a value."""
    match target:
        case ast.Name(id=name):
            g.define(name, value)
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            _unpack(g, target, parts, value)
        case ast.Subscript():
            raise g.unsupported(
                target, "an assignment to elements", "a block is not changed: make another one with tl.where"
            )
        case ast.Attribute():
            raise g.unsupported(target, "an assignment to an attribute", "make another aggregate")
        case _:
            raise g.unsupported(target, f"an assignment to {type(target).__name__}")


def _unpack(g: Generator, target: ast.expr, parts: list[ast.expr], value: Any) -> None:
    items = lift(value.value) if isinstance(value, constexpr) else value
    if any(isinstance(part, ast.Starred) for part in parts):
        raise g.unsupported(target, "a starred target")
    if not isinstance(items, tuple):
        raise InvalidUse(f"{value} is not several values, and there are {len(parts)} names")
    if len(items) != len(parts):
        raise InvalidUse(f"there are {len(items)} values, and {len(parts)} names")
    for part, item in zip(parts, items, strict=True):
        assign(g, part, item)


@statement(ast.AnnAssign)
def visit_annotated(g: Generator, node: ast.AnnAssign) -> None:
    if not isinstance(node.target, ast.Name) or node.value is None:
        raise g.unsupported(node, "an annotation that assigns no name")
    value, name = g.evaluate(node.value), node.target.id
    if not is_constexpr_annotation(node.annotation):
        g.define(name, value)
        return
    if not is_known(value):
        raise InvalidUse(f"{name} is annotated as constexpr, and {value} is not known while compiling")
    g.constants.discard(name)
    g.define(name, value if isinstance(value, base_value) else constexpr(value))
    g.constants.add(name)


def is_constexpr_annotation(node: ast.expr | None) -> bool:
    """Whether an annotation is `tl.constexpr`, under whatever name of the module."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name == "constexpr"
        case ast.Constant(value=str(text)):
            return text.split(".")[-1] == "constexpr"
    return False


@statement(ast.AugAssign)
def visit_augmented(g: Generator, node: ast.AugAssign) -> None:
    if not isinstance(node.target, ast.Name):
        raise g.unsupported(node.target, "an assignment to elements or attributes", "assign to a name")
    left = g.evaluate(ast.copy_location(ast.Name(node.target.id, ast.Load()), node.target))
    g.define(node.target.id, binary(node.op, left, g.evaluate(node.value)))


@statement(ast.Assert)
def visit_assert(g: Generator, node: ast.Assert) -> None:
    holds = g.evaluate(node.test)
    message = "" if node.msg is None else g.evaluate(node.msg)
    if not is_known(holds):
        device_assert(holds, message)
    elif not plain(holds):
        raise StaticAssertion(str(plain(message)) or "an assertion does not hold")
