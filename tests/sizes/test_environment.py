"""The environment: what it decides is so in the call at hand, and holds wherever its guards hold."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stator.sizes import Condition, Environment, Extent, Symbol, environment, in_told, maximum, minimum, prove
from stator.sizes.writing import evaluate

HINTS = (8, 5, 12)


def extents(symbols: list[Symbol]) -> st.SearchStrategy[Extent]:
    sizes = [symbol.size for symbol in symbols]
    return st.recursive(
        st.one_of(st.sampled_from(sizes), st.integers(-6, 20)),
        lambda inner: st.one_of(
            st.builds(lambda x, y: x + y, inner, inner),
            st.builds(lambda x, y: x - y, inner, inner),
            st.builds(lambda x, y: x * y, inner, inner),
            st.builds(lambda x, n: x % n, inner, st.sampled_from((2, 3, 4, 8))),
            st.builds(lambda x, n: x // n, inner, st.sampled_from((2, 3, 4, 8))),
        ),
        max_leaves=4,
    )


RANGED = [Symbol("s0", 2, None, 8), Symbol("s1", 1, 12, 5), Symbol("any", None, None, -3)]


@settings(max_examples=500, deadline=None)
@given(extents(RANGED), extents(RANGED))
def test_no_fact_is_left_out_that_tells_something(least: Extent, fact: Extent) -> None:
    """What is proved to be nowhere less is so at the probes, too."""
    if prove(Condition("<=", fact, least)):
        assert environment._nowhere_less(environment._probed(least), environment._probed(fact))


def test_probes_lie_within_ranges() -> None:
    for symbol in (*RANGED, Symbol("x", None, 4, 1), Symbol("y", 50_000, None, 60_000), Symbol("z", 0, 3, 2)):
        values = environment._probed(symbol.size)
        assert all(symbol.low is None or value >= symbol.low for value in values)
        assert all(symbol.high is None or value <= symbol.high for value in values)
    assert environment._probed(RANGED[0].size // Symbol("z", 0, 3, 2).size)[1] is None, "it divides by zero"


@settings(max_examples=500, deadline=None)
@given(st.data())
def test_decisions_hold_wherever_the_guards_hold(data: st.DataObject) -> None:
    env = Environment()
    symbols = [env.symbol(hint, f"x{i}") for i, hint in enumerate(HINTS)]
    inside = extents(symbols)
    hints = dict(zip(symbols, HINTS, strict=True))
    decided = []
    for _ in range(data.draw(st.integers(1, 5))):
        condition = Condition(data.draw(st.sampled_from(["==", "!=", "<", "<="])), data.draw(inside), data.draw(inside))
        answer = env.decide(condition)
        assert answer is condition.evaluate(hints)
        assert env.prove(condition) in (answer, None)
        decided.append((condition, answer))
    guards = [recorded.condition for recorded in env.guards()]
    assert all(guard.evaluate(hints) for guard in guards)
    size, draw = data.draw(inside), random.Random(data.draw(st.integers(0, 1 << 32)))
    for _ in range(20):
        point = {symbol: draw.randint(2, 24) for symbol in symbols}
        if all(guard.evaluate(point) for guard in guards):
            for condition, answer in decided:
                assert condition.evaluate(point) is answer
            for symbol in symbols:
                assert evaluate(env.simplify(symbol.size), point) == point[symbol]
            assert evaluate(in_told(env.known(size), env.parts()), point) == evaluate(size, point)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_what_was_asked_before_leaves_no_question_open(data: st.DataObject) -> None:
    asked, fresh = Environment(), Environment()
    symbols = [[env.symbol(hint, f"x{i}") for i, hint in enumerate(HINTS)] for env in (asked, fresh)]
    assert symbols[0] == symbols[1]
    inside = extents(symbols[0])
    conditions = st.builds(Condition, st.sampled_from(["==", "!=", "<", "<="]), inside, inside)
    questions = data.draw(st.lists(conditions, min_size=1, max_size=5))
    for learnt in questions:
        for question in questions:
            asked.prove(question)
        assert asked.decide(learnt) is fresh.decide(learnt)
        for question in questions:
            assert fresh.prove(question) in (None, asked.prove(question))


def test_what_is_known_of_a_product_is_asked_once() -> None:
    env = Environment()
    x, y, z = (env.symbol(hint, f"x{i}").size for i, hint in enumerate(HINTS))
    product = x * y * z
    assert env.specialise(product) == 480
    for position in range(480):
        assert env.decide(Condition("<", position, product))
    assert env.decide(Condition("==", z * x * y, 480))
    assert not env.decide(Condition("==", z * x * y + 1, 480))
    assert len(env.conditions) == 1


def test_equal_sizes_share_a_symbol() -> None:
    env = Environment()
    first, second = env.symbol(8, "a"), env.symbol(8, "b")
    assert first is second
    assert env.places[first] == ["a", "b"]
    assert env.symbol(8, "c", marked=True) is not first
    assert env.symbol(9, "d") is not first
    assert env.symbol(8, "n", None, shared=False) is not first


def test_what_follows_is_not_recorded_again() -> None:
    env = Environment(lambda: ("f.py", 3))
    s = env.symbol(16, "a")
    n = s.size
    assert env.decide(Condition("<=", 16, 2 * n), "why")
    assert [str(r.condition) for r in env.conditions] == ["2*s0 >= 16"]
    assert env.conditions[0].location == ("f.py", 3)
    assert env.conditions[0].reason == "why"
    assert env.decide(Condition("<", 7, n))
    assert not env.decide(Condition("<", n, 8))
    assert env.decide(Condition("!=", n, 3))
    assert env.decide(Condition("==", n % 8, 0))
    assert env.decide(Condition("==", n % 4, 0))
    assert env.decide(Condition("==", n // 8 * 8, n))
    assert len(env.conditions) == 2
    assert str(env.guards()[0].condition) == "s0 >= 2"


def test_relations_between_sizes() -> None:
    env = Environment()
    a, b = env.symbol(8, "a").size, env.symbol(6, "b").size
    assert env.decide(Condition("<", b, a))
    assert env.decide(Condition("<=", b + 1, a))
    assert env.decide(Condition("!=", a, b))
    assert not env.decide(Condition("<", a, b))
    assert len(env.conditions) == 1
    assert env.decide(Condition("==", a, b + 2))
    assert env.decide(Condition("==", 2 * a - 4, 2 * b))
    assert len(env.conditions) == 2


def test_specialising() -> None:
    env = Environment(lambda: "line 7")
    s = env.symbol(8, "a", marked=True)
    assert env.specialise(s.size * 2 + 1, "used as an index") == 17
    assert env.specialise(s.size, "again") == 8
    assert len(env.conditions) == 1
    assert env.simplify(s.size + 1) == 9
    assert env.fixed() == {s: env.conditions[0]}
    assert env.specialise(5) == 5


def test_ranges_that_leave_one_value_fix_it() -> None:
    env = Environment()
    s = env.symbol(8, "a", 2, 8)
    assert env.decide(Condition("<=", 8, s.size))
    assert env.simplify(s.size) == 8
    assert list(env.fixed()) == [s]


@pytest.mark.parametrize("op", ["==", "!=", "<", "<="])
def test_constants_are_decided_without_a_trace(op: str) -> None:
    env = Environment()
    assert env.decide(Condition(op, 2, 3)) is Condition(op, 2, 3).evaluate({})
    assert not env.conditions


def test_what_no_guard_can_compute_fixes_its_symbols() -> None:
    env = Environment()
    s = env.symbol(2**40, "a", None)
    assert not env.decide(Condition("<", s.size * s.size, 13))
    assert env.simplify(s.size) == 2**40
    assert [str(recorded.condition) for recorded in env.conditions] == [f"s0 == {2**40}"]


def test_sizes_are_products_of_parts() -> None:
    env = Environment()
    n = env.symbol(96, "a").size
    before = n // 16
    assert env.decide(Condition("==", n % 4, 0)) and env.decide(Condition("==", n // 4 % 8, 0))
    assert str(env.known(n)) == "32*(s0//32)" and str(env.known(before)) == "2*(s0//32)"
    assert str(env.known(n // 32)) == "(s0//32)" and env.known(n // 32) is not n // 32
    assert env.known(n).low == 32
    assert in_told(env.known(64 * n * n + 3), env.parts()) is 64 * n * n + 3
    assert in_told(env.known(before), env.parts()) is 2 * (n // 32)


def test_a_part_that_became_a_multiple_itself_is_told() -> None:
    env = Environment()
    n = env.symbol(96, "a").size
    assert env.decide(Condition("==", n % 4, 0))
    halfway = env.known(n * n)
    assert env.decide(Condition("==", n % 32, 0))
    assert in_told(halfway, env.parts()) is n * n
    narrowed = Environment()
    m = narrowed.symbol(96, "a").size
    assert narrowed.decide(Condition("<", 7, m))
    assert narrowed.known(m).low == 8 and in_told(narrowed.known(m), narrowed.parts()) is m  # type: ignore[union-attr]


LEARNT: list[tuple[Callable[[Any], Condition], Callable[[Any], Condition]]] = [
    (lambda n: Condition("<", 0, n // 32), lambda n: Condition("<=", 32, n)),
    (lambda n: Condition("<=", n // 32, 4), lambda n: Condition("<", n, 160)),
    (lambda n: Condition("<", 5, 3 * (n // 8 // 2)), lambda n: Condition("<=", 32, n)),
    (lambda n: Condition("<=", -2 * (n // 8), -7), lambda n: Condition("<=", 32, n)),
    (lambda n: Condition("!=", n // 8, 0), lambda n: Condition("<=", 8, n)),
    (lambda n: Condition("!=", n % 2, 1), lambda n: Condition("==", n % 2, 0)),
    (lambda n: Condition("==", (n + 3) % 4, 3), lambda n: Condition("==", n % 4, 0)),
    (lambda n: Condition("<=", 3 - (n + 3) % 4, 0), lambda n: Condition("==", n % 4, 0)),
]


@pytest.mark.parametrize("number", range(len(LEARNT)))
def test_what_quotients_and_remainders_say(number: int) -> None:
    assumed, follows = LEARNT[number]
    env = Environment()
    n = env.symbol(96, "a").size
    assert env.prove(follows(n)) is None
    assert env.decide(assumed(n))
    assert env.prove(follows(n)) is True
    assert len(env.conditions) == 1


def test_a_lesser_of_two_is_as_much_as_both() -> None:
    env = Environment()
    n, m = env.symbol(96, "a").size, env.symbol(64, "b").size
    assert env.decide(Condition("<", 5, minimum(n // 4, m)))
    assert env.prove(Condition("<=", 24, n)) is True and env.prove(Condition("<", 5, m)) is True
    assert env.decide(Condition("<", maximum(n, m + 1), 100))
    assert env.prove(Condition("<", n, 100)) is True and env.prove(Condition("<", m, 99)) is True
    assert len(env.conditions) == 2


def test_only_equalities_demand_a_number() -> None:
    branched, demanded = Environment(), Environment()
    n, m = branched.symbol(16, "a").size, demanded.symbol(16, "a").size
    assert branched.decide(Condition("==", n // 16, 1)) and branched.decide(Condition("==", n % 16, 0))
    assert branched.known(n) == 16 and branched.fixed() and not branched.demanded()
    other = branched.symbol(16, "b", marked=True).size
    assert branched.decide(Condition("==", 3 * branched.simplify(n), 3 * other))
    assert len(branched.fixed()) == 2 and not branched.demanded()
    demanded.specialise(m, "why")
    assert [recorded.reason for recorded in demanded.demanded().values()] == ["why"]
