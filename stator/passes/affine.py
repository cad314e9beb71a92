"""Batch norms with frozen statistics, and other scales and shifts of channels, folded into the convolution before them.

Only under the option `freezing`, and where all but the convolution's input is frozen (`graphs/frozen.py`): the products
with the weight are made once. Results differ from eager's by roundings (docs/numerics.md), so bfloat16, which eager
rounds in between, is folded under `numerics="fast"` alone: in float32, and the weight is rounded. Otherwise its scales
and shifts, which are float32's, become one of each, as in eager's own kernel.
Neighbours: `aot/prologue.py`, which splits off what is made here.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from stator.graphs.frozen import frozen
from stator.graphs.nodes import call_for

aten = torch.ops.aten

_STEPS = (aten.add.Tensor, aten.sub.Tensor, aten.mul.Tensor, aten.div.Tensor)


@dataclass(frozen=True, slots=True)
class FoldAffine:
    """`(convolution(x, w, b) - m) * s + t`  -->  `convolution(x, w * s, (b - m) * s + t)`, if only these read it."""

    fast: bool = False

    def __call__(self, graph: fx.Graph) -> int:
        known = frozen(graph)
        changes = 0
        for node in graph.find_nodes(op="call_function", target=aten.convolution.default):
            find = _CHAINS[self.fast].get(node.meta["val"].dtype)
            chain = find(node, known) if find is not None and _may_fold(node, known) else []
            if chain:
                _Fold(node, chain).replace()
                changes += 1
        return changes


@dataclass(frozen=True, slots=True)
class JoinAffine:
    """`((convolution(x, w).float() - m) * r * s + t)`  -->  `convolution(x, w).float() * (r * s) + (t - m * r * s)`."""

    def __call__(self, graph: fx.Graph) -> int:
        known = frozen(graph)
        changes = 0
        for node in graph.find_nodes(op="call_function", target=aten.convolution.default):
            if node in known or node.meta["val"].dtype is not torch.bfloat16:
                continue
            wide = _converted(node, torch.float32)
            chain = _chain(wide, known) if wide is not None else []
            if wide is not None and len(chain) > 2:
                _Fold(wide, chain).join()
                changes += 1
        return changes


def _may_fold(node: fx.Node, known: Set[fx.Node]) -> bool:
    """Whether weight and bias are frozen; a transposed convolution of groups has no dim of its channels."""
    _, weight, bias, *_, transposed, _, groups = node.args
    value = node.meta["val"]
    return (
        node not in known
        and weight in known
        and (bias is None or bias in known)
        and weight.meta["val"].dtype is value.dtype  # type: ignore[union-attr]
        and not (transposed and groups != 1)
    )


def _chain(node: fx.Node, known: Set[fx.Node]) -> list[fx.Node]:
    """The scales and shifts that follow, each the only reader of what is before."""
    found: list[fx.Node] = []
    last = node
    while len(last.users) == 1:
        user = next(iter(last.users))
        if user.target not in _STEPS or user.kwargs or not _is_affine(last, user, known):
            break
        found.append(last := user)
    return found


def _wide_chain(node: fx.Node, known: Set[fx.Node]) -> list[fx.Node]:
    """Those in float32, with the conversions before and behind them."""
    wide = _converted(node, torch.float32)
    steps = _chain(wide, known) if wide is not None else []
    back = _converted(steps[-1], node.meta["val"].dtype) if steps else None
    return [wide, *steps, back] if wide is not None and back is not None else []


def _converted(node: fx.Node, dtype: torch.dtype) -> fx.Node | None:
    """The only reader of a value, if it converts it and does no more."""
    (user, *others) = node.users
    if others or user.target is not aten._to_copy.default or user.kwargs != {"dtype": dtype}:
        return None
    return user if user.meta["val"].stride() == node.meta["val"].stride() else None


#: By whether roundings may be left out, and by type.
_CHAINS: tuple[dict[torch.dtype, Callable[[fx.Node, Set[fx.Node]], list[fx.Node]]], ...] = (
    {torch.float32: _chain, torch.float64: _chain},
    {torch.float32: _chain, torch.float64: _chain, torch.bfloat16: _wide_chain},
)


def _is_affine(value: fx.Node, step: fx.Node, known: Set[fx.Node]) -> bool:
    left, right = step.args
    other = right if left is value else left
    if step.target is aten.div.Tensor and left is not value:
        return False
    result, before = step.meta["val"], value.meta["val"]
    if result.dtype is not before.dtype or result.shape != before.shape or result.stride() != before.stride():
        return False
    if not isinstance(other, fx.Node):
        return isinstance(other, int | float)
    if other not in known or other is value:
        return False
    tensor = other.meta["val"]
    shape = (*[1] * (before.ndim - tensor.ndim), *tensor.shape)
    return tensor.dtype is before.dtype and all(n == 1 for i, n in enumerate(shape) if i != 1)


class _Fold:
    """The arithmetic of a convolution's weights, or of what is done with its results, written before the last step."""

    def __init__(self, convolution: fx.Node, chain: list[fx.Node]) -> None:
        self.convolution, self.chain, self.end = convolution, chain, chain[-1]
        self.dtype: torch.dtype = chain[0].meta["val"].dtype
        self.scale: Any = None
        self.shift: Any = None

    def replace(self) -> None:
        graph = self.end.graph
        x, weight, bias, *rest = self.convolution.args
        with graph.inserting_before(self.end):
            self.shift = self._cast(bias, self.dtype)
            before = self.convolution
            for step in self.chain:
                if step.target in _STEPS:
                    self._take(before, step)
                before = step
            if self.scale is not None:
                ndim = weight.meta["val"].ndim  # type: ignore[union-attr]
                dim = 1 if rest[3] else 0
                scale = self._call(aten.view.default, self.scale, [-1 if i == dim else 1 for i in range(ndim)])
                given = weight.meta["val"].dtype  # type: ignore[union-attr]
                product = self._call(aten.mul.Tensor, self._cast(weight, self.dtype), scale)
                weight = self._cast(product, given)
            shift = self._cast(self.shift, weight.meta["val"].dtype)  # type: ignore[union-attr]
            folded = self._call(aten.convolution.default, x, weight, shift, *rest)
        folded.meta["val"] = self.end.meta["val"]
        self.end.replace_all_uses_with(folded)
        for step in reversed([self.convolution, *self.chain]):
            graph.erase_node(step)

    def join(self) -> None:
        """One scale and one shift in place of the steps."""
        graph, value = self.end.graph, self.convolution
        with graph.inserting_before(self.end):
            before = self.convolution
            for step in self.chain:
                self._take(before, step)
                before = step
            for target, factor in ((aten.mul.Tensor, self.scale), (aten.add.Tensor, self.shift)):
                if factor is not None:
                    shape = [-1 if i == 1 else 1 for i in range(value.meta["val"].ndim)]
                    value = self._call(target, value, self._call(aten.view.default, factor, shape))
        self.end.replace_all_uses_with(value)
        for step in reversed(self.chain):
            graph.erase_node(step)

    def _take(self, before: fx.Node, step: fx.Node) -> None:
        """The next step: what it does to scale and shift."""
        left, right = step.args
        other = self._channels(right if left is before else left)
        match step.target:
            case aten.mul.Tensor | aten.div.Tensor:
                one = self._full(1.0) if self.scale is None else self.scale
                self.scale = self._call(step.target, one, other)
                if self.shift is not None:
                    self.shift = self._call(step.target, self.shift, other)
            case aten.add.Tensor:
                self.shift = self._call(step.target, self._shift(), other)
            case aten.sub.Tensor if left is before:
                self.shift = self._call(step.target, self._shift(), other)
            case _:
                self.shift = self._call(step.target, other, self._shift())
                one = self._full(1.0) if self.scale is None else self.scale
                self.scale = self._call(aten.neg.default, one)

    def _shift(self) -> Any:
        return self._full(0.0) if self.shift is None else self.shift

    def _channels(self, other: Any) -> Any:
        """An operand as a vector of one or all channels."""
        if not isinstance(other, fx.Node):
            return other
        return self._call(aten.view.default, other, [other.meta["val"].numel()])

    def _full(self, number: float) -> fx.Node:
        value = self.convolution.meta["val"]
        return self._call(aten.full.default, [value.shape[1]], number, dtype=self.dtype, device=value.device)

    def _cast(self, node: Any, dtype: torch.dtype) -> Any:
        if node is None or node.meta["val"].dtype is dtype:
            return node
        return self._call(aten._to_copy.default, node, dtype=dtype)

    def _call(self, target: Any, *args: Any, **kwargs: Any) -> fx.Node:
        return call_for(self.end, target, *args, **kwargs)
