"""Ranges enclose what expressions come to, and are tight where positions are."""

from __future__ import annotations

import random

import pytest

from stator.loop import expr as e
from stator.loop.evaluate import Memory, _Values
from stator.loop.expr import Expr
from stator.loop.index import Axis
from stator.loop.ranges import UNKNOWN, Ranges
from stator.sizes import Symbol

i, j = Axis("i", 13), Axis("j", 7)
n = e.load("n", i.index, "i64")
f = e.load("f", i.index, "f32")


def integer(value: int) -> Expr:
    return e.const(value, "i64")


def wrapped(position: Expr, extent: int) -> Expr:
    return e.op("where", e.op("lt", position, integer(0)), e.op("add", position, integer(extent)), position)


def test_of_positions() -> None:
    ranges = Ranges()
    held = e.op("minimum", e.op("maximum", n, integer(-5)), integer(4))
    assert ranges(held) == (-5, 4)
    assert ranges(wrapped(held, 5)) == (0, 4)
    assert ranges(wrapped(e.op("minimum", e.op("maximum", n, integer(0)), integer(4)), 5)) == (0, 4)
    assert ranges(n) == UNKNOWN and ranges(f) == UNKNOWN
    assert ranges(e.op("maximum", n, integer(0))) == (0, None)
    assert ranges(e.known(n, 2, 9)) == (2, 9)
    assert ranges(e.op("mod", n, integer(6))) == (0, 5)
    assert ranges(e.op("and", n, integer(15))) == (0, 15)


def test_of_resampling() -> None:
    half = e.const(0.5, "f32")
    place = e.op("sub", e.op("mul", e.op("add", e.cast(e.index(i), "f32"), half), half), half)
    low = e.op("maximum", e.cast(e.op("floor", place), "i64"), integer(0))
    assert Ranges().within(e.op("minimum", low, integer(6)), 7)
    assert Ranges().within(low, 6) and not Ranges().within(low, 5)
    clamped = e.op("maximum", e.op("minimum", f, e.const(3.0, "f32")), e.const(0.0, "f32"))
    assert Ranges()(clamped) == UNKNOWN  # NaN stays NaN


def test_of_symbols() -> None:
    size = Symbol("s0", 2, None, 8).size
    held = e.op("minimum", e.op("maximum", n, integer(0)), e.index(size - 1))
    assert Ranges().within(held, size)
    assert not Ranges().within(held, size - 1)


def test_wrapping_is_unknown() -> None:
    assert Ranges()(e.op("add", e.op("maximum", n, integer(0)), integer(1))) == UNKNOWN
    big = e.op("mul", e.known(n, 0, 2**62), integer(4))
    assert Ranges()(big) == UNKNOWN
    assert Ranges()(e.op("add", e.cast(e.known(n, 0, 2**31 - 1), "i32"), e.const(1, "i32"))) == (-(2**31), 2**31 - 1)
    small = e.cast(n, "u8")
    chosen = e.op("ge", small, e.const(5, "u8"))
    assert Ranges()(e.op("where", chosen, e.op("add", small, e.const(250, "u8")), e.const(7, "u8"))) == (0, 255)
    part = e.cast(n, "i32")
    chosen = e.op("ge", part, e.const(5, "i32"))
    assert Ranges()(e.op("where", chosen, e.op("add", part, e.const(-5, "i32")), e.const(7, "i32"))) == (0, 2**31 - 6)


@pytest.mark.parametrize("seed", range(60))
def test_random_expressions(seed: int) -> None:
    rng = random.Random(seed)

    def number(depth: int) -> Expr:
        if depth == 0 or rng.random() < 0.1:
            return rng.choice([e.index(i), e.index(j.index * 3 - 5), integer(rng.randint(-20, 20)), e.known(n, -9, 9)])
        match rng.randrange(5):
            case 0:
                name = rng.choice(("add", "sub", "mul", "minimum", "maximum"))
                return e.op(name, number(depth - 1), number(depth - 1))
            case 1:
                return e.op(rng.choice(("floordiv", "mod")), number(depth - 1), integer(rng.randint(1, 9)))
            case 2:
                return around(number(depth - 1), "i64", 9)
            case 3:
                dtype = rng.choice(("u8", "i8"))
                return e.cast(around(e.cast(number(depth - 1), dtype), dtype, 250), "i64")
            case _:
                return e.cast(e.op(rng.choice(("floor", "ceil", "trunc")), real(depth - 1)), "i64")

    def around(value: Expr, dtype: str, most: int) -> Expr:
        limit, step = (e.const(rng.randint(-most, most), dtype) for _ in range(2))
        condition = e.op(rng.choice(("lt", "le", "gt", "ge")), value, limit)
        return e.op("where", condition, e.op("add", value, step), value)

    def real(depth: int) -> Expr:
        value = e.cast(number(depth), "f32")
        name, factor = rng.choice(("add", "sub", "mul", "minimum", "maximum")), rng.uniform(-2, 2)
        return e.op(name, value, e.const(factor, "f32"))

    value = number(4)
    low, high = Ranges()(value)
    memory = Memory(bytearray(8 * i.size), 0, "i64")
    for position in range(i.size):
        memory.write(position, rng.randint(-9, 9))
    for a in range(i.size):
        for b in range(j.size):
            found = _Values({i: a, j: b}, {"n": memory}, {})(value)
            assert (low is None or low <= found) and (high is None or found <= high)


def test_of_floats_that_underflow_or_overflow() -> None:
    tiny = e.op("mul", e.cast(e.index(i), "f32"), e.const(1e-30, "f32"))
    low, high = Ranges()(e.op("ceil", e.op("mul", tiny, e.const(1e-30, "f32"))))
    assert low <= 0 <= 1 <= high  # a product that is 0
    assert Ranges()(e.op("mul", e.cast(e.index(i), "f32"), e.const(3e38, "f32"))) == UNKNOWN


def test_positions_that_wrap_around_are_numbers() -> None:
    far = e.op("mul", e.index(i), integer(2**62))
    assert far.op == "mul" and Ranges()(far) == UNKNOWN
    assert e.op("ge", far, integer(0)).op == "ge"
    given = Symbol("k", None, None, 3).size
    product = e.op("mul", e.index(i), e.index(given))
    assert product.op == "mul" and Ranges()(product) == UNKNOWN
    assert e.op("mul", e.index(i), e.index(Symbol("s", 2, None, 8).size)).op == "index"
