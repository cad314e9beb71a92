"""The inverses of the error function and of its complement, and the scaled complement, number by number in f64.

Newton's method finds the inverses: on erf near 0, on the logarithm of erfc elsewhere, which is concave, so that from a
point behind the solution every step comes nearer to it. Neighbour: `libdevice` rounds what they give.
"""

from __future__ import annotations

import math

_SLOPE = 2 / math.sqrt(math.pi)


def erfcx(x: float) -> float:
    """erfc(x) * exp(x * x)."""
    if x < 20:
        return math.inf if x < -26.7 else math.erfc(x) * _exp_of_square(x)
    if math.isinf(x) or math.isnan(x):
        return 0.0 if x > 0 else x
    term = total = 1.0
    for k in range(1, 30):
        term *= -(2 * k - 1) / (2 * x * x)
        total += term
    return total / (x * math.sqrt(math.pi))


def _exp_of_square(x: float) -> float:
    """exp(x * x), where the square is rounded only once it is small: a bit lost there is many lost behind."""
    high = math.floor(x * 32) / 32
    low = x - high
    return math.exp(high * high) * math.exp((2 * high + low) * low)


def erfinv(x: float) -> float:
    """The number whose erf is x."""
    if math.isnan(x) or abs(x) > 1:
        return math.nan
    if abs(x) == 1:
        return math.copysign(math.inf, x)
    if abs(x) > 0.5:
        return math.copysign(erfcinv(1 - abs(x)), x)
    y = x / _SLOPE
    for _ in range(8):
        y -= (math.erf(y) - x) / (_SLOPE * math.exp(-y * y))
    return y


def erfcinv(x: float) -> float:
    """The number whose erfc is x."""
    if math.isnan(x) or not 0 <= x <= 2:
        return math.nan
    if x == 0 or x == 2:
        return math.inf if x == 0 else -math.inf
    if x > 1.5:
        return -erfcinv(2 - x)
    if x > 0.5:
        return erfinv(1 - x)
    y, logarithm = math.sqrt(-math.log(x)), math.log(x)
    for _ in range(30):
        scaled = erfcx(y)
        step = (math.log(scaled) - y * y - logarithm) * scaled / _SLOPE
        y += step
        if abs(step) <= 1e-16 * y:
            break
    return y
