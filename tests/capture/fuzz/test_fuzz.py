"""Programs drawn by Hypothesis, captured and compared; `python -m tests.capture.fuzz` runs many."""

from __future__ import annotations

import random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.capture.fuzz.run import differences
from tests.capture.fuzz.writer import Writer

CALLS = st.lists(st.tuples(st.integers(-2, 5), st.integers(-2, 5)), min_size=1, max_size=3)
PROGRAMS = st.builds(
    lambda choices, breaks: Writer(choices, breaks).program(), st.randoms(use_true_random=False), st.booleans()
)


def check(text: str, calls: list[tuple[int, int]]) -> None:
    """Fails with the program if it differs."""
    found = differences(text, tuple(calls))
    assert not found, text + "\n".join(found)


@settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(PROGRAMS, CALLS)
def test_programs(text: str, calls: list[tuple[int, int]]) -> None:
    check(text, calls)


def test_writer_is_varied() -> None:
    texts = [Writer(random.Random(seed), breaks=True).program() for seed in range(300)]
    for piece in ("while", "for", "try:", "with", "yield", "nonlocal", "tell(", "note(", "Bag(", "lambda", "finally"):
        assert any(piece in text for text in texts), piece
