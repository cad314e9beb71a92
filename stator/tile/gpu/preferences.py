"""In which layout each tile would best be: loads say it, products, reductions; elementwise operations pass it on.

A tile that is computed of positions and scalars alone, or that shows others in more places than they were in, prefers
nothing: it is computed in whatever layout it is needed in. Of several preferences the stronger one counts. What a loop
carries has one layout in all turns: that of what comes out of its body, where that prefers something more strongly.
Neighbours: `coalesce` and `matmul` have the layouts of accesses and products; `assign` goes by what is found here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from stator.tile.gpu.coalesce import Coalescing, default_layout
from stator.tile.gpu.flow import Flow
from stator.tile.gpu.matmul import Products
from stator.tile.gpu.views import BACKWARD, FORWARD
from stator.tile.ir.core import Block, Function, Operation, Value
from stator.tile.ir.operators import OPERATORS
from stator.tile.layouts.blocked import blocked
from stator.tile.layouts.linear import LANES, Layout, LayoutError

_ROUNDS = 4
#: Elementwise operations, one on the other, up to which a tile is computed where it is needed.
DEPTH = 64
#: Bytes of a row that may be loaded by more threads than one, and of what each of them has of it.
ROW_BYTES, THREAD_BYTES = 4096, 64


class Preference(NamedTuple):
    """A layout, and how strongly it is wanted."""

    layout: Layout
    strength: int


#: How strong preferences are: of what has to be somewhere, of accesses, of products.
NONE, ACCESS, PRODUCT = 0, 1, 2


def _outweighs(inside: Preference, outside: Preference) -> bool:
    """A loop goes by what its body prefers, unless that is the weaker one: conversions are then outside of it."""
    return inside.layout != outside.layout and inside.strength >= outside.strength


def combining_layout(layout: Layout, axis: int, warps: int) -> Layout:
    """One in which bits go along an axis or along others: the same if it is such, else a plain one."""
    mixed = any(base[axis] and any(c for i, c in enumerate(base) if i != axis) for base in layout.bases)
    return default_layout(layout.shape, warps) if mixed else layout


def ordered_layout(shape: Sequence[int], axis: int, warps: int) -> Layout:
    """For what goes along an axis in order: neighbours in a thread, then in lanes, and other axes in other warps."""
    each, lanes, groups = [1] * len(shape), [1] * len(shape), [1] * len(shape)
    lanes[axis] = min(shape[axis], 1 << LANES)
    each[axis] = shape[axis] // lanes[axis]
    others = [i for i in reversed(range(len(shape))) if i != axis]
    for counts, left in ((lanes, (1 << LANES) // lanes[axis]), (groups, warps)):
        for i in others:
            counts[i] = min(max(shape[i] // (lanes[i] * groups[i]), 1), left)
            left //= counts[i]
        counts[others[0] if others else axis] *= left  # held more than once
    return blocked(shape, each, lanes, groups, (axis, *others))


class Preferences:
    """What each tile of a function prefers; the layouts of the operands of what combines elements are in `combined`."""

    def __init__(self, function: Function, coalescing: Coalescing, products: Products, warps: int) -> None:
        self.coalescing, self.products, self.warps = coalescing, products, warps
        self.found: dict[Value, Preference] = {}
        self.combined: dict[int, Layout] = {}
        self.depths: dict[Value, int] = {}  # how many elementwise operations a value is of
        self.block(function.body)
        self.flow = Flow(function)
        for operation in function.body.walk():
            if operation.op == "load" and not operation.result.type.is_scalar:
                self.load_where_wanted(operation.result)

    def of(self, value: Value) -> Layout:
        """The preferred layout, or a plain one."""
        found = self.found.get(value)
        return default_layout(value.type.shape, self.warps) if found is None else found.layout

    def strongest(self, values: Sequence[Value]) -> Preference | None:
        found = [self.found[value] for value in values if value in self.found]
        return max(found, key=lambda preference: preference.strength) if found else None

    def prefer(self, value: Value, preference: Preference | None) -> None:
        if preference is None:
            self.found.pop(value, None)
        elif not value.type.is_scalar:
            self.found[value] = preference

    def block(self, block: Block) -> tuple[Value, ...]:
        """The operands of the terminator."""
        for operation in block.operations[:-1]:
            self.operation(operation)
        return block.operations[-1].operands

    def operation(self, operation: Operation) -> None:
        match operation.op:
            case "if":
                self.if_(operation)
            case "for":
                (body,) = operation.regions
                self.carried([operation.operands[3:]], [(body.args[1:], body)], operation.results)
            case "while":
                self.while_(operation)
            case "load" | "atomic_rmw" | "atomic_cas" if not operation.result.type.is_scalar:
                self.prefer(operation.result, Preference(self.coalescing.layout(operation), ACCESS))
            case "dot":
                self.prefer(operation.result, Preference(self.products.layout(operation), PRODUCT))
            case "reduce":
                self.reduce(operation)
            case "scan" | "sort":
                shape = operation.operands[0].type.shape
                layout = ordered_layout(shape, operation.attrs["axis"], self.warps)
                self.combined[id(operation)] = layout
                for result in operation.results:
                    self.prefer(result, Preference(layout, NONE))
            case "gather" | "histogram":
                self.prefer(operation.result, Preference(self.of_gathered(operation), NONE))
            case op if op in FORWARD:
                self.forward(operation)
            case "split":
                self.split(operation)
            case op if OPERATORS[op].elementwise or op == "inline_asm":
                self.elementwise(operation)

    def elementwise(self, operation: Operation) -> None:
        """As the operands; what comes of many operations on tiles that prefer nothing is somewhere in between."""
        preference = self.strongest(operation.operands)
        depth = 1 + max([self.depths.get(operand, 0) for operand in operation.operands])
        for result in operation.results:
            if preference is None and depth > DEPTH:
                self.home(result, None)
                continue
            self.depths[result] = depth
            self.prefer(result, preference)

    def of_gathered(self, operation: Operation) -> Layout:
        if operation.op == "gather":
            return self.of(operation.operands[1])
        return default_layout(operation.result.type.shape, self.warps)

    def reduce(self, operation: Operation) -> None:
        preference = self.strongest(operation.operands)
        layout = self.of(operation.operands[0]) if preference is None else preference.layout
        layout = combining_layout(layout, operation.attrs["axis"], self.warps)
        self.combined[id(operation)] = layout
        result = layout.slice(operation.attrs["axis"])
        strength = NONE if preference is None else preference.strength
        for value in operation.results:
            self.prefer(value, None if result is None else Preference(result, strength))

    def forward(self, operation: Operation) -> None:
        preference = self.strongest([v for v in operation.operands if not v.type.is_scalar])
        uneven = operation.op == "cat" and operation.operands[0].type.shape != operation.operands[1].type.shape
        layout = None if preference is None or uneven else FORWARD[operation.op](operation, preference.layout)
        found = None if layout is None or preference is None else Preference(layout, preference.strength)
        self.depths[operation.result] = max([self.depths.get(operand, 0) for operand in operation.operands])
        self.prefer(operation.result, found)

    def split(self, operation: Operation) -> None:
        preference, layout = self.strongest(operation.operands), None
        if preference is not None:
            try:
                layout = preference.layout.split()
            except LayoutError:  # the halves are in different threads
                layout = default_layout(operation.results[0].type.shape, self.warps)
        for result in operation.results:
            self.prefer(
                result, None if layout is None or preference is None else Preference(layout, preference.strength)
            )

    # ---- control flow

    def if_(self, operation: Operation) -> None:
        given = [self.block(region) for region in operation.regions]
        for result, *values in zip(operation.results, *given, strict=True):
            self.home(result, self.strongest(values))

    def while_(self, operation: Operation) -> None:
        test, body = operation.regions
        outs = test.operations[-1].operands[1:]
        self.carried([operation.operands], [(test.args, test), (body.args, body)], operation.results, outs)

    def carried(
        self,
        starts: Sequence[Sequence[Value]],
        regions: Sequence[tuple[Sequence[Value], Block]],
        results: Sequence[Value],
        tested: Sequence[Value] | None = None,
    ) -> None:
        """The arguments of a loop's regions and its results: of a `while_`, a test gives what its body takes."""
        (first, _), last = regions[0], regions[-1][1]
        for arg, start in zip(first, starts[0], strict=True):
            self.prefer(arg, self.found.get(start))
        for _ in range(_ROUNDS):
            self.block(regions[0][1])
            if tested is not None:
                for arg, value in zip(regions[1][0], tested, strict=True):
                    self.prefer(arg, self.found.get(value))
                self.block(regions[1][1])
            changed = False
            for arg, value in zip(first, last.operations[-1].operands, strict=True):
                before, after = self.found.get(arg), self.found.get(value)
                if after is not None and (before is None or _outweighs(after, before)):
                    self.prefer(arg, after)
                    changed = True
            if not changed:
                break
        for arg in first:
            self.home(arg, self.found.get(arg))
        if tested is not None:
            for arg, value in zip(regions[1][0], tested, strict=True):
                self.home(arg, self.found.get(value))
        for result, value in zip(results, first if tested is None else regions[1][0], strict=True):
            self.home(result, self.found.get(value))
        self.settle([block for _, block in regions])

    def settle(self, blocks: Sequence[Block]) -> None:
        """Once more through the bodies, now that all arguments have a layout."""
        for block in blocks:
            self.block(block)

    def home(self, value: Value, preference: Preference | None) -> None:
        """A value that control flow gives is somewhere, whatever it prefers."""
        if not value.type.is_scalar:
            self.prefer(value, preference or Preference(default_layout(value.type.shape, self.warps), NONE))

    # ---- rows that are seen as tiles

    def load_where_wanted(self, loaded: Value) -> None:
        """A row that others see in another layout is loaded so at once, by as many threads as want it."""
        if loaded.type.numel != max(loaded.type.shape) or loaded.type.numel * loaded.type.element.itemsize > ROW_BYTES:
            return
        members = self.alike(loaded)
        if members is None:
            return
        known: dict[Value, set[Layout | None]] = {}
        wanted = {layout for member in members for layout in self.wanted(member, members, known)}
        if len(wanted) != 1:
            return
        (layout,) = wanted
        if layout is not None and layout.registers * loaded.type.element.itemsize <= THREAD_BYTES:
            self.found.update(dict.fromkeys(members, Preference(layout, ACCESS)))

    def alike(self, loaded: Value) -> set[Value] | None:
        """The values that elementwise operations tie to a load, if all of them are loads or come of such operations."""
        layout = self.found[loaded].layout
        members, stack = {loaded}, [loaded]
        while stack:
            value = stack.pop()
            tied = [use for use in self.flow.uses.get(value, ()) if OPERATORS[use.op].elementwise]
            made = self.flow.made.get(value)
            if made is not None and OPERATORS[made.op].elementwise:
                tied.append(made)
            elif made is None or made.op != "load":
                return None
            for operation in tied:
                near = [v for v in (*operation.results, *operation.operands) if v in self.found]
                if any(self.found[v].layout != layout for v in near if v in operation.operands):
                    return None
                fresh = [v for v in near if self.found[v].layout == layout and v not in members]
                members.update(fresh)
                stack += fresh
        return members

    def wanted(self, value: Value, members: set[Value], known: dict[Value, set[Layout | None]]) -> set[Layout | None]:
        """The layouts in which a value is needed by others than `members`; None of one that is not known."""
        if value not in known:
            found: set[Layout | None] = set()
            for use in self.flow.uses.get(value, ()):
                if not any(result in members for result in use.results):
                    found |= self.wanted_by(use, members, known)
            known[value] = found
        return known[value]

    def wanted_by(
        self, use: Operation, members: set[Value], known: dict[Value, set[Layout | None]]
    ) -> set[Layout | None]:
        match use.op:
            case "load" | "store" | "atomic_rmw" | "atomic_cas":
                return {self.coalescing.layout(use)}
            case op if op in BACKWARD:
                later = {layout for result in use.results for layout in self.wanted(result, members, known)}
                return {None if layout is None else BACKWARD[op](use, layout) for layout in later}
            case op if OPERATORS[op].elementwise and use.results[0] in self.found:
                return {self.found[use.results[0]].layout}
            case op if OPERATORS[op].elementwise:
                return self.wanted(use.results[0], members, known)
            case "reduce" | "scan" | "sort":
                return {self.combined[id(use)]}
        return {None}
