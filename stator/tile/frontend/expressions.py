"""Expressions of kernels: names, constants, operators, comparisons, attributes, subscripts, texts, tuples.

What is known is computed at once by Python's own operators; on tensors the same operators are the language's.
Neighbours: `calls.py` has calls, `branches.py` the conditional expression.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from types import ModuleType
from typing import Any

from stator.tile.errors import InvalidUse
from stator.tile.frontend.generator import Generator, Undefined, expression, is_known, lift, plain
from stator.tile.frontend.names import lookup, of_module
from stator.tile.language.aggregates import aggregate_value
from stator.tile.language.arithmetic import logical_and, logical_not, logical_or
from stator.tile.language.promotion import to_tensor
from stator.tile.language.static import base_value, constexpr, unwrap
from stator.tile.language.values import slice, tensor, tuple

_BINARY: dict[type[ast.operator], Any] = {
    ast.Add: (operator.add, "+"),
    ast.Sub: (operator.sub, "-"),
    ast.Mult: (operator.mul, "*"),
    ast.Div: (operator.truediv, "/"),
    ast.FloorDiv: (operator.floordiv, "//"),
    ast.Mod: (operator.mod, "%"),
    ast.Pow: (operator.pow, "**"),
    ast.LShift: (operator.lshift, "<<"),
    ast.RShift: (operator.rshift, ">>"),
    ast.BitAnd: (operator.and_, "&"),
    ast.BitOr: (operator.or_, "|"),
    ast.BitXor: (operator.xor, "^"),
}
_INSTEAD = {"**": "multiply, or use tl.exp2, or libdevice.pow", "@": "use tl.dot"}
_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


@expression(ast.Constant)
def visit_constant(g: Generator, node: ast.Constant) -> Any:
    if isinstance(node.value, bytes | complex) or node.value is Ellipsis:
        raise g.unsupported(node, f"kernels have no {type(node.value).__name__}")
    return constexpr(node.value)


@expression(ast.Name)
def visit_name(g: Generator, node: ast.Name) -> Any:
    if node.id in g.scope:
        value = g.scope[node.id]
        if isinstance(value, Undefined):
            raise InvalidUse(value.why, value.hint)
        return value
    return lookup(g, node.id)


@expression(ast.Tuple, ast.List)
def visit_tuple(g: Generator, node: ast.Tuple | ast.List) -> Any:
    return tuple(spread(g, node.elts))


def spread(g: Generator, nodes: list[ast.expr]) -> list[Any]:
    """What expressions stand for, starred ones item by item."""
    found: list[Any] = []
    for node in nodes:
        if not isinstance(node, ast.Starred):
            found.append(g.evaluate(node))
            continue
        items = lift(unwrap(g.evaluate(node.value)))
        if not isinstance(items, tuple):
            raise g.unsupported(node, f"* takes a tuple, not {items}")
        found += list(items)
    return found


@expression(ast.ListComp)
def visit_comprehension(g: Generator, node: ast.ListComp) -> Any:
    if len(node.generators) != 1 or node.generators[0].ifs or not isinstance(node.generators[0].target, ast.Name):
        raise g.unsupported(node, "a comprehension goes over one tuple, with one name and no condition")
    name = node.generators[0].target.id
    items = lift(unwrap(g.evaluate(node.generators[0].iter)))
    if isinstance(items, base_value) and not isinstance(items, tensor) and hasattr(items, "__iter__"):
        scope, found = g.scope, []
        for item in items:
            g.scope = {**scope, name: lift(item)}
            found.append(g.evaluate(node.elt))
        g.scope = scope
        return tuple(found)
    raise InvalidUse(f"a comprehension goes over a tuple, not over {items}")


# ---- operators


@expression(ast.BinOp)
def visit_binary(g: Generator, node: ast.BinOp) -> Any:
    return binary(node.op, g.evaluate(node.left), g.evaluate(node.right))


def binary(op: ast.operator, left: Any, right: Any) -> Any:
    """An operator between two values."""
    if type(op) not in _BINARY:
        raise InvalidUse("kernels cannot use @", _INSTEAD["@"])
    apply, sign = _BINARY[type(op)]
    try:
        return lift(apply(left, right))
    except TypeError as error:
        hint = _INSTEAD.get(sign, "")
        raise InvalidUse(f"{_described(left)} {sign} {_described(right)} has no meaning", hint) from error


def _described(value: Any) -> str:
    return str(value.type) if isinstance(value, tensor) else f"{plain(value)!r}" if is_known(value) else str(value)


@expression(ast.UnaryOp)
def visit_unary(g: Generator, node: ast.UnaryOp) -> Any:
    value = g.evaluate(node.operand)
    match node.op:
        case ast.Not():
            return constexpr(not plain(value)) if is_known(value) else logical_not(value)
        case ast.USub():
            return lift(-value)
        case ast.UAdd():
            return lift(+value)
        case _:
            return lift(~value)


@expression(ast.BoolOp)
def visit_boolean(g: Generator, node: ast.BoolOp) -> Any:
    """Goes from left to right; what is known to decide ends it, other known parts fall out."""
    both = isinstance(node.op, ast.And)
    result = None
    for part in node.values:
        value = g.evaluate(part)
        if is_known(value):
            if bool(plain(value)) != both and result is None:
                return value
            known = value
            if bool(plain(value)) == both:
                continue
        if result is None:
            result = to_tensor(value)
        else:
            result = (logical_and if both else logical_or)(result, value)
    return known if result is None else _as_truth(result)


def _as_truth(value: tensor) -> tensor:
    return logical_and(value, True)


@expression(ast.Compare)
def visit_compare(g: Generator, node: ast.Compare) -> Any:
    if len(node.ops) != 1:
        raise g.unsupported(node, "several comparisons in one", "write `a < b and b < c`")
    left, right, op = g.evaluate(node.left), g.evaluate(node.comparators[0]), node.ops[0]
    match op:
        case ast.Is() | ast.IsNot():
            return constexpr((_identity(left) is _identity(right)) == isinstance(op, ast.Is))
        case ast.In() | ast.NotIn():
            if not (is_known(left) and is_known(right)):
                raise g.unsupported(node, "`in` on what is not known while compiling", "compare with each item")
            return constexpr((plain(left) in plain(right)) == isinstance(op, ast.In))
    return lift(_COMPARISONS[type(op)](left, right))


def _identity(value: Any) -> Any:
    return unwrap(value) if isinstance(value, constexpr) else value


# ---- parts


@expression(ast.Attribute)
def visit_attribute(g: Generator, node: ast.Attribute) -> Any:
    value = g.evaluate(node.value)
    if isinstance(value, constexpr) and node.attr == "value":
        return value
    owner = value.value if isinstance(value, constexpr) and not hasattr(constexpr, node.attr) else value
    if not hasattr(owner, node.attr):
        what = f"the module {owner.__name__}" if isinstance(owner, ModuleType) else _described(owner)
        raise InvalidUse(f"{what} has no attribute {node.attr!r}")
    if isinstance(owner, ModuleType) and not owner.__name__.startswith("stator.tile"):
        return of_module(g, owner, node.attr)
    found = getattr(owner, node.attr)
    return found if isinstance(owner, aggregate_value) else lift(found)


@expression(ast.Subscript)
def visit_subscript(g: Generator, node: ast.Subscript) -> Any:
    value = g.evaluate(node.value)
    key = g.evaluate(node.slice)
    if not isinstance(value, base_value):
        raise InvalidUse(f"{value!r} has no subscripts in a kernel")
    return lift(value[key])  # type: ignore[index]


@expression(ast.Slice)
def visit_slice(g: Generator, node: ast.Slice) -> Any:
    parts = [constexpr(None) if part is None else g.evaluate(part) for part in (node.lower, node.upper, node.step)]
    return slice(*parts)


@expression(ast.JoinedStr)
def visit_text(g: Generator, node: ast.JoinedStr) -> Any:
    parts = []
    for part in node.values:
        if isinstance(part, ast.Constant):
            parts.append(str(part.value))
            continue
        assert isinstance(part, ast.FormattedValue)
        value = g.evaluate(part.value)
        if part.conversion not in (-1, 115):
            raise g.unsupported(part, "a conversion in a text")
        spec = "" if part.format_spec is None else str(plain(g.evaluate(part.format_spec)))
        parts.append(format(plain(value) if is_known(value) else str(value), spec))
    return constexpr("".join(parts))
