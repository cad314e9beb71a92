"""Regions for the tests of the frame hook."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

from stator import _native
from stator._native import GuardTree

ALWAYS = GuardTree((), (), ())


class Hook:
    """Settings of a region, and the handler: it notes what it is asked, and answers from a table."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.answers: dict[types.CodeType, Callable[..., None]] = {}

    def handle(self, settings: object, function: types.FunctionType, slots: tuple[Any, ...], entries: Any) -> None:
        assert settings is self
        self.asked.append(function.__name__)
        answer = self.answers.get(function.__code__)
        if answer is None:
            _native.skip_code(function.__code__)
        else:
            answer(function, slots, entries)

    def replace(
        self, function: Any, by: Any, tree: GuardTree = ALWAYS, watch: bool = False, instance: object = None
    ) -> Any:
        """A version of the function's frames; `by` None runs them as they are."""
        entries = _native.frame_entries(function.__code__, self, instance)
        entries.add(tree, by and by.__code__, watch)
        entries.closed = True
        return entries

    def call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Calls it in a region."""
        return _native.watched(self, function, *args, **kwargs)

    def through(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Calls it from a region, so that its own frame is looked at."""
        return _native.watched(self, lambda: function(*args, **kwargs))
