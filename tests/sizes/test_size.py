"""The algebra of sizes: every identity holds for all values, bounds enclose them, what is decided is right."""

from __future__ import annotations

import copy
import json
import operator
import pickle
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from stator.base.errors import Undecided, Unsupported
from stator.sizes import (
    Condition,
    Extent,
    Size,
    Symbol,
    dump,
    evaluate,
    hint,
    load,
    maximum,
    minimum,
    postfix,
    prove,
    python,
    quotient_of,
    remainder_of,
    substitute,
    symbols,
)

SYMBOLS = (Symbol("s0", 2, None, 8), Symbol("s1", 1, 12, 5), Symbol("s2", 0, None, 3))
a, b, c = (symbol.size for symbol in SYMBOLS)

Values = dict[Symbol, int]
POINTS = st.tuples(st.integers(2, 40), st.integers(1, 12), st.integers(0, 30)).map(
    lambda point: dict(zip(SYMBOLS, point, strict=True))
)


class Pair:
    """An extent, and a Python function that says what it should be."""

    def __init__(self, extent: Extent, value: Any) -> None:
        self.extent, self.value = extent, value


def combine(children: st.SearchStrategy[Pair]) -> st.SearchStrategy[Pair]:
    def apply(op: Any, value: Any, left: Pair, right: Pair) -> Pair:
        return Pair(op(left.extent, right.extent), lambda point: value(left.value(point), right.value(point)))

    def divide(op: Any, left: Pair, right: Pair) -> Pair:
        # A divisor that is positive: what // and % of sizes are used with.
        divisor = Pair(right.extent * right.extent + 1, lambda point: right.value(point) ** 2 + 1)
        return apply(op, op, left, divisor)

    plain = [operator.add, operator.sub, operator.mul]
    return st.one_of(
        st.builds(lambda op, x, y: apply(op, op, x, y), st.sampled_from(plain), children, children),
        st.builds(lambda x, y: apply(maximum, max, x, y), children, children),
        st.builds(lambda x, y: apply(minimum, min, x, y), children, children),
        st.builds(divide, st.sampled_from([operator.floordiv, operator.mod]), children, children),
        st.builds(
            lambda op, x, n: apply(op, op, x, Pair(n, lambda point: n)),
            st.sampled_from([operator.floordiv, operator.mod]),
            children,
            st.sampled_from((-7, -2, 1, 2, 3, 4, 6, 8, 16)),
        ),
    )


LEAVES = st.one_of(
    st.sampled_from(SYMBOLS).map(lambda symbol: Pair(symbol.size, lambda point: point[symbol])),
    st.integers(-20, 20).map(lambda number: Pair(number, lambda point: number)),
)
PAIRS = st.recursive(LEAVES, combine, max_leaves=7)


@settings(max_examples=600, deadline=None)
@given(PAIRS, POINTS)
def test_arithmetic_is_pythons(pair: Pair, point: Values) -> None:
    expected = pair.value(point)
    assert evaluate(pair.extent, point) == expected
    names = {symbol: f"v[{i}]" for i, symbol in enumerate(SYMBOLS)}
    assert eval(python(pair.extent, names), {"v": list(point.values())}) == expected
    assert run(postfix(pair.extent, {s: i for i, s in enumerate(SYMBOLS)}), list(point.values())) == expected


@settings(max_examples=300, deadline=None)
@given(PAIRS, POINTS)
def test_bounds_enclose(pair: Pair, point: Values) -> None:
    value = pair.value(point)
    if isinstance(pair.extent, Size):
        low, high = pair.extent.low, pair.extent.high
        assert low is None or low <= value
        assert high is None or value <= high


@settings(max_examples=400, deadline=None)
@given(PAIRS, PAIRS, POINTS, st.sampled_from(["==", "!=", "<", "<="]))
def test_what_is_decided_holds_for_all_values(left: Pair, right: Pair, point: Values, op: str) -> None:
    condition = Condition(op, left.extent, right.extent)
    answer = prove(condition)
    truth = condition.evaluate(point)
    assert answer is None or answer is truth
    assert condition.negated().evaluate(point) is not truth
    if left.extent == right.extent:
        assert left.value(point) == right.value(point)


@settings(max_examples=200, deadline=None)
@given(PAIRS, PAIRS, POINTS)
def test_rewriting(pair: Pair, other: Pair, point: Values) -> None:
    extent = pair.extent
    assert load(json.loads(json.dumps(dump(extent)))) == extent
    assert pickle.loads(pickle.dumps(extent)) == extent
    assert copy.deepcopy(extent) == extent
    assert hint(extent) == evaluate(extent, {symbol: symbol.hint for symbol in SYMBOLS})
    replaced = substitute(extent, {SYMBOLS[0]: other.extent + 0})
    assert evaluate(replaced, point) == evaluate(extent, {**point, SYMBOLS[0]: other.value(point)})
    everything = substitute(extent, dict(point.items()))
    assert everything == pair.value(point)
    assert type(everything) is int


@settings(max_examples=300, deadline=None)
@given(PAIRS, POINTS, st.sampled_from((2, 3, 4, 8)))
def test_divisibility(pair: Pair, point: Values, number: int) -> None:
    if isinstance(pair.extent, Size) and pair.extent.divisible_by(number):
        assert pair.value(point) % number == 0


def run(program: tuple[tuple[Any, ...], ...], operands: list[int]) -> int:
    """What the native guard does with a program."""
    operations: dict[str, Any] = {
        "+": operator.add,
        "-": operator.sub,
        "*": operator.mul,
        "//": operator.floordiv,
        "%": operator.mod,
        "max": max,
        "min": min,
    }
    stack: list[int] = []
    for step in program:
        match step:
            case ("const", number):
                stack.append(number)
            case ("operand", number):
                stack.append(operands[number])
            case (op,):
                right, left = stack.pop(), stack.pop()
                stack.append(operations[op](left, right))
    (result,) = stack
    return result


# -- the normal form ---------------------------------------------------------------------------------


def test_equal_expressions_are_one_object() -> None:
    assert (a + b) * (a - b) is a * a - b * b
    assert a + 1 - a == 1
    assert type(a - a) is int
    assert Symbol("s0", 2, None, 8) is SYMBOLS[0]
    assert hash(a + b) == hash(b + a)
    assert (a == 8) is False and (a != 8) is True
    assert {a + 1: "x"}[1 + a] == "x"


@pytest.mark.parametrize(
    ("extent", "expected"),
    [
        (a * b // a, b),
        (a * (b + 3) * c // (b + 3), a * c),
        ((a * b + b) // (a + 1), b),
        ((4 * a + 3) // 4, a),
        (8 * a // 12, 2 * a // 3),
        (a // 2 // 3, a // 6),
        (4 * (a // 4) + a % 4, a),
        (a * 4 * (b // 4) + a * (b % 4), a * b),
        ((4 * a) % 4, 0),
        ((4 * a + 5) % 4, 1),
        (b // 13, 0),
        (b % 13, b),
        ((a * b) % a, 0),
        (maximum(a, 1), a),
        (minimum(a, a + c), a),
        (maximum(b, 12), 12),
        (-(-a // 8), (a + 7) // 8),
        ((a - 1) // a, 0),
        ((a - 1) % a, a - 1),
        (a - a % 7, 7 * (a // 7)),
        (a + (7 - a % 7) % 7, 7 * ((a + 6) // 7)),
        (a * c - a % 7 * c, 7 * (a // 7) * c),
        (a - a % b, a // b * b),
        (a + (b - a % b) % b, b * ((a - 1) // b) + b),
        (a // b * b + a % b, a),
        ((b + a % b) % b, a % b),
    ],
    ids=str,
)
def test_simplifies(extent: Extent, expected: Extent) -> None:
    assert extent == expected


def test_comparisons_are_decided_by_ranges_or_not_at_all() -> None:
    assert a >= 2 and a > 1 and not a < 2 and a > 1
    assert a * b >= a
    assert a * b - a >= 0
    assert maximum(a, b) >= b
    assert bool(a)
    assert b <= 12
    assert prove(Condition("==", 2 * a, 2 * b + 1)) is False
    assert prove(Condition("==", a, 8)) is None
    for undecided in (lambda: a > 2, lambda: bool(a - 8), lambda: int(a), lambda: range(a), lambda: a < b):
        with pytest.raises(Undecided):
            undecided()
    assert issubclass(Undecided, Unsupported)


def test_ranges() -> None:
    assert (a.low, a.high) == (2, None)
    assert ((a + 3) // 4).low == 1
    assert ((a * c).low, (b * 2 - 1).high) == (0, 23)
    assert ((a % 8).low, (a % 8).high) == (0, 7)
    assert (a % b).high == 11
    assert (minimum(a, b).low, minimum(a, b).high) == (1, 12)
    odd = a - 2 * (a // 2)  # what is left of a division that is not written as a remainder
    assert isinstance(odd, Size) and (odd.low, odd.high) == (0, 1)
    assert 2 * (a // 2 - 1) + 1 < a and not 3 * (a // 3) > a
    assert a + 3 - 3 * ((a - 4) // 3) >= 7


def test_text() -> None:
    assert str(2 * a) == "2*s0"
    assert str(Condition("<=", 16, 2 * a)) == "2*s0 >= 16"
    assert Condition("<", a, b).python({SYMBOLS[0]: "x.size()[0]", SYMBOLS[1]: "n"}) == "x.size()[0] < n"
    assert str((a + 1) // 2 * b - 4) == "s1*((s0 + 1) // 2) - 4"
    assert str(5 - a) == "5 - s0"
    assert str(maximum(a, b)) == "max(s0, s1)"


def test_plain_ints() -> None:
    assert maximum(3, 4) == 4 and minimum(3, 4) == 3
    assert hint(3) == evaluate(3, {}) == 3
    assert python(-3) == "-3"
    assert dump(3) == load(3) == 3
    assert postfix(3) == (("const", 3),)
    assert symbols(3) == frozenset() and (a * b).symbols == set(SYMBOLS[:2])
    assert substitute(3, {}) == 3
    assert prove(Condition("<", 3, 4)) is True


@settings(max_examples=200, deadline=None)
@given(PAIRS, PAIRS, POINTS)
def test_division_by_what_is_known_to_be_positive(pair: Pair, divisor: Pair, point: Values) -> None:
    n = divisor.value(point)
    assume(n > 0)
    assert evaluate(quotient_of(pair.extent, divisor.extent), point) == pair.value(point) // n
    assert evaluate(remainder_of(pair.extent, divisor.extent), point) == pair.value(point) % n


def test_factors_that_are_known_to_be_positive_cancel() -> None:
    assert quotient_of(a * c, c) == a and remainder_of(a * c + c, c) == 0
    assert a * c // c != a, "c may be 0"
    assert quotient_of(0, c) == 0 and remainder_of(-7, c) == c - 1 - remainder_of(6, c)


def test_quotients_are_measured_by_finer_ones_and_in_products() -> None:
    """What an unrolled loop over half the pixels of a row reaches."""
    pixels = (a + 1) // 2 + 1
    assert prove(Condition("<=", 3 * (pixels // 3), pixels)) and prove(Condition("<", pixels - 3, 3 * (pixels // 3)))
    assert prove(Condition("<=", 3 * (pixels // 3), pixels - 1)) is None
    any_number = Symbol("any", None, None, 3).size
    assert prove(Condition("<=", 2 * any_number * (a // 2), a * any_number)) is None, "it may be negative"
    assert prove(Condition("<=", 2 * a * (a // 2), a * a))


def test_division_by_what_may_be_zero() -> None:
    quotient = a // c
    assert evaluate(quotient, {SYMBOLS[0]: 7, SYMBOLS[2]: 2}) == 3
    with pytest.raises(ZeroDivisionError):
        a // 0


def test_expressions_stay_short() -> None:
    with pytest.raises(Undecided, match="too long"):
        x: Extent = a
        for _ in range(100):
            x = x * (x + b)
    with pytest.raises(Undecided, match="too long"):
        x = a
        for divisor in range(2, 100):
            x = (x // divisor) * 7 + x % (divisor + 1) + b


def test_bounds_of_many_choices() -> None:
    x: Extent = a
    for number in range(40):
        x = maximum(minimum(x, b * number + c), c * number - a) + 1
    assert isinstance(x, Size) and x.high is None
