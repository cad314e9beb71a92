"""Images with the channel innermost around convolutions of a GPU, in both halves of a training step.

cuDNN convolves half types on tensor cores with the channel innermost; images that lie as eager has them it copies into
that order and results back, in kernels of their own, at every call. So images are copied once where a run of
convolutions begins, weights too (mostly that is part of the cast that autocast asks for), and what lies in between
follows: the order of operands decides that of results, as in eager. Whoever goes by strides, and the caller, gets a
copy as it was. The pass works on forward and backward together, before they are cut in two, so that what is kept for
backward lies so as well.

Analysed are groups of convolutions with nothing but kernels of ours between; decided is for each whether it gains more
than its copies cost; applied is that to the graph, whose fakes are inferred again.
Neighbours: `passes/convolutions.py` (oneDNN's, under freezing), `loop/channels.py` (the same question on the CPU).
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from math import prod
from typing import Any

import torch
from torch import fx
from torch.utils._pytree import tree_map_only

from stator.base.device import Device
from stator.fake.symbolic import extents, is_symbolic
from stator.graphs.nodes import call_for, infer
from stator.sizes import hint

aten = torch.ops.aten

CONVOLUTIONS = (aten.convolution.default, aten.convolution_backward.default)
DTYPES = {torch.bfloat16, torch.float16}
LAST = torch.channels_last
#: How many of the arguments are images; the one after them is the weight. Of the results of backward the first is one.
_IMAGES = {aten.convolution.default: 1, aten.convolution_backward.default: 2}
#: Operators take tensors in any order, and give results in that of their operands: those that kernels of ours compute,
#: but for these, which go by the storage; these of PyTorch; and products, which give rows.
_BY_STORAGE = {aten.as_strided.default, aten.view.dtype, aten.view_as_real.default, aten.view_as_complex.default}
_FOLLOWING = {
    operator.getitem, aten.max_pool2d_with_indices.default, aten.max_pool2d_with_indices_backward.default,
    aten.mm.default, aten.addmm.default, aten.bmm.default, aten.baddbmm.default,
}  # fmt: skip
#: Of an image that cuDNN would copy, how many times its bytes that costs: it is read and written, by a slow kernel.
_COPIED = 3.0
#: The same of a copy of ours, in tiles; and of a kernel that reads in one order and writes in another.
_TILED, _MIXED = 2.5, 1.0


def lay(graph: fx.Graph, kept: Sequence[fx.Node], device: Device, loops: Set[Any]) -> dict[fx.Node, fx.Node]:
    """Have images lie so where it pays; gives what stands for those of the `kept` nodes that lie otherwise now.

    `loops` are the operators that kernels of ours compute.
    """
    if not device.convolves_innermost:
        return {}
    following = (frozenset(loops) | _FOLLOWING) - _BY_STORAGE
    chosen = decide(graph, kept, device, following)
    return _Laying(graph, following).apply(chosen, kept) if chosen else {}


# -- analyse and decide ------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Group:
    """Convolutions tied together by what lies between, and what is gained in all, in bytes."""

    calls: list[fx.Node] = field(default_factory=list)
    gain: float = 0.0


def decide(graph: fx.Graph, kept: Iterable[fx.Node], device: Device, following: Set[Any]) -> set[fx.Node]:
    """The convolutions whose images shall lie so; `following` are the operators that take any order."""
    found = _Groups(device.launch_cost * device.bandwidth, following)
    for node in graph.nodes:
        if node.op == "call_function":
            found.take(node)
    for node in kept:
        found.leave([node])
    groups = {id(group): group for group in found.groups.values()}.values()
    return {call for group in groups if group.gain > 0 for call in group.calls}


class _Groups:
    """The groups of a graph as far as it was looked at."""

    def __init__(self, launch: float, following: Set[Any]) -> None:
        self.launch, self.following = launch, following
        self.groups: dict[fx.Node, _Group] = {}
        self.copied: set[fx.Node] = set()

    def take(self, node: fx.Node) -> None:
        """Put a node into the group of its operands, or count what it wants copied."""
        sources = node.all_input_nodes
        above = [self.groups[source] for source in sources if source in self.groups]
        if _is_ours(node):
            group = self.groups[node] = self._joined([*above, _Group([node], _gain(node))])
            group.gain -= sum([self._copy(image, _TILED) for image in _images(node) if image not in self.groups])
        elif above and node.target in self.following:
            if _is_image(node) and not _is_gradient_of_weight(node):
                group = self.groups[node] = self._joined(above)
                others = [source for source in sources if source not in self.groups and _is_image(source)]
                group.gain -= sum([self._copy(image, _MIXED) for image in others])
        else:
            self.leave(sources)

    def leave(self, sources: Iterable[fx.Node]) -> None:
        """Count the copies for who wants images as they were."""
        for source in sources:
            if source in self.groups and _is_image(source):
                self.groups[source].gain -= self._copy(source, _TILED)

    def _copy(self, node: fx.Node, times: float) -> float:
        """What it costs that an image is wanted in the other order too."""
        if node in self.copied or _is_last(_value(node)):
            return 0.0
        self.copied.add(node)
        return _nbytes(_value(node)) * times + self.launch

    def _joined(self, some: list[_Group]) -> _Group:
        """One of groups that turn out to be tied together."""
        first, *rest = {id(group): group for group in some}.values()
        for other in rest:
            first.calls += other.calls
            first.gain += other.gain
            self.groups.update({node: first for node, group in self.groups.items() if group is other})
        return first


def _is_ours(node: fx.Node) -> bool:
    """Whether it is a convolution of half type in two dims, not transposed, of known channels."""
    if node.target not in CONVOLUTIONS:
        return False
    transposed = node.args[6] if node.target is aten.convolution.default else node.args[7]
    images = _images(node)
    if transposed or not images or not all(map(_is_image, images)):
        return False
    return {_value(image).dtype for image in images} <= DTYPES


def _images(node: fx.Node) -> list[fx.Node]:
    return [arg for arg in node.args[: _IMAGES[node.target]] if isinstance(arg, fx.Node)]  # type: ignore[index]


def _value(node: fx.Node) -> Any:
    return node.meta.get("val")


def _is_image(node: fx.Node) -> bool:
    """Whether it is known, and matters, where its channels lie."""
    value = _value(node)
    if not isinstance(value, torch.Tensor) or value.ndim != 4 or is_symbolic([*value.shape][1:]):
        return False
    return not (value.shape[1] == 1 or tuple(value.shape[2:]) == (1, 1))


def _nbytes(value: torch.Tensor) -> float:
    return float(prod(map(hint, extents(value.shape))) * value.itemsize)


def _is_last(value: torch.Tensor) -> bool:
    return value.is_contiguous(memory_format=LAST)


def _gain(node: fx.Node) -> float:
    """What cuDNN need not copy: of what is read and what is written each image once."""
    read = [_value(image) for image in _images(node)]
    if node.target is aten.convolution.default:
        moved = [*read, _value(node)]
    else:  # both gradients read the image that is given; one of them reads the weight and gives an image
        moved = [read[0], read[0], read[1], *([read[1]] if node.args[-1][0] else [])]  # type: ignore[index]
    return sum([_nbytes(value) * _COPIED for value in moved if not _is_last(value)])


def _is_gradient_of_weight(node: fx.Node) -> bool:
    """Whether it is what backward of a convolution gives beside the gradient of the image."""
    source = node.args[0] if node.target is operator.getitem else None
    if not isinstance(source, fx.Node) or source.target not in CONVOLUTIONS:
        return False
    return bool(node.args[1] != 0)


# -- apply -------------------------------------------------------------------------------------------------------------


class _Laying:
    """A graph while its images are laid otherwise."""

    def __init__(self, graph: fx.Graph, following: Set[Any]) -> None:
        self.graph, self.following = graph, following
        self.laid: dict[fx.Node, fx.Node] = {}
        self.restored: dict[fx.Node, fx.Node] = {}
        #: Node → what it was, where its strides are others now.
        self.changed: dict[fx.Node, Any] = {}

    def apply(self, chosen: set[fx.Node], kept: Sequence[fx.Node]) -> dict[fx.Node, fx.Node]:
        """Rewrite every node that the chosen ones reach."""
        for node in list(self.graph.nodes):
            if node.op not in ("call_function", "output"):
                continue
            if node in chosen:
                count = _IMAGES[node.target] + 1
                with self.graph.inserting_before(node):
                    given = [self._laid(arg) if isinstance(arg, fx.Node) else arg for arg in node.args[:count]]
                    given += [self._as_it_was(arg) for arg in node.args[count:]]
                node.args = tuple(given)
                self._infer(node)
            elif any(source in self.changed for source in node.all_input_nodes):
                self._carry(node)
        return self._results(kept)

    def _carry(self, node: fx.Node) -> None:
        """A node with operands that lie otherwise: its result follows, or they are copied."""
        if node.op == "call_function" and node.target in self.following:
            try:
                self._infer(node)
                return
            except RuntimeError:
                assert node.target is aten.view.default, node.target  # dims that do not lie as one any more
        with self.graph.inserting_before(node):
            node.args = tuple([self._as_it_was(arg) for arg in node.args])
            node.kwargs = {name: self._as_it_was(value) for name, value in node.kwargs.items()}

    def _infer(self, node: fx.Node) -> None:
        before = node.meta["val"]
        if node.target is operator.getitem:
            source, position = node.args
            node.meta["val"] = source.meta["val"][position]  # type: ignore[union-attr]
        else:
            node.meta["val"] = infer(node.target, node.args, node.kwargs)
        if _strides(before) != _strides(node.meta["val"]):
            self.changed[node] = before

    def _laid(self, node: fx.Node) -> fx.Node:
        """The image or weight with the channel innermost."""
        if _is_last(_value(node)):
            return node
        if node not in self.laid:
            self.laid[node] = call_for(node, aten.clone.default, node, memory_format=LAST)
        return self.laid[node]

    def _as_it_was(self, given: Any) -> Any:
        return tree_map_only(fx.Node, self._restored, given)

    def _restored(self, node: fx.Node) -> fx.Node:
        """A node's value with the strides that it was traced with."""
        before = self.changed.get(node)
        if not isinstance(before, torch.Tensor):
            return node
        if node not in self.restored:
            self.restored[node] = _copied(node, before)
        return self.restored[node]

    def _results(self, kept: Sequence[fx.Node]) -> dict[fx.Node, fx.Node]:
        found: dict[fx.Node, fx.Node] = {}
        for node in kept:
            if node in self.changed and node not in found:
                with self.graph.inserting_before(node.next):
                    found[node] = self._restored(node)
        return found


def _copied(node: fx.Node, before: torch.Tensor) -> fx.Node:
    """The value of a node with the strides of another one of its size."""
    if before.is_contiguous():
        return call_for(node, aten.clone.default, node, memory_format=torch.contiguous_format)
    strides = extents(before.stride())
    order = sorted(range(before.ndim), key=lambda dim: (-hint(strides[dim]), dim))
    turned = call_for(node, aten.permute.default, node, order)
    dense = call_for(node, aten.clone.default, turned, memory_format=torch.contiguous_format)
    return call_for(node, aten.permute.default, dense, [order.index(dim) for dim in range(before.ndim)])


def _strides(value: Any) -> Any:
    """Of all tensors of a result, as far as they say where elements lie."""
    if isinstance(value, Mapping):
        return {name: _strides(item) for name, item in value.items()}
    if isinstance(value, tuple | list):
        return [_strides(item) for item in value]
    return extents(value.stride()) if isinstance(value, torch.Tensor) else None
