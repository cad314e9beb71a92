"""`stator::fma`: the sum of a product and a number, rounded once, as one primitive.

Eager's kernels are built with instructions that join both, so that the product neither overflows nor is rounded; where
it shows (`addcmul`, `lerp`, positions of interpolation) decompositions say so by this. `add` and `sub` with `alpha`
are lowered so. Run as an operator it is `addcmul`. Neighbour: `special_functions.py`, of which there is one more.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from stator.fake.rules import as_promoted, rule
from stator.prims.set import PRIMITIVES, Primitive
from stator.prims.types import TYPE_RULES

_LIBRARY = torch.library.Library("stator", "FRAGMENT")
_LIBRARY.define("fma(Tensor x, Tensor y, Tensor other) -> Tensor", tags=(torch.Tag.pointwise,))


def _fma(x: Tensor, y: Tensor, other: Tensor) -> Tensor:
    return torch.addcmul(other, x, y)


_LIBRARY.impl("fma", _fma, "CompositeExplicitAutograd")

FMA = torch.ops.stator.fma.default
PRIMITIVES[FMA] = Primitive("pointwise", (TYPE_RULES["promoted"],), "x * y + other, rounded once", "fma")
rule(FMA)(partial(as_promoted, 3))
