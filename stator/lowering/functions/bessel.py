"""Bessel functions of every kind and Airy's, as formulas.

Near 0 each is a smooth function once its singular part is split off; beyond, a function of 1/x times a factor that
grows, decays or oscillates. The oscillating ones follow eager's method, because its values are not the nearest doubles.
"""

from __future__ import annotations

import math

from stator.loop import expr as e
from stator.lowering.functions import coefficients as c
from stator.lowering.functions.coefficients import Series
from stator.lowering.functions.formula import (
    Formula,
    absolute,
    chebyshev,
    cos,
    exp,
    log,
    polynomial,
    ratio,
    sin,
    sqrt,
    where,
)

#: From here on the functions oscillate; below, they are quotients of polynomials of x**2.
_NEAR = 5.0
_WAVES = {0: (c.P0, c.Q0), 1: (c.P1, c.Q1)}
#: The squares of the first two zeros of J0, and of those of J1 after 0.
_ZEROS = {0: (5.78318596294678452118, 30.4712623436620863991), 1: (14.6819706421238932572, 49.2184563216946036703)}


def _wave(order: int, x: Formula, second: bool) -> Formula:
    """For large x: P cos(x - d) - Q sin(x - d), or P sin(x - d) + Q cos(x - d), times sqrt(2 / (pi x))."""
    p, q = _WAVES[order]
    shrunk = _NEAR / x
    t = shrunk * shrunk
    amplitude, slant = ratio(p, t), shrunk * ratio(q, t)
    phase = x - (2 * order + 1) * math.pi / 4
    across, along = cos(phase), sin(phase)
    swing = amplitude * along + slant * across if second else amplitude * across - slant * along
    return swing * math.sqrt(2 / math.pi) / sqrt(x)


def _near(order: int, x: Formula) -> Formula:
    z = x * x
    first, next_one = _ZEROS[order]
    return (z - first) * (z - next_one) * ratio((c.J0, c.J1)[order], z)


def bessel_j0(x: Formula) -> Formula:
    size = absolute(x)
    return where(size <= _NEAR, _near(0, size), _wave(0, size, False))


def bessel_j1(x: Formula) -> Formula:
    size = absolute(x)
    far = _wave(1, size, False)
    return where(size <= _NEAR, x * _near(1, size), where(x < 0.0, -far, far))


def bessel_y0(x: Formula) -> Formula:
    near = ratio(c.Y0, x * x) + 2 / math.pi * log(x) * _near(0, x)
    return _from_zero(x, where(x <= _NEAR, near, _wave(0, x, True)), -math.inf)


def bessel_y1(x: Formula) -> Formula:
    near = x * ratio(c.Y1, x * x) + 2 / math.pi * (x * _near(1, x) * log(x) - 1.0 / x)
    return _from_zero(x, where(x <= _NEAR, near, _wave(1, x, True)), -math.inf)


def _from_zero(x: Formula, value: Formula, at_zero: float) -> Formula:
    """NaN left of 0."""
    return where(x > 0.0, value, where(x.equals(0.0), at_zero, math.nan))


def spherical_bessel_j0(x: Formula) -> Formula:
    """sin(x) / x."""
    z = x * x
    near = polynomial(z, 1.0, -1 / 6, 1 / 120, -1 / 5040, 1 / 362880, -1 / 39916800, 1 / 6227020800)
    far = where(absolute(x).equals(math.inf), 0.0, sin(x) / x)
    return where(absolute(x) < 0.5, near, far)


# -- modified: growing and decaying ----------------------------------------------------------------


#: From here on the functions of the first kind are series of 1/x.
_FAR = 8.0


def _scaled_i(near: Series, far: Series, size: Formula) -> Formula:
    """I(x) exp(-x) for x ≥ 0 (of I1, without the factor x near 0)."""
    return where(size < _FAR, chebyshev(near, size), chebyshev(far, 1.0 / size) / sqrt(size))


def scaled_i0(x: Formula) -> Formula:
    return _scaled_i(c.I0, c.I0_FAR, absolute(x))


def scaled_i1(x: Formula) -> Formula:
    value = _scaled_i(c.I1, c.I1_FAR, absolute(x))
    return where(absolute(x) < _FAR, x * value, where(x < 0.0, -value, value))


def modified_i0(x: Formula, held: str = "f64") -> Formula:
    return _growth(x, held) * scaled_i0(x)


def modified_i1(x: Formula, held: str = "f64") -> Formula:
    return _growth(x, held) * scaled_i1(x)


def _growth(x: Formula, held: str) -> Formula:
    """exp(|x|) as a number of dtype `held`: eager's own factor, which overflows before its product with the other."""
    return Formula(e.cast(e.cast(exp(absolute(x)).expr, held), "f64"))


def _k0_near(x: Formula) -> Formula:
    return chebyshev(c.K0, x * x) - log(0.5 * x) * modified_i0(x)


def _k1_near(x: Formula) -> Formula:
    return chebyshev(c.K1, x * x) / x + log(0.5 * x) * modified_i1(x)


def _k_far(series: Series, x: Formula) -> Formula:
    return chebyshev(series, 1.0 / x) / sqrt(x)


def modified_k0(x: Formula) -> Formula:
    return _from_zero(x, where(x < 2.0, _k0_near(x), exp(-x) * _k_far(c.K0_FAR, x)), math.inf)


def modified_k1(x: Formula) -> Formula:
    return _from_zero(x, where(x < 2.0, _k1_near(x), exp(-x) * _k_far(c.K1_FAR, x)), math.inf)


def scaled_k0(x: Formula) -> Formula:
    return _from_zero(x, where(x < 2.0, exp(x) * _k0_near(x), _k_far(c.K0_FAR, x)), math.inf)


def scaled_k1(x: Formula) -> Formula:
    return _from_zero(x, where(x < 2.0, exp(x) * _k1_near(x), _k_far(c.K1_FAR, x)), math.inf)


# -- Airy ------------------------------------------------------------------------------------------


def airy_ai(x: Formula) -> Formula:
    """Series of x in the middle; outside of it, of z = 2/3 |x|**(3/2) beside exp(-z), or a wave of z."""
    low, high, _ = c.AIRY
    size = absolute(x)
    root = sqrt(size)
    z = 2 / 3 * size * root
    scale = 1 / math.sqrt(math.pi) / sqrt(root)
    right = 0.5 * scale * exp(-z) * chebyshev(c.AIRY_FAR, 1.0 / z)
    t = 1.0 / (z * z)
    phase = z + math.pi / 4
    left = scale * (sin(phase) * (1.0 + t * ratio(c.AIRY_P, t)) - cos(phase) * ratio(c.AIRY_Q, t) / z)
    value = where(x > high, right, where(x < low, left, chebyshev(c.AIRY, x)))
    return where(absolute(x).equals(math.inf), math.nan, value)
