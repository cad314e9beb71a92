"""Dropout in training: right in distribution, governed by the seed, one mask for forward and backward."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.models.library import compiled, floating, model_and_inputs, state

P = 0.3
COUNT = 100_000


def dropped(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The gradient of x reveals the mask of the first dropout, that of y the second's."""
    return torch.nn.functional.dropout(x, P, True).cos() + torch.nn.functional.dropout(y, P, True).sin()


def test_forward_and_backward_agree_on_the_mask() -> None:
    drop = compiled(lambda x: torch.nn.functional.dropout(x, P, training=True))
    x = torch.randn(COUNT, requires_grad=True)
    out = drop(x)
    out.sum().backward()
    assert x.grad is not None
    assert torch.equal(out == 0, x.grad == 0)
    torch.testing.assert_close(out, x.detach() * x.grad)
    torch.testing.assert_close(x.grad[x.grad != 0], torch.full_like(x.grad[x.grad != 0], 1 / (1 - P)))


def test_distribution_and_independence() -> None:
    """Keep rates within five sigma: each mask, masks of two places, of two calls, of neighbouring elements."""
    x, y = torch.zeros(COUNT, requires_grad=True), torch.zeros(COUNT, requires_grad=True)
    fast = compiled(dropped)
    masks = []
    for _ in range(2):
        x_out = torch.ones(COUNT, requires_grad=True)
        fast(x_out, y).sum().backward()
        assert x_out.grad is not None and y.grad is not None
        masks += [x_out.grad != 0, y.grad != 0]
        x.grad = y.grad = None
    keep = 1 - P
    sigma = (P * keep / COUNT) ** 0.5
    for mask in masks:
        assert abs(mask.double().mean().item() - keep) < 5 * sigma
    both = keep * keep
    pairs = [(a, b) for i, a in enumerate(masks) for b in masks[i + 1 :]] + [(m[1:], m[:-1]) for m in masks]
    for a, b in pairs:
        assert abs((a & b).double().mean().item() - both) < 5 * (both * (1 - both) / COUNT) ** 0.5


def step(model: Any, fast: Any, given: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    model.zero_grad()
    output = fast(**given)
    output.loss.backward()
    return {"loss": output.loss.detach(), "logits": floating(output)[1], **state(model)}


@pytest.mark.parametrize("name", ["gpt2", "t5"])
def test_the_seed_governs(name: str) -> None:
    """One seed, one result, loss and gradients; without seeding, or with another seed, they differ."""
    model, given = model_and_inputs(name, train=True, dropout=True)
    fast = compiled(model)
    step(model, fast, given)
    results = []
    for seed in (3, 3, 4, None):
        if seed is not None:
            torch.manual_seed(seed)
        results.append(step(model, fast, given))
    first, second, *others = results
    assert all(torch.equal(first[key], second[key]) for key in first)
    for other in others:
        assert not torch.equal(first["logits"], other["logits"])
        assert sum(not torch.equal(first[key], other[key]) for key in first if key.endswith(".grad")) > 10


def test_a_model_under_dropout_has_eagers_distribution() -> None:
    """Mean and spread of single logits over many calls."""
    model, given = model_and_inputs("bert", train=True, dropout=True)
    fast = compiled(model)
    samples = {}
    with torch.no_grad():
        for name, run in (("ours", fast), ("eager", model)):
            samples[name] = torch.stack([run(**given).logits for _ in range(120)]).double()
    ours, eager = samples["ours"], samples["eager"]
    sigma = (ours.var(0) / len(ours) + eager.var(0) / len(eager)).sqrt()
    assert ((ours.mean(0) - eager.mean(0)).abs() < 5 * sigma).all()
    ratio = ours.std(0) / eager.std(0)
    assert ((ratio > 0.6) & (ratio < 1.6)).all()


def test_gradients_belong_to_the_mask_of_their_forward() -> None:
    """The directional derivative, measured with the same seed, is the gradient's."""
    model, given = model_and_inputs("gpt2", torch.float64, train=True, dropout=True)
    model.loss_type = None
    fast = compiled(model)

    def loss() -> torch.Tensor:
        torch.manual_seed(7)
        return (fast(input_ids=given["input_ids"]).logits * weights).sum()

    weights = torch.randn(given["input_ids"].shape[1], model.config.vocab_size, dtype=torch.float64)
    loss().backward()
    directions = [torch.randn_like(parameter) for parameter in model.parameters()]
    slope = sum((p.grad * d).sum() for p, d in zip(model.parameters(), directions, strict=True))
    values = []
    for sign in (1, -1):
        with torch.no_grad():
            for parameter, direction in zip(model.parameters(), directions, strict=True):
                parameter.add_(direction, alpha=sign * 1e-5)
        values.append(loss().item())
        with torch.no_grad():
            for parameter, direction in zip(model.parameters(), directions, strict=True):
                parameter.sub_(direction, alpha=sign * 1e-5)
    assert isinstance(slope, torch.Tensor)
    assert (values[0] - values[1]) / 2e-5 == pytest.approx(slope.item(), rel=1e-4)


@pytest.mark.parametrize("seed", [0, 1])
def test_eager_random_gives_eagers_numbers(seed: int) -> None:
    def noise(x: torch.Tensor) -> torch.Tensor:
        return torch.rand_like(x) + torch.nn.functional.dropout(x, 0.5, True) + torch.empty_like(x).uniform_()

    x = torch.randn(64)
    fast = compiled(noise, options={"eager_random": True})
    torch.manual_seed(seed)
    got = fast(x)
    torch.manual_seed(seed)
    torch.testing.assert_close(got, noise(x))


def test_numbers_under_a_mask() -> None:
    """Where only some elements are random numbers, the others' seeds are not loaded."""
    x, order = torch.randn(48), torch.randperm(96)
    mixed = compiled(lambda x, order: torch.cat([torch.rand(48), x])[order])
    alone = compiled(lambda x: torch.rand(48) * torch.ones_like(x))
    torch.manual_seed(3)
    found = mixed(x, order)
    torch.manual_seed(3)
    assert torch.equal(found, torch.cat([alone(x), x])[order])
