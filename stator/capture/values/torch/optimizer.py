"""What `torch.optim` does with the numbers in its step counters.

Eager takes a counter's number out of its tensor and computes bias corrections as Python floats, in double precision. In
a graph the number stays in its tensor, as a double without dimensions: the same arithmetic, nothing read.
Neighbours: `tensor.py` (whose special methods take such a number where eager's take a float).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.optim import optimizer as torch_optimizer

from stator.capture.values.fold import run
from stator.capture.values.python.constant import NONE
from stator.capture.values.python.containers.lists import ListValue
from stator.capture.values.python.containers.mapping import dict_of
from stator.capture.values.python.containers.sequence import TupleValue
from stator.capture.values.python.real import SymbolicFloat
from stator.capture.values.registry import fresh, handles
from stator.capture.values.torch.tensor import TensorValue, call_graph

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stator.capture.machine import Machine
    from stator.capture.value import Value


@handles(torch_optimizer._get_value)
def call_get_value(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """The number of steps, to compute with."""
    (counter,) = args
    return call_graph(tx, "call_method", "double", args, {}) if isinstance(counter, TensorValue) else counter


@handles(torch._C._group_tensors_by_device_and_dtype)
def call_group_tensors(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """Lists of tensors side by side, as one for each device and dtype of the first: in eager's order, by the fakes."""
    lists = [part.unpack(tx) for part in args[0].unpack(tx)]
    fakes = [[item.graph_argument()[1] for item in part] for part in lists]
    with_indices = len(args) > 1 and args[1].truth(tx)
    groups = run(tx, torch._C._group_tensors_by_device_and_dtype, (fakes, True))
    pairs = []
    for key, (_, indices) in groups.items():
        chosen = ListValue([ListValue([part[index] for index in indices]) for part in lists])
        pairs.append((fresh(key), TupleValue([chosen, fresh(indices if with_indices else [])])))
    return dict_of(tx, pairs)


@handles(torch._foreach_addcdiv_)
def call_foreach_addcdiv(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """With scalars in tensors it is one `addcdiv_` after the other, as eager's is."""
    scalars = args[3].unpack(tx) if len(args) == 4 and isinstance(args[3], ListValue) else args[3:]
    if kwargs or len(args) != 4 or not all(isinstance(scalar, TensorValue) for scalar in scalars):
        return call_graph(tx, "call_function", torch._foreach_addcdiv_, args, kwargs)
    for target, first, second, scalar in zip(*(arg.unpack(tx) for arg in args), strict=True):
        target.get_attr(tx, "addcdiv_").call(tx, (first, second), {"value": scalar})
    return NONE


#: Steps of optimizers as one call, as `fused=True` makes it.
FUSED = ("_fused_adam_", "_fused_adamw_", "_fused_sgd_", "_fused_adagrad_")


def _register_fused(step: Any) -> None:
    def call(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        """A learning rate that changes is put in a tensor: of a float, PyTorch asks for the number."""
        rate = kwargs.get("lr")
        if isinstance(rate, SymbolicFloat) and rate.is_symbolic():
            made = call_graph(tx, "call_function", torch.full, (fresh(()), rate), {"dtype": fresh(torch.float64)})
            kwargs = {**kwargs, "lr": made}
        return call_graph(tx, "call_function", step, args, kwargs)

    handles(step)(call)


for _name in FUSED:
    if "tensor_lr" in getattr(torch.ops.aten, _name).overloads():
        _register_fused(getattr(torch, _name))
