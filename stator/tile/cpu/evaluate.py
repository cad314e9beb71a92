"""The element of a value at an index: from a register, from its buffer, or computed from what it is inline of.

One `Evaluator` writes the text for one chunk of a nest. Where axis information says that lanes are equal, a number is
computed for all of them; where it says that they run, the first one. So contiguous pointers stay one address.
Neighbours: `kernel` has the nests, `access` reads and writes memory with what is computed here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from stator.tile.analysis.axes import Axes
from stator.tile.cpu import elementwise
from stator.tile.cpu.casts import gather, register, stored
from stator.tile.cpu.code import Code, Maker, literal
from stator.tile.cpu.externs import extern
from stator.tile.cpu.lanes import ORIGIN, Coordinate, Index, Lanes, expanded, linear, unlinear, vector_of
from stator.tile.cpu.plan import Buffer, Plan
from stator.tile.cpu.refused import Refused
from stator.tile.interpret.casts import narrow
from stator.tile.ir.core import Block, Operation, Value
from stator.tile.ir.rules import dtype_of
from stator.tile.ir.types import DType, Pointer, Type


class Evaluator:
    """`here` is the index at which a nest stands; `registers` has what it has computed there."""

    def __init__(
        self, code: Code, plan: Plan, axes: Mapping[Value, Axes], scalars: Mapping[Value, str], width: int, here: Index
    ) -> None:
        self.code, self.plan, self.axes, self.scalars = code, plan, axes, scalars
        self.width, self.here = width, here
        self.registers: dict[Value, Lanes] = {}
        self.memo: dict[tuple[Value, Index], Lanes] = {}

    def at(self, value: Value, index: Index) -> Lanes:
        """The element of a value at an index."""
        if value.type.is_scalar:
            return Lanes(self.scalars[value], register(value.type.element))
        if value in self.registers and index == self.here:
            return self.registers[value]
        key = (value, index)
        if key not in self.memo:
            operation = self.plan.inline.get(value)
            if operation is None:
                self.memo[key] = self.read(self.plan.buffers[value], index)
            else:
                self.memo[key] = self.inline(value, operation, index)
        return self.memo[key]

    def vector(self, lanes: Lanes) -> str:
        return expanded(self.code, lanes, self.width)

    # ---- buffers

    def address(self, buffer: Buffer, place: str) -> str:
        base = self.code.at("%scratch", str(buffer.offset), "i8") if buffer.offset else "%scratch"
        return self.code.at(base, place, stored(buffer.type.element))

    def read(self, buffer: Buffer, index: Index) -> Lanes:
        """An element from a buffer."""
        kind, type_ = stored(buffer.type.element), register(buffer.type.element)
        place = linear(self.code, index, buffer.type.shape, self.width)
        if place.uniform:
            width, found = 0, self.code.load(kind, self.address(buffer, place.base))
        elif place.step == 1 and not place.vector:
            width, found = (
                self.width,
                self.code.value(
                    f"load {Maker(self.code, self.width).type(kind)}, ptr {self.address(buffer, place.base)}, "
                    f"align {buffer.type.element.itemsize}"
                ),
            )
        else:
            width, m = self.width, Maker(self.code, self.width)
            base = self.address(buffer, "0")
            places = vector_of(self.code, place, width)
            pointers = self.code.value(f"getelementptr {kind}, ptr {base}, {m.type('i64')} {places}")
            found = gather(m, kind, pointers, m.number("i1", True), m.number(kind, 0))
        if kind != type_:
            m = Maker(self.code, width)
            found = m.compare("ne", kind, found, m.number(kind, 0))
        return Lanes(found, type_, width)

    def write(self, buffer: Buffer, index: Index, lanes: Lanes) -> None:
        """An element to a buffer, at an index whose last axis runs or is one place."""
        kind = stored(buffer.type.element)
        place = linear(self.code, index, buffer.type.shape, self.width)
        width = 0 if place.uniform else self.width
        m = Maker(self.code, width)
        text = expanded(self.code, lanes, width)
        if kind != lanes.type:
            text = m.convert("zext", lanes.type, kind, text)
        address = self.address(buffer, place.base)
        self.code.do(f"store {m.type(kind)} {text}, ptr {address}, align {buffer.type.element.itemsize}")

    # ---- inline values

    def inline(self, value: Value, operation: Operation, index: Index) -> Lanes:
        moving = [axis for axis, coordinate in enumerate(index) if not coordinate.uniform]
        if len(moving) == 1 and index[moving[0]].runs and value in self.axes:
            axis, known = moving[0], self.axes[value]
            first = (*index[:axis], Coordinate(index[axis].base), *index[axis + 1 :])
            if known.constancy[axis] >= self.width:
                return self.at(value, first)
            element = value.type.element
            if known.contiguity[axis] >= self.width and not (isinstance(element, DType) and element.is_float):
                step = element.to.itemsize if isinstance(element, Pointer) else 1
                return replace(self.at(value, first), width=self.width, step=step)
        if operation.op in VIEWS:
            return VIEWS[operation.op](self, operation, value, index)
        return self.compute(operation, [self.at(operand, index) for operand in operation.operands])

    def compute(self, operation: Operation, given: Sequence[Lanes]) -> Lanes:
        """An elementwise operation on lanes."""
        types = [operand.type for operand in operation.operands]
        return compute(self.code, self.width, operation, types, operation.attrs, given)

    def combine(self, region: Block, given: Sequence[Lanes], width: int) -> list[Lanes]:
        """What a region that combines gives for lanes of its arguments."""
        known = dict(zip(region.args, given, strict=True))

        def find(value: Value) -> Lanes:
            if value in known:
                return known[value]
            return Lanes(self.scalars[value], register(value.type.element))

        for operation in region.operations[:-1]:
            operands = [find(operand) for operand in operation.operands]
            if operation.op == "constant":
                found = constant(self, operation, operation.result, ())
            else:
                types = [operand.type for operand in operation.operands]
                found = compute(self.code, width, operation, types, operation.attrs, operands)
            known[operation.result] = found
        return [find(operand) for operand in region.operations[-1].operands]


def compute(
    code: Code,
    width: int,
    operation: Operation,
    types: Sequence[Type],
    attrs: Mapping[str, Any],
    given: Sequence[Lanes],
) -> Lanes:
    """An elementwise operation on lanes, of as many as there are: one number if all operands are such."""
    width = 0 if all(lanes.uniform for lanes in given) else width
    m = Maker(code, width)
    texts = [expanded(code, lanes, width) for lanes in given]
    element = types[0].element
    result = operation.results[0].type.element
    match operation.op:
        case "copy" | "ptr_to_int" | "int_to_ptr":
            text = texts[0]
        case "select":
            text = m.select(texts[0], register(result), *texts[1:])
        case "eq" | "ne" | "lt" | "le" | "gt" | "ge":
            text = elementwise.compare(m, operation.op, element, *texts)
        case "cast":
            text = elementwise.cast(m, dtype_of(types[0]), attrs["dtype"], attrs["rounding"], texts[0])
        case "bitcast":
            text = elementwise.bitcast(m, element, result, texts[0])
        case "addptr":
            text = _moved(m, element, types[1], *texts)
        case "extern":
            text = extern(m, attrs["symbol"], [dtype_of(t) for t in types], dtype_of(operation.results[0].type), texts,
                          operation.location)  # fmt: skip
        case "div" if width and given[1].uniform and register(element) == "float":
            text = elementwise.divide_all(m, dtype_of(types[0]), texts[0], given[1].text)
        case op if op in elementwise.ROWS:
            text = elementwise.ROWS[op](m, dtype_of(types[0]), attrs, *texts)
        case op:
            raise Refused(op, "there is no code for it here", operation.location)
    return Lanes(text, register(result), width)


def _moved(m: Maker, element: Any, offset: Type, pointer: str, by: str) -> str:
    kind = register(offset.element)
    if kind != "i64":
        by = m.convert("sext" if dtype_of(offset).kind == "int" else "zext", kind, "i64", by)
    scaled = m.op("mul", "i64", by, m.number("i64", element.to.itemsize)) if element.to.itemsize > 1 else by
    return m.op("add", "i64", pointer, scaled)


# ---- views


def constant(e: Evaluator, operation: Operation, value: Value, index: Index) -> Lanes:
    element, number = value.type.element, operation.attrs["value"]
    type_ = register(element)
    if isinstance(element, DType) and element.is_float:
        data = narrow(np.asarray(number, np.float64), element)
        number = int(data.view(np.uint8)) if element.bits == 8 else float(data)
    elif isinstance(element, DType) and element.kind == "uint" and number >= 1 << (element.bits - 1):
        number -= 1 << element.bits
    return Lanes(literal(type_, number), type_)


def _arange(e: Evaluator, operation: Operation, value: Value, index: Index) -> Lanes:
    (coordinate,) = index
    start = operation.attrs["start"]
    if coordinate.uniform:
        if coordinate.base.isdigit():
            return Lanes(str(int(coordinate.base) + start), "i32")
        narrow = e.code.value(f"trunc i64 {coordinate.base} to i32")
        return Lanes(e.code.value(f"add i32 {narrow}, {start}") if start else narrow, "i32")
    m = Maker(e.code, e.width)
    narrow = m.convert("trunc", "i64", "i32", vector_of(e.code, coordinate, e.width))
    return Lanes(m.op("add", "i32", narrow, m.number("i32", start)), "i32", e.width)


def _splat(e: Evaluator, operation: Operation, value: Value, index: Index) -> Lanes:
    return e.at(operation.operands[0], ())


def _broadcast(e: Evaluator, operation: Operation, value: Value, index: Index) -> Lanes:
    (source,) = operation.operands
    inner = [ORIGIN if size == 1 else c for c, size in zip(index, source.type.shape, strict=True)]
    return e.at(source, tuple(inner))


def _expand(e: Evaluator, operation: Operation, value: Value, index: Index) -> Lanes:
    axis = operation.attrs["axis"]
    return e.at(operation.operands[0], (*index[:axis], *index[axis + 1 :]))


def _permute(e: Evaluator, operation: Operation, value: Value, index: Index) -> Lanes:
    inner = [ORIGIN] * len(index)
    for place, axis in enumerate(operation.attrs["order"]):
        inner[axis] = index[place]
    return e.at(operation.operands[0], tuple(inner))


def _reshape(e: Evaluator, operation: Operation, value: Value, index: Index) -> Lanes:
    (source,) = operation.operands
    before, after = source.type.shape, value.type.shape
    real = [c for c, size in zip(index, after, strict=True) if size > 1]
    if [size for size in before if size > 1] == [size for size in after if size > 1]:
        rest = iter(real)
        return e.at(source, tuple([next(rest) if size > 1 else ORIGIN for size in before]))
    place = linear(e.code, index, after, e.width)
    return e.at(source, unlinear(e.code, place, before, e.width))


def _choose(e: Evaluator, coordinate: Coordinate, limit: int, type_: str, first: Lanes, second: Lanes) -> Lanes:
    """The first one below a limit of the coordinate, else the second."""
    if coordinate.uniform and coordinate.base.isdigit():
        return first if int(coordinate.base) < limit else second
    width = 0 if coordinate.uniform and first.uniform and second.uniform else e.width
    m = Maker(e.code, width)
    place = vector_of(e.code, coordinate, width) if width else coordinate.base
    below = m.compare("slt", "i64", place, m.number("i64", limit))
    texts = [expanded(e.code, lanes, width) for lanes in (first, second)]
    return Lanes(m.select(below, type_, *texts), type_, width)


def _join(e: Evaluator, operation: Operation, value: Value, index: Index) -> Lanes:
    first, second = [e.at(operand, index[:-1]) for operand in operation.operands]
    return _choose(e, index[-1], 1, first.type, first, second)


def _split(e: Evaluator, operation: Operation, value: Value, index: Index) -> Lanes:
    which = operation.results.index(value)
    return e.at(operation.operands[0], (*index, Coordinate(str(which))))


def _cat(e: Evaluator, operation: Operation, value: Value, index: Index) -> Lanes:
    a, b = operation.operands
    size, coordinate = a.type.shape[0], index[0]
    if coordinate.uniform and coordinate.base.isdigit():
        place = int(coordinate.base)
        return e.at(a, index) if place < size else e.at(b, (Coordinate(str(place - size)), *index[1:]))
    first = e.at(a, (_bounded(e, coordinate, 0, size), *index[1:]))
    second = e.at(b, (_bounded(e, coordinate, -size, b.type.shape[0]), *index[1:]))
    return _choose(e, coordinate, size, first.type, first, second)


def _bounded(e: Evaluator, coordinate: Coordinate, shift: int, size: int) -> Coordinate:
    """A place so much further on, but inside of an axis."""
    width = 0 if coordinate.uniform else e.width
    m = Maker(e.code, width)
    place = vector_of(e.code, coordinate, width) if width else coordinate.base
    place = m.op("add", "i64", place, m.number("i64", shift))
    place = m.intrinsic("smax", "i64", place, m.number("i64", 0))
    place = m.intrinsic("smin", "i64", place, m.number("i64", size - 1))
    return Coordinate("0", vector=place) if width else Coordinate(place)


VIEWS: dict[str, Callable[[Evaluator, Operation, Value, Index], Lanes]] = {
    "constant": constant, "arange": _arange, "splat": _splat, "broadcast": _broadcast, "expand_dims": _expand,
    "permute": _permute, "reshape": _reshape, "join": _join, "split": _split, "cat": _cat,
}  # fmt: skip
