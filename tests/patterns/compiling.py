"""Compiling a function and saying which patterns were replaced in it; tests of this folder share it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from typing import Any

import torch

import stator
from stator.base import log
from stator.patterns import register, unregister


def compiled(function: Callable[..., Any], *args: Any, **options: Any) -> tuple[Any, list[str], list[str]]:
    """The result, the names of patterns that were replaced, and why others were not."""
    with log.collect() as recorder:
        result = stator.compile(function, fullgraph=True, **options)(*args)
    facts = recorder.of(log.PATTERN)
    replaced = [fact["name"] for fact in facts if not fact["refused"]]
    return result, replaced, [fact["refused"] for fact in facts if fact["refused"]]


@contextmanager
def registered(search: Any, replace: Any, examples: Any, **more: Any) -> Any:
    """A pattern that is known for a while."""
    register(search, replace, examples, name="mine", **more)
    try:
        yield
    finally:
        unregister("mine")


def agree(function: Callable[..., Any], *args: torch.Tensor, tolerance: float = 2e-5) -> list[str]:
    """Values and gradients are those of eager, and of float64; gives what was replaced."""
    stator.reset()
    mine = [x.detach().clone().requires_grad_(x.requires_grad) for x in args]
    wide = [x.detach().double() if x.is_floating_point() else x for x in args]
    wide = [x.requires_grad_(y.requires_grad) for x, y in zip(wide, args, strict=True)]
    found, replaced, _ = compiled(function, *mine)
    expected, exact = function(*args), function(*wide)
    assert found.stride() == expected.stride()
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance, equal_nan=True)
    torch.testing.assert_close(found.double(), exact, rtol=tolerance, atol=tolerance, equal_nan=True)
    leaves = [i for i, x in enumerate(args) if x.requires_grad]
    if leaves:
        weight = torch.randn_like(expected)
        gradients = [
            torch.autograd.grad((out * weight).sum(), [given[i] for i in leaves])
            for out, given in ((found, mine), (expected, args), (exact, wide))
        ]
        for one, other, best in zip(*gradients, strict=True):
            torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance, equal_nan=True)
            torch.testing.assert_close(one.double(), best, rtol=tolerance, atol=tolerance, equal_nan=True)
    return replaced
