"""How great the numbers are that computing an index meets."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from stator.loop.index import Axis, FloorDiv, Index, Mod
from stator.loop.magnitude import reach

AXES = (Axis("x0", 5), Axis("x1", 7))
NUMBERS = st.integers(-9, 9)


@st.composite
def indices(draw: st.DrawFn) -> Index:
    found = AXES[0].index * draw(NUMBERS) + AXES[1].index * draw(NUMBERS) + draw(NUMBERS)
    for _ in range(draw(st.integers(0, 3))):
        divisor = draw(st.integers(1, 6))
        found = found // divisor if draw(st.booleans()) else found % divisor
        found = found * draw(NUMBERS) + draw(st.sampled_from(AXES)).index * draw(NUMBERS) + draw(NUMBERS)
    return found


def met(index: Index, point: dict[Axis, int]) -> int:
    """The greatest number, sign aside, that is met in computing it at a point."""
    inside = [met(atom.inner, point) for atom, _ in index.terms if isinstance(atom, FloorDiv | Mod)]
    return max(abs(index.evaluate(point)), *inside, 0)


@given(indices())
def test_nothing_greater_is_met(index: Index) -> None:
    most = reach(index)
    for x, y in itertools.product(range(5), range(7)):
        assert met(index, {AXES[0]: x, AXES[1]: y}) <= most


def test_what_is_divided_counts_as_the_quotient() -> None:
    """A batch of 32 rows of 768 numbers, 98304 apart: no reason to count in 64 bits."""
    x = Axis("x", 24576).index
    assert reach(x // 768 * 98304 + x % 768) == 32 * 98304 + 767
