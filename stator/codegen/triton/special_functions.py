"""Special functions that take loops, in Triton: the same steps as `loop/special_functions.py`, for a block at once.

A loop runs until every element of the block has what it needs; an element that has it keeps it. The recurrences of
orthogonal polynomials run in the type of their operands, the rest in double.
Neighbours: `emit.py` puts `PREAMBLE` into a file whose kernels use one of `SPELLING`; `operators.py` has the others.
"""

from __future__ import annotations

from stator.loop.special_functions import EPSILON, EULER


def _polynomial(name: str, first: str, following: str, special: str = "") -> str:
    """A recurrence: that of degree 1, and the one after `value` and `before`; `special` tells some elements at once."""
    return f"""
@triton.jit
def _{name}(x, y):
    x, y = tl.broadcast(x, y)
    n = tl.where(tl.abs(y) < 4611686018427387904.0, y, -1.0).to(tl.int64)
    one = tl.full(x.shape, 1, x.dtype)
    value = {first}
    result = tl.where(n < 0, 0, tl.where(n == 0, one, value))
    told = n < 2
    {special or "pass"}
    before = one
    k = tl.full([], 1, tl.int64)
    left = (told == 0) & (value == value)
    while _any(left):
        degree = k.to(x.dtype)
        after = {following}
        before = value
        value = tl.where(left, after, value)
        k += 1
        left = left & (k < n) & (value == value)
    return tl.where(told, result, value)
"""


def _chebyshev(kind: str, first: str, formula: str, loop: int, ends: str) -> str:
    """Inside of -1 … 1 a formula serves all degrees above `loop`; at the ends the value is known."""
    return _polynomial(
        f"chebyshev_{kind}",
        first,
        "(x + x) * value - before",
        f"""count, angle = n.to(tl.float64), libdevice.acos(x.to(tl.float64))
    inside = (n > {loop}) & (tl.abs(x) < 1)
    result = tl.where(inside, ({formula}).to(x.dtype), result)
    at_end = tl.abs(x) == 1
    result = tl.where(at_end, _end(x, n, {ends}).to(x.dtype), result)
    told = told | inside | at_end""",
    )


def _zeta() -> str:
    terms = "".join(
        f"""
    factor = factor * (x + {2.0 * k})
    term = term / at
    step = factor * term / {divisor!r}
    total = tl.where(left, total + step, total)
    left = left & (tl.abs(step) >= {EPSILON!r} * tl.abs(total))
    factor = factor * (x + {2.0 * k + 1.0})
    term = term / at"""
        for k, divisor in enumerate(EULER)
    )
    return f"""
@triton.jit
def _zeta(x, q):
    x, q = tl.broadcast(x, q)
    whole = libdevice.floor(q) == q
    odd = libdevice.floor(x) != x
    infinite = (x == 1) | ((x < 1) == 0) & (q <= 0) & whole
    nan = ((x > 1) == 0) | (q != q) | (q == float("inf")) | ((q <= 0) & (whole == 0) & odd)
    told = nan | infinite
    result = tl.where(infinite, float("inf"), tl.full(x.shape, float("nan"), tl.float64))
    total = libdevice.pow(q, -x)
    at, term = q, tl.full(x.shape, 0, tl.float64)
    left, found = told == 0, told
    count = tl.full([], 0, tl.int32)
    while _any(left):
        at = tl.where(left, at + 1.0, at)
        term = tl.where(left, libdevice.pow(at, -x), term)
        total = tl.where(left, total + term, total)
        found = found | (left & (tl.abs(term) < {EPSILON!r} * tl.abs(total)))
        count += 1
        left = left & (found == 0) & ((count < 9) | (at <= 9.0))
    left = found == 0
    total = tl.where(left, total + (term * at / (x - 1.0) - 0.5 * term), total)
    factor = tl.full(x.shape, 1, tl.float64){terms}
    return tl.where(told, result, total)
"""


SPELLING = {
    name: f"_{name}({{0}}, {{1}})"
    for name in (
        "zeta", "chebyshev_t", "chebyshev_u", "chebyshev_v", "chebyshev_w", "hermite_h", "hermite_he", "laguerre_l",
        "legendre_p",
    )
}  # fmt: skip

PREAMBLE = """
@triton.jit
def _any(flags):
    return tl.max(flags.to(tl.int32) + tl.zeros([1], tl.int32)) != 0


@triton.jit
def _end(x, n, at_one, at_minus_one):
    odd = (n & 1) != 0
    return tl.where(n < 0, 0.0, tl.where(x > 0, at_one, tl.where(odd, -at_minus_one, at_minus_one)))


@triton.jit
def _over(a, b):
    if a.dtype == tl.float64:
        result = a / b
    else:
        result = tl.div_rn(a, b)
    return result

""" + "\n".join(
    [
        _zeta(),
        _chebyshev("t", "x", "libdevice.cos(count * angle)", 6, "1.0, 1.0"),
        _chebyshev(
            "u", "x + x", "libdevice.sin((count + 1.0) * angle) / libdevice.sin(angle)", 8, "count + 1.0, count + 1.0"
        ),
        _chebyshev(
            "v",
            "x + x - 1.0",
            "libdevice.cos((count + 0.5) * angle) / libdevice.cos(angle / 2.0)",
            8,
            "1.0, 2.0 * count + 1.0",
        ),
        _chebyshev(
            "w",
            "x + x + 1.0",
            "libdevice.sin((count + 0.5) * angle) / libdevice.sin(angle / 2.0)",
            8,
            "2.0 * count + 1.0, 1.0",
        ),
        _polynomial("hermite_h", "x + x", "(x + x) * value - (degree + degree) * before"),
        _polynomial("hermite_he", "x", "x * value - degree * before"),
        _polynomial(
            "laguerre_l",
            "1.0 - x",
            "_over((degree + degree + 1.0 - x) * value - degree * before, degree + 1.0)",
            "result, told = tl.where((x == 0) & (n >= 0), 1.0, result), told | (x == 0)",
        ),
        _polynomial(
            "legendre_p",
            "x",
            "_over((degree + degree + 1.0) * x * value - degree * before, degree + 1.0)",
            "result = tl.where(tl.abs(x) == 1, _end(x, n, 1.0, 1.0).to(x.dtype), result)\n"
            "    told = told | (tl.abs(x) == 1)",
        ),
    ]
)
