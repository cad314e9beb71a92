"""Special functions that take loops: rows of the table of scalar operators, with what they compute in double.

They are those that no expression of fixed length gives: sums until they converge, and recurrences as long as an operand
says. C++ has the same in `codegen/cpp/special.h`, and Triton in `codegen/triton/special_functions.py`, save the
incomplete gamma functions; all other special functions are expressions (`lowering/special`).
Neighbours: `scalar.py`, whose table they join.
"""

from __future__ import annotations

import math
from collections.abc import Callable

EPSILON = 2.0**-53
#: Steps that a sum may take; those of the regions below converge in far less.
STEPS = 2000
#: (2k)! / B(2k) for k = 1 … 12, the divisors of Euler and Maclaurin's sum.
EULER = (
    12.0, -720.0, 30240.0, -1209600.0, 47900160.0, -1307674368000.0 / 691.0, 74724249600.0,
    -10670622842880000.0 / 3617.0, 5109094217170944000.0 / 43867.0, -802857662698291200000.0 / 174611.0,
    14101100039391805440000.0 / 77683.0, -1693824136731743669452800000.0 / 236364091.0,
)  # fmt: skip
#: eta / t as a power series of eta, where eta**2 / 2 = t - log(1 + t) (Temme 1979).
TEMME = (
    1.0, -0.3333333333333333, 0.08333333333333333, -0.014814814814814815, 0.0011574074074074073,
    0.0003527336860670194, -0.0001787551440329218, 3.919263178522438e-05, -2.185448510679992e-06,
    -1.85406221071516e-06, 8.296711340953087e-07, -1.7665952736826078e-07, 6.707853543401498e-09,
    1.0261809784240309e-08, -4.382036018453353e-09, 9.14769958223679e-10, -2.5514193994946248e-11,
    -5.830772132550426e-11, 2.4361948020667415e-11, -5.0276692801141755e-12, 1.1004392031956135e-13,
    3.371763262400985e-13, -1.392388722418162e-13, 2.8534893807047445e-14, -5.139111834242572e-16,
    -1.9752288294349442e-15, 8.099521156704561e-16,
)  # fmt: skip


def hurwitz(x: float, q: float) -> float:
    """The zeta function of Hurwitz: the sum of (q + k)**-x over k ≥ 0."""
    if x == 1.0:
        return math.inf
    if x < 1.0:
        return math.nan
    if q <= 0.0:
        if not math.isfinite(q) or q == math.floor(q):
            return math.inf
        if math.isnan(x) or (math.isfinite(x) and x != math.floor(x)):
            return math.nan
    if math.isnan(x) or math.isnan(q) or q == math.inf:
        return math.nan
    total, at, term = _power(q, -x), q, 0.0
    count = 0
    while count < 9 or at <= 9.0:
        count += 1
        at += 1.0
        term = _power(at, -x)
        total += term
        if abs(term) < EPSILON * abs(total):
            return total
    total += term * at / (x - 1.0) - 0.5 * term
    factor, k = 1.0, 0.0
    for divisor in EULER:
        factor *= x + k
        term /= at
        step = factor * term / divisor
        total += step
        if abs(step) < EPSILON * abs(total):
            break
        k += 1.0
        factor *= x + k
        term /= at
        k += 1.0
    return total


def _power(base: float, exponent: float) -> float:
    try:
        return math.pow(base, exponent)
    except OverflowError:
        return math.inf
    except ValueError:
        return math.inf if base == 0 else math.nan


def log_gamma(a: float) -> float:
    """The logarithm of |gamma(a)|."""
    if math.isinf(a) or (a <= 0 and a == math.floor(a)):
        return math.inf
    try:
        return math.lgamma(a)
    except OverflowError:
        return math.inf


# -- incomplete gamma functions: four ways, each where it converges fast ---------------------------


def _behind(t: float) -> float:
    """t - log(1 + t), by its series, for t near 0."""
    total, power = 0.0, t
    for k in range(2, 100):
        power *= -t
        total -= power / k
        if abs(power) < EPSILON * abs(total):
            break
    return total


def _front(a: float, x: float) -> float:
    """x**a exp(-x) / gamma(a + 1)."""
    if a < 10.0:
        return math.exp(a * math.log(x) - x - math.lgamma(a + 1.0))
    inverse = 1.0 / (a * a)
    stirling = (1 / 12 - inverse * (1 / 360 - inverse * (1 / 1260 - inverse * (1 / 1680 - inverse / 1188)))) / a
    near = abs(x - a) <= 0.4 * a
    exponent = -a * _behind((x - a) / a) if near else a * math.log(x / a) - (x - a)
    return math.exp(exponent - stirling) / math.sqrt(2.0 * math.pi * a)


def _uniform(a: float, x: float, upper: bool) -> float:
    """Temme's expansion around x = a, for large a."""
    half = _behind((x - a) / a)
    eta = math.copysign(math.sqrt(2.0 * half), x - a)
    parts = [*TEMME[1:], 0.0]
    for k in range(len(TEMME) - 3, 0, -1):
        parts[k - 1] += (k + 1) * parts[k + 1] / a
    total, power = 0.0, 1.0
    for part in parts:
        total += part * power
        power *= eta
    rest = math.exp(-a * half) / math.sqrt(2.0 * math.pi * a) * total / (1.0 + parts[1] / a)
    sign = 1.0 if upper else -1.0
    return 0.5 * math.erfc(sign * eta * math.sqrt(a / 2.0)) + sign * rest


def _series(a: float, x: float) -> float:
    """The lower function, by powers of x."""
    total = term = 1.0
    for k in range(1, STEPS):
        term *= x / (a + k)
        total += term
        if term <= EPSILON * total:
            break
    return total * _front(a, x)


def _fraction(a: float, x: float) -> float:
    """The upper function, by its continued fraction from the front (Lentz)."""
    tiny = 1e-300
    b = x + 1.0 - a
    c, d = 1.0 / tiny, 1.0 / (b or tiny)
    value = d
    for k in range(1, STEPS):
        step = -k * (k - a)
        b += 2.0
        d = 1.0 / ((step * d + b) or tiny)
        c = (b + step / c) or tiny
        value *= c * d
        if abs(c * d - 1.0) <= EPSILON:
            break
    return value * a * _front(a, x)


def _remainder(a: float, x: float) -> float:
    """The upper function for small x and a: one minus the lower, without cancellation."""
    total, factor = 0.0, 1.0
    for k in range(1, STEPS):
        factor *= -x / k
        term = factor / (a + k)
        total += term
        if abs(term) <= EPSILON * abs(total):
            break
    exponent = a * math.log(x) - _log_gamma_next(a)
    return -math.expm1(exponent) - math.exp(exponent) * a * total


def _log_gamma_next(a: float) -> float:
    """log gamma(1 + a), near a = 0 by its series."""
    if a > 1e-3:
        return math.lgamma(1.0 + a)
    return a * (-0.5772156649015329 + a * (0.8224670334241132 - a * (0.40068563438653143 - a * 0.27058080842778454)))


def _incomplete(a: float, x: float, upper: bool) -> float:
    if a < 0.0 or x < 0.0:
        return math.nan
    least, most = (1.0, 0.0) if upper else (0.0, 1.0)
    if a == 0.0:
        return most if x > 0.0 else math.nan
    if x == 0.0:
        return least
    if a == math.inf:
        return math.nan if x == math.inf else least
    if x == math.inf:
        return most
    if math.isnan(a) or math.isnan(x):
        return math.nan
    if a > 20.0 and abs(x - a) < 0.4 * a:
        return _uniform(a, x, upper)
    if x > 1.1 and x > a:
        found, is_upper = _fraction(a, x), True
    elif x <= 1.1 and (-0.4 / math.log(x) >= a if x <= 0.5 else 1.1 * x >= a):
        found, is_upper = _remainder(a, x), True
    else:
        found, is_upper = _series(a, x), False
    return found if upper is is_upper else 1.0 - found


def lower_gamma(a: float, x: float) -> float:
    """The regularised lower incomplete gamma function."""
    return _incomplete(a, x, False)


def upper_gamma(a: float, x: float) -> float:
    """The regularised upper incomplete gamma function."""
    return _incomplete(a, x, True)


# -- orthogonal polynomials: a recurrence of n steps -----------------------------------------------

Step = Callable[[float, int, float, float], float]


def _recurrence(first: Callable[[float], float], step: Step, x: float, n: int) -> float:
    """The polynomial of degree n, from those of degrees 0 and 1; it ends early where it is no number any more."""
    if n < 0:
        return 0.0
    before, value = 1.0, first(x)
    if n == 0:
        return before
    for k in range(1, n):
        if value != value:
            break
        before, value = value, step(x, k, value, before)
    return value


def _degree(n: float) -> int:
    return int(n) if abs(n) < 2**62 else -1


def _ends(x: float, n: int, at_one: float, at_minus_one: float) -> float:
    """What a polynomial is at 1 and -1."""
    if n < 0:
        return 0.0
    return at_one if x > 0.0 else (-at_minus_one if n % 2 else at_minus_one)


def _doubled(x: float, k: int, value: float, before: float) -> float:
    return (x + x) * value - before


def chebyshev_t(x: float, n: float) -> float:
    degree = _degree(n)
    if abs(x) == 1.0:
        return _ends(x, degree, 1.0, 1.0)
    if degree > 6 and abs(x) < 1.0:
        return math.cos(degree * math.acos(x))
    return _recurrence(lambda x: x, _doubled, x, degree)


def chebyshev_u(x: float, n: float) -> float:
    degree = _degree(n)
    if abs(x) == 1.0:
        return _ends(x, degree, degree + 1.0, degree + 1.0)
    if degree > 8 and abs(x) < 1.0:
        return math.sin((degree + 1.0) * math.acos(x)) / math.sin(math.acos(x))
    return _recurrence(lambda x: x + x, _doubled, x, degree)


def chebyshev_v(x: float, n: float) -> float:
    degree = _degree(n)
    if abs(x) == 1.0:
        return _ends(x, degree, 1.0, 2.0 * degree + 1.0)
    if degree > 8 and abs(x) < 1.0:
        return math.cos((degree + 0.5) * math.acos(x)) / math.cos(math.acos(x) / 2.0)
    return _recurrence(lambda x: x + x - 1.0, _doubled, x, degree)


def chebyshev_w(x: float, n: float) -> float:
    degree = _degree(n)
    if abs(x) == 1.0:
        return _ends(x, degree, 2.0 * degree + 1.0, 1.0)
    if degree > 8 and abs(x) < 1.0:
        return math.sin((degree + 0.5) * math.acos(x)) / math.sin(math.acos(x) / 2.0)
    return _recurrence(lambda x: x + x + 1.0, _doubled, x, degree)


def hermite_h(x: float, n: float) -> float:
    return _recurrence(lambda x: x + x, lambda x, k, v, w: (x + x) * v - 2.0 * k * w, x, _degree(n))


def hermite_he(x: float, n: float) -> float:
    return _recurrence(lambda x: x, lambda x, k, v, w: x * v - k * w, x, _degree(n))


def laguerre_l(x: float, n: float) -> float:
    if x == 0.0 and _degree(n) >= 0:
        return 1.0
    return _recurrence(lambda x: 1.0 - x, lambda x, k, v, w: ((k + k + 1.0 - x) * v - k * w) / (k + 1.0), x, _degree(n))


def legendre_p(x: float, n: float) -> float:
    degree = _degree(n)
    if abs(x) == 1.0:
        return _ends(x, degree, 1.0, 1.0)
    return _recurrence(lambda x: x, lambda x, k, v, w: ((k + k + 1.0) * x * v - k * w) / (k + 1.0), x, degree)


#: name, arity, rule, meaning, what it computes
ROWS: tuple[tuple[str, int, str, str, Callable[..., float]], ...] = (
    ("lgamma", 1, "float", "log |gamma(a)|", log_gamma),
    ("zeta", 2, "float", "the sum of (b + k)**-a over k >= 0", hurwitz),
    ("igamma", 2, "float", "regularised lower incomplete gamma function of (a, b)", lower_gamma),
    ("igammac", 2, "float", "1 - igamma(a, b)", upper_gamma),
    ("chebyshev_t", 2, "float", "Chebyshev polynomial, first kind, degree b, at a", chebyshev_t),
    ("chebyshev_u", 2, "float", "Chebyshev polynomial, second kind, degree b, at a", chebyshev_u),
    ("chebyshev_v", 2, "float", "Chebyshev polynomial, third kind, degree b, at a", chebyshev_v),
    ("chebyshev_w", 2, "float", "Chebyshev polynomial, fourth kind, degree b, at a", chebyshev_w),
    ("hermite_h", 2, "float", "Hermite polynomial of the physicists, degree b, at a", hermite_h),
    ("hermite_he", 2, "float", "Hermite polynomial of the probabilists, degree b, at a", hermite_he),
    ("laguerre_l", 2, "float", "Laguerre polynomial, degree b, at a", laguerre_l),
    ("legendre_p", 2, "float", "Legendre polynomial, degree b, at a", legendre_p),
)
NAMES = frozenset(row[0] for row in ROWS)
