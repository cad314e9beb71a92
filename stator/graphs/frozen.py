"""What a graph computes from parameters and buffers alone: no input, no effect, no symbolic size.

Placeholders that may be taken to stay as they are until somebody is seen to write to them carry the mark `FROZEN`.
What grows stays where it is: to read it from memory would cost more than to make it again. What leaves the graph is
made at each call, for the caller may write to it. Neighbours: `passes/affine.py` and `aot/prologue.py` ask for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from operator import getitem
from typing import Any, Final

import torch
from torch import fx

from stator.fake.symbolic import is_symbolic
from stator.graphs.calls import effects_of, is_view, root

#: The key in `meta` of such a placeholder.
FROZEN: Final = "frozen"


def library(name: str, namespace: str = "mkldnn") -> Any:
    """An operator of oneDNN's or MKL's; None where PyTorch was built without."""
    packet = getattr(getattr(torch.ops, namespace), name, None)
    return packet.default if packet is not None else None


#: (weight, rows) of products by oneDNN and by MKL, and (weight, padding, stride, dilation, groups, size of the image):
#: the calls whose results are no tensors that kernels could read, and are made by the runtime.
PACK: Final = library("_reorder_linear_weight")
PACK_BLAS: Final = library("_mkl_reorder_linear_weight", "mkl")
PACK_CONVOLUTION: Final = library("_reorder_convolution_weight")
PACKS: Final = frozenset((PACK, PACK_BLAS, PACK_CONVOLUTION))
#: The products that take such weights: (x, weight, bias or None, activation…) and (x, weight, weight as it is, bias or
#: None, rows), which multiplies other numbers of rows by the weight as it is.
PRODUCT: Final = library("_linear_pointwise")
BLAS_PRODUCT: Final = library("_mkl_linear", "mkl")
#: The convolution that takes such a weight. It gives images with the channel innermost, whatever it is given.
CONVOLUTION: Final = library("_convolution_pointwise")
#: A value grows that has more bytes than this, and more than `_GROWTH` times those of what it is computed from.
_SMALL, _GROWTH = 1 << 20, 2


def frozen(graph: fx.Graph) -> set[fx.Node]:
    """The marked placeholders, and the calls that need nothing else and one of them."""
    leaving = {root(node) for node in graph.output_node().all_input_nodes}
    leaving |= {source for node in leaving if node.target is getitem for source in node.all_input_nodes}
    found: set[fx.Node] = set()
    free: set[fx.Node] = set()  # what is made of nothing, by whoever reads it
    for node in graph.nodes:
        if node.op == "placeholder" and FROZEN in node.meta:
            found.add(node)
        elif node.op == "call_function" and root(node) not in leaving and _is_plain(node):
            sources = node.all_input_nodes
            if not all(source in found or source in free for source in sources):
                continue
            if found.isdisjoint(sources):
                free.add(node)
            elif is_view(node) or node.target is getitem or not _grows(node):
                found.add(node)
    return found


def _is_plain(node: fx.Node) -> bool:
    """Whether a call has no effects, and gives tensors of known sizes."""
    values = list(_values(node.meta.get("val")))
    tensors = all(isinstance(value, torch.Tensor) for value in values)
    sizes = [*node.args, *node.kwargs.values(), *[n for value in values if tensors for n in value.shape]]
    return bool(values) and tensors and not effects_of(node) and not is_symbolic(sizes)


def _grows(node: fx.Node) -> bool:
    made = sum(map(nbytes, _values(node.meta["val"])))
    memory = {root(source) for source in node.all_input_nodes}
    given = sum(nbytes(value) for source in memory for value in _values(source.meta["val"]))
    return made > max(_SMALL, _GROWTH * given)


def nbytes(value: Any) -> int:
    """The bytes of a tensor's elements."""
    return prod(value.shape) * value.dtype.itemsize


def _values(value: Any) -> Iterator[Any]:
    if isinstance(value, (tuple, list)):
        yield from value
    else:
        yield value
