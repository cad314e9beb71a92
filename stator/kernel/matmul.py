"""How a product runs on a device that multiplies tiles of matrices: the tile of a program, and its pipeline.

A program computes a tile of `rows` by `columns`, in steps of `terms`; `stages` steps are on their way from memory while
one is multiplied. Programs go through the tiles of `group` rows of them before they go on, so that those which run at
the same time read the same columns and rows from the cache. `plan_matmul` takes the first of `candidates`: those that
fit the device, in the order of the time that `estimate` gives them. Under `autotune` they are timed
(`targets/cuda/autotune.py`). Sizes that are symbolic are taken for what they were in the first call: one kernel serves
all of them, with masks, and a grid that a launch computes.
Neighbours: `loop/contraction.py` says what is a product, `strategies.tiles` makes the function,
`codegen/triton/matmul.py` prints it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import prod

from stator.base.device import Device
from stator.base.dtypes import ITEMSIZE
from stator.kernel.blocks import power_of_two
from stator.kernel.cost import COST
from stator.kernel.decisions import pieces_of
from stator.loop.collision import scatters
from stator.loop.contraction import Contraction, contraction
from stator.loop.expr import Expr, postorder
from stator.loop.index import Axis
from stator.loop.kernel import Kernel
from stator.sizes import Extent, hint, minimum

#: Rows of tiles that programs go through together.
GROUP = 8
#: Sides of a tile that tensor cores multiply, at least.
LEAST = 16
#: Tiles: rows, columns, terms of a step, stages, warps that hold the sums. Of those with the same sides, the one that
#: was the fastest on an H100 (bfloat16, 8,192³) comes first.
TILES = (
    (128, 256, 64, 3, 8), (128, 256, 64, 4, 8), (128, 256, 32, 4, 8), (256, 128, 64, 3, 8), (256, 128, 64, 4, 8),
    (128, 128, 64, 4, 4), (128, 128, 64, 3, 4), (128, 128, 64, 4, 8), (64, 256, 64, 4, 4), (256, 64, 64, 4, 4),
    (128, 64, 64, 4, 4), (64, 128, 64, 4, 4), (64, 64, 64, 4, 4), (64, 64, 128, 3, 4), (128, 32, 64, 4, 4),
    (32, 128, 64, 4, 4), (64, 32, 128, 3, 4), (32, 64, 128, 3, 4), (32, 32, 128, 4, 4), (16, 128, 64, 5, 4),
    (16, 64, 128, 4, 4), (16, 32, 128, 4, 4), (16, 16, 256, 3, 2), (128, 16, 64, 5, 4), (64, 16, 128, 4, 4),
    (32, 16, 128, 4, 4),
)  # fmt: skip
#: Results of a tile from which on programs may be persistent.
LARGE = 128 * 128
#: Registers of a thread beside its sums.
OTHERS = 80
#: What an operator costs from which on results are taken in parts, and how many results of a thread are one.
COSTLY, AT_ONCE = 4, 32
#: Seconds until the pipeline of a tile is full, and its results are stored.
FILL = 2.5e-6
#: Of what multiplies, and of memory, what a tile of the best sides gets: operations, and bytes from the cache.
REACHED, CACHED = 0.8, 3.5
#: `rows * columns / (rows + columns)` of those sides: how often what is brought is used.
REUSED = 85.0


@dataclass(frozen=True, slots=True)
class Tiling:
    """How a product is cut up."""

    rows: int
    columns: int
    terms: int
    stages: int
    warps: int
    group: int = GROUP
    persistent: bool = False  # as many programs as multiprocessors, each of which computes one tile after the other

    def __str__(self) -> str:
        how = ", persistent" if self.persistent else ""
        return f"{self.rows}×{self.columns}×{self.terms}, {self.stages} stages, {self.warps} warps{how}"


@dataclass(frozen=True, slots=True)
class Matmul:
    """A kernel as products of tiles."""

    kernel: Kernel
    product: Contraction
    tiling: Tiling
    threads: int
    cores: int

    @property
    def parts(self) -> int:
        """In how many parts of the columns costly things are computed of results, so that each has registers."""
        kernel, tiling = self.kernel, self.tiling
        costs = [COST.get(node.op, 1) for node in kernel.nodes if node not in kernel.inner and node.op != "reduce"]
        if max(costs, default=0) < COSTLY:
            return 1
        each = tiling.rows * tiling.columns * len(self.product.sums) // self.threads
        return max(1, min(each // AT_ONCE, tiling.columns // LEAST))

    @property
    def programs(self) -> Extent:
        """How many run: one for each tile, or no more than one for each multiprocessor."""
        count = prod(self.tiles())
        return minimum(count, self.cores) if self.tiling.persistent else count

    def tiles(self) -> tuple[Extent, Extent, Extent]:
        """Batches, and tiles along rows and columns."""
        batch, rows, columns = map(total, (self.product.batch, self.product.rows, self.product.columns))
        return batch, pieces_of(rows, self.tiling.rows), pieces_of(columns, self.tiling.columns)

    def reason(self, device: Device) -> str:
        """The decision in a line."""
        batch, rows, columns = self.tiles()
        many = f"{len(self.product.sums)} products" if len(self.product.sums) > 1 else "a product"
        where = f"{batch} × " * (batch > 1)
        waves = hint(batch * rows * columns) / device.cores
        return f"{many} of {self.product.dtype} in {where}{rows} × {columns} tiles of {self.tiling}: {waves:.1f} waves"


def total(axes: Iterable[Axis]) -> Extent:
    """The points of axes together."""
    return prod([axis.size for axis in axes])


def extents(product: Contraction) -> tuple[int, int, int, int]:
    """How many batches, rows, columns and terms there were in the first call, to decide by."""
    groups = product.batch, product.rows, product.columns, product.terms
    batch, rows, columns, terms = [hint(total(axes)) for axes in groups]
    return batch, rows, columns, terms


def matmul_of(kernel: Kernel, device: Device) -> Contraction | None:
    """What a kernel is as a product; columns are where results lie side by side. None where it is none."""
    if not device.tile_products or kernel.levels != 1 or kernel.reduce_numel == 0 or kernel.outer_numel == 0:
        return None
    if any(store.space != "outer" or store.mode != "store" or scatters(store) for store in kernel.stores):
        return None
    if any(node.op == "load" and node.attr[1].has_indirect for node in kernel.nodes):
        return None
    found = contraction([store.value for store in kernel.stores], kernel.axes, kernel.reduce_axes)
    if found is None:
        return None
    index = kernel.stores[0].index
    if any(index.stride(axis) == 1 for axis in found.rows):
        sums = tuple([(node, right, left) for node, left, right in found.sums])
        return Contraction(sums, found.batch, found.columns, found.rows, found.terms, found.dtype)
    return found


def plan_matmul(kernel: Kernel, product: Contraction, device: Device, tiling: Tiling | None = None) -> Matmul:
    """A product in this tiling, or in the one that is estimated to be the fastest."""
    tiling = tiling or candidates(product, device)[0]
    return Matmul(kernel, product, tiling, tiling.warps * device.warp, device.cores)


def candidates(product: Contraction, device: Device) -> list[Tiling]:
    """Every tiling that fits the device, the one that is estimated to be the fastest first.

    Persistent programs bring what the next tile needs while results are stored, where terms lie side by side in the
    right factor. Elsewhere Triton does not overlap their loads, and they take more than twice as long.
    """
    turned = all(_along_terms(right, product) for _, _, right in product.sums)
    batch, rows, columns, terms = extents(product)
    found: dict[Tiling, None] = {}
    for m, n, k, stages, warps in TILES:
        tiling = Tiling(m, n, min(k, max(LEAST, power_of_two(terms))), stages, warps)
        if too_large(m, rows) or too_large(n, columns) or m * n * len(product.sums) > device.tile_sums * warps:
            continue
        if shared_bytes(product, tiling) > device.shared_bytes:
            continue
        stored = m * n * ITEMSIZE[product.dtype]  # on its way to memory while the next tile comes
        fits = shared_bytes(product, tiling) + stored <= device.shared_bytes
        if m * n >= LARGE and turned and fits and batch * -(-rows // m) * -(-columns // n) > device.cores:
            found[replace(tiling, persistent=True)] = None
        found[tiling] = None
    return sorted(found or [Tiling(LEAST, LEAST, LEAST, 2, 1)], key=lambda tiling: estimate(product, tiling, device))


def _along_terms(factor: Expr, product: Contraction) -> bool:
    """Whether the terms of a factor lie side by side."""
    loads = [node.attr[1] for node in postorder([factor]) if node.op == "load"]
    return any(index.stride(axis) == 1 for index in loads for axis in product.terms)


def too_large(side: int, extent: int) -> bool:
    """Whether more than half of a side, which might be shorter, is past the end."""
    return side > LEAST and side >= 2 * extent


def shared_bytes(product: Contraction, tiling: Tiling) -> int:
    """What the stages of a pipeline hold near the cores."""
    loads = len({left for _, left, _ in product.sums}) * tiling.rows
    loads += len({right for _, _, right in product.sums}) * tiling.columns
    return loads * tiling.terms * tiling.stages * ITEMSIZE[product.dtype]


def estimate(product: Contraction, tiling: Tiling, device: Device) -> float:
    """Seconds: waves of programs, each as long as multiplying takes, or bringing what is multiplied.

    A tile of fewer elements multiplies slower, as its operands are used less often.
    """
    batch, rows, columns, terms = extents(product)
    many = len(product.sums)
    steps = -(-terms // tiling.terms)
    programs = batch * -(-rows // tiling.rows) * -(-columns // tiling.columns)
    registers = tiling.rows * tiling.columns * many + OTHERS * tiling.warps * device.warp
    fit = max(1, min(device.shared_bytes // shared_bytes(product, tiling), device.core_registers // registers))
    waves = -(-programs // (device.cores * fit))
    reused = min(1.0, tiling.rows * tiling.columns / (tiling.rows + tiling.columns) / REUSED)
    rate = device.product_rate / device.cores * REACHED * reused**0.5
    work = 2.0 * tiling.rows * tiling.columns * tiling.terms * many
    brought = (tiling.rows + tiling.columns * many) * tiling.terms * ITEMSIZE[product.dtype]
    step = max(work / rate, brought * device.cores / (device.bandwidth * CACHED))
    step *= min(fit, max(1.0, programs / device.cores))
    whole = (rows + columns) * terms * batch * many * ITEMSIZE[product.dtype] / device.bandwidth
    return max(waves * (steps * step + FILL), whole)
