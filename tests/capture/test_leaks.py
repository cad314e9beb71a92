"""Calling, recompiling and forgetting keep nothing alive: reference counts, objects and memory stay as they were."""

from __future__ import annotations

import gc
import os
import sys
import weakref
from collections.abc import Callable
from typing import Any

import psutil
import pytest
import torch

import stator
from stator.capture.entry import versions_of

MiB = 1 << 20


class Layer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.scale = 2.0

    def forward(self, x: torch.Tensor, extra: list[Any] | None = None) -> torch.Tensor:
        y = self.linear(x) * self.scale
        if extra:
            y = y + extra[0]
        return y


def straight(x: torch.Tensor, other: list[Any]) -> Any:
    return x * 2 + other[0], other


def breaking(x: torch.Tensor, other: list[Any]) -> Any:
    total = x
    for number, item in enumerate(other):
        total = total + item
        stator.graph_break()
        total = total * number
    with torch.no_grad():
        stator.graph_break()
        last = total + 1
    return total, last, [other]


def raising(x: torch.Tensor, other: list[Any]) -> Any:
    try:
        stator.graph_break()
        y = x + other[5]
    except IndexError as error:
        y = x - 1
        stator.graph_break()
        return y, str(error)
    return y


FUNCTIONS = [straight, breaking, raising]

pytestmark = pytest.mark.usefixtures("few_objects")


def rss() -> int:
    gc.collect()
    return psutil.Process(os.getpid()).memory_info().rss


def grows(work: Callable[[], None]) -> bool:
    """Whether the process is larger after the work, each time; what other threads do to the heap happens once."""
    for _ in range(4):
        before = rss()
        work()
        if rss() - before < MiB:
            return False
    return True


def counts(objects: list[Any]) -> list[int]:
    # The collector does not look into code objects: what only dead code holds is found once that is gone.
    for _ in range(3):
        gc.collect()
    return [sys.getrefcount(each) for each in objects]


@pytest.mark.filterwarnings("ignore::stator.base.errors.FallbackWarning")
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_ten_thousand_calls(function: Callable[..., Any]) -> None:
    compiled = stator.compile(function, backend="eager")
    x, other = torch.randn(3), [torch.randn(3), torch.randn(3)]

    def call(times: int) -> None:
        for _ in range(times):
            compiled(x, other)

    call(500)
    held = [x, other, *other, function, function.__code__, function.__globals__]
    before, objects = counts(held), len(gc.get_objects())
    assert not grows(lambda: call(10_000))
    assert counts(held) == before
    assert len(gc.get_objects()) - objects < 50  # what other tests left may go meanwhile


@pytest.mark.filterwarnings("ignore::stator.base.errors.FallbackWarning")
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_recompiles_and_reset(function: Callable[..., Any]) -> None:
    compiled = stator.compile(function, backend="eager", dynamic=False, options={"recompile_limit": 1000})
    held = [function, function.__code__]

    def round_of(count: int) -> None:
        for size in range(2, 2 + count):
            compiled(torch.randn(size), [torch.randn(size)])
        stator.reset()
        assert not versions_of(compiled)

    round_of(20)
    round_of(20)

    def hundred_versions() -> None:
        for _ in range(5):
            round_of(20)

    before, objects = counts(held), len(gc.get_objects())
    assert not grows(hundred_versions)
    after = counts(held)
    assert [b - a for a, b in zip(before, after, strict=True)] == [0, 0]
    assert len(gc.get_objects()) - objects < 500


def test_a_module_goes_when_it_is_dropped() -> None:
    module = Layer()
    compiled = stator.compile(module, backend="eager")
    compiled(torch.randn(2, 4), [1])
    compiled(torch.randn(2, 4))
    alive = weakref.ref(module), weakref.ref(module.linear.weight)
    del module, compiled
    stator.reset()
    gc.collect()
    assert [reference() for reference in alive] == [None, None]


def test_arguments_are_not_kept() -> None:
    @stator.compile(backend="eager")
    def program(x: torch.Tensor, box: Any) -> torch.Tensor:
        return x + box.value

    class Box:
        def __init__(self) -> None:
            self.value = torch.randn(3)

    box, x = Box(), torch.randn(3)
    program(x, box)
    alive = weakref.ref(box), weakref.ref(x), weakref.ref(box.value)
    del box, x
    gc.collect()
    assert [reference() for reference in alive] == [None, None, None]
