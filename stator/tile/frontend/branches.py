"""`if`, and `x if c else y`: pruned where the condition is known, otherwise an `if` of the IR with two regions.

An `if` that has a return takes the statements behind it into its branches, so that each region goes to the function's
end and gives what the function returns:

    if c: return a        -->   if c: yield a
    rest                        else: rest, yield what it returns

Neighbours: `merging.py` finds the types of what both branches have assigned.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import Any

from stator.tile.errors import InvalidUse
from stator.tile.frontend.generator import (
    TAKING_REST,
    Generator,
    Returned,
    Undefined,
    expression,
    is_known,
    plain,
    statement,
)
from stator.tile.frontend.merging import common_type, handles_as
from stator.tile.ir.core import Block
from stator.tile.language.arithmetic import truth
from stator.tile.language.context import emit_operation
from stator.tile.language.promotion import to_tensor
from stator.tile.language.static import base_type


def condition(g: Generator, node: ast.expr) -> Any:
    """A condition: a Python bool if it is known, else a handle of an i1."""
    value = g.evaluate(node)
    if is_known(value):
        return bool(plain(value))
    tested = to_tensor(value)
    if tested.type.shape:
        hint = "reduce it first (`tl.max(x) > 0`), or choose between elements with `tl.where`"
        raise g.error(node, InvalidUse(f"a block of {tested.type} has no one truth value", hint))
    return truth(tested).handle


def _returns(statements: Sequence[ast.stmt]) -> Iterator[ast.Return]:
    for item in statements:
        for node in ast.walk(item):
            if isinstance(node, ast.Return):
                yield node


@statement(ast.If)
def visit_if(g: Generator, node: ast.If, rest: Sequence[ast.stmt]) -> Returned | None:
    holds = condition(g, node.test)
    if isinstance(holds, bool):
        return g.run(node.body if holds else node.orelse)
    if any(_returns([node])):
        return _returning(g, node, holds, rest)
    ways = [_branch(g, body) for body in (node.body, node.orelse)]
    _merge(g, holds, ways)
    return None


TAKING_REST.add(visit_if)


def _branch(g: Generator, body: Sequence[ast.stmt]) -> tuple[Block, dict[str, Any]]:
    """A region of statements, and the names as they are at its end."""
    before = g.scope
    g.scope = dict(before)
    block = g.block()
    with g.builder.inside(block):
        g.run(body)
    after, g.scope = g.scope, before
    return block, after


def _merge(g: Generator, holds: Any, ways: Sequence[tuple[Block, dict[str, Any]]]) -> None:
    """Appends the `if`; names that a branch has assigned stand for its results."""
    before = g.scope
    scopes = [scope for _, scope in ways]
    names = [name for name in dict.fromkeys([*scopes[0], *scopes[1]]) if _is_changed(name, before, scopes)]
    types: dict[str, base_type] = {}
    for name in names:
        if not all(name in scope for scope in scopes):
            g.scope[name] = Undefined(f"{name} has a value in one branch only", f"give {name} one before the `if`")
            continue
        undefined = [scope[name] for scope in scopes if isinstance(scope[name], Undefined)]
        if undefined:
            g.scope[name] = undefined[0]
            continue
        try:
            types[name] = common_type([scope[name] for scope in scopes])
        except InvalidUse as error:
            why = f"{name} is not of one type in both branches: {error.message}"
            if name in before and not isinstance(before[name], Undefined):
                raise InvalidUse(why, error.hint or "cast it in one of them, or use two names") from error
            g.scope[name] = Undefined(why, "cast it in one of them, or use two names")
    for block, scope in ways:
        with g.builder.inside(block):
            g.builder.emit("yield", [h for name, type in types.items() for h in handles_as(scope[name], type)])
    handles = iter(emit_operation("if", [holds], [block for block, _ in ways]))
    for name, type in types.items():
        g.define(name, type.assemble(handles))


def _is_changed(name: str, before: dict[str, Any], scopes: Sequence[dict[str, Any]]) -> bool:
    return any(scope.get(name) is not before.get(name) for scope in scopes)


def _returning(g: Generator, node: ast.If, holds: Any, rest: Sequence[ast.stmt]) -> Returned:
    """An `if` with a return in it, and all that comes behind it."""
    if g.loops:
        raise g.unsupported(
            next(_returns([node])), "a return inside of a loop", "carry the result and a condition in a `while`"
        )
    ways: list[tuple[Block, Any]] = []
    for body in (node.body, node.orelse):
        before, constants = g.scope, set(g.constants)
        g.scope = dict(before)
        block = g.block()
        with g.builder.inside(block):
            returned = g.run([*body, *rest])
        g.scope, g.constants = before, constants
        ways.append((block, None if returned is None else returned.value))
    return Returned(join(g, holds, ways, "the function does not return one type"))


def join(g: Generator, holds: Any, ways: Sequence[tuple[Block, Any]], message: str) -> Any:
    """Appends an `if` of two regions that give a value each; the value that it has afterwards."""
    try:
        type = common_type([value for _, value in ways])
    except InvalidUse as error:
        raise InvalidUse(f"{message}: {error.message}", error.hint) from error
    for block, value in ways:
        with g.builder.inside(block):
            g.builder.emit("yield", handles_as(value, type))
    handles = emit_operation("if", [holds], [block for block, _ in ways])
    return type.assemble(iter(handles))


@expression(ast.IfExp)
def visit_if_expression(g: Generator, node: ast.IfExp) -> Any:
    holds = condition(g, node.test)
    if isinstance(holds, bool):
        return g.evaluate(node.body if holds else node.orelse)
    ways = []
    for part in (node.body, node.orelse):
        block = g.block()
        with g.builder.inside(block):
            ways.append((block, g.evaluate(part)))
    return join(g, holds, ways, "both sides of `… if … else …` must be of one type")
