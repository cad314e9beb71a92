"""Products of matrices whose sizes are no multiples of 8, as products of larger ones.

For half types cuBLAS's kernels for tensor cores want rows that begin at multiples of 16 bytes, and sizes to match;
others take several times as long: on an H100 the head of GPT-2, of 50257 columns, 3.3 ms instead of 0.45, and its
gradients 2.4 and 2.2 instead of 0.4 each. Rows that are apart from each other are not enough (3.2 and 2.4 ms). So an
operand is bordered with zeros along such a size, by the kernel that casts or computes it where there is one, and the
result cut. It is decided for forward and backward together, so that a weight is bordered once.
Where 4 divides a size, that is so as well: 24,576 x 384 x 196 take 36 µs there, bordered 15.
A result that is cut into memory of its own is there twice meanwhile, so tiles of our own store it where they can
(`lowering/matmul.py`): of 4096 rows and 768 terms, that saves the head of GPT-2 393 MB besides the copies. They also
store one that is read turned as it is read, with what is added to it (17 µs), which a kernel behind a library's product
would read across its rows.
Neighbours: `images.py` and `biases.py`, with which it runs.
"""

from __future__ import annotations

from collections.abc import Set
from math import prod
from typing import Any

import torch
from torch import fx

from stator.base.device import Device
from stator.fake.symbolic import is_symbolic
from stator.graphs.calls import is_view
from stator.graphs.nodes import call_for

aten = torch.ops.aten

_PRODUCTS = (aten.mm.default, aten.addmm.default, aten.bmm.default)
DTYPES = {torch.bfloat16, torch.float16}
#: What sizes are to be multiples of, and from which on a border is a small part.
_STEP, _LEAST = 8, 128
#: Multiplications and additions in a second that are gained: of 6e14 where sizes are even, and 1e14 where not.
_GAINED = 1.2e14
#: How many times the cost of copies must be gained.
_CLEARLY = 1.3


def pad(graph: fx.Graph, kept: Set[fx.Node], device: Device, loops: Set[Any]) -> dict[fx.Node, fx.Node]:
    """Border operands where it pays; gives what stands for the nodes that are gone.

    `kept` are results; `loops` are the operators that kernels of ours compute.
    """
    if not device.pads_products:
        return {}
    padding = _Padding(graph, kept, device, loops)
    for node in list(graph.nodes):  # in order: what is bordered for one is there for later ones
        if node.target in _PRODUCTS:
            padding.take(node)
    return padding.gone


class _Padding:
    """A graph whose products are bordered."""

    def __init__(self, graph: fx.Graph, kept: Set[fx.Node], device: Device, loops: Set[Any]) -> None:
        self.graph, self.kept, self.device, self.loops = graph, kept, device, loops
        self.gone: dict[fx.Node, fx.Node] = {}
        #: Matrix and dim → the same bordered along it.
        self.bordered: dict[tuple[fx.Node, int], fx.Node] = {}

    def take(self, node: fx.Node) -> None:
        """Border the operands of a product, if that pays."""
        given: Any = node.args
        *bias, a, b = given
        left, right = a.meta["val"], b.meta["val"]
        if is_symbolic([*left.shape, *right.shape]) or left.dtype not in DTYPES or node.kwargs:
            return
        (*batch, rows, terms), columns = left.shape, right.shape[-1]
        along_rows = _is_ragged(rows) and left.stride(-2) == 1 != left.stride(-1)
        along_terms, along_columns = _is_ragged(terms), _is_ragged(columns)
        if not along_rows and not along_terms and not along_columns:
            return
        suits_tiles = self.device.tile_products and right.stride(-2) == 1 and not along_rows and not along_terms
        if suits_tiles and (self._is_kept(node) or _is_turned(node)):
            return
        copied = [a] * (along_rows or along_terms) + [b] * (along_terms or along_columns)
        if 2.0 * prod(batch) * rows * terms * columns / _GAINED < self._cost(node, copied, along_columns) * _CLEARLY:
            return
        with self.graph.inserting_before(node):
            row, column = left.ndim - 2, left.ndim - 1
            a = self._border(a, row) if along_rows else a
            a = self._border(a, column) if along_terms else a
            b = self._border(b, row) if along_terms else b
            b = self._border(b, column) if along_columns else b
            if bias and along_columns:
                bias = [self._border(bias[0], bias[0].meta["val"].ndim - 1)]
            made = call_for(node, node.target, *bias, a, b)
            if along_rows:
                made = call_for(node, aten.slice.Tensor, made, row, 0, rows)
            if along_columns:
                made = call_for(node, aten.slice.Tensor, made, column, 0, columns)
                made = call_for(node, aten.clone.default, made, memory_format=torch.contiguous_format)
        node.replace_all_uses_with(made)
        self.graph.erase_node(node)
        self.gone[node] = made

    def _is_kept(self, node: fx.Node) -> bool:
        """Whether a result has to be in memory without a border: for the caller, or for an operator of PyTorch."""
        if node in self.kept:
            return True
        return any(self._is_kept(user) if is_view(user) else user.target not in self.loops for user in node.users)

    def _cost(self, node: fx.Node, operands: list[fx.Node], cut: bool) -> float:
        """Seconds that copies take: of operands that no kernel of ours computes, and of a result that is cut to be kept
        or read by others. Whoever computes an operand, its border may take a kernel of its own.
        """
        bases = [*dict.fromkeys(map(_base, operands))]
        copied = [base for base in bases if base.target not in self.loops]
        kernels = len(bases)
        if cut and self._is_kept(node):
            copied.append(node)
            kernels += 1
        nbytes = sum([2.0 * one.meta["val"].numel() * one.meta["val"].itemsize for one in copied])
        return nbytes / self.device.bandwidth + kernels * self.device.launch_cost

    def _border(self, node: fx.Node, dim: int) -> fx.Node:
        """A matrix, several, or a bias, with zeros behind it along a dim, up to a multiple of the step.

        It is what a view renames that is bordered, so that whoever reads it by another view has the same.
        """
        match node.target:
            case aten.permute.default:
                base, dims = node.args
                return call_for(node, aten.permute.default, self._border(base, dims[dim]), [*dims])  # type: ignore[arg-type, index, misc]
            case aten.view.default if _is_same(node):
                return self._border(node.args[0], dim)  # type: ignore[arg-type]
            case aten.expand.default if (inner := _expanded(node, dim)) is not None:
                sizes = [*node.meta["val"].shape]
                sizes[dim] += -sizes[dim] % _STEP
                return call_for(node, aten.expand.default, self._border(*inner), sizes)
        if (node, dim) not in self.bordered:
            value: torch.Tensor = node.meta["val"]
            pads = [0] * (2 * (value.ndim - dim))
            pads[-1] = -value.shape[dim] % _STEP
            self.bordered[node, dim] = call_for(node, aten.constant_pad_nd.default, node, pads, 0.0)
        return self.bordered[node, dim]


def _is_ragged(size: int) -> bool:
    return size >= _LEAST and size % _STEP != 0


def _is_turned(node: fx.Node) -> bool:
    """Whether somebody reads a product's columns as something else than the last dim."""
    last = node.meta["val"].ndim - 1
    rest = [user for user in node.users if is_view(user)]
    for user in rest:
        dims = user.args[1] if user.target is aten.permute.default else (last,)
        if dims[-1] % len(dims) != len(dims) - 1 and len(dims) > 1:  # type: ignore[arg-type, index, operator]
            return True
        rest.extend([view for view in user.users if is_view(view)])
    return False


def _is_same(node: fx.Node) -> bool:
    """Whether a view has the shape of what it views."""
    base: Any = node.args[0]
    return bool(base.meta["val"].shape == node.meta["val"].shape)


def _expanded(node: fx.Node, dim: int) -> tuple[fx.Node, int] | None:
    """What an expanded tensor repeats, and which dim of that a dim is, if it is there as it is."""
    base: Any = node.args[0]
    inner = dim - node.meta["val"].ndim + base.meta["val"].ndim
    return (base, inner) if inner >= 0 and base.meta["val"].shape[inner] == node.meta["val"].shape[dim] else None


def _base(node: fx.Node) -> fx.Node:
    """What a matrix is a view of."""
    while node.target in (aten.permute.default, aten.expand.default) or (
        node.target is aten.view.default and _is_same(node)
    ):
        node = node.args[0]  # type: ignore[assignment]
    return node
