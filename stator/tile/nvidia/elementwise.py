"""Elementwise operators: the rows of the CPU's table on single numbers, and the GPU's own where it has better ones.

Neighbours: `stator.tile.cpu.elementwise` has the table that is shared, `formulas` functions of floats.
"""

from __future__ import annotations

from collections.abc import Sequence

from stator.tile.cpu import casts as shared_casts
from stator.tile.cpu import elementwise as shared
from stator.tile.cpu.casts import register
from stator.tile.ir.core import Operation, Value
from stator.tile.ir.operators import OPERATORS
from stator.tile.ir.rules import dtype_of
from stator.tile.ir.types import BF16, F32, DType, Element, Pointer
from stator.tile.nvidia import externs, formulas, halves
from stator.tile.nvidia.exchange import fetch
from stator.tile.nvidia.writer import HANDLERS, Registers, Results, Writer, operation

ROWS = {**shared.ROWS, **formulas.ROWS}


def operands(w: Writer, o: Operation) -> list[Registers]:
    """The operands' registers, each for that of the result."""
    want = w.places(o.results[0])
    return [
        in_places(w, operand, o.results[0]) if w.places(operand) != want else w.get(operand) for operand in o.operands
    ]


def in_places(w: Writer, value: Value, as_: Value) -> Registers:
    """A value in the layout of another one of its shape."""
    return fetch(w, value.type.element, w.get(value), w.places(value), w.places(as_))


def _each(w: Writer, o: Operation, function: object) -> Results:
    """A function of numbers on all registers; equal ones are computed once."""
    assert callable(function)
    known: dict[tuple[str, ...], str] = {}
    found, given = [], list(zip(*operands(w, o), strict=True))
    for numbers in [given[first] for first in w.equal(o.results[0])]:
        if numbers not in known:
            known[numbers] = function(*numbers)
        found.append(known[numbers])
    return [found]


def _dtype(o: Operation) -> DType:
    element = o.operands[0].type.element
    assert isinstance(element, DType)
    return element


def _row(w: Writer, o: Operation) -> Results:
    dtype, row = _dtype(o), ROWS[o.op]
    return _each(w, o, lambda *numbers: row(w.m, dtype, o.attrs, *numbers))


HANDLERS.update(dict.fromkeys(ROWS, _row))


@operation("mul", "mulhi")
def multiply(w: Writer, o: Operation) -> Results:
    """Half of a product, whose other half may be wanted too."""
    if not w.wide.wants(o):
        return _row(w, o)
    half = 0 if o.op == "mul" else 1
    return _each(w, o, lambda a, b: w.wide.product(w.m, _dtype(o), a, b)[half])


@operation("eq", "ne", "lt", "le", "gt", "ge")
def compare(w: Writer, o: Operation) -> Results:
    element = o.operands[0].type.element
    return _each(w, o, lambda a, b: shared.compare(w.m, o.op, element, a, b))


@operation("select")
def select(w: Writer, o: Operation) -> Results:
    type_ = register(o.results[0].type.element)
    return _each(w, o, lambda condition, a, b: w.m.select(condition, type_, a, b))


@operation("cast")
def cast(w: Writer, o: Operation) -> Results:
    source, target = _dtype(o), o.attrs["dtype"]
    if source == F32 and target == BF16 and o.attrs["rounding"] == "rtne":
        return _to_bfloat(w, o)
    return _each(w, o, lambda a: formulas.cast(w.m, w.architecture, source, target, o.attrs["rounding"], a))


def _to_bfloat(w: Writer, o: Operation) -> Results:
    """f32 to bf16, two different numbers at a time."""
    (values,) = operands(w, o)
    if w.halves.are_exact(o.operands[0]):
        return [values]
    arithmetic = w.halves.arithmetic(o.operands[0]) if w.architecture >= halves.SINCE else None
    if arithmetic is not None and w.places(arithmetic.result) == w.places(o.result):
        return _in_bfloat(w, arithmetic)
    different = list(dict.fromkeys(values))
    known: dict[str, str] = {}
    for low, high in zip(different[::2], different[1::2], strict=False):
        known[low], known[high] = w.m.to_bfloats(low, high)
    if len(different) % 2:
        known[different[-1]] = w.m.to_bfloat(different[-1])
    return [[known[value] for value in values]]


def _in_bfloat(w: Writer, o: Operation) -> Results:
    """Arithmetic on numbers that bf16 has, rounded to it, two different ones at a time."""
    given = list(zip(*operands(w, o), strict=True))
    different = list(dict.fromkeys(given))
    known: dict[tuple[str, ...], str] = {}
    for low, high in zip(different[::2], [*different[1::2], different[-1]], strict=False):
        words = [("i32", w.m.of_bfloats(*pair)) for pair in zip(low, high, strict=True)]
        known[low], known[high] = w.m.bfloats(formulas.instruction(w.m, f"{o.op}.rn.bf16x2", "i32", *words))
    return [[known[numbers] for numbers in given]]


@operation("bitcast")
def bitcast(w: Writer, o: Operation) -> Results:
    source: Element = o.operands[0].type.element
    return _each(w, o, lambda a: shared.bitcast(w.m, source, o.attrs["dtype"], a))


@operation("int_to_ptr", "ptr_to_int")
def address(w: Writer, o: Operation) -> Results:
    return [in_places(w, o.operands[0], o.results[0])]


@operation("addptr")
def addptr(w: Writer, o: Operation) -> Results:
    pointer, offset = (operand.type.element for operand in o.operands)
    assert isinstance(pointer, Pointer) and isinstance(offset, DType)
    m, size = w.m, pointer.to.itemsize

    def distance(by: str) -> str:
        if offset.bits < 64:
            by = m.convert("sext" if offset.kind == "int" else "zext", register(offset), "i64", by)
        return by if size == 1 else m.op("mul", "i64", by, str(size))

    found: list[str] = []
    pairs = zip(*operands(w, o), strict=True)
    for number, ((address, by), (first, more)) in enumerate(zip(pairs, w.behind(o.result), strict=True)):
        if first != number:
            found.append(m.op("add", "i64", found[first], str(more * size)))
        else:
            found.append(address if by == "0" else m.op("add", "i64", address, distance(by)))
    return [found]


@operation("extern")
def extern(w: Writer, o: Operation) -> Results:
    types, result = [dtype_of(operand.type) for operand in o.operands], dtype_of(o.results[0].type)
    return _each(w, o, lambda *a: externs.extern(w.m, o.attrs["symbol"], types, result, a, o.location))


@operation("assume")
def assume(w: Writer, o: Operation) -> Results:
    return []


@operation("inline_asm")
def inline_asm(w: Writer, o: Operation) -> Results:
    """`pack` elements at a time: numbers of less than 32 bits side by side in registers of 32."""
    given = operands(w, o)
    pack, dtypes = o.attrs["pack"], o.attrs["dtypes"]
    count = len(given[0])
    if count % pack:
        given = [values * (pack // count) for values in given]
    found: list[Registers] = [[] for _ in dtypes]
    for first in range(0, len(given[0]), pack):
        args = [
            word
            for operand, values in zip(o.operands, given, strict=True)
            for word in _packed(w, operand.type.element, values[first : first + pack])
        ]
        types = [kind for dtype in dtypes for kind in _word_types(dtype, pack)]
        constraints = [part for part in o.attrs["constraints"].replace(" ", "").split(",") if part]
        words = w.assembly(o.attrs["asm"], constraints, types, args, effects=not o.attrs["is_pure"])
        at = 0
        for results, dtype in zip(found, dtypes, strict=True):
            number = len(_word_types(dtype, pack))
            results += _unpacked(w, dtype, words[at : at + number], pack)
            at += number
    return [values[:count] for values in found]


def _word_types(element: Element, pack: int) -> list[str]:
    type_ = shared_casts.memory(element)
    if element.itemsize >= 4:
        return [type_] * pack
    return ["i16"] * pack if element.itemsize == 2 and pack == 1 else ["i32"] * max(element.itemsize * pack // 4, 1)


def _packed(w: Writer, element: Element, values: Sequence[str]) -> list[tuple[str, str]]:
    if element == BF16 and len(values) % 2 == 0:
        return [("i32", w.m.of_bfloats(*pair)) for pair in zip(values[::2], values[1::2], strict=True)]
    type_, size = shared_casts.memory(element), element.itemsize
    numbers = [shared_casts.pack(w.m, element, value) for value in values]
    if size >= 4:
        return [(type_, number) for number in numbers]
    bits = f"i{8 * size}"
    whole = [number if type_ == bits else w.m.bits(type_, bits, number) for number in numbers]
    if size == 2 and len(values) == 1:
        return [("i16", whole[0])]
    each = min(4 // size, len(values))
    return [("i32", _side_by_side(w, bits, whole[i : i + each])) for i in range(0, len(whole), each)]


def _side_by_side(w: Writer, bits: str, values: Sequence[str]) -> str:
    found = w.m.convert("zext", bits, "i32", values[0])
    for place, value in enumerate(values[1:], 1):
        moved = w.m.op("shl", "i32", w.m.convert("zext", bits, "i32", value), str(place * int(bits[1:])))
        found = w.m.op("or", "i32", found, moved)
    return found


def _unpacked(w: Writer, element: Element, words: Sequence[str], pack: int) -> Registers:
    type_, size = shared_casts.memory(element), element.itemsize
    if size >= 4:
        return list(words)
    if element == BF16 and pack % 2 == 0:
        return [value for word in words for value in w.m.bfloats(word)]
    bits, found = f"i{8 * size}", []
    each = min(4 // size, pack)
    for word in words:
        kind = "i16" if size == 2 and pack == 1 else "i32"
        for place in range(each):
            part = w.m.op("lshr", kind, word, str(place * 8 * size)) if place else word
            number = part if kind == bits else w.m.convert("trunc", kind, bits, part)
            found.append(number if type_ == bits else w.m.bits(bits, type_, number))
    return [shared_casts.unpack(w.m, element, number) for number in found]


#: What is elementwise and has no row would be refused one by one.
assert all(name in HANDLERS for name, row in OPERATORS.items() if row.elementwise), [
    name for name, row in OPERATORS.items() if row.elementwise and name not in HANDLERS
]
