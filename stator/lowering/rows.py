"""Rows of matrices apart from each other, so that each begins at a multiple of 16 bytes.

cuBLAS multiplies half types several times as slowly where the rows of an operand or of the result do not: measured on
an H100, the head of GPT-2, of 50257 columns, takes 3.3 ms instead of 0.7. So such a result is written with a few
elements between its rows, and so is what a kernel writes for products to read. Kernels and products take any strides;
whoever wants eager's, the caller above all, gets a copy. Padding the matrices themselves would copy weights too.
Neighbours: `engine.py` asks, `context.py` realises, `extern.py` has the calls that write so.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from torch.fx import Node

from stator.base.device import Device
from stator.base.dtypes import ITEMSIZE
from stator.fake.overloads import overload
from stator.graphs.calls import is_view
from stator.lowering.value import HALF, Spec
from stator.prims.set import PRIMITIVES
from stator.sizes import hint
from stator.sizes.strides import Shape, contiguous

_MM = overload("mm")
PRODUCTS = frozenset(map(overload, ("mm", "addmm", "bmm", "baddbmm")))
#: Of fewer rows, or shorter ones, a product is over before it matters.
_ROWS, _COLUMNS = 64, 64


def spaced(node: Node, out: Spec, device: Device) -> Shape | None:
    """The strides that the value of a node is to have in memory; None where rows stay as they are."""
    if not device.row_bytes or len(out.size) < 2 or out.dtype not in HALF or out.stride != contiguous(out.size):
        return None
    columns, step = out.size[-1], device.row_bytes // ITEMSIZE[out.dtype]
    if type(columns) is not int or columns < _COLUMNS or columns % step == 0:
        return None
    if hint(prod(out.size[:-1])) < _ROWS:
        return None
    readers = list(_readers(node))
    if node.target is _MM:
        readers = [reader for reader in readers if reader.op != "output"]
    elif not any(reader.target in PRODUCTS for reader in readers):
        return None
    if not all(map(_takes_any, readers)):
        return None
    return contiguous((*out.size[:-1], -(-columns // step) * step))


def is_spaced(size: Shape, stride: Shape) -> bool:
    """Whether strides are those of rows that are apart from each other, and lie in order."""
    if len(size) < 2 or stride[-1] != 1 or type(stride[-2]) is not int or type(size[-1]) is not int:
        return False
    return stride[-2] > size[-1] and stride == contiguous((*size[:-1], stride[-2]))


def _readers(node: Node) -> Iterator[Node]:
    """Who reads a value, through views."""
    for user in node.users:
        if is_view(user):
            yield from _readers(user)
        else:
            yield user


def _takes_any(node: Node) -> bool:
    """Whether it takes operands in any strides: a kernel, or a product."""
    primitive = PRIMITIVES.get(node.target)  # type: ignore[call-overload]
    return node.target in PRODUCTS or (primitive is not None and primitive.kind != "extern")
