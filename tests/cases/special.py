"""Special functions: every one of `stator::special`, ATen's own, gradients, and what is made of them."""

from __future__ import annotations

import torch

from tests.cases.model import (
    ALL_FLOATS,
    BF16,
    F32,
    F64,
    I64,
    Case,
    gradients,
    normal,
    positive,
    probability,
    special,
    unit,
    whole,
)

FLOATS = (F32, F64)
S = torch.special

#: Near its roots eager's own float64 is off in the seventh digit, so the Bessel functions have a test of their own.
UNARY = {
    "lgamma": (torch.lgamma, normal(3, 4), ALL_FLOATS), "digamma": (torch.digamma, positive(3, 4), ALL_FLOATS),
    "erfinv": (torch.erfinv, unit(3, 4), ALL_FLOATS), "i0": (torch.i0, normal(3, 4), ALL_FLOATS),
    "erfcx": (S.erfcx, normal(3, 4), FLOATS), "ndtri": (S.ndtri, probability(3, 4), FLOATS),
    "log_ndtr": (S.log_ndtr, normal(3, 4), FLOATS), "i0e": (S.i0e, normal(3, 4), FLOATS),
    "i1": (S.i1, normal(3, 4), FLOATS), "i1e": (S.i1e, normal(3, 4), FLOATS),
    "modified_bessel_i0": (S.modified_bessel_i0, normal(3, 4), FLOATS),
    "modified_bessel_i1": (S.modified_bessel_i1, normal(3, 4), FLOATS),
    "modified_bessel_k0": (S.modified_bessel_k0, positive(3, 4), FLOATS),
    "modified_bessel_k1": (S.modified_bessel_k1, positive(3, 4), FLOATS),
    "scaled_modified_bessel_k0": (S.scaled_modified_bessel_k0, positive(3, 4), FLOATS),
    "scaled_modified_bessel_k1": (S.scaled_modified_bessel_k1, positive(3, 4), FLOATS),
    "spherical_bessel_j0": (S.spherical_bessel_j0, normal(3, 4), FLOATS),
    "bessel_j0": (S.bessel_j0, positive(3, 4), FLOATS), "bessel_j1": (S.bessel_j1, positive(3, 4), FLOATS),
    "bessel_y0": (S.bessel_y0, positive(3, 4), FLOATS), "bessel_y1": (S.bessel_y1, positive(3, 4), FLOATS),
    "airy_ai": (S.airy_ai, unit(3, 4), FLOATS), "entr": (S.entr, positive(3, 4), ALL_FLOATS),
}  # fmt: skip
BINARY = {
    "zeta": (S.zeta, lambda dtype: positive(3, 4)(dtype) + 1.5, positive(4), FLOATS),
    "igamma": (torch.igamma, positive(3, 4), positive(4), FLOATS),
    "igammac": (torch.igammac, positive(3, 4), positive(4), FLOATS),
    "xlog1py": (S.xlog1py, normal(3, 4), positive(4), ALL_FLOATS),
    "nextafter": (torch.nextafter, normal(3, 4), normal(4), (F32, F64, BF16)),
}
POLYNOMIALS = ("chebyshev_polynomial_t", "legendre_polynomial_p")
DIFFERENTIABLE = ("lgamma", "erfinv", "i0", "erfcx", "ndtri", "log_ndtr", "i0e", "i1", "i1e", "entr")


def _polynomial(name):
    function = getattr(S, name)
    return lambda x, n: (function(x, n), function(x, 3), function(0.25, n))


CASES = [
    *[Case(name, function, (recipe,), dtypes, slack=4.0) for name, (function, recipe, dtypes) in UNARY.items()],
    *[Case(name, function, (a, b), dtypes, slack=4.0) for name, (function, a, b, dtypes) in BINARY.items()],
    *[Case(name, _polynomial(name), (unit(3, 4), whole(-1, 8, 4)), FLOATS, slack=20.0) for name in POLYNOMIALS],
    *[
        Case(f"{name}_gradient", gradients(UNARY[name][0]), (UNARY[name][1],), FLOATS, slack=20.0)
        for name in DIFFERENTIABLE
    ],
    Case("digamma_gradient", gradients(torch.digamma), (positive(3, 4),), (F32,), slack=8.0),
    Case(
        "igamma_gradient",
        lambda a, x: gradients(lambda x: torch.igamma(a, x))(x),
        (positive(4), positive(4)),
        (F32,),
        slack=8.0,
    ),
    *[
        Case(f"polygamma_{n}", lambda x, n=n: torch.polygamma(n, x), (positive(3, 4),), (F32, BF16), slack=8.0)
        for n in range(4)
    ],
    *[
        Case(f"mvlgamma_{p}", lambda x, p=p: torch.mvlgamma(x + 2.5, p), (positive(3, 4),), ALL_FLOATS, slack=4.0)
        for p in (1, 4)
    ],
    Case(
        "numbers_among_operands",
        lambda x: (S.zeta(x + 1.5, 2.0), S.zeta(3, x), S.xlog1py(x, 2.0), S.xlog1py(0.5, x)),
        (positive(3, 4),),
        FLOATS,
        slack=4.0,
    ),
    Case(
        "of_whole_numbers", lambda x: (torch.lgamma(x), S.i0e(x), S.entr(x), S.zeta(x, x)), (whole(1, 9, 3, 4),), (I64,)
    ),
    *[
        Case(f"{name}_specials", UNARY[name][0], (special,), (F64,), slack=1e3)
        for name in UNARY
        if name not in ("bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "airy_ai")
    ],
    Case("nextafter_specials", lambda a: torch.nextafter(a, a.flip(0)), (special,), (F32, F64, BF16)),
]
