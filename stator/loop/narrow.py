"""Rewrite: what lies in memory between kernels lies there in the narrowest dtype that holds it exactly.

    y: f32[…] = cast(f32, x: bf16)        y: bf16[…] = x
    z = f(y[i])                     -->   z = f(cast(f32, y[i]))

A gradient that a program made wide to compute on would else be written and read at twice its size. Buffers that the
caller or an operator of PyTorch sees stay as they are. Neighbours: `split.prepare` asks for it where the device does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from stator.base.dtypes import ITEMSIZE, contains
from stator.loop.expr import Expr, Rewriter, cast, held, load, postorder
from stator.loop.index import Index
from stator.loop.nest import Extern, Nest, Node, Program, View
from stator.loop.scalar import HALVES


def narrowed(program: Program) -> Program:
    """The program with narrower buffers; the same object where there are none."""
    made = dict(_narrower(program))
    if not made:
        return program

    def on_load(buffer: str, index: Index, dtype: str) -> Expr:
        if buffer not in made:
            return load(buffer, index, dtype)
        return cast(load(buffer, index, made[buffer]), dtype)

    rewrite = Rewriter({}, on_load, {})
    nodes: list[Node] = []
    for node in program.nodes:
        if not isinstance(node, Nest):
            nodes.append(node)
            continue
        value, index, buffer = rewrite(node.value), rewrite.index(node.index), node.buffer
        if buffer.name in made:
            value, buffer = cast(value, made[buffer.name]), replace(buffer, dtype=made[buffer.name])
        same = value is node.value and index is node.index and buffer is node.buffer
        nodes.append(node if same else replace(node, buffer=buffer, value=value, index=index))
    return replace(program, nodes=tuple(nodes))


def _narrower(program: Program) -> Iterator[tuple[str, str]]:
    """Buffers that nests alone see, of which one writes all, and the narrower dtype that holds it."""
    seen = {output.buffer for output in program.outputs if isinstance(output, View)}
    seen |= {buffer.name for buffer in program.inputs}
    for node in program.nodes:
        if isinstance(node, Extern):
            seen |= {view.buffer for view in node.views()} | {buffer.name for buffer in node.outputs}
    writers = Counter([node.buffer.name for node in program.nodes if isinstance(node, Nest)])
    for node in program.nodes:
        if not isinstance(node, Nest) or node.mode != "store" or node.buffer.name in seen:
            continue
        value = node.value
        reads_itself = any(expr.op == "load" and expr.attr[0] == node.buffer.name for expr in postorder([value]))
        found = _narrow(value)
        if found and writers[node.buffer.name] == 1 and not value.level and not reads_itself:
            yield node.buffer.name, found


def _narrow(value: Expr) -> str:
    """The narrower dtype that a value was widened from, or chosen of numbers of; "" where there is none."""
    if value.op == "cast":
        narrow = value.args[0].dtype
        if narrow != "bool" and contains(value.dtype, narrow) and ITEMSIZE[narrow] < ITEMSIZE[value.dtype]:
            return narrow
    return next((half for half in HALVES if value.dtype == "f32" and held(value, half)), "")
