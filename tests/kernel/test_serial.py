"""Functions do what kernels say: goldens of each kind of loop, and random kernels."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from stator.kernel.strategies import serial
from stator.kernel.text import function_text
from stator.loop.expr import cast, const, index, load, masked, op, random, reduce, scan, to_index
from stator.loop.index import Axis
from stator.loop.kernel import Kernel, Param, Store, kernel
from stator.sizes import Symbol
from tests.kernel.programs import checked, compare

Golden = Callable[[str, str], None]
X, R = Axis("x0", 12), Axis("r0", 40)


def params(*given: tuple[str, str, int]) -> tuple[Param, ...]:
    return tuple(Param(f"p{i}", dtype, role, numel) for i, (dtype, role, numel) in enumerate(given))


def softmax() -> Kernel:
    x = load("p0", X.index * 40 + R, "f32")
    raised = op("exp", op("sub", x, reduce("max", x)))
    stores = (Store("p1", X.index * 40 + R, op("div", raised, reduce("sum", raised)), "inner"),)
    return kernel((X,), (R,), stores, params(("f32", "in", 480), ("f32", "out", 480)))


def shifted() -> Kernel:
    """What lies before the beginning is 0; the mask keeps the load inside."""
    inside = op("ge", index(X), const(3, "i64"))
    value = masked(inside, cast(load("p0", X.index - 3, "bf16"), "f32"), const(0.0, "f32"))
    stores = (Store("p1", X.index, cast(op("mul", value, const(0.5, "f32")), "bf16"), "outer"),)
    return kernel((X,), (), stores, params(("bf16", "in", 9), ("bf16", "out", 12)))


def scattered() -> Kernel:
    place = to_index(load("p0", X.index, "i64"), 5)
    stores = (Store("p2", place, load("p1", X.index, "f32"), "outer", "add"),)
    return kernel((X,), (), stores, params(("i64", "in", 12), ("f32", "in", 12), ("f32", "inout", 5)))


def best() -> Kernel:
    value = reduce("argmax", load("p0", X.index * 40 + R, "f32"))
    return kernel((X,), (R,), (Store("p1", X.index, value, "outer"),), params(("f32", "in", 480), ("i64", "out", 12)))


def running() -> Kernel:
    place = X.index * 40 + R
    both = op("add", scan("sum", load("p0", place, "f64")), scan("logsumexp", load("p0", place, "f64")))
    return kernel((X,), (R,), (Store("p1", place, both, "inner"),), params(("f64", "in", 480), ("f64", "out", 480)))


def dropout() -> Kernel:
    drawn = random("uniform", load("p0", 0, "i64"), index(X))
    kept = op("lt", drawn, const(0.9, "f32"))
    return kernel((X,), (), (Store("p1", X.index, kept, "outer"),), params(("i64", "in", 1), ("bool", "out", 12)))


def symbolic() -> Kernel:
    size = Symbol("n0", 2, None, 7)
    x, r = Axis("x0", size.size), Axis("r0", size.size * 3 + 1)
    value = reduce("sum", load("p0", (x.index + r) // 2, "f32"))
    given = (Param("p0", "f32", "in", size.size * 4), Param("p1", "f32", "out", size.size))
    return kernel((x,), (r,), (Store("p1", x.index, value, "outer"),), given, (size,))


KERNELS = (softmax, shifted, scattered, best, running, dropout, symbolic)


@pytest.mark.parametrize("make", KERNELS, ids=lambda make: make.__name__)
def test_the_text_of_a_function(make: Callable[[], Kernel], golden: Golden) -> None:
    function = checked(serial(make(), make.__name__))
    golden(make.__name__, function_text(function))


def test_nothing_is_done_for_no_elements() -> None:
    x = Axis("x0", 0)
    stores = (Store("p0", x.index, const(1.0, "f32"), "outer"),)
    function = checked(serial(kernel((x,), (), stores, params(("f32", "out", 0))), "nothing"))
    assert function.body == ()


def test_reductions_of_nothing_give_what_they_start_from() -> None:
    r = Axis("r0", 0)
    parts = [reduce(kind, load("p0", X.index, "f32")) for kind in ("max", "sum", "prod")]
    stores = (Store("p1", X.index, op("add", parts[0], op("sub", parts[1], parts[2])), "outer"),)
    function = checked(serial(kernel((X,), (r,), stores, params(("f32", "in", 12), ("f32", "out", 12))), "nothing"))
    assert "add(f32(-inf)" not in function_text(function) and "add(-inf, t0)" in function_text(function)


@pytest.mark.parametrize("seed", range(60))
def test_random_kernels(seed: int) -> None:
    assert compare(seed) > 0
