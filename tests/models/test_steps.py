"""Training loops of other shapes: accumulation, kept graphs, forward without backward, parts outside."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.models.library import assert_near, compiled, exact, model_and_inputs, state

Given = dict[str, torch.Tensor]


def twice(model: Any, given: Given) -> None:
    """Gradients of two calls add up."""
    model(**given).loss.backward()
    (2 * model(**given).loss).backward()


def kept(model: Any, given: Given) -> None:
    """One graph, two backward passes."""
    output = model(**given)
    output.loss.backward(retain_graph=True)
    output.logits.float().square().mean().backward()


def interleaved(model: Any, given: Given) -> None:
    """Calls without a backward pass, and two forwards before two backwards, in the same order."""
    model(**given)
    first, second = model(**given).loss, model(**given).loss
    with torch.no_grad():
        model(**given)
    first.backward()
    second.backward()


def in_a_larger_graph(model: Any, given: Given) -> None:
    """The model is a part of what is differentiated."""
    output = model(**given)
    weights = torch.linspace(-1, 1, output.logits.shape[-1], dtype=output.logits.dtype)
    (output.logits.softmax(-1) * weights).sum().backward()


@pytest.mark.parametrize("pattern", [twice, kept, interleaved, in_a_larger_graph], ids=lambda f: f.__name__)
@pytest.mark.parametrize("name", ["gpt2", "resnet"])
def test_gradients(name: str, pattern: Callable[[Any, Given], None]) -> None:
    model, given = model_and_inputs(name, train=True)
    eager, (truth, precise) = copy.deepcopy(model), exact(model, given)
    pattern(compiled(model), given)
    pattern(eager, given)
    pattern(truth, precise)
    assert_near(state(model), state(eager), state(truth), name)


def test_a_graph_is_freed_after_backward() -> None:
    model, given = model_and_inputs("gpt2", train=True)
    loss = compiled(model)(**given).loss
    loss.backward()
    with pytest.raises(RuntimeError, match=r"second time|retain_graph"):
        loss.backward()


def test_saved_values_are_not_the_callers_to_change() -> None:
    """What backward needs and somebody changes in place is noticed, as in eager."""

    def function(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return (x.sin() * w).exp()

    x, w = torch.randn(5, requires_grad=True), torch.randn(5, requires_grad=True)
    out = compiled(function)(x, w)
    with torch.no_grad():
        w.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


def test_gradients_of_inputs() -> None:
    """Embeddings given as input get gradients, through non-leaf inputs too."""
    model, given = model_and_inputs("llama")
    found = []
    for run in (compiled(model), model):
        ids = model.model.embed_tokens(given["input_ids"]).detach().requires_grad_()
        run(inputs_embeds=ids * 1.0).logits.square().mean().backward()
        found.append(ids.grad)
        model.zero_grad()
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-8)


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.AdamW])
def test_learning(optimizer: Any) -> None:
    """Twenty steps take the loss to where eager takes it."""
    losses = []
    for compile_it in (True, False):
        model, given = model_and_inputs("gpt2", train=True)
        steps = optimizer(
            model.parameters(),
            lr=0.1 if optimizer is torch.optim.SGD else 1e-3,
            **({"momentum": 0.9} if optimizer is torch.optim.SGD else {}),
        )
        run = compiled(model) if compile_it else model
        curve = []
        for _ in range(20):
            loss = run(**given).loss
            loss.backward()
            steps.step()
            steps.zero_grad()
            curve.append(loss.item())
        losses.append(curve)
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)
    assert losses[0][-1] < 0.9 * losses[0][0]
