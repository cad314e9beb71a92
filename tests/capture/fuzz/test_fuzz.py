"""Programs drawn by Hypothesis, captured and compared; `python -m tests.capture.fuzz` runs many."""

from __future__ import annotations

import random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.capture.fuzz.run import Call, Mode, differences
from tests.capture.fuzz.writer import Writer

SMALL = st.integers(-2, 5)
LENGTHS = st.sampled_from([3, 3, 3, 4, 6, 2])
CALLS = st.lists(st.builds(Call, SMALL, SMALL, LENGTHS), min_size=1, max_size=4)
PROGRAMS = st.builds(
    lambda choices, breaks: Writer(choices, breaks).program(), st.randoms(use_true_random=False), st.booleans()
)
MODES = st.builds(
    Mode, st.sampled_from(["eager", "eager", "eager", "aot_eager"]), st.sampled_from([None, None, True]), st.booleans()
)


def check(text: str, calls: list[Call], mode: Mode) -> None:
    """Fails with the program if it differs."""
    found = differences(text, tuple(calls), mode)
    assert not found, f"{text}{mode}\n" + "\n".join(found)


@settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(PROGRAMS, CALLS, MODES)
def test_programs(text: str, calls: list[Call], mode: Mode) -> None:
    check(text, calls, mode)


def test_writer_is_varied() -> None:
    texts = [Writer(random.Random(seed), breaks=True).program() for seed in range(300)]
    pieces = (
        "while", "for", "else:", "try:", "finally", "with", "yield", "nonlocal", "tell(", "note(", "Bag(", "lambda",
        "match", ":=", "raise", "from error", "contextmanager", "ExitStack", "autocast", "no_grad", "next(", "zip(",
        "sum() >", "bag.step(", "help1(", "COUNT", "del ", "[:2] +=", "graph_break",
    )  # fmt: skip
    for piece in pieces:
        assert any(piece in text for text in texts), piece
