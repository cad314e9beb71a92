"""Convolutions with windows of one pixel, as products: the operator that passes make of them.

    stator::multiply_pixels(x, weight, bias, packed, by) -> Tensor    x: images; weight: (results, channels)

An image with the channel innermost is a matrix with a row for each pixel. `by` says what multiplies: "loop", a kernel
of ours; "pairs", one by instructions for pairs of terms, which `packed` is the weight for (`base/pairs.py`); "mkl" or
"onednn", which take `packed`, the weight in that library's order. Run as an operator it is the convolution.
Neighbours: `passes/pixels.py` decides, `lowering/convolution.py` has the products.
"""

from __future__ import annotations

import torch
from torch import Tensor

_LIBRARY = torch.library.Library("stator", "FRAGMENT")
_LIBRARY.define("multiply_pixels(Tensor x, Tensor weight, Tensor? bias, Tensor? packed, str by) -> Tensor")


def _multiply_pixels(x: Tensor, weight: Tensor, bias: Tensor | None, packed: Tensor | None, by: str) -> Tensor:
    return torch.conv2d(x, weight[:, :, None, None], bias)


_LIBRARY.impl("multiply_pixels", _multiply_pixels, "CompositeExplicitAutograd")

MULTIPLY_PIXELS = torch.ops.stator.multiply_pixels.default
#: What multiplies.
LOOP, PAIRS, BLAS, ONEDNN = "loop", "pairs", "mkl", "onednn"
