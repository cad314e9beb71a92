"""How a product runs: which rows and columns are computed together, and whether a factor is turned over first.

What a block of rows and columns loads, it uses for each of its accumulators, so that the more there are the less memory
is read; but all of them, and what they take next, must fit the registers. Lanes lie along columns, or along terms where
these lie side by side in both factors; in the end such lanes are added up, for each accumulator, which few terms do not
pay for. Then the columns' factor is turned over into scratch, once for many rows. `fill` counts the steps of each way,
and gives the one with the fewest. Neighbours: `decisions` asks, `rewrite.jam`, `strip` and `columns` do it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod

from stator.base.dtypes import ITEMSIZE
from stator.kernel.cost import COST
from stator.kernel.facts import Axes
from stator.kernel.tiles import Tile
from stator.loop.collision import scatters
from stator.loop.deps import SHORT_TERMS
from stator.loop.expr import Expr, scans
from stator.loop.index import Axis
from stator.loop.kernel import Kernel
from stator.loop.space import loops
from stator.sizes import hint

#: Iterations of one axis, and vectors of columns, that go together at most: what is written grows with them.
MOST, VECTORS = 8, 6
#: Half steps: an instruction takes one, as two start in each step, and a chain of sums goes on after eight of them.
CHAIN = 8
#: Half steps that a load takes beside others, as what it loads may come from a cache further away.
LATE = 0.2
#: Half steps that adding the lanes of an accumulator takes, and turning over an element.
FOLD, TURN = 12, 1.2
#: Columns that are turned over at once, at most.
WIDE = 128
#: Rows of a strip that pay for turning a factor over.
STRIP = 64


@dataclass(frozen=True, slots=True)
class Product:
    """A kernel that adds products of two factors up: `rows` differ in the first, `columns` in the other one.

    `sums` are how many products share their loops; the bytes are those of a factor in one of `batches`. `across` are
    the loads of the columns' factors where they are contiguous along the terms, and can be turned over; `reader` is how
    many additions what is done with each result is worth.
    """

    rows: Axis
    columns: Axis
    terms: tuple[Axis, ...]
    sums: int
    batches: int
    row_bytes: int
    column_bytes: int
    across: tuple[Expr, ...]
    reader: int


@dataclass(frozen=True, slots=True)
class Block:
    """So many iterations of each axis together, or vectors along `swept`.

    A thread goes through `inner` before it goes on to other columns; rows in `strips` are shared among threads.
    """

    swept: Axis
    jammed: tuple[tuple[Axis, int], ...]
    unroll: int
    inner: Axis | None
    strips: int = 1
    tile: Tile | None = None


def product_of(kernel: Kernel, swept: Axis | None, deps: dict[Expr, Axes]) -> Product | None:
    """What a kernel is as a product: nothing but sums of products, along axes of known length, in batches of any."""
    sums = [node for node in kernel.nodes if node.op == "reduce"]
    if not sums or kernel.levels != 1 or scans(kernel.nodes):
        return None
    if any(node.attr != "sum" or node.dtype not in ("f32", "f64") or node.args[0].op != "mul" for node in sums):
        return None
    if any(store.space != "outer" or store.mode != "store" or scatters(store) for store in kernel.stores):
        return None
    if kernel.reduce_numel == 0:
        return None
    loads = [node for node in kernel.nodes if node.op == "load" and node in kernel.inner]
    using = {axis: [load for load in loads if axis in deps[load]] for axis in kernel.axes}
    apart = [axis for axis in kernel.axes if loops(axis) and 0 < len(using[axis]) < len(loads)]
    columns = swept if swept in apart else apart[-1] if apart else None
    rows = next((axis for axis in reversed(apart) if not set(using[axis]) & set(using.get(columns, ()))), None)  # type: ignore[arg-type]
    if columns is None or rows is None:
        return None
    terms = tuple(filter(loops, kernel.reduce_axes))
    if any(type(axis.size) is not int for axis in (rows, columns, *terms, swept or rows)):
        return None
    row_bytes, column_bytes = (_bytes(using[axis], (axis, *terms), deps) for axis in (rows, columns))
    batches = prod([hint(axis.size) for axis in kernel.axes if axis not in (rows, columns)])
    across = tuple(using[columns]) if not any(node.op == "masked" for node in kernel.inner) else ()
    if not _is_short(terms) or not all(_contiguous(load, terms[0], columns) for load in across):
        across = ()
    reader = sum([COST.get(node.op, 1) for node in kernel.nodes if node not in kernel.inner and node.op != "load"])
    return Product(rows, columns, terms, len(sums), batches, row_bytes, column_bytes, across, reader)


def _is_short(terms: tuple[Axis, ...]) -> bool:
    return len(terms) == 1 and length(terms[0]) <= SHORT_TERMS


def _bytes(loads: list[Expr], axes: tuple[Axis, ...], deps: dict[Expr, Axes]) -> int:
    return sum(ITEMSIZE[load.dtype] * prod([length(axis) for axis in axes if axis in deps[load]]) for load in loads)


def _contiguous(load: Expr, terms: Axis, columns: Axis) -> bool:
    """Whether memory that a load reads lies side by side along the terms, and so far apart along the columns."""
    index = load.attr[1]
    if index.has_indirect or index.coefficient(terms) != 1 or load.dtype != "f32":
        return False
    rest = index - terms.index - columns.index * index.coefficient(columns)
    return not rest.axes() & {terms, columns}


def fill(product: Product, swept: Axis, lanes: int, registers: int, cores: int) -> Block:
    """The way with the fewest steps."""
    ways = _Ways(product, lanes, registers, cores)
    if swept is product.columns:
        made = list(ways.along_columns())
    else:
        made = list(ways.along_terms(swept)) + (list(ways.turned()) if product.across else [])
    return min(made, key=lambda way: way[0])[1]


class _Ways:
    """The blocks that fit the registers of a machine, each after the half steps that it takes."""

    def __init__(self, product: Product, lanes: int, registers: int, cores: int) -> None:
        self.product, self.lanes, self.registers, self.cores = product, lanes, registers, cores
        self.rows, self.columns = length(product.rows), length(product.columns)
        self.terms = prod(map(length, product.terms))
        self.small = product.row_bytes <= product.column_bytes  # so that rows are read again, not columns

    def along_terms(self, swept: Axis) -> Iterator[tuple[float, Block]]:
        """Lanes along the terms, added up in the end."""
        product, sums = self.product, self.product.sums
        steps = self.terms // length(swept) * -(-length(swept) // self.lanes)
        inner = product.rows if self.small else None
        reader = self.rows * self.columns * product.reader

        for a in _counts(self.rows, leftover=inner is not None):
            for b in _counts(self.columns, leftover=False):
                if self.fit(a, b):
                    of_rows = {n: steps * _step(n, b, sums) + FOLD * sums * n * b for n in (a, self.rows % a)}
                    jammed = [(axis, n) for axis, n in ((product.rows, a), (product.columns, b)) if n > 1]
                    yield (
                        self.columns // b * _all(self.rows, a, of_rows) + reader,
                        Block(swept, tuple(jammed), 1, inner),
                    )

    def along_columns(self) -> Iterator[tuple[float, Block]]:
        """Lanes along the columns, of which some vectors go together."""
        product = self.product
        for b in range(1, VECTORS + 1):
            pieces = -(-self.columns // (b * self.lanes))
            inner = product.rows if pieces == 1 or self.small else None
            shared = self.small or product.batches * pieces >= 2 * self.cores
            for a in _counts(self.rows, leftover=inner is not None and shared):
                if self.fit(a, b):
                    of_rows = {n: self.steps(n, b, self.columns) for n in (a, self.rows % a)}
                    jammed = ((product.rows, a),) if a > 1 else ()
                    yield self.terms * _all(self.rows, a, of_rows), Block(product.columns, jammed, b, inner)

    def turned(self) -> Iterator[tuple[float, Block]]:
        """The same, with the columns' factor turned over piece by piece."""
        product, columns = self.product, self.columns
        pieces = -(-columns // WIDE)
        width = -(-columns // (pieces * self.lanes)) * self.lanes
        strips = _strips(self.rows, product.batches * pieces, self.cores)
        strip = Axis(product.rows.name, self.rows // strips)
        turning = strips * columns * self.terms * TURN * len(product.across)
        buffers = {load: f"s{i}" for i, load in enumerate(product.across)}
        tile = Tile(product.terms[0], self.terms, buffers, width)
        for a in _counts(length(strip), leftover=True):
            for b in range(1, VECTORS + 1):
                if self.fit(a, b) and (pieces == 1 or width % (b * self.lanes) == 0):
                    of_rows = {n: self.steps(n, b, min(width, columns)) for n in (a, length(strip) % a)}
                    steps = strips * self.terms * pieces * _all(length(strip), a, of_rows)
                    jammed = ((strip, a),) if a > 1 else ()
                    yield turning + steps, Block(product.columns, jammed, b, product.rows, strips, tile)

    def fit(self, a: int, b: int) -> bool:
        """Whether the accumulators, what the shorter side loads, and one more are in registers."""
        return a * b == 1 or self.product.sums * a * b + min(a, b) + 1 <= self.registers

    def steps(self, rows: int, vectors: int, size: int) -> float:
        """Those of one term: columns in whole vectors together, then one vector after the other."""
        whole, left = divmod(size, self.lanes * vectors)
        sums = self.product.sums
        return whole * _step(rows, vectors, sums) + -(-left // self.lanes) * _step(rows, 1, sums)


def _strips(rows: int, others: int, cores: int) -> int:
    """Into how many strips rows fall, so that threads have about as much to do each."""
    for count in range(1, rows // STRIP + 1):
        if rows % count == 0 and (count * others % cores == 0 or count * others >= 4 * cores):
            return count
    return 1


def _counts(size: int, leftover: bool) -> list[int]:
    """How many iterations may go together: such that others are left over only where these may stand beside them."""
    return [n for n in range(1, min(size, MOST) + 1) if leftover or size % n == 0]


def _all(rows: int, count: int, steps: Mapping[int, float]) -> float:
    """The steps of all blocks of rows, a smaller one for those left over."""
    left = rows % count
    return rows // count * steps[count] + (steps[left] if left else 0)


def _step(a: int, b: int, sums: int) -> float:
    """Half steps of a block at one point of the loop over terms: it computes, loads, and waits for sums."""
    return max(sums * a * b, a + b, CHAIN) + LATE * (a + b)


def length(axis: Axis) -> int:
    """The size of an axis that is known."""
    assert isinstance(axis.size, int)
    return axis.size
