"""Writes, views and results that share memory, line by line: what a caller can see afterwards is what eager leaves."""

from __future__ import annotations

import pytest

from tests.aot.programs_of_writes import PROGRAMS
from tests.aot.relations import Inputs
from tests.aot.test_aliasing import KINDS, check, ends, mixed


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("make", [*KINDS.values(), mixed], ids=lambda make: make.__name__)
@pytest.mark.parametrize("text", PROGRAMS)
def test_is_as_in_eager(text: str, make: Inputs) -> None:
    check(ends(*[statement.strip() for statement in text.split(";")]), make)
