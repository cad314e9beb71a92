"""What eager keeps for backward, result by result: where a write to a tensor makes a gradient fail, and where not.

Autograd saves tensors in the nodes of its graph. To differentiate a result is to run the nodes that it leads back to:
each looks whether what it saved has been written to since, and lets go of it. So for each tensor that a caller can
write to, an input or a result, there are the results whose backward looks at it; and two results share their fate
where a node that saves something belongs to both. All of that is bits, one for each differentiated result.
Neighbours: `trace.py` shows what is saved while it runs; `partition.py` saves nothing else of the caller's tensors;
`keeping.py` looks at them in backward.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import fx

from stator.fake import FakeTensor
from stator.fake.mode import is_custom
from stator.graphs.lineage import count_together

#: Where the nodes of arithmetic have their operands, which may be numbers.
_OPERANDS = ("_saved_self", "_saved_other")

#: Parameters of more bytes raise if they are written to before backward, whether eager keeps them or not.
_LARGE = 1 << 16

#: The number of the nodes that add gradients to leaves: they run before all others.
_OF_LEAVES = (1 << 64) - 1


class Kept:
    """The tensors that autograd has saved while a program was traced."""

    def __init__(self) -> None:
        #: With each tensor the number of the node that saved it.
        self.saved: list[tuple[torch.Tensor, int]] = []
        #: What is not seen there, by node: hooks are shown no numbers, and the forward of a custom function may have
        #: made other nodes before it was over.
        self.others: list[tuple[Any, torch.Tensor]] = []

    def see(self, tensor: torch.Tensor) -> None:
        """Autograd saves this tensor: for the node that it made last."""
        self.saved.append((tensor, torch._C._autograd._get_sequence_nr() - 1))

    def ask(self, functions: Iterable[Any]) -> None:
        """Ask these nodes for the rest of what they saved, before backward lets go of it."""
        for function in functions:
            if is_custom(function):
                self.others += [(function, tensor) for tensor in function.saved_tensors if tensor is not None]
                continue
            for name in _OPERANDS:
                operand = getattr(function, name, None)
                if isinstance(operand, torch.Tensor) and not isinstance(operand, FakeTensor):
                    self.others.append((function, operand))

    def by(self, runs: Mapping[Any, int], calls: Sequence[int]) -> list[tuple[torch.Tensor, int]]:
        """Each tensor saved in some node, and the results that lead to the node.

        `runs`: the nodes, and these results, as bits. `calls`: the number of the first node that each call made.
        """
        numbers = [(function._sequence_nr(), found) for function, found in runs.items() if not is_custom(function)]
        bits = {number: found for number, found in numbers if number != _OF_LEAVES}
        order = sorted(bits)
        found = []
        for tensor, number in self.saved:
            owner = number if number in bits else _owner(number, order, calls)
            if owner is not None:
                found.append((tensor, bits[owner]))
        return found + [(tensor, runs[function]) for function, tensor in self.others]


def _owner(number: int, order: Sequence[int], calls: Sequence[int]) -> int | None:
    """The node of the same call that stands for one that no result leads to.

    A write in place saves what was there before as a copy, whose node comes after its own; where it is one to a view,
    its own is hidden in another that comes later.
    """
    call = bisect_right(calls, number)
    at = bisect_right(order, number)
    for place in (at - 1, at):
        if 0 <= place < len(order) and bisect_right(calls, order[place]) == call:
            return order[place]
    return None


def looked_at(
    kept: Iterable[tuple[torch.Tensor, int]], mine: Iterable[tuple[fx.Node, FakeTensor]]
) -> dict[fx.Node, int]:
    """For each of the caller's tensors, the results whose backward looks whether it was written to."""
    places: dict[int, list[tuple[fx.Node, FakeTensor]]] = {}
    for node, fake in mine:
        places.setdefault(id(fake.handle.cell), []).append((node, fake))
    found: dict[fx.Node, int] = {}
    for tensor, bits in kept:
        if not isinstance(tensor, FakeTensor) or tensor.handle is None:
            continue
        for node, fake in places.get(id(tensor.handle.cell), ()):
            if found.get(node, 0) | bits != found.get(node, 0) and _one_counter(tensor, fake):
                found[node] = found.get(node, 0) | bits
    return found


def is_large(tensor: torch.Tensor) -> bool:
    """Whether it is a parameter that is not copied, although eager might not look whether it was written to."""
    return isinstance(tensor, torch.nn.Parameter) and tensor.nbytes > _LARGE


def only_in_regions(node: fx.Node) -> bool:
    """Whether nothing but checkpointed parts of the program read it, which do so again in backward, as it is then."""
    readers = [user for user in node.users if user.meta.get("phase") == "forward"]
    return bool(readers) and all("recompute" in user.meta for user in readers)


def _one_counter(tensor: FakeTensor, fake: FakeTensor) -> bool:
    """Whether a write to the one is a write to the other for autograd."""
    return tensor is fake or count_together(tensor, fake)


def fates(kept: Iterable[tuple[torch.Tensor, int]], count: int) -> list[int]:
    """For each of so many results the results that cannot be differentiated once it was, without `retain_graph`."""
    found = [0] * count
    for bits in {bits for _, bits in kept}:
        for k in range(count):
            if bits >> k & 1:
                found[k] |= bits
    return found
