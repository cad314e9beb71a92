"""Shape rules of functions of one number, where PyTorch's own have dims of one element lie otherwise than its kernels.

Neighbours: `rules.py` has the elementwise operators and what their results lie like.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from stator.fake.rules import as_bool, as_first, as_float, rule, variants

_SPECIAL = " ".join(
    f"special_{name}"
    for name in "i0e i1 i1e ndtri log_ndtr erfcx airy_ai bessel_j0 bessel_j1 bessel_y0 bessel_y1 modified_bessel_i0 "
    "modified_bessel_i1 modified_bessel_k0 modified_bessel_k1 scaled_modified_bessel_k0 scaled_modified_bessel_k1 "
    "spherical_bessel_j0".split()
)


def _real(kind: Callable[..., Any], x: Any, *args: Any) -> Any:
    """Of a tensor alone, where eager refuses complex numbers."""
    return NotImplemented if x.is_complex() else kind(1, x)


for _kind, _names in ((as_float, f"i0 {_SPECIAL}"), (as_first, "softshrink"), (as_bool, "isposinf isneginf")):
    rule(*variants(_names))(partial(_real, _kind))
