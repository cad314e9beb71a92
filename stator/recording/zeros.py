"""Zeros that recorded backward graphs read: the gradients of results that the program did not differentiate.

A backward graph is compiled for all tangents. Where none comes (a model's logits beside its loss), it reads zeros, and
a recording wants to find them where they were: made anew at each call they would be filled, and copied, as large as
they are. So all graphs of a stream read one memory of zeros, as large as the largest. The device maps it from a small
piece, again and again, but for graphs of which a recording copies a tangent that is zeros at some calls: a copy takes
one kind of memory only. Nobody may write it: a tangent that a plan writes is not lent, and a gradient that lies in it
becomes the caller's own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from weakref import WeakValueDictionary

import torch

from stator import targets
from stator._native import storage_of
from stator.plan import ir
from stator.plan.places import written_inputs
from stator.recording.policy import Policy
from stator.sizes.strides import span
from stator.targets import Recorder

#: Geometry of a tensor: size, strides, dtype.
Form = tuple[tuple[int, ...], tuple[int, ...], torch.dtype]
#: How many tensors a graph keeps, for its streams and sizes.
_MOST = 256


class _Zeros:
    """The memory."""

    __slots__ = ("__weakref__", "memory")

    def __init__(self, memory: torch.Tensor) -> None:
        self.memory = memory

    def tensor(self, form: Form) -> torch.Tensor:
        """A tensor in it."""
        size, stride, dtype = form
        with torch.inference_mode(False), torch.no_grad():
            made = torch.empty(0, dtype=dtype, device=self.memory.device)
            return made.set_(self.memory.untyped_storage(), 0, size, stride)


#: By recorder, device, stream and whether it is mapped; what is written on a stream is there for what is queued later.
_zeros: WeakValueDictionary[tuple[int, int, int, bool], _Zeros] = WeakValueDictionary()


class Lender:
    """Lends zeros to one backward graph, whose inputs from number `first` on are tangents."""

    __slots__ = ("_held", "_number", "_policies", "_recorder", "_storages", "_stream", "_tensors", "_unlent")

    def __init__(self, plan: ir.Plan, first: int, recorder: Recorder, policies: Sequence[Policy]) -> None:
        toolchain = targets.toolchain(plan.device)
        self._recorder, self._number = recorder, toolchain.number(plan.device)
        self._stream: Callable[[int], int] = toolchain.current_stream
        self._unlent = {number - first for number in written_inputs(plan)}
        self._policies = policies
        self._held: dict[tuple[int, bool], _Zeros] = {}
        self._tensors: dict[tuple[int, bool, Form], torch.Tensor] = {}
        #: The storages that were lent.
        self._storages: set[int] = set()

    def lend(self, wanted: Mapping[int, Form]) -> dict[int, torch.Tensor]:
        """Zeros for tangents by their numbers, but for those that are not lent.

        While somebody captures the stream none is: what they replay may outlive the graph.
        """
        if not wanted or self._recorder.is_capturing(self._number):
            return {}
        kind = self._stream(self._number), not any(policy.mixed for policy in self._policies)
        lent = {number: form for number, form in wanted.items() if number not in self._unlent}
        unknown = [form for form in lent.values() if (*kind, form) not in self._tensors]
        if unknown:
            zeros = self._memory(*kind, max(span(size, stride) * dtype.itemsize for size, stride, dtype in unknown))
            if len(self._tensors) + len(unknown) > _MOST:
                self._tensors.clear()
                unknown = list(lent.values())
            self._tensors.update({(*kind, form): zeros.tensor(form) for form in unknown})
        return {number: self._tensors[*kind, form] for number, form in lent.items()}

    def _memory(self, stream: int, mapped: bool, nbytes: int) -> _Zeros:
        key = id(self._recorder), self._number, stream, mapped
        found = _zeros.get(key)
        if found is None or found.memory.numel() < nbytes:
            with torch.inference_mode(False):
                found = _zeros[key] = _Zeros(self._recorder.zeros(self._number, nbytes, mapped))
        self._held[stream, mapped] = found
        self._storages.add(storage_of(found.memory))
        return found

    def keep(self, gradients: Sequence[Any]) -> Sequence[Any]:
        """The gradients; those that lie in zeros that were lent are memory of the caller's own."""
        if not self._storages:
            return gradients
        return [item.clone() if self._has_lent(item) else item for item in gradients]

    def _has_lent(self, item: Any) -> bool:
        return isinstance(item, torch.Tensor) and storage_of(item) in self._storages
