"""Ways to ask for gradients, and hooks on results: batches of tangents, Jacobians, graphs that are walked twice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd.functional import hessian, jacobian

import stator
from stator.base.errors import Unsupported
from tests.aot.test_autograd import Compiling, equal, leaf

Ask = Callable[[Compiling], Any]


def batches(compiling: Compiling) -> Any:
    x, y = leaf(3), leaf(3)
    first, total = compiling(lambda x, y: (x.sin() * x, (x * y).sum()))(x, y)
    many, each = torch.randn(4, 3), torch.randn(4)

    def ask(results: list[Tensor], tangents: list[Tensor], **options: bool) -> Any:
        found = torch.autograd.grad(
            results, [x, y], tangents, is_grads_batched=True, retain_graph=True, allow_unused=True, **options
        )
        return [None if grad is None else grad.detach() for grad in found]

    return [ask([first, total], [many, each]), ask([first], [many]), ask([total], [each], create_graph=True)]


def maps(compiling: Compiling) -> Any:
    x, tangents = leaf(3), torch.randn(2, 3)
    out = compiling(lambda x: x.sin() * x)(x)

    def pull(tangent: Tensor) -> Tensor:
        return torch.autograd.grad(out, x, tangent, retain_graph=True)[0]

    def twice(scale: Tensor) -> Tensor:
        return torch.func.vmap(lambda tangent: pull(tangent * scale))(tangents)

    return [torch.func.vmap(pull)(tangents), torch.func.vmap(twice)(tangents)]


def dropped(compiling: Compiling) -> Any:
    """Every element of a batch sees the same random numbers."""
    x = torch.ones(8, requires_grad=True)
    out = compiling(lambda x: torch.dropout(x, 0.5, True))(x)
    (grad,) = torch.autograd.grad(out, x, torch.eye(8), is_grads_batched=True)
    return torch.equal(grad, torch.diag(out.detach()))


def jacobians(compiling: Compiling) -> Any:
    call, x = compiling(lambda x: x.sin() * x**2), leaf(3)
    found = [jacobian(call, x, vectorize=vectorize) for vectorize in (False, True)]
    return [found, hessian(lambda x: call(x).sum(), x, vectorize=True)]


def again_where_nothing_is_saved(compiling: Compiling) -> Any:
    x, y = leaf(3), leaf(3)
    out = compiling(lambda x, y: (x + y).sum())(x, y)
    out.backward()
    out.backward()
    return [x.grad, y.grad]


def hooks_of_saved_tensors_are_disabled(compiling: Compiling) -> Any:
    x = leaf(3)
    with torch.autograd.graph.disable_saved_tensors_hooks("not now"):
        compiling(lambda x: x.sin().exp())(x).sum().backward()
    return x.grad


ASKS: list[Ask] = [batches, maps, dropped, jacobians, again_where_nothing_is_saved, hooks_of_saved_tensors_are_disabled]


@pytest.mark.parametrize("ask", ASKS, ids=lambda ask: ask.__name__)
def test_is_as_in_eager(ask: Ask) -> None:
    torch.manual_seed(0)
    expected = ask(lambda function: function)
    torch.manual_seed(0)
    equal(ask(lambda function: stator.compile(function, fullgraph=True, options={"strict": True})), expected)


def inner(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    hidden = x.sin()
    return hidden, (hidden * hidden).sum(), x.exp()


def test_a_hook_on_a_result_inside_the_graph_is_never_ignored() -> None:
    """What flows into the result from other results is not to be seen: no gradient rather than a wrong one."""
    call = stator.compile(inner, fullgraph=True, options={"strict": True})
    for watch in (Tensor.retain_grad, lambda hidden: hidden.register_hook(lambda grad: None)):
        x = leaf(3)
        hidden, total, _ = call(x)
        watch(hidden)
        with pytest.raises(Unsupported, match="other results are computed from"):
            total.backward()
        assert x.grad is None


def test_a_hook_that_sees_the_whole_gradient() -> None:
    seen = []
    for call in (inner, stator.compile(inner, fullgraph=True, options={"strict": True})):
        torch.manual_seed(0)
        x = leaf(3)
        hidden, _, other = call(x)
        hidden.retain_grad()
        other.register_hook(lambda grad: grad * 3)
        (hidden.sum() + other.sum()).backward()
        _, total, _ = call(x)
        total.register_hook(lambda grad: grad * 5)
        total.backward()
        seen.append([x.grad, hidden.grad])
    equal(seen[1], seen[0])
