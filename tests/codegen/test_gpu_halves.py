"""What GPU kernels do with half types otherwise than one instruction at a time: it is eager's, to the bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import stator

pytestmark = pytest.mark.gpu

HALVES = (torch.bfloat16, torch.float16)


def compiled(function: Callable[..., Any]) -> Any:
    return stator.compile(function, options={"cache": False, "strict": True})


def check(function: Callable[..., Tensor], *given: Tensor) -> None:
    """Equal numbers, of which one that is none equals another, and zeros have a sign."""
    wanted, found = function(*given), compiled(function)(*given)
    assert isinstance(found, Tensor) and found.dtype == wanted.dtype
    nothing = wanted.isnan()
    same = (found == wanted) & (found.signbit() == wanted.signbit())
    wrong = ~torch.where(nothing, found.isnan(), same)
    cases = [
        [t.flatten()[i].item() for t in (*given, wanted, found)] for i in wrong.flatten().nonzero()[:5, 0].tolist()
    ]
    assert not wrong.any(), (int(wrong.sum()), cases)


def every(dtype: torch.dtype) -> Tensor:
    return torch.arange(-(2**15), 2**15, device="cuda").to(torch.int16).view(dtype)


@pytest.mark.parametrize("dtype", HALVES)
def test_rounding_in_the_middle_of_a_kernel(dtype: torch.dtype) -> None:
    x = every(dtype)
    y = x.roll(4711)
    check(lambda x, y: (x * 1.1 + y) * 0.3 - x.exp() * y, x, y)
    check(lambda x, y: torch.where(x > y, (x * 0.7).clamp(-3.0, 5.0), y.abs().round()).sqrt(), x, y)
    check(lambda x, y: (x.float() * 1.1).to(dtype).float() + (y * 0.1).to(torch.int32), x, y)


@pytest.mark.parametrize("dtype", HALVES)
def test_functions_of_every_half(dtype: torch.dtype) -> None:
    x = every(dtype)
    for function in (torch.tanh, torch.erf, torch.floor, torch.round, torch.sign):
        check(function, x)
    for function in (torch.erfinv, torch.sigmoid, F.silu):
        found, wanted = compiled(function)(x), function(x)
        torch.testing.assert_close(found, wanted, rtol=torch.finfo(dtype).eps, atol=0, equal_nan=True)
        assert (found != wanted).logical_and(found == found).sum() < 50, "near ties alone go another way"


def test_quotients_of_bfloat16() -> None:
    """Each significand by each other one, with quotients that are large, small, and below the normal ones."""
    p = torch.arange(128, 256, device="cuda", dtype=torch.float32)
    x, y = (t.flatten() for t in torch.meshgrid(p, p, indexing="ij"))
    for exponent in (0, 1, -60, 100, 119, -126, -133, -140):
        check(torch.div, (x * 2.0**exponent).bfloat16(), y.bfloat16())
        check(torch.div, x.bfloat16(), -(y * 2.0**exponent).bfloat16())
    check(torch.div, every(torch.bfloat16), every(torch.bfloat16).roll(12345))
    check(torch.div, every(torch.bfloat16), every(torch.bfloat16).flip(0))
    check(torch.reciprocal, every(torch.bfloat16))
    check(torch.sqrt, every(torch.bfloat16))


def test_silu() -> None:
    """Of every number: not only of random ones, for near ties are few."""
    x = every(torch.bfloat16)
    check(F.silu, x)
    check(lambda x, y: F.silu(x) * y, x, x.roll(4711))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("function", [torch.tanh, torch.erf, torch.erfinv])
def test_functions_of_floats(function: Callable[[Tensor], Tensor], dtype: torch.dtype) -> None:
    odd = [0.0, -0.0, 1.0, -1.0, 0.6, -0.6, 1.003, -1.002, 9.01, 1e-30, 1e-42, 3e38, torch.inf, -torch.inf, torch.nan]
    x = torch.cat([torch.randn(20000) * 2, torch.rand(20000) * 2 - 1, torch.tensor(odd)]).cuda().to(dtype)
    torch.testing.assert_close(
        compiled(function)(x), function(x), rtol=4 * torch.finfo(dtype).eps, atol=0, equal_nan=True
    )


def quantised(x: Tensor) -> tuple[Tensor, Tensor]:
    scale = x.abs().amax(-1, keepdim=True) / 127
    return (x / scale).round().clamp(-128, 127).to(torch.int8), scale


def test_quantising() -> None:
    x = torch.randn(300, 1000, device="cuda").bfloat16()
    (whole, scale), (ours, other) = quantised(x), compiled(quantised)(x)
    torch.testing.assert_close(other, scale, rtol=2**-8, atol=0)
    assert (ours.int() - whole.int()).abs().max() <= 1 and (ours != whole).float().mean() < 0.02


def batch_norm(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.relu(F.batch_norm(x, None, None, w, b, training=True))


#: Programs whose backward computes again, rather than reads, what forward had; and the shapes of what they take.
PROGRAMS: dict[str, tuple[Callable[..., Tensor], tuple[tuple[int, ...], ...]]] = {
    "batch norm": (batch_norm, ((16, 64, 24, 20), (64,), (64,))),
    "bias and gelu": (lambda x, b: F.gelu(x + b, approximate="tanh"), ((700, 130), (130,))),
    "max pool": (lambda x: F.max_pool2d(x, 2), ((4, 8, 22, 26),)),
    "wide max pool": (lambda x: F.max_pool2d(x, 3, 2, 1), ((4, 8, 22, 26),)),
    "relu twice": (lambda x, y: (x * 2 + y).relu() + (y - x).relu().sum(0), ((500, 40), (500, 40))),
}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients(name: str, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    function, shapes = PROGRAMS[name]
    given = [torch.randn(shape, device="cuda").to(dtype).requires_grad_() for shape in shapes]
    wide = [x.detach().double().requires_grad_() for x in given]
    exact = function(*wide)
    tangent = torch.randn(exact.shape, device="cuda").to(dtype)
    wanted = [exact, *torch.autograd.grad(exact, wide, tangent.double())]
    eager, ours = function(*given), compiled(function)(*given)
    theirs = [eager, *torch.autograd.grad(eager, given, tangent)]
    mine = [ours, *torch.autograd.grad(ours, given, tangent)]
    for a, b, c in zip(mine, theirs, wanted, strict=True):
        off, allowed = (a.double() - c).norm(), (b.double() - c).norm()
        assert off <= 1.1 * allowed + 8 * torch.finfo(torch.float32).eps * c.norm(), (float(off), float(allowed))
