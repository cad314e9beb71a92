"""What a program of this benchmark is: something to compile, inputs of two sizes, and what a user does with a call.

`run` is outside of what is compiled: it calls the model, and in training asks for gradients. Its results are compared
with eager's, and both with the same program in float64. Neighbours: `__main__.py`, the files of programs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

Run = Callable[..., Any]


def forward(model: Any, *inputs: Any) -> Any:
    """Inference: the call and no more."""
    with torch.no_grad():
        return model(*inputs)


def training(model: Any, *inputs: Any) -> Any:
    """A step of training without the optimizer: loss, and a gradient for every parameter."""
    for parameter in model.parameters():
        parameter.grad = None
    loss = model(*inputs)
    loss.backward()
    return loss.detach(), {name: parameter.grad for name, parameter in model.named_parameters()}


def plain(function: Any, *inputs: Any) -> Any:
    """A function that does all there is to do."""
    return function(*inputs)


@dataclass(frozen=True, slots=True)
class Program:
    """`make` gives what is compiled, `inputs` the arguments of the first or the second size."""

    name: str
    make: Callable[[], Any]
    inputs: Callable[[int], tuple[Any, ...]]
    run: Run = forward


#: Every program by its name, in the order of the files.
PROGRAMS: dict[str, Program] = {}


def program(
    make: Callable[[], Any], inputs: Callable[[int], tuple[Any, ...]], run: Run = forward, name: str = ""
) -> None:
    """Add a program, named after its class."""
    found = Program(name or getattr(make, "__name__", "program").lower(), make, inputs, run)
    assert found.name not in PROGRAMS, found.name
    PROGRAMS[found.name] = found


def tensors(value: Any) -> Iterator[Tensor]:
    """The tensors in a result, in order."""
    match value:
        case Tensor():
            yield value
        case dict():
            for item in value.values():
                yield from tensors(item)
        case tuple() | list():
            for item in value:
                yield from tensors(item)


def widened(value: Any) -> Any:
    """Inputs in float64, those that are floats."""
    match value:
        case Tensor():
            return value.double() if value.is_floating_point() else value
        case tuple() | list():
            return type(value)(widened(item) for item in value)
    return value
