"""The cases on which everything that runs tile IR agrees: each operator that computes, on all that it takes.

What an operator takes is asked of its rule, so a new operator or dtype has cases at once. The interpreter is the
reference: its own tests hold it against torch and Python's numbers. Loads, stores and atomics, which need masks and
places, and control flow are in the random programs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from stator.tile.ir.build import complete
from stator.tile.ir.externs import EXTERNS
from stator.tile.ir.operators import OPERATORS
from stator.tile.ir.rules import FORMATS, TypeRule
from stator.tile.ir.types import DTYPES, Type
from tests.tile.interpret.cases import EVERY, FLOATS, FP8, INTEGERS, NUMBERS, Case, Data, draw

#: Shapes of elementwise operands: a scalar, rows of powers of two and others, and a matrix.
SHAPES: list[tuple[int, ...]] = [(), (32,), (24,), (4, 8)]
#: Elementwise operators whose operands are not all of one type, or whose attributes are required.
_SPECIAL = {"select", "cast", "bitcast", "int_to_ptr", "ptr_to_int", "addptr", "extern"}
#: Attributes that have several values worth a case.
_VARIANTS: dict[str, list[dict[str, Any]]] = {
    name: [{"nan": "number"}, {"nan": "propagate"}] for name in ("minimum", "maximum", "clamp")
}


def takes(op: str, types: list[Type], attrs: Mapping[str, Any]) -> bool:
    """Whether the rule of an operator accepts operands."""
    try:
        OPERATORS[op].rule(types, complete(op, attrs), ())
    except TypeRule:
        return False
    return True


def drawn(op: str, names: list[str], shapes: list[tuple[int, ...]], **attrs: Any) -> Case:
    """A case on numbers of these dtypes and shapes."""
    operands = [
        (name, draw(name, shape, f"{op}{i}")) for i, (name, shape) in enumerate(zip(names, shapes, strict=True))
    ]
    return Case(op, tuple(operands), attrs)


def mild(op: str, names: list[str], shapes: list[tuple[int, ...]], combine: str = "", **attrs: Any) -> Case:
    """The same on numbers of which sums and products are finite."""
    operands = []
    for i, (name, shape) in enumerate(zip(names, shapes, strict=True)):
        data = draw(name, shape, f"{op}{i}", special=False)
        if DTYPES[name].is_float and name != "f8e4b15":
            data = np.clip(data.astype(np.float32), -2, 2).astype(data.dtype)
        operands.append((name, data))
    return Case(op, tuple(operands), attrs, combine)


def elementwise() -> Iterator[Case]:
    """Operators of operands of one type."""
    for op, operator in OPERATORS.items():
        if not operator.elementwise or op in _SPECIAL:
            continue
        for name in EVERY:
            for count in (1, 2, 3):
                if takes(op, [Type(DTYPES[name])] * count, {}):
                    for attrs in _VARIANTS.get(op, [{}]):
                        yield from (drawn(op, [name] * count, [shape] * count, **attrs) for shape in SHAPES)


def special() -> Iterator[Case]:
    """The other elementwise operators."""
    for name in EVERY:
        yield from (drawn("select", ["i1", name, name], [shape] * 3) for shape in SHAPES)
        for target in EVERY:
            for rounding in ("rtne", "rtz"):
                attrs = {"dtype": DTYPES[target], "rounding": rounding}
                if takes("cast", [Type(DTYPES[name])], attrs):
                    yield drawn("cast", [name], [(32,)], **attrs)
            if takes("bitcast", [Type(DTYPES[name])], {"dtype": DTYPES[target]}):
                yield drawn("bitcast", [name], [(32,)], dtype=DTYPES[target])
    for symbol, signatures in EXTERNS.items():
        for signature in signatures.split(" | "):
            words = signature.split("->")[0].split()
            for floating in ("f32", "f64") if "F" in words else ("f32",):
                names = [floating if word == "F" else word for word in words]
                yield extern(symbol, names)


def extern(symbol: str, names: list[str]) -> Case:
    """A function of libdevice; the orders and exponents of those that take some are small."""
    given = drawn("extern", names, [(32,)] * len(names), symbol=symbol)
    if symbol not in ("jn", "yn", "pow", "ldexp", "scalbn"):
        return given
    operands = [(name, data % 7 if name == "i32" else data) for name, data in given.operands]
    return Case("extern", tuple(operands), given.attrs)


def shapes() -> Iterator[Case]:
    """Operators that make tiles, and those that move their elements."""
    yield from (Case("arange", (), {"start": start, "end": end}) for start, end in ((0, 16), (-3, 5), (7, 8)))
    for name in EVERY:
        dtype = DTYPES[name]
        values = [True] if dtype.is_bool else [-1.5, 0.25] if dtype.is_float else [dtype.low, dtype.high, 3]
        for shape in SHAPES[:3]:
            yield from (Case("constant", (), {"value": value, "type": Type(dtype, shape)}) for value in values)
        yield drawn("splat", [name], [()], shape=(4, 8))
        yield drawn("broadcast", [name], [(4, 1)], shape=(4, 8))
        yield drawn("broadcast", [name], [(1, 8)], shape=(4, 8))
        yield drawn("reshape", [name], [(4, 8)], shape=(2, 16))
        yield drawn("permute", [name], [(4, 8)], order=(1, 0))
        yield drawn("permute", [name], [(2, 4, 8)], order=(2, 0, 1))
        yield from (drawn("expand_dims", [name], [(4, 8)], axis=axis) for axis in range(3))
        yield from (drawn(op, [name] * 2, [(4, 8)] * 2) for op in ("join", "cat"))
        yield drawn("split", [name], [(4, 8, 2)])
        for axis in (0, 1):
            places = np.arange(32, dtype=np.int32).reshape(4, 8) * 7 % (4, 8)[axis]
            source = draw(name, (4, 8), "gather")
            yield Case("gather", ((name, source), ("i32", places)), {"axis": axis})


def along() -> Iterator[Case]:
    """Operators that combine elements along an axis."""
    for name in NUMBERS:
        for op in ("add", "mul", "minimum", "maximum", "and", "or", "xor"):
            if not takes(op, [Type(DTYPES[name])] * 2, {}):
                continue
            for shape, axis in (((16,), 0), ((4, 8), 0), ((4, 8), 1), ((2, 5, 4), 1)):
                yield mild("reduce", [name], [shape], op, axis=axis)
                yield from (mild("scan", [name], [shape], op, axis=axis, reverse=reverse) for reverse in (False, True))
        for axis, descending in ((0, False), (1, False), (1, True)):
            yield drawn("sort", [name], [(16, 8)], axis=axis, descending=descending)
    for name in INTEGERS:
        yield drawn("histogram", [name], [(64,)], bins=8)
        yield drawn("histogram", [name, "i1"], [(64,)] * 2, bins=8)


def products() -> Iterator[Case]:
    """Products of matrices."""
    for a in EVERY:
        for b in FP8 if a in FP8 else [a]:
            for acc in ("i32", *FLOATS):
                for left, right in (((16, 16), (16, 16)), ((4, 8), (8, 2)), ((2, 8, 4), (2, 4, 8))):
                    shape = (*left[:-1], right[-1])
                    types = [Type(DTYPES[n], s) for n, s in ((a, left), (b, right), (acc, shape))]
                    if takes("dot", types, {}):
                        precisions = ("ieee", "tf32", "tf32x3", "bf16x3", "bf16x6") if a == "f32" else ("ieee",)
                        for precision in precisions:
                            yield mild("dot", [a, b, acc], [left, right, shape], precision=precision)
    for a in FORMATS:
        for b in FORMATS:
            yield scaled(a, b)


def scaled(a: str, b: str) -> Case:
    """A product of scaled matrices of 4 by 64 and 64 by 8."""
    left, right = (4, 32) if a == "e2m1" else (4, 64), (32, 8) if b == "e2m1" else (64, 8)
    names, sizes = [FORMATS[a], FORMATS[b], "f32"], [left, right, (4, 8)]
    given = mild("dot_scaled", names, sizes, format_a=a, format_b=b, scale_a=True, scale_b=True)
    scales: list[Data] = [np.arange(rows * 2, dtype=np.uint8).reshape(rows, 2) % 5 + 125 for rows in (4, 8)]
    return Case("dot_scaled", (*given.operands, *[("u8", scale) for scale in scales]), given.attrs)


def cases() -> list[Case]:
    """All of them."""
    return [*elementwise(), *special(), *shapes(), *along(), *products()]
