"""What a call keeps for backward where its results do not share one fate: looked at, freed and kept result by result.

PyTorch's autograd node saves tensors for all results at once: unpacking raises if any was written to, and the first
backward frees all. In eager each result has nodes of its own. So where that differs (`Metadata.looks` and `fates`) a
`Record` of the call has the version counters, is asked for what the differentiated results need, and keeps the rest.
Invariant: a gradient is computed from what the call had, or raises what eager raises.
Neighbours: `runtime.py` makes records and asks; `kept.py` finds the facts, `partition.py` sees to what is saved.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch

from stator.aot.metadata import Look, Metadata

Tensor = torch.Tensor

_WRITTEN = (
    "one of the variables needed for gradient computation has been modified by an inplace operation: [{kind} {size}], "
    "which is {what} of a compiled function, is at version {now}; expected version {then} instead."
)
_FREED = (
    "Trying to backward through the graph a second time (or directly access saved tensors after they have already been "
    "freed). Saved intermediate values of the graph are freed when you call .backward() or autograd.grad(). Specify "
    "retain_graph=True if you need to backward through the graph a second time or if you need to access saved tensors "
    "after calling backward."
)


def needs_record(metadata: Metadata) -> bool:
    """Whether PyTorch's way of saving is not eager's for this function; where neither keeps a thing, it is."""
    if not (metadata.saved or metadata.fates):
        return bool(metadata.looks)
    return bool(metadata.looks) or not metadata.one_fate or not metadata.saved


class Record:
    """One call: what it was given and gave, as far as backward looks at it, and what is left once some is freed.

    Where backward is a graph and no more, `csrc/backward.c` looks at it, and says in it that all is freed.
    """

    __slots__ = ("freed", "left", "seen")

    def __init__(self, seen: list[tuple[Tensor, int] | None]) -> None:
        #: (a tensor that shares the version counter, its version after the call) for each of `looks`; None for what
        #: hooks have packed, which is not looked at, and for an inference tensor, which has no counter (`csrc/plan.c`).
        self.seen = seen
        #: Values that have been differentiated without `retain_graph`.
        self.freed: frozenset[int] = frozenset()
        #: What is left of the saved tensors then.
        self.left: list[Tensor | _Gone] | None = None

    def settle(self) -> None:
        """The versions are those of now: the runtime has written to inputs after the graph."""
        self.seen = [None if seen is None else (seen[0], seen[0]._version) for seen in self.seen]

    def take(self, ctx: Any, metadata: Metadata, tangents: Sequence[Tensor | None]) -> list[Tensor]:
        """The saved tensors for a backward of the values that have tangents; zeros for those that it does not read."""
        given = {i for i, tangent in enumerate(tangents) if tangent is not None}
        fates = dict(metadata.fates)
        if any(not self.freed.isdisjoint(fates.get(i, ())) for i in given):
            raise RuntimeError(_FREED)
        written = self._look(metadata.looks, given)
        saved = self._saved(ctx, any((place.source, place.index) in written for place in metadata.saved))
        for k, place in enumerate(metadata.saved):
            tensor = saved[k]
            if isinstance(tensor, _Gone):
                saved[k] = tensor.zeros()
            elif (place.source, place.index) in written:  # no gradient of now reads it, or `_look` had raised
                saved[k] = _Gone(tensor).zeros()
        if not torch._C._autograd._get_current_graph_task_keep_graph():
            self._free(metadata, fates, given, saved)
        return saved

    def _look(self, looks: Sequence[Look], given: set[int]) -> set[tuple[str, int]]:
        """What has been written to since the call; raises if a gradient of now reads it in eager."""
        written = set()
        for look, seen in zip(looks, self.seen, strict=True):
            if seen is None or seen[0]._version == seen[1]:
                continue
            if not given.isdisjoint(look.values):
                tensor, then = seen
                what = f"{look.source} {look.index}".replace("value", "result")
                facts = {"kind": tensor.type(), "size": list(tensor.shape), "what": what}
                raise RuntimeError(_WRITTEN.format(**facts, now=tensor._version, then=then))
            written.add((look.source, look.index))
        return written

    def _saved(self, ctx: Any, written: bool) -> list[Any]:
        """All that was saved, unpacked; what was written to and does not matter as it is now."""
        if self.left is not None:
            return list(self.left)
        return [item.data for item in ctx._raw_saved_tensors] if written else list(ctx.saved_tensors)

    def _free(self, metadata: Metadata, fates: dict[int, Any], given: set[int], saved: Sequence[Any]) -> None:
        """Keep what the values need that can still be differentiated."""
        self.freed |= given
        later = {i for i in metadata.differentiable if self.freed.isdisjoint(fates.get(i, ()))}
        looks = zip(metadata.looks, self.seen, strict=True)
        self.seen = [None if later.isdisjoint(look.values) else seen for look, seen in looks]
        # Without its history: that of a result leads back to this record.
        places = zip(metadata.saved, saved, strict=False)
        self.left = [
            _Gone(tensor) if later.isdisjoint(place.needed) else tensor.detach() if place.source == "value" else tensor
            for place, tensor in places
        ]


class _Gone:
    """What is known of a saved tensor that was let go of."""

    __slots__ = ("make",)

    def __init__(self, tensor: Tensor) -> None:
        size, stride, dtype, device = tensor.size(), tensor.stride(), tensor.dtype, tensor.device
        self.make: Callable[[], Tensor] = lambda: torch.empty_strided(size, stride, dtype=dtype, device=device).zero_()

    def zeros(self) -> Tensor:
        """Zeros in its place: positions among them are in range, and what becomes of the others is masked."""
        return self.make()


def counter_of(tensor: Tensor) -> Tensor:
    """A tensor without memory whose version counter is that of another."""
    counter = tensor.detach()
    counter.data = _nothing(tensor.dtype, tensor.device)
    return counter


@cache
def _nothing(dtype: torch.dtype, device: torch.device) -> Tensor:
    with torch.inference_mode(False):
        return torch.empty(0, dtype=dtype, device=device)
