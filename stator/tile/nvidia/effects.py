"""Prints, assertions and barriers.

Neighbours: `writer` has the table that this fills; `stator.tile.interpret.program` prints whole tiles, a GPU elements.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from stator.tile.cpu import elementwise
from stator.tile.cpu.casts import cast, register
from stator.tile.ir.core import Operation
from stator.tile.ir.types import DTYPES, F64, DType, Element, Pointer
from stator.tile.nvidia.shapes import axis_place
from stator.tile.nvidia.writer import Results, Writer, operation


@operation("barrier")
def barrier(w: Writer, o: Operation) -> Results:
    w.barrier()
    return []


def _printed(w: Writer, text: str, args: Sequence[tuple[str, str]]) -> None:
    """By the `vprintf` of CUDA: arguments lie one after the other, each at a multiple of its size."""
    kind = "{ " + ", ".join([type_ for type_, _ in args]) + " }" if args else "{ i32 }"
    place = w.code.memory(kind, align=8)
    for number, (type_, value) in enumerate(args):
        at = w.code.value(f"getelementptr {kind}, ptr {place}, i32 0, i32 {number}")
        w.code.store(type_, value, at)
    w.code.call("i32", "vprintf", ("ptr", w.string(text)), ("ptr", place))


def _program(w: Writer) -> list[tuple[str, str]]:
    return [("i32", w.code.call("i32", f"llvm.nvvm.read.ptx.sreg.ctaid.{axis}")) for axis in "xyz"]


def _format(element: Element, hexadecimal: bool) -> tuple[str, str]:
    """How a number is printed, and as which type of LLVM it is passed."""
    wide = element.itemsize == 8
    if isinstance(element, Pointer):
        return "0x%016llx", "i64"
    if hexadecimal:
        return f"0x%0{2 * element.itemsize}{'llx' if wide else 'x'}", "i64" if wide else "i32"
    if element.is_float:
        return "%f", "double"
    letter = "d" if element.kind == "int" else "u"
    return ("%ll" if wide else "%") + letter, "i64" if wide else "i32"


def _passed(w: Writer, element: Element, value: str, type_: str) -> str:
    m, have = w.m, register(element)
    if type_ == "double":
        assert isinstance(element, DType)
        return cast(m, element, F64, "rtne", value)
    if have in ("float", "double"):
        bits = "i32" if have == "float" else "i64"
        value, have = m.bits(have, bits, value), bits
        if element.itemsize == 2:  # the bits that lie in memory
            assert isinstance(element, DType)
            value, have = elementwise.bitcast(m, element, DTYPES["u16"], m.bits("i32", "float", value)), "i16"
    if have == type_:
        return value
    signed = isinstance(element, DType) and element.kind == "int"
    return m.convert("sext" if signed else "zext", have, type_, value)


@operation("print")
def print_(w: Writer, o: Operation) -> Results:
    """A line for each element, by one of the threads that hold it."""
    prefix = o.attrs["prefix"].replace("%", "%%")
    if not o.operands:
        with w.code.when(w.is_first((32 * w.warps) - 1)):
            _printed(w, f"pid (%d, %d, %d) {prefix}\n", _program(w))
    for operand in o.operands:
        places, element = w.places(operand), operand.type.element
        text, type_ = _format(element, o.attrs["hex"])
        where = [axis_place(w, places, axis) for axis in range(len(places.shape))]
        shown = "idx (" + ", ".join(["%d"] * len(where)) + ") "
        line = f"pid (%d, %d, %d) {shown}{prefix}{text}\n"
        for each in places.first:
            with w.code.when(w.is_first(places.alone)):
                at = [("i32", column[each]) for column in where]
                value = _passed(w, element, w.get(operand)[each], type_)
                _printed(w, line, [*_program(w), *at, (type_, value)])
    return []


@operation("assert")
def assert_(w: Writer, o: Operation) -> Results:
    """One that fails says so and ends the launch, as CUDA's own assertions do: whoever waits for it is told."""
    file, line = ("", 0) if o.location is None else (o.location.file, o.location.line)
    texts = [("ptr", w.string(text)) for text in (o.attrs["message"], file, w.function.name)]
    holds = functools.reduce(w.both, dict.fromkeys(w.get(o.operands[0])))
    with w.code.when(w.m.op("xor", "i1", holds, "true")):
        given = (texts[0], texts[1], ("i32", str(line)), texts[2], ("i64", "1"))
        w.code.call("void", "__assertfail", *given, attributes=" noreturn nounwind")
    return []
