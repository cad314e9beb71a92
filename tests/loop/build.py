"""A small builder of programs for the tests: row-major tensors and the nests that lowering would make."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from math import prod

from stator.loop.evaluate import Memories
from stator.loop.expr import Expr, cast, const, load, op, reduce
from stator.loop.index import Axis, Index
from stator.loop.nest import Buffer, Extern, Nest, Node, Output, Program, View, contiguous


class Build:
    """Collects inputs and nodes; every method gives the new buffer."""

    def __init__(self) -> None:
        self.inputs: list[Buffer] = []
        self.nodes: list[Node] = []
        self.mutated: list[str] = []

    def input(self, *size: int, dtype: str = "f32") -> Buffer:
        buffer = Buffer(f"in{len(self.inputs)}", dtype, size, contiguous(size))
        self.inputs.append(buffer)
        return buffer

    def new(self, size: Sequence[int], dtype: str = "f32") -> Buffer:
        return Buffer(f"b{len(self.nodes)}", dtype, tuple(size), contiguous(tuple(size)))

    def pointwise(self, size: Sequence[int], body: Callable[..., Expr], dtype: str = "f32", into: Buffer | None = None) -> Buffer:
        """`body(*axes)` for each element."""
        axes = tuple(Axis(f"i{k}", n) for k, n in enumerate(size))
        buffer = into or self.new(size, dtype)
        self.nodes.append(Nest(buffer, axes, (), body(*axes), at(buffer, *axes)))
        return buffer

    def reduction(self, outer: Sequence[int], inner: Sequence[int], body: Callable[..., Expr], dtype: str = "f32") -> Buffer:
        """`body(*outer axes, *inner axes)` holds the reduce nodes."""
        axes = tuple(Axis(f"i{k}", n) for k, n in enumerate(outer))
        reduce_axes = tuple(Axis(f"j{k}", n) for k, n in enumerate(inner))
        buffer = self.new(outer, dtype)
        self.nodes.append(Nest(buffer, axes, reduce_axes, body(*axes, *reduce_axes), at(buffer, *axes)))
        return buffer

    def extern(self, target: str, arguments: Sequence[Buffer], size: Sequence[int], out: bool = True) -> Buffer:
        buffer = self.new(size)
        views = tuple(View(a.name, a.size, a.stride) for a in arguments)
        self.nodes.append(Extern(f"e{len(self.nodes)}", target, views, (), (buffer,), f"{target}.out" if out else None))
        return buffer

    def program(self, *outputs: Buffer) -> Program:
        views: tuple[Output, ...] = tuple(View(b.name, b.size, b.stride) for b in outputs)
        return Program("test", "cpu", tuple(self.inputs), tuple(self.nodes), views, tuple(self.mutated))


def at(buffer: Buffer, *axes: Axis | Index | int) -> Index:
    position = Index.of(0)
    for axis, stride in zip(axes, buffer.stride, strict=True):
        position = position + Index.of(axis) * stride
    return position


def get(buffer: Buffer, *axes: Axis | Index | int) -> Expr:
    """The element, in f32 if it is a narrow float."""
    value = load(buffer.name, at(buffer, *axes), buffer.dtype)
    return cast(value, "f32") if buffer.dtype in ("bf16", "f16") else value


def number(value: float) -> Expr:
    return const(value, "f32")


def total(body: Expr) -> Expr:
    return reduce("sum", body)


def layer_norm(b: Build, x: Buffer, weight: Buffer, bias: Buffer) -> tuple[Buffer, Buffer, Buffer]:
    """(y, mean, rstd) over the last dimension, as four nests."""
    rows, n = x.size
    mean = b.reduction([rows], [n], lambda i, j: op("mul", total(get(x, i, j)), number(1 / n)))
    var = b.reduction([rows], [n], lambda i, j: op("mul", total(_square(op("sub", get(x, i, j), get(mean, i)))), number(1 / n)))
    rstd = b.pointwise([rows], lambda i: op("rsqrt", op("add", get(var, i), number(1e-5))))

    def normalised(i: Axis, j: Axis) -> Expr:
        centred = op("mul", op("sub", get(x, i, j), get(mean, i)), get(rstd, i))
        return op("add", op("mul", centred, get(weight, j)), get(bias, j))

    return b.pointwise([rows, n], normalised), mean, rstd


def softmax(b: Build, x: Buffer) -> Buffer:
    """Over the last dimension, as three nests."""
    *outer, n = x.size
    high = b.reduction(outer, [n], lambda *a: reduce("max", get(x, *a)))
    exp = b.pointwise(x.size, lambda *a: op("exp", op("sub", get(x, *a), get(high, *a[:-1]))))
    below = b.reduction(outer, [n], lambda *a: total(get(exp, *a)))
    return b.pointwise(x.size, lambda *a: op("div", get(exp, *a), get(below, *a[:-1])))


def _square(value: Expr) -> Expr:
    return op("mul", value, value)


def numbers(program: Program, seed: int = 0) -> dict[str, list[float]]:
    """Random inputs: multiples of 1/8, so that short sums are exact."""
    source = random.Random(seed)
    return {b.name: [source.randint(-16, 16) / 8 for _ in range(b.span)] for b in program.inputs}


def extern_sum(node: Extern, read: Callable[[View], list[float]]) -> list[list[float]]:
    """A stand-in for any extern: each output element mixes all arguments."""
    arguments = [read(view) for view in node.views()]
    return [[sum(a[k % len(a)] for a in arguments) * 0.5 for k in range(prod(b.size))] for b in node.outputs]


def close(left: Sequence[float], right: Sequence[float], tolerance: float = 1e-5) -> bool:
    return len(left) == len(right) and all(
        (a != a and b != b) or a == b or abs(a - b) <= tolerance * (1 + abs(b)) for a, b in zip(left, right, strict=True)
    )


def contents(program: Program, memories: Memories) -> dict[str, list[float]]:
    """Outputs and mutated inputs, in storage order."""
    names = [v.buffer for v in program.outputs if isinstance(v, View)] + list(program.mutated)
    return {name: [memories[name].read(k) for k in range(program.buffers[name].span)] for name in names}
