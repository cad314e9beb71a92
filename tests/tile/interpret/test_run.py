"""Functions that run: control flow, calls, what programs print and assert, and where faults are said to be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stator.tile.errors import InterpreterError
from stator.tile.interpret.memory import Memory
from stator.tile.interpret.run import run
from stator.tile.ir.parse import parse
from stator.tile.ir.verify import verify


def launched(text: str, arrays: list[Any], *numbers: Any, grid: tuple[int, ...] = (1,)) -> None:
    """Runs `main` of a text on arrays and numbers."""
    module, memory = parse(text), Memory()
    verify(module)
    run(module, "main", [*[memory.add_array(array, f"p{i}") for i, array in enumerate(arrays)], *numbers], memory, grid)


LOOP = """\
def main(x: ptr[i32], lower: {0}, upper: {0}, step: {0}):
    v0: i32 = constant(value=0, type=i32)
    v1: i32 = constant(value=10, type=i32)
    v5: i32 = for_(lower, upper, step, v0)
    def body(i: {0}, total: i32):
        v2: i32 = mul(total, v1)
        v3: i32 = cast(i, dtype=i32)
        v4: i32 = add(v2, v3)
        yield_(v4)
    store(x, v5)
    return_()
"""


@pytest.mark.parametrize("dtype", ["i32", "i64", "u8"])
@pytest.mark.parametrize(
    ("bounds", "wanted"),
    [((1, 5, 1), 1234), ((1, 6, 2), 135), ((3, 3, 1), 0), ((5, 1, 1), 0)],
)
def test_for(bounds: tuple[int, int, int], wanted: int, dtype: str) -> None:
    x = np.zeros(1, np.int32)
    launched(LOOP.format(dtype), [x], *bounds)
    assert x.item() == wanted


def test_for_goes_down() -> None:
    x = np.zeros(1, np.int32)
    launched(LOOP.format("i32"), [x], 4, 0, -1)
    assert x.item() == 4321


def test_for_with_a_step_of_0() -> None:
    with pytest.raises(InterpreterError, match="the step of a loop is 0"):
        launched(LOOP.format("i32"), [np.zeros(1, np.int32)], 0, 4, 0)


def test_while_gives_what_its_test_gave() -> None:
    """The steps of Collatz, and the number at which the loop ended."""
    x = np.zeros(2, np.int32)
    text = """\
def main(x: ptr[i32], y: ptr[i32], n: i32):
    zero: i32 = constant(value=0, type=i32)
    one: i32 = constant(value=1, type=i32)
    two: i32 = constant(value=2, type=i32)
    three: i32 = constant(value=3, type=i32)
    last, steps = while_(n, zero)
    def test(a: i32, count: i32):
        more: i1 = gt(a, one)
        condition(more, a, count)
    def body(b: i32, done: i32):
        half: i32 = idiv(b, two)
        odd: i32 = rem(b, two)
        is_odd: i1 = ne(odd, zero)
        following: i32 = if_(is_odd)
        def then():
            tripled: i32 = mul(b, three)
            more_by_one: i32 = add(tripled, one)
            yield_(more_by_one)
        def otherwise():
            yield_(half)
        now: i32 = add(done, one)
        yield_(following, now)
    store(x, last)
    store(y, steps)
    return_()
"""
    second = np.zeros(1, np.int32)
    launched(text, [x, second], 27)
    assert x[0] == 1 and second.item() == 111


CALLS = """\
def twice(a: i32) -> (i32, i32):
    v0: i32 = add(a, a)
    return_(v0, a)

def main(x: ptr[i32], n: i32):
    v0, v1 = call(n, callee='twice', types=(i32, i32))
    v2, v3 = call(v0, callee='twice', types=(i32, i32))
    v4: i32 = sub(v2, v1)
    store(x, v4)
    return_()
"""


def test_calls() -> None:
    x = np.zeros(1, np.int32)
    launched(CALLS, [x], 5)
    assert x.item() == 15


def test_calls_without_end() -> None:
    """The verifier refuses them; who runs what was not verified is told as well."""
    text = "def main(x: ptr[i32]):\n    call(x, callee='main', types=())\n    return_()\n"
    with pytest.raises(InterpreterError, match="main calls itself without end"):
        run(parse(text), "main", [0], Memory())


def test_the_grid_goes_row_by_row() -> None:
    x = np.zeros(6, np.int32)
    text = """\
def main(x: ptr[i32], count: ptr[i32]):
    i: i32 = program_id(axis=0)
    j: i32 = program_id(axis=1)
    width: i32 = num_programs(axis=0)
    row: i32 = mul(j, width)
    place: i32 = add(row, i)
    one: i32 = constant(value=1, type=i32)
    turn: i32 = atomic_rmw(count, one, kind='add')
    at: ptr[i32] = addptr(x, place)
    store(at, turn)
    return_()
"""
    launched(text, [x, np.zeros(1, np.int32)], grid=(3, 2))
    assert x.tolist() == [0, 1, 2, 3, 4, 5]


def test_prints(capsys: pytest.CaptureFixture[str]) -> None:
    text = """\
def main(x: ptr[i32], n: i32):
    v0: i32[3] = arange(start=0, end=3)
    v1: f16 = constant(value=1.5, type=f16)
    v2: i32[2] = constant(value=-1, type=i32[2])
    print(v0, v1, prefix='values: ')
    print(v2, v1, prefix='bits ', hex=True)
    print(prefix='here')
    v4: i64 = constant(value=4096, type=i64)
    v3: ptr[i32] = int_to_ptr(v4, dtype=ptr[i32])
    print(v3, prefix='at ')
    return_()
"""
    launched(text, [np.zeros(1, np.int32)], 0, grid=(1, 2))
    lines = capsys.readouterr().out.splitlines()
    wanted = ["values: [0 1 2]", "values: 1.5", "bits [0xffffffff 0xffffffff]", "bits 0x3e00", "here"]
    wanted.append("at 0x0000000000001000")
    assert lines == [f"pid (0, {j}, 0) {line}" for j in range(2) for line in wanted]


CHECK = """\
def main(n: i32):
    v0: i32[4] = arange(start=0, end=4)
    v1: i32[4] = splat(n, shape=(4,))
    v2: i1[4] = lt(v0, v1)
    {}
    v3: i32 = constant(value=2, type=i32)
    v4: i1 = gt(n, v3)
    {}
    return_()
"""


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("assert_({}, message='too few')", "assertion failed{}: too few"),
        ("assume({})", "an assumption does not hold{}"),
    ],
)
def test_conditions(row: str, message: str) -> None:
    tile, scalar = CHECK.format(row.format("v2"), "barrier()"), CHECK.format("barrier()", row.format("v4"))
    launched(tile, [], 4)
    launched(scalar, [], 3)
    for text, where in ((tile, r" at \(2,\)"), (scalar, "")):
        with pytest.raises(InterpreterError, match=message.format(where) + r", in program \(0, 0, 0\)"):
            launched(text, [], 2)


def test_a_fault_shows_the_line(tmp_path: Path) -> None:
    kernel = tmp_path / "kernel.py"
    kernel.write_text("def k(x):\n    y = 1\n    z = load(x)\n", encoding="utf-8")
    text = f"""\
def inner(x: ptr[i32]) -> i32:
    v0: i32 = load(x, at='{kernel}:3:8')
    return_(v0)

def main(x: ptr[i32]):
    v0: i32 = call(x, callee='inner', types=(i32,), at='{kernel}:2:4')
    return_()
"""
    with pytest.raises(InterpreterError) as raised:
        run(parse(text), "main", [64], Memory())
    lines = str(raised.value).splitlines()
    assert lines[1:] == [f"  at {kernel}:3, in inner", "    z = load(x)", "        ^"]


def test_a_fault_without_a_place() -> None:
    with pytest.raises(InterpreterError) as raised:
        run(parse("def main(x: ptr[i32]):\n    v0: i32 = load(x)\n    return_()\n"), "main", [64], Memory(), (1, 1, 1))
    assert raised.value.place is None and "in program (0, 0, 0)" in str(raised.value)


def test_assembly_is_refused() -> None:
    text = """\
def main(n: i32):
    v0: i32 = inline_asm(n, asm='mov', constraints='=r,r', dtypes=(i32,), pack=1)
    return_()
"""
    with pytest.raises(InterpreterError, match="inline assembly has no meaning without the target's own instructions"):
        launched(text, [], 1)


def test_arguments_are_counted() -> None:
    with pytest.raises(ValueError, match="main takes 2 arguments, not 1"):
        run(parse(CALLS), "main", [0], Memory())


@pytest.mark.parametrize(
    ("dtype", "value"),
    [("i1", True), ("i8", -128), ("u64", 2**64 - 1), ("f16", 0.5), ("bf16", -3.0), ("f8e5", 1.5), ("f64", 1e300)],
)
def test_arguments(dtype: str, value: Any) -> None:
    text = f"def main(x: ptr[{dtype}], n: {dtype}):\n    store(x, n)\n    return_()\n"
    from_text = parse(text).functions["main"].params[1].type.element
    x = np.zeros(1, from_text.numpy)
    launched(text, [x], value)
    assert x.item() == value


def test_a_region_sees_what_is_around_it() -> None:
    x = np.zeros(1, np.int32)
    text = """\
def main(x: ptr[i32], n: i32):
    v0: i32[4] = arange(start=1, end=5)
    v1: i32 = reduce(v0, axis=0)
    def combine(a: i32, b: i32):
        c: i32 = mul(a, n)
        d: i32 = add(c, b)
        yield_(d)
    store(x, v1)
    return_()
"""
    launched(text, [x], 10)
    assert x.item() == (1 * 10 + 2) * 10 + (3 * 10 + 4)
