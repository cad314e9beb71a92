"""`for` and `while`: written out where the numbers are known, otherwise loops of the IR.

What a loop of the IR carries is what its body assigns of the names from before it. Which those are is only known once
the body was gone through, as branches in it may be pruned: it is tried with a guess, and again if the guess was short.
What a try has built and was not right is in no block, and nothing is printed for it.
Neighbours: `merging.py`; `stator.tile.language.ranges` has what a `for` goes over.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from stator.tile.errors import InvalidUse
from stator.tile.frontend.branches import condition
from stator.tile.frontend.generator import Generator, Returned, Undefined, lift, plain, statement
from stator.tile.frontend.merging import common_type, handles_as
from stator.tile.ir.core import Block
from stator.tile.language import ranges
from stator.tile.language.context import emit_operation
from stator.tile.language.promotion import cast_to, to_tensor
from stator.tile.language.static import base_type, base_value, constexpr, constexpr_type
from stator.tile.language.types import tuple_type
from stator.tile.language.values import tensor, tuple

_UNROLLED = (ranges.static_range, tuple)


@statement(ast.For)
def visit_for(g: Generator, node: ast.For) -> Returned | None:
    if node.orelse:
        raise g.unsupported(node.orelse[0], "kernels cannot use the else of a loop")
    if not isinstance(node.target, ast.Name):
        raise g.unsupported(node.target, "a loop has one name for what it counts")
    over = g.evaluate(node.iter)
    if isinstance(over, constexpr):
        over = lift(over.value)
    if isinstance(over, _UNROLLED):
        return _unroll(g, node, node.target.id, list(over))
    if not isinstance(over, ranges.range):
        raise InvalidUse(f"a loop goes over a range, not over {over!r}", "use range, tl.range or tl.static_range")
    _count(g, node, node.target.id, over)
    return None


def _unroll(g: Generator, node: ast.For, name: str, items: Sequence[Any]) -> Returned | None:
    for item in items:
        g.define(name, lift(item))
        returned = g.run(node.body)
        if returned is not None:
            return returned
    return None


# ---- what is carried


def assigned(statements: Sequence[ast.stmt]) -> list[str]:
    """The names that statements assign, wherever in them, but for what loops count."""
    nodes = [node for item in statements for node in ast.walk(item)]
    counters = {id(node.target) for node in nodes if isinstance(node, ast.For)}
    stores = [node for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
    return list(dict.fromkeys(node.id for node in stores if id(node) not in counters))


def _guess(g: Generator, statements: Sequence[ast.stmt], counter: str | None) -> list[str]:
    """Names that are likely carried: tensors and the like that the body seems to assign."""
    found = []
    for name in assigned(statements):
        value = g.scope.get(name)
        if name != counter and isinstance(value, base_value) and not isinstance(value, constexpr):
            found.append(name)
    return found


def _start_type(g: Generator, name: str) -> base_type:
    """The type that a carried name has, by its value before the loop."""
    value = g.scope[name]
    if isinstance(value, constexpr):
        if isinstance(value.value, bool | int | float):
            value = to_tensor(value)
        else:
            raise InvalidUse(f"{name} is known while compiling, and changes in the loop", "use tl.static_range")
    elif not isinstance(value, base_value):
        raise InvalidUse(f"{name} is no value of the language, and changes in the loop", "use tl.static_range")
    return common_type([_as_tensors(value)])


def _as_tensors(value: Any) -> Any:
    """Numbers in tuples as tensors, since a loop may change them."""
    if isinstance(value, tuple):
        return tuple([_as_tensors(item) for item in value], value.type if value.type.fields else None)
    return to_tensor(value) if isinstance(value, constexpr) and isinstance(value.value, int | float) else value


def _settle(
    g: Generator, counter: str | None, guess: list[str], attempt: Callable[[dict[str, base_type]], dict[str, Any]]
) -> dict[str, base_type]:
    """Tries the body with what is carried until it changes nothing else; the types of what is."""
    carried = list(guess)
    context = g.session.context
    while True:
        before, constants = dict(g.scope), set(g.constants)
        types = {name: _start_type(g, name) for name in carried}
        after = attempt(types)
        g.scope, g.constants = before, constants
        more = [
            name
            for name, value in before.items()
            if name not in carried and name != counter and after.get(name) is not value
        ]
        more = [name for name in more if not isinstance(before[name], Undefined)]
        more = [name for name in more if not isinstance(after.get(name), Undefined)]
        if not more:
            for name, value in after.items():
                if name == counter or isinstance(before.get(name, value), Undefined) or name not in before:
                    why = f"{name} has a value inside of the loop only"
                    g.scope[name] = Undefined(why, f"give {name} one before the loop")
                elif isinstance(value, Undefined):
                    g.scope[name] = value
            return types
        carried += more
        context.discarded = True


@contextmanager
def _trying(g: Generator) -> Iterator[None]:
    """Inside of a loop; whether what is built is thrown away is as before, afterwards."""
    discarded = g.session.context.discarded
    g.loops += 1
    try:
        yield
    finally:
        g.loops -= 1
        g.session.context.discarded = discarded


def _enter(g: Generator, types: dict[str, base_type], handles: Iterator[Any]) -> None:
    for name, type in types.items():
        g.scope[name] = type.assemble(handles)


def _leave(g: Generator, types: dict[str, base_type]) -> list[Any]:
    """The handles of what is carried to the next turn."""
    found: list[Any] = []
    for name, type in types.items():
        value = g.scope[name]
        try:
            changed = common_type([_typed(type), value])
        except InvalidUse as error:
            raise InvalidUse(_changed(name, type, value), _hint(name)) from error
        if changed != type:
            raise InvalidUse(_changed(name, type, value), _hint(name))
        found += handles_as(value, type)
    return found


def _changed(name: str, type: base_type, value: Any) -> str:
    after = value.why if isinstance(value, Undefined) else getattr(value, "type", value)
    return f"{name} is {type} before the loop, and {after} at the end of its body"


def _hint(name: str) -> str:
    return f"give {name} the type and shape that it has in the loop before it, for instance by tl.zeros or .to"


class _Stand(base_value):
    """Stands for a value of which only the type is known."""

    def __init__(self, type: base_type) -> None:
        self.type = type


def _typed(type: base_type) -> Any:
    if isinstance(type, tuple_type):
        return tuple([_typed(item) for item in type.types], type)
    return constexpr(type.value) if isinstance(type, constexpr_type) else _Stand(type)


# ---- for


def _count(g: Generator, node: ast.For, counter: str, over: ranges.range) -> None:
    type = over.count_type()
    bounds = [cast_to(to_tensor(bound), type).handle for bound in (over.start, over.end, over.step)]
    starts: dict[str, Any] = dict(g.scope)
    body: list[Block] = []

    def attempt(types: dict[str, base_type]) -> dict[str, Any]:
        carried = [each for item in types.values() for each in item.handle_types()]
        block = g.block([*type.handle_types(), *carried], [counter, *_argument_names(types)])
        g.scope[counter] = tensor(block.args[0], type)
        _enter(g, types, iter(block.args[1:]))
        entered = {name: g.scope[name] for name in types}
        with g.builder.inside(block):
            if g.run(node.body) is not None:
                raise g.unsupported(node, "a return inside of a loop", "carry the result and a condition in a `while`")
            g.builder.emit("yield", _leave(g, types))
        body[:] = [block]
        return g.scope | {name: starts[name] for name in entered}

    with _trying(g):
        types = _settle(g, counter, _guess(g, node.body, counter), attempt)
    _append(g, "for", bounds, types, body, over.attrs)


def _argument_names(types: dict[str, base_type]) -> list[str]:
    return [name for name, type in types.items() for _ in type.handle_types()]


def _append(
    g: Generator, op: str, operands: list[Any], types: dict[str, base_type], regions: list[Block], attrs: dict[str, Any]
) -> None:
    start = [handle for name, type in types.items() for handle in handles_as(_as_tensors(g.scope[name]), type)]
    handles = iter(emit_operation(op, [*operands, *start], regions, **attrs))
    for name, type in types.items():
        g.define(name, type.assemble(handles))


# ---- while


@statement(ast.While)
def visit_while(g: Generator, node: ast.While) -> Returned | None:
    if node.orelse:
        raise g.unsupported(node.orelse[0], "kernels cannot use the else of a loop")
    starts = dict(g.scope)
    regions: list[Block] = []
    outcome: list[bool] = []

    def attempt(types: dict[str, base_type]) -> dict[str, Any]:
        carried = [each for item in types.values() for each in item.handle_types()]
        test, body = [g.block(carried, _argument_names(types)) for _ in range(2)]
        _enter(g, types, iter(test.args))
        with g.builder.inside(test):
            holds = _test(g, node.test)
            if isinstance(holds, bool):
                outcome[:] = [holds]
                if not holds:
                    return dict(starts)
                raise InvalidUse(
                    "the condition of this loop is always true, and nothing else ends it", "let it depend on a tensor"
                )
            values = [handle for name in types for handle in g.scope[name].handles()]
            g.builder.emit("condition", [holds, *values])
        _enter(g, types, iter(body.args))
        with g.builder.inside(body):
            if g.run(node.body) is not None:
                raise g.unsupported(node, "a return inside of a loop", "carry the result and a condition")
            g.builder.emit("yield", _leave(g, types))
        regions[:] = [test, body]
        return g.scope | {name: starts[name] for name in types}

    with _trying(g):
        types = _settle(g, None, _while_guess(g, node), attempt)
    if outcome != [False]:
        _append(g, "while", [], types, regions, {})
    return None


def _while_guess(g: Generator, node: ast.While) -> list[str]:
    """As for `for`, and the numbers that the condition compares: the body changes them, or the loop has no end."""
    tested = {item.id for item in ast.walk(node.test) if isinstance(item, ast.Name)}
    numbers = [
        name
        for name in assigned(node.body)
        if name in tested and isinstance(g.scope.get(name), constexpr) and isinstance(plain(g.scope[name]), int | float)
    ]
    return [*_guess(g, node.body, None), *numbers]


def _test(g: Generator, node: ast.expr) -> Any:
    """The condition, which `tl.condition` may wrap."""
    if isinstance(node, ast.Call):
        wrapped = g.evaluate(node.func)
        if wrapped is ranges.condition:
            return condition(g, node.args[0])
    return condition(g, node)
