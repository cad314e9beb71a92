"""`torch.vmap` in a graph: results and gradients are eager's, and what a graph cannot hold ends it before the call."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch

import stator
from stator.base.errors import CaptureError

WEIGHT = torch.randn(4, requires_grad=True)
LAYER = torch.nn.Linear(4, 4)


def chained(x: torch.Tensor) -> Any:
    return torch.vmap(lambda a: torch.vmap(lambda b: (a * b).sum())(x))(x)


def modes(x: torch.Tensor) -> Any:
    def inner(t: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            scale = t * WEIGHT
        return t * scale

    return torch.vmap(inner)(x)


WHOLE: dict[str, Callable[[torch.Tensor], Any]] = {
    "closure": lambda x: torch.vmap(lambda t: t * WEIGHT + t.shape[0])(x) * 2,
    "several": lambda x: torch.vmap(lambda a, b: (a @ b, a + b, b), in_dims=(0, None))(x, WEIGHT),
    "dimensions": lambda x: torch.vmap(lambda a, b: a * b, in_dims=(0, 1), out_dims=1)(x, x.t()),
    "structure": lambda x: torch.vmap(lambda d: {"k": d["a"] + d["b"]})({"a": x, "b": x * 2})["k"],
    "module": lambda x: torch.vmap(lambda t: LAYER(t).tanh())(x),
    "itself": lambda x: torch.vmap(lambda t: t)(x),
    "chunks": lambda x: torch.vmap(lambda t: t.cumsum(0), chunk_size=2)(x),
    "written": lambda x: torch.vmap(lambda t: (t * 2).add_(1))(x),
    "constants": lambda x: torch.vmap(lambda t, c: t * c + torch.arange(4))(x, torch.tensor([1.0, 2.0, 3.0])),
    "numbers": lambda x: torch.func.vmap(lambda t: (t + 0.5) * 2 - (1 - t) / 3)(x[:, 0]),
    "number and bool": lambda x: torch.vmap(lambda t: torch.where(t > 0, t, 0.5) + (t > 0) * True)(x[0]),
    "nested": chained,
    "modes": modes,
}


def leaves(result: Any) -> list[torch.Tensor]:
    return [leaf for leaf in torch.utils._pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor)]


def gradients(result: Any, *inputs: torch.Tensor) -> Any:
    loss = torch.stack([leaf.square().sum() for leaf in leaves(result) if leaf.requires_grad]).sum()
    return torch.autograd.grad(loss, inputs, allow_unused=True)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("name", WHOLE)
def test_one_graph(name: str, backend: str) -> None:
    x = torch.randn(3, 4, requires_grad=True)
    got = stator.compile(WHOLE[name], backend=backend, fullgraph=True)(x)
    expected = WHOLE[name](x)
    torch.testing.assert_close(got, expected)
    given = (x, WEIGHT, *LAYER.parameters())
    torch.testing.assert_close(gradients(got, *given), gradients(expected, *given))


def collect(x: torch.Tensor) -> Any:
    seen: list[torch.Tensor] = []

    def inner(t: torch.Tensor) -> torch.Tensor:
        seen.append(t * 2)
        return t.sin()

    result = torch.vmap(inner)(x)
    return result, len(seen), seen[0].dim()


def test_effects_of_the_function() -> None:
    x = torch.randn(3, 4)
    got, count, rank = stator.compile(collect, fullgraph=True)(x)
    assert (count, rank) == (1, 1)
    torch.testing.assert_close(got, x.sin())


def leak(x: torch.Tensor) -> Any:
    seen: list[torch.Tensor] = []
    result = torch.vmap(lambda t: seen.append(t * 2) or t.sin())(x)  # type: ignore[func-returns-value]
    return result, seen[0] + 1


def overwrite(x: torch.Tensor) -> Any:
    other = torch.zeros(3, 4)
    return torch.vmap(lambda t, u: u.add_(t) * 2)(x, other), other


BROKEN: dict[str, tuple[Callable[[torch.Tensor], Any], str]] = {
    "a tensor that is kept": (leak, "used outside"),
    "a write": (overwrite, "writes to a tensor"),
    "a fact": (lambda x: torch.vmap(lambda t: t * 3 if (t * WEIGHT).requires_grad else t * 5)(x), "requires_grad"),
    "random numbers": (lambda x: torch.vmap(lambda t: t + 1, randomness="different")(x), "random"),
    "no dimension": (lambda x: torch.vmap(lambda t: (t, WEIGHT * 2), out_dims=(0, None))(x), "out_dims"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_a_graph_cannot_hold(name: str) -> None:
    function, reason = BROKEN[name]
    with pytest.raises(CaptureError, match=reason):
        stator.compile(function, fullgraph=True)(torch.randn(3, 4))


@pytest.mark.filterwarnings("ignore::stator.base.errors.FallbackWarning")
@pytest.mark.parametrize("name", sorted(BROKEN.keys() - {"a tensor that is kept"}))
def test_what_ends_a_graph_runs(name: str) -> None:
    function, _ = BROKEN[name]
    x = torch.randn(3, 4)
    theirs = x.clone()
    torch.testing.assert_close(stator.compile(function)(x), function(theirs))
    torch.testing.assert_close(x, theirs)


def test_the_store_tells_functions_apart() -> None:
    x = torch.randn(3, 4)
    for factor in (2, 3):
        compiled = stator.compile(lambda x, factor=factor: torch.vmap(lambda t: t * factor)(x), fullgraph=True)
        torch.testing.assert_close(compiled(x), x * factor)


def test_an_ensemble_is_called_by_a_module_without_data() -> None:
    """Parameters of type `meta` are read by nobody: the graph is one of the tensors that take their place."""
    models = [torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.Tanh()) for _ in range(3)]
    parameters, buffers = torch.func.stack_module_state(models)  # type: ignore[no-untyped-call]
    base = copy.deepcopy(models[0]).to("meta")

    def call(parameters: Any, buffers: Any, x: torch.Tensor) -> Any:
        return torch.func.functional_call(base, (parameters, buffers), (x,))

    def ensemble(x: torch.Tensor) -> Any:
        return torch.vmap(call, in_dims=(0, 0, None))(parameters, buffers, x)

    compiled = stator.compile(ensemble, fullgraph=True, options={"strict": True})
    for count in (3, 4):
        x = torch.randn(count, 4)
        torch.testing.assert_close(compiled(x), ensemble(x))
        compiled(x).sum().backward()
        found = {name: parameter.grad for name, parameter in parameters.items()}
        for parameter in parameters.values():
            parameter.grad = None
        ensemble(x).sum().backward()
        for name, parameter in parameters.items():
            torch.testing.assert_close(found[name], parameter.grad)
            parameter.grad = None
