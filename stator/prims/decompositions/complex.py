"""Complex numbers: made of their parts and taken apart.

Neighbours: `table.decompose` says which other decompositions take complex numbers; `stator.lowering.complex` computes
with pairs of reals; what neither reduces is a call of ATen's kernel.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from stator.fake.layout import elementwise_strides
from stator.fake.rules import broadcast
from stator.prims import names as p
from stator.prims.decompositions.layout import packed
from stator.prims.table import decompose


def joined(re: Tensor, im: Tensor) -> Tensor:
    """The complex numbers of these parts, laid out as an elementwise result of both is."""
    size = broadcast((re, im))
    if size is None:
        return NotImplemented
    strides = elementwise_strides(torch.Size(size), (re, im))
    parts = [part if part.shape == size else p.expand(part, list(size)) for part in (re, im)]
    if strides is None:
        return _pairs(parts)
    order = sorted(range(len(size)), key=lambda d: -strides[d])
    laid = _pairs([p.permute(part, order) for part in parts])
    return p.permute(laid, [order.index(d) for d in range(len(size))])


def _pairs(parts: Sequence[Tensor]) -> Tensor:
    return p.view_as_complex(p.cat([p.unsqueeze(part, -1) for part in parts], -1))


def parts_of(x: Tensor) -> tuple[Tensor, Tensor]:
    pairs = p.view_as_real(x)
    return p.select(pairs, -1, 0), p.select(pairs, -1, 1)


def sum_of(x: Tensor, y: Tensor) -> Tensor:
    """x + y inside of a formula: `add` itself multiplies complex numbers by its factor, be it 1."""
    if not x.is_complex():
        return p.add(x, y)
    return joined(*[p.add(a, b) for a, b in zip(parts_of(x), parts_of(y), strict=True)])


@decompose("complex", also_complex=True)
def of_parts(re: Tensor, im: Tensor) -> Tensor:
    return joined(re, im)


@decompose("polar", also_complex=True)
def polar(size: Tensor, angle: Tensor) -> Tensor:
    return joined(p.mul(size, p.cos(angle)), p.mul(size, p.sin(angle)))


@decompose("conj_physical", "_conj_physical", also_complex=True)
def conj_physical(x: Tensor) -> Tensor:
    if x.is_conj() or not x.is_complex():
        return NotImplemented
    re, im = parts_of(x)
    return joined(re, p.neg(im))


@decompose("view_as_real_copy", also_complex=True)
def view_as_real_copy(x: Tensor) -> Tensor:
    return packed(p.view_as_real(x))


@decompose("view_as_complex_copy", also_complex=True)
def view_as_complex_copy(x: Tensor) -> Tensor:
    return packed(p.view_as_complex(x))
