"""The benchmark of overhead: every case is measured, and the table has a row of it."""

from __future__ import annotations

import pytest
from rich.console import Console

from benchmarks.overhead import CASES, loops_for, measure, table


@pytest.mark.parametrize("name", CASES)
def test_each_case_is_measured(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.overhead.loops_for", lambda call, seconds: min(3, loops_for(call, 1e-4)))
    figures = measure(CASES[name], ["eager", "stator"], rounds=1)
    assert all(figures[of][how] > 0 for of in ("eager", "stator", "guards") for how in ("hot", "flushed"))
    console = Console(width=150)
    with console.capture() as text:
        console.print(table({name: figures}, ["eager", "stator"]))
    assert name in text.get()
