"""When a call compiles again and when it does not: sizes, modes, dtypes, weights."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

from stator.capture.entry import versions_of
from tests.models.library import (
    assert_near,
    compiled,
    disable_dropout,
    exact,
    floating,
    model_and_inputs,
    numbered,
    state,
)


@pytest.mark.parametrize("name", ["gpt2", "resnet"])
@torch.no_grad()
def test_a_second_size_and_the_first_again(name: str) -> None:
    model, given = model_and_inputs(name)
    truth, _ = exact(model, given)
    fast = compiled(model)
    small = {k: v[..., :48] for k, v in given.items()}
    for inputs, count in ((given, 1), (small, 2), (given, 2), (small, 2)):
        right = {k: v.double() if v.is_floating_point() else v for k, v in inputs.items()}
        outputs = [floating(m(**i)) for m, i in ((fast, inputs), (model, inputs), (truth, right))]
        assert_near(*map(numbered, outputs), name)
        assert len(versions_of(fast)) == count


@pytest.mark.parametrize("name", ["bert", "resnet"])
def test_train_and_eval(name: str) -> None:
    """Each mode has a version; dropout and batch norm follow the switch, whichever object is switched."""
    model, given = model_and_inputs(name, dropout=True)
    fast = compiled(model)
    with torch.no_grad():
        calm = floating(fast(**given))
        fast.train()
        lively = floating(fast(**given))
        model.eval()
        again = floating(fast(**given))
    assert len(versions_of(fast)) == 2
    assert not torch.allclose(calm[0], lively[0])
    if name == "bert":
        assert all(torch.equal(a, b) for a, b in zip(calm, again, strict=True))
    eager = floating(model(**given))
    torch.testing.assert_close(again, eager, rtol=1e-4, atol=1e-5)


def test_grad_modes() -> None:
    model, given = model_and_inputs("gpt2")
    fast = compiled(model)
    for _ in range(2):
        assert fast(**given).logits.requires_grad
        with torch.no_grad():
            assert not fast(**given).logits.requires_grad
        with torch.inference_mode():
            assert fast(**given).logits.is_inference()
    assert len(versions_of(fast)) == 3


def test_weights_are_read_at_each_call() -> None:
    """New values, loaded or stepped, need no new version; new tensors do."""
    model, given = model_and_inputs("bert")
    other, _ = model_and_inputs("bert")
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.mul_(1.5)
    fast = compiled(model)
    with torch.no_grad():
        fast(**given)
        model.load_state_dict(other.state_dict())
        torch.testing.assert_close(fast(**given).logits, other(**given).logits, rtol=1e-4, atol=1e-5)
        assert len(versions_of(fast)) == 1
        model.classifier.weight = torch.nn.Parameter(torch.zeros_like(model.classifier.weight))
        model.classifier.bias.data = torch.full_like(model.classifier.bias, 3)
        assert torch.equal(fast(**given).logits, torch.full_like(fast(**given).logits, 3))
        assert len(versions_of(fast)) == 2


def test_frozen_parameters() -> None:
    """Freezing some parameters is seen, and they get no gradients."""
    model, given = model_and_inputs("bert", train=True)
    eager, (truth, precise) = copy.deepcopy(model), exact(model, given)
    fast = compiled(model)
    fast(**given).loss.backward()
    results = []
    for m, run, inputs in ((model, fast, given), (eager, eager, given), (truth, truth, precise)):
        m.zero_grad()
        m.bert.embeddings.requires_grad_(False)
        run(**inputs).loss.backward()
        results.append(state(m))
    assert "bert.embeddings.word_embeddings.weight.grad" not in results[0]
    assert_near(*results)


def test_a_model_moved_to_another_dtype() -> None:
    model: Any
    model, given = model_and_inputs("vit")
    disable_dropout(model)
    fast = compiled(model)
    with torch.no_grad():
        assert fast(**given).logits.dtype is torch.float32
        model.double()
        given = {k: v.double() for k, v in given.items()}
        torch.testing.assert_close(fast(**given).logits, model(**given).logits, rtol=1e-12, atol=1e-13)
