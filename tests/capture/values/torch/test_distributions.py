"""`torch.distributions`, made as users make them, arguments checked: one graph, with eager's numbers and gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import distributions as d

import stator

#: Of logits `x` and positive numbers `p` of one shape.
DISTRIBUTIONS: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    "categories of logits": lambda x, p: d.Categorical(logits=x),
    "categories": lambda x, p: d.Categorical(probs=p),
    "one-hot": lambda x, p: d.OneHotCategorical(logits=x),
    "straight through": lambda x, p: d.OneHotCategoricalStraightThrough(logits=x),
    "coins of logits": lambda x, p: d.Bernoulli(logits=x),
    "coins": lambda x, p: d.Bernoulli(probs=p),
    "geometric": lambda x, p: d.Geometric(logits=x),
    "negative binomial": lambda x, p: d.NegativeBinomial(3.0, logits=x),
    "relaxed": lambda x, p: d.RelaxedOneHotCategorical(torch.tensor(0.5), logits=x),
    "normal": lambda x, p: d.Normal(x, p),
    "of several": lambda x, p: d.Independent(d.Normal(x, p), 1),
    "transformed": lambda x, p: d.TransformedDistribution(d.Normal(x, p), [d.TanhTransform(cache_size=1)]),
    "mixed": lambda x, p: d.MixtureSameFamily(d.Categorical(logits=x), d.Normal(x, p)),
    "correlated": lambda x, p: d.MultivariateNormal(x, scale_tril=torch.eye(3)),
    "exponential": lambda x, p: d.Exponential(p),
    "laplace": lambda x, p: d.Laplace(x, p),
    "cauchy": lambda x, p: d.Cauchy(x, p),
    "weibull": lambda x, p: d.Weibull(p, p),
    "pareto": lambda x, p: d.Pareto(p, p),
    "beta": lambda x, p: d.Beta(p, p),
    "gamma": lambda x, p: d.Gamma(p, p),
    "dirichlet": lambda x, p: d.Dirichlet(p),
}


@pytest.fixture(autouse=True)
def checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arguments are checked, which torch.compile switches off for the whole process."""
    monkeypatch.setattr(d.Distribution, "_validate_args", True)


def outcome(function: Any) -> list[Any]:
    torch.manual_seed(3)
    x = torch.randn(4, 3, requires_grad=True)
    found: list[Any] = list(function(x))
    loss = sum(item.sum() for item in found if item.requires_grad)
    return [*found, *torch.autograd.grad(loss, x)]


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_drawn_and_weighed(name: str) -> None:
    make = DISTRIBUTIONS[name]

    def policy(x: torch.Tensor) -> Any:
        made = make(x, x.softmax(-1))
        drawn = made.rsample() if made.has_rsample else made.sample()
        return drawn, made.log_prob(drawn)

    compiled = stator.compile(policy, fullgraph=True, backend="eager", options={"strict": True})
    for ours, theirs in zip(outcome(compiled), outcome(policy), strict=True):
        torch.testing.assert_close(ours, theirs)
        assert ours.requires_grad == theirs.requires_grad


def test_lazy_properties() -> None:
    def policy(x: torch.Tensor) -> Any:
        made = d.Categorical(logits=x)
        return made.probs, made.entropy(), made.mode, isinstance(type(made).probs, property)

    compiled = stator.compile(policy, fullgraph=True, backend="eager")
    x = torch.randn(4, 3)
    torch.testing.assert_close(compiled(x), policy(x))


def test_wrong_arguments_raise() -> None:
    compiled = stator.compile(lambda x: d.Normal(x, x).log_prob(x))
    compiled(torch.rand(3) + 0.1)
    with pytest.raises(ValueError, match="to satisfy the constraint"):
        compiled(-torch.rand(3) - 0.1)
