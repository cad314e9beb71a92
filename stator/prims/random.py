"""`stator::random`: random numbers as a pure function of (seed, element number), and what reduces to it.

The algorithm, the same in eager, loop IR, C++ and Triton (on 32-bit words; `hi`/`lo` halve a 64-bit product):

    key     = (low32(seed), high32(seed))
    counter = (low32(n), high32(n), 0, 0)               n = element number (row-major) + offset
    10 times: counter = (hi(M1*c2) ^ c1 ^ k0, lo(M1*c2), hi(M0*c0) ^ c3 ^ k1, lo(M0*c0))
              key     = (k0 + W0, k1 + W1)              M0 = 0xD2511F53, M1 = 0xCD9E8D57
                                                        W0 = 0x9E3779B9, W1 = 0xBB67AE85
    uniform = float32(c0 >> 8) * 2^-24                  in [0, 1)
    normal  = sqrt(-2 * log(float32((c0 >> 8) + 1) * 2^-24)) * cos(6.2831855 * (float32(c1 >> 8) * 2^-24))

in float32, then one cast to `dtype` (Philox-4x32-10, Salmon et al. 2011). `RANDOM_OPERATORS` rewrites ATen's
random operators with a `draw` that owns seed and offsets. Neighbours: `stator.aot` passes `draw`, `lowering.random`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol

import torch

from stator.fake.overloads import Table
from stator.prims import names as p
from stator.prims.set import PRIMITIVES, Primitive
from stator.prims.types import TYPE_RULES

MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
INCREMENTS = (0x9E3779B9, 0xBB67AE85)
ROUNDS = 10
#: A float32 in [0, 1) is one of 2^24 values, so no larger range of integers can be drawn with it.
LARGEST_RANGE = 1 << 24
_MASK = 0xFFFFFFFF


class Draw(Protocol):
    """Gives float32 random numbers of a size, in kind "uniform" or "normal", as a node of the graph."""

    def __call__(self, size: Sequence[int], kind: str, device: torch.device) -> torch.Tensor: ...


#: Functional ATen random overload → (draw, *args of the overload) → value.
RANDOM_OPERATORS = Table("functional form")
_rewrites = RANDOM_OPERATORS.register


def philox(seed: torch.Tensor, position: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The first two output words for each 64-bit position, as int64 tensors in [0, 2^32)."""
    k0, k1 = seed & _MASK, (seed >> 32) & _MASK
    c0, c1 = position & _MASK, (position >> 32) & _MASK
    c2, c3 = torch.zeros_like(c0), torch.zeros_like(c0)
    for _ in range(ROUNDS):
        first, second = c0 * MULTIPLIERS[0], c2 * MULTIPLIERS[1]  # int64 wraps: the low 64 bits are exact
        c0, c1, c2, c3 = (
            ((second >> 32) & _MASK) ^ c1 ^ k0,
            second & _MASK,
            ((first >> 32) & _MASK) ^ c3 ^ k1,
            first & _MASK,
        )
        k0, k1 = (k0 + INCREMENTS[0]) & _MASK, (k1 + INCREMENTS[1]) & _MASK
    return c0, c1


_LIBRARY = torch.library.Library("stator", "DEF")
_LIBRARY.define("random(Tensor seeds, int draw, SymInt[] size, *, str kind, ScalarType dtype, Device device) -> Tensor")


def _random(
    seeds: torch.Tensor, draw: int, size: Sequence[int], *, kind: str, dtype: torch.dtype, device: torch.device
) -> torch.Tensor:
    count = 1
    for extent in size:
        count *= extent
    position = torch.arange(count, dtype=torch.int64, device=device)
    w0, w1 = philox(seeds[draw].to(device), position)
    match kind:
        case "uniform":
            value = (w0 >> 8).to(torch.float32) * 2.0**-24
        case "normal":
            u, v = ((w0 >> 8) + 1).to(torch.float32) * 2.0**-24, (w1 >> 8).to(torch.float32) * 2.0**-24
            value = torch.sqrt(torch.log(u) * -2.0) * torch.cos(v * 6.2831855)
        case _:
            raise ValueError(f"stator::random has no kind {kind!r}")
    return value.to(dtype).reshape(tuple(size))


def _random_meta(
    seeds: torch.Tensor, draw: int, size: Sequence[int], *, kind: str, dtype: torch.dtype, device: torch.device
) -> torch.Tensor:
    return torch.empty(tuple(size), dtype=dtype, device="meta")


_LIBRARY.impl("random", _random, "CompositeExplicitAutograd")
_LIBRARY.impl("random", _random_meta, "Meta")

RANDOM = torch.ops.stator.random.default
PRIMITIVES[RANDOM] = Primitive(
    "random", (TYPE_RULES["asked"],), "uniform or normal numbers from one of the seeds, by element number"
)


def _typed(value: torch.Tensor, dtype: torch.dtype | None) -> torch.Tensor:
    dtype = dtype or torch.get_default_dtype()
    return value if value.dtype is dtype else p.to_copy(value, dtype=dtype)


def _device(device: Any) -> torch.device:
    return torch.device(device) if device is not None else torch.get_default_device()


@_rewrites("rand", "rand.generator")
def rand(draw: Draw, size: Sequence[int], *, dtype: Any = None, device: Any = None, **_: Any) -> torch.Tensor:
    return _typed(draw(size, "uniform", _device(device)), dtype)


@_rewrites("randn", "randn.generator")
def randn(draw: Draw, size: Sequence[int], *, dtype: Any = None, device: Any = None, **_: Any) -> torch.Tensor:
    return _typed(draw(size, "normal", _device(device)), dtype)


@_rewrites("rand_like")
def rand_like(draw: Draw, x: torch.Tensor, *, dtype: Any = None, device: Any = None, **_: Any) -> torch.Tensor:
    return _typed(draw(x.shape, "uniform", device or x.device), dtype or x.dtype)


@_rewrites("randn_like")
def randn_like(draw: Draw, x: torch.Tensor, *, dtype: Any = None, device: Any = None, **_: Any) -> torch.Tensor:
    return _typed(draw(x.shape, "normal", device or x.device), dtype or x.dtype)


@_rewrites("bernoulli")
def bernoulli(draw: Draw, x: torch.Tensor, **_: Any) -> torch.Tensor:
    return p.to_copy(p.lt(draw(x.shape, "uniform", x.device), x), dtype=x.dtype)


@_rewrites("bernoulli.p")
def bernoulli_p(draw: Draw, x: torch.Tensor, probability: float = 0.5, **_: Any) -> torch.Tensor:
    return p.to_copy(p.lt(draw(x.shape, "uniform", x.device), probability), dtype=x.dtype)


@_rewrites("uniform")
def uniform(draw: Draw, x: torch.Tensor, low: float = 0.0, high: float = 1.0, **_: Any) -> torch.Tensor:
    return _typed(p.add(p.mul(draw(x.shape, "uniform", x.device), high - low), low), x.dtype)


@_rewrites("normal_functional")
def normal(draw: Draw, x: torch.Tensor, mean: float = 0.0, std: float = 1.0, **_: Any) -> torch.Tensor:
    return _typed(p.add(p.mul(draw(x.shape, "normal", x.device), std), mean), x.dtype)


@_rewrites("exponential")
def exponential(draw: Draw, x: torch.Tensor, rate: float = 1.0, **_: Any) -> torch.Tensor:
    drawn = draw(x.shape, "uniform", x.device)
    return _typed(p.mul(p.log1p(p.neg(drawn)), -1.0 / rate), x.dtype)


@_rewrites("randint.low")
def randint_low(
    draw: Draw, low: int, high: int, size: Sequence[int], *, dtype: Any = None, device: Any = None, **_: Any
) -> Any:
    if high - low > LARGEST_RANGE:
        return NotImplemented
    scaled = p.floor(p.mul(draw(size, "uniform", _device(device)), 1.0 * (high - low)))
    whole = p.to_copy(scaled, dtype=dtype or torch.int64)
    return p.add(whole, low) if low else whole


@_rewrites("randint")
def randint(draw: Draw, high: int, size: Sequence[int], **kwargs: Any) -> Any:
    return randint_low(draw, 0, high, size, **kwargs)


@_rewrites("native_dropout")
def native_dropout(draw: Draw, x: torch.Tensor, probability: float, train: bool | None) -> Any:
    if train is False or probability == 0.0:
        return p.clone(x), p.full(list(x.shape), True, dtype=torch.bool, device=x.device)
    keep = p.ge(draw(x.shape, "uniform", x.device), probability)
    scale = 0.0 if probability == 1.0 else 1.0 / (1.0 - probability)
    return p.mul(p.mul(x, keep), scale), keep


@_rewrites("bernoulli.Tensor")
def bernoulli_of(draw: Draw, x: torch.Tensor, probability: torch.Tensor, **_: Any) -> torch.Tensor:
    return p.to_copy(p.lt(draw(x.shape, "uniform", x.device), probability), dtype=x.dtype)


@_rewrites("normal.float_float")
def normal_of_size(
    draw: Draw, mean: float, std: float, size: Sequence[int], *, dtype: Any = None, device: Any = None, **_: Any
) -> Any:
    if std < 0:
        return NotImplemented
    return _typed(p.add(p.mul(draw(size, "normal", _device(device)), std), mean), dtype)


@_rewrites("normal.Tensor_float")
def normal_around(draw: Draw, mean: torch.Tensor, std: float = 1.0, **_: Any) -> Any:
    if std < 0:
        return NotImplemented
    return p.add(_typed(p.mul(draw(mean.shape, "normal", mean.device), std), mean.dtype), mean)


@_rewrites("log_normal")
def log_normal(draw: Draw, x: torch.Tensor, mean: float = 1.0, std: float = 2.0, **_: Any) -> Any:
    if std <= 0:
        return NotImplemented
    return _typed(p.exp(p.add(p.mul(draw(x.shape, "normal", x.device), std), mean)), x.dtype)


@_rewrites("cauchy")
def cauchy(draw: Draw, x: torch.Tensor, median: float = 0.0, sigma: float = 1.0, **_: Any) -> Any:
    if sigma <= 0:
        return NotImplemented
    angle = p.mul(p.sub(draw(x.shape, "uniform", x.device), 0.5), math.pi)
    return _typed(p.add(p.mul(p.div(p.sin(angle), p.cos(angle)), sigma), median), x.dtype)


@_rewrites("geometric")
def geometric(draw: Draw, x: torch.Tensor, probability: float, **_: Any) -> Any:
    """How many trials the first success takes: at least one."""
    if not 0 < probability < 1:
        return NotImplemented
    drawn = p.log1p(p.neg(draw(x.shape, "uniform", x.device)))
    trials = p.neg(p.floor(p.neg(p.mul(drawn, 1.0 / math.log1p(-probability)))))
    return _typed(p.maximum(trials, 1), x.dtype)


@_rewrites("random.from")
def random_between(draw: Draw, x: torch.Tensor, low: int, high: int | None, **_: Any) -> Any:
    if high is None or high - low > LARGEST_RANGE:
        return NotImplemented
    whole = p.floor(p.mul(draw(x.shape, "uniform", x.device), 1.0 * (high - low)))
    value = _typed(whole, x.dtype)
    return p.add(value, low) if low else value


@_rewrites("random.to")
def random_below(draw: Draw, x: torch.Tensor, high: int, **_: Any) -> Any:
    return random_between(draw, x, 0, high)


@_rewrites("randint_like.low_dtype")
def randint_like_low(
    draw: Draw, x: torch.Tensor, low: int, high: int, *, dtype: Any = None, device: Any = None, **_: Any
) -> Any:
    return randint_low(draw, low, high, x.shape, dtype=dtype or x.dtype, device=device or x.device)


@_rewrites("randint_like")
def randint_like(draw: Draw, x: torch.Tensor, high: int, **options: Any) -> Any:
    return randint_like_low(draw, x, 0, high, **options)


@_rewrites("randperm")
def randperm(draw: Draw, count: int, *, dtype: Any = torch.int64, device: Any = None, **_: Any) -> Any:
    """The permutation that sorts random numbers; a second draw decides between equal ones."""
    device = _device(device)
    order = _argsort(draw((count,), "uniform", device))
    order = p.index(order, [_argsort(p.index(draw((count,), "uniform", device), [order]))])
    return order if dtype in (None, torch.int64) else p.to_copy(order, dtype=dtype)


def _argsort(x: torch.Tensor) -> torch.Tensor:
    order: torch.Tensor = p.sort(x, stable=True)[1]
    return order


@_rewrites("rrelu_with_noise_functional")
def rrelu_with_noise(
    draw: Draw,
    x: torch.Tensor,
    noise: torch.Tensor,
    lower: float = 1 / 8,
    upper: float = 1 / 3,
    training: bool = False,
    generator: Any = None,
) -> Any:
    """The slopes left of zero, drawn in training, are kept for backward."""
    if generator is not None:
        return NotImplemented
    if not training:
        return p.where(p.gt(x, 0), x, p.mul(x, (lower + upper) / 2)), p.clone(noise)
    slopes = _typed(p.add(p.mul(draw(x.shape, "uniform", x.device), upper - lower), lower), x.dtype)
    slopes = p.where(p.le(x, 0), slopes, 1)
    return p.mul(x, slopes), slopes
