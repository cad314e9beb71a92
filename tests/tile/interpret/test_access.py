"""Loads, stores and atomics: every dtype, shape and mask; and accesses outside of memory, which are never a crash."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from stator.tile.errors import InterpreterError
from stator.tile.interpret.compute import Fault
from stator.tile.interpret.memory import Memory
from stator.tile.interpret.run import run
from stator.tile.ir.build import IRBuilder, new_function
from stator.tile.ir.core import Location, Module, Value
from stator.tile.ir.types import DTYPES, I32, Pointer, Type
from stator.tile.ir.verify import verify
from tests.tile.interpret.cases import EVERY, FLOATS, INTEGERS, Data, draw, numbers_of, places_of, wrapped

SHAPES = [(), (24,), (4, 6)]


def launch(
    arrays: Sequence[tuple[str, Data]],
    body: Callable[..., None],
    grid: tuple[int, ...] = (1,),
    numbers: Sequence[tuple[str, int]] = (),
) -> None:
    """Runs a body, which gets a builder, a pointer to each array, and numbers."""
    module, memory = Module(), Memory()
    params = {f"p{i}": Type(Pointer(DTYPES[name])) for i, (name, _) in enumerate(arrays)}
    params |= {f"n{i}": Type(DTYPES[name]) for i, (name, _) in enumerate(numbers)}
    function, builder = new_function(module, "main", params, location=Location("kernel.py", 1))
    body(builder, *function.params)
    builder.emit("return")
    verify(module)
    given = [memory.add_array(array, f"p{i}") for i, (_, array) in enumerate(arrays)]
    run(module, "main", [*given, *[number for _, number in numbers]], memory, grid)


def tile(builder: IRBuilder, pointer: Value, shape: tuple[int, ...]) -> Value:
    """What lies at a pointer, as a tile."""
    return builder.emit("load", [places_of(builder, pointer, shape)])[0]


@pytest.mark.parametrize("way", ["plain", "masked", "other"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", EVERY)
def test_loads(dtype: str, shape: tuple[int, ...], way: str) -> None:
    data, other, mask = draw(dtype, shape, "data"), draw(dtype, shape, "other"), draw("i1", shape, way)
    found = np.zeros_like(data)

    def body(builder: IRBuilder, source: Value, second: Value, flags: Value, target: Value) -> None:
        more = [] if way == "plain" else [tile(builder, flags, shape)]
        more += [tile(builder, second, shape)] if way == "other" else []
        (loaded,) = builder.emit("load", [places_of(builder, source, shape), *more])
        builder.emit("store", [places_of(builder, target, shape), loaded])

    launch([(dtype, data), (dtype, other), ("i1", mask), (dtype, found)], body)
    elsewhere = other if way == "other" else np.zeros_like(data)
    wanted = [d if m or way == "plain" else o for d, o, m in zip(data.flat, elsewhere.flat, mask.flat, strict=True)]
    assert [item.tobytes() for item in found.flat] == [item.tobytes() for item in wanted]


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", EVERY)
def test_stores(dtype: str, shape: tuple[int, ...], masked: bool) -> None:
    data, target, mask = draw(dtype, shape, "data"), draw(dtype, shape, "before"), draw("i1", shape, "mask")
    wanted = [d if m or not masked else t for d, t, m in zip(data.flat, target.flat.copy(), mask.flat, strict=True)]

    def body(builder: IRBuilder, source: Value, flags: Value, place: Value) -> None:
        more = [tile(builder, flags, shape)] if masked else []
        builder.emit("store", [places_of(builder, place, shape), tile(builder, source, shape), *more])

    launch([(dtype, data), ("i1", mask), (dtype, target)], body)
    assert [item.tobytes() for item in target.flat] == [item.tobytes() for item in wanted]


@pytest.mark.parametrize("offset", ["i8", "u8", "i32", "u32", "i64"])
@pytest.mark.parametrize("dtype", ["i8", "f16", "f64"])
def test_offsets_are_elements(dtype: str, offset: str) -> None:
    data, steps, found = draw(dtype, (64,), "data"), np.arange(20, dtype=DTYPES[offset].numpy) * 3, np.zeros(20)
    found = found.astype(data.dtype)

    def body(builder: IRBuilder, source: Value, by: Value, target: Value) -> None:
        (spread,) = builder.emit("splat", [source], {"shape": (20,)})
        (places,) = builder.emit("addptr", [spread, tile(builder, by, (20,))])
        builder.emit("store", [places_of(builder, target, (20,)), builder.emit("load", [places])[0]])

    launch([(dtype, data), (offset, steps), (dtype, found)], body)
    assert found.tobytes() == data[::3][:20].tobytes()


ATOMICS: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda old, new: old + new, "max": max, "min": min, "and": lambda old, new: old & new,
    "or": lambda old, new: old | new, "xor": lambda old, new: old ^ new, "xchg": lambda old, new: new,
}  # fmt: skip
WIDE = [name for name in [*INTEGERS, *FLOATS] if DTYPES[name].bits >= 16]


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("places", [1, 5, 24])
@pytest.mark.parametrize(
    ("kind", "dtype"),
    [(k, d) for k in ATOMICS for d in WIDE if not DTYPES[d].is_float or k not in ("and", "or", "xor")],
)
def test_atomics(kind: str, dtype: str, places: int, masked: bool) -> None:
    """So many places for 24 elements: each sees what those before it did."""
    data = draw(dtype, (24,), kind, special=False)
    if DTYPES[dtype].is_float:
        data = np.round(np.clip(data.astype(np.float64), -16, 16)).astype(data.dtype)  # of which sums are exact
    target, index, mask = data[:places][::-1].copy(), np.arange(24, dtype=np.int32) % places, draw("i1", (24,), kind)
    memory, wanted = numbers_of(dtype, target), []
    for place, new, flag in zip(index.tolist(), numbers_of(dtype, data), mask, strict=True):
        wanted.append(memory[place] if flag or not masked else 0)
        if flag or not masked:
            made = ATOMICS[kind](memory[place], new)
            memory[place] = made if DTYPES[dtype].is_float else wrapped(made, DTYPES[dtype])
    found = np.zeros_like(data)

    def body(builder: IRBuilder, base: Value, values: Value, by: Value, flags: Value, before: Value) -> None:
        (spread,) = builder.emit("splat", [base], {"shape": (24,)})
        (where,) = builder.emit("addptr", [spread, tile(builder, by, (24,))])
        more = [tile(builder, flags, (24,))] if masked else []
        (old,) = builder.emit("atomic_rmw", [where, tile(builder, values, (24,)), *more], {"kind": kind})
        builder.emit("store", [places_of(builder, before, (24,)), old])

    launch([(dtype, target), (dtype, data), ("i32", index), ("i1", mask), (dtype, found)], body)
    assert numbers_of(dtype, target) == memory and numbers_of(dtype, found) == wanted


@pytest.mark.parametrize("dtype", WIDE)
def test_compare_and_swap(dtype: str) -> None:
    """All go to one place: the first of those that expect what is there writes, then nobody expects it any more."""
    numpy = DTYPES[dtype].numpy
    target, found = np.array([5], numpy), np.zeros(4, numpy)
    expected, new = np.array([1, 5, 5, 7], numpy), np.array([2, 7, 3, 9], numpy)

    def body(builder: IRBuilder, place: Value, old: Value, values: Value, before: Value) -> None:
        (where,) = builder.emit("splat", [place], {"shape": (4,)})
        (was,) = builder.emit("atomic_cas", [where, tile(builder, old, (4,)), tile(builder, values, (4,))])
        builder.emit("store", [places_of(builder, before, (4,)), was])

    launch([(dtype, target), (dtype, expected), (dtype, new), (dtype, found)], body)
    assert numbers_of(dtype, target) == [9] and numbers_of(dtype, found) == [5, 5, 7, 7]


def test_compare_and_swap_looks_at_bits() -> None:
    for there, expected, swapped in ((-0.0, 0.0, False), (np.nan, np.nan, True)):
        target = np.array([there], np.float32)
        arrays = [("f32", target), ("f32", np.array([expected], np.float32)), ("f32", np.array([3.0], np.float32))]
        launch(arrays, lambda b, p, e, n: b.emit("atomic_cas", [p, tile(b, e, ()), tile(b, n, ())]))
        assert (target[0] == 3.0) == swapped


def test_programs_add_up() -> None:
    total = np.zeros(1, np.int32)

    def body(builder: IRBuilder, place: Value) -> None:
        ids = [builder.emit("program_id", [], {"axis": axis})[0] for axis in range(3)]
        sizes = [builder.emit("num_programs", [], {"axis": axis})[0] for axis in range(3)]
        (row,) = builder.emit("mul", [ids[2], sizes[1]])
        (row,) = builder.emit("add", [row, ids[1]])
        (row,) = builder.emit("mul", [row, sizes[0]])
        (number,) = builder.emit("add", [row, ids[0]])
        builder.emit("atomic_rmw", [place, number], {"kind": "add"})

    launch([("i32", total)], body, grid=(2, 3, 4))
    assert total.item() == sum(range(24))


# ---- faults


def shifted(op: str, by: int) -> Callable[..., None]:
    """An access of one element, so many elements behind a pointer."""

    def body(builder: IRBuilder, pointer: Value) -> None:
        (offset,) = builder.emit("constant", [], {"value": by, "type": Type(I32)})
        (place,) = builder.emit("addptr", [pointer, offset])
        (value,) = builder.emit("constant", [], {"value": 1, "type": Type(I32)})
        operands: dict[str, list[Value]] = {
            "load": [place], "store": [place, value], "atomic_rmw": [place, value], "atomic_cas": [place, value, value],
        }  # fmt: skip
        attrs = {"kind": "add"} if op == "atomic_rmw" else {}
        builder.emit(op, operands[op], attrs, location=Location("kernel.py", 7, 4))

    return body


WHERE = [(10, "0 bytes behind p0, which has 40"), (25, "60 bytes behind p0"), (-1, "4 bytes before p0")]


@pytest.mark.parametrize(("by", "where"), WHERE)
@pytest.mark.parametrize(
    ("op", "what"), [("load", "load"), ("store", "store"), ("atomic_rmw", "atomic add"), ("atomic_cas", "atomic cas")]
)
def test_outside_of_memory(op: str, what: str, by: int, where: str) -> None:
    with pytest.raises(InterpreterError) as raised:
        launch([("i32", np.zeros(10, np.int32))], shifted(op, by))
    text = str(raised.value)
    assert f"{what} of 4 bytes outside of the memory of all arguments, {where}" in text
    assert "in program (0, 0, 0)" in text and "kernel.py:7, in main" in text


@pytest.mark.parametrize("op", ["load", "store", "atomic_rmw", "atomic_cas"])
@pytest.mark.parametrize("by", [0, 9])
def test_the_ends_of_memory_are_inside(op: str, by: int) -> None:
    launch([("i32", np.zeros(10, np.int32))], shifted(op, by))


def test_the_program_is_named() -> None:
    def body(builder: IRBuilder, pointer: Value) -> None:
        (number,) = builder.emit("program_id", [], {"axis": 1})
        builder.emit("load", [builder.emit("addptr", [pointer, number])[0]])

    with pytest.raises(InterpreterError, match=r"in program \(0, 3, 0\)"):
        launch([("i32", np.zeros(3, np.int32))], body, grid=(1, 5))


def test_masked_places_may_be_anywhere() -> None:
    data, mask = np.arange(8, dtype=np.int32), np.arange(16) < 8
    found = np.zeros(16, np.int32)

    def body(builder: IRBuilder, source: Value, flags: Value, target: Value) -> None:
        keep = tile(builder, flags, (16,))
        (loaded,) = builder.emit("load", [places_of(builder, source, (16,)), keep])
        builder.emit("store", [places_of(builder, target, (16,)), loaded])

    launch([("i32", data), ("i1", mask), ("i32", found)], body)
    assert found.tolist() == [*range(8), *[0] * 8]


@pytest.mark.parametrize(("dtype", "by"), [("i16", 1), ("i32", 2), ("f64", 4), ("f64", 1)])
def test_places_are_multiples_of_the_size(dtype: str, by: int) -> None:
    def body(builder: IRBuilder, pointer: Value) -> None:
        (offset,) = builder.emit("constant", [], {"value": by, "type": Type(I32)})
        (place,) = builder.emit("addptr", [pointer, offset])
        builder.emit("load", [builder.emit("bitcast", [place], {"dtype": Pointer(DTYPES[dtype])})[0]])

    size = DTYPES[dtype].itemsize
    with pytest.raises(InterpreterError, match=f"load of {size} bytes at byte {by} of p0: no multiple of {size}"):
        launch([("i8", np.zeros(64, np.int8))], body)


@pytest.mark.parametrize("address", [0, 8, -8, 2**62])
def test_any_number_may_be_taken_for_a_pointer(address: int) -> None:
    def body(builder: IRBuilder, pointer: Value) -> None:
        (number,) = builder.emit("constant", [], {"value": address, "type": Type(DTYPES["i64"])})
        builder.emit("load", [builder.emit("int_to_ptr", [number], {"dtype": Pointer(I32)})[0]])

    with pytest.raises(InterpreterError, match="outside of the memory of all arguments"):
        launch([("i32", np.zeros(4, np.int32))], body)


@pytest.mark.parametrize(("op", "wanted"), [("lt", True), ("gt", False), ("eq", False), ("ne", True), ("le", True)])
def test_addresses_have_no_sign(op: str, wanted: bool) -> None:
    addresses, found = np.array([4096, -4096]), np.zeros(1, np.bool_)

    def body(builder: IRBuilder, numbers: Value, place: Value) -> None:
        (pointers,) = builder.emit("int_to_ptr", [tile(builder, numbers, (2,))], {"dtype": Pointer(I32)})
        builder.emit("store", [place, builder.emit(op, builder.emit("split", [pointers]))[0]])

    launch([("i64", addresses), ("i1", found)], body)
    assert found.item() is wanted


def test_pointers_lie_in_memory() -> None:
    """A list of pointers, as grouped products take one."""
    first, second, total = np.arange(4, dtype=np.int32), np.arange(10, 14, dtype=np.int32), np.zeros(1, np.int32)
    table = np.array([array.__array_interface__["data"][0] for array in (first, second)])

    def body(builder: IRBuilder, pointers: Value, place: Value, *_: Value) -> None:
        (casted,) = builder.emit("bitcast", [pointers], {"dtype": Pointer(Pointer(I32))})
        (rows,) = builder.emit("load", [places_of(builder, casted, (2,))])
        (values,) = builder.emit("load", [rows])
        region = builder.region([Type(I32)] * 2, lambda a, b: builder.emit("add", [a, b]))
        builder.emit("store", [place, builder.emit("reduce", [values], {"axis": 0}, [region])[0]])

    launch([("i64", table), ("i32", total), ("i32", first), ("i32", second)], body)
    assert total.item() == 10


# ---- allocations


def test_allocations_that_overlap_are_one() -> None:
    memory = Memory()
    for address, size, name in (
        (100, 50, "a"),
        (300, 10, "b"),
        (120, 10, "c"),
        (140, 60, "d"),
        (0, 5, "e"),
        (5, 0, "f"),
    ):
        memory.add(address, size, name)
    memory.add(310, 0, "g")
    memory.add(300, 10, "b")
    assert [(a.address, a.size, a.names) for a in memory.allocations] == [
        (0, 5, ["e"]), (100, 100, ["a", "c", "d"]), (300, 10, ["b"]),
    ]  # fmt: skip


@pytest.mark.parametrize("skipped", range(9))
def test_an_allocation_may_begin_anywhere(skipped: int) -> None:
    data = np.arange(16, dtype=np.int32)
    memory = Memory()
    base = data.__array_interface__["data"][0]
    memory.add(base + skipped, data.nbytes - skipped, "data")
    inside = np.arange(-(-skipped // 4), 16)
    assert memory.read(base + 4 * inside, np.dtype(np.int32)).tolist() == inside.tolist()
    memory.write(base + 4 * inside, np.full(len(inside), -1, np.int32))
    assert (data == -1).tolist() == [place in inside for place in range(16)]
    if skipped:
        with pytest.raises(Fault, match="bytes before data"):
            memory.read(np.array([base]), np.dtype(np.int32))


def test_the_first_place_that_is_outside_is_named() -> None:
    data = np.zeros(4, np.int32)
    memory = Memory()
    base = memory.add_array(data, "data")
    with pytest.raises(Fault, match=r"4 bytes behind data, which has 16 \(one of 3 such places\)"):
        memory.read(base + 4 * np.array([0, 5, 1, 9, 4]), np.dtype(np.int32))
    with pytest.raises(Fault, match=r"0 bytes behind data, which has 16$"):
        memory.read(base + 4 * np.array([0, 4]), np.dtype(np.int32))


def test_elements_of_several_allocations() -> None:
    arrays = [np.arange(i, i + 4, dtype=np.int32) for i in (0, 10, 20)]
    memory = Memory()
    bases = np.array([memory.add_array(array, str(i)) for i, array in enumerate(arrays)])
    places = np.concatenate([bases + 4 * k for k in range(4)])
    assert memory.read(places, np.dtype(np.int32)).tolist() == [i + k for k in range(4) for i in (0, 10, 20)]
    memory.write(places, -np.arange(12, dtype=np.int32))
    assert [array.tolist() for array in arrays] == [[-i, -i - 3, -i - 6, -i - 9] for i in range(3)]
    assert memory.read(np.zeros((0, 3), np.int64), np.dtype(np.int32)).shape == (0, 3)


def test_memory_without_allocations() -> None:
    with pytest.raises(InterpreterError, match="the kernel was given no memory"):
        launch(
            [], lambda b, n: b.emit("load", [b.emit("int_to_ptr", [n], {"dtype": Pointer(I32)})[0]]), (1,), [("i64", 4)]
        )
