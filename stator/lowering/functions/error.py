"""Error functions, the normal distribution and their inverses, as formulas.

Each tail has a variable of its own in which the function is nearly linear, so that a short series is right to the last
digits and nothing cancels.
"""

from __future__ import annotations

import math

from stator.lowering.functions import coefficients as c
from stator.lowering.functions.formula import Formula, absolute, chebyshev, exp, log, log1p, rough_log, sqrt, where


def erfinv(y: Formula) -> Formula:
    """The inverse error function: y times a series of w = -log(1 - y**2), or of its square root.

    A float nearer to 1 than 2**-24 is 1, so its w is below 15.95: one series reaches as far, without a square root.
    """
    w = -rough_log((1.0 - y) * (1.0 + y))
    if y.spare:
        value = y * chebyshev(c.ERFINV_FLOAT, w)
    else:
        root = sqrt(w)
        far = where(w < 16.0, chebyshev(c.ERFINV_MIDDLE, root), chebyshev(c.ERFINV_FAR, root))
        value = y * where(w < 6.25, chebyshev(c.ERFINV_NEAR, w), far)
    value = where(absolute(y).equals(1.0), y * math.inf, value)
    return where(absolute(y) > 1.0, math.nan, value)


def erfcx(x: Formula) -> Formula:
    """exp(x**2) erfc(x): (1 + 2|x|) times it is a series of (|x| - 3.75) / (|x| + 3.75)."""
    size = absolute(x)
    t = where(size < 1e18, (size - 3.75) / (size + 3.75), 1.0)
    value = 0.5 * chebyshev(c.ERFCX, t) / (0.5 + size)  # not twice the size, which may be infinite
    value = where(x < 0.0, 2.0 * exp(x * x) - value, value)
    value = where(size <= 2.0**-51, 1.0, value)  # as eager's, for which 4 + |x| is 4
    return where(x.equals(x), value, x)


def ndtri(p: Formula) -> Formula:
    """Where the distribution function of the normal distribution is p."""
    low, high = math.exp(-2.0), 1.0 - math.exp(-2.0)
    upper = p > 0.5
    rest = where(upper, 1.0 - p, p)
    z = sqrt(-2.0 * rough_log(rest))
    u = 1.0 / z
    series = where(z < 8.0, chebyshev(c.NORMAL_TAIL, u), chebyshev(c.NORMAL_FAR_TAIL, u))
    tail = rough_log(z) * u + series * u - z
    tail = where(upper, -tail, tail)
    value = where((p > low) & (p < high), math.sqrt(2.0) * erfinv(2.0 * p - 1.0), tail)
    value = where(p.equals(0.0), -math.inf, where(p.equals(1.0), math.inf, value))
    return where((p >= 0.0) & (p <= 1.0), value, math.nan)


def log_ndtr(x: Formula) -> Formula:
    """The logarithm of the distribution function of the normal distribution."""
    t = x * math.sqrt(0.5)
    scaled = erfcx(absolute(t))
    left = where(x < -1e200, -math.inf, log(scaled * 0.5) - t * t)
    tail = 0.5 * exp(-(t * t)) * scaled
    return where(x < -1.0, left, log1p(-where(t < 0.0, 1.0 - tail, tail)))
