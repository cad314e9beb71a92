"""A small builder of programs for the tests: row-major tensors and the nests that lowering would make."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from math import prod

from stator.loop.evaluate import Memories
from stator.loop.expr import Expr, cast, const, index, load, op, reduce
from stator.loop.index import Axis, Index
from stator.loop.nest import Buffer, Extern, Nest, Node, Output, Program, View
from stator.sizes.strides import contiguous


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

    def pointwise(
        self, size: Sequence[int], body: Callable[..., Expr], dtype: str = "f32", into: Buffer | None = None
    ) -> Buffer:
        """`body(*axes)` for each element."""
        axes = tuple(Axis(f"i{k}", n) for k, n in enumerate(size))
        buffer = into or self.new(size, dtype)
        self.nodes.append(Nest(buffer, axes, (), body(*axes), at(buffer, *axes)))
        return buffer

    def reduction(
        self, outer: Sequence[int], inner: Sequence[int], body: Callable[..., Expr], dtype: str = "f32"
    ) -> Buffer:
        """`body(*outer axes, *inner axes)` holds the reduce nodes."""
        axes = tuple(Axis(f"i{k}", n) for k, n in enumerate(outer))
        reduce_axes = tuple(Axis(f"j{k}", n) for k, n in enumerate(inner))
        buffer = self.new(outer, dtype)
        self.nodes.append(Nest(buffer, axes, reduce_axes, body(*axes, *reduce_axes), at(buffer, *axes)))
        return buffer

    def scan(
        self, outer: Sequence[int], length: int, body: Callable[..., Expr], dtype: str = "f32", dim: int = -1
    ) -> Buffer:
        """`body(*outer axes, scanned axis)` holds the scan nodes; the scanned axis is this dim of the result."""
        axes, walked = tuple(Axis(f"i{k}", n) for k, n in enumerate(outer)), Axis("j0", length)
        dim %= len(axes) + 1
        points = (*axes[:dim], walked, *axes[dim:])
        buffer = self.new([axis.size for axis in points], dtype)
        self.nodes.append(Nest(buffer, axes, (walked,), body(*axes, walked), at(buffer, *points)))
        return buffer

    def extern(
        self, target: str, arguments: Sequence[Buffer], size: Sequence[int], out: bool = True, fresh: bool = False
    ) -> Buffer:
        buffer = self.new(size)
        views = tuple(View(a.name, a.size, a.stride) for a in arguments)
        into = f"{target}.out" if out else None
        self.nodes.append(Extern(f"e{len(self.nodes)}", target, views, (), (buffer,), into, fresh=fresh))
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
    var = b.reduction(
        [rows], [n], lambda i, j: op("mul", total(_square(op("sub", get(x, i, j), get(mean, i)))), number(1 / n))
    )
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
        (a != a and b != b) or a == b or abs(a - b) <= tolerance * (1 + abs(b))
        for a, b in zip(left, right, strict=True)
    )


def contents(program: Program, memories: Memories) -> dict[str, list[float]]:
    """Outputs and mutated inputs, in storage order."""
    names = [v.buffer for v in program.outputs if isinstance(v, View)] + list(program.mutated)
    return {name: [memories[name].read(k) for k in range(program.buffers[name].span)] for name in names}


def gelu(x: Expr) -> Expr:
    """The exact form."""
    return op("mul", op("mul", x, number(0.5)), op("add", op("erf", op("mul", x, number(0.70710678))), number(1.0)))


def layer_norm_backward(
    b: Build, dy: Buffer, x: Buffer, mean: Buffer, rstd: Buffer, weight: Buffer
) -> tuple[Buffer, Buffer, Buffer]:
    """(dx, dweight, dbias), as five nests."""
    rows, n = x.size

    def hat(i: Axis, j: Axis) -> Expr:
        return op("mul", op("sub", get(x, i, j), get(mean, i)), get(rstd, i))

    def scaled(i: Axis, j: Axis) -> Expr:
        return op("mul", get(dy, i, j), get(weight, j))

    one = b.reduction([rows], [n], lambda i, j: total(scaled(i, j)))
    two = b.reduction([rows], [n], lambda i, j: total(op("mul", scaled(i, j), hat(i, j))))

    def gradient(i: Axis, j: Axis) -> Expr:
        mixed = op("add", get(one, i), op("mul", hat(i, j), get(two, i)))
        return op("mul", get(rstd, i), op("sub", scaled(i, j), op("mul", mixed, number(1 / n))))

    dx = b.pointwise([rows, n], gradient)
    dweight = b.reduction([n], [rows], lambda j, i: total(op("mul", get(dy, i, j), hat(i, j))))
    dbias = b.reduction([n], [rows], lambda j, i: total(get(dy, i, j)))
    return dx, dweight, dbias


def transformer(layers: int, tokens: int, heads: int, width: int) -> Program:
    """Forward and a rough backward of a decoder: what matters is its shape, with matmuls as externs."""
    b = Build()
    n, d = heads * width, width
    x = b.input(tokens, n)
    saved, results = [], []
    for _ in range(layers):
        w, bias = b.input(n), b.input(n)
        y, mean, rstd = layer_norm(b, x, w, bias)
        qkv = b.extern("aten.mm", [y], [tokens, 3 * n])
        parts = [
            b.pointwise([heads, tokens, d], lambda h, t, k, q=q, p=p: get(q, t, h.index * d + k + p * n))
            for p, q in enumerate([qkv] * 3)
        ]
        scores = b.extern("aten.bmm", parts[:2], [heads, tokens, tokens])
        causal = b.pointwise(
            [heads, tokens, tokens],
            lambda h, i, j, s=scores: op(
                "where", op("ge", index(i), index(j)), op("mul", get(s, h, i, j), number(0.125)), number(-1e9)
            ),
        )
        weights = softmax(b, causal)
        mixed = b.extern("aten.bmm", [weights, parts[2]], [heads, tokens, d])
        merged = b.pointwise([tokens, heads, d], lambda t, h, k, m=mixed: get(m, h, t, k))
        out = b.extern("aten.mm", [merged], [tokens, n])
        x1 = b.pointwise([tokens, n], lambda i, j, x=x, o=out: op("add", get(x, i, j), get(o, i, j)))
        w2, bias2 = b.input(n), b.input(n)
        y2, mean2, rstd2 = layer_norm(b, x1, w2, bias2)
        up = b.extern("aten.mm", [y2], [tokens, 4 * n])
        active = b.pointwise([tokens, 4 * n], lambda i, j, u=up: gelu(get(u, i, j)))
        down = b.extern("aten.mm", [active], [tokens, n])
        saved.append((x, mean, rstd, w, weights, x1, mean2, rstd2, w2, up))
        x = b.pointwise([tokens, n], lambda i, j, x=x1, o=down: op("add", get(x, i, j), get(o, i, j)))
    grad = b.pointwise([tokens, n], lambda i, j: op("mul", get(x, i, j), number(2.0)))
    for x0, mean, rstd, w, weights, x1, mean2, rstd2, w2, up in reversed(saved):
        dactive = b.extern("aten.mm", [grad], [tokens, 4 * n])
        results.append(b.reduction([n], [tokens], lambda j, i, g=grad: total(get(g, i, j))))
        dup = b.pointwise(
            [tokens, 4 * n], lambda i, j, u=up, g=dactive: op("mul", get(g, i, j), op("erf", get(u, i, j)))
        )
        results.append(b.reduction([4 * n], [tokens], lambda j, i, g=dup: total(get(g, i, j))))
        dy2 = b.extern("aten.mm", [dup], [tokens, n])
        dx2, dw2, db2 = layer_norm_backward(b, dy2, x1, mean2, rstd2, w2)
        mid = b.pointwise([tokens, n], lambda i, j, a=grad, c=dx2: op("add", get(a, i, j), get(c, i, j)))
        dmerged = b.extern("aten.mm", [mid], [tokens, n])
        split = b.pointwise([heads, tokens, d], lambda h, t, k, g=dmerged: get(g, t, h.index * d + k))
        dweights = b.extern("aten.bmm", [split], [heads, tokens, tokens])
        inner = b.reduction(
            [heads, tokens],
            [tokens],
            lambda h, i, j, g=dweights, w=weights: total(op("mul", get(g, h, i, j), get(w, h, i, j))),
        )
        dscores = b.pointwise(
            [heads, tokens, tokens],
            lambda h, i, j, g=dweights, w=weights, s=inner: op(
                "mul", get(w, h, i, j), op("sub", get(g, h, i, j), get(s, h, i))
            ),
        )
        dy = b.extern("aten.bmm", [dscores], [tokens, n])
        dx, dw, db = layer_norm_backward(b, dy, x0, mean, rstd, w)
        grad = b.pointwise([tokens, n], lambda i, j, a=mid, c=dx: op("add", get(a, i, j), get(c, i, j)))
        results += [dw, db, dw2, db2]
    return b.program(grad, *results)
