"""The suite of small programs: as eager in all that can be seen, and one graph where nothing speaks against it."""

from __future__ import annotations

import warnings

import pytest

from tests.capture.programs import PROGRAMS
from tests.capture.programs.__main__ import unlike
from tests.capture.programs.runner import Outcome, check
from tests.capture.programs.table import Program

TOPICS = sorted({item.function.__module__ for item in PROGRAMS})


@pytest.mark.parametrize("topic", TOPICS, ids=[topic.rpartition(".")[2] for topic in TOPICS])
def test_topic(topic: str) -> None:
    wrong, parted, free = [], [], 0
    for item in PROGRAMS:
        if item.function.__module__ == topic:
            outcome = check_quietly(item)
            wrong += [(item.name, outcome.difference)] if outcome.difference else []
            free += not item.breaks
            parted += [(item.name, unlike(item, outcome), outcome.why)] if unlike(item, outcome) else []
    assert not wrong
    assert len(parted) <= free // 10, parted


def check_quietly(item: Program) -> Outcome:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the programs' own, in eager as well
        return check(item)


def test_there_are_enough_programs() -> None:
    assert len({item.name for item in PROGRAMS}) == len(PROGRAMS) >= 300
    assert sum(bool(item.breaks) for item in PROGRAMS) >= 30
