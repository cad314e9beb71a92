"""Fakes lie as eager's results for two operands of other orders, extents and dtypes; sizes are numbers or symbols."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from stator.base.errors import StatorError
from stator.fake import FakeMode
from stator.fake.symbolic import extents, symint
from stator.graphs import composite
from stator.sizes import Environment, Extent, evaluate
from tests.fake.test_orders import laid_out

BINARY = (
    "add sub rsub mul div maximum minimum atan2 fmod remainder hypot floor_divide fmax fmin copysign float_power "
    "heaviside ldexp logaddexp nextafter pow xlogy eq lt logical_and bitwise_and bitwise_left_shift gcd igamma lerp "
    "complex polar isclose clamp_min kron addcmul addcdiv normal"
).split()
SPECIAL = "xlog1py zeta chebyshev_polynomial_t hermite_polynomial_h laguerre_polynomial_l".split()
LOSSES = (
    "mse_loss l1_loss smooth_l1_loss huber_loss binary_cross_entropy_with_logits binary_cross_entropy kl_div "
    "poisson_nll_loss soft_margin_loss hinge_embedding_loss"
).split()
THREE = {"lerp", "addcmul", "addcdiv"}


def _lost(loss: Callable[..., Tensor]) -> Callable[[Any, Any], Tensor]:
    return lambda x, y: loss(x, y, reduction="none")


def _named(name: str) -> Callable[[Any, Any], Any]:
    function = getattr(torch, name)
    return (lambda x, y: function(x, x, y)) if name in THREE else function


OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    **{name: _named(name) for name in BINARY},
    **{name: getattr(torch.special, name) for name in SPECIAL},
    **{name: _lost(getattr(F, name)) for name in LOSSES},
    "a quotient rounded down": lambda x, y: torch.div(x, y, rounding_mode="floor"),
    "a quotient cut": lambda x, y: torch.div(x, y, rounding_mode="trunc"),
    "chosen": lambda x, y: torch.where(x > 0, x, y),
    "chosen from a number": lambda x, y: torch.where(x > 0, y, torch.zeros(())),
    "clamped": lambda x, y: torch.clamp(x, y, y),
    "masked": lambda x, y: x.masked_fill(y > 0, 1),
    "the remainder of a number": lambda x, y: 2 % x,
    "a number less": lambda x, y: 2 - x,
    "a power": lambda x, y: x**1.5,
    "a power of a number": lambda x, y: 2**x,
    "a number times a logarithm": lambda x, y: torch.xlogy(2.0, x),
    "times the logarithm of a number": lambda x, y: torch.xlogy(x, 2.0),
    "a number times another logarithm": lambda x, y: torch.special.xlog1py(2.0, x),
    "zeta of a number": lambda x, y: torch.special.zeta(2.0, x),
    "zeta at a number": lambda x, y: torch.special.zeta(x, 2.0),
    "a number shifted": lambda x, y: 1 << x,
    "drawn around numbers": lambda x, y: torch.normal(x, 1.0),
    "drawn around a number": lambda x, y: torch.normal(1.0, x),
    "a loss with weights": lambda x, y: F.binary_cross_entropy_with_logits(x, y, weight=y, reduction="none"),
}
DTYPES = (torch.float32, torch.float64, torch.float16, torch.int64, torch.bool, torch.complex64, torch.uint8)


def pair(rng: random.Random) -> tuple[list[list[int]], list[torch.dtype], float]:
    """Sizes that are broadcast together, dtypes, and a seed for how they lie."""
    size = [rng.choice((1, 2, 3, 4)) for _ in range(rng.randint(0, 4))]
    sizes = [[1 if rng.random() < 0.2 else n for n in size] for _ in range(2)]
    sizes = [own[rng.randint(0, len(own)) :] if rng.random() < 0.3 else own for own in sizes]
    first = rng.choice(DTYPES)
    return sizes, [first, first if rng.random() < 0.5 else rng.choice(DTYPES)], rng.random()


def build(given: tuple[list[list[int]], list[torch.dtype], float], extent: Callable[[int], Any]) -> list[Tensor]:
    """The operands, of sizes that `extent` makes of the numbers."""
    sizes, dtypes, seed = given
    rng = random.Random(seed)
    return [laid_out(list(map(extent, size)), rng, dtype) for size, dtype in zip(sizes, dtypes, strict=True)]


def _fake(function: Callable[[Any, Any], Any], given: Any, symbolic: bool) -> Any:
    """Size, strides and dtype of the result on fakes; None where it is refused."""
    env = Environment()
    symbols: dict[int, Extent] = {}

    def extent(n: int) -> Any:
        if n < 2 or not symbolic:
            return n
        if n not in symbols:
            symbols[n] = env.symbol(n, f"x{n}").size
        return symint(symbols[n], env)

    try:
        with FakeMode():
            found = composite.call(function, build(given, extent), {})
    except StatorError:
        return None
    values = {symbol: symbol.hint for symbol in env.places}
    size, stride = (tuple(evaluate(n, values) for n in extents(of)) for of in (found.shape, found.stride()))
    return size, stride, found.dtype


@pytest.mark.parametrize("name", OPERATORS)
def test_results_lie_as_in_eager(name: str) -> None:
    function, rng, compared = OPERATORS[name], random.Random(name), 0
    for number in range(50):
        given = pair(rng)
        operands = build(given, lambda n: n)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                want = function(*operands)
            except (RuntimeError, ValueError):  # no kernel for the dtypes
                continue
            found = _fake(function, given, number % 4 == 0)
        compared += found is not None
        assert found in (None, (tuple(want.shape), want.stride(), want.dtype)), [
            (x.stride(), x.dtype) for x in operands
        ]
    assert compared > 1
