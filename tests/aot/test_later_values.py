"""Inputs that change between a call and its backward: an error where eager keeps them, eager's gradient elsewhere.

A loop that fills one buffer again and again, and differentiates the sum of its losses in the end, is such a program.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import stator

#: Functions of two matrices.
PROGRAMS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "sum": lambda x, y: x + y,
    "multiple": lambda x, y: x * 3 - y,
    "product": lambda x, y: x * y,
    "relu": lambda x, y: x.relu() * 2,
    "sine of a sum": lambda x, y: (x + y).sin(),
    "exponential": lambda x, y: (x * 2 + y).exp(),
    "tanh": lambda x, y: x.tanh() + y,
    "softmax": lambda x, y: x.softmax(1)[0],
    "log_softmax": lambda x, y: F.log_softmax(x + y, 1)[0],
    "where": lambda x, y: torch.where(x > y, x, 0.0),
    "mask": lambda x, y: x.masked_fill(y > 0, 0.0),
    "largest": lambda x, y: (x - y).amax(1),
    "matmul": lambda x, y: (x @ y).tanh(),
    "matmul of a sum": lambda x, y: (x + 1) @ y,
    "norm": lambda x, y: F.layer_norm(x + y, (4,)),
    "error": lambda x, y: (x - y).square().mean(),
    "views": lambda x, y: x[1:].cos() * y.t()[:3].float(),
    "cast": lambda x, y: (x.double() * x.double()).sum() + y,
}


def after_a_write(call: Callable[[Tensor, Tensor], Tensor], which: int, leaves: bool) -> Any:
    torch.manual_seed(0)
    given = [torch.randn(4, 4).requires_grad_() for _ in range(2)]
    inputs = given if leaves else [t * 1 for t in given]
    out = call(*inputs)
    with torch.no_grad():
        inputs[which].add_(1)
    try:
        return torch.autograd.grad(out.sum(), given, allow_unused=True)
    except RuntimeError as error:
        return str(error).split(":")[0]


@pytest.mark.parametrize("name", PROGRAMS)
def test_is_as_in_eager(name: str) -> None:
    program = PROGRAMS[name]
    call = stator.compile(program, fullgraph=True, options={"strict": True})
    for which, leaves in ((0, True), (1, True), (0, False), (1, False)):
        expected, found = after_a_write(program, which, leaves), after_a_write(call, which, leaves)
        assert isinstance(found, str) == isinstance(expected, str), (name, which, found)
        if isinstance(found, str):
            assert found == expected
        else:
            torch.testing.assert_close(found, expected)


def test_one_buffer_for_all_steps() -> None:
    weight, results = torch.randn(4, requires_grad=True), []
    batches = [torch.randn(3, 4) for _ in range(3)]
    for call in (step, stator.compile(step, fullgraph=True, options={"strict": True})):
        buffer, total = torch.zeros(3, 4), torch.zeros(())
        for batch in batches:
            total = total + call(buffer.copy_(batch), weight)
        results.append(torch.autograd.grad(total, weight))
    torch.testing.assert_close(results[1], results[0])


def step(x: Tensor, weight: Tensor) -> Tensor:
    return (x + weight).sin().relu().sum()
