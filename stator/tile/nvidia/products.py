"""Products of matrices: by tensor cores where they have the dtype, by sums of products else.

Tensor cores multiply 16 by 8 results of a warp at a time (`mma.sync`): a lane has two neighbours of a row and two more
eight rows below, and words of 32 bits of the operands. Whatever the layouts of an operation are, its operands are
taken in those that the instruction wants, which are the same registers where layouts are assigned for it.
Neighbours: `stator.tile.layouts.mma` has these layouts, `stator.tile.gpu.matmul` decides which products are such.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from stator.tile.cpu.casts import cast, register
from stator.tile.cpu.refused import Refused
from stator.tile.gpu.operators import buffer, content
from stator.tile.ir.core import Operation, Value
from stator.tile.ir.types import BF16, F16, F32, DType
from stator.tile.layouts.bits import apply as combined
from stator.tile.nvidia.exchange import fetch
from stator.tile.nvidia.places import Places, bits_of, coordinates, element_at
from stator.tile.nvidia.threads import SHARED
from stator.tile.nvidia.writer import Registers, Results, Writer, operation

ROWS, COLUMNS = 16, 8


@dataclass(frozen=True)
class Instruction:
    """An instruction of tensor cores: its dtype, as which operands go, and how many elements are a word."""

    name: str
    result: str
    dtype: DType
    width: int

    @property
    def inner(self) -> int:
        return 8 * self.width


def _signed(dtype: DType) -> str:
    return "s8" if dtype.kind == "int" else "u8"


def instruction(dtype: DType, precision: str) -> Instruction | None:
    """That for operands of a dtype, or None where sums of products are to be computed in full."""
    if dtype in (F16, BF16):
        return Instruction(dtype.name, "f32", dtype, 2)
    if dtype == F32 and precision != "ieee":
        return Instruction("tf32", "f32", F32, 1)
    if dtype.is_integer and dtype.bits == 8:
        return Instruction(_signed(dtype), "s32", dtype, 4)
    return None


def _last(shape: Sequence[int], row: int, column: int) -> int:
    """The element of the first matrix of a batch."""
    return element_at([*[0] * (len(shape) - 2), row, column], shape)


def operand_places(result: Places, shape: tuple[int, ...], outer: int, width: int) -> Places:
    """The layout of an operand for results laid out so; `outer` is its axis that the result has too, -2 or -1."""

    def at(inner: int, other: int) -> int:
        return _last(shape, other, inner) if outer == -2 else _last(shape, inner, other)

    def kept(basis: int) -> int:
        place = list(coordinates(basis, result.shape))
        place[-1 if outer == -2 else -2] = 0
        return element_at(place, shape)

    inner = shape[-1] if outer == -2 else shape[-2]
    word = [at(1 << bit, 0) for bit in range(bits_of(width))]
    halves = ([at(0, 8)] if outer == -2 else []) + [at(4 * width, 0)]
    more = [at(1 << bit, 0) for bit in range(bits_of(8 * width), bits_of(inner))]
    first = {_last(result.shape, 0, 1), _last(result.shape, 8, 0)}
    others = [kept(basis) for basis in result.registers if basis not in first]
    lanes = (at(width, 0), at(2 * width, 0), at(0, 1), at(0, 2), at(0, 4))
    return Places(
        shape, tuple(word + halves + more + [basis for basis in others if basis]), lanes, tuple(map(kept, result.warps))
    )


@operation("mma")
def mma(w: Writer, o: Operation) -> Results:
    dtype = o.operands[0].type.element
    assert isinstance(dtype, DType)
    found = instruction(dtype, o.attrs["precision"])
    if found is None:
        raise Refused("mma", f"tensor cores do not multiply {dtype}", o.location)
    return [_by_tensor_cores(w, o, found)]


@operation("dot")
def dot(w: Writer, o: Operation) -> Results:
    return [_sums(w, o)]


def _by_tensor_cores(w: Writer, o: Operation, by: Instruction) -> Registers:
    left, right, acc = o.operands
    places = w.places(acc)
    operands = [_operand(w, value, outer, by, places) for value, outer in ((left, -2), (right, -1))]
    return _Tiles(w, by, places, operands, o.attrs["precision"]).run(w.get(acc))


@dataclass(frozen=True)
class _Taken:
    """An operand's registers where the instruction wants them, or its words if it has such."""

    registers: Registers
    places: Places
    are_words: bool


def _operand(w: Writer, value: Value, outer: int, by: Instruction, result: Places) -> _Taken:
    want = operand_places(result, value.type.shape, outer, by.width)
    if value in w.are_words:
        assert w.places(value) == want, "the rule of `mma` wants its operands so"
        return _Taken(w.get_words(value), want, are_words=True)
    return _Taken(fetch(w, value.type.element, w.get(value), w.places(value), want), want, are_words=False)


class _Tiles:
    """All instructions of a product, one after the other along the inner axis."""

    def __init__(
        self,
        w: Writer,
        by: Instruction,
        places: Places,
        operands: Sequence[_Taken],
        precision: str,
    ) -> None:
        self.w, self.by, self.places = w, by, places
        self.operands = operands
        self.split = by.name == "tf32" and precision != "tf32"
        self.words: dict[tuple[int, ...], list[str]] = {}

    def run(self, sums: Registers) -> Registers:
        shape, found = self.places.shape, list(sums)
        inner = self.operands[0].places.shape[-1]
        for start in range(0, inner, self.by.inner):
            for each in self.places.elements:
                *batch, row, column = coordinates(each, shape)
                if row % ROWS == 0 and column % COLUMNS == 0:
                    corners = ((row, column), (row, column + 1), (row + 8, column), (row + 8, column + 1))
                    registers = [self.places.at[element_at([*batch, *corner], shape)] for corner in corners]
                    given = [found[register_] for register_ in registers]
                    made = self.tile(batch, row, column, start, given)
                    for register_, value in zip(registers, made, strict=True):
                        found[register_] = value
        return [found[self.places.at[each]] for each in self.places.elements]

    def tile(self, batch: Sequence[int], row: int, column: int, start: int, sums: list[str]) -> list[str]:
        half = 4 * self.by.width
        left = [(row + down, start + over) for over in (0, half) for down in (0, 8)]
        right = [(start + over, column) for over in (0, half)]
        a = [self.word(0, batch, place) for place in left]
        b = [self.word(1, batch, place) for place in right]
        if not self.split:
            return self.multiply([word[0] for word in a], [word[0] for word in b], sums)
        for i, j in ((1, 0), (0, 1), (0, 0)):  # what is small first
            sums = self.multiply([word[i] for word in a], [word[j] for word in b], sums)
        return sums

    def word(self, side: int, batch: Sequence[int], place: tuple[int, int]) -> list[str]:
        """A word of an operand; of tf32 with more precision two, what is rounded and what is left."""
        key = (side, *batch, *place)
        if key not in self.words:
            taken, step = self.operands[side], (0, 1) if side == 0 else (1, 0)
            (row, column), (down, over) = place, step
            neighbours = [[*batch, row + i * down, column + i * over] for i in range(self.by.width)]
            numbers = [taken.places.at[element_at(each, taken.places.shape)] for each in neighbours]
            if taken.are_words:
                self.words[key] = [taken.registers[numbers[0] // self.by.width]]
            else:
                self.words[key] = self._as_words([taken.registers[number] for number in numbers])
        return self.words[key]

    def _as_words(self, values: Sequence[str]) -> list[str]:
        w, m = self.w, self.w.m
        if self.by.name == "tf32":
            whole = self._tf32(values[0])
            if not self.split:
                return [whole]
            rest = m.op("fsub", "float", values[0], m.bits("i32", "float", whole))
            return [whole, self._tf32(rest)]
        return [w.word(self.by.dtype, values)]

    def _tf32(self, value: str) -> str:
        (found,) = self.w.assembly("cvt.rna.tf32.f32 $0, $1;", ["=r", "f"], ["i32"], [("float", value)], effects=False)
        return found

    def multiply(self, a: Sequence[str], b: Sequence[str], sums: Sequence[str]) -> list[str]:
        by, type_ = self.by, "float" if self.by.result == "f32" else "i32"
        letter = "f" if type_ == "float" else "r"
        name = f"mma.sync.aligned.m16n8k{by.inner}.row.col.{by.result}.{by.name}.{by.name}.{by.result}"
        text = f"{name} {{$0,$1,$2,$3}}, {{$4,$5,$6,$7}}, {{$8,$9}}, {{$10,$11,$12,$13}};"
        constraints = ["=" + letter] * 4 + ["r"] * 6 + [letter] * 4
        given = [("i32", word) for word in (*a, *b)] + [(type_, value) for value in sums]
        return self.w.assembly(text, constraints, [type_] * 4, given, effects=False)


# ---- sums of products


def _sums(w: Writer, o: Operation) -> Registers:
    """Operands in buffers: at each place of the inner axis a thread reads what its results are made of."""
    left, right, acc = o.operands
    places, wide = w.places(acc), acc.type.element
    assert isinstance(wide, DType)
    read = [_Operand(w, left, -2, places), _Operand(w, right, -1, places)]
    type_, sums = register(wide), w.get(acc)
    slots = {each: w.code.memory(type_, align=8) for each in places.first}
    for each, slot in slots.items():
        w.code.store(type_, sums[each], slot)
    with w.code.loop("0", str(left.type.shape[-1])) as index:
        step = w.m.convert("trunc", "i64", "i32", index)
        columns, rows = (operand.reader(step, wide) for operand in read)
        for each, slot in slots.items():
            place = places.elements[each]
            w.code.store(type_, _multiply_add(w, wide, columns(place), rows(place), w.code.load(type_, slot)), slot)
    found = {each: w.code.load(type_, slot) for each, slot in slots.items()}
    return [found[places.at[each]] for each in places.elements]


def _multiply_add(w: Writer, wide: DType, a: str, b: str, total: str) -> str:
    type_ = register(wide)
    if wide.is_float:
        return w.m.fma(type_, a, b, total)
    return w.m.op("add", type_, total, w.m.op("mul", type_, a, b))


class _Operand:
    """An operand of sums of products, in a buffer."""

    def __init__(self, w: Writer, value: Value, outer: int, result: Places) -> None:
        self.w, self.outer, self.result = w, outer, result
        self.dtype, self.shared = content(value.type), buffer(value.type)
        (self.base,) = w.get(value)

    def place(self, element: int) -> int:
        """The element of the buffer that a result's begins with."""
        *batch, row, column = coordinates(element, self.result.shape)
        first = (row, 0) if self.outer == -2 else (0, column)
        return combined(self.shared.places, element_at([*batch, *first], self.shared.shape))

    def reader(self, step: str, wide: DType) -> Callable[[int], str]:
        """What gives the number for a result's element, at a place of the inner axis."""
        w, m, size = self.w, self.w.m, self.dtype.itemsize
        shape = self.shared.shape
        stride = 1 if self.outer == -2 else shape[-1]
        inner = shape[-1] if self.outer == -2 else shape[-2]
        row = self._along(step, [combined(self.shared.places, stride << bit) for bit in range(bits_of(inner))])
        mine = m.op("xor", "i32", row, w.thread_bits([self.place(basis) for basis in self.result.threads]))
        known: dict[int, str] = {}

        def read(element: int) -> str:
            at = self.place(element)
            if at not in known:
                place = m.op("xor", "i32", mine, str(at))
                if self.shared.padding[0]:
                    interval, pad = self.shared.padding
                    gaps = m.op("mul", "i32", m.op("udiv", "i32", place, str(interval)), str(pad))
                    place = m.op("add", "i32", place, gaps)
                byte = m.op("add", "i32", self.base, m.op("mul", "i32", place, str(size)))
                where = w.code.value(f"getelementptr i8, ptr addrspace(3) {SHARED}, i32 {byte}")
                (value,) = w.take(self.dtype, 1, where)
                known[at] = cast(m, self.dtype, wide, "rtne", value)
            return known[at]

        return read

    def _along(self, step: str, bases: Sequence[int]) -> str:
        """What a place of the inner axis adds to the offset."""
        m, first = self.w.m, bases[0] if bases else 0
        if all(basis == first << bit for bit, basis in enumerate(bases)):
            return m.op("mul", "i32", step, str(first))
        found = "0"
        for bit, basis in enumerate(bases):
            part = m.op("and", "i32", m.op("lshr", "i32", step, str(bit)), "1")
            found = m.op("xor", "i32", found, m.op("mul", "i32", part, str(basis)))
        return found
