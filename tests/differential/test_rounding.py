"""Half types: what eager rounds is rounded where eager rounds it, bit for bit."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from operator import attrgetter

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import stator
from stator.coverage.compare import FLOATS
from tests.differential.inputs import Input

NUMBER = torch.tensor(0.3)

CHAINS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "arithmetic": lambda x, y: ((x + y) * x - y) / (y.abs() + 1),
    "numbers": lambda x, y: x * 0.1 + y / 3 + 2.7 - (0.3 - x) + 1.3 / (y.abs() + 0.1),
    "powers": lambda x, y: x.abs() ** 1.7 + y**3 + x**2 + y.abs() ** 0.5,
    "numbers as tensors": lambda x, y: (x + NUMBER) * NUMBER - NUMBER / (y.abs() + 1) + NUMBER * x,
    "minimum of a number": lambda x, y: torch.maximum(x, NUMBER) + torch.minimum(NUMBER, y),
    "remainders": lambda x, y: torch.fmod(x, NUMBER) + torch.remainder(y, 0.3) + torch.fmod(x, 0.7),
    "comparisons": lambda x, y: (x < 0.1).to(x.dtype) + x.clamp(-0.3, 0.7) + y.masked_fill(x > 0.3, 0.1),
    "choices": lambda x, y: torch.where(x > y, x * y, y - x),
    "functions": lambda x, y: (x * y).exp() + torch.tanh(x + y) + torch.sigmoid(x) + (y.abs() + 1).log(),
    "sums": lambda x, y: (x * y).sum(-1),
    "outer products": lambda x, y: torch.addr(x, y[:, 0], x[0], beta=0.7, alpha=0.3) + torch.addr(y, x[:, 1], y[1]),
    "differences": lambda x, y: torch.rsub(x, y, alpha=0.5) * torch.rsub(y, 2, alpha=2),
}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", CHAINS)
def test_bits(name: str, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x, y = torch.randn(61, 67).to(dtype), torch.randn(61, 67).to(dtype)
    function = CHAINS[name]
    compiled = stator.compile(function, fullgraph=True, options={"strict": True})
    assert torch.equal(compiled(x, y), function(x, y))


#: Products whose sum with something else is rounded once, and the sizes of their operands.
SUMS: dict[str, tuple[Callable[..., Tensor], Sequence[tuple[int, ...]]]] = {
    "addmm": (torch.addmm, [(33, 47), (33, 65), (65, 47)]),
    "baddbmm": (torch.baddbmm, [(4, 33, 47), (4, 33, 65), (4, 65, 47)]),
    "addmv": (torch.addmv, [(33,), (33, 65), (65,)]),
}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("factors", [{}, {"beta": 0.5, "alpha": 0.3}, {"beta": 0}], ids=str)
@pytest.mark.parametrize("name", SUMS)
def test_sums_with_products(name: str, factors: dict[str, float], dtype: torch.dtype) -> None:
    """As near to float64 as eager: the product is not rounded before the addition."""
    function, sizes = SUMS[name]
    operands = [torch.randn(size, generator=torch.Generator().manual_seed(len(size))).to(dtype) for size in sizes]
    compiled = stator.compile(lambda *given: function(*given, **factors).relu() * 2, fullgraph=True)
    exact = function(*(x.double() for x in operands), **factors).relu() * 2
    ours, eager = compiled(*operands), function(*operands, **factors).relu() * 2
    assert (ours - exact).abs().mean() <= 1.05 * (eager - exact).abs().mean()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_squared_distances(reduction: str, dtype: torch.dtype) -> None:
    """Every step is rounded, so that some overflow, as do their gradients where squares are asked for one by one."""
    x, y = (Input((61, 67), dtype, values="edges", grad="leaf", seed=i).build()[0] for i in range(2))
    if reduction != "none":  # one infinity or NaN would hide all else
        x, y = (torch.where(t.abs() < 100, t, 1.0).detach().requires_grad_() for t in (x, y))

    def distances(x: Tensor, y: Tensor) -> Tensor:
        return torch.nn.functional.mse_loss(x, y, reduction=reduction)

    ours, eager = stator.compile(distances, fullgraph=True, options={"strict": True})(x, y), distances(x, y)
    tangent = torch.randn(eager.shape, generator=torch.Generator().manual_seed(5)).to(dtype)
    got, want = ((out, *torch.autograd.grad(out, (x, y), tangent)) for out in (ours, eager))
    for mine, theirs in zip(got, want, strict=True):
        assert torch.equal(mine.isnan(), theirs.isnan())
        assert torch.equal(mine.nan_to_num(0), theirs.nan_to_num(0))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("exponent", [-2, -1, 2, 3])
def test_small_powers(exponent: int, dtype: torch.dtype) -> None:
    """Products, and their inverses: beside the root of the largest number a square overflows, and its inverse is 0."""
    ends = [torch.finfo(dtype).max ** (1 / root) for root in (2, -2, 3)]
    x = torch.randn(500, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    x = torch.cat([x, *[end * (1 + 0.3 * x) for end in ends], torch.tensor([0.0, -0.0, torch.inf])]).to(dtype)
    compiled = stator.compile(lambda x: x**exponent, fullgraph=True, options={"strict": True})
    assert torch.equal(compiled(x), x**exponent)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_scaled_sums(dtype: torch.dtype) -> None:
    """Eager fuses product and sum where it has vectors, so that a few elements may differ; but alpha is rounded."""
    torch.manual_seed(0)
    x, y = torch.randn(61, 67).to(dtype), torch.randn(61, 67).to(dtype)
    compiled = stator.compile(lambda x, y: torch.add(x, y, alpha=0.3), fullgraph=True, options={"strict": True})
    assert (compiled(x, y) != torch.add(x, y, alpha=0.3)).sum() < 0.01 * x.numel()


@pytest.mark.parametrize(("values", "dtype"), [("edges", torch.float32), *[("normal", d) for d in FLOATS]])
def test_running_sums(values: str, dtype: torch.dtype) -> None:
    """Eager adds one after the other, in float64 or, of half types, in float32; so do ours, also along lanes.

    What has no wider type to be added in may differ in last digits.
    """
    digit = 0.0 if dtype is torch.float32 else 8 * torch.finfo(dtype).eps
    inputs = [Input(size, dtype, values=values, seed=i).build()[0] for i, size in enumerate([(99, 4), (64, 21)])]

    def running(*tensors: Tensor) -> list[Tensor]:
        return [torch.cumsum(t, dim) for t in tensors for dim in (0, 1)]

    compiled = stator.compile(running, fullgraph=True, options={"strict": True})
    for got, want in zip(compiled(*inputs), running(*inputs), strict=True):
        torch.testing.assert_close(got, want, rtol=digit, atol=digit, equal_nan=True)


def test_deviations_of_what_is_all_equal() -> None:
    """The mean is exact, in float64."""
    x = torch.randn(40, 7, generator=torch.Generator().manual_seed(0)).expand(10, 40, 7) * 100

    def deviations(x: Tensor) -> tuple[Tensor, ...]:
        return torch.var(x, 0), torch.std(x, 0), *torch.var_mean(x, 0)

    for got, want in zip(_compiled(deviations, x), deviations(x), strict=True):
        assert torch.equal(got, want)


#: Functions of one number.
FUNCTIONS = (
    "sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh exp exp2 expm1 log log2 log10 log1p sqrt rsqrt "
    "sigmoid erf erfc erfinv lgamma digamma sinc reciprocal special.logit special.ndtr special.ndtri special.log_ndtr "
    "special.i0 special.i0e special.i1 special.i1e special.erfcx special.entr nn.functional.gelu nn.functional.silu "
    "nn.functional.elu nn.functional.softplus nn.functional.mish nn.functional.logsigmoid nn.functional.tanhshrink"
).split()
#: Where functions have zeros, poles or the ends of what they are defined for.
PLACES = (1.0, -1.0, 0.5, 2.0, 3.0, -2.0, math.pi / 2, math.pi, -0.5, 10.0, 100.0, -5.0, 88.0, -88.0, -103.0)


def test_functions_are_about_as_exact_as_eager() -> None:
    """In all their range, and close to where they are steep: a formula that cancels there is far off."""
    torch.manual_seed(0)
    parts = [torch.randn(2000, dtype=torch.float64) * size for size in (1, 3, 10, 0.1, 1e-3, 1e-8)]
    for place in PLACES:
        parts += [place * (1 + torch.randn(200, dtype=torch.float64) * step) for step in (1e-3, 1e-6)]
    x = torch.cat([*parts, 10 ** (torch.rand(2000, dtype=torch.float64) * 30 - 20)]).float()

    def every(x: Tensor) -> list[Tensor]:
        return [attrgetter(name)(torch)(x) for name in FUNCTIONS]

    for name, exact, eager, ours in zip(FUNCTIONS, every(x.double()), every(x), _compiled(every, x), strict=True):
        digit = (exact.abs() * torch.finfo(torch.float32).eps).clamp_min(torch.finfo(torch.float32).tiny)
        found = []
        for value in (ours, eager):
            off = (value.double() - exact).abs() / digit
            same = (value == exact.float()) | (value.isnan() & exact.isnan())
            found.append(float(torch.where(same, 0, off).max()))
        assert found[0] <= max(8.0, 3 * found[1]), name


def _compiled(function: Callable[..., Sequence[Tensor]], *inputs: Tensor) -> Sequence[Tensor]:
    return stator.compile(function, fullgraph=True, options={"strict": True})(*inputs)


@pytest.mark.parametrize("offset", [0, 10])
def test_batch_norm_adds_up_about_as_exactly_as_eager(offset: int) -> None:
    """Eager adds in float64: its errors, or those of rounding the results, are the measure."""
    torch.manual_seed(0)
    given = torch.randn(8, 16, 32, 32) + offset, torch.randn(16), torch.randn(16)
    tangent = torch.randn(8, 16, 32, 32)

    def norm(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        return torch.nn.functional.batch_norm(x, None, None, w, b, True)

    def gradients(function: Callable[[Tensor, Tensor, Tensor], Tensor], dtype: torch.dtype) -> list[Tensor]:
        inputs = [tensor.to(dtype).requires_grad_() for tensor in (t.clone() for t in given)]
        out = function(*inputs)
        return [out.detach(), *torch.autograd.grad(out, inputs, tangent.to(dtype))]

    exact, eager = gradients(norm, torch.float64), gradients(norm, torch.float32)
    ours = gradients(stator.compile(norm, fullgraph=True, options={"strict": True}), torch.float32)
    for wanted, theirs, mine in zip(exact, eager, ours, strict=True):
        scale = wanted.abs().max()
        error, allowed = ((value - wanted).abs().max() / scale for value in (mine, theirs))
        assert error <= max(2 * allowed, 2e-7)


def test_statistics_of_batch_norm_have_the_type_of_eager() -> None:
    x = torch.randn(2, 3, 4, 4, dtype=torch.bfloat16)

    def norm(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return torch.native_batch_norm(x, None, None, None, None, True, 0.1, 1e-5)

    compiled = stator.compile(norm, fullgraph=True, options={"strict": True})
    assert [t.dtype for t in compiled(x)] == [t.dtype for t in norm(x)]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
def test_soft_margins_are_rounded_at_every_step(dtype: torch.dtype) -> None:
    """Bit for bit in half types, also where a step overflows; what is exp(12) is no float16."""
    generator = torch.Generator().manual_seed(0)
    x, target = (torch.randn(3000, generator=generator).mul(3).to(dtype) for _ in range(2))
    x.requires_grad_()

    def losses(x: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        return F.soft_margin_loss(x, target, reduction="none"), F.soft_margin_loss(x, target)

    ours, eager = _compiled(losses, x, target), losses(x, target)
    slopes = [[torch.autograd.grad(t.sum(), x, retain_graph=True)[0] for t in found] for found in (ours, eager)]
    digit = 3e-6 if dtype is torch.float32 else 0.0
    for got, want in zip([ours[0], *slopes[0]], [eager[0], *slopes[1]], strict=True):
        torch.testing.assert_close(got, want, rtol=digit, atol=0, equal_nan=True)
    assert bool(eager[0].isinf().any()) is (dtype is torch.float16)
