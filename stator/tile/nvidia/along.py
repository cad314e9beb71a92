"""What combines elements along an axis: reductions, scans, sorts, and what counts or gathers.

The bits of an element's place along the axis are bits of registers, lanes or warps. Elements whose places differ in one
bit meet where that bit is: two registers of a thread, two lanes by a shuffle, two warps by shared memory. A reduction
and a scan go from the lowest bit to the highest, so that what meets are neighbouring runs, and a combination need only
be associative; one that is commutative goes by registers first, which saves shuffles.
Neighbours: `exchange` moves, `shapes` says how an axis lies in the number of an element.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from stator.tile.cpu.casts import register
from stator.tile.ir.core import Block, Operation
from stator.tile.ir.types import DType, Element
from stator.tile.layouts.linear import LANES
from stator.tile.nvidia.exchange import fetch, select
from stator.tile.nvidia.places import Places, bits_of, coordinates, dropped, element_at, one_bit, spread
from stator.tile.nvidia.shapes import along, axis_place, slice_of
from stator.tile.nvidia.threads import padded_size
from stator.tile.nvidia.writer import Registers, Results, Writer, operation

#: More values of warps than this cost each thread more than sharing them out, and a barrier.
_READ_BY_EACH = 16
_COMMUTES = {"add", "mul", "minimum", "maximum", "and", "or", "xor"}


@dataclass
class Rows:
    """Tiles of one layout whose axis is gone through."""

    w: Writer
    elements: list[Element]
    values: Results
    places: Places
    axis: int

    @staticmethod
    def of(w: Writer, o: Operation) -> Rows:
        """The operands of an operation in one layout, in which a bit of the axis is a bit of a register or thread."""
        axis, first = o.attrs["axis"], o.operands[0]
        places = w.places(first)
        _, mask = along(places, axis)
        if not _is_plain(places, mask):
            places = spread(w.warps, places.shape)
        values = [fetch(w, operand.type.element, w.get(operand), w.places(operand), places) for operand in o.operands]
        return Rows(w, [operand.type.element for operand in o.operands], values, places, axis)

    def where(self, bit: int) -> tuple[str, int]:
        """Of which number a bit of the axis is a bit, and of which value."""
        stride, _ = along(self.places, self.axis)
        basis = stride << bit
        for kind, bases in (("register", self.places.registers), ("lane", self.places.lanes)):
            if basis in bases:
                return kind, bases.index(basis)
        return "warp", self.places.warps.index(basis)

    @property
    def bits(self) -> int:
        return bits_of(self.places.shape[self.axis])

    def combine(self, region: Block, left: Sequence[str], right: Sequence[str]) -> list[str]:
        """Two elements of each operand as one."""
        w = self.w
        w.values.update(zip(region.args, [[value] for value in (*left, *right)], strict=True))
        return [value for (value,) in w.block(region)]


def _is_plain(places: Places, mask: int) -> bool:
    """Whether each bit of an axis is a bit of one register, lane or warp alone."""
    found = 0
    for basis in (*places.registers, *places.threads):
        if basis & mask:
            if not one_bit(basis) or found & basis:
                return False
            found |= basis
    return found == mask and not places.origin & mask


def _commutes(region: Block) -> bool:
    """Whether a region does the same to two elements in either order, as far as is easily seen."""
    *body, last = region.operations
    if len(body) != 1 or len(region.args) != 2 or body[0].op not in _COMMUTES:
        return False
    return set(body[0].operands) == set(region.args) and tuple(last.operands) == body[0].results


# ---- reductions


@operation("reduce")
def reduce(w: Writer, o: Operation) -> Results:
    rows, region = Rows.of(w, o), o.regions[0]
    free = _commutes(region)
    order = list(range(rows.bits))
    if free:
        order.sort(key=lambda bit: ("register", "lane", "warp").index(rows.where(bit)[0]))
    while order:
        kind, _ = rows.where(order[0])
        count = 1
        if kind == "warp":
            while count < len(order) and rows.where(order[count])[0] == "warp":
                count += 1
        together, order = order[:count], order[count:]
        {"register": _reduce_registers, "lane": _reduce_lanes, "warp": _reduce_warps}[kind](
            rows, region, together, free
        )
    have = slice_of(rows.places, rows.axis)
    return [
        fetch(w, element, values, have, w.places(result))
        for element, values, result in zip(rows.elements, rows.values, o.results, strict=True)
    ]


def _reduce_registers(rows: Rows, region: Block, bits: Sequence[int], free: bool) -> None:
    _, number = rows.where(bits[0])
    step, places = 1 << number, rows.places
    found: Results = [[] for _ in rows.values]
    for first in range(places.count):
        if not first & step:
            left, right = ([values[r] for values in rows.values] for r in (first, first | step))
            for each, value in zip(found, rows.combine(region, left, right), strict=True):
                each.append(value)
    rows.values = found
    rows.places = replace(places, registers=places.registers[:number] + places.registers[number + 1 :])


def _reduce_lanes(rows: Rows, region: Block, bits: Sequence[int], free: bool) -> None:
    _, number = rows.where(bits[0])
    w, places = rows.w, rows.places
    upper = "" if free else w.m.compare("ne", "i32", w.m.op("and", "i32", "%tid", str(1 << number)), "0")
    found: Results = [list(values) for values in rows.values]
    for each in places.first:
        mine = [values[each] for values in rows.values]
        other = [w.swapped(element, value, 1 << number) for element, value in zip(rows.elements, mine, strict=True)]
        left, right = _in_order(rows, upper, mine, other) if upper else (mine, other)
        for values, value in zip(found, rows.combine(region, left, right), strict=True):
            values[each] = value
    rows.values = [[values[places.at[each]] for each in places.elements] for values in found]
    rows.places = replace(places, lanes=(*places.lanes[:number], 0, *places.lanes[number + 1 :]))


def _in_order(rows: Rows, upper: str, mine: Sequence[str], other: Sequence[str]) -> tuple[list[str], list[str]]:
    """What is mine and the other's by their order: if `upper` holds, mine is behind it."""
    left = [select(rows.w, e, upper, b, a) for e, a, b in zip(rows.elements, mine, other, strict=True)]
    right = [select(rows.w, e, upper, a, b) for e, a, b in zip(rows.elements, mine, other, strict=True)]
    return left, right


def _exchanged(rows: Rows, values: Results, wanted: Sequence[Places], keep: int) -> list[Results]:
    """Tiles through shared memory to several layouts; `keep` has the bits of an element that are told apart."""
    w, places = rows.w, rows.places
    total = prod(places.shape)
    function, size = dropped((total - 1) & ~keep), max(keep.bit_count(), 0)
    shape = (1 << size,)
    offsets, end = [], 0
    for element in rows.elements:
        offsets.append(end)
        end += padded_size(element.itemsize << size)
    w.exchange(end)
    have = places.through(function, shape)
    for element, given, offset in zip(rows.elements, values, offsets, strict=True):
        w.write_tile(element, given, have, offset=offset)
    w.barrier()
    return [
        [
            w.read_tile(e, want.through(function, shape), offset)
            for e, offset in zip(rows.elements, offsets, strict=True)
        ]
        for want in wanted
    ]


def _told_apart(places: Places) -> int:
    """The bits of an element's number that registers and threads still tell apart."""
    found = 0
    for basis in (*places.registers, *places.threads):
        found |= basis
    return found


def _reduce_warps(rows: Rows, region: Block, bits: Sequence[int], free: bool) -> None:
    """Every thread reads what all warps have, and combines it; if that is much, each combines a part for all."""
    if len(rows.places.first) << len(bits) > _READ_BY_EACH:
        _share_out(rows, bits)
        for bit in bits:
            _reduce_lanes(rows, region, [bit], free)
        return
    stride, _ = along(rows.places, rows.axis)
    places, numbers = rows.places, [rows.where(bit)[1] for bit in bits]
    warps = tuple([0 if number in numbers else basis for number, basis in enumerate(places.warps)])
    rest = replace(places, warps=warps)
    wanted = []
    for turn in range(1 << len(bits)):
        at = sum([stride << bit for place, bit in enumerate(bits) if turn >> place & 1])
        wanted.append(replace(rest, origin=rest.origin ^ at))
    parts = _exchanged(rows, rows.values, wanted, _told_apart(places))
    while len(parts) > 1:
        parts = [_combined(rows, region, parts[i], parts[i + 1]) for i in range(0, len(parts), 2)]
    rows.values, rows.places = parts[0], rest


def _share_out(rows: Rows, bits: Sequence[int]) -> None:
    """What warps have goes to lanes by these bits of the axis, each element to no more threads than it takes."""
    w, places = rows.w, rows.places
    stride, _ = along(places, rows.axis)
    kept = _told_apart(places)
    parts = [stride << bit for bit in bits]
    order = [*parts, *[1 << bit for bit in range(kept.bit_length()) if kept >> bit & 1 and 1 << bit not in parts]]
    end = LANES + bits_of(w.warps)
    order += [0] * (end - len(order))
    shared = Places(places.shape, tuple(order[end:]), tuple(order[:LANES]), tuple(order[LANES:end]))
    (rows.values,) = _exchanged(rows, rows.values, [shared], kept)
    rows.places = shared


def _combined(rows: Rows, region: Block, left: Results, right: Results) -> Results:
    """Two tiles of each operand as one, element by element; equal ones are computed once."""
    known: dict[tuple[str, ...], list[str]] = {}
    found: Results = [[] for _ in left]
    for each in range(len(left[0])):
        first, second = ([values[each] for values in side] for side in (left, right))
        key = (*first, *second)
        if key not in known:
            known[key] = rows.combine(region, first, second)
        for values, value in zip(found, known[key], strict=True):
            values.append(value)
    return found


# ---- scans


@operation("scan")
def scan(w: Writer, o: Operation) -> Results:
    """Every element has its prefix in a run and the run's total; runs of twice the length meet at each bit."""
    rows, region = Rows.of(w, o), o.regions[0]
    prefix, total = rows.values, rows.values
    for bit in range(rows.bits):
        other, upper = _partners(rows, total, bit)
        if o.attrs["reverse"]:
            upper = [_inverted(w, each) for each in upper]
        behind = _combined(rows, region, other, prefix)
        prefix = [
            [_chosen(w, e, u, b, p) for u, b, p in zip(upper, bs, ps, strict=True)]
            for e, bs, ps in zip(rows.elements, behind, prefix, strict=True)
        ]
        if bit + 1 < rows.bits:
            left = _side(rows, upper, other, total)
            right = _side(rows, upper, total, other)
            total = _combined(rows, region, left, right)
    return [
        fetch(w, element, values, rows.places, w.places(result))
        for element, values, result in zip(rows.elements, prefix, o.results, strict=True)
    ]


def _side(rows: Rows, upper: Sequence[str], a: Results, b: Results) -> Results:
    """a where an element is the upper one of its pair, else b; the same for registers that hold the same."""
    known: dict[tuple[str, ...], str] = {}

    def chosen(element: Element, key: tuple[str, str, str]) -> str:
        if key not in known:
            known[key] = _chosen(rows.w, element, *key)
        return known[key]

    return [
        [chosen(element, key) for key in zip(upper, first, second, strict=True)]
        for element, first, second in zip(rows.elements, a, b, strict=True)
    ]


def _inverted(w: Writer, truth: str) -> str:
    return {"true": "false", "false": "true"}.get(truth) or w.m.op("xor", "i1", truth, "true")


def _chosen(w: Writer, element: Element, condition: str, a: str, b: str) -> str:
    if condition in ("true", "false"):
        return a if condition == "true" else b
    return select(w, element, condition, a, b)


def _partners(rows: Rows, values: Results, bit: int) -> tuple[Results, list[str]]:
    """The elements whose place differs in a bit, and for each register whether its own element is the upper one."""
    w, places = rows.w, rows.places
    kind, number = rows.where(bit)
    if kind == "register":
        step = 1 << number
        other = [[each[r ^ step] for r in range(places.count)] for each in values]
        return other, ["true" if r & step else "false" for r in range(places.count)]
    place = number if kind == "lane" else number + len(places.lanes)
    upper = w.m.compare("ne", "i32", w.m.op("and", "i32", "%tid", str(1 << place)), "0")
    if kind == "lane":
        found = [_swapped(w, e, each, 1 << number) for e, each in zip(rows.elements, values, strict=True)]
        return found, [upper] * places.count
    stride, _ = along(places, rows.axis)
    want = replace(places, origin=places.origin ^ (stride << bit))
    (other,) = _exchanged(rows, values, [want], prod(places.shape) - 1)
    return other, [upper] * places.count


def _swapped(w: Writer, element: Element, values: Sequence[str], bits: int) -> Registers:
    known = {value: w.swapped(element, value, bits) for value in dict.fromkeys(values)}
    return [known[value] for value in values]


# ---- sorting


@operation("sort")
def sort(w: Writer, o: Operation) -> Results:
    """A bitonic network: runs of twice the length each time, in which elements meet from the farthest on."""
    rows = Rows.of(w, o)
    (values,) = rows.values
    (element,) = rows.elements
    assert isinstance(element, DType)
    place = axis_place(w, rows.places, rows.axis)
    for length in range(1, rows.bits + 1):
        down = [_bit_of(w, at, length) for at in place] if length < rows.bits else ["false"] * len(place)
        if o.attrs["descending"]:
            down = [_inverted(w, each) for each in down]
        for bit in reversed(range(length)):
            (other,), upper = _partners(rows, [values], bit)
            values = [
                _ordered(w, element, mine, its, _differs(w, up, turned))
                for mine, its, up, turned in zip(values, other, upper, down, strict=True)
            ]
    return [fetch(w, element, values, rows.places, w.places(o.result))]


def _bit_of(w: Writer, place: str, bit: int) -> str:
    return w.m.compare("ne", "i32", w.m.op("and", "i32", place, str(1 << bit)), "0")


def _differs(w: Writer, a: str, b: str) -> str:
    for first, second in ((a, b), (b, a)):
        if first in ("true", "false"):
            return _inverted(w, second) if first == "true" else second
    return w.m.op("xor", "i1", a, b)


def _ordered(w: Writer, dtype: DType, mine: str, other: str, greater: str) -> str:
    """The greater one of two elements, a NaN before all, or the lesser one."""
    takes = _chosen_truth(w, greater, _less(w, dtype, mine, other), _less(w, dtype, other, mine))
    return w.m.select(takes, register(dtype), other, mine)


def _chosen_truth(w: Writer, condition: str, a: str, b: str) -> str:
    if condition in ("true", "false"):
        return a if condition == "true" else b
    return w.m.select(condition, "i1", a, b)


def _less(w: Writer, dtype: DType, a: str, b: str) -> str:
    type_ = register(dtype)
    if not dtype.is_float:
        return w.m.compare("slt" if dtype.kind == "int" else "ult", type_, a, b)
    nan, number = w.m.compare("uno", type_, b, b), w.m.compare("ord", type_, a, a)
    return w.m.op("or", "i1", w.m.compare("olt", type_, a, b), w.m.op("and", "i1", nan, number))


# ---- gathering and counting


@operation("gather")
def gather(w: Writer, o: Operation) -> Results:
    """The source lies in shared memory; a position outside of the axis takes the last one."""
    source, index = o.operands
    have, places, element = w.places(source), w.places(o.result), source.type.element
    axis, m, size = o.attrs["axis"], w.m, element.itemsize
    given = index.type.element
    assert isinstance(given, DType)
    positions = fetch(w, given, w.get(index), w.places(index), places)
    w.exchange(padded_size(prod(have.shape) * size))
    w.write_tile(element, w.get(source), have)
    w.barrier()
    stride, _ = along(have, axis)
    others = _other_places(places, have.shape, axis)
    base, found = w.thread_bits([basis * size for basis in others.threads]), []
    for position, each in zip(positions, others.elements, strict=True):
        last = str(have.shape[axis] - 1)
        type_ = register(given)
        inside = m.intrinsic("umin", type_, position, last)
        at = inside if given.bits == 32 else m.convert("trunc" if given.bits > 32 else "zext", type_, "i32", inside)
        moved = m.op("mul", "i32", at, str(stride * size))
        row = m.op("add", "i32", m.op("xor", "i32", base, str(each * size)), moved)
        gap = m.op("shl", "i32", m.op("lshr", "i32", row, "7"), "4")
        found += w.take(element, 1, w.shared(m.op("add", "i32", row, gap)))
    return [found]


def _other_places(places: Places, source: Sequence[int], axis: int) -> Places:
    """Elements of the source at place 0 of an axis, with the other coordinates of the result's."""

    def function(element: int) -> int:
        place = list(coordinates(element, places.shape))
        place[axis] = 0
        return element_at(place, source)

    return places.through(function, tuple(source))


@operation("histogram")
def histogram(w: Writer, o: Operation) -> Results:
    data, m = o.operands[0], w.m
    places, result, dtype = w.places(data), w.places(o.result), data.type.element
    assert isinstance(dtype, DType)
    bins, mask = o.attrs["bins"], w.get(o.operands[1]) if len(o.operands) > 1 else None
    element = o.result.type.element
    w.exchange(padded_size(bins * element.itemsize))
    w.write_tile(element, ["0"] * result.count, result)
    w.barrier()
    type_, alone = register(dtype), w.is_first(places.alone)
    values = w.get(data)
    for each in places.first:
        limit = min(bins, dtype.high + 1)
        inside = "true" if limit > dtype.high and dtype.kind == "uint" else m.compare(
            "ult", type_, values[each], str(limit))  # fmt: skip
        guard = w.both(w.both(alone, inside), mask[each] if mask else "true")
        at = values[each]
        if dtype.bits != 32:
            at = m.convert("trunc" if dtype.bits > 32 else "zext", type_, "i32", at)
        byte = m.op("shl", "i32", at, "2")
        place = m.op("add", "i32", byte, m.op("shl", "i32", m.op("lshr", "i32", byte, "7"), "4"))
        with w.code.when(guard):
            w.code.value(f"atomicrmw add ptr addrspace(3) {w.shared(place)}, i32 1 monotonic, align 4")
    w.barrier()
    return [w.read_tile(element, result)]
