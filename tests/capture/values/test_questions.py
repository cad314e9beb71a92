"""What guards ask again at each call: nothing whose answer follows from its arguments, and each question once."""

from __future__ import annotations

import collections
import os
from collections.abc import Callable
from typing import Any, cast

import pytest
import torch

import stator
from stator.base import log
from stator.capture.entry import versions_of
from stator.capture.values.python.objects.klass import is_subscripted_in_c


def guards_of(fn: Callable[..., Any], *args: Any) -> tuple[Any, list[str]]:
    """The compiled function after a call, and its guards."""
    with log.collect() as recorder:
        compiled = stator.compile(fn, fullgraph=True)
        torch.testing.assert_close(compiled(*args), fn(*args))
    (facts,) = recorder.of(log.GUARDS)
    return compiled, facts["guards"]


def test_generic_aliases_of_builtins_need_no_guard() -> None:
    def cast_often(x: torch.Tensor) -> torch.Tensor:
        for _ in range(5):
            x = cast(list[Any], [x + 1, dict[str, tuple[int, ...]], collections.deque[int]])[0]
        return x

    _, guards = guards_of(cast_often, torch.randn(3))
    assert not any("getitem" in text or ("==" in text and "list[" in text) for text in guards)


class Plain:
    def __class_getitem__(cls, key: object) -> object:
        return key


class Built(dict):  # type: ignore[type-arg]
    pass


@pytest.mark.parametrize(
    ("cls", "expected"),
    [(list, True), (dict, True), (collections.deque, True), (int, False), (Plain, False), (Built, False),
     (collections.OrderedDict, False), (collections.abc.Callable, False), (torch.Tensor, False)],
)  # fmt: skip
def test_which_classes_nobody_can_change(cls: Any, expected: bool) -> None:
    assert is_subscripted_in_c(cls) is expected
    if expected:
        with pytest.raises(TypeError):
            cls.__class_getitem__ = None


def test_a_question_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def depends(x: torch.Tensor) -> torch.Tensor:
        for _ in range(4):
            if os.environ.get("A_QUESTION", "1") == "1" and os.environ.get("ANOTHER", "1") == "1":
                x = x + len(str(Callable[[Any], bool]))
        return x

    compiled, guards = guards_of(depends, torch.randn(3))
    assert sum("'1'" in text for text in guards) == 2, "\n".join(guards)
    monkeypatch.setenv("ANOTHER", "2")
    x = torch.randn(3)
    assert torch.equal(compiled(x), x)
    assert len(versions_of(compiled)) == 2
