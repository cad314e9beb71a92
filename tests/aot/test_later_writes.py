"""What a caller does to inputs and results after a call: values, histories, gradients and errors are eager's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import stator
from tests.aot.programs_of_writes import PROGRAMS
from tests.aot.relations import Function, Inputs, differences, flat, gradients, told
from tests.aot.test_aliasing import KINDS, ends, mixed

Tensors = list[torch.Tensor]


def scaled(inputs: Tensors, outputs: Tensors) -> None:
    """A write to the first result that takes part in autograd."""
    outputs[0].mul_(torch.tensor(2.0, requires_grad=True))


def scaled_as_data(inputs: Tensors, outputs: Tensors) -> None:
    """A write to the last result that autograd counts but does not record."""
    with torch.no_grad():
        outputs[-1].mul_(3)


def scaled_input(inputs: Tensors, outputs: Tensors) -> None:
    """A write to an input that takes part in autograd."""
    inputs[0].mul_(torch.tensor(2.0, requires_grad=True))


def scaled_input_as_data(inputs: Tensors, outputs: Tensors) -> None:
    """A write to an input that autograd counts but does not record."""
    with torch.no_grad():
        inputs[1].mul_(3)


def after(function: Function, make: Inputs, write: Callable[[Tensors, Tensors], None]) -> Any:
    """All tensors of one call, and the gradients, once something was written; or the kind of error."""
    inputs = make()
    try:
        outputs = [out for out in flat(function(*inputs)) if isinstance(out, torch.Tensor)]
        if not outputs:
            return None
        write(inputs, outputs)
        return [told(tensor) for tensor in (*inputs, *outputs)], gradients(inputs, outputs)
    except RuntimeError as error:
        return type(error).__name__


WRITES = (scaled, scaled_as_data, scaled_input, scaled_input_as_data)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("make", [*KINDS.values(), mixed], ids=lambda make: make.__name__)
@pytest.mark.parametrize("text", PROGRAMS)
def test_is_as_in_eager(text: str, make: Inputs) -> None:
    function = ends(*[statement.strip() for statement in text.split(";")])
    compiled = stator.compile(function, backend="aot_eager")
    for write in WRITES:
        expected, got = after(function, make, write), after(compiled, make, write)
        if isinstance(got, tuple) and isinstance(expected, tuple) and "RuntimeError" in (got[1], expected[1]):
            assert expected[1] == got[1] == "RuntimeError", write.__name__
            got, expected = got[0], expected[0]
        found = differences(got, expected)
        assert not found, f"{write.__name__}: " + "; ".join(found)[:600]
