"""Random programs over a handful of shapes, dense in what fusion has to get right.

The shapes are products of 2 and 3; `make_symbolic` has symbols in place of these two numbers.
"""

from __future__ import annotations

import random
from dataclasses import replace
from math import prod

from stator.loop.expr import Expr, cast, const, index, masked, op, reduce, scan, to_index
from stator.loop.index import Axis
from stator.loop.nest import Buffer, Nest, Number, Program
from stator.loop.space import flat
from stator.sizes import Extent, Symbol
from stator.sizes.strides import Shape
from tests.loop.build import Build, get, number, total

SHAPES = ((4, 6), (24,), (6, 4), (2, 3, 4), (4, 1, 6), (4,), (6,), (12, 2), (1,))
KINDS = (
    "pointwise",
    "pointwise",
    "pointwise",
    "rows",
    "rows",
    "columns",
    "full",
    "variance",
    "running",
    "extern",
    "mutate",
    "scatter",
)


TWO, THREE = Symbol("s0", hint=2), Symbol("s1", hint=3)
SYMBOLIC: dict[int, Extent] = {
    2: TWO.size, 3: THREE.size, 4: TWO.size * 2, 6: TWO.size * THREE.size, 12: TWO.size * THREE.size * 2,
    24: TWO.size * TWO.size * THREE.size * 2,
}  # fmt: skip


class Maker:
    """Draws one program from a seed; `sizes` gives what stands for a size."""

    def __init__(self, seed: int, sizes: dict[int, Extent] | None = None, kinds: tuple[str, ...] = KINDS) -> None:
        self.random = random.Random(seed)
        self.sizes, self.kinds = sizes or {}, kinds
        self.build = Build()
        self.buffers = [self.build.input(*self.shape(), dtype=self.dtype()) for _ in range(3)]
        self.frozen: set[str] = set()

    def program(self, count: int) -> Program:
        for _ in range(count):
            kind = self.random.choice(self.kinds)
            buffer = getattr(self, kind)()
            if buffer is not None:
                self.buffers.append(buffer)
        inputs = {b.name for b in self.build.inputs}
        made = [b for b in self.buffers if b.name not in inputs]
        chosen = [b for b in made if self.random.random() < 0.3] or made[-1:]
        return self.build.program(*chosen)

    def shape(self) -> Shape:
        return self.sized(self.random.choice(SHAPES))

    def sized(self, shape: tuple[int, ...]) -> Shape:
        return tuple([self.sizes.get(n, n) for n in shape])

    def dtype(self) -> str:
        return self.random.choice(("f32", "f32", "bf16"))

    # -- values ------------------------------------------------------------------------------------

    def access(self, axes: tuple[Axis, ...], recent: bool = True) -> Expr:
        """A load of some buffer at some function of the axes."""
        pool = self.buffers[-4:] if recent and self.random.random() < 0.7 else self.buffers
        buffer = self.random.choice(pool)
        position, numel = flat(axes), prod(a.size for a in axes)
        if buffer.numel == numel:
            style = self.random.choice(("same", "same", "same", "transposed", "flipped", "shifted"))
            if style == "transposed" and len(axes) > 1:
                return get(replace(buffer, size=(numel,), stride=(1,)), flat(axes[::-1]))
            if style == "flipped":
                position = numel - 1 - position
            flat_buffer = replace(buffer, size=(numel,), stride=(1,))
            if style == "shifted":
                mask = op("ge", index(position), const(2, "i64"))
                return masked(mask, get(flat_buffer, position - 2), number(0.5))
            return get(flat_buffer, position)
        for some in (axes[:1], axes[1:], axes[-1:], axes[:-1]):
            if prod(a.size for a in some) == buffer.numel:
                return get(replace(buffer, size=(buffer.numel,), stride=(1,)), flat(some))
        return get(replace(buffer, size=(buffer.numel,), stride=(1,)), position % buffer.numel)

    def value(self, axes: tuple[Axis, ...]) -> Expr:
        result = self.access(axes)
        for _ in range(self.random.randint(0, 2)):
            name = self.random.choice(("add", "sub", "maximum", "mul"))
            result = op(name, result, self.access(axes) if self.random.random() < 0.8 else number(0.5))
        return op("minimum", op("maximum", result, number(-8.0)), number(8.0))

    # -- nodes -------------------------------------------------------------------------------------

    def pointwise(self) -> Buffer:
        size, dtype = self.shape(), self.dtype()
        return self.build.pointwise(size, lambda *axes: cast(self.value(axes), dtype), dtype)

    def rows(self) -> Buffer:
        outer, inner = self.random.choice((((4,), (6,)), ((2, 3), (4,)), ((6,), (4,)), ((2,), (3, 4)), ((12,), (2,))))
        return self.reduction(outer, inner)

    def columns(self) -> Buffer:
        outer, inner = self.random.choice((((6,), (4,)), ((4,), (2, 3))))
        kind = self.random.choice(("sum", "max"))
        sizes = self.sized(outer), self.sized(inner)
        return self.build.reduction(*sizes, lambda *axes: reduce(kind, self.value(axes[::-1])))

    def full(self) -> Buffer:
        return self.reduction((), self.random.choice(((24,), (4, 6))))

    def reduction(self, outer: tuple[int, ...], inner: tuple[int, ...]) -> Buffer:
        kind = self.random.choice(("sum", "sum", "max", "min", "argmax"))
        sizes = self.sized(outer), self.sized(inner)
        if kind == "argmax":
            return self.build.reduction(*sizes, lambda *axes: cast(reduce("argmax", self.value(axes)), "f32"))
        return self.build.reduction(*sizes, lambda *axes: reduce(kind, self.value(axes)))

    def variance(self) -> Buffer:
        def body(*axes: Axis) -> Expr:
            x = self.value(axes)
            centred = op("sub", x, op("mul", reduce("sum", x), number(0.25)))
            return op("mul", reduce("sum", op("mul", centred, centred)), number(0.125))

        return self.build.reduction(self.sized((4,)), self.sized((6,)), body)

    def running(self) -> Buffer:
        outer, length, dim = self.random.choice(
            (((4,), 6, -1), ((6,), 4, 0), ((), 24, 0), ((2, 3), 4, -1), ((12,), 2, 1))
        )
        kind = self.random.choice(("sum", "sum", "max", "min"))
        (size,) = self.sized((length,))
        return self.build.scan(self.sized(outer), size, lambda *axes: scan(kind, self.value(axes)), dim=dim)

    def extern(self) -> Buffer:
        arguments = self.random.sample(self.buffers, 2)
        return self.build.extern("aten.any", arguments, self.shape(), self.random.random() < 0.7)

    def mutate(self) -> None:
        buffer = self.random.choice(self.build.inputs)
        if buffer.name not in self.build.mutated:
            self.build.mutated.append(buffer.name)
        self.build.pointwise(buffer.size, lambda *axes: cast(self.value(axes), buffer.dtype), into=buffer)

    def scatter(self) -> Buffer:
        (rows, many) = self.sized((6, 12))
        buffer = self.build.pointwise((rows,), lambda i: number(0.0))
        i = Axis("i0", many)
        place = op("mod", cast(op("mul", self.access((i,)), number(8.0)), "i64"), index(rows))
        self.build.nodes.append(Nest(buffer, (i,), (), self.value((i,)), to_index(place, rows), "add"))
        return buffer

    def parts(self) -> Buffer:
        """Two nests write a buffer, side by side or one over the other."""
        buffer = self.build.new((4, 9))
        row = Axis("i0", 4)
        for start, width in self.random.choice(
            (((0, 3), (3, 3), (6, 3)), ((0, 6), (3, 6)), ((0, 6), (0, 6)), ((0, 6), (6, 3)))
        ):
            column = Axis("i1", width)
            position = row.index * 9 + column + start
            self.build.nodes.append(Nest(buffer, (row, column), (), self.value((row, column)), position))
        return replace(self.build.pointwise((4, 6), lambda i, j: get(buffer, i, j)), size=(24,), stride=(1,))

    def pick(self) -> Buffer:
        """A sum with one term that counts."""

        def body(i: Axis, j: Axis) -> Expr:
            chosen = cast(op("mul", self.access((i,)), number(4.0)), "i64")
            return total(op("where", op("eq", index(j), chosen), self.value((i, j)), number(0.0)))

        return self.build.reduction((4,), (6,), body)


def make(seed: int) -> Program:
    maker = Maker(seed)
    return maker.program(maker.random.randint(2, 14))


def make_symbolic(seed: int, kinds: tuple[str, ...] = KINDS) -> Program:
    """The program that `make` gives, with symbols for its sizes."""
    maker = Maker(seed, SYMBOLIC, kinds)
    program = maker.program(maker.random.randint(2, 14))
    return replace(program, numbers=(Number("s0", 3, TWO.size), Number("s1", 4, THREE.size)))
