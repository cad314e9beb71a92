"""`stator::special`: a formula for each function, or an operator of the scalar table.

Formulas are computed in double whatever the result's type, so one set of coefficients serves all; the one that eager's
rounding shows in and `lgamma` are computed in the type that eager takes. Neighbour: `functions/` (the formulas).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from stator.base.dtypes import ITEMSIZE
from stator.loop import expr as e
from stator.loop.expr import Expr
from stator.lowering.context import Context
from stator.lowering.functions import Formula, bessel, error, gamma
from stator.lowering.pointwise import apply
from stator.lowering.table import lowers
from stator.lowering.value import LazyTensor, Spec, compute_dtype
from stator.prims.special_functions import SPECIAL

#: What a series may be off by where the result is no double: less than a thousandth of a float's last place.
SPARE = 2.0**-35


def _double(dtype: str) -> str:
    return "f64"


def _own(dtype: str) -> str:
    return dtype


class Function(NamedTuple):
    """The expression of one element, by the result's dtype and the operands, the dtype of these by the result's, and
    what it counts as beside an addition, where it is decided whether to compute it twice."""

    body: Callable[..., Expr]
    computed: Callable[[str], str] = _double
    weight: int = 60


def _formula(function: Callable[..., Formula], computed: Callable[[str], str] = _double) -> Function:
    def body(dtype: str, *operands: Expr) -> Expr:
        spare = 0.0 if dtype == "f64" else SPARE
        return function(*[Formula(operand, spare) for operand in operands]).expr

    return Function(body, computed)


def _growing(function: Callable[[Formula, str], Formula]) -> Function:
    """Of an operand that is still of the dtype that eager computes in, and that its exponential is held by."""

    def body(dtype: str, x: Expr) -> Expr:
        return function(Formula(e.cast(x, "f64"), 0.0 if dtype == "f64" else SPARE), x.dtype).expr

    return Function(body, compute_dtype)


def _next(_: str, x: Expr, y: Expr) -> Expr:
    """`nextafter`: read as an integer, the bits of a float grow with its magnitude; one more is a step away from 0."""
    bits = {2: "i16", 4: "i32", 8: "i64"}[ITEMSIZE[x.dtype]]
    wide = "f32" if bits == "i16" else x.dtype
    a, b, zero = e.cast(x, wide), e.cast(y, wide), e.const(0, wide)
    outward = e.op("eq", e.op("lt", a, b), e.op("gt", a, zero))
    one = e.const(1, bits)
    here = e.bitcast(x, bits)
    moved = e.bitcast(e.op("where", outward, e.op("add", here, one), e.op("sub", here, one)), x.dtype)
    least = e.bitcast(one, x.dtype)
    below = e.bitcast(e.const(-(1 << (8 * ITEMSIZE[x.dtype] - 1)) + 1, bits), x.dtype)
    from_zero = e.op("where", e.op("lt", b, zero), below, least)
    value = e.op("where", e.op("eq", a, zero), from_zero, moved)
    value = e.op("where", e.op("eq", a, b), y, value)
    odd = e.op("or", e.op("isnan", a), e.op("isnan", b))
    return e.op("where", odd, e.cast(e.op("add", a, b), x.dtype), value)


#: By the names in `prims/special_functions.py`.
FUNCTIONS: dict[str, Function] = {
    "log10": Function(lambda _, x: e.op("log10", x), compute_dtype, 8),
    "lgamma": Function(lambda _, x: e.op("lgamma", x), compute_dtype),
    "erfinv": Function(lambda _, x: e.op("erfinv", x), compute_dtype),
    "digamma": _formula(gamma.digamma),
    "trigamma": _formula(gamma.trigamma, compute_dtype),
    "special_erfcx": _formula(error.erfcx),
    "special_ndtri": _formula(error.ndtri),
    "special_log_ndtr": _formula(error.log_ndtr),
    "i0": _growing(bessel.modified_i0),
    "special_i0e": _formula(bessel.scaled_i0),
    "special_i1": _growing(bessel.modified_i1),
    "special_i1e": _formula(bessel.scaled_i1),
    "special_bessel_j0": _formula(bessel.bessel_j0),
    "special_bessel_j1": _formula(bessel.bessel_j1),
    "special_bessel_y0": _formula(bessel.bessel_y0),
    "special_bessel_y1": _formula(bessel.bessel_y1),
    "special_modified_bessel_i0": _growing(bessel.modified_i0),
    "special_modified_bessel_i1": _growing(bessel.modified_i1),
    "special_modified_bessel_k0": _formula(bessel.modified_k0),
    "special_modified_bessel_k1": _formula(bessel.modified_k1),
    "special_scaled_modified_bessel_k0": _formula(bessel.scaled_k0),
    "special_scaled_modified_bessel_k1": _formula(bessel.scaled_k1),
    "special_spherical_bessel_j0": _formula(bessel.spherical_bessel_j0),
    "special_airy_ai": _formula(bessel.airy_ai),
    "nextafter": Function(_next, _own, 0),
}


@lowers(SPECIAL)
def special(context: Context, out: Spec, name: str, x: LazyTensor, y: LazyTensor | None = None) -> LazyTensor:
    body, computed, weight = FUNCTIONS[name]
    value = apply(out, computed(out.dtype), partial(body, out.dtype), *((x,) if y is None else (x, y)))
    value.weight += weight
    return value
