"""What combines elements along an axis: reductions at the end of a nest, scans, sorting, histograms.

A combination only has to be associative: the order of the elements is kept, but for single operators that are
commutative too, which add up in several vectors at a time.
Neighbours: `kernel` has the nests; `evaluate` gives a region that combines its meaning.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from stator.tile.cpu.casts import register
from stator.tile.cpu.code import Code, Maker, literal
from stator.tile.cpu.lanes import Coordinate, Index, Lanes, expanded
from stator.tile.ir.core import Block, Operation
from stator.tile.ir.rules import dtype_of
from stator.tile.ir.types import DType

#: How a region is written for lanes: of both sides, and how wide they are.
Combine = Callable[[Sequence[Lanes], int], list[Lanes]]
_COMMUTATIVE = frozenset("add mul minimum maximum and or xor".split())


def commutative(region: Block) -> Operation | None:
    """The operator that a region is, if it is one whose order does not matter."""
    operation = region.operations[0]
    single = len(region.operations) == 2 and operation.op in _COMMUTATIVE and len(region.args) == 2
    if not single or set(operation.operands) != set(region.args):
        return None
    return operation if region.operations[1].operands == operation.results else None


def neutral(operation: Operation) -> str:
    """What changes nothing as an operand of a commutative operator, as a literal."""
    dtype = dtype_of(operation.result.type)
    return literal(register(dtype), _neutral(operation.op, dtype))


def _neutral(op: str, dtype: DType) -> float | int | bool:
    match op:
        case "add" if dtype.is_float:
            return -0.0
        case "add" | "or" | "xor":
            return 0
        case "mul":
            return 1
        case "and":
            return True if dtype.is_bool else -1
    least = op == "maximum"
    if dtype.is_float:
        # of a NaN and a number the number stays, and of NaNs alone a NaN is wanted: so it begins with one
        return float("nan")
    bound = dtype.low if least else dtype.high
    return bound - (1 << dtype.bits) if dtype.kind == "uint" and bound >= 1 << (dtype.bits - 1) else bound


def starts(operation: Operation) -> float | None:
    """An extreme that propagates a NaN begins with an infinity."""
    dtype = dtype_of(operation.result.type)
    if operation.op in ("minimum", "maximum") and dtype.is_float and operation.attrs["nan"] == "propagate":
        return float("-inf") if operation.op == "maximum" else float("inf")
    return None


def across(code: Code, values: Sequence[Lanes], width: int, combine: Combine) -> list[Lanes]:
    """All lanes combined into one, neighbours first."""
    current = list(values)
    while width > 1:
        half = width // 2
        sides = []
        for parity in (0, 1):
            places = ", ".join([f"i32 {2 * lane + parity}" for lane in range(half)])
            sides += [_shuffled(code, lanes, width, half, places) for lanes in current]
        current = combine(sides, half if half > 1 else 0)
        width = half
    return current


def _shuffled(code: Code, lanes: Lanes, width: int, half: int, places: str) -> Lanes:
    kind = f"<{width} x {lanes.type}>"
    text = expanded(code, lanes, width)
    if half == 1:
        return Lanes(code.value(f"extractelement {kind} {text}, {places}"), lanes.type)
    return Lanes(code.value(f"shufflevector {kind} {text}, {kind} poison, <{half} x i32> <{places}>"), lanes.type, half)


# ---- scans


class Scan:
    """Writes a scan: from `read`, what lies at an index, to `write`."""

    def __init__(
        self,
        code: Code,
        operation: Operation,
        width: int,
        read: Callable[[int, Index], Lanes],
        write: Callable[[int, Index, Lanes], None],
        combine: Combine,
    ) -> None:
        self.code, self.operation, self.width = code, operation, width
        self.read, self.write, self.combine = read, write, combine
        self.axis, self.reverse = operation.attrs["axis"], operation.attrs["reverse"]
        self.shape = operation.operands[0].type.shape
        self.types = [register(operand.type.element) for operand in operation.operands]

    def emit(self, index: Index = ()) -> None:
        """All loops around the axis, then along it."""
        axis = len(index)
        last = len(self.shape) - 1
        if axis == len(self.shape):
            self.along(index)
        elif axis == self.axis:
            self.emit((*index, Coordinate("0")))
        elif axis == last:
            with self.code.loop("0", str(self.shape[axis]), max(self.width, 1)) as place:
                self.emit((*index, Coordinate(place, 1 if self.width > 1 else 0, aligned=self.width > 1)))
        else:
            with self.code.loop("0", str(self.shape[axis])) as place:
                self.emit((*index, Coordinate(place)))

    def along(self, index: Index) -> None:
        if self.axis == len(self.shape) - 1 and self.width > 1:
            self.vectors(index)
        else:
            self.single(index)

    def place(self, count: str, step: int) -> str:
        """Where the elements after so many lie."""
        if not self.reverse:
            return count
        return self.code.value(f"sub i64 {self.shape[self.axis] - step}, {count}")

    def single(self, index: Index) -> None:
        """Element after element; lanes are along another axis."""
        width = 0 if all(coordinate.uniform for coordinate in index) else self.width
        m = Maker(self.code, width)
        kept = [self.code.memory(m.type(type_)) for type_ in self.types]
        for type_, slot in zip(self.types, kept, strict=True):
            self.code.store(m.type(type_), m.number(type_, 0), slot)
        with self.code.loop("0", str(self.shape[self.axis])) as count:
            here = (*index[: self.axis], Coordinate(self.place(count, 1)), *index[self.axis + 1 :])
            values = [self.read(number, here) for number in range(len(self.types))]
            found = self.after_first(count, values, kept, width)
            for number, (lanes, slot) in enumerate(zip(found, kept, strict=True)):
                self.code.store(m.type(lanes.type), lanes.text, slot)
                self.write(number, here, lanes)

    def after_first(self, count: str, values: Sequence[Lanes], kept: Sequence[str], width: int) -> list[Lanes]:
        """What was kept combined with values; these alone at the first place."""
        m = Maker(self.code, width)
        old = [Lanes(self.code.load(m.type(t), slot), t, width) for t, slot in zip(self.types, kept, strict=True)]
        combined = self.combine([*old, *values], width)
        first = self.code.value(f"icmp eq i64 {count}, 0")
        found = []
        for new, value in zip(combined, values, strict=True):
            texts = [expanded(self.code, lanes, width) for lanes in (value, new)]
            kind = m.type(value.type)
            text = self.code.value(f"select i1 {first}, {kind} {texts[0]}, {kind} {texts[1]}")
            found.append(Lanes(text, value.type, width))
        return found

    def vectors(self, index: Index) -> None:
        """Vector after vector along the last axis, each by steps of doubling distance."""
        code, width = self.code, self.width
        m = Maker(code, width)
        kept = [code.memory(m.type(type_)) for type_ in self.types]
        for type_, slot in zip(self.types, kept, strict=True):
            code.store(m.type(type_), m.number(type_, 0), slot)
        with code.loop("0", str(self.shape[self.axis]), width) as count:
            here = (*index[:-1], Coordinate(self.place(count, width), 1, aligned=True))
            values = [self.turned(self.read(number, here)) for number in range(len(self.types))]
            distance = 1
            while distance < width:
                values = self.step(values, distance)
                distance *= 2
            found = self.after_first(count, values, kept, width)
            for number, (lanes, slot) in enumerate(zip(found, kept, strict=True)):
                kind = m.type(lanes.type)
                last = code.value(f"extractelement {kind} {lanes.text}, i32 {width - 1}")
                code.store(kind, m.splat(lanes.type, last), slot)
                self.write(number, here, self.turned(lanes))

    def turned(self, lanes: Lanes) -> Lanes:
        if not self.reverse or lanes.uniform:
            return lanes
        places = ", ".join([f"i32 {lane}" for lane in reversed(range(self.width))])
        return _shuffled(self.code, lanes, self.width, self.width, places)

    def step(self, values: Sequence[Lanes], distance: int) -> list[Lanes]:
        """Each lane combined with the one so far before it, if there is one."""
        m, width = Maker(self.code, self.width), self.width
        places = ", ".join([f"i32 {max(lane - distance, 0)}" for lane in range(width)])
        before = [_shuffled(self.code, lanes, width, width, places) for lanes in values]
        combined = self.combine([*before, *values], width)
        inside = "<" + ", ".join([f"i1 {str(lane >= distance).lower()}" for lane in range(width)]) + ">"
        found = []
        for new, value in zip(combined, values, strict=True):
            texts = [expanded(self.code, lanes, width) for lanes in (new, value)]
            found.append(Lanes(m.select(inside, value.type, *texts), value.type, width))
        return found


# ---- sorting


def sort(code: Code, dtype: DType, size: int, descending: bool, address: Callable[[str], str], type_: str) -> None:
    """Sorts a power of two of elements in place, by bitonic merging; a NaN counts as the greatest."""
    m, length = Maker(code, 0), 2
    while length <= size:
        distance = length // 2
        while distance:
            with code.loop("0", str(size // 2)) as pair:
                rest = code.value(f"and i64 {pair}, {distance - 1}")
                doubled = code.value(f"sub i64 {pair}, {rest}")
                low = code.value(f"add i64 {code.value(f'shl i64 {doubled}, 1')}, {rest}")
                high = code.value(f"add i64 {low}, {distance}")
                places = address(low), address(high)
                a, b = (code.load(type_, place) for place in places)
                turned = code.value(f"icmp ne i64 {code.value(f'and i64 {low}, {length}')}, 0")
                if descending:
                    turned = code.value(f"xor i1 {turned}, true")
                wrong = m.select(turned, "i1", _less(m, dtype, type_, a, b), _less(m, dtype, type_, b, a))
                code.store(type_, m.select(wrong, type_, b, a), places[0])
                code.store(type_, m.select(wrong, type_, a, b), places[1])
            distance //= 2
        length *= 2


def _less(m: Maker, dtype: DType, type_: str, a: str, b: str) -> str:
    if not dtype.is_float:
        return m.compare("slt" if dtype.kind == "int" else "ult", type_, a, b)
    number, nan = m.compare("ord", type_, a, a), m.compare("uno", type_, b, b)
    return m.op("or", "i1", m.compare("olt", type_, a, b), m.op("and", "i1", number, nan))
