"""Products by a weight that lies in pairs of terms (`base/pairs.py`): the operator that passes make of them.

    stator::multiply_pairs(x, weight, bias, packed) -> Tensor    x: (rows, terms); weight: (columns, terms)

`packed` is the weight as a kernel of ours reads it. Run as an operator it is the product by the weight.
Neighbours: `passes/pairs.py` decides and lays weights, `lowering/pairs.py` has the loop; images have `pixels.py`.
"""

from __future__ import annotations

import torch
from torch import Tensor

_LIBRARY = torch.library.Library("stator", "FRAGMENT")
_LIBRARY.define("multiply_pairs(Tensor x, Tensor weight, Tensor? bias, Tensor packed) -> Tensor")


def _multiply_pairs(x: Tensor, weight: Tensor, bias: Tensor | None, packed: Tensor) -> Tensor:
    return torch.nn.functional.linear(x, weight, bias)


_LIBRARY.impl("multiply_pairs", _multiply_pairs, "CompositeExplicitAutograd")

MULTIPLY_PAIRS = torch.ops.stator.multiply_pairs.default
