"""What Python's statements and expressions mean in kernels: each kernel runs as tile IR and as its text."""

from __future__ import annotations

import math
import types
from typing import Any, NamedTuple

import numpy as np
import pytest

import stator.tile as triton
import stator.tile.language as tl

pytestmark = pytest.mark.usefixtures("way")
SIZE = tl.constexpr(4)
WIDTH: tl.constexpr = 3


def run(kernel: Any, *args: Any, grid: int = 1, size: int = 8, dtype: Any = np.int32, **meta: Any) -> list[Any]:
    """What a kernel writes to its first argument."""
    out = np.full(size, -7, dtype)
    kernel[(grid,)](out, *args, **meta)
    return out.tolist()


@triton.jit
def branches(out, n):
    i = tl.program_id(0)
    if i == 0:
        x = n * 2
        y = 1
    elif i == 1:
        x = n * 3
        y = 2
    else:
        x = n
        y = 3
    z = 10
    if n > 4 and not i == 1:
        z += x
    tl.store(out + i, x * 100 + y + z * 10000)


def test_branches_meet_in_one_value() -> None:
    assert run(branches, 5, grid=3, size=3) == [1001 + 200000, 1502 + 100000, 503 + 150000]


@triton.jit
def early(out, n):
    i = tl.program_id(0)
    tl.store(out + i, 1)
    if i >= n:
        return
    tl.store(out + i, 2)
    if i == 0:
        tl.store(out + i, 3)
        return
    else:
        tl.store(out + i, 4)
    tl.store(out + i, 5)


def test_early_return() -> None:
    assert run(early, 2, grid=3, size=3) == [3, 5, 1]


@triton.jit
def sign(x):
    if x > 0:
        return 1
    if x < 0:
        return -1
    return x


@triton.jit
def pair(x, y=5):
    if x == 2:
        return x, y
    return y, x


@triton.jit
def returns(out, n):
    tl.store(out, sign(n))
    tl.store(out + 1, sign(-n))
    tl.store(out + 2, sign(n - n))
    a, b = pair(n)
    tl.store(out + 3, a)
    tl.store(out + 4, b)
    c, d = pair(y=n + 1, x=2)
    tl.store(out + 5, c * 10 + d)


def test_functions_return_from_branches() -> None:
    assert run(returns, 2, size=6) == [1, -1, 0, 2, 5, 23]
    assert run(returns, 7, size=6) == [1, -1, 0, 5, 7, 28]


@triton.jit
def loops(out, n, step):
    total = 0
    for i in range(n):
        total += i
    tl.store(out, total)
    count = 0
    for i in range(10, 2, -step):
        count = count * 10 + i
    tl.store(out + 1, count)
    for i in tl.static_range(2, 5):
        tl.store(out + i, i * i)
    product = 1
    for i in tl.range(1, n, num_stages=2, loop_unroll_factor=1):
        for j in range(i):
            if j % 2 == 1:
                product += i * j
    tl.store(out + 5, product)


def test_for_loops() -> None:
    product = 1 + sum(i * j for i in range(1, 6) for j in range(i) if j % 2)
    assert run(loops, 6, 3, size=6) == [15, 1074, 4, 9, 16, product]
    assert run(loops, 0, 2, size=6)[0] == 0


@triton.jit
def collatz(out, n):
    steps = 0
    value = n
    while value != 1:
        if value % 2 == 0:
            value = value // 2
        else:
            value = 3 * value + 1
        steps += 1
    tl.store(out, steps)
    k = 0
    while k < 5:
        k += 2
    tl.store(out + 1, k)
    while tl.condition(k > 0, disable_licm=True):
        k -= 1
    tl.store(out + 2, k)


def test_while_loops() -> None:
    assert run(collatz, 27, size=3) == [111, 6, 0]
    assert run(collatz, 2, size=3) == [1, 6, 0]


@triton.jit
def expressions(out, n, flag: tl.constexpr, missing):
    a = n if n > 3 else 0
    b = 7 if flag else n
    c = ((n > 1) and (n < 5)) or n == 9
    d = not c
    tl.store(out, a)
    tl.store(out + 1, b)
    tl.store(out + 2, c.to(tl.int32) * 2 + d.to(tl.int32))
    tl.store(out + 3, 1 if missing is None else 2)
    x, (y, z) = 1, (n, 3)
    y, z = z, y
    tl.store(out + 4, x * 100 + y * 10 + z)
    sizes = [SIZE * 2, 4]
    block = tl.full(sizes, n, tl.int32)
    tl.static_assert(block.shape[0] == 8 and len(block.shape) == 2, f"sizes are {sizes[0]}")
    tl.store(out + 5, tl.sum(block) + WIDTH)
    tl.store(out + 6, max(n, 4) * 10 + min(n, 4, 2))
    tl.store(out + 7, [k * 2 for k in (1, 2, 3)][2] + (1, 2, 3)[-1] + n // 2 * -1 + n % 3)


def test_expressions() -> None:
    assert run(expressions, 4, True, None) == [4, 7, 2, 1, 134, 128 + 3, 42, 6 + 3 - 2 + 1]
    assert run(expressions, 9, False, 5)[:5] == [9, 9, 2, 2, 139]
    assert run(expressions, 6, False, np.zeros(1, np.int32))[:4] == [6, 6, 1, 2]


class Point(NamedTuple):
    x: Any
    y: Any


@triton.jit
def swap(p):
    return Point(p.y, p.x)


@triton.jit
def tuple_arguments(out, point, pointers, n):
    q = swap(point)
    tl.store(out, q.x * 10 + q.y)
    acc = (0, 1)
    for i in range(n):
        acc = (acc[1], acc[0] + acc[1])
    tl.store(out + 1, acc[0])
    for i in tl.static_range(len(pointers)):
        tl.store(out + 2 + i, tl.load(pointers[i]))
    if n > 3:
        q = Point(q.y, n)
    tl.store(out + 5, q.x * 100 + q.y)


def test_tuples_and_named_tuples() -> None:
    arrays = tuple(np.array([value], np.int32) for value in (11, 22, 33))
    assert run(tuple_arguments, Point(3, 4), arrays, 7, size=6) == [43, 13, 11, 22, 33, 307]
    assert run(tuple_arguments, Point(3, 1), arrays, 2, size=6) == [13, 1, 11, 22, 33, 103]


@tl._aggregate
class Counter:
    base: tl.tensor
    step: tl.constexpr

    def __init__(self, base, step):
        self.base = base
        self.step = tl.constexpr(step)

    @triton.jit
    def next(self):
        return Counter(self.base + self.step, self.step)

    @triton.jit
    def scaled(self, by):
        return self.base * by + self.step


@triton.jit
def aggregates(out, n):
    counter = Counter(n + 1, 5)
    for _ in range(3):
        counter = counter.next()
    tl.store(out, counter.base)
    tl.store(out + 1, counter.scaled(by=10))
    if n > 3:
        counter = counter.next()
    tl.store(out + 2, counter.base)


def test_aggregates_and_their_methods() -> None:
    assert run(aggregates, 4, size=3) == [20, 205, 25]
    assert run(aggregates, 2, size=3) == [18, 185, 18]


@triton.jit(noinline=True)
def apart(x, y, SCALE: tl.constexpr):
    if y > 2:
        x = x * SCALE
    return x + 1, x - 1


@triton.jit
def calls(out, n):
    a, b = apart(n, 3, 4)
    c, d = apart(n, 1, 4)
    e, f = apart(tl.arange(0, 4), 3, 2)
    tl.store(out, a * 10 + b)
    tl.store(out + 1, c * 10 + d)
    tl.store(out + 2 + tl.arange(0, 4), e * f)


def test_functions_that_are_not_inlined(way: str) -> None:
    assert run(calls, 3, size=6) == [13 * 10 + 11, 42, -1, 3, 15, 35]
    if way == "module":
        kernel = calls.warmup(np.zeros(1, np.int32), 3, grid=(1,))
        assert kernel.asm["tir"].count("noinline=True") == 3
        assert kernel.asm["tir"].count("call(") == 3


def outer(k: Any) -> Any:
    size = tl.constexpr(k)

    @triton.jit
    def inner(out):
        tl.store(out + tl.arange(0, size), size * tl.arange(0, size))

    return inner


def test_constexprs_of_functions_around_are_seen() -> None:
    assert run(outer(4), size=4) == [0, 4, 8, 12]
    assert run(outer(2), size=4) == [0, 2, -7, -7]


def test_a_constexpr_global_that_changes_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(expressions, 4, True, None)[5] == 131
    monkeypatch.setitem(globals(), "WIDTH", 5)
    assert run(expressions, 4, True, None)[5] == 133


SETTINGS = types.ModuleType("settings")
SETTINGS.FACTOR = 3  # type: ignore[attr-defined]


@triton.jit
def of_module(out):
    tl.store(out, SETTINGS.FACTOR * math.floor(2.5))


def test_a_number_of_a_module_that_changes_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(of_module, size=1) == [6]
    monkeypatch.setattr(SETTINGS, "FACTOR", 5)
    assert run(of_module, size=1) == [10]


@triton.jit
def halves(x):
    if x > 2:
        return -7
    return 7


@triton.jit
def of_branches(out, n):
    k = 7
    if n > 2:
        k = -7
    tl.store(out, k // 2)
    tl.store(out + 1, (-9 if n > 2 else 9) % 4)
    tl.store(out + 2, halves(n) // 2)


def test_numbers_that_branches_choose_divide_as_tensors_do() -> None:
    assert run(of_branches, 5, size=3) == [-3, -1, -3]
    assert run(of_branches, 1, size=3) == [3, 1, 3]


@triton.constexpr_function
def powers(n, base=2):
    return [base**k for k in range(n)]


@triton.jit
def known(out, N: tl.constexpr):
    values: tl.constexpr = powers(N)
    for i in tl.static_range(N):
        tl.store(out + i, values[i])
    tl.store(out + N, triton.cdiv(N * 10, 7) + triton.next_power_of_2(N))
    tl.store(out + N + 1, tl.cdiv(N, 2))


def test_functions_of_what_is_known() -> None:
    assert run(known, N=3, size=5) == [1, 2, 4, 5 + 4, 2]


@triton.jit
def wrapping(out, n):
    state = 1
    for _ in range(n):
        state = state * 1664525 + 1013904223
    tl.store(out, state)


def test_numbers_that_loops_change_have_a_type() -> None:
    state = 1
    for _ in range(5):
        state = (state * 1664525 + 1013904223) % 2**32
    assert run(wrapping, 5, size=1) == [state - 2**32 if state >= 2**31 else state]


@triton.jit
def add_two(a, b):
    return a + b


@triton.jit
def best(value_a, index_a, value_b, index_b):
    if value_a > value_b:
        value, index = value_a, index_a
    else:
        value, index = value_b, index_b
    return value, index


@triton.jit
def combining(out, x, N: tl.constexpr):
    i = tl.arange(0, N)
    values = tl.load(x + i)
    tl.store(out, tl.reduce(values, 0, add_two))
    value, index = tl.reduce((values, i), 0, best)
    tl.store(out + 1, value * 100 + index)
    tl.store(out + 2 + i, tl.associative_scan(values, 0, add_two, reverse=True))


def test_combine_functions_of_the_program() -> None:
    x = np.array([3, 9, 2, 8], np.int32)
    assert run(combining, x, N=4, size=6) == [22, 901, 22, 19, 10, 8]


@triton.jit
def printing(out, n):
    tl.static_print("compiling", n)
    tl.device_print("n is ", n)
    print("plain", n)
    tl.store(out, n)


def test_prints(way: str, capsys: pytest.CaptureFixture[str]) -> None:
    printing.cache.clear()
    run(printing, 6, size=1)
    text = capsys.readouterr().out
    assert "pid (0, 0, 0) n is 6" in text
    assert ("plain 6" in text) if way == "text" else ("compiling int32[]" in text and "plain" in text)


@triton.jit
def checked(out, n):
    tl.device_assert(n > 3, "n is too small")
    assert n > 3, "n is really too small"
    tl.store(out, n)


def test_device_assertions_are_there_under_debug(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(checked, 2, size=1) == [2]
    with pytest.raises(triton.InterpreterError, match="n is too small"):
        run(checked, 2, size=1, debug=True)
    monkeypatch.setenv("TRITON_DEBUG", "1")
    assert run(checked, 4, size=1) == [4]
    with pytest.raises(triton.InterpreterError, match="n is too small") as caught:
        run(checked, 2, size=1)
    assert 'tl.device_assert(n > 3, "n is too small")' in str(caught.value)


@triton.jit
def doubled(out, x):
    tl.store(out, x + x)


def test_overflow_is_checked_under_debug_unless_told_otherwise() -> None:
    large = 2**30 + 5
    assert run(doubled, large, size=1) == [2 * large - 2**32]
    with pytest.raises(triton.InterpreterError, match="int32 overflow in add"):
        run(doubled, large, size=1, debug=True)
    assert run(doubled, large, size=1, debug=True, sanitize_overflow=False) == [2 * large - 2**32]
