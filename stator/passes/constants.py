"""Arithmetic on tensors that hold one number, done while compiling.

The operators run for real on that number, so rounding and type promotion are PyTorch's own; what becomes a `full` is
contiguous, as `full` is. Neighbour: `pipeline.py`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from stator.base.records import dataclass
from stator.fake.execute import on_cpu
from stator.fake.symbolic import is_symbolic
from stator.graphs.calls import effects_of, is_view
from stator.graphs.nodes import add_call

aten = torch.ops.aten

#: Views that change the numbers and keep the dtype. Another dtype tells of others: `view_as_complex` of 2 is 2 + 2j.
_OTHER_NUMBERS = (aten._conj.default, aten._neg_view.default)


@dataclass(frozen=True, slots=True)
class FoldConstants:
    """`f(full(a), full(b), 2)`  -->  `full(f(a, b, 2))` for elementwise `f`, casts and views."""

    def __call__(self, graph: fx.Graph) -> int:
        numbers: dict[fx.Node, torch.Tensor] = {}
        changes = 0
        for node in graph.nodes:
            full = node.target is aten.full.default
            if node.op != "call_function" or not (full or _is_known(node, numbers)):
                continue
            value = node.meta["val"]
            if not isinstance(value, torch.Tensor) or value.device.type == "meta":
                continue
            if full:
                if is_symbolic(node.args[1:]):
                    continue
                numbers[node] = torch.full((), node.args[1], dtype=value.dtype)
                continue
            number = self._fold(node, value, numbers)
            if number is not None:
                numbers[node] = number
                if value.is_contiguous():
                    numbers[_replace(graph, node, number)] = number
                    changes += 1
        return changes

    def _fold(self, node: fx.Node, value: Any, numbers: dict[fx.Node, torch.Tensor]) -> torch.Tensor | None:
        """The one number that the node's value consists of, if it does, where those of its operands are known."""
        target: Any = node.target
        if is_view(node):
            number = numbers[node.all_input_nodes[0]]
            return None if target in _OTHER_NUMBERS or number.dtype != value.dtype else number
        if target in (aten.clone.default, aten._to_copy.default):
            return numbers[node.all_input_nodes[0]].to(value.dtype)
        if torch.Tag.pointwise not in getattr(target, "tags", ()) or effects_of(node):
            return None
        if is_symbolic(node.args) or is_symbolic(node.kwargs.values()):
            return None
        # What has dims takes part in type promotion as the whole tensor would.
        args = [_stand_in(arg, numbers) for arg in node.args]
        try:
            out: torch.Tensor = on_cpu(target, args, node.kwargs)
        except RuntimeError:  # a division by zero, say: the kernel raises it if it is called, and has an element
            return None
        return out.flatten()[0].to(value.dtype)


def _is_known(node: fx.Node, numbers: dict[fx.Node, torch.Tensor]) -> bool:
    """Whether the numbers that all operands consist of are."""
    inputs = node.all_input_nodes
    return bool(inputs) and all(source in numbers for source in inputs)


def _stand_in(arg: Any, numbers: dict[fx.Node, torch.Tensor]) -> Any:
    """The smallest tensor that eager's kernels treat alike: one of one element is a number to them, not rounded.

    Symbolic sizes are more than one.
    """
    if not isinstance(arg, fx.Node):
        return arg
    longer = [is_symbolic([n]) or n > 1 for n in arg.meta["val"].shape]
    sizes = [1] * len(longer)
    if any(longer):  # in one dim: two in each are many
        sizes[longer.index(True)] = 2
    return numbers[arg].expand(sizes)


def _replace(graph: fx.Graph, node: fx.Node, number: torch.Tensor) -> fx.Node:
    value = node.meta["val"]
    options = {"dtype": value.dtype, "device": value.device}
    with graph.inserting_before(node):
        full = add_call(graph, aten.full.default, (list(value.shape), number.item()), options, "full")
    full.meta.update(node.meta)
    node.replace_all_uses_with(full)
    return full
