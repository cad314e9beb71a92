"""Tile IR to tile IR with layouts: every tile gets one, and `convert_layout` stands where it is needed in another.

A tile that nothing ties to a layout is computed where it is needed, in the layout in which it is needed: offsets,
pointers, masks, what is seen in another shape. It may be computed more than once; where that takes many operations, it
is converted from where it has been. All else is computed once, in the layout that it prefers.

    x = load(p)              x: f32[64, 64, L0] = load(p_0)          p, computed in L0
    y = add(x, row)    →     y: f32[64, 64, L0] = add(x, row_0)      row, seen from a row that L0 asks for
    s = dot(y, z, acc)       y_1: f32[64, 64, L1] = convert_layout(y, layout=L1) …

Neighbours: `preferences` says what is preferred, `pipeline` what comes before and behind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

from stator.tile.analysis.axes import analyse
from stator.tile.gpu.buffers import buffer_layout
from stator.tile.gpu.coalesce import Coalescing, default_layout
from stator.tile.gpu.instructions import Instruction
from stator.tile.gpu.matmul import Products, multiplied, summed
from stator.tile.gpu.operators import builder as gpu_builder
from stator.tile.gpu.operators import content
from stator.tile.gpu.preferences import Preferences
from stator.tile.gpu.views import BACKWARD, VIEWS
from stator.tile.ir.core import Block, Function, Operation, Value
from stator.tile.ir.operators import OPERATORS
from stator.tile.ir.types import DType, Pointer, Type
from stator.tile.layouts.conversion import Nothing, Registers, plan_conversion
from stator.tile.layouts.linear import LANES, Layout
from stator.tile.layouts.memory import plain
from stator.tile.layouts.mma import dot_operand

Place: TypeAlias = tuple[Value, Layout | None]
#: Operations up to which a tile is computed again rather than converted.
AGAIN = 24


class Unplaced(ValueError):
    """A tile that no layout can be found for, with the operation."""


def assign(source: Function, warps: int, group_registers: int = 0) -> Function:
    """The function with layouts. Its calls have been inlined. Unplaced where a size is no power of two.

    `group_registers` of a thread a warp group's product may take; with 0 there are none.
    """
    for operation in source.body.walk():
        for value in operation.results:
            if any(size & (size - 1) for size in value.type.shape):
                raise Unplaced(f"{operation.op} gives {value.type}, whose sizes are not all powers of two")
    function = Function(source.name, source.params, source.results, location=source.location)
    function.hints = source.hints
    function.attrs = {**source.attrs, "num_warps": warps}
    axes = analyse(source, lambda op: op in OPERATORS and OPERATORS[op].elementwise)
    coalescing = Coalescing(source, axes, warps)
    products = Products(source, warps, group_registers)
    assigner = _Assigner(function, Preferences(source, coalescing, products, warps))
    assigner.scopes[-1].update({(param, None): param for param in source.params})
    assigner.block(source.body)
    return function


class _Assigner:
    """Copies operations to where a builder stands. `scopes` has what each value has become, by its layout."""

    def __init__(self, function: Function, preferences: Preferences) -> None:
        self.builder = gpu_builder(function)
        self.preferences = preferences
        self.coalescing, self.products = preferences.coalescing, preferences.products
        self.warps = preferences.warps
        self.scopes: list[dict[Place, Value]] = [{}]
        self.lazy: dict[Value, Operation] = {}
        self.costs: dict[Value, int] = {}
        self.homes: dict[Value, Layout] = {}
        self.casts: dict[Value, Operation] = {}  # eager ones, to a wider dtype

    # ---- values

    def found(self, value: Value, layout: Layout | None) -> Value | None:
        for scope in reversed(self.scopes):
            if (value, layout) in scope:
                return scope[value, layout]
        return None

    def keep(self, value: Value, layout: Layout | None, made: Value) -> Value:
        self.scopes[-1][value, layout] = made
        return made

    def emit(self, op: str, operands: Sequence[Value], like: Operation, **attrs: Any) -> list[Value]:
        made = self.builder.emit(op, operands, attrs, location=like.location)
        return made

    def get(self, value: Value, layout: Layout | None) -> Value:
        """A value in a layout, computed or converted where the builder stands if it is not there yet."""
        layout = None if value.type.is_scalar else layout
        known = self.found(value, layout)
        if known is not None:
            return known
        assert layout is not None, f"{value} is not known"
        if value in self.lazy:
            elsewhere = self.elsewhere(value) if self.costs[value] > AGAIN else None
            if elsewhere is None:
                self.compute(self.lazy[value], layout)
                known = self.found(value, layout)
                assert known is not None
                return known
            base = elsewhere
        else:
            narrow = self.casts.get(value)
            if narrow is not None:
                return self.keep(value, layout, self.emit_cast(narrow, layout))
            home = self.found(value, self.homes[value])
            assert home is not None
            base = home
        (made,) = self.builder.emit("convert_layout", [base], {"layout": layout})
        self.builder.rename(made, value.name)
        return self.keep(value, layout, made)

    def emit_cast(self, operation: Operation, layout: Layout) -> Value:
        """What a cast makes wider, converted before it is: fewer bytes move."""
        (made,) = self.emit("cast", [self.get(operation.operands[0], layout)], operation, **operation.attrs)
        self.builder.rename(made, operation.result.name)
        return made

    def elsewhere(self, value: Value) -> Value | None:
        """A lazy value in any layout in which it has been computed."""
        for scope in reversed(self.scopes):
            for (other, _), made in scope.items():
                if other is value:
                    return made
        return None

    def scalar(self, value: Value) -> Value:
        return self.get(value, None)

    def settle(self, operation: Operation, results: Sequence[Value]) -> None:
        """An operation's results are where they are."""
        for value, made in zip(operation.results, results, strict=True):
            layout = made.type.layout
            assert layout is None or isinstance(layout, Layout)
            self.builder.rename(made, value.name)
            self.keep(value, layout, made)
            if layout is not None:
                self.homes[value] = layout

    # ---- lazy tiles

    def compute(self, operation: Operation, layout: Layout) -> None:
        """The results of a lazy operation, in a layout."""
        attrs = dict(operation.attrs)
        operands: list[Value]
        match operation.op:
            case "constant":
                attrs["type"] = Type(attrs["type"].element, attrs["type"].shape, layout)
                operands = []
            case "arange" | "splat":
                attrs["layout"] = layout
                operands = [self.scalar(operand) for operand in operation.operands]
            case op if op in BACKWARD and not operation.operands[0].type.is_scalar:
                self.viewed(operation, layout)
                return
            case "expand_dims" | "reshape" | "join":
                attrs["layout"] = layout
                operands = [self.scalar(operand) for operand in operation.operands]
            case _:
                operands = [self.get(operand, layout) for operand in operation.operands]
        made = self.emit(operation.op, operands, operation, **attrs)
        for value, result in zip(operation.results, made, strict=True):
            self.builder.rename(result, value.name)
            self.keep(value, layout, result)

    def viewed(self, operation: Operation, layout: Layout) -> None:
        """A tile in another shape: operands in the layout that the result's asks of them, which may give another."""
        wanted = BACKWARD[operation.op](operation, layout)
        operands = [self.get(operand, wanted) for operand in operation.operands]
        attrs = {**operation.attrs, **({"layout": layout} if operation.op == "broadcast" else {})}
        made = self.emit(operation.op, operands, operation, **attrs)
        for value, result in zip(operation.results, made, strict=True):
            self.builder.rename(result, value.name)
            given = result.type.layout
            if given is not None and given != layout:
                assert isinstance(given, Layout)
                self.keep(value, given, result)
                (result,) = self.builder.emit("convert_layout", [result], {"layout": layout})
            self.keep(value, None if result.type.is_scalar else layout, result)

    def postpone(self, operation: Operation) -> bool:
        """Whether an operation is computed where it is needed alone."""
        if operation.results[0].type.is_scalar:
            return False
        free = OPERATORS[operation.op].elementwise and operation.results[0] not in self.preferences.found
        if operation.op not in VIEWS and not free:
            return False
        cost = 1 + sum([self.costs.get(operand, 0) for operand in operation.operands])
        self.lazy.update(dict.fromkeys(operation.results, operation))
        self.costs.update(dict.fromkeys(operation.results, cost))
        return True

    # ---- operations

    def block(self, block: Block) -> None:
        for operation in block.operations:
            self.operation(operation)

    @contextmanager
    def inside(self, block: Block) -> Iterator[None]:
        self.scopes.append({})
        with self.builder.inside(block):
            yield
        self.scopes.pop()

    def operation(self, operation: Operation) -> None:
        if operation.op in _EMITTERS:
            _EMITTERS[operation.op](self, operation)
        elif not operation.results or not self.postpone(operation):
            self.alike(operation)

    def alike(self, operation: Operation) -> None:
        """All tiles in one layout: that of the first result, or what the operands prefer."""
        tiles = [value for value in (*operation.results, *operation.operands) if not value.type.is_scalar]
        layout = self.preferences.of(tiles[0]) if tiles else None
        self.plain(operation, layout)
        if operation.op == "cast" and layout is not None:
            before, after = operation.operands[0].type.element, operation.result.type.element
            if before.itemsize < after.itemsize:
                self.casts[operation.result] = operation

    def plain(self, operation: Operation, wanted: Layout | None, **attrs: Any) -> None:
        """With all operands in one layout."""
        operands = [self.get(operand, wanted) for operand in operation.operands]
        regions = [self.copied(region) for region in operation.regions]
        given = {**operation.attrs, **attrs}
        made = self.builder.emit(operation.op, operands, given, regions, operation.location)
        self.settle(operation, made)

    def copied(self, region: Block) -> Block:
        """A region of scalars alone, as it is."""
        made = self.builder.block_of([arg.type for arg in region.args], [arg.name for arg in region.args])
        with self.inside(made):
            self.scopes[-1].update({(old, None): new for old, new in zip(region.args, made.args, strict=True)})
            self.block(region)
        return made

    def access(self, operation: Operation) -> None:
        """Loads where they are wanted; what writes, as it goes to memory best."""
        layout, attrs = None, {}
        if not operation.operands[0].type.is_scalar:
            loads = operation.op == "load"
            layout = self.preferences.of(operation.result) if loads else self.coalescing.layout(operation)
        if layout is not None and operation.op in ("load", "store"):
            attrs["vector"] = self.coalescing.vector(operation, layout)
        self.plain(operation, layout, **attrs)

    def combine(self, operation: Operation) -> None:
        """Reductions, scans, sorting."""
        self.plain(operation, self.preferences.combined[id(operation)])

    def gather(self, operation: Operation) -> None:
        source, index = operation.operands
        layout = self.preferences.of(index)
        operands = [self.get(source, self.preferences.of(source)), self.get(index, layout)]
        self.settle(operation, self.emit(operation.op, operands, operation, **operation.attrs))

    def split(self, operation: Operation) -> None:
        """A pair is two scalars, which all threads have; halves of tiles are computed where they are needed."""
        if not self.postpone(operation):
            shape = (2,)
            self.plain(operation, Layout(shape, ((1,),), ((0,),) * LANES, ((0,),) * (self.warps.bit_length() - 1)))

    def histogram(self, operation: Operation) -> None:
        layout = self.preferences.of(operation.operands[0])
        self.plain(operation, layout, layout=default_layout(operation.result.type.shape, self.warps))

    # ---- products

    def dot(self, operation: Operation) -> None:
        layout = self.products.layout(operation)
        result = operation.result.type
        sums = summed(result, operation.operands[0].type)
        acc = self.cast(self.get(operation.operands[2], layout), sums, operation)
        assert isinstance(result.element, DType)
        by_groups = self.products.group_instruction(operation)
        if by_groups is not None:
            made = self.by_groups(operation, by_groups, layout, acc)
            self.settle(operation, [self.cast(made, result.element, operation)])
            return
        found = self.products.instruction(operation)
        operands = []
        for index, operand in enumerate(operation.operands[:2]):
            dtype = multiplied(operand.type)
            if found is None:
                operands.append(self.buffered(self.in_dtype(operand, dtype, self.preferences.of(operand), operation)))
                continue
            inner = operation.operands[0].type.shape[-1]
            wanted = dot_operand(layout, index, inner, found.width)
            operands.append(self.in_dtype(operand, dtype, wanted, operation))
        op = "dot" if found is None else "mma"
        (made,) = self.emit(op, [*operands, acc], operation, **operation.attrs)
        self.settle(operation, [self.cast(made, result.element, operation)])

    def by_groups(self, operation: Operation, found: Instruction, layout: Layout, acc: Value) -> Value:
        """A product by warp groups, whose left operand stays in registers if each thread has its part of it already."""
        a, b = operation.operands[:2]
        dtype = multiplied(a.type)
        wanted = dot_operand(layout, 0, a.type.shape[1], found.width)
        moved = plan_conversion(self.preferences.of(a), wanted, dtype.itemsize)
        words = operation.result.type.numel + a.type.numel * dtype.itemsize // 4
        if a in self.preferences.found and isinstance(moved, Nothing | Registers) and self.products.fits(words):
            left = self.in_dtype(a, dtype, wanted, operation)
        else:
            left = self.in_memory(a, dtype, operation)
        right = self.in_memory(b, multiplied(b.type), operation)
        (made,) = self.emit("wgmma", [left, right, acc], operation, **operation.attrs)
        return self.emit("wgmma_wait", [made], operation, pending=0)[0]

    def in_memory(self, value: Value, dtype: DType, operation: Operation) -> Value:
        """A buffer with a tile in it; one that is seen in another order is seen so there."""
        made = self.lazy.get(value)
        if made is not None and made.op == "permute":
            inside = self.in_memory(made.operands[0], dtype, operation)
            return self.emit("local_permute", [inside], operation, **made.attrs)[0]
        tile = self.in_dtype(value, dtype, self.preferences.of(value), operation)
        return self.emit("local_tile", [tile], operation, layout=buffer_layout(tile.type))[0]

    def in_dtype(self, value: Value, dtype: DType, layout: Layout, operation: Operation) -> Value:
        return self.cast(self.get(value, layout), dtype, operation)

    def cast(self, value: Value, dtype: DType, operation: Operation) -> Value:
        return value if value.type.element == dtype else self.emit("cast", [value], operation, dtype=dtype)[0]

    def buffered(self, value: Value) -> Value:
        """A tile in shared memory."""
        assert isinstance(value.type.element, DType)
        type_ = Type(Pointer(value.type.element, "shared"), value.type.shape, plain(value.type.shape))
        (place,) = self.builder.emit("local_alloc", [], {"type": type_})
        self.builder.emit("local_store", [place, value])
        assert content(place.type) == value.type.element
        return place

    # ---- control flow

    def yields(self, region: Block, wanted: Sequence[Layout | None], lead: Sequence[Value] = ()) -> None:
        """The terminator of a region that has been copied: its operands in the layouts of what takes them."""
        last = region.operations[-1]
        values = last.operands[len(lead) :]
        operands = [self.get(value, layout) for value, layout in zip(values, wanted, strict=True)]
        self.builder.emit(last.op, [*[self.scalar(v) for v in lead], *operands], location=last.location)

    def layouts(self, values: Sequence[Value]) -> list[Layout | None]:
        return [None if value.type.is_scalar else self.preferences.of(value) for value in values]

    def region(self, region: Block, arguments: Sequence[Value]) -> Block:
        """An empty block whose arguments stand for a region's."""
        spread = zip(arguments, self.layouts(arguments), strict=True)
        types = [Type(value.type.element, value.type.shape, layout) for value, layout in spread]
        return self.builder.block_of(types, [arg.name for arg in region.args])

    @contextmanager
    def body(self, region: Block, made: Block) -> Iterator[None]:
        with self.inside(made):
            for old, new in zip(region.args, made.args, strict=True):
                layout = new.type.layout
                assert layout is None or isinstance(layout, Layout)
                self.keep(old, layout, new)
                if layout is not None:
                    self.homes[old] = layout
            for operation in region.operations[:-1]:
                self.operation(operation)
            yield

    def if_(self, operation: Operation) -> None:
        wanted = self.layouts(operation.results)
        regions = []
        for region in operation.regions:
            made = self.builder.block_of([])
            with self.body(region, made):
                self.yields(region, wanted)
            regions.append(made)
        condition = self.scalar(operation.operands[0])
        self.settle(operation, self.builder.emit("if", [condition], operation.attrs, regions, operation.location))

    def for_(self, operation: Operation) -> None:
        (region,) = operation.regions
        wanted = self.layouts(region.args[1:])
        bounds = [self.scalar(bound) for bound in operation.operands[:3]]
        starts = [self.get(start, layout) for start, layout in zip(operation.operands[3:], wanted, strict=True)]
        made = self.region(region, region.args)
        with self.body(region, made):
            self.yields(region, wanted)
        results = self.builder.emit("for", [*bounds, *starts], operation.attrs, [made], operation.location)
        self.settle(operation, results)

    def while_(self, operation: Operation) -> None:
        test, body = operation.regions
        carried, tested = self.layouts(test.args), self.layouts(body.args)
        starts = [self.get(start, layout) for start, layout in zip(operation.operands, carried, strict=True)]
        made = [self.region(region, region.args) for region in operation.regions]
        with self.body(test, made[0]):
            self.yields(test, tested, test.operations[-1].operands[:1])
        with self.body(body, made[1]):
            self.yields(body, carried)
        self.settle(operation, self.builder.emit("while", starts, operation.attrs, made, operation.location))


_EMITTERS: Mapping[str, Callable[[_Assigner, Operation], None]] = {
    "load": _Assigner.access, "store": _Assigner.access, "atomic_rmw": _Assigner.access,
    "atomic_cas": _Assigner.access, "reduce": _Assigner.combine, "scan": _Assigner.combine, "sort": _Assigner.combine,
    "gather": _Assigner.gather, "split": _Assigner.split, "histogram": _Assigner.histogram, "dot": _Assigner.dot,
    "if": _Assigner.if_, "for": _Assigner.for_, "while": _Assigner.while_,
}  # fmt: skip
