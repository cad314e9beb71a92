"""`stator::special`: special functions of one or two tensors, as one primitive.

`stator::special(name, x, y)` is ATen's function of that name, with its broadcasting and dtypes; run as an operator, it
is ATen's. `FUNCTIONS` says what each is. What takes loops (zeta, incomplete gamma functions, orthogonal
polynomials) stay ATen's, as no kernel of ours was faster. Neighbours: `decompositions/special_functions.py` (what
reduces to it), `lowering/special_functions.py` (what it is made of).
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch._ops import OpOverload

from stator.fake.overloads import overload
from stator.fake.rules import as_float, rule
from stator.prims.set import PRIMITIVES, Primitive
from stator.prims.types import TYPE_RULES

#: The ATen operator → what it computes.
FUNCTIONS = {
    "log10": "the logarithm to base 10, whole where x is a power of ten",
    "lgamma": "log |gamma(x)|",
    "erfinv": "where the error function is x",
    "digamma": "the derivative of log gamma",
    "trigamma": "its second derivative",
    "special_erfcx": "exp(x**2) erfc(x)",
    "special_ndtri": "the inverse of the normal distribution's function",
    "special_log_ndtr": "the logarithm of the normal distribution's function",
    "i0": "modified Bessel function, first kind, order 0",
    "special_i0e": "i0 times exp(-|x|)",
    "special_i1": "modified Bessel function, first kind, order 1",
    "special_i1e": "i1 times exp(-|x|)",
    "special_bessel_j0": "Bessel function, first kind, order 0",
    "special_bessel_j1": "Bessel function, first kind, order 1",
    "special_bessel_y0": "Bessel function, second kind, order 0",
    "special_bessel_y1": "Bessel function, second kind, order 1",
    "special_modified_bessel_i0": "i0",
    "special_modified_bessel_i1": "i1",
    "special_modified_bessel_k0": "modified Bessel function, second kind, order 0",
    "special_modified_bessel_k1": "modified Bessel function, second kind, order 1",
    "special_scaled_modified_bessel_k0": "modified k0 times exp(x)",
    "special_scaled_modified_bessel_k1": "modified k1 times exp(x)",
    "special_spherical_bessel_j0": "sin(x) / x",
    "special_airy_ai": "Airy's function",
    "nextafter": "the number after x on the way to y",
}

_LIBRARY = torch.library.Library("stator", "FRAGMENT")
_LIBRARY.define("special(str name, Tensor x, Tensor? y=None) -> Tensor", tags=(torch.Tag.pointwise,))


def _special(name: str, x: Tensor, y: Tensor | None = None) -> Tensor:
    if name == "trigamma":
        return torch.ops.aten.polygamma(1, x)
    function = overload(name)
    assert isinstance(function, OpOverload)
    result: Tensor = function(x) if y is None else function(x, y)
    return result


_LIBRARY.impl("special", _special, "CompositeExplicitAutograd")

SPECIAL = torch.ops.stator.special.default
PRIMITIVES[SPECIAL] = Primitive(
    "pointwise", (TYPE_RULES["float"],), "a special function of one or two tensors, by its name in ATen"
)
rule(SPECIAL)(lambda name, *operands: as_float(len(operands), *operands))
