"""Windows: which kernels have them, and that iterations which go together do what each would alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from stator.base.dtypes import ITEMSIZE
from stator.kernel import windows
from stator.kernel.decisions import decide
from stator.kernel.evaluate import run
from stator.kernel.ir import Function, Load, Loop, walk
from stator.kernel.parse import parse
from stator.kernel.strategies import serial, vectors
from stator.kernel.text import function_text
from stator.loop.evaluate import Memory
from stator.loop.expr import Expr, const, index, load, masked, op, reduce
from stator.loop.index import Axis, Index
from stator.loop.kernel import Kernel, Param, Store, kernel
from stator.sizes import Extent, Symbol, evaluate
from stator.targets import typical
from tests.kernel.programs import checked

CHANNELS = 20


def window(pixel: tuple[Index, Index], channel: Axis, size: Extent, border: int) -> Expr:
    """The sum over three by three pixels from this one on; what lies outside of the image is left out."""
    total = const(0.0, "f32")
    for i in range(3):
        for j in range(3):
            down, across = pixel[0] + (i - border), pixel[1] + (j - border)
            place = (down * size + across) * CHANNELS + channel.index
            factor = load("p1", Index.of(CHANNELS * (3 * i + j)) + channel.index, "f32")
            term = op("fma", load("p0", place, "f32"), factor, total)
            total = masked(inside((down, across), size), term, total)
    return total


def parameters(size: Extent, results: Extent) -> tuple[Param, ...]:
    return (
        Param("p0", "f32", "in", size * size * CHANNELS),
        Param("p1", "f32", "in", 9 * CHANNELS),
        Param("p2", "f32", "out", results * results * CHANNELS),
    )


def convolved(size: Extent, step: int, border: int, symbols: tuple[Symbol, ...] = ()) -> Kernel:
    """Windows over an image whose channels are innermost."""
    results = (size + 2 * border - 3) // step + 1
    y, x, c = Axis("x0", results), Axis("x1", results), Axis("x2", CHANNELS)
    total = window((y.index * step, x.index * step), c, size, border)
    store = Store("p2", (y.index * results + x.index) * CHANNELS + c.index, total, "outer")
    return kernel((y, x, c), (), (store,), parameters(size, results), symbols)


def pooled(size: int) -> Kernel:
    """The same, and the sum of all results of a channel."""
    c, y, x = Axis("x0", CHANNELS), Axis("r0", size - 2), Axis("r1", size - 2)
    total = window((y.index, x.index), c, size, 0)
    place = (y.index * (size - 2) + x.index) * CHANNELS + c.index
    stores = Store("p2", place, total, "inner"), Store("p3", c.index, reduce("sum", total), "outer")
    return kernel((c,), (y, x), stores, (*parameters(size, size - 2), Param("p3", "f32", "out", CHANNELS)))


def inside(positions: Sequence[Index], size: Extent) -> Expr:
    found = const(True, "bool")
    for position in positions:
        for compared, other in (("ge", 0), ("lt", size)):
            found = op("and", found, op(compared, index(position), index(Index.of(other))))
    return found


def result(function: Function, sizes: Mapping[Symbol, int] | None = None) -> bytes:
    """What it stores, of numbers whose products and sums are exact."""
    numels = {p.name: evaluate(p.numel, sizes or {}) for p in function.params}
    memories = {p.name: Memory(bytearray(ITEMSIZE[p.dtype] * numels[p.name]), 0, p.dtype) for p in function.params}
    for name in ("p0", "p1"):
        count = len(memories[name].data) // 4
        for i in range(count):
            memories[name].write(i, (7 * i % 11 - 5) / 4)
    assert run(function, memories, sizes) == 0
    return b"".join([bytes(memories[p.name].data) for p in function.params if p.role == "out"])


@pytest.mark.parametrize("border", [0, 1, 2])
@pytest.mark.parametrize("step", [1, 2])
@pytest.mark.parametrize("size", [6, 9])
def test_pixels_beside_each_other(size: int, step: int, border: int) -> None:
    made = convolved(size, step, border)
    plan = decide(made, typical("cpu"))
    assert result(checked(vectors(plan, "k"))) == result(checked(serial(made, "k")))


@pytest.mark.parametrize("border", [0, 1, 2])
@pytest.mark.parametrize("step", [1, 2])
def test_pixels_beside_each_other_of_images_of_any_size(step: int, border: int) -> None:
    """As many go together as do at the size of the first call; the others follow one by one."""
    symbol = Symbol("n0", 3, None, 10 + 3 * step)
    made = convolved(symbol.size, step, border, (symbol,))
    plan = decide(made, typical("cpu"))
    assert plan.windows is not None
    function = checked(vectors(plan, "k"))
    for size in (3, 4, 5, 6, 7, 9, 12):
        assert result(function, {symbol: size}) == result(checked(serial(made, "k")), {symbol: size})


def test_borders_of_images_of_any_size_are_asked_for_where_they_may_be() -> None:
    """Of four pixels beside each other the last alone may be the last of a row, whatever its length is."""
    symbol = Symbol("n0", 3, None, 12)
    plan = decide(convolved(symbol.size, 1, 1, (symbol,)), replace(typical("cpu"), vector_bytes=64))
    assert plan.windows is not None and plan.windows[1] == 4
    (whole,) = [s for s in walk(checked(vectors(plan, "k")).body) if isinstance(s, Loop) and s.axis.name == "x1_4"]
    columns = {repr(s.index) for s in walk(whole.body) if isinstance(s, Load) and s.memory == "p0" and s.mask is None}
    assert len(columns) == 4, "the row of the pixel itself: three of its own and one of the pixel before"


def test_what_windows_share_is_loaded_once() -> None:
    """Four pixels beside each other read six columns of three rows, and nine factors."""
    plan = decide(convolved(10, 1, 0), replace(typical("cpu"), vector_bytes=64))
    assert plan.windows is not None and plan.windows[1] == 4
    loads = [s.memory for s in walk(checked(vectors(plan, "k")).body) if isinstance(s, Load)]
    assert (loads.count("p0"), loads.count("p1")) == (18, 9)


@pytest.mark.parametrize("size", [6, 9, 12])
def test_sums_of_windows(size: int) -> None:
    """Pixels beside each other are added up first."""
    made = pooled(size)
    plan = decide(made, typical("cpu"))
    assert plan.windows is not None and plan.windows[0].name == "r1"
    assert result(checked(vectors(plan, "k"))) == result(checked(serial(made, "k")))


def test_windows_that_share_little_are_apart() -> None:
    """Steps as long as windows."""
    assert decide(convolved(12, 3, 0), typical("cpu")).windows is None


def test_what_is_known_is_taken_out() -> None:
    """A border asks where it may be, at no pixel inside of it."""
    text = """def k(p0: In[f32, 8], p1: Out[f32, 8]):
    for x in range(8):
        i: i32 = index(x + 1)
        low: bool = ge(i, i32(0))
        high: bool = lt(i, i32(8))
        both: bool = and_(low, high)
        never: bool = lt(i, i32(1))
        a: f32 = p0[x] if low else 0
        b: f32 = p0[x + 1] if both else 0
        c: f32 = p0[x] if never else 0
        d: f32 = where(low, a, b)
        e: f32 = add(d, c)
        p1[x] = e
"""
    after = function_text(checked(windows.shared(windows.proved(parse(text)))))
    assert [line.strip() for line in after.splitlines()[2:]] == [
        "i: i32 = index(x + 1)",
        "high: bool = lt(i, i32(8))",
        "a: f32 = p0[x]",
        "b: f32 = p0[x + 1] if high else 0",
        "e: f32 = add(a, 0.0)",
        "p1[x] = e",
    ]
