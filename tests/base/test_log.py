"""Spans and records: nesting, threads, and silence when nobody listens."""

from __future__ import annotations

import threading
import time

import pytest

from stator.base import log


def test_spans_nest_and_are_timed() -> None:
    with log.collect() as got, log.span("outer", graph="g") as facts:
        with log.span("inner"):
            time.sleep(0.01)
        facts["nodes"] = 3
    assert [(s.name, s.depth) for s in got.spans] == [("inner", 1), ("outer", 0)]
    inner, outer = got.spans
    assert 0.009 <= inner.seconds <= outer.seconds
    assert outer.facts == {"graph": "g", "nodes": 3}


def test_seconds_sum_siblings_and_count_recursion_once() -> None:
    with log.collect() as got:
        for _ in range(2):
            with log.span("stage"), log.span("stage"):
                time.sleep(0.005)
    outer = sum(s.seconds for s in got.spans if s.depth == 0)
    assert got.seconds() == pytest.approx({"stage": outer})


def test_a_span_ends_when_an_error_leaves_it() -> None:
    with log.collect() as got:
        with pytest.raises(ValueError), log.span("fails"):
            raise ValueError
        with log.span("after"):
            pass
    assert [(s.name, s.depth) for s in got.spans] == [("fails", 0), ("after", 0)]


def test_records_reach_every_open_collection_of_the_thread_and_no_other() -> None:
    elsewhere = threading.Thread(target=lambda: log.record(log.BREAK, reason="other thread"))
    with log.collect() as outer:
        with log.collect() as inner:
            log.record(log.BREAK, reason="here", line=3)
        log.record(log.CACHE, hit=True, key="k")
        elsewhere.start()
        elsewhere.join()
    log.record(log.BREAK, reason="too late")
    assert inner.of(log.BREAK) == [{"reason": "here", "line": 3}]
    assert [r.kind for r in outer.records] == [log.BREAK, log.CACHE]


def test_nobody_listening_costs_no_clock_and_wants_nothing() -> None:
    assert log.span("a") is log.span("b")
    assert not log.wanted(log.GUARDS)
    with log.collect():
        assert log.wanted(log.GUARDS)


def test_enabled_kinds_are_printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(log, "_printed", set())
    log.enable("breaks, timing,unheard-of")
    log.record(log.BREAK, reason="print()", text="two\nlines")
    log.record(log.CACHE, hit=True)
    with log.span("lower", graph="g"):
        pass
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "stator: break reason=print() text:"
    assert lines[3].startswith("stator: lower ") and lines[3].endswith("ms graph=g")
    assert len(lines) == 4
