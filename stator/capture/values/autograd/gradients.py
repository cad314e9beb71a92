"""Gradients that the program itself asks for: `torch.autograd.grad`, `backward()` and `requires_grad_()` inside.

Both entries of the autograd engine become one call of `torch.autograd.grad` in the graph, run on fakes as any other;
`backward()` then adds the results to the `.grad` of the leaves, as an effect. An input or parameter on which the
program calls `requires_grad_()` before it computes anything from it is given to the graph as one that requires
gradients; one that it computes nothing from any more is changed when the graph has run.
Invariant: every path from the outputs to what they are differentiated by lies in the graph, and no tensor on it has
hooks.
Neighbours: `tensor.py`; `output_state.py` (tensors whose history ends with the graph); `graphs/composite.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.autograd import graph as autograd_graph
from torch.utils._pytree import tree_leaves

from stator.base.errors import GraphBreak
from stator.capture.output_state import leaves_of, share
from stator.capture.source import AttrSource
from stator.capture.values.fold import ask
from stator.capture.values.python.constant import TRUE
from stator.capture.values.python.containers.sequence import TupleValue
from stator.capture.values.registry import fresh, handles, wrap
from stator.capture.values.torch.tensor import (
    OF_OPERATIONS,
    SPECIAL_METHODS,
    TensorValue,
    call_graph,
    failed,
    has_view,
    refuse_mapped,
    result_value,
)
from stator.fake import FakeTensor
from stator.fake.layout import is_dense
from stator.fake.mode import is_inner
from stator.fake.symbolic import size_of
from stator.fake.tensor import memory_of
from stator.graphs import composite
from stator.graphs.lineage import base_requires_grad, takes_gradients, tells_history
from stator.sizes import hint

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from stator.capture.machine import Machine
    from stator.capture.value import Value

#: Up to how many bytes of results with a history forward and backward are one graph, in which all of them are kept.
#: As two graphs they are partitioned, which decides what is saved for backward and what is recomputed.
MOST_RECORDED = 1 << 28

#: Attributes with hooks that the engine runs for a tensor whose gradient is asked for, and for a leaf with a `.grad`.
HOOKS = ("_backward_hooks",)
HOOKS_OF_LEAVES = ("_backward_hooks", "_post_accumulate_grad_hooks")


# -- requires_grad_() --------------------------------------------------------------------------------------


def require_grad(tx: Machine, owner: TensorValue, wanted: Value = TRUE) -> Value:
    """`t.requires_grad_(…)`: of an input, how the graph is given it; of a tensor that the program made, a call."""
    flag = wanted.truth(tx)
    by_itself(tx, owner)
    if not tells_history(owner.fake):
        raise GraphBreak("requires_grad_() on a view that autograd has not recorded, of a tensor that was written to")
    own = takes_gradients(owner.fake)
    if flag is (own or owner.fake.grad_fn is not None):
        return owner
    refuse_mapped(tx, "requires_grad_()")
    if flag and owner.fake.requires_grad:
        raise GraphBreak("requires_grad_() on a view of a tensor that takes gradients, which has no history itself")
    if tx.graph.inference:
        raise GraphBreak("requires_grad_() in inference mode")
    if owner.source is None:
        call_graph(tx, "call_method", "requires_grad_", (owner, fresh(flag)), {})
        tx.graph.made[id(owner.fake)] = owner
        return owner
    if any(has_view(node.meta["val"], owner.fake) for node in owner.node.users):
        raise GraphBreak("requires_grad_() on an input or parameter of which there is a view")
    if owner.real is None or owner.real.is_inference():
        raise GraphBreak("requires_grad_() on an inference tensor")
    try:
        owner.fake.requires_grad_(flag)
    except OF_OPERATIONS as error:
        failed(tx, torch.Tensor.requires_grad_, error)
    if not tx.graph.set_flag(owner.node, flag, owner.real.requires_grad, tx.location()):
        tx.effects.call(torch.Tensor.requires_grad_, owner, fresh(flag))
    return owner


SPECIAL_METHODS["requires_grad_"] = require_grad


# -- the engine ----------------------------------------------------------------------------------------------


@handles(autograd_graph._engine_run_backward)
def run_engine(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """The entry to the engine, by which `torch.autograd.grad` and `torch.autograd.backward` are implemented."""
    names = ("t_outputs", "grads", "retain_graph", "create_graph", "inputs", "allow_unreachable", "accumulate_grad")
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    refuse_mapped(tx, "the gradient")
    if ask(tx, torch.is_anomaly_enabled).truth(tx):
        raise GraphBreak("gradients are computed in anomaly mode, which looks at each of them")
    again = tx.graph.regions or tx.session.options.activation_memory_budget < 1.0
    if again or (not given["create_graph"].truth(tx) and recorded(tx) > MOST_RECORDED):
        raise GraphBreak("gradients for which something is to be computed again: forward and backward are two graphs")
    outputs = tensors(tx, given["t_outputs"])
    if any(output.fake.grad_fn is None and not takes_gradients(output.fake) for output in outputs):
        raise GraphBreak("gradients of a tensor without a history, of which PyTorch says so")
    if given["accumulate_grad"].truth(tx):
        accumulate(tx, outputs, given)
        return TupleValue([])
    targets = tensors(tx, given["inputs"])
    return gradients(tx, outputs, targets, given, given["allow_unreachable"])


def recorded(tx: Machine) -> int:
    """How many bytes of results with a history the graph has computed so far, at the sizes of this call."""
    calls = [node for node in tx.graph.graph.nodes if node.op.startswith("call_")]
    fakes = [fake for node in calls for fake in tree_leaves(node.meta["val"]) if isinstance(fake, FakeTensor)]
    found = {id(memory_of(fake)): fake for fake in fakes if fake.requires_grad}
    return sum(hint(size_of(fake.numel())) * fake.itemsize for fake in found.values())


def tensors(tx: Machine, given: Value) -> list[TensorValue]:
    """The tensors of a tuple."""
    found = given.unpack(tx)
    if not all(isinstance(item, TensorValue) for item in found):
        raise GraphBreak("gradients of, or for, something that is no tensor")
    return found  # type: ignore[return-value]


def gradients(
    tx: Machine, outputs: list[TensorValue], targets: list[TensorValue], given: dict[str, Value], unused: Value
) -> Value:
    """The call in the graph; a tuple of tensors and None."""
    check_ways(tx, outputs, targets)
    for target in targets:
        without_hooks(tx, target, HOOKS)
        by_itself(tx, target)
    retain = given["retain_graph"].truth(tx)
    call = (TupleValue(list(outputs)), TupleValue(list(targets)), given["grads"])
    nodes, fakes = zip(*[part.graph_argument() for part in call], strict=True)
    rest = (retain, given["create_graph"].truth(tx), True, unused.truth(tx))
    try:
        result = tx.graph.run(composite.gradients, (*fakes, *rest), {})
    except OF_OPERATIONS as error:
        failed(tx, torch.autograd.grad, error)
    tx.graph.differentiated = True
    node = tx.graph.record(torch.autograd.grad, (*nodes, *rest), tx.location(), result)
    return result_value(tx, node, result)


def check_ways(tx: Machine, outputs: Sequence[TensorValue], targets: Sequence[TensorValue]) -> None:
    """Refuses where a path from outputs to targets may leave the graph, through the history of another input."""
    inside = {id(leaf.fake) for leaf in tx.graph.leaves() if leaf.fake.is_leaf} | tx.graph.made.keys()
    outside = {id(found) for found in leaves_of([output.fake for output in outputs])} - inside
    from_outside = [target.fake for target in targets if target.source is not None]
    alone = len(from_outside) == 1 and is_inner(from_outside[0].grad_fn)
    if outside and from_outside and not (alone and outside == {id(found) for found in leaves_of(from_outside)}):
        raise GraphBreak("a gradient for a tensor that other inputs of the graph may have been computed from")


def without_hooks(tx: Machine, tensor: TensorValue, names: Sequence[str]) -> None:
    """Refuses a tensor with hooks, which the engine would run; guards that it has none."""
    if tensor.source is None or tensor.real is None:
        return
    for name in names:
        if getattr(tensor.real, name) is not None:
            raise GraphBreak("a gradient for a tensor that has hooks")
        wrap(tx, None, AttrSource(tensor.source, name))


def by_itself(tx: Machine, tensor: TensorValue) -> None:
    """Refuses a leaf that says that it requires gradients because its base does; guards that it is none."""
    if tensor.source is None or tensor.real is None or not tensor.real.is_leaf:
        return
    if base_requires_grad(tensor.real):
        raise GraphBreak("gradients of a view that autograd has not recorded, of a tensor that takes some")
    question = base_requires_grad if tensor.real._is_view() else torch.Tensor._is_view
    tx.guard("CALL", tensor.source, (question, False))


# -- backward() ----------------------------------------------------------------------------------------------


def call_backward(tx: Machine, owner: TensorValue, /, *args: Value, **kwargs: Value) -> Value:
    """`t.backward(gradient, retain_graph, create_graph, inputs)`."""
    given = {**dict(zip(("grad_tensors", "retain_graph", "create_graph", "inputs"), args, strict=False)), **kwargs}
    if "gradient" in given:
        given["grad_tensors"] = given.pop("gradient")
    return fresh(torch.autograd.backward).call(tx, (owner,), given)


SPECIAL_METHODS["backward"] = call_backward


def accumulate(tx: Machine, outputs: list[TensorValue], given: dict[str, Value]) -> None:
    """Adds gradients to the `.grad` of the leaves that the outputs depend on, or of the given `inputs`."""
    if given["create_graph"].truth(tx):
        raise GraphBreak("backward(create_graph=True): the gradients of leaves would have a history")
    targets = tensors(tx, given["inputs"]) or reached(tx, outputs)
    if not all(target.fake.is_leaf for target in targets):
        raise GraphBreak("backward(inputs=…) for a tensor that is no leaf")
    for target in targets:
        without_hooks(tx, target, HOOKS_OF_LEAVES)
    found = gradients(tx, outputs, targets, given, TRUE).unpack(tx) if targets else []
    enabled = tx.graph.grad_enabled
    tx.graph.set_grad_enabled(False, tx.location())
    for number, (target, gradient) in enumerate(zip(targets, found, strict=True), 1):
        if isinstance(gradient, TensorValue):
            held = target.get_attr(tx, "grad")
            if not isinstance(held, TensorValue):
                target.set_attr(tx, "grad", own(tx, target, gradient, found[number:]))
            elif held.fake.requires_grad:
                raise GraphBreak("backward() adds to a gradient that has a history")
            else:
                held.inplace(tx, "+", gradient)
    tx.graph.set_grad_enabled(enabled, tx.location())


def reached(tx: Machine, outputs: Sequence[TensorValue]) -> list[TensorValue]:
    """The leaves that the outputs depend on."""
    values = [value for value in tx.values.values() if isinstance(value, TensorValue)]
    by_fake = {id(value.fake): value for value in (*values, *tx.graph.made.values())}
    found = leaves_of([output.fake for output in outputs])
    if any(id(leaf) not in by_fake for leaf in found):
        raise GraphBreak("backward() goes on outside of the graph: an input is the result of something")
    return [by_fake[id(leaf)] for leaf in found]


def own(tx: Machine, leaf: TensorValue, gradient: TensorValue, later: Sequence[Value]) -> Value:
    """The gradient in memory of its own, laid out as the leaf is: autograd's rule for the first that comes."""
    like, found = leaf.fake, gradient.fake
    dense = is_dense(like.shape, like.stride())
    shared = any(share(found, other.fake) for other in later if isinstance(other, TensorValue))
    shared = shared or any(share(found, fake) for fake in before(gradient.node.args[0]))
    if not shared and (found.stride() == like.stride() if dense else found.is_contiguous()):
        return gradient
    if not dense:
        return call_graph(tx, "call_method", "clone", (gradient,), {"memory_format": fresh(torch.contiguous_format)})
    empty = call_graph(tx, "call_function", torch.empty_like, (leaf,), {"requires_grad": fresh(False)})
    return call_graph(tx, "call_method", "copy_", (empty, gradient), {})


def before(call: Any) -> Iterator[Any]:
    """The values of the nodes before a call."""
    for node in call.graph.nodes:
        if node is call:
            return
        yield from tree_leaves(node.meta["val"])
