"""`torch.utils.checkpoint`: a plain call of the function, whose nodes say that they are to be computed again.

Eager runs the function a second time in backward, so one that changes anything is left to it, and so are the cases in
which its reentrant form gives other gradients than a plain call would.
Neighbours: `autograd/function.py`, `effects.py`; `aot/partition.py` keeps none of the marked values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch.utils import checkpoint

from stator.base.errors import GraphBreak
from stator.capture.values.python.constant import NONE
from stator.capture.values.python.containers.sequence import TupleValue
from stator.capture.values.registry import handles
from stator.capture.values.torch.tensor import TensorValue

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stator.capture.machine import Machine
    from stator.capture.value import Value

#: Keyword arguments that are not the function's.
OPTIONS = ("use_reentrant", "preserve_rng_state", "determinism_check", "debug", "early_stop")


@handles(checkpoint.checkpoint)
def call_checkpoint(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """`checkpoint(f, *args)`."""
    reentrant = kwargs.get("use_reentrant", NONE)
    if reentrant.is_none() or "context_fn" in kwargs:
        raise GraphBreak("this way of checkpointing runs the autograd engine", "pass use_reentrant=False")
    function, *rest = args
    named = {name: value for name, value in kwargs.items() if name not in OPTIONS}
    before = changed(tx)
    with tx.graph.recomputed():
        result = function.call(tx, rest, named)
    if not tx.graph.grad_enabled:
        return result
    if changed(tx) != before:
        raise GraphBreak("a checkpointed function changes something, which eager does again in backward")
    if reentrant.truth(tx) and not (named == {} and is_differentiated(rest, result)):
        raise GraphBreak("reentrant checkpointing gives other gradients than a call here", "pass use_reentrant=False")
    return result


def changed(tx: Machine) -> tuple[int, ...]:
    """How much the frame has changed: objects, calls to replay, tensors from outside."""
    return len(tx.effects.calls), len(tx.effects.changed), sum(leaf.changed for leaf in tx.graph.leaves())


def is_differentiated(args: Sequence[Value], result: Value) -> bool:
    """Whether some argument takes gradients, and all that is given back comes of new tensors that do."""
    items = result.items if isinstance(result, TupleValue) else [result]
    tensors = [item for item in items if isinstance(item, TensorValue)]
    return (
        any(isinstance(arg, TensorValue) and arg.fake.requires_grad for arg in args)
        and all(item.fake.requires_grad and item not in args for item in tensors)
        and all(isinstance(item, TensorValue) or item.is_constant() for item in items)
    )
