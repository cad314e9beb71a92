"""Decides how one kernel runs on a vector machine: the axis to vectorise, lanes, accumulators, grid, threads.

`decide` only reads; the `LoopPlan` it gives is what strategies and the C++ target carry out. Three shapes come out:
pointwise (no reduce axes), row (the vector axis is a reduce axis: lanes are folded at the end) and column (the vector
axis is an outer axis: each lane is its own result). Positions of the vector axis inside a kernel are always multiples
of `lanes`, which is what `lane_stride` relies on. Where sizes are symbolic, the shape is chosen by their hints, and
what is shared among threads is an expression of their values.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import ceil, prod

from stator.base.device import Device
from stator.base.dtypes import ITEMSIZE
from stator.base.tiling import COLUMNS
from stator.base.tiling import ROWS as PAIR_ROWS
from stator.kernel import windows
from stator.kernel.cost import COST, total_cost
from stator.kernel.facts import INT32, Axes, dependencies, index_axes, lane_stride, stays_inside
from stator.kernel.nest import merges
from stator.kernel.pairs import Pairs, pairs_of
from stator.kernel.placement import guarded_nodes
from stator.kernel.product import Block, fill, product_of
from stator.kernel.rewrite import PART
from stator.kernel.tiles import Tile, choose
from stator.loop.collision import colliding, scatters
from stator.loop.expr import Expr, postorder, scans
from stator.loop.index import Axis, Index
from stator.loop.kernel import Kernel
from stator.loop.ranges import Ranges
from stator.loop.space import loops
from stator.sizes import Condition, Extent, Size, Symbol, hint, maximum, minimum, prove

COSTLY = 10  # what an operator costs that is worth lanes even if they are taken apart afterwards
LONG = 512  # the length that a loop is unrolled for at least, if it is symbolic
GRID = 64  # pieces that a long vector axis is cut into, for threads to share
ROWS = 4  # of one thread, that are worth computing ahead what they share
PAIR_WORK = 16  # multiplications that tiles do in the time of one by other instructions
ACCUMULATORS = 8  # of rows of sums, each a vector: as many again take their operands
TOGETHER = 4  # vectors of columns of which some rows are read at a time
FAR = 4  # times the caches behind the nearest ones: columns of so much are read some whole rows at a time
SHORT_ROW = 256  # elements: of a shorter part of a row, little is fetched ahead


@dataclass(slots=True)
class LoopPlan:
    """The decisions for one kernel.

    `deps` says along which axes a node varies, `narrow` which i64 fit in int32, and `ranges` between what values lie.
    """

    kernel: Kernel
    deps: dict[Expr, Axes]
    narrow: frozenset[Expr]
    ranges: Ranges
    vector: Axis | None
    swept: Axis | None  # the innermost loop: the vector axis, or one that is walked by single elements
    lanes: int
    unroll: int = 1
    chunk: Extent = 0  # elements of an outer vector axis in one grid point
    pieces: Extent = 1  # how many there are of them
    grid_axes: tuple[Axis, ...] = ()
    grid: Extent = 1
    threads: Extent = 1
    cost: Extent = 0
    shape: str = "pointwise"
    tile: Tile | None = None  # what is loaded from buffers, where loops go in blocks of two axes
    serial: tuple[Axis, ...] = ()  # outer axes whose order matters: each grid point loops over them
    named: list[tuple[Symbol, Extent]] = field(default_factory=list)  # numbers known at run time, each by earlier ones
    loops: tuple[Axis, ...] = field(default=())  # reduce axes as nested, the vector axis innermost if it is one
    staged: tuple[Expr, ...] = ()  # what a loop over a row keeps for the next ones
    ahead: tuple[Expr, ...] = ()  # what differs along the vector axis alone, and is computed before all rows
    block: Block | None = None  # how it goes, where it does nothing but add products up
    streamed: frozenset[str] = frozenset()  # parameters that caches cannot hold, so that stores go past them
    pairs: Pairs | None = None  # its sums, where instructions for pairs of terms multiply blocks
    windows: tuple[Axis, int] | None = None  # iterations beside each other that read much of the same
    rows: tuple[Axis, int] | None = None  # of other sums: so many rows together, which share what they load
    interchanged: int = 0  # columns of which some rows are read at a time, before the next rows

    def name(self, text: str, value: Extent) -> Extent:
        """The value; one that is known at run time only is from here on a variable of this name."""
        if type(value) is not Size:
            return value
        symbol = Symbol(text, value.low or 0, None, max(hint(value), 1))
        self.named.append((symbol, value))
        return symbol.size

    def reason(self, device: Device) -> str:
        """The decisions in a line."""
        along = f" along {self.swept.name}" if self.swept is not None else ""
        told = [self.shape, f"{self.lanes} lanes{along}" if self.vector is not None else f"one by one{along}"]
        if self.unroll > 1:
            told.append(f"{self.unroll} accumulators")
        told += [f"{count} along {axis.name} together" for axis, count in self.jammed]
        if self.interchanged:
            told.append(f"some rows of {self.interchanged} columns at a time")
        if self.inner is not None:
            told.append(f"all of {self.inner.name} for the same columns")
        if self.block is not None and self.block.tile is not None:
            told.append("a factor turned over")
        if self.pairs is not None:
            first = "columns" if self.pairs.by_columns else "rows"
            told.append(f"blocks of {PAIR_ROWS} rows by {COLUMNS} columns, {first} first, pairs of terms together")
        if self.staged:
            told.append(f"{len(self.staged)} values of a row kept")
        if self.ahead:
            told.append(f"{len(self.ahead)} values of all rows ahead")
        if self.streamed:
            told.append(f"stores past the caches to {', '.join(sorted(self.streamed))}")
        threads = f"cost {hint(self.cost)}, so {hint(self.threads)} threads, each worth {device.thread_work}"
        return f"{', '.join(told)}; {threads}"

    @property
    def jammed(self) -> tuple[tuple[Axis, int], ...]:
        """Iterations of axes that go together."""
        if self.block is not None:
            return self.block.jammed
        return tuple(jam for jam in (self.rows, self.windows) if jam is not None)

    @property
    def inner(self) -> Axis | None:
        """The axis that a thread goes along before it goes on to other columns."""
        return self.block.inner if self.block is not None else None

    def lane_stride(self, index: Index) -> Extent | None:
        """By how much a lane moves the index within a block of lanes, or None where that is not constant."""
        return 0 if self.vector is None else _lane_stride(index, self.vector, self.lanes, self.deps)


def decide(kernel: Kernel, device: Device) -> LoopPlan:
    """Decide everything."""
    deps = dependencies(kernel)
    ranges = Ranges(kernel.reduce_numel)
    narrow = _narrow(kernel, ranges)
    collide = colliding([store.index for store in kernel.stores if scatters(store)], kernel.axes)
    lanes = device.vector_bytes // 4
    vector = _choose(kernel, lanes, deps, collide)
    if any(_is_wide(node, narrow) and (vector in deps[node] or node.op == "reduce") for node in kernel.nodes):
        lanes //= 2
    if device.multiplies_pairs and (pairs := pairs_of(kernel, deps, device)) is not None:
        return _in_blocks(
            LoopPlan(kernel, deps, narrow, ranges, pairs.columns, pairs.columns, lanes, pairs=pairs), device
        )
    product = product_of(kernel, vector, deps)
    block = fill(product, vector, lanes, device.registers, device.cores) if product and vector else None
    swept = vector = block.swept if block is not None else vector
    if _apart(kernel, vector, lanes, deps):
        vector = None
    made = LoopPlan(kernel, deps, narrow, ranges, vector, swept, lanes)
    made.loops = tuple(axis for axis in kernel.reduce_axes if axis is not vector)
    if vector in kernel.reduce_axes:
        made.shape, made.loops = "row", (*made.loops, vector)
    elif kernel.reduce_axes:
        made.shape = "column"
    made.unroll = _unroll(made, device)
    made.staged = _staged(made, device.row_elements)
    made.serial = tuple(axis for axis in kernel.axes if axis in collide and axis is not swept)
    if not collide:
        made.tile = choose(kernel, vector, lambda load: made.lane_stride(load.attr[1]))
    if block is not None:
        made.block, made.unroll, made.tile = block, block.unroll, block.tile
    elif (rows := _rows(made)) is not None:
        made.rows = rows
        made.unroll = min(made.unroll, max(ACCUMULATORS // rows[1], 1))
    elif made.tile is None and not collide:
        made.windows = windows.choose(kernel, made.vector)
        made.unroll = 1 if made.windows is not None else made.unroll
        if made.windows is None:
            _interchange(made, device)
    _lay_out(made, device.thread_work, whole=swept in collide)
    made.threads = minimum(made.threads, device.threads) if device.threads else made.threads
    made.ahead = _ahead(made, device)
    made.streamed = _streamed(kernel, device)
    return made


def _in_blocks(made: LoopPlan, device: Device) -> LoopPlan:
    """The grid of a kernel that multiplies blocks."""
    kernel, pairs = made.kernel, made.pairs
    assert pairs is not None
    made.shape = "product"
    made.grid_axes = tuple(axis for axis in kernel.axes if axis not in (pairs.rows, pairs.columns))
    blocks = pieces_of(pairs.rows.size, PAIR_ROWS) * pieces_of(pairs.columns.size, COLUMNS)
    made.grid = prod(axis.size for axis in made.grid_axes) * blocks
    made.cost = total_cost(kernel) // PAIR_WORK
    made.threads = minimum(made.name("wanted", _threads_worth(made.cost, device.thread_work)), made.grid)
    made.threads = minimum(made.threads, device.threads) if device.threads else made.threads
    made.streamed = _streamed(kernel, device)
    return made


# ---- facts


def _lane_stride(index: Index, axis: Axis, lanes: int, deps: dict[Expr, Axes]) -> Extent | None:
    def varies(node: Expr) -> bool:  # not if all lanes of a block load one element, though not that of the next block
        return axis in deps[node] and not (node.op == "load" and _lane_stride(node.attr[1], axis, lanes, deps) == 0)

    return lane_stride(index, axis, lanes, varies)


def _narrow(kernel: Kernel, ranges: Ranges) -> frozenset[Expr]:
    """The i64 that provably fit in 32 bits, so that they need no wide lanes."""
    found = {node: ranges.numbers(node) for node in kernel.nodes if node.dtype == "i64"}
    return frozenset(n for n, known in found.items() if known and known[0] >= -INT32 and known[1] < INT32)


def _is_wide(node: Expr, narrow: frozenset[Expr]) -> bool:
    return node.dtype in ("f64", "i64") and node not in narrow


def guarded(plan: LoopPlan) -> set[Expr]:
    """The nodes that hold a load that a mask around them matters to.

    It does not to one element for all lanes that lies in its buffer: that is loaded once, whatever uses it.
    """
    numels = {param.name: param.numel for param in plan.kernel.params}

    def free(load: Expr) -> bool:
        return plan.swept not in plan.deps[load] and stays_inside(load, numels, plan.ranges)

    return guarded_nodes(plan.deps, free)


# ---- decisions


#: What loads and stores of lanes at these steps are worth; all others go to an address for each lane.
_NEAR = {1: 1.0, -1: 0.9, 2: 0.7}


def _choose(kernel: Kernel, lanes: int, deps: dict[Expr, Axes], collide: Axes) -> Axis | None:
    """The axis along which most memory accesses are contiguous; the innermost where several are equal.

    Of axes along which writes may collide it is the last one or none, as it becomes the innermost.
    An access counts as often as it differs: a batch norm reads an image along its rows, whatever it reads per channel.
    One at an address for each lane is a cost wherever it is made, however few the elements are.
    """
    ordered = [axis for axis in kernel.axes if axis in collide]
    candidates = [axis for axis in (*kernel.axes, *_inner(kernel, lanes)) if loops(axis) and axis not in ordered[:-1]]
    if not candidates:
        return kernel.reduce_axes[-1] if kernel.reduce_axes else None
    points = max(hint(kernel.outer_numel * kernel.reduce_numel), 1)

    def often(axes: Axes) -> float:
        """How much of all points an access that varies along these axes is made at."""
        return prod(hint(axis.size) for axis in axes) / points

    after = 1.0 / max(hint(kernel.reduce_numel), 1)
    accesses = [
        (node.attr[1], often(deps[node]), 1.0 if node in kernel.inner else after)
        for node in kernel.nodes
        if node.op == "load"
    ]
    for store in kernel.stores:
        weight = 1.5 * often(index_axes(store.index, deps))
        accesses.append((store.index, weight, weight))
    best, best_score = candidates[-1], -1.0
    for axis in candidates:
        length = max(hint(axis.size), 1)
        use = length / (lanes * ceil(length / lanes))
        score = 0.0
        for index, weight, times in accesses:
            stride = _lane_stride(index, axis, lanes, deps)
            if stride == 0:
                score += weight * 0.3 * use if length > 4 else 0.0
            else:
                score += weight * use * _NEAR[stride] if stride in _NEAR else -times * 0.2
        if score >= best_score:
            best, best_score = axis, score
    return best


def _is_chosen(value: Expr, axis: Axis, lanes: int, deps: dict[Expr, Axes]) -> bool:
    """Whether it is what lies where a loaded index of each lane says: to fill lanes takes as long as to store it."""
    return value.op == "load" and value.attr[1].has_indirect and _lane_stride(value.attr[1], axis, lanes, deps) is None


def _inner(kernel: Kernel, lanes: int) -> tuple[Axis, ...]:
    """The reduce axes that may be the vector axis: the last one where a scan goes in the order of the loops.

    A scan along lanes takes several steps for each vector: where a step is costly, rows are scanned side by side.
    """
    kinds = {node.attr for node in kernel.nodes if node.op == "scan"}
    if "logsumexp" in kinds and any(hint(axis.size) >= lanes for axis in kernel.axes):
        return ()
    return kernel.reduce_axes[-1:] if kinds else kernel.reduce_axes


def _apart(kernel: Kernel, axis: Axis | None, lanes: int, deps: dict[Expr, Axes]) -> bool:
    """Whether lanes would be taken apart again to be stored one by one, or filled one by one only to be stored, or of
    which most stay empty, and nothing costly is done with them.
    """
    if axis is None or any(COST.get(node.op, 1) >= COSTLY for node in kernel.nodes):
        return False
    indices = [store.index for store in kernel.stores if scatters(store)]
    if any(_lane_stride(index, axis, lanes, deps) != 1 for index in indices):
        return True
    if all(_is_chosen(store.value, axis, lanes, deps) for store in kernel.stores):
        return True
    if kernel.reduce_axes or type(axis.size) is not int or 2 * axis.size > lanes:
        return False
    loads = [node.attr[1] for node in kernel.nodes if node.op == "load"]
    return any(_lane_stride(index, axis, lanes, deps) not in (0, *_NEAR) for index in loads)


def _unroll(made: LoopPlan, device: Device) -> int:
    """Accumulators a reduction keeps: many where the body is cheap, few where it is long already."""
    kernel = made.kernel
    if not kernel.reduce_axes or made.vector is None:
        return 1
    length = hint(made.vector.size)
    if type(made.vector.size) is not int:
        length = max(length, min(4 * length, LONG))
    weight = sum(COST.get(node.op, 1) for node in kernel.inner) / max(kernel.levels, 1)
    if made.shape == "column":
        return _columns(made, device, length, weight)
    unroll = 4 if weight < 30 else 2
    while unroll > 1 and length < 2 * unroll * made.lanes:
        unroll //= 2
    return unroll


def _columns(made: LoopPlan, device: Device, length: int, weight: float) -> int:
    """Vectors of columns that are reduced together: each row is read as far as the cache's lines are fetched ahead.

    A long sum takes three registers a vector. Every core is left some columns.
    """
    kernel = made.kernel
    reductions = [node for node in kernel.nodes if node.op == "reduce"]
    if not _single_column(made) or kernel.reduce_numel == 0 or any(node.attr.startswith("arg") for node in reductions):
        return 1
    unroll = 8 if weight < 6 and 3 * 8 * len(reductions) < device.registers else 4 if weight < 24 else 2
    while unroll > 4 and length < unroll * made.lanes * device.cores:
        unroll //= 2
    while unroll > 1 and (unroll * len(reductions) > 12 or length < unroll * made.lanes):
        unroll //= 2
    return unroll


def _interchange(made: LoopPlan, device: Device) -> None:
    """Columns of memory that is far are read some rows at a time, as long as every core is left some."""
    kernel, vector = made.kernel, made.vector
    if made.shape != "column" or not _single_column(made) or hint(kernel.reduce_numel) <= 2 * PART or vector is None:
        return
    reductions = [node for node in kernel.nodes if node.op == "reduce"]
    if any(node.attr.startswith("arg") for node in reductions):
        return
    read = {node.attr[0] for node in kernel.inner if node.op == "load" and made.lane_stride(node.attr[1]) == 1}
    far = FAR * device.cores * device.cache_bytes
    if all(hint(param.numel) * ITEMSIZE[param.dtype] < far for param in kernel.params if param.name in read):
        return
    kept = sum(2 * ITEMSIZE[node.dtype] for node in reductions)
    most = device.row_elements * ITEMSIZE["f32"] // kept
    others = prod(hint(axis.size) for axis in kernel.axes if axis is not vector)
    shares = -(-device.cores // max(others, 1))
    parts = -(-hint(vector.size) // (most * shares)) * shares
    unroll = min(made.unroll, TOGETHER)
    block = made.lanes * unroll
    columns = -(-hint(vector.size) // (parts * block)) * block
    if hint(vector.size) // parts >= SHORT_ROW and columns <= most:
        made.interchanged, made.unroll = columns, unroll


def _staged(made: LoopPlan, longest: int) -> tuple[Expr, ...]:
    """What several loops over a short row compute and is costly, such as the exponentials of a softmax.

    Only what is used as it is: not what other such values are made of. Rows are a single loop of known length.
    """
    kernel, vector = made.kernel, made.vector
    if made.shape != "row" or len(made.loops) != 1 or vector is None or scans(kernel.nodes):
        return ()
    if type(vector.size) is not int or vector.size > longest:
        return ()
    found: list[Expr] = []
    for node in used_by_several_loops(kernel):
        if node.dtype not in ("f32", "bf16", "f16") or vector not in made.deps[node]:
            continue
        if sum(COST.get(part.op, 1) for part in _computed([node], kernel, found)) >= COSTLY:
            found.append(node)
    return tuple(found)


def _ahead(made: LoopPlan, device: Device) -> tuple[Expr, ...]:
    """What is the same in all rows and costly, such as the deviations of a batch norm's channels, if these are lanes.

    Only what is used as it is, and what no mask keeps from its memory. Each thread computes it once.
    """
    kernel, vector = made.kernel, made.vector
    if made.shape != "pointwise" or vector is None or made.pieces != 1 or made.tile is not None or made.serial:
        return ()
    threads = min(hint(made.threads), device.cores)
    if type(vector.size) is not int or vector.size > device.row_elements or hint(made.grid) < ROWS * threads:
        return ()
    numels = {param.name: param.numel for param in kernel.params if param.role == "in"}
    alone = {node for node in kernel.nodes if made.deps[node] == {vector}}
    known = {n for n in alone if n.op == "load" and n.attr[0] in numels and stays_inside(n, numels, made.ranges)}
    used = {arg for node in kernel.nodes if node not in alone for arg in node.args}
    used.update([store.value for store in kernel.stores])
    found: list[Expr] = []
    for node in kernel.nodes:
        if node not in alone or node not in used or node.dtype not in ("f32", "bf16", "f16"):
            continue
        parts = postorder([node])
        if any(part.op == "masked" or (part.op == "load" and part not in known) for part in parts):
            continue
        if sum(COST.get(part.op, 1) for part in parts if part in alone) >= COSTLY:
            found.append(node)
    return tuple(found)


def used_by_several_loops(kernel: Kernel) -> list[Expr]:
    """What several loops over the reduce axes compute, and use as it is."""
    loops_of: dict[Expr, int] = {}
    bodies = [(roots, _computed(roots, kernel)) for roots in roots_of_loops(kernel)]
    for _, computed in bodies:
        for node in computed:
            loops_of[node] = loops_of.get(node, 0) + 1
    shared = {node for node, count in loops_of.items() if count > 1}
    used = {root for roots, _ in bodies for root in roots}
    used.update(arg for _, computed in bodies for node in computed - shared for arg in node.args)
    return [node for node in kernel.nodes if node in used & shared]


def roots_of_loops(kernel: Kernel) -> list[list[Expr]]:
    """What each loop over the reduce axes computes: the bodies of the reductions of a level, then the inner stores."""
    levels: dict[int, list[Expr]] = {}
    for node in kernel.nodes:
        if node.op == "reduce":
            levels.setdefault(node.level, []).append(node.args[0])
    stores = [store for store in kernel.stores if store.space == "inner"]
    roots = [root for store in stores for root in store.roots]
    if merges(kernel, stores):
        levels[max(levels)] += roots
        roots = []
    return [*levels.values(), *[roots] * bool(roots)]


def _computed(roots: Iterable[Expr], kernel: Kernel, known: Sequence[Expr] = ()) -> set[Expr]:
    """The nodes that a loop computes at every point for these: not what was reduced, nor what a mask may leave out."""
    found: set[Expr] = set()
    stack = list(roots)
    while stack:
        node = stack.pop()
        if node in found or node in known or node not in kernel.inner:
            continue
        found.add(node)
        stack.extend((node.args[0], node.args[2]) if node.op == "masked" else node.args)
    return found


def _rows(made: LoopPlan) -> tuple[Axis, int] | None:
    """Rows of sums that are computed together: along an axis that some of what they load does not vary along."""
    kernel = made.kernel
    if made.vector is None or made.tile is not None or made.staged or made.serial or scans(kernel.nodes):
        return None
    if kernel.levels != 1 or any(store.space != "outer" or store.mode != "store" for store in kernel.stores):
        return None
    loads = [made.deps[node] for node in kernel.nodes if node.op == "load" and node in kernel.inner]
    short = made.shape == "row" and hint(made.vector.size) <= 2 * made.lanes  # folding is most of the work
    for axis in reversed(kernel.axes):
        factors = any(axis not in axes for axes in loads) and any(
            axis in axes and not axes.issuperset(kernel.axes) for axes in loads
        )
        if axis is made.swept or type(axis.size) is not int or not factors:
            continue
        for count in (2,) if short else (4, 3, 2):
            if axis.size % count == 0:
                return axis, count
    return None


def _single_column(made: LoopPlan) -> bool:
    """Whether a column reduction is one loop and then its stores, so that several columns can be swept at once."""
    kernel = made.kernel
    return kernel.levels == 1 and all(store.space == "outer" for store in kernel.stores) and not scans(kernel.nodes)


def _lay_out(made: LoopPlan, thread_work: int, whole: bool) -> None:
    """The grid that threads share, and how many the work is worth; `whole` keeps the innermost loop in one piece."""
    kernel, vector, tile = made.kernel, made.swept, made.tile
    blocked = (vector, tile.axis) if tile is not None else (vector,)
    apart = (*blocked, *made.serial, made.inner)
    made.grid_axes = tuple(axis for axis in kernel.axes if axis not in apart)
    outer: Extent = prod(axis.size for axis in (*made.grid_axes, made.inner) if axis is not None)
    if tile is not None and tile.axis in kernel.axes:
        outer *= made.name("blocks", pieces_of(tile.axis.size, tile.columns))
    alike = made.jammed if made.windows is None else ()  # they share most of it
    made.cost = total_cost(kernel) // max([count for _, count in alike], default=1)
    wanted = made.name("wanted", _threads_worth(made.cost, thread_work))
    pieces: Extent = 1
    if vector in kernel.axes and vector is not None and whole:
        made.chunk = vector.size
    elif vector in kernel.axes and vector is not None:
        block = made.lanes * made.unroll
        if made.shape == "column" or tile is not None:
            made.chunk = tile.width if tile is not None else made.interchanged or block
        else:
            # What each row costs says for rows of any number whether there are as many as threads that pay.
            enough = prove(Condition("<=", made.cost, thread_work * outer))
            parts = 1 if enough else made.name("parts", maximum(pieces_of(wanted, maximum(outer, 1)), 1))
            made.chunk = made.name("chunk", maximum(pieces_of(vector.size, parts * block), 1) * block)
        pieces = made.name("pieces", pieces_of(vector.size, made.chunk))
    made.pieces = pieces
    made.grid = outer * pieces
    made.threads = minimum(wanted, made.grid) if type(made.grid) is int else wanted


def _threads_worth(cost: Extent, thread_work: int) -> Extent:
    """How many threads pay: each does so much at least: one that waits costs more than it spares."""
    return minimum(GRID, maximum(cost // thread_work, 1))


def pieces_of(total: Extent, size: Extent) -> Extent:
    """Into how many pieces of a size a total falls, the last of which may be smaller."""
    return (total + size - 1) // size


def _streamed(kernel: Kernel, device: Device) -> frozenset[str]:
    """The results of which each core stores more than its caches can hold until something reads it."""
    if not device.stream_bytes:
        return frozenset()
    least = device.stream_bytes * device.cores
    plain = {store.buffer for store in kernel.stores if store.mode == "store"}
    results = [param for param in kernel.params if param.role == "out" and param.name in plain]
    return frozenset([param.name for param in results if hint(param.numel) * ITEMSIZE[param.dtype] >= least])
