"""Online softmax, Welford and sums from the first number on: one loop for two, with the same results."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stator.base.dtypes import ITEMSIZE
from stator.kernel.evaluate import run
from stator.kernel.ir import Function, Loop, Online, walk
from stator.kernel.online import from_first, online_softmax, welford
from stator.kernel.parse import parse
from stator.kernel.rewrite import vectorise
from stator.loop.evaluate import Memory
from tests.kernel.programs import checked

SOFTMAX = """def k(p0: In[f64, 12], p1: Out[f64, 3]):
    a0: Var[f64] = -inf
    for r in range(12):
        t0: f64 = p0[r]
        a0 = maximum(a0, t0)
    a1: Var[f64] = 0.0
{shift}
    for r in range(12):
        t1: f64 = p0[r]
        t2: f64 = sub(t1, t9)
        t3: f64 = exp(t2)
        a1 = add(a1, t3)
    p1[0] = a0
    p1[1] = a1
"""
#: What is taken off before exp: the greatest itself, or 0 where that is infinite, as logsumexp does.
SHIFTS = {
    "softmax": "    t9: f64 = add(a0, 0.0)",
    "logsumexp": "    t7: f64 = abs(a0)\n    t8: bool = eq(t7, f64(inf))\n    t9: f64 = where(t8, 0.0, a0)",
}
VARIANCE = """def k(p0: In[f64, 12], p1: Out[f64, 3]):
    a0: Var[f64] = 0.0
    for r in range(12):
        t0: f64 = p0[r]
        a0 = add(a0, t0)
    a1: Var[f64] = 0.0
    t1: f64 = div(a0, 12.0)
    for r in range(12):
        t2: f64 = p0[r]
        t3: f64 = sub(t2, t1)
        t4: f64 = mul(t3, t3)
        a1 = add(a1, t4)
    p1[0] = a0
    p1[1] = a1
"""
#: The same of floats, and the variance alone.
NARROW = """def k(p0: In[f32, 12], p1: Out[f64, 3]):
    a0: Var[f64] = 0.0
    for r in range(12):
        t0: f32 = p0[r]
        t5: f64 = cast(t0)
        a0 = add(a0, t5)
    a1: Var[f64] = 0.0
    t1: f64 = div(a0, 12.0)
    for r in range(12):
        t2: f32 = p0[r]
        t6: f64 = cast(t2)
        t3: f64 = sub(t6, t1)
        t4: f64 = mul(t3, t3)
        a1 = add(a1, t4)
    p1[0] = a1
"""
NUMBERS = st.one_of(st.floats(-50, 50), st.sampled_from([math.inf, -math.inf, math.nan, 0.0, -0.0, 800.0]))


def results(function: Function, values: list[float]) -> list[float]:
    memories = {p.name: Memory(bytearray(p.numel * ITEMSIZE[p.dtype]), 0, p.dtype) for p in function.params}
    for position, value in enumerate(values):
        memories["p0"].write(position, value)
    assert run(function, memories) == 0
    return [memories["p1"].read(i) for i in range(2)]


def alike(found: list[float], wanted: list[float], scale: float) -> bool:
    pairs = zip(found, wanted, strict=True)
    return all(a == b or (a != a and b != b) or abs(a - b) <= 1e-12 * max(scale, abs(b)) for a, b in pairs)


@pytest.mark.parametrize("shift", SHIFTS)
@given(st.lists(NUMBERS, min_size=12, max_size=12))
@settings(max_examples=300, deadline=None)
def test_softmax_of_any_numbers(shift: str, values: list[float]) -> None:
    before = parse(SOFTMAX.format(shift=SHIFTS[shift]))
    after = checked(online_softmax(before))
    assert alike(results(after, values), results(before, values), 1), values


@given(st.lists(st.one_of(st.floats(-1e6, 1e6), st.sampled_from([math.inf, math.nan])), min_size=12, max_size=12))
@settings(max_examples=300, deadline=None)
def test_variance_of_any_numbers(values: list[float]) -> None:
    before = parse(VARIANCE)
    after = checked(welford(before))
    scale = max([value**2 for value in values if math.isfinite(value)], default=1)
    assert alike(results(after, values), results(before, values), scale), values


FLOATS = st.one_of(st.floats(width=32), st.floats(-2, 2, width=32), st.sampled_from([1e6, 1e30, -3e38, 1e-45]))


@given(st.lists(FLOATS, min_size=12, max_size=12))
@settings(max_examples=300, deadline=None)
def test_variance_from_the_first_number_on(values: list[float]) -> None:
    """Right to many more digits than a float has, whatever the first one is."""
    before = parse(NARROW)
    after = checked(from_first(before))
    assert sum(isinstance(s, Loop) for s in walk(after.body)) == 1
    ((found, _), (wanted, _)) = results(after, values), results(before, values)
    assert (found != found) == (wanted != wanted)
    assert found != found or abs(found - wanted) <= 1e-13 * abs(wanted), values


@pytest.mark.parametrize(
    "old, new",
    [
        ("p1[0] = a1", "p1[0] = a1\n    p1[1] = a0"),
        ("p1[0] = a1", "p1[0] = a1\n    p1[1] = t1"),
        ("In[f32, 12]", "In[f64, 12]"),
        ("range(12)", f"range({1 << 23})"),
    ],
)
def test_variances_that_are_added_up_in_two_loops(old: str, new: str) -> None:
    """Where the sum or the mean is asked for too, of what is float64 already, and of very long rows."""
    text = NARROW.replace(old, new).replace("f32, 12", f"f32, {1 << 23}" if "range" in old else "f32, 12")
    if "f64" in new and "In" in new:
        text = text.replace("f32 = p0", "f64 = p0").replace("cast(t", "neg(t")
    before = parse(text)
    assert from_first(before) == before


def test_what_they_make() -> None:
    after = online_softmax(parse(SOFTMAX.format(shift=SHIFTS["softmax"])))
    assert [str(s.op) for s in walk(after.body) if isinstance(s, Online)] == ["exp_sum"]
    assert sum(isinstance(s, Loop) for s in walk(after.body)) == 1
    lanes = vectorise(after, next(s.axis for s in after.body if isinstance(s, Loop)), 4, 1)
    checked(lanes)
    (statement,) = [s for s in walk(welford(parse(VARIANCE)).body) if isinstance(s, Online)]
    assert statement.op == "welford" and len(statement.states) == 3


#: A change to the second loop, with which it does not add up what the rewrite knows.
OTHERS = {
    "another value": ("t1: f64 = p0[r]", "t1: f64 = p0[11 - r]"),
    "another function": ("exp(t2)", "exp2(t2)"),
    "another sign": ("sub(t1, t9)", "sub(t9, t1)"),
    "a shift that varies": ("sub(t1, t9)", "sub(t1, t1)"),
    "another fold": ("add(a1, t3)", "mul(a1, t3)"),
    "another start": ("a1: Var[f64] = 0.0", "a1: Var[f64] = 2.0"),
    "a sum that is read between": (
        "    t9: f64 = add(a0, 0.0)",
        "    t6: f64 = add(a1, 0.0)\n    t9: f64 = add(a0, t6)",
    ),
    "memory that is written between": ("a1: Var[f64] = 0.0", "a1: Var[f64] = 0.0\n    p1[2] = a0"),
    "another row": ("for r in range(12):\n        t1", "for q in range(6):\n        t1"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_loops_stay(name: str) -> None:
    text, (old, new) = SOFTMAX.format(shift=SHIFTS["softmax"]), OTHERS[name]
    assert old in text
    changed = text.replace(old, new)
    changed = changed.replace("t1: f64 = p0[r]", "t1: f64 = p0[q]") if "for q" in changed else changed
    before = parse(changed)
    assert online_softmax(before) == before and welford(before) == before


def test_a_row_of_any_length_has_an_element() -> None:
    """Of an empty row nothing is the greatest: it keeps its two loops."""
    for low, loops in ((0, 2), (1, 1)):
        text = SOFTMAX.format(shift=SHIFTS["softmax"]).replace("range(12)", "range(n0)").replace("f64, 12", "f64, n0")
        before = parse(text.replace("3]):", f"3], n0: Size[{low}, None, 12]):"))
        after = online_softmax(before)
        assert sum(isinstance(s, Loop) for s in walk(after.body)) == loops
        assert replace(after, body=before.body) == before
