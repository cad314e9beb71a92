"""`numerics="fast"`: what other kernels, or the other half, show by a rounding is rounded there too."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import stator


def saturated(x: Tensor) -> Tensor:
    """Many of which are the largest in a half type, and not before they are rounded."""
    return torch.tanh(x * 1.7 + 0.3) * 2.1


COUNTS: dict[str, Callable[[Tensor], Tensor]] = {
    "the largest of all": lambda x: (saturated(x) == saturated(x).amax()).sum(),
    "the largest of columns": lambda x: (saturated(x) == saturated(x).amax(0)).sum(0),
    "where they lie": lambda x: saturated(x).sort(stable=True, dim=-1).indices,
    "a sum of what is as large": lambda x: torch.where(saturated(x) >= saturated(x).mean(), 1, 0).sum(),
}


@pytest.mark.parametrize("name", COUNTS)
def test_what_another_kernel_compares_is_rounded(name: str) -> None:
    x = torch.randn(4096, 300, generator=torch.Generator().manual_seed(0)).bfloat16()
    compiled = stator.compile(COUNTS[name], fullgraph=True, options={"numerics": "fast"})
    assert torch.equal(compiled(x), COUNTS[name](x))


@pytest.mark.parametrize("rows", [64, 4096])
@pytest.mark.parametrize("dims", [None, 0])
def test_what_backward_compares_is_rounded(rows: int, dims: int | None) -> None:
    """The gradient of a maximum goes to all that are as large, of which there is one at least."""
    x = torch.randn(rows, 300, generator=torch.Generator().manual_seed(0)).bfloat16().requires_grad_()

    def function(x: Tensor) -> Tensor:
        return saturated(x).amax(*([] if dims is None else [dims]))

    found = []
    for run in (function, stator.compile(function, fullgraph=True, options={"numerics": "fast"})):
        (gradient,) = torch.autograd.grad(run(x).sum(), x)
        found.append(gradient != 0)
    assert torch.equal(*found)


def test_what_a_scatter_has_kept_is_found_again_in_backward() -> None:
    def function(x: Tensor) -> Tensor:
        values = torch.special.ndtr(x)
        places = torch.zeros_like(values, dtype=torch.int64)
        return torch.scatter_reduce(values, 0, places, x, "amax")

    x = torch.rand(2, 17, 2, generator=torch.Generator().manual_seed(1)).bfloat16().requires_grad_()
    eager, fast = [
        torch.autograd.grad(run(x).sum(), x)[0]
        for run in (function, stator.compile(function, fullgraph=True, options={"numerics": "fast"}))
    ]
    torch.testing.assert_close(fast, eager, rtol=0.05, atol=0.05)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_the_parts_of_a_softmax_that_backward_makes_add_up(dtype: torch.dtype) -> None:
    """Its maximum and sum are of forward's numbers, and backward takes powers of numbers from memory: the same ones.

    Of targets that are constants the gradient is the part that the softmax gives to each, less what the target has.
    """

    def loss(x: Tensor) -> Tensor:
        numbers = (x * 3).to(dtype)
        return F.cross_entropy(numbers, numbers.detach(), reduction="sum")

    torch.manual_seed(2)
    x = (torch.randn(6, 4) * 100).requires_grad_()
    compiled = stator.compile(loss, options={"numerics": "fast", "check_speed": "off"})
    found, wanted = (torch.autograd.grad(fn(x), x)[0] for fn in (compiled, loss))
    torch.testing.assert_close(found, wanted, rtol=0.02, atol=0.02 * float(wanted.abs().max()))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_backward_of_a_softmax_has_the_exponents_that_forward_had(dtype: torch.dtype) -> None:
    """Backward computes large scores once more, which forward rounded, as a position is asked for, before the maximum.

    Parts of which one is nearly 1 have hardly a gradient; the scores have one of thousands by what they are made of.
    """
    torch.manual_seed(0)
    x = torch.randn(16, 17)

    def program(x: Tensor, dtype: torch.dtype = dtype) -> Tensor:
        parts = torch.softmax(3 / x, 0, dtype=dtype)
        return F.cross_entropy(parts.double(), parts.argmin(1))

    def gradient(function: Callable[[Tensor], Tensor]) -> Tensor:
        (found,) = torch.autograd.grad(function(leaf := x.clone().requires_grad_()), leaf)
        return found.double()

    exact = gradient(lambda x: program(x, torch.float64))
    fast = stator.compile(program, fullgraph=True, options={"numerics": "fast"})
    error = [(gradient(run) - exact).abs().max().item() for run in (fast, program)]
    assert error[0] <= 2 * error[1], error


NORMS: dict[str, Callable[[Tensor], Tensor]] = {
    "layer": lambda y: F.layer_norm(y, y.shape[-1:]),
    "group": lambda y: F.group_norm(y, y.shape[1]),
    "batch": lambda y: F.batch_norm(y, None, None, training=True),
    "instance": lambda y: F.instance_norm(y.unsqueeze(-1).expand(*y.shape, 2).flatten(2)),
    "deviation": lambda y: (y - y.mean(-1, keepdim=True)) / (y.std(-1, keepdim=True, unbiased=False) + 1e-5),
    "columns": lambda y: (y - y.mean(0, keepdim=True)) * torch.rsqrt(y.var(0, keepdim=True, unbiased=False) + 1e-5),
    "largest": lambda y: (y - y.amax(-1, keepdim=True)) * 300.0,
    "running": lambda y: (y.cumsum(-1) - y.sum(-1, keepdim=True)) * 100.0,
}
BEFORE: list[Callable[[Tensor], Tensor]] = [
    F.softsign,
    lambda x: F.relu(x * 1.1) * 0.9,
    lambda x: torch.cat([x * 1.3, x.sin()], 1),
    lambda x: x + torch.tanh(x) * 0.7,
    F.hardswish,
]


@pytest.mark.parametrize("columns", [1, 6])
@pytest.mark.parametrize("second", NORMS)
@pytest.mark.parametrize("first", NORMS)
def test_norms_of_rows_of_one_number_take_away_what_the_mean_is_of(first: str, second: str, columns: int) -> None:
    """There is no deviation in rows of one number: norms multiply what is left of one by 300 at least, and again.

    What cancels exactly in eager may differ by float32's last place, as where eager computes in float32.
    """
    places = list(NORMS)
    place = places.index(first) + 2 * places.index(second) + columns
    before, kept = BEFORE[place % len(BEFORE)], place % 2

    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        y = before(x)
        return NORMS[second](NORMS[first](y)), y if kept else x

    torch.manual_seed(1)
    x = torch.randn(8, 4, 1).expand(8, 4, columns).bfloat16().contiguous()
    tangent = torch.randn_like(function(x)[0])
    fast = stator.compile(function, fullgraph=True, options={"numerics": "fast"})
    runs = ((function, x.double()), (function, x), (function, x.float()), (fast, x))
    found = []
    for run, given in runs:
        out = run(leaf := given.clone().requires_grad_())[0]
        (gradient,) = torch.autograd.grad(out, leaf, tangent.to(leaf.dtype))
        found.append((run(given)[0].double(), out.detach().double(), gradient.double()))
    for exact, *others, compiled in zip(*found, strict=True):
        eager = max([(other - exact).abs().max().item() for other in others])
        error = (compiled - exact).abs().max().item()
        scale = max(exact.abs().max().item(), 2.0)  # float32's last place, times 1e5
        assert error <= 4 * eager + 0.02 * scale, (error, eager)
