"""Rewrites of functions, one small step each: `before --> after` says what it does.

Each gives a function that computes what the one before did, up to the order in which numbers are added; a strategy
puts them in a row. Neighbours: `verify` checks what comes out, `evaluate` runs it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from math import prod

from stator.kernel import ir
from stator.loop.index import Axis, Index
from stator.loop.scalar import FLOATS, identity
from stator.loop.space import AxisMap, loops, unflatten
from stator.sizes import Extent

#: How many numbers one accumulator takes before it is added to a total: eager's sums have chains about as long.
PART = 16
#: How long a chain counts as that has a symbolic length.
ANY_LENGTH = 1 << 40


def split(loop: ir.Loop, step: int) -> ir.Loop:
    """A loop in pieces of so many points; the last one may be shorter.

    for r in range(n): B  -->  for r_0 in range(ceil(n / step)): for r in range(step*r_0, min(step*r_0 + step, n)): B
    """
    assert loop.piece is None, "a piece of a loop is not split again"
    size = loop.axis.size
    outer = Axis(f"{loop.axis.name}_{step}", (size + (step - 1)) // step)
    inner = replace(loop, kind="range" if loop.kind == "parallel" else loop.kind, piece=ir.Piece(outer, step))
    return ir.Loop(outer, "parallel" if loop.kind == "parallel" else "range", (inner,))


def merge(function: ir.Function, axes: Sequence[Axis], name: str) -> ir.Function:
    """Loops with nothing between them as one loop, over the row-major positions of their points.

    for x0 in range(m): for x1 in range(n): B  -->  for x in range(m*n): B, where x0 is x // n and x1 is x % n
    """
    merged = [axis for axis in axes if loops(axis)]
    if not merged:
        return function
    whole = Axis(name, prod([axis.size for axis in merged]))
    points = unflatten(tuple(merged), whole.index)

    def made(loop: ir.Loop) -> ir.Loop:
        if loop.axis is not merged[0]:
            return replace(loop, body=_mapped(loop.body, made))
        innermost = loop
        for axis in merged[1:]:
            (inner,) = innermost.body
            assert isinstance(inner, ir.Loop) and inner.axis is axis and inner.kind == loop.kind
            innermost = inner
        return ir.Loop(whole, loop.kind, renamed(innermost.body, {}, points))

    return replace(function, body=_mapped(function.body, made))


def renamed(block: ir.Block, names: Mapping[ir.Value, ir.Value], points: AxisMap) -> ir.Block:
    """Statements of other values, at other positions."""
    return tuple(
        [
            replace(s, body=renamed(s.body, names, points)) if isinstance(s, ir.Loop) else ir.renamed(s, names, points)
            for s in block
        ]
    )


def share(function: ir.Function, axis: Axis, step: int) -> ir.Function:
    """A loop in pieces that run in parallel.

    for x in parallel(n): B  -->  for x_0 in parallel(ceil(n / step)): for x in range(step*x_0, …): B
    """

    def made(loop: ir.Loop) -> ir.Loop:
        return split(loop, step) if loop.axis is axis else replace(loop, body=_mapped(loop.body, made))

    return replace(function, body=_mapped(function.body, made))


def sum_rows(function: ir.Function, axis: Axis, count: int, row: Axis) -> ir.Function:
    """Sums of so many iterations of a loop are kept by the one program that runs them, a row of numbers each.

    for x in parallel(n): B: sum(p0[8*(x//16) + r], t)  -->  for x_16 in parallel(n / 16): s0: Scratch[f32, 8]
                                                                  for r in range(8): s0[r] = 0
                                                                  for x in range(16*x_16, …): B: add(s0[r], t)
                                                                  for r in range(8): p0[8*x_16 + r] = s0[r]
    """
    found = [s for s in ir.walk(function.body) if isinstance(s, ir.Store) and s.mode == "sum"]
    taken = {s.name for s in ir.walk(function.body) if isinstance(s, ir.Scratch)}
    names = {store: f"s{len(taken) + i}" for i, store in enumerate(found)}

    def kept(s: ir.Statement) -> ir.Statement:
        if isinstance(s, ir.Loop):
            return replace(s, body=tuple(map(kept, s.body)))
        return ir.Store(names[s], row.index, s.value, "add") if isinstance(s, ir.Store) and s in names else s

    def made(loop: ir.Loop) -> ir.Loop:
        if loop.axis is not axis:
            return replace(loop, body=_mapped(loop.body, made))
        outer = split(replace(loop, body=tuple(map(kept, loop.body))), count)
        scratch, last = _row_sums(names, row, {axis: outer.axis.index * count})
        first = [ir.Store(s.name, row.index, ir.Literal(identity("sum", s.dtype), s.dtype)) for s in scratch]
        begin, end = (ir.Loop(row, "range", tuple(body)) for body in (first, last))
        (inner,) = outer.body
        assert isinstance(inner, ir.Loop)
        return replace(outer, body=(*scratch, begin, replace(inner, kind="range"), end))

    return replace(function, body=_mapped(function.body, made)) if found else function


def _row_sums(
    names: Mapping[ir.Store, str], row: Axis, first: Mapping[Axis, Index]
) -> tuple[list[ir.Scratch], list[ir.Statement]]:
    """Memory for rows of sums, and what stores them where the first of their iterations would."""
    assert type(row.size) is int
    scratch, last = [], list[ir.Statement]()
    for store, name in names.items():
        total = ir.Value(f"{name}_sum", store.value.dtype)
        scratch.append(ir.Scratch(name, total.dtype, row.size))
        last.append(ir.Load(total, name, row.index))
        last.append(ir.Store(store.memory, store.index.substitute(first), total))
    return scratch, last


def jam(function: ir.Function, axis: Axis, count: int, beside: bool = False) -> ir.Function:
    """So many iterations of a loop together: what they have in common is computed once. So it is of those left over.

    Those of one iteration stand after those of another, or `beside` them, statement by statement: then what a variable
    from outside of the loop takes of each is added up first, and it takes that.

    for x in parallel(n): B  -->  for x_4 in parallel(n / 4): B, with four of each statement that differs along x
                                  B, with n % 4 of each; a loop over them where it is not known how many they are
    """
    outer = Axis(f"{axis.name}_{count}", axis.size // count)
    left = axis.size - outer.size * count
    points = [outer.index * count + k for k in range(count)]

    def made(block: ir.Block) -> ir.Block:
        body: list[ir.Statement] = []
        for s in block:
            if not isinstance(s, ir.Loop):
                body.append(s)
            elif s.axis is not axis:
                body.append(replace(s, body=made(s.body)))
            else:
                body += [ir.Loop(outer, s.kind, _repeated(s.body, axis, points, beside))] if outer.size != 0 else []
                body += _left_over(s.body, axis, outer.size * count, left, beside)
        return tuple(body)

    return replace(function, body=made(function.body))


def _left_over(block: ir.Block, axis: Axis, first: Extent, left: Extent, beside: bool) -> ir.Block:
    """The last iterations of a loop."""
    if type(left) is int:
        rest = _repeated(block, axis, [Index.of(first + k) for k in range(left)], beside) if left else ()
        return renamed(rest, named(rest, "left"), {})
    each = Axis(f"{axis.name}_left", left)
    return (ir.Loop(each, "range", renamed(block, named(block, "left"), {axis: each.index + first})),)


def strip(function: ir.Function, axis: Axis | None, count: int) -> ir.Function:
    """All of a function for one part of an axis after the other, of as many as divide it.

    A: for x in parallel(n): B  -->  for x_strip in parallel(4): A: for x in parallel(n / 4): B, of n/4*x_strip + x
    """
    if axis is None or count == 1:
        return function
    outer, inner = Axis(f"{axis.name}_strip", count), Axis(axis.name, axis.size // count)

    def made(loop: ir.Loop) -> ir.Loop:
        if loop.axis is not axis:
            return replace(loop, body=_mapped(loop.body, made))
        return replace(loop, axis=inner, body=renamed(loop.body, {}, {axis: outer.index * inner.size + inner}))

    return replace(function, body=(ir.Loop(outer, "parallel", _mapped(function.body, made)),))


def contract(function: ir.Function) -> ir.Function:
    """Products that are added up are rounded with the sum, not before.

    t = mul(x, y); a = add(a, t)  -->  a = fma(x, y, a)
    """
    uses = Counter([operand for s in ir.walk(function.body) for operand in ir.operands(s)])

    def made(block: ir.Block) -> ir.Block:
        factors = {s.target: s.args for s in block if isinstance(s, ir.Let) and s.op == "mul"}
        body: list[ir.Statement] = []
        taken: set[ir.Value] = set()
        for s in block:
            match s:
                case ir.Loop():
                    body.append(replace(s, body=made(s.body)))
                case ir.Assign(target, "add", (first, ir.Value() as term)) if (
                    first == target and term in factors and uses[term] == 1 and target.dtype in FLOATS
                ):
                    body.append(ir.Assign(target, "fma", (*factors[term], target)))
                    taken.add(term)
                case _:
                    body.append(s)
        return tuple([s for s in body if not (isinstance(s, ir.Let) and s.target in taken)])

    return replace(function, body=made(function.body))


def columns(function: ir.Function) -> ir.Function:
    """Vectors of lanes that reduce along loops inside of them go together: what they have in common is computed once.

    for x in lanes(16*4, n): B  -->  for x in whole(16*4, n): B, with four of each statement that differs along x
                                     for x in rest(16*4, n): B
    """
    for loop in ir.walk(function.body):
        if isinstance(loop, ir.Loop) and loop.unroll > 1 and any(isinstance(s, ir.Loop) for s in loop.body):
            points = [loop.axis.index + k * loop.lanes for k in range(loop.unroll)]
            made = [replace(loop, kind="whole", body=_repeated(loop.body, loop.axis, points))]
            if loop.axis.size % (loop.lanes * loop.unroll) != 0:
                made.append(replace(loop, kind="rest", body=renamed(loop.body, named(loop.body, "rest"), {})))
            function = replace(function, body=replaced(function.body, loop, *made))
    return function


def named(block: ir.Block, suffix: str) -> dict[ir.Value, ir.Value]:
    """Other names for what a block defines."""
    return {v: ir.Value(f"{v.name}_{suffix}", v.dtype) for v in _own(block)}


def _repeated(block: ir.Block, axis: Axis, points: Sequence[Index], beside: bool = False) -> ir.Block:
    """A block at several points of an axis: runs of statements once for each, after what they have in common."""
    values = _differing(block, axis)
    names = [{v: ir.Value(f"{v.name}_{k}", v.dtype) for v in values} for k in range(len(points))]

    def several(block: ir.Block) -> ir.Block:
        body: list[ir.Statement] = []
        run: list[ir.Plain] = []
        for s in (*block, None):
            if s is None or isinstance(s, ir.Loop):
                at = list(zip(names, points, strict=True))
                every = [[ir.renamed(item, name, {axis: point}) for item in run] for name, point in at]
                if beside:
                    every = [_added_up(items, values) for items in zip(*every, strict=True)]
                body += [item for items in every for item in items]
                body += [replace(s, body=several(s.body))] if s is not None else []
                run = []
            elif _differs(s, axis, values):
                run.append(s)
            else:
                body.append(s)
        return tuple(body)

    return several(block)


def _added_up(items: Sequence[ir.Plain], values: AbstractSet[ir.Value]) -> list[ir.Plain]:
    """What a variable from outside takes of several iterations, as one sum.

    a = add(a, t_0); a = add(a, t_1)  -->  a_1 = add(t_0, t_1); a = add(a, a_1)
    """
    first = items[0]
    if not isinstance(first, ir.Assign) or first.target in values:
        return [*items]
    made: list[ir.Plain] = []
    total, target = first.args[1], first.target
    for k, item in enumerate(items[1:], 1):
        assert isinstance(item, ir.Assign) and item.op == "add" and item.args[0] == target
        made.append(ir.Let(ir.Value(f"{target.name}_{k}", target.dtype), "add", (total, item.args[1])))
        total = made[-1].target  # type: ignore[union-attr]
    return [*made, ir.Assign(target, "add", (target, total))]


def _differing(block: ir.Block, axis: Axis) -> set[ir.Value]:
    """The values of a block that differ along an axis; an accumulator does if what it takes does."""
    own = _own(block)
    found: set[ir.Value] = set()
    before = -1
    while before != len(found):
        before = len(found)
        for statement in ir.walk(block):
            if not isinstance(statement, ir.Loop) and _differs(statement, axis, found):
                found.update(own.intersection(ir.targets(statement)))
    return found


def _own(block: ir.Block) -> set[ir.Value]:
    """What a block defines."""
    changed = ir.Assign | ir.Best | ir.Online | ir.Flush
    return {target for s in ir.walk(block) if not isinstance(s, changed) for target in ir.targets(s)}


def _differs(statement: ir.Plain, axis: Axis, values: set[ir.Value]) -> bool:
    index = getattr(statement, "index", None)
    here = index is not None and axis in index.axes()
    return here or not values.isdisjoint((*ir.operands(statement), *ir.targets(statement)))


def vectorise(function: ir.Function, axis: Axis, lanes: int, unroll: int) -> ir.Function:
    """Iterations along an axis so many at once, where they reduce `unroll` times as many.

    for x in range(n): B  -->  for x in lanes(lanes*unroll, n): B
    """

    def made(loop: ir.Loop) -> ir.Loop:
        body = _mapped(loop.body, made)
        if loop.axis is not axis:
            return replace(loop, body=body)
        reduces = any(isinstance(s, ir.Assign | ir.Best | ir.Online) for s in ir.walk(body))
        return replace(loop, kind="lanes", body=body, lanes=lanes, unroll=unroll if reduces else 1)

    return replace(function, body=_mapped(function.body, made))


def stream(function: ir.Function, memories: AbstractSet[str]) -> ir.Function:
    """Stores to these memories go past the caches.

    p0[x] = t  -->  stream(p0[x], t)
    """

    def made(loop: ir.Loop) -> ir.Loop:
        body = [replace(s, stream=True) if isinstance(s, ir.Store) and s.memory in memories else s for s in loop.body]
        return replace(loop, body=_mapped(tuple(body), made))

    return replace(function, body=_mapped(function.body, made)) if memories else function


def flush_sums(function: ir.Function) -> ir.Function:
    """What long sums of floats have taken goes to their totals, now and then.

    for r in range(n): a = add(a, t)  -->  for s in range(n / 16): {for r in range(16): a = add(a, t)}; flush(a)
    """
    return replace(function, body=_flushed(function.body))


def _flushed(block: ir.Block) -> ir.Block:
    sums = {s.target for s in block if isinstance(s, ir.Declare) and s.target.dtype in FLOATS}

    def made(loop: ir.Loop) -> ir.Loop:
        paths = {target: path for target in sums if (path := _path(loop, target))}
        if not paths:
            return replace(loop, body=_flushed(loop.body))
        (*_, path) = paths.values()
        return _with_flushes(path, sorted(paths, key=lambda value: value.name))

    return _mapped(block, made)


def _with_flushes(path: Sequence[ir.Loop], sums: Sequence[ir.Value]) -> ir.Loop:
    """The outermost of these loops, with flushes at the end of one of them or of pieces of the innermost."""
    depth = _depth([_chain(loop) for loop in path])
    if depth is None:
        return path[0]
    flushes = tuple(map(ir.Flush, sums))
    loop = path[-1]
    if depth == len(path) - 1:
        outer = split(loop, PART * max(loop.lanes, 1) * loop.unroll)
        loop = replace(outer, body=(*outer.body, *flushes))
    for level in range(len(path) - 2, -1, -1):
        body = replaced(path[level].body, path[level + 1], loop)
        loop = replace(path[level], body=(*body, *(flushes if level == depth else ())))
    return loop


def _chain(loop: ir.Loop) -> Extent:
    """How often a loop adds to one accumulator."""
    if type(loop.axis.size) is not int or not loop.lanes:
        return loop.axis.size
    return max(loop.axis.size // (loop.lanes * loop.unroll), 1)


def _mapped(block: ir.Block, change: Callable[[ir.Loop], ir.Loop]) -> ir.Block:
    return tuple([change(s) if isinstance(s, ir.Loop) else s for s in block])


def _path(loop: ir.Loop, target: ir.Value) -> list[ir.Loop]:
    """The loops around the one statement that adds to a variable; empty if that has other uses."""
    found = [loop]
    while not any(isinstance(s, ir.Assign) and s.target == target for s in found[-1].body):
        inner = [s for s in found[-1].body if isinstance(s, ir.Loop) and any(_uses(t, target) for t in ir.walk(s.body))]
        if len(inner) != 1:
            return []
        found.append(inner[0])
    uses = [s for s in ir.walk(loop.body) if _uses(s, target)]
    match uses:
        case [ir.Assign(target=given, op="add", args=(first, _))] if given == target == first:
            return found
    return []


def _uses(statement: ir.Statement, target: ir.Value) -> bool:
    assigned = isinstance(statement, ir.Assign) and statement.target == target
    return assigned or target in ir.operands(statement)


def _depth(lengths: Sequence[Extent]) -> int | None:
    """The loop after each of whose iterations a sum is flushed, or None if the chain is short.

    Where that would be too rare it is done in pieces of the innermost loop.
    """
    chains = [length if type(length) is int else ANY_LENGTH for length in lengths]
    if prod(chains) <= 2 * PART:
        return None
    inner = 1
    for depth in range(len(chains) - 1, 0, -1):
        inner *= chains[depth]
        if inner >= PART:
            return depth - 1 if inner <= 8 * PART else len(chains) - 1
    return len(chains) - 1


def replaced(block: ir.Block, old: ir.Statement, *new: ir.Statement) -> ir.Block:
    """A block with others in place of one statement, in loops too."""
    made: list[ir.Statement] = []
    for statement in block:
        if statement is old:
            made += new
        elif isinstance(statement, ir.Loop):
            body = replaced(statement.body, old, *new)
            made.append(statement if body == statement.body else replace(statement, body=body))
        else:
            made.append(statement)
    return tuple(made)
