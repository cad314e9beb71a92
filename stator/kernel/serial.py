"""The plainest strategy: a kernel as loops over its axes, one element at a time.

It is where every strategy starts from: what it makes does what the kernel says, in an order that is easy to follow.
Long sums go in parts, as plain chains of additions are not as accurate as eager's.
"""

from __future__ import annotations

from collections.abc import Sequence

from stator.kernel.ir import Assign, Declare, Function, Literal, Loop, Operand, Position, Statement, Store, Value
from stator.kernel.rewrite import reduce_in_parts
from stator.kernel.writing import COMBINE, Writer
from stator.loop import kernel as loop_kernel
from stator.loop.collision import colliding, scatters
from stator.loop.expr import Expr
from stator.loop.index import Axis
from stator.loop.kernel import Kernel
from stator.loop.scalar import FLOATS, identity
from stator.loop.space import flat, loops


def serial(kernel: Kernel, name: str) -> Function:
    """A function of that name which runs the kernel."""
    return reduce_in_parts(plain(kernel, name))


def plain(kernel: Kernel, name: str) -> Function:
    """Loops as the kernel has them, with one accumulator for each reduction."""
    body: tuple[Statement, ...] = ()
    if kernel.outer_numel != 0:
        collide = colliding([store.index for store in kernel.stores if scatters(store)], kernel.axes)
        writer = Writer(kernel)
        axes = [axis for axis in kernel.axes if loops(axis)]
        for axis in axes:
            writer.enter(axis)
        _point(writer)
        for axis in reversed(axes):
            loop = Loop(axis, "range" if axis in collide else "parallel", writer.leave())
            writer.scope.statements.append(loop)
        body = tuple(writer.scope.statements)
    return Function(name, kernel.params, kernel.symbols, body)


def _point(writer: Writer) -> None:
    """What happens at one point of the outer axes: a loop for each level of reductions, then the stores."""
    kernel = writer.kernel
    levels: dict[int, list[Expr]] = {}
    for node in kernel.nodes:
        if node.op == "reduce":
            levels.setdefault(node.level, []).append(node)
    for level in sorted(levels):
        _reductions(writer, levels[level])
    inner = [store for store in kernel.stores if store.space == "inner"]
    if inner:
        writer.before = writer.scope
        _enter(writer)
        _stores(writer, inner)
        _leave(writer)
    _stores(writer, [store for store in kernel.stores if store.space == "outer"])


def _stores(writer: Writer, stores: Sequence[loop_kernel.Store]) -> None:
    """All values first, then what writes memory."""
    made = [Store(s.buffer, writer.index(s.index), writer.value(s.value), s.mode) for s in stores]
    writer.scope.statements.extend(made)


def _reductions(writer: Writer, nodes: Sequence[Expr]) -> None:
    """One loop over the reduce axes for all reductions of a level."""
    if writer.kernel.reduce_numel == 0:
        for node in nodes:
            nothing = 0 if node.attr.startswith("arg") else identity(node.attr, node.dtype)
            writer.bind(node, Literal(nothing, node.dtype))
        return
    writer.before = writer.scope
    accumulators = [_declare(writer, node) for node in nodes]
    _enter(writer)
    steps: list[Statement] = []
    for node, variables in zip(nodes, accumulators, strict=True):
        value = writer.value(node.args[0])
        if len(variables) == 2:
            steps.extend(_best(writer, node, value, *variables))
        else:
            steps.append(Assign(variables[0], COMBINE[node.attr], (variables[0], value)))
    writer.scope.statements.extend(steps)
    _leave(writer)
    for node, variables in zip(nodes, accumulators, strict=True):
        writer.bind(node, variables[-1])


def _declare(writer: Writer, node: Expr) -> tuple[Value, ...]:
    """The accumulator of a reduction; of the position of an extreme, that value and the position."""
    (body,) = node.args
    accumulator = writer.fresh(body.dtype, "a")
    writer.scope.statements.append(Declare(accumulator, Literal(identity(node.attr, body.dtype), body.dtype)))
    if not node.attr.startswith("arg"):
        return (accumulator,)
    position = writer.fresh("i64", "a")
    writer.scope.statements.append(Declare(position, Literal(0, "i64")))
    return accumulator, position


def _best(writer: Writer, node: Expr, value: Operand, best: Value, position: Value) -> list[Statement]:
    """Takes a value that is better than all before it; the first NaN is better than any number."""
    here = writer.fresh("i64")
    writer.scope.statements.append(Position(here, flat(writer.kernel.reduce_axes)))
    taken = writer.let("gt" if node.attr == "argmax" else "lt", "bool", value, best)
    if value.dtype in FLOATS:
        first = writer.let("not", "bool", writer.let("isnan", "bool", best))
        taken = writer.let("or", "bool", taken, writer.let("and", "bool", writer.let("isnan", "bool", value), first))
    return [Assign(best, "where", (taken, value, best)), Assign(position, "where", (taken, here, position))]


def _walked(writer: Writer) -> list[Axis]:
    return [axis for axis in writer.kernel.reduce_axes if loops(axis)]


def _enter(writer: Writer) -> None:
    """Into the loops over the reduce axes; also where none of them runs more than once."""
    writer.enter()
    for axis in _walked(writer):
        writer.enter(axis)


def _leave(writer: Writer) -> None:
    for axis in reversed(_walked(writer)):
        body = writer.leave()
        writer.scope.statements.append(Loop(axis, "range", body))
    body = writer.leave()
    writer.scope.statements.extend(body)
