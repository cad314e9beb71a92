"""Differences of a value and what was made of many of its like: which roundings on the way are shown."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from stator.loop import cancel
from stator.loop import expr as e
from stator.loop.cancel import Uses
from stator.loop.expr import Expr


def rounded(value: Expr) -> Expr:
    return e.cast(value, "bf16")


def wide(value: Expr) -> Expr:
    return e.cast(value, "f32")


def mean(value: Expr) -> Expr:
    return e.op("div", e.reduce("sum", wide(value)), e.const(7.0, "f32"))


X = e.load("x", 0, "f32")
Y = rounded(e.op("tanh", X))
FACTOR = e.load("w", 0, "f32")


def shown(
    sum: Expr,
    memory: set[Expr],
    bodies: Mapping[Expr, Expr] | None = None,
    kept: Collection[Expr] = (),
) -> set[Expr]:
    """What a difference shows whose kernel reads this from memory, and has `Y` in registers too."""
    result = rounded(sum)
    uses = Uses({part: {result} for part in memory}, {Y: {result}}, {sum: {result}}, {result, *memory})
    return cancel.shown(uses, bodies or {}, kept)


def test_nothing_is_shown_of_what_is_in_no_memory() -> None:
    assert shown(e.op("sub", wide(Y), mean(Y)), set()) == set()


def test_what_memory_has_is_shown_by_the_difference_from_its_mean() -> None:
    assert shown(e.op("sub", wide(Y), mean(Y)), {Y}) == {Y}
    for less in (e.op("neg", mean(Y)), mean(e.op("neg", wide(Y)))):
        assert shown(e.op("add", wide(Y), less), {Y}) == {Y}


def test_what_only_others_read_from_memory_is_not_shown() -> None:
    """The kernel that makes it has it in registers, and so its mean is of what is there."""
    result, other = rounded(difference := e.op("sub", wide(Y), mean(Y))), rounded(e.op("cos", wide(Y)))
    uses = Uses({Y: {other}}, {Y: {result}}, {difference: {result}}, {Y, result, other})
    assert cancel.shown(uses, {}, set()) == set()


def test_what_all_read_from_memory_is_not_shown() -> None:
    """Others that make it again may leave its rounding out."""
    result = rounded(difference := e.op("sub", wide(Y), mean(Y)))
    assert cancel.shown(Uses({Y: {result}}, {}, {difference: {result}}, {result, Y}), {}, set()) == set()


def test_a_sum_shows_nothing() -> None:
    assert shown(e.op("add", wide(Y), mean(Y)), {Y}) == set()


def test_a_rounded_mean_in_memory_shows_what_it_is_taken_from() -> None:
    center = rounded(mean(Y))
    load = e.load("0", 0, "bf16")
    assert shown(e.op("sub", wide(Y), wide(load)), {load}, bodies={load: center}) == {Y, center}


def test_all_roundings_between_are_shown() -> None:
    scaled, center = rounded(e.op("mul", wide(Y), FACTOR)), rounded(e.op("mul", mean(Y), FACTOR))
    difference = e.op("sub", wide(scaled), wide(center))
    assert shown(difference, {center}) == {Y, scaled, center}
    assert shown(difference, set(), kept={center}) == {Y, scaled, center}


def test_what_is_rounded_below_is_shown_where_one_has_it_of_memory_and_another_does_not() -> None:
    """Else one that computes `y` again has another `y` than who took the mean."""
    below = rounded(e.op("sin", X))
    value = rounded(e.op("add", wide(below), FACTOR))
    difference = e.op("sub", wide(value), mean(value))
    result = rounded(difference)
    for memory, registers in ({value}, {value}), (set[Expr](), {value}), ({value}, set[Expr]()):
        uses = Uses({below: memory}, {below: registers}, {difference: {result}}, {value, result})
        assert cancel.shown(uses, {}, set()) == ({below} if memory and registers else set())


def test_numbers_of_other_rows_cancel_nothing() -> None:
    other = rounded(e.op("cos", FACTOR))
    assert shown(e.op("sub", wide(Y), mean(other)), {Y, other}) == set()


def test_one_number_is_its_own_sum_and_maximum() -> None:
    alone = e.op("add", wide(Y), e.const(0.0, "f32"))  # what a sum of one number becomes
    for other in (alone, wide(Y), wide(rounded(alone))):
        assert Y in shown(e.op("sub", wide(Y), other), {Y})


def test_two_sums_of_the_same_numbers_cancel() -> None:
    assert shown(e.op("sub", mean(Y), e.reduce("max", wide(Y))), {Y}) == {Y}
