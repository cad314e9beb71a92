"""The six models, whole-graph, in three dtypes: results, gradients and updated weights are eager's.

Each comparison is against float64: see `library.assert_near`.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

from tests.models.library import (
    DTYPES,
    MODELS,
    assert_near,
    compiled,
    exact,
    floating,
    model_and_inputs,
    numbered,
    state,
)


def train(model: Any, given: dict[str, torch.Tensor], steps: int) -> dict[str, torch.Tensor]:
    """A few steps of SGD: the last step's outputs and gradients, and the state afterwards."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(steps):
        optimizer.zero_grad()
        output = model(**given)
        output.loss.backward()
        optimizer.step()
    return {**numbered(floating(output)), **state(model)}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", MODELS)
def test_training(name: str, dtype: torch.dtype) -> None:
    model, given = model_and_inputs(name, dtype, train=True)
    eager, (truth, precise) = copy.deepcopy(model), exact(model, given)
    steps = 1 if dtype is torch.bfloat16 else 2
    assert_near(train(compiled(model), given, steps), train(eager, given, steps), train(truth, precise, steps), name)


@pytest.mark.parametrize("name", MODELS)
def test_inference(name: str) -> None:
    model, given = model_and_inputs(name)
    truth, precise = exact(model, given)
    fast = compiled(model)
    with torch.no_grad():
        output, eager, right = fast(**given), model(**given), truth(**precise)
    assert type(output) is type(eager) and output.keys() == eager.keys()
    assert_near(numbered(floating(output)), numbered(floating(eager)), numbered(floating(right)), name)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", ["llama", "resnet"])
def test_inference_mode(name: str, dtype: torch.dtype) -> None:
    model, given = model_and_inputs(name, dtype)
    truth, precise = exact(model, given)
    fast = compiled(model)
    with torch.inference_mode():
        output, eager, right = fast(**given), model(**given), truth(**precise)
        assert all(tensor.is_inference() for tensor in floating(output))
    assert_near(numbered(floating(output)), numbered(floating(eager)), numbered(floating(right)), name)


@pytest.mark.parametrize("name", ["gpt2", "resnet"])
def test_forward_with_grad(name: str) -> None:
    model, given = model_and_inputs(name)
    truth, precise = exact(model, given)
    output, eager = compiled(model)(**given), model(**given)
    assert output.logits.requires_grad and output.logits.grad_fn is not None
    right = truth(**precise)
    assert_near(numbered(floating(output)), numbered(floating(eager)), numbered(floating(right)), name)
