"""`torch.inference_mode()` inside of the program.

In the graph it is a change of grad mode. Fakes are computed in inference mode itself, so what eager forbids with
inference tensors is refused; tensors that leave the graph become inference tensors after it has run
(`output_state.py`). Neighbours: `graph_context.py` (contexts in a graph), `graph.py` (`inference`).
"""

from __future__ import annotations

import functools
from dataclasses import field
from typing import TYPE_CHECKING

import torch
from torch.utils import _contextlib

from stator.base.errors import GraphBreak
from stator.capture.fields import value_class
from stator.capture.source import ConstSource
from stator.capture.values.python.constant import NONE
from stator.capture.values.registry import fresh, handles, wrap
from stator.capture.values.torch.graph_context import GraphContext
from stator.capture.values.torch.tensor import SPECIAL_METHODS, TensorValue, answer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stator.capture.machine import Machine
    from stator.capture.rewrite import Assembler
    from stator.capture.value import Value


#: Makes a context for each call of a decorated function.
MAKER = functools.partial(torch.inference_mode, True)


@value_class
class InferenceValue(GraphContext):
    """A context of inference mode."""

    kind = "an inference mode context"

    #: The modes around it, once for each time it is entered.
    before: list[tuple[bool, bool]] = field(init=False, default_factory=list)

    def python_type(self) -> type:
        return torch.inference_mode

    def call(self, tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        """As a decorator."""
        another = wrap(tx, MAKER, ConstSource(MAKER))
        return fresh(_contextlib.context_decorator).call(tx, (another, *args), kwargs)

    def enter(self, tx: Machine) -> Value:
        graph = tx.graph
        self.before.append((graph.grad_enabled, graph.inference))
        node = graph.record(torch._C._set_grad_enabled, (False,), tx.location())
        graph.entered = graph.entered or node
        graph.grad_enabled, graph.inference = False, True
        return NONE

    def leave(self, tx: Machine) -> None:
        enabled, tx.graph.inference = self.before.pop()
        tx.graph.set_grad_enabled(enabled, tx.location())

    def reconstruct(self, out: Assembler) -> None:
        out.call(torch.inference_mode)


@handles(torch.inference_mode)
def call_inference_mode(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """Where the whole frame is in inference mode, turning gradients off is all that it does."""
    mode = args[0] if args else kwargs.get("mode", fresh(True))
    if not mode.is_constant() or mode.constant() is not True:
        raise GraphBreak("torch.inference_mode(False), or of a function, inside of the compiled function")
    if torch.is_inference_mode_enabled():
        return fresh(torch.no_grad).call(tx, (), {})
    return InferenceValue()


@handles(torch.is_inference_mode_enabled)
def is_inference_mode_enabled(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """The mode of the interpreted program; that of the process is part of what every entry checks."""
    return fresh(tx.graph.inference or torch.is_inference_mode_enabled())


def is_inference(tx: Machine, tensor: Value) -> Value:
    """Fakes of inputs are no inference tensors, nor are views of these."""
    if isinstance(tensor, TensorValue) and tensor.real is not None:
        return fresh(tensor.real.is_inference())
    if any(leaf.example.is_inference() for leaf in tx.graph.leaves()):
        raise GraphBreak("is_inference() of what may be a view of an inference tensor")
    return answer(tx, torch.is_inference, (tensor,), {})


SPECIAL_METHODS["is_inference"] = is_inference


@handles(torch.is_inference)
def call_is_inference(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """`torch.is_inference(x)`."""
    return is_inference(tx, args[0] if args else kwargs["input"])
