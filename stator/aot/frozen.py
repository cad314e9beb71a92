"""A forward graph with its prologue: what this computes of parameters is kept, and computed again when they change.

What is looked at before each call is in `csrc/frozen.c`. Here is what it asks for: the values themselves, and tensors
without memory that keep version counters alive, so that no other can come to lie where one was.
Neighbours: `prologue.py` splits the graph; `stator.driver` binds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from stator._native import Frozen
from stator.aot import metadata
from stator.aot.keeping import counter_of
from stator.aot.writers import count_writes
from stator.base.announce import announce
from stator.base.device import HOST
from stator.sizes.strides import span

Tensor = torch.Tensor
Call = Callable[[list[Tensor]], Sequence[Any]]

#: Buffers of so many bytes are compared as a whole, larger ones by samples.
_WHOLE = 1 << 16


#: After so many calls in a row it is told that nothing is kept; other threads that call hold memory for a moment.
_OFTEN = 8
_UNSEEN = (
    "what {name} computes of parameters is computed at each call in spite of freezing, as writes to them would not be "
    "seen: their memory is held by others as well (a state_dict, NumPy arrays, other processes), or PyTorch does not "
    "keep versions where stator looks for them"
)


def freeze(forward: Call, prologue: Call | None, told: metadata.Frozen, flat: Sequence[Tensor], name: str) -> Frozen:
    """`forward` as a function of the other inputs, where `flat` are the first; no prologue is one without results."""
    count_writes()
    tensors = [flat[i] for i in told.inputs]
    unseen = 0
    devices = {tensor.device for tensor in tensors if tensor.device.type != HOST}

    def hold() -> list[Tensor] | None:
        if any(tensor.device.type == HOST and tensor.is_shared() for tensor in tensors):
            return None
        with torch.inference_mode(False), torch.no_grad():
            return [counter_of(tensor) for tensor in tensors]

    def compute(seen: bool, alone: bool) -> tuple[Tensor, ...]:
        nonlocal unseen
        unseen = 0 if seen else unseen + alone
        if unseen == _OFTEN:
            announce(_UNSEEN.format(name=name), key=f"freezing {name}")
        with torch.inference_mode(False), torch.no_grad():
            values = list(prologue(list(tensors))) if prologue is not None else []
            packed = [_pack(item, (tensors + values)[item.source]) for item in told.packed]
        for device in devices:  # other streams than this one's will read them
            torch.get_device_module(device).synchronize(device)
        return (*values[: told.results], *packed)

    with torch.inference_mode(False):
        samples = torch.zeros(3), torch.zeros(3)
    return Frozen(forward, tuple(map(_watched, tensors)), hold, compute, samples)


def _pack(item: metadata.Packed, source: Tensor) -> Tensor:
    weight = source.as_strided(item.size, item.stride, source.storage_offset() + item.offset)
    packed: Tensor = getattr(getattr(torch.ops, item.library), item.operator)(weight, *item.args)
    return packed


def _watched(tensor: Tensor) -> tuple[Tensor, int, bool]:
    """A tensor, how many bytes of it are looked at, and whether all of them are compared."""
    size = span(tensor.shape, tensor.stride()) * tensor.itemsize if tensor.device.type == HOST else 0
    return tensor, size, size <= _WHOLE and not isinstance(tensor, torch.nn.Parameter)
