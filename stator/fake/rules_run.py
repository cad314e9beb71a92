"""Shape rules of operators that have no meta kernel, or one that disagrees with the CPU's: they are run on zeros.

Invariant: an operator is in the table only if the geometry of its results follows from the geometry of its tensors and
from its other arguments, never from data; then zeros of the same geometry tell it. Symbolic sizes become numbers.
Neighbours: as `rules.py`; a rule of a few lines there is better wherever the operator is used on large tensors.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from stator.fake.execute import RULES, aten, specialised
from stator.fake.tensor import FakeTensor, make
from stator.sizes.strides import span

#: What is run. Zeros are in range for every index and target among the arguments.
RUN = (
    aten.histogram.bin_ct, aten.histogram.bins_tensor,
    aten._histogramdd_bin_edges.default, aten._histogramdd_from_bin_cts.default,
    aten._histogramdd_from_bin_tensors.default,
    aten.multi_margin_loss_backward.default, aten.multilabel_margin_loss_backward.default,
    aten._embedding_bag.default, aten._embedding_bag_forward_only.default,
)  # fmt: skip


def run(func: Any, *args: Any, **kwargs: Any) -> Any:
    """The fakes of what the operator gives for zeros; tensors on other devices are left to the meta kernel."""
    zeros = [_zeros(arg) for arg in args]
    named = {name: _zeros(value) for name, value in kwargs.items()}
    if any(value is NotImplemented for value in (*zeros, *named.values())):
        return NotImplemented
    with torch._C._DisableTorchDispatch():
        return _fakes(func(*zeros, **named))


def _zeros(arg: Any) -> Any:
    """The argument with zeros for tensors; NotImplemented where a tensor is not on the CPU."""
    if isinstance(arg, FakeTensor):
        if arg.device.type != "cpu":
            return NotImplemented
        known = specialised(arg)
        with torch._C._DisableTorchDispatch():
            memory = torch.zeros(span(known.shape, known.stride()), dtype=arg.dtype)
            return memory.as_strided(known.shape, known.stride())
    if isinstance(arg, (list, tuple)):
        items = [_zeros(item) for item in arg]
        return NotImplemented if any(item is NotImplemented for item in items) else items
    return specialised(arg)


def _fakes(result: Any) -> Any:
    if isinstance(result, torch.Tensor):
        return make(result.size(), result.dtype, result.device, result.stride())
    return type(result)(_fakes(item) for item in result) if isinstance(result, (list, tuple)) else result


for _func in RUN:
    RULES.register(_func)(partial(run, _func))
