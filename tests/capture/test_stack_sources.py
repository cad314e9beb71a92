"""Values without a name, born after a break, are told by the expression that gave them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

import stator
from stator.base import log
from stator.base.errors import StatorWarning

LINES: dict[str, Callable[[torch.Tensor], Any]] = {
    "x.sum().item()": lambda x: x * x.sum().item(),
    "x.mean().item()": lambda x: [x, x.mean().item(), x.sum().item() * 0][1] * x,
    "x.argmax().item()": lambda x: (x + 1) * (x.argmax().item() if x.numel() else x.sum().item()),
    "float(x[0])": lambda x: torch.add(x, float(x[0]), alpha=int(x.numel())),
    "x.max().item()": lambda x: ("é", x.max().item())[1] * x,
    "(x.sum() + x.mean() + x.max() + x.min() + x.prod()).item()": lambda x: (
        (x.sum() + x.mean() + x.max() + x.min() + x.prod()).item() * x
    ),
}


def told(fn: Callable[..., Any]) -> list[str]:
    """Every sentence about guards and recompiles of a few calls."""
    compiled = stator.compile(fn, backend="eager", options={"recompile_limit": 2})
    with log.collect() as recorder, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", StatorWarning)
        for n in range(6):
            x = torch.randn(3 + n) + n
            torch.testing.assert_close(compiled(x), fn(x))
    texts = [text for facts in recorder.of(log.GUARDS) for text in facts["guards"]]
    texts += [facts["reason"] for facts in recorder.of(log.RECOMPILE)]
    return texts + [str(item.message) for item in caught]


@pytest.mark.parametrize("expression", LINES)
def test_the_expression_stands_for_the_value(expression: str) -> None:
    texts = told(LINES[expression])
    assert not [text for text in texts if "'.s" in text]
    named = [text for text in texts if " at line " in text]
    line = LINES[expression].__code__.co_firstlineno
    assert named and any(f"at line {line}" in text or f"at line {line + 1}" in text for text in named)
    assert any(expression[:20] in text for text in named), named


def test_a_value_on_the_stack_over_a_break_in_a_loop() -> None:
    def loop(x: torch.Tensor) -> torch.Tensor:
        for i, k in enumerate([1.5, x.sum().item(), 2.5]):
            x = x * k + i * len(str(x.max().item()))
        return x

    texts = told(loop)
    assert not [text for text in texts if "'.s" in text]
    assert any("enumerate(" in text for text in texts)


def test_source_that_cannot_be_read() -> None:
    namespace: dict[str, Any] = {}
    exec(compile("def f(x):\n    return x * x.sum().item()\n", "<nowhere>", "exec"), namespace)
    texts = told(namespace["f"])
    assert any("(a value at line 2)" in text for text in texts) and not any("'.s" in text for text in texts)


def test_long_expressions_are_shortened() -> None:
    def long(x: torch.Tensor) -> torch.Tensor:
        return x * (x.sum() + x.mean() + x.max() + x.min() + x.prod() + x.sum() + x.mean() + x.max() + x.min()).item()

    named = [text for text in told(long) if "x.prod()" in text]
    assert named and all("…" in text for text in named)
