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

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch

from stator.prims import names as p
from stator.prims.set import PRIMITIVES, Primitive, overload

MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
INCREMENTS = (0x9E3779B9, 0xBB67AE85)
ROUNDS = 10
_MASK = 0xFFFFFFFF


class Draw(Protocol):
    """Gives float32 random numbers of a size, in kind "uniform" or "normal", as a node of the graph."""

    def __call__(self, size: Sequence[int], kind: str, device: torch.device) -> torch.Tensor: ...


#: Functional ATen random overload → (draw, *args of the overload) → value.
RANDOM_OPERATORS: dict[Any, Callable[..., Any]] = {}


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
PRIMITIVES[RANDOM] = Primitive("random", "uniform or normal numbers from one of the seeds, by element number")


def _rewrites(*targets: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        for target in targets:
            op = overload(target)
            if op is not None:
                RANDOM_OPERATORS[op] = function
        return function

    return register


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
    if high - low > 1 << 24:  # a float32 draw has 24 bits
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
