"""One list of programs for every stage: decompositions, lowering, and each code generator run the same cases.

`CASES` is the list. A case is `fn(*make_inputs(dtype))` for each of its dtypes, compared with eager.
"""

from __future__ import annotations

from tests.cases import (
    activation,
    complex,
    distance,
    indexing,
    margin,
    normalization,
    overload,
    pointwise,
    reduction,
    resampling,
    scan,
    shape,
    special,
    windows,
)
from tests.cases.model import Case, assert_close, gradients

#: All of them, by family.
FAMILIES: dict[str, list[Case]] = {
    "activation": activation.CASES,
    "complex": complex.CASES,
    "distance": distance.CASES,
    "indexing": indexing.CASES,
    "margin": margin.CASES,
    "normalization": normalization.CASES,
    "overload": overload.CASES,
    "pointwise": pointwise.CASES,
    "reduction": reduction.CASES,
    "resampling": resampling.CASES,
    "scan": scan.CASES,
    "shape": shape.CASES,
    "special": special.CASES,
    "windows": windows.CASES,
}

CASES: list[Case] = [case for cases in FAMILIES.values() for case in cases]

__all__ = ["CASES", "FAMILIES", "Case", "assert_close", "gradients"]
