"""The garbage collector while stator compiles: new objects go on as old ones, and what a user froze stays frozen."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from stator.base import collector


@pytest.fixture(autouse=True)
def unfrozen(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(collector, "_untold", 0)
    assert gc.isenabled() and not gc.get_freeze_count()
    yield
    gc.unfreeze()


def young() -> set[int]:
    return {id(item) for generation in (0, 1) for item in gc.get_objects(generation)}


def test_what_is_made_goes_on_as_old() -> None:
    with collector.paused():
        assert not gc.isenabled()
        made: list[object] = [[] for _ in range(3000)]
    assert gc.isenabled() and not gc.get_freeze_count()
    assert not young() & set(map(id, made))


class Node:
    """One end of a cycle."""

    def __init__(self) -> None:
        self.other = [self]


@pytest.mark.parametrize("alive", [0, 3000])
def test_garbage_goes_once_there_is_much(alive: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """After as many objects as a walk is worth, or as were alive after the last one."""
    monkeypatch.setattr(collector, "_WORTH_A_WALK", 2000)
    monkeypatch.setattr(collector, "_made", 0)
    monkeypatch.setattr(collector, "_alive", alive)
    monkeypatch.setattr(gc, "get_objects", lambda: [None] * alive)
    made: list[weakref.ref[Node]] = []
    for _ in range(50):
        with collector.paused():
            made += [weakref.ref(node) for node in [Node() for _ in range(100)]]
        left = sum(node() is not None for node in made)
        assert left * 2 <= max(2000, alive) + 1000
    assert left < len(made)


def test_what_a_user_froze_stays_frozen(monkeypatch: pytest.MonkeyPatch) -> None:
    """And is counted once for many compilations: that is a walk over all of it."""
    asked = []
    count = gc.get_freeze_count
    monkeypatch.setattr(gc, "get_freeze_count", lambda: asked.append(count()) or asked[-1])
    with collector.paused():
        pass
    assert asked == [0]
    gc.freeze()
    frozen = count()
    for _ in range(50):
        with collector.paused():
            pass
    assert 0 <= frozen - count() < 1000 and len(asked) == 2  # what of it is let go meanwhile is frozen no longer


def test_objects_that_are_frozen_no_longer_are_noticed() -> None:
    gc.freeze()
    with collector.paused():
        pass
    gc.unfreeze()
    for _ in range(200):
        with collector.paused():
            made: list[object] = [[] for _ in range(10)]
    assert not young() & set(map(id, made))


def test_a_collector_that_is_off_stays_off() -> None:
    gc.disable()
    try:
        with collector.paused():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
