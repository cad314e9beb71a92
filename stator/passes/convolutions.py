"""Weights of convolutions, put into the order of the library that computes them, once.

Only under the option `freezing`, where convolutions are oneDNN's. With such a weight it takes and gives images with the
channel innermost, so what lies between becomes so too (`lowering/convolution.py`), and what eager's strides are wanted
of is copied. That is decided for all convolutions together that nothing but kernels of ours lies between, by what
copies cost and what is gained. Measured on Zen 4 with one thread, with 1 and 2 images of 224 x 224, the convolutions of
ResNet-50 take 0.65 to 0.78 of the time, MobileNetV2's 0.70 and EfficientNet-B0's 0.73; in bfloat16 0.75, 0.48 and 0.49.
Neighbours: `packing.py`, which does so for products, `pixels.py` and `patches.py`, which make products of some
convolutions, `aot/prologue.py`, which gives the packing to the runtime.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from stator.base.device import HOST, Device
from stator.fake.symbolic import extents, is_symbolic
from stator.graphs.convolutions import both, is_depthwise, is_stem
from stator.graphs.frozen import CONVOLUTION, PACK_CONVOLUTION, frozen, nbytes
from stator.graphs.nodes import add_call, call_for
from stator.passes import patches, pixels
from stator.sizes.strides import contiguous, same_layout

aten = torch.ops.aten

#: What is gained, in bytes that kernels move meanwhile: for each element of an image that the library would copy, where
#: each channel is convolved alone, and else by type; for each byte of a weight, and more where images lie as it likes
#: them. What a call takes more, and a copy.
_ALONE, _TOGETHER = 4.0, {torch.float32: 2.0, torch.bfloat16: 4.0}
_WEIGHT, _WEIGHT_INNERMOST, _CALL, _COPY = 2.0, 5.0, 200_000.0, 60_000.0
#: How many times its bytes a pass over a result moves.
_PASS = 2.0
#: How many times as long as its bytes a copy takes that reads along one axis and writes along another.
_TURNED = 3.0


@dataclass(frozen=True, slots=True)
class FoldPadding:
    """`convolution(constant_pad_nd(x, [a, a, b, b], 0), …, [c, d], …)`  -->  `convolution(x, …, [c + b, d + a], …)`."""

    def __call__(self, graph: fx.Graph) -> int:
        changes = 0
        for node in graph.find_nodes(op="call_function", target=aten.convolution.default):
            padded, weight, bias, stride, padding, dilation, transposed, *rest = node.args
            if padded.target is not aten.constant_pad_nd.default or transposed or node.meta["val"].ndim != 4:
                continue
            x, pads, *value = padded.args
            left, right, top, bottom = pads if len(pads) == 4 else (-1, 0, 0, 0)
            if left == right >= 0 and top == bottom >= 0 and not any(value) and not is_symbolic(pads):
                down, across = both(padding)
                node.args = (x, weight, bias, stride, [down + top, across + left], dilation, transposed, *rest)
                changes += 1
        return changes


@dataclass(frozen=True, slots=True)
class MultiplyPixels:
    """`convolution(x, w, b)`  -->  `addmm(b, x.view(n, c), w.view(k, c).t())`, for images and windows of one pixel.

    A product of so few rows may be a loop, which what reads it is part of (`lowering/product.py`).
    """

    def __call__(self, graph: fx.Graph) -> int:
        found = [n for n in graph.find_nodes(op="call_function", target=aten.convolution.default) if _is_pixel(n)]
        for node in found:
            x, weight, bias, *_ = node.args
            result: torch.Tensor = node.meta["val"]
            with graph.inserting_before(node):
                rows = call_for(node, aten.view.default, x, [*x.meta["val"].shape[:2]])
                matrix = call_for(node, aten.view.default, weight, [*weight.meta["val"].shape[:2]])
                columns = call_for(node, aten.permute.default, matrix, [1, 0])
                if bias is None:
                    product = call_for(node, aten.mm.default, rows, columns)
                else:
                    product = call_for(node, aten.addmm.default, bias, rows, columns)
                made = call_for(node, aten.view.default, product, [*result.shape])
            node.replace_all_uses_with(made)
            graph.erase_node(node)
        return len(found)


def _is_pixel(node: fx.Node) -> bool:
    """Whether image, window and result are one pixel, of known channels, in one group; images may be any number."""
    x, weight, bias, _, _, _, transposed, _, groups = node.args
    result: torch.Tensor = node.meta["val"]
    values = [item.meta["val"] for item in (x, weight, bias) if isinstance(item, fx.Node)]
    if transposed or groups != 1 or result.ndim != 4 or result.dtype not in (torch.float32, torch.bfloat16):
        return False
    if any(is_symbolic(value.shape[1:]) or value.shape[2:] != (1, 1) for value in (result, *values[:2])):
        return False
    if is_symbolic([*values[1].shape]) or 0 in extents(values[0].shape):
        return False
    return all(v.dtype is result.dtype and v.device.type == HOST and _is_contiguous(v) for v in (result, *values))


def _is_contiguous(value: torch.Tensor) -> bool:
    size = extents(value.shape)
    return same_layout(size, extents(value.stride()), contiguous(size))


@dataclass(frozen=True, slots=True)
class ConvolveAsImages:
    """`convolution(x, w, b, [s], …)`  -->  `squeeze(convolution(unsqueeze(x, 2), unsqueeze(w, 2), b, [1, s], …), [2])`.

    Of one dim, as PyTorch convolves it too. What convolves each channel alone is a kernel's or the library's as it is.
    """

    def __call__(self, graph: fx.Graph) -> int:
        nodes = graph.find_nodes(op="call_function", target=aten.convolution.default)
        known = frozen(graph) if nodes else set()
        return sum([_convolve_as_image(graph, node) for node in nodes if node.args[1] in known and _is_row(node)])


def _is_row(node: fx.Node) -> bool:
    x, weight, *_, transposed, _, groups = node.args
    value, window = x.meta["val"], weight.meta["val"]  # type: ignore[union-attr]
    if transposed or value.ndim != 3 or is_symbolic([*value.shape, *window.shape]):
        return False
    return not groups == value.shape[1] == window.shape[0]


def _convolve_as_image(graph: fx.Graph, node: fx.Node) -> int:
    """Where the result lies as it did: who reads it may rely on that."""
    x, weight, bias, stride, padding, dilation, transposed, extra, groups = node.args
    with graph.inserting_before(node):
        image, window = (call_for(node, aten.unsqueeze.default, value, 2) for value in (x, weight))
        moves = [1, *stride], [0, *padding], [1, *dilation], transposed, [0, *extra]  # type: ignore[misc]
        made = call_for(node, aten.convolution.default, image, window, bias, *moves, groups)
        row = call_for(node, aten.squeeze.dims, made, [2])
    if row.meta["val"].stride() != node.meta["val"].stride():
        for unused in (row, made, window, image):
            graph.erase_node(unused)
        return 0
    node.replace_all_uses_with(row)
    graph.erase_node(node)
    return 1


@dataclass(frozen=True, slots=True)
class PackConvolutions:
    """`convolution(x, w, b, …)`  -->  `mkldnn._convolution_pointwise(x, packed(w), b, …)`, for frozen `w`."""

    device: Device
    loops: Set[Any]  # the operators that kernels of ours compute, which write and read in any order

    def __call__(self, graph: fx.Graph) -> int:
        takes = {torch.float32: self.device.onednn_convolutions, torch.bfloat16: self.device.onednn_halves}
        dtypes = {dtype for dtype, known in takes.items() if known and torch.backends.mkldnn.enabled}
        nodes = graph.find_nodes(op="call_function", target=aten.convolution.default) if dtypes else []
        known = frozen(graph) if nodes else set()
        alone = [node for node in nodes if is_depthwise(node, self.device)]
        packed = {node for node in nodes if node not in alone and _may_pack(node, dtypes, known)}
        changes = sum([_lay(graph, node) for node in alone if node.args[1] in known])
        for group in _groups(graph, packed, {*alone}, self) if packed else ():
            if group.gain > 0:
                changes += len(group.calls)
                for node in group.calls:
                    if is_stem(node, self.device):
                        _lay(graph, node)
                    elif patches.takes(node, self.device):
                        patches.multiply(node)
                    elif not pixels.multiply(node, self.device, self.loops):
                        _pack(graph, node)
        return changes


def _may_pack(node: fx.Node, dtypes: Set[torch.dtype], known: Set[fx.Node]) -> bool:
    """Two dims of known sizes, more than one pixel, not transposed, nothing empty, all of one type."""
    x, weight, bias, *_, transposed, _, _ = node.args
    result: torch.Tensor = node.meta["val"]
    if transposed or weight not in known or x in known or result.ndim != 4 or result.dtype not in dtypes:
        return False
    tensors = [item.meta["val"] for item in (x, weight, bias) if isinstance(item, fx.Node)]
    if not _is_image(result) or is_symbolic([n for tensor in tensors for n in tensor.shape]):
        return False
    same = all(t.dtype is result.dtype and t.device.type == HOST and t.numel() for t in tensors)
    return same and result.numel() > 0 and (bias is None or tensors[2].stride() == (1,))


def _is_image(value: Any) -> bool:
    """Whether it is known, and matters, where its channels lie."""
    if not isinstance(value, torch.Tensor) or value.ndim != 4 or is_symbolic([*value.shape]):
        return False
    return value.shape[1] != 1 and value.shape[2:] != (1, 1)


# -- decide ------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Group:
    """Convolutions with nothing but kernels of ours between, and what is gained in all."""

    calls: list[fx.Node] = field(default_factory=list)
    gain: float = 0.0


def _groups(graph: fx.Graph, packed: Set[fx.Node], alone: Set[fx.Node], by: PackConvolutions) -> list[_Group]:
    """All such, as if each were packed: what is computed from their results lies as these do."""
    groups: dict[fx.Node, _Group] = {}
    loops = by.loops
    copied: set[fx.Node] = set()
    for node in graph.nodes:
        images = [source for source in node.all_input_nodes if _is_image(source.meta.get("val"))]
        above = [groups[source] for source in images if source in groups]
        if node in packed:
            group = _joined([*above, _Group([node], _gain(node, by.device))], groups)
            if (x := node.args[0]) in images and x not in groups and x not in alone and x.target not in loops:
                group.gain -= _copy(x, copied)
            groups[node] = group
        elif above and (node.target in loops or node in alone) and _is_image(node.meta["val"]):
            groups[node] = _joined(above, groups)
        elif above and node.target not in loops:
            for source in images:
                if source in groups:
                    groups[source].gain -= _copy(source, copied)
    return list({id(group): group for group in groups.values()}.values())


def _joined(some: list[_Group], groups: dict[fx.Node, _Group]) -> _Group:
    """One of groups that turn out to be tied together."""
    first, *rest = {id(group): group for group in some}.values()
    for other in rest:
        first.calls += other.calls
        first.gain += other.gain
        groups.update({node: first for node, group in groups.items() if group is other})
    return first


def _gain(node: fx.Node, device: Device) -> float:
    gain = _gain_of_order(node)
    if pixels.takes_pairs(node, device) or patches.takes(node, device):
        gain += _CALL + _PASS * nbytes(node.meta["val"])  # nothing is called, and what follows is no further pass
    return gain


def _gain_of_order(node: fx.Node) -> float:
    x, weight = (item.meta["val"] for item in node.args[:2])  # type: ignore[union-attr]
    if not x.is_contiguous() and x.is_contiguous(memory_format=torch.channels_last):
        return nbytes(weight) * _WEIGHT_INNERMOST - _CALL
    elements = x.numel() + node.meta["val"].numel()
    return elements * (_ALONE if weight.shape[1] == 1 else _TOGETHER[x.dtype]) + nbytes(weight) * _WEIGHT - _CALL


def _copy(node: fx.Node, copied: set[fx.Node]) -> float:
    """What the first copy of an image costs in which the channel lies elsewhere."""
    value = node.meta["val"]
    if node in copied or value.is_contiguous(memory_format=torch.channels_last):
        return 0.0
    copied.add(node)
    return nbytes(value) * _TURNED + _COPY


# -- apply -------------------------------------------------------------------------------------------


def _pack(graph: fx.Graph, node: fx.Node) -> None:
    x, weight, bias, *windows, _, _, groups = node.args
    stride, padding, dilation = map(both, windows)
    size = [*x.meta["val"].shape]  # type: ignore[union-attr]
    with graph.inserting_before(node):
        packed = add_call(graph, PACK_CONVOLUTION, (weight, padding, stride, dilation, groups, size), {}, "packed")
        packed.meta.update(node.meta, val=weight.meta["val"])  # type: ignore[union-attr]
        args: Any = (x, packed, bias, padding, stride, dilation, groups, "none", [], "")
        convolution = add_call(graph, CONVOLUTION, args, {}, "convolution")
    convolution.meta.update(node.meta)
    node.replace_all_uses_with(convolution)
    graph.erase_node(node)


def _lay(graph: fx.Graph, node: fx.Node) -> int:
    """The weight of a convolution that is a loop, as that reads it: in float32, place after place in the window."""
    weight: Any = node.args[1]
    with graph.inserting_before(node):
        if weight.meta["val"].dtype is not torch.float32:
            weight = call_for(node, aten._to_copy.default, weight, dtype=torch.float32)
        turned = call_for(node, aten.permute.default, weight, [1, 2, 3, 0])
        laid = call_for(node, aten.clone.default, turned, memory_format=torch.contiguous_format)
        node.update_arg(1, call_for(node, aten.permute.default, laid, [3, 0, 1, 2]))
    return 1
