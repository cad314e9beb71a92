"""Results of one call that are written to and differentiated one by one: each as if eager had made it."""

from __future__ import annotations

import gc
import random
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import stator
from tests.aot.separate import generate, judge

#: Many small scenarios by the traced graphs alone, some by kernels: `python -m tests.aot.separate` has more.
SCENARIOS = [("aot_eager", seed) for seed in range(120)] + [("inductor", seed) for seed in range(1000, 1006)]


@pytest.mark.parametrize("part", range(6))
def test_random_scenarios(part: int) -> None:
    for backend, seed in SCENARIOS[part::6]:
        verdict, why = judge(*generate(random.Random(seed)), backend)
        assert verdict == "right", (backend, seed, why)


def both(function: Callable[..., Any], act: Callable[..., Any]) -> Any:
    """What an act on the results gives, the same as in eager; or the kind of error."""
    found = []
    for call in (function, stator.compile(function, fullgraph=True, options={"strict": True})):
        x = torch.linspace(-1, 2, 6).requires_grad_()
        try:
            found.append(act(call, x))
        except RuntimeError as error:
            found.append(f"{type(error).__name__}: {str(error).split(':')[0][:50]}")
    want, got = found
    torch.testing.assert_close(got, want) if not isinstance(want, str) else None
    assert isinstance(got, str) == isinstance(want, str) and (not isinstance(want, str) or got == want)
    return got


def two(x: Tensor) -> tuple[Tensor, Tensor]:
    return torch.softmax(x, -1), x.sin()


def shared(x: Tensor) -> tuple[Tensor, Tensor]:
    hidden = x.tanh()
    return hidden.exp(), hidden.cos()


def shifted(x: Tensor) -> tuple[Tensor, Tensor]:
    hidden = x + 1
    return hidden.exp(), hidden.cos()


#: Calls that have several results.
SEVERAL: dict[str, Callable[[Tensor], Any]] = {
    "sort": lambda x: x.sort(-1),
    "topk": lambda x: x.topk(2),
    "kthvalue": lambda x: x.kthvalue(2),
    "median": lambda x: x.median(-1),
    "mode": lambda x: x.mode(-1),
    "max": lambda x: x.max(-1),
    "cummin": lambda x: x.cummin(-1),
    "aminmax": lambda x: x.aminmax(),
    "std_mean": lambda x: torch.std_mean(x),
    "frexp": lambda x: torch.frexp(x),
    "max_pool1d": lambda x: nn.functional.max_pool1d(x[None], 2, return_indices=True),
    "native_layer_norm": lambda x: torch.native_layer_norm(x, [6], None, None, 1e-5),
    "eigh": lambda x: torch.linalg.eigh(x[None] * x[:, None]),
    "qr": lambda x: torch.linalg.qr(x[None] * x[:, None]),
}


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_equal_calls_have_results_of_their_own(backend: str) -> None:
    """Each result alone, and all together."""

    def function(call: Callable[[Tensor], Any], taken: slice) -> Callable[[Tensor], Any]:
        return lambda x: (*call(x)[taken], *call(x)[taken])

    x = torch.linspace(-1, 2, 6)
    for name, call in SEVERAL.items():
        for taken in (slice(0, 1), slice(1, 2), slice(None)):
            f = function(call, taken)
            results = stator.compile(f, backend=backend, fullgraph=True, options={"strict": True})(x)
            assert len({result.untyped_storage().data_ptr() for result in results}) == len(results), (name, taken)
            torch.testing.assert_close(results, f(x))


def double(tensor: Tensor) -> None:
    with torch.no_grad():
        tensor.mul_(2)


def test_a_write_to_one_result_leaves_the_other_alone() -> None:
    def act(call: Any, x: Tensor) -> Any:
        y, z = call(x)
        double(y)
        return torch.autograd.grad(z.sum(), x)

    assert not isinstance(both(two, act), str)


@pytest.mark.parametrize("write", [0, 1])
def test_a_write_to_what_is_read_is_told(write: int) -> None:
    def act(call: Any, x: Tensor) -> Any:
        results = call(x)
        double(results[0] if write == 0 else x)
        return torch.autograd.grad(results[write].sum(), x)

    assert both(two, act) == "RuntimeError: one of the variables needed for gradient computati"


@pytest.mark.parametrize("function", [two, shared, shifted])
@pytest.mark.parametrize("times", [2, 3])
def test_one_after_the_other_without_retaining(function: Callable[..., Any], times: int) -> None:
    def act(call: Any, x: Tensor) -> Any:
        results = call(x)
        return [torch.autograd.grad(results[i % 2].sin().sum(), x)[0] for i in range(times)]

    assert isinstance(both(function, act), str) == (function is shared or times == 3)


def test_a_copy_of_a_buffer_is_its_own() -> None:
    """A queue of keys, as in momentum contrast, is filled again before backward."""

    class Queue(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("queue", torch.randn(6, 4))

        def forward(self, x: Tensor) -> Tensor:
            return (x @ self.queue.clone().detach()).logsumexp(0)

    torch.manual_seed(0)
    model = Queue()
    kept = model.queue.clone()

    def act(call: Any, x: Tensor) -> Any:
        model.queue.copy_(kept)
        out = call(x)
        model.queue.copy_(torch.randn(6, 4))
        return torch.autograd.grad(out, x)

    x = torch.linspace(-1, 2, 6).requires_grad_()
    compiled = stator.compile(model, fullgraph=True, options={"strict": True})
    torch.testing.assert_close(act(compiled, x), act(model, x))


def test_a_parameter_that_eager_does_not_keep() -> None:
    """A bias may be written to between call and backward."""
    weight, bias = torch.randn(4, 6), torch.randn(4).requires_grad_()

    def act(call: Any, x: Tensor) -> Any:
        out = call(x)
        with torch.no_grad():
            bias.add_(10)
        found = torch.autograd.grad(out.sum(), (x, bias))
        with torch.no_grad():
            bias.sub_(10)
        return found

    assert not isinstance(both(lambda x: (weight @ x + bias).relu(), act), str)


@pytest.mark.usefixtures("few_objects")
def test_what_only_one_result_needs_is_freed_with_it() -> None:
    """The large tensor is read by the gradient of the first result alone."""

    def act(call: Any) -> bool:
        x, large = torch.randn(8, requires_grad=True), torch.randn(1 << 16, 8)
        first, second = call(x, large)
        reference = weakref.ref(large.untyped_storage())
        assert reference() is not None
        watched = weakref.ref(large)
        del large
        torch.autograd.grad(first.sum(), x)
        gc.collect()
        gone = watched() is None
        torch.autograd.grad(second.sum(), x)
        return gone

    def function(x: Tensor, large: Tensor) -> tuple[Tensor, Tensor]:
        return (x * large).sum(1), x.exp()

    assert act(function)
    assert act(stator.compile(function, fullgraph=True, options={"strict": True}))


def test_hooks_on_what_is_saved_see_it_once() -> None:
    """`save_on_cpu` and its kin keep what is saved, and nothing raises for what was written to since, as in eager."""

    def act(call: Any, x: Tensor) -> Any:
        with torch.autograd.graph.saved_tensors_hooks(torch.clone, lambda packed: packed):
            y, z = call(x)
        double(y)
        return torch.autograd.grad((y.sin() + z).sum(), x)

    assert not isinstance(both(two, act), str)
