"""Windows: results beside each other that read much of the same memory are computed together.

A convolution of each channel alone has channels as lanes, and reads a window of an image around each pixel, most of
which the next pixel's window has too. So some pixels beside each other are one iteration: what several of them load,
and convert, is loaded once, and a border is asked for where it may be. `choose` finds the axis that windows move along
and how many iterations go together; `jam` of `rewrite.py` joins them, `proved` and `shared` take out what is known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from stator.kernel import ir
from stator.loop.expr import scans
from stator.loop.extent import less
from stator.loop.index import Axis, Index
from stator.loop.kernel import Kernel
from stator.loop.scalar import FLOATS
from stator.sizes import hint

#: Iterations that go together, at most: more share little more, and text and registers grow with them.
MOST = 4
#: What part of the loads of several iterations must be left for it, at most, and loads of one that are worth it.
LEFT, LOADS = 0.8, 6
#: Nodes of a kernel up to which it is done: each is written several times.
NODES = 400


def choose(kernel: Kernel, vector: Axis | None) -> tuple[Axis, int] | None:
    """The axis that windows move along, and how many of its iterations go together."""
    if vector is None or vector not in kernel.axes or len(kernel.nodes) > NODES or not _adds(kernel):
        return None
    if any(store.mode != "store" or store.index.has_indirect for store in kernel.stores):
        return None
    loads = {node.attr for node in kernel.nodes if node.op == "load" and not node.attr[1].has_indirect}
    for axis in kernel.reduce_axes[-1:] or reversed(kernel.axes):
        if axis is vector:
            continue
        moved = [(memory, index) for memory, index in loads if axis in index.axes()]
        size = hint(axis.size)
        count = next((n for n in range(MOST, 1, -1) if size and size % n == 0), MOST if size > MOST else 0)
        if count and len(moved) >= LOADS and len(_all(moved, axis, count)) <= LEFT * count * len(moved):
            return axis, count
    return None


def _adds(kernel: Kernel) -> bool:
    """Whether all that a kernel reduces are sums, which may take what several iterations add."""
    if kernel.levels > 1 or scans(kernel.nodes):
        return False
    return all(node.attr == "sum" and node.dtype in FLOATS for node in kernel.nodes if node.op == "reduce")


def _all(loads: list[tuple[str, Index]], axis: Axis, count: int) -> set[tuple[str, Index]]:
    """The different loads of so many iterations beside each other."""
    return {(memory, index.substitute({axis: axis.index + k})) for memory, index in loads for k in range(count)}


def proved(function: ir.Function) -> ir.Function:
    """Comparisons of positions that their bounds decide, and what follows of them.

    x < 7; y = lt(index(x), 7); z = where(y, a, b)  -->  z = a
    """
    return replace(function, body=_proved(function.body, {}, {}))


def _proved(block: ir.Block, known: dict[ir.Value, ir.Operand], positions: dict[ir.Value, Index]) -> ir.Block:
    body: list[ir.Statement] = []
    for statement in block:
        if isinstance(statement, ir.Loop):
            body.append(replace(statement, body=_proved(statement.body, known, positions)))
            continue
        s = ir.renamed(statement, known)  # type: ignore[arg-type]
        match s:
            case ir.Position(target, index):
                positions[target] = index
            case ir.Let(target, op, args) if (value := _value(op, args, positions)) is not None:
                known[target] = value
                continue
            case ir.Load(target, _, _, ir.Literal() as mask):
                if not mask.number:
                    known[target] = ir.Literal(0.0 if target.dtype in FLOATS else 0, target.dtype)
                    continue
                s = replace(s, mask=None)
        body.append(s)
    return tuple(body)


def _value(op: str, args: tuple[ir.Operand, ...], positions: Mapping[ir.Value, Index]) -> ir.Operand | None:
    """What an operator gives, where that is known."""
    match op, args:
        case (("lt" | "ge"), (ir.Value() as left, right)) if left in positions:
            bound = positions.get(right) if isinstance(right, ir.Value) else Index.of(int(right.number))
            low, high = (positions[left] - bound).bounds() if bound is not None else (None, None)
            if not (below := less(high, 0)) and not less(-1, low):
                return None
            return ir.Literal(below == (op == "lt"), "bool")
        case "and", (left, right) if left.dtype == "bool":
            for one, other in ((left, right), (right, left)):
                if isinstance(one, ir.Literal):
                    return other if one.number else one
        case "where", (ir.Literal(number), first, second):
            return first if number else second
    return None


def shared(function: ir.Function) -> ir.Function:
    """What a block, or one around it, has computed or loaded already is not computed again; there are no variables.

    t = p0[x + 1]; u = p0[x + 1]; v = add(t, u)  -->  t = p0[x + 1]; v = add(t, t)
    """
    inputs = {param.name for param in function.params if param.role == "in"}
    return replace(function, body=_shared(function.body, {}, {}, inputs))


def _shared(
    block: ir.Block, names: Mapping[ir.Value, ir.Value], there: Mapping[object, ir.Value], inputs: set[str]
) -> ir.Block:
    body: list[ir.Statement] = []
    names, there = dict(names), dict(there)
    for statement in block:
        if isinstance(statement, ir.Loop):
            body.append(replace(statement, body=_shared(statement.body, names, there, inputs)))
            continue
        s = ir.renamed(statement, names)
        match s:
            case ir.Position(target, index):
                key: object = (target.dtype, index)
            case ir.Load(target, memory, index, mask) if memory in inputs:
                key = (memory, index, mask)
            case ir.Let(target, op, args):
                key = (target.dtype, op, args)
            case _:
                body.append(s)
                continue
        if key in there:
            names[target] = there[key]
        else:
            there[key] = target
            body.append(s)
    return tuple(body)
