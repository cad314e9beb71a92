"""Values from nothing, and views: operators that only say where the elements of a tile are.

A view's registers are those of its operand under other names wherever the layouts allow it; `exchange` moves the rest.
Neighbours: `writer` has the table that this fills.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np

from stator.tile.cpu.casts import register
from stator.tile.cpu.code import literal
from stator.tile.interpret.casts import Data, narrow
from stator.tile.ir.core import Operation
from stator.tile.ir.types import DType, Pointer
from stator.tile.nvidia.exchange import fetch, select
from stator.tile.nvidia.places import Places, coordinates, element_at, permuted, strides, without
from stator.tile.nvidia.writer import Registers, Results, Writer, operation


@operation("constant")
def constant(w: Writer, o: Operation) -> Results:
    element = o.result.type.element
    value = o.attrs["value"]
    if not isinstance(element, Pointer) and element.is_fp8:
        value = int(_rounded(element, value).view(np.uint8))
    elif not isinstance(element, Pointer) and element.is_float and element.bits == 16:
        value = float(_rounded(element, value))
    return [[literal(register(element), value)] * w.places(o.result).count]


@operation("arange")
def arange(w: Writer, o: Operation) -> Results:
    places, start = w.places(o.result), o.attrs["start"]
    base = w.thread_bits(places.threads)
    return [[_plus(w, w.m.op("xor", "i32", base, str(each)), start) for each in places.elements]]


def _plus(w: Writer, value: str, number: int) -> str:
    return w.m.op("add nsw", "i32", value, str(number)) if number else value


@operation("program_id", "num_programs")
def grid_number(w: Writer, o: Operation) -> Results:
    name = ("ctaid" if o.op == "program_id" else "nctaid") + "." + "xyz"[o.attrs["axis"]]
    return [[w.code.call("i32", f"llvm.nvvm.read.ptx.sreg.{name}")]]


@operation("splat")
def splat(w: Writer, o: Operation) -> Results:
    (value,) = w.get(o.operands[0])
    return [[value] * w.places(o.result).count]


def view(w: Writer, o: Operation, function: Callable[[int], int]) -> Results:
    """What a linear function of the result's elements names in the operand."""
    given, have = w.get(o.operands[0]), w.places(o.operands[0])
    want = w.places(o.result).through(function, have.shape)
    return [fetch(w, o.result.type.element, given, have, want)]


@operation("reshape", "expand_dims")
def same_elements(w: Writer, o: Operation) -> Results:
    return view(w, o, lambda element: element)


@operation("broadcast")
def broadcast(w: Writer, o: Operation) -> Results:
    before, after = o.operands[0].type.shape, o.result.type.shape
    if not before:
        return splat(w, o)

    def function(element: int) -> int:
        place = coordinates(element, after)
        return element_at([0 if size == 1 else at for at, size in zip(place, before, strict=True)], before)

    return view(w, o, function)


@operation("permute")
def permute(w: Writer, o: Operation) -> Results:
    if o.result in w.are_words:
        return [w.get_words(o.operands[0])]  # a thread has what it had, in the same registers
    return view(w, o, permuted(o.attrs["order"], o.result.type.shape))


def _of_two(w: Writer, o: Operation, mask: int, function: Callable[[int], int]) -> Results:
    """A tile of two, of which a bit of the element says which one it is of."""
    places, element = w.places(o.result), o.result.type.element
    sides = []
    for operand in o.operands:
        have = w.places(operand)
        sides.append(fetch(w, element, w.get(operand), have, places.through(function, have.shape)))
    by_thread = [1 if basis & mask else 0 for basis in places.threads]
    if not any(by_thread):
        return [[sides[1 if each & mask else 0][number] for number, each in enumerate(places.elements)]]
    odd = w.m.compare("ne", "i32", w.thread_bits(by_thread), "0")
    found = []
    for number, each in enumerate(places.elements):
        first, second = (sides[1][number], sides[0][number]) if each & mask else (sides[0][number], sides[1][number])
        found.append(select(w, element, odd, second, first))
    return [found]


@operation("join")
def join(w: Writer, o: Operation) -> Results:
    return _of_two(w, o, 1, lambda element: element >> 1)


@operation("cat")
def cat(w: Writer, o: Operation) -> Results:
    half = prod(o.result.type.shape) // 2
    return _of_two(w, o, half, lambda element: element & (half - 1))


@operation("split")
def split(w: Writer, o: Operation) -> Results:
    have, given = w.places(o.operands[0]), w.get(o.operands[0])
    found = []
    for number, result in enumerate(o.results):
        plain = w.places(result).through(lambda element: element << 1, have.shape)
        want = Places(plain.shape, plain.registers, plain.lanes, plain.warps, number)
        found.append(fetch(w, result.type.element, given, have, want))
    return found


def slice_of(have: Places, axis: int) -> Places:
    """The places of what is left when an axis, whose bits no thread tells apart any more, is gone."""
    rest = (*have.shape[:axis], *have.shape[axis + 1 :])
    return have.through(without(axis, have.shape), rest)


def along(places: Places, axis: int) -> tuple[int, int]:
    """The stride and the mask of an axis in the number of an element."""
    stride = strides(places.shape)[axis]
    return stride, (places.shape[axis] - 1) * stride


def axis_place(w: Writer, places: Places, axis: int) -> Registers:
    """The coordinate along an axis, for each register."""
    stride, mask = along(places, axis)
    base = w.thread_bits([(basis & mask) // stride for basis in places.threads])
    return [w.m.op("xor", "i32", base, str((each & mask) // stride)) for each in places.elements]


def _rounded(dtype: DType, value: float) -> Data:
    return np.asarray(narrow(np.asarray(value, np.float64), dtype))
