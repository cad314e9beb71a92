"""Random numbers by Philox 4x32 (or 4x64), a function of a seed and an offset: the same numbers that Triton gives.

Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3" (2011) has the algorithm and its constants.
Neighbours: `math.py` and `arithmetic.py`; what is drawn depends on no state.
"""

from __future__ import annotations

import builtins
from typing import Any

from stator.tile.errors import InvalidUse
from stator.tile.language import math
from stator.tile.language.arithmetic import add, and_, compare, maximum, minus, mul, shr, sub, where, xor
from stator.tile.language.promotion import bitcast_to, broadcast_all, cast_to, to_tensor
from stator.tile.language.shapes import zeros_like
from stator.tile.language.static import constexpr, unwrap
from stator.tile.language.types import dtype, int32, int64, uint32, uint64
from stator.tile.language.values import tensor, tuple

N_ROUNDS_DEFAULT = constexpr(10)

#: The dtype of the counters → what is added to the two keys after each round, and what counters are multiplied by.
_CONSTANTS: dict[dtype, builtins.tuple[int, ...]] = {
    uint32: (0x9E3779B9, 0xBB67AE85, 0xD2511F53, 0xCD9E8D57),
    uint64: (0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B, 0xD2E7470EE14C6C93, 0xCA5A826395121157),
}
#: The dtype of random bits → by what they are multiplied to lie in [0, 1).
_SCALES = {int32: 4.6566127342e-10, int64: 1.0842020432385337e-19}


def philox_impl(c0: Any, c1: Any, c2: Any, c3: Any, k0: Any, k1: Any, n_rounds: Any = N_ROUNDS_DEFAULT) -> Any:
    """Rounds of Philox of a counter of four words and a key of two."""
    if c0.dtype not in _CONSTANTS:
        raise InvalidUse(f"Philox counts in uint32 or uint64, not {c0.dtype}")
    key_a, key_b, round_a, round_b = _CONSTANTS[c0.dtype]
    for _ in range(unwrap(n_rounds)):
        old_0, old_2 = c0, c2
        c0 = xor(xor(math.umulhi(round_b, old_2), c1), k0)
        c2 = xor(xor(math.umulhi(round_a, old_0), c3), k1)
        c1 = mul(round_b, old_2, sanitize_overflow=False)
        c3 = mul(round_a, old_0, sanitize_overflow=False)
        k0 = add(k0, key_a, sanitize_overflow=False)
        k1 = add(k1, key_b, sanitize_overflow=False)
    return tuple([c0, c1, c2, c3])


def philox(seed: Any, c0: Any, c1: Any, c2: Any, c3: Any, n_rounds: Any = N_ROUNDS_DEFAULT) -> Any:
    """Four random words for a seed and a counter of four words."""
    key = to_tensor(seed)
    if not key.dtype.is_int():
        raise InvalidUse(f"a seed is an integer, not {key.dtype}")
    key = cast_to(key, uint64)
    counters = broadcast_all([to_tensor(counter) for counter in (c0, c1, c2, c3)])
    bits = counters[0].dtype.primitive_bitwidth
    if bits not in (32, 64):
        raise InvalidUse(f"Philox counts in 32 or 64 bits, not in {counters[0].dtype}")
    words = [bitcast_to(counter, uint32 if bits == 32 else uint64) for counter in counters]
    if bits == 32:
        high, low = [cast_to(and_(part, 0xFFFFFFFF), uint32) for part in (shr(key, 32), key)]
    else:
        high, low = zeros_like(words[0]), key
    first, second, third, fourth = words
    return philox_impl(first, second, third, fourth, low, high, n_rounds)


def randint4x(seed: Any, offset: Any, n_rounds: Any = N_ROUNDS_DEFAULT) -> Any:
    """Four blocks of random uint32 for a block of offsets."""
    offset = to_tensor(offset)
    low = cast_to(offset, uint32)
    zero = zeros_like(low)
    high = cast_to(shr(offset, 32), uint32) if offset.dtype.primitive_bitwidth > 32 else zero
    return philox(seed, low, high, zero, zero, n_rounds)


def randint(seed: Any, offset: Any, n_rounds: Any = N_ROUNDS_DEFAULT) -> tensor:
    """A block of random uint32 for a block of offsets."""
    return randint4x(seed, offset, n_rounds)[0]


def uint_to_uniform_float(x: Any) -> tensor:
    """Random bits as numbers that are uniform in [0, 1)."""
    signed = int32 if x.dtype.primitive_bitwidth == 32 else int64
    if x.dtype not in (int32, uint32, int64, uint64):
        raise InvalidUse(f"takes integers of 32 or 64 bits, not {x.dtype}")
    value = bitcast_to(x, signed)
    value = where(compare("lt", value, 0), sub(minus(value), 1, False), value)
    return mul(value, _SCALES[signed])


def rand4x(seed: Any, offsets: Any, n_rounds: Any = N_ROUNDS_DEFAULT) -> Any:
    """Four blocks of fp32 that are uniform in [0, 1)."""
    return tuple([uint_to_uniform_float(bits) for bits in randint4x(seed, offsets, n_rounds)])


def rand(seed: Any, offset: Any, n_rounds: Any = N_ROUNDS_DEFAULT) -> tensor:
    """A block of fp32 that are uniform in [0, 1)."""
    return uint_to_uniform_float(randint(seed, offset, n_rounds))


def pair_uniform_to_normal(u1: Any, u2: Any) -> Any:
    """Two uniform numbers as two that are normally distributed (Box and Muller)."""
    radius = math.sqrt(mul(-2.0, math.log(maximum(1.0e-7, u1))))
    angle = mul(6.283185307179586, u2)
    return tuple([mul(radius, math.cos(angle)), mul(radius, math.sin(angle))])


def randn4x(seed: Any, offset: Any, n_rounds: Any = N_ROUNDS_DEFAULT) -> Any:
    """Four blocks of fp32 that are normally distributed."""
    u1, u2, u3, u4 = rand4x(seed, offset, n_rounds)
    return pair_uniform_to_normal(u1, u2) + pair_uniform_to_normal(u3, u4)


def randn(seed: Any, offset: Any, n_rounds: Any = N_ROUNDS_DEFAULT) -> tensor:
    """A block of fp32 that are normally distributed."""
    first, second, _, _ = randint4x(seed, offset, n_rounds)
    pair = pair_uniform_to_normal(uint_to_uniform_float(first), uint_to_uniform_float(second))
    return pair[0]
