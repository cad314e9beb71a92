"""`torch.autograd.Function` in compiled programs: gradients, None among them, what is saved and what is raised.

Each scenario tells what it sees by `compiling` or by eager; `WHOLE` are one graph, the others end theirs, with a
warning that says why.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

import stator
from stator.base.errors import CaptureError
from tests.aot.test_autograd import Compiling, Scenario, equal, leaf

WHOLE: dict[str, Scenario] = {}
BREAKS: dict[str, tuple[Scenario, str]] = {}


def whole(function: Scenario) -> Scenario:
    WHOLE[function.__name__] = function
    return function


def breaks(why: str) -> Callable[[Scenario], Scenario]:
    def register(function: Scenario) -> Scenario:
        BREAKS[function.__name__] = function, why
        return function

    return register


def told(*tensors: Tensor) -> list[Any]:
    return [(t.grad, t.requires_grad, t.is_leaf) for t in tensors]


def raised(function: Callable[[], Any]) -> tuple[str, str]:
    with pytest.raises(Exception) as caught:
        function()
    return type(caught.value).__name__, str(caught.value).split(".")[0]


def of_each_subset(call: Callable[..., Any], inputs: int, results: int) -> list[Any]:
    """The gradients of the inputs, for each subset of the results to be differentiated together."""
    seen = []
    for chosen in range(1, 1 << results):
        leaves = [leaf(3) for _ in range(inputs)]
        found = call(*leaves)
        sum(found[i].sum() for i in range(results) if chosen >> i & 1).backward()
        seen.append(told(*leaves))
    return seen


class First(Function):
    """The product, with a gradient for the first factor only."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
        return x * y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:  # type: ignore[override]
        return grad * 2, None


class Nothing(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> None:  # type: ignore[override]
        return None


class Asked(Function):
    """Gradients for those who need one, and the second only if told so."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, flag: bool) -> Tensor:
        ctx.save_for_backward(x, y)
        ctx.flag = flag
        return x * y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:  # type: ignore[override]
        x, y = ctx.saved_tensors
        first = grad * y if ctx.needs_input_grad[0] else None
        return first, grad * x * 3 if ctx.needs_input_grad[1] and ctx.flag else None, None


class Once(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # type: ignore[override]
        (x,) = ctx.saved_tensors
        return grad * 3 * x**2


class Sorted(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Any:
        values, index = x.sort()
        ctx.mark_non_differentiable(index)
        ctx.save_for_backward(index)
        return values, index

    @staticmethod
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> Tensor:  # type: ignore[override]
        (index,) = ctx.saved_tensors
        return torch.zeros_like(grad).scatter_(0, index, grad)


class Doubled(Function):
    """In place."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.mark_dirty(x)
        x.mul_(2)
        return x

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # type: ignore[override]
        return grad * 5


class Two(Function):
    """Zeros come for a result that is not differentiated."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Any:
        return x * 2, x * 3

    @staticmethod
    def backward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:  # type: ignore[override]
        return a + b * 2 + 1


class Told(Function):
    """None comes."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Any:
        ctx.set_materialize_grads(False)
        return x * 2, x * 3

    @staticmethod
    def backward(ctx: Any, a: Tensor | None, b: Tensor | None) -> Any:  # type: ignore[override]
        if a is None or b is None:
            return (0 if a is None else a * 100) + (0 if b is None else b * 10)
        return a * 1000 + b


class Late(Function):
    @staticmethod
    def forward(x: Tensor, y: Tensor, power: int) -> Tensor:
        return x * y**power

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Tensor) -> None:
        x, y, ctx.power = inputs
        ctx.save_for_backward(x, y, output)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:  # type: ignore[override]
        x, _, output = ctx.saved_tensors
        return grad * output, grad * x * ctx.power, None


class Reversed(Function):
    """A view whose gradient is turned round."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # type: ignore[override]
        return -grad


class Cast(Function):
    @staticmethod
    @torch.amp.custom_fwd(device_type="cpu")
    def forward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
        ctx.save_for_backward(a, b)
        return a @ b

    @staticmethod
    @torch.amp.custom_bwd(device_type="cpu")
    def backward(ctx: Any, grad: Tensor) -> Any:  # type: ignore[override]
        a, b = ctx.saved_tensors
        return grad @ b.t(), a.t() @ grad


class Wrong(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # type: ignore[override]
        raise ValueError("never mind")


# ---- one graph -------------------------------------------------------------------------------------------------------


@whole
def no_gradient_for_one_input(compiling: Compiling) -> Any:
    call, seen = compiling(lambda x, y: First.apply(x.sin(), y.cos()).sum()), []
    x, y = leaf(3), leaf(3)
    y.register_hook(seen.append)
    call(x, y).backward()
    middle = leaf(3)
    call(x, middle * 2).backward()
    return [told(x, y, middle), seen]


@whole
def no_gradient_from_some_results(compiling: Compiling) -> Any:
    call = compiling(lambda x, y: (First.apply(x, y.tanh()).sum(), y.exp().sum(), x.sin().sum()))
    return of_each_subset(call, 2, 3)


@whole
def no_gradient_at_all(compiling: Compiling) -> Any:
    x, weight = leaf(3), leaf(3)
    out = compiling(lambda x: Nothing.apply(x).sum())(x)
    out.backward()
    other = compiling(lambda x: (Nothing.apply(x * weight) + x).sum())(x)
    other.backward()
    return [told(x, weight), out.requires_grad, out.is_leaf]


@whole
def gradients_for_those_who_need_one(compiling: Compiling) -> Any:
    call, seen = compiling(lambda x, y, flag: Asked.apply(x.sin(), y, flag).sum()), []
    for number in range(6):
        x, y = leaf(3).requires_grad_(number % 3 != 1), leaf(3).requires_grad_(number % 3 != 2)
        call(x, y, number < 3).backward()
        seen.append(told(x, y))
    return seen


@whole
def once_differentiable_functions(compiling: Compiling) -> Any:
    call, x = compiling(lambda x: Once.apply(x.sin()).sum()), leaf(3)
    call(x).backward()
    (grad,) = torch.autograd.grad(call(x), x, create_graph=True)
    return [told(x), grad.detach(), torch.autograd.grad(grad.sum(), x)]


@whole
def results_without_gradient(compiling: Compiling) -> Any:
    x = leaf(4)
    values, index = compiling(lambda x: Sorted.apply(x * 2))(x)
    (values * torch.arange(4.0)).sum().backward()
    return [told(x), index, values.requires_grad, index.requires_grad]


@whole
def writes(compiling: Compiling) -> Any:
    def inside(x: Tensor) -> Tensor:
        y = x * 1
        return Doubled.apply(y).sum() + y.sum()

    x, z = leaf(4), leaf(4)
    compiling(inside)(x).backward()
    middle = z * 1
    out = compiling(lambda m: Doubled.apply(m))(middle)
    out.sum().backward()
    return [told(x, z), out is middle, out.detach()]


@whole
def zeros_for_what_is_not_differentiated(compiling: Compiling) -> Any:
    return of_each_subset(compiling(lambda x: Two.apply(x * 1)), 1, 2)


@whole
def nothing_for_what_is_not_used(compiling: Compiling) -> Any:
    seen = []
    for chosen in (0, 1):
        x = leaf(3)
        compiling(lambda x, chosen=chosen: Told.apply(x * 1)[chosen].sum())(x).backward()
        seen.append(told(x))
    return seen


@whole
def contexts_set_up_later(compiling: Compiling) -> Any:
    x, y = leaf(3), leaf(3)
    compiling(lambda x, y: Late.apply(x, y, 3).sum())(x, y).backward()
    return told(x, y)


@whole
def views_inside(compiling: Compiling) -> Any:
    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        y = x * 2
        return (Reversed.apply(y) * 3).sum(), y[:1]

    x = leaf(3)
    total, part = compiling(function)(x)
    (total + part.sum()).backward()
    return told(x)


@whole
def casts_of_their_own(compiling: Compiling) -> Any:
    call, seen = compiling(lambda a, b: Cast.apply(a * 1, b)), []
    for enabled in (True, False):
        a, b = leaf(3, 3), leaf(3, 3)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
            out = call(a, b)
        out.float().sum().backward()
        seen.append([out.dtype, *[None if t.grad is None else t.grad.bfloat16() for t in (a, b)]])
    return seen


# ---- the graph ends --------------------------------------------------------------------------------------------------


@breaks("told which of its results are differentiated")
def nothing_for_what_is_not_differentiated(compiling: Compiling) -> Any:
    return of_each_subset(compiling(lambda x: Told.apply(x * 1)), 1, 2)


@breaks("an autograd function gives it its gradient")
def views_given_back(compiling: Compiling) -> Any:
    def function(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y = x.sin()
        back = Reversed.apply(y)
        return y, back, Reversed.apply(x)[1:]

    x = leaf(3)
    y, back, part = compiling(function)(x)
    (y.sum() + 2 * back.sum() + 5 * part.sum()).backward()
    return [told(x), back._base is y, part._base is x]


@breaks("raises ValueError")
def a_backward_that_raises(compiling: Compiling) -> Any:
    out = compiling(lambda x: Wrong.apply(x).sum())(leaf(3))
    return raised(out.backward)


def both(scenario: Scenario, **options: Any) -> None:
    torch.manual_seed(0)
    expected = scenario(lambda function: function)
    torch.manual_seed(0)
    equal(scenario(lambda function: stator.compile(function, **options)), expected)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("name", WHOLE)
def test_one_graph(name: str, backend: str) -> None:
    both(WHOLE[name], backend=backend, fullgraph=True, options={"strict": True})


@pytest.mark.parametrize("name", BREAKS)
def test_the_graph_ends(name: str) -> None:
    scenario, why = BREAKS[name]
    with pytest.warns(stator.base.errors.FallbackWarning, match=why):
        both(scenario)
    with pytest.raises(CaptureError, match=why):
        both(scenario, fullgraph=True)
