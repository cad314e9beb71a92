"""Operators that move the elements of tiles, or combine them along an axis, against numpy and Python's loops."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from stator.tile.errors import InterpreterError
from stator.tile.interpret.memory import Memory
from stator.tile.interpret.run import run
from stator.tile.ir.build import new_function
from stator.tile.ir.core import Module
from stator.tile.ir.types import DTYPES, F32, I32, Pointer, Type
from stator.tile.ir.verify import verify
from tests.tile.interpret.cases import EVERY, FLOATS, INTEGERS, Case, Data, draw, numbers_of, places_of, wrapped

#: Operator, shapes of its operands, attributes → the same in numpy.
MOVES: list[tuple[str, list[tuple[int, ...]], dict[str, Any], Callable[..., Data]]] = [
    ("splat", [()], {"shape": (3, 5)}, lambda a: np.full((3, 5), a)),
    ("splat", [()], {"shape": (1,)}, lambda a: np.full((1,), a)),
    ("broadcast", [(1, 8)], {"shape": (4, 8)}, lambda a: np.concatenate([a] * 4)),
    ("broadcast", [(4, 1)], {"shape": (4, 8)}, lambda a: np.repeat(a, 8, 1)),
    ("broadcast", [(1, 1, 2)], {"shape": (3, 2, 2)}, lambda a: np.tile(a, (3, 2, 1))),
    ("reshape", [(4, 6)], {"shape": (3, 8)}, lambda a: a.reshape(3, 8)),
    ("reshape", [(8,)], {"shape": (2, 2, 2), "reorder": True}, lambda a: a.reshape(2, 2, 2)),
    ("permute", [(4, 6)], {"order": (1, 0)}, lambda a: a.T),
    ("permute", [(2, 3, 4)], {"order": (2, 0, 1)}, lambda a: np.moveaxis(a, 2, 0)),
    ("expand_dims", [(5,)], {"axis": 0}, lambda a: a[None]),
    ("expand_dims", [(4, 2)], {"axis": 2}, lambda a: a[..., None]),
    ("join", [(4,), (4,)], {}, lambda a, b: np.array(list(zip(a, b, strict=True)), a.dtype)),
    ("join", [(), ()], {}, lambda a, b: np.array([a, b], a.dtype)),
    ("cat", [(4,), (8,)], {}, lambda a, b: np.append(a, b)),
    ("cat", [(1, 3), (2, 3)], {"reorder": True}, lambda a, b: np.vstack([a, b])),
]


@pytest.mark.parametrize("dtype", ["i1", "i8", "u16", "i32", "i64", "f8e5", "bf16", "f32", "f64"])
@pytest.mark.parametrize(("op", "shapes", "attrs", "wanted"), MOVES, ids=[f"{m[0]}-{i}" for i, m in enumerate(MOVES)])
def test_moves(
    op: str, shapes: list[tuple[int, ...]], attrs: dict[str, Any], wanted: Callable[..., Data], dtype: str
) -> None:
    operands = [draw(dtype, shape, f"{op}{i}") for i, shape in enumerate(shapes)]
    (found,) = Case(op, tuple([(dtype, data) for data in operands]), attrs).run()
    expected = wanted(*operands)
    assert found.shape == expected.shape and found.tobytes() == expected.tobytes()


@pytest.mark.parametrize("dtype", ["i1", "u8", "f16", "f64"])
@pytest.mark.parametrize("shape", [(2,), (8, 2), (2, 3, 2)], ids=str)
def test_split(dtype: str, shape: tuple[int, ...]) -> None:
    data = draw(dtype, shape, "split")
    first, second = Case("split", ((dtype, data),)).run()
    assert first.tobytes() == data[..., 0].tobytes() and second.tobytes() == data[..., 1].tobytes()


@pytest.mark.parametrize(("start", "end"), [(0, 16), (-3, 5), (7, 8)])
def test_arange(start: int, end: int) -> None:
    (found,) = Case("arange", (), {"start": start, "end": end}).run()
    assert found.dtype == np.int32 and found.tolist() == list(range(start, end))


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("shape", [(), (4,), (2, 3)], ids=str)
def test_constant(name: str, shape: tuple[int, ...]) -> None:
    dtype = DTYPES[name]
    for value in [True] if dtype.is_bool else [-1.5, 0.25] if dtype.is_float else [dtype.low, dtype.high, 3]:
        (found,) = Case("constant", (), {"value": value, "type": Type(dtype, shape)}).run()
        assert numbers_of(name, found) == [value] * found.size and found.shape == shape


@pytest.mark.parametrize("index", ["i8", "u8", "i32", "i64"])
@pytest.mark.parametrize("axis", [0, 1])
def test_gather(axis: int, index: str) -> None:
    source, shape = draw("f32", (4, 6), "gather"), (4, 9) if axis else (9, 6)
    places = (np.arange(np.prod(shape)) * 7 % source.shape[axis]).reshape(shape).astype(DTYPES[index].numpy)
    (found,) = Case("gather", (("f32", source), (index, places)), {"axis": axis}).run()
    for place in np.ndindex(shape):
        other = list(place)
        other[axis] = int(places[place])
        assert found[place].tobytes() == source[tuple(other)].tobytes()


@pytest.mark.parametrize("place", [-1, 4])
def test_gather_stays_inside(place: int) -> None:
    operands = ("f32", np.zeros(4, np.float32)), ("i32", np.array([0, place], np.int32))
    with pytest.raises(InterpreterError, match=f"gather takes position {place} of an axis of 4"):
        Case("gather", operands, {"axis": 0}).run()


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("dtype", INTEGERS)
def test_histogram(dtype: str, masked: bool) -> None:
    data = draw(dtype, (64,), "histogram")
    mask = draw("i1", (64,), "mask")
    operands = [(dtype, data), *([("i1", mask)] if masked else [])]
    (found,) = Case("histogram", tuple(operands), {"bins": 8}).run()
    counted = [int(n) for n, m in zip(data, mask, strict=True) if m or not masked]
    assert found.dtype == np.int32 and found.tolist() == [counted.count(b) for b in range(8)]
    assert sum(found) > 0


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("dtype", ["i1", *INTEGERS, *FLOATS])
def test_sort(dtype: str, axis: int, descending: bool) -> None:
    data = draw(dtype, (20, 4) if axis == 0 else (2, 40), "sort")
    (found,) = Case("sort", ((dtype, data),), {"axis": axis, "descending": descending}).run()
    wide = data.astype(np.float64) if DTYPES[dtype].is_float else data
    wanted = np.sort(wide, axis)
    assert np.array_equal(found.astype(wide.dtype), np.flip(wanted, axis) if descending else wanted, equal_nan=True)


def test_sort_keeps_the_order_of_equal_numbers() -> None:
    data = np.array([0.0, -0.0, 1.0] * 16, np.float32)
    (found,) = Case("sort", (("f32", data),), {"axis": 0}).run()
    assert np.signbit(found[:32]).tolist() == [False, True] * 16


#: Combination → what it does to two numbers of Python's.
FOLDS: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a + b, "mul": lambda a, b: a * b, "minimum": min, "maximum": max, "and": lambda a, b: a & b,
    "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b,
}  # fmt: skip
REDUCED = [(op, dtype) for op in FOLDS for dtype in ["i1", "i8", "i32", "i64", "u8", "u32", "u64"]] + [
    (op, dtype) for op in ("add", "mul", "minimum", "maximum") for dtype in FLOATS
]


def rows_of(data: Data, axis: int) -> Data:
    """The elements along an axis, for each place of the other axes."""
    return np.moveaxis(data, axis, -1).reshape(-1, data.shape[axis])


def folded(op: str, dtype: str, row: Data) -> list[Any]:
    """The combination of each element with those before it; that of floats in f64."""
    numbers = numbers_of(dtype, row)
    if DTYPES[dtype].is_float:
        return list(itertools.accumulate(numbers, FOLDS[op]))
    return [wrapped(int(n), DTYPES[dtype]) for n in itertools.accumulate(map(int, numbers), FOLDS[op])]


def near(dtype: str, found: list[Any], wanted: list[Any], scale: float) -> None:
    """The same integers; floats as near as rounding in every step lets them be."""
    if not DTYPES[dtype].is_float:
        assert found == wanted
        return
    unit = 2.0 ** -DTYPES[dtype].mantissa
    assert np.allclose(found, wanted, rtol=20 * unit, atol=20 * unit * scale)


def mild(op: str, dtype: str, shape: tuple[int, ...]) -> Data:
    """Numbers whose sums and products are no infinities."""
    data = draw(dtype, shape, f"along {op}", special=False)
    return (np.clip(data.astype(np.float64), -1.5, 1.5)).astype(data.dtype) if DTYPES[dtype].is_float else data


@pytest.mark.parametrize(
    ("shape", "axis"), [((16,), 0), ((4, 8), 0), ((4, 8), 1), ((3, 5, 2), 1), ((1, 4), 0)], ids=str
)
@pytest.mark.parametrize(("op", "dtype"), REDUCED)
def test_reduce(op: str, dtype: str, shape: tuple[int, ...], axis: int) -> None:
    data = mild(op, dtype, shape)
    (found,) = Case("reduce", ((dtype, data),), {"axis": axis}, op).run()
    assert found.shape == (*shape[:axis], *shape[axis + 1 :])
    wanted = [folded(op, dtype, row)[-1] for row in rows_of(data, axis)]
    near(dtype, numbers_of(dtype, found), wanted, float(np.abs(data.astype(np.float64)).sum()))


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(("shape", "axis"), [((16,), 0), ((4, 8), 1), ((3, 5, 2), 1)], ids=str)
@pytest.mark.parametrize(("op", "dtype"), [(op, d) for op, d in REDUCED if d in ("i1", "i32", "u8", "f16", "f32")])
def test_scan(op: str, dtype: str, shape: tuple[int, ...], axis: int, reverse: bool) -> None:
    data = mild(op, dtype, shape)
    (found,) = Case("scan", ((dtype, data),), {"axis": axis, "reverse": reverse}, op).run()
    for row, given in zip(rows_of(found, axis), rows_of(data, axis), strict=True):
        if reverse:
            row, given = row[::-1], given[::-1]
        wanted = folded(op, dtype, given)
        near(dtype, numbers_of(dtype, row), wanted, float(np.abs(data.astype(np.float64)).sum()))


def along(op: str, attrs: dict[str, Any], columns: list[Data], body: Callable[..., list[Any]]) -> list[Data]:
    """`reduce` or `scan` of several rows of i32 or f32, combined by a body."""
    module = Module()
    dtypes = [I32 if column.dtype == np.int32 else F32 for column in columns]
    pointers = [Type(Pointer(dtype)) for dtype in dtypes]
    names = [f"p{i}" for i in range(2 * len(columns))]
    function, builder = new_function(module, "main", dict(zip(names, pointers * 2, strict=True)))
    rows = len(columns)
    shape = columns[0].shape
    loaded = [builder.emit("load", [places_of(builder, p, shape)])[0] for p in function.params[:rows]]
    region = builder.region([Type(d) for d in dtypes] * 2, lambda *args: body(builder, args))
    results = builder.emit(op, loaded, attrs, [region])
    for pointer, value in zip(function.params[rows:], results, strict=True):
        builder.emit("store", [places_of(builder, pointer, value.type.shape), value])
    builder.emit("return")
    verify(module)
    memory = Memory()
    found = [np.zeros_like(column) if op == "scan" else np.zeros((), column.dtype) for column in columns]
    run(module, "main", [memory.add_array(array, "a") for array in [*columns, *found]], memory)
    return found


def affine(builder: Any, args: Any) -> list[Any]:
    """x → a*x + b behind x → c*x + d: associative, but not commutative."""
    a, b, c, d = args
    (slope,) = builder.emit("mul", [a, c])
    (scaled,) = builder.emit("mul", [c, b])
    return [slope, builder.emit("add", [scaled, d])[0]]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 16])
@pytest.mark.parametrize("op", ["reduce", "scan"])
def test_elements_keep_their_order(op: str, size: int) -> None:
    slopes, offsets = (np.arange(size, dtype=np.int32) * k % 5 + 1 for k in (3, 7))
    attrs = {"axis": 0}
    found = along(op, attrs, [slopes, offsets], affine)
    a, b, wanted = 1, 0, []
    for c, d in zip(slopes.tolist(), offsets.tolist(), strict=True):
        a, b = wrapped(a * c, I32), wrapped(c * b + d, I32)
        wanted.append((a, b))
    given = list(zip(*[np.atleast_1d(column).tolist() for column in found], strict=True))
    assert given == (wanted if op == "scan" else wanted[-1:])


def first_greatest(builder: Any, args: Any) -> list[Any]:
    """The greater number with its position, of two equal ones the first; by an `if`, so that places go one by one."""
    value, position, other, behind = args
    (greater,) = builder.emit("gt", [other, value])
    branches = []
    for results in ([other, behind], [value, position]):
        with builder.inside(builder.block_of([])) as block:
            builder.emit("yield", results)
        branches.append(block)
    return builder.emit("if", [greater], {}, branches)


def test_a_combination_may_decide() -> None:
    values = np.array([3, 9, 2, 9, 4, 1, 9, 0], np.float32)
    found = along("reduce", {"axis": 0}, [values, np.arange(8, dtype=np.int32)], first_greatest)
    assert [item.item() for item in found] == [9.0, 1]
    running = along("scan", {"axis": 0}, [values, np.arange(8, dtype=np.int32)], first_greatest)
    assert running[1].tolist() == [0, 1, 1, 1, 1, 1, 1, 1]
