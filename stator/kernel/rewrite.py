"""Rewrites of functions, one small step each: `before --> after` says what it does.

Each gives a function that computes what the one before did, up to the order in which numbers are added; a strategy
puts them in a row. Neighbours: `verify` checks what comes out, `evaluate` runs it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod

from stator.kernel.ir import (
    Assign,
    Best,
    Block,
    Declare,
    Flush,
    Function,
    Let,
    Literal,
    Loop,
    Piece,
    Statement,
    Value,
    operands,
    walk,
)
from stator.loop.index import Axis
from stator.loop.scalar import FLOATS
from stator.sizes import Extent

#: How many numbers one accumulator takes before it is added to a total: eager's sums have chains about as long.
PART = 16
#: How long a chain counts as that has a symbolic length.
ANY_LENGTH = 1 << 40
#: The dtype in which the parts of a sum are added.
TOTAL = {"f32": "f64", "f64": "f64"}


def split(loop: Loop, step: int) -> Loop:
    """A loop in pieces of so many points; the last one may be shorter.

    for r in range(n): B  -->  for r_0 in range(ceil(n / step)): for r in range(step*r_0, min(step*r_0 + step, n)): B
    """
    assert loop.piece is None, "a piece of a loop is not split again"
    size = loop.axis.size
    outer = Axis(f"{loop.axis.name}_{step}", (size + (step - 1)) // step)
    inner = replace(loop, kind="range" if loop.kind == "parallel" else loop.kind, piece=Piece(outer, step))
    return Loop(outer, "parallel" if loop.kind == "parallel" else "range", (inner,))


def vectorise(function: Function, axis: Axis, lanes: int, unroll: int) -> Function:
    """Iterations along an axis so many at once, where they reduce `unroll` times as many.

    for x in range(n): B  -->  for x in lanes(lanes*unroll, n): B
    """

    def made(loop: Loop) -> Loop:
        body = _mapped(loop.body, made)
        if loop.axis is not axis:
            return replace(loop, body=body)
        reduces = any(isinstance(s, Assign | Best) for s in walk(body))
        return replace(loop, kind="lanes", body=body, lanes=lanes, unroll=unroll if reduces else 1)

    return replace(function, body=_mapped(function.body, made))


def flush_sums(function: Function) -> Function:
    """What long sums of floats have taken goes to their totals, now and then.

    for r in range(n): a = add(a, t)  -->  for s in range(n / 16): {for r in range(16): a = add(a, t)}; flush(a)
    """
    return replace(function, body=_flushed(function.body))


def _flushed(block: Block) -> Block:
    sums = {s.target for s in block if isinstance(s, Declare) and s.target.dtype in FLOATS}

    def made(loop: Loop) -> Loop:
        paths = {target: path for target in sums if (path := _path(loop, target)) and _adds(path[-1], target)}
        if not paths:
            return replace(loop, body=_flushed(loop.body))
        (*_, path) = paths.values()
        return _with_flushes(path, sorted(paths, key=lambda value: value.name))

    return _mapped(block, made)


def _adds(loop: Loop, target: Value) -> bool:
    return any(isinstance(s, Assign) and s.target == target and s.op == "add" for s in loop.body)


def _with_flushes(path: Sequence[Loop], sums: Sequence[Value]) -> Loop:
    """The outermost of these loops, with flushes at the end of one of them or of pieces of the innermost."""
    depth = _depth([_chain(loop) for loop in path], most=8 * PART)
    if depth is None:
        return path[0]
    flushes = tuple(map(Flush, sums))
    loop = path[-1]
    if depth == len(path) - 1:
        outer = split(loop, PART * max(loop.lanes, 1) * loop.unroll)
        loop = replace(outer, body=(*outer.body, *flushes))
    for level in range(len(path) - 2, -1, -1):
        body = _replaced(path[level].body, path[level + 1], loop)
        loop = replace(path[level], body=(*body, *(flushes if level == depth else ())))
    return loop


def _chain(loop: Loop) -> Extent:
    """How often a loop adds to one accumulator."""
    if type(loop.axis.size) is not int or not loop.lanes:
        return loop.axis.size
    return max(loop.axis.size // (loop.lanes * loop.unroll), 1)


def _mapped(block: Block, change: Callable[[Loop], Loop]) -> Block:
    return tuple([change(s) if isinstance(s, Loop) else s for s in block])


def reduce_in_parts(function: Function) -> Function:
    """Long sums and products of floats in parts: see `_in_parts`. One for each accumulator that has a long chain."""
    return replace(function, body=_block(function.body))


def _block(block: Block) -> Block:
    found = list(block)
    for i, statement in enumerate(found):
        if isinstance(statement, Loop):
            found[i] = replace(statement, body=_block(statement.body))
    for statement in block:
        if isinstance(statement, Declare) and statement.target.dtype in FLOATS:
            found = _shortened(found, statement)
    return tuple(found)


def _shortened(block: list[Statement], declared: Declare) -> list[Statement]:
    """A block with the accumulator that it declares in parts, if one loop of it adds to it, and often."""
    target = declared.target
    users = [i for i, s in enumerate(block) if isinstance(s, Loop) and any(_uses(t, target) for t in walk(s.body))]
    first = min(users, default=None)
    if first is None:
        return block
    loop = block[first]
    assert isinstance(loop, Loop)
    path = _path(loop, target)
    depth = _depth([inner.axis.size if inner.piece is None else inner.piece.step for inner in path])
    if depth is None:
        return block
    if depth == len(path) - 1:
        (loop,) = _replaced((loop,), path[-1], split(path[-1], PART))
        assert isinstance(loop, Loop)
        path = _path(loop, target)  # one loop longer, so that the depth is that of the pieces
    total = target if TOTAL[target.dtype] == target.dtype else Value(f"{target.name}_total", TOTAL[target.dtype])
    start = Declare(total, Literal(declared.start.number, total.dtype))  # type: ignore[union-attr]
    after = [Let(target, "cast", (total,))] if total is not target else []
    made = _in_parts(path, depth, target, total, declared)
    return [*[start if s is declared else s for s in block[:first]], made, *after, *block[first + 1 :]]


def _in_parts(path: Sequence[Loop], depth: int, target: Value, total: Value, declared: Declare) -> Loop:
    """The outermost loop, with an accumulator of its own in each iteration of the loop at a depth.

    for r: B{a = add(a, t)}  -->  for r: part = 0; B{part = add(part, t)}; a = add(a, part)
    """
    loop = path[depth]
    part = Value(f"{target.name}_part", target.dtype)
    (step,) = [s for s in walk(loop.body) if isinstance(s, Assign) and s.target == target]
    renamed = _replaced(loop.body, step, Assign(part, step.op, (part, *step.args[1:])))
    added: list[Statement] = []
    given = part
    if total.dtype != part.dtype:
        given = Value(f"{target.name}_wide", total.dtype)
        added.append(Let(given, "cast", (part,)))
    added.append(Assign(total, step.op, (total, given)))
    made: Loop = replace(loop, body=(Declare(part, declared.start), *renamed, *added))
    for outer, inner in zip(reversed(path[:depth]), reversed(path[1 : depth + 1]), strict=True):
        made = replace(outer, body=_replaced(outer.body, inner, made))
    return made


def _path(loop: Loop, target: Value) -> list[Loop]:
    """The loops around the one statement that takes the next value; empty if the variable has other uses."""
    found = [loop]
    while not any(isinstance(s, Assign) and s.target == target for s in found[-1].body):
        inner = [s for s in found[-1].body if isinstance(s, Loop) and any(_uses(t, target) for t in walk(s.body))]
        if len(inner) != 1:
            return []
        found.append(inner[0])
    uses = [s for s in walk(loop.body) if _uses(s, target)]
    match uses:
        case [Assign(target=given, op="add" | "mul", args=(first, _))] if given == target == first:
            return found
    return []


def _uses(statement: Statement, target: Value) -> bool:
    assigned = isinstance(statement, Assign) and statement.target == target
    return assigned or target in operands(statement)


def _depth(lengths: Sequence[Extent], most: int = ANY_LENGTH) -> int | None:
    """The loop after each of whose iterations a part is added to the total, or None if the chain is short.

    Of parts with more terms than `most` those of the innermost loop are made.
    """
    chains = [length if type(length) is int else ANY_LENGTH for length in lengths]
    if prod(chains) <= 2 * PART:
        return None
    inner = 1
    for depth in range(len(chains) - 1, 0, -1):
        inner *= chains[depth]
        if inner >= PART:
            return depth - 1 if inner <= most else len(chains) - 1
    return len(chains) - 1


def _replaced(block: Block, old: Statement, new: Statement) -> Block:
    """A block with one statement replaced, in loops too."""
    made: list[Statement] = []
    for statement in block:
        if statement is old:
            made.append(new)
        elif isinstance(statement, Loop):
            body = _replaced(statement.body, old, new)
            made.append(statement if body == statement.body else replace(statement, body=body))
        else:
            made.append(statement)
    return tuple(made)
