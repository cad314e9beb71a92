"""ATen overloads by name, and tables keyed by overload.

An engine defines its table empty; the files that know the operators fill it with `register`, while they are imported.
Names that the installed PyTorch does not have are skipped, so that one source serves several releases.

Invariant: an overload is registered at most once in a table. Neighbours: `execute.RULES`, `aot/tracer.py`,
`prims/table.py`, `prims/random.py` and `lowering/table.py` define tables.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch._ops import OpOverload

Function = TypeVar("Function", bound=Callable[..., Any])


def overload(name: str) -> OpOverload | None:
    """The ATen overload called `name`, as in "add.Tensor" or "gelu" (for "gelu.default"); None if there is none."""
    packet_name, _, variant = name.partition(".")
    packet = getattr(torch.ops.aten, packet_name, None)
    return getattr(packet, variant or "default", None) if packet is not None else None


class Respelling:
    """What an overload is: one call of another, with the arguments that `spell` gives.

    It is a function of the overload's arguments, as others in a table are; who records calls has no need to make it.
    """

    __slots__ = ("spell",)

    def __init__(self, spell: Callable[..., tuple[Any, ...]]) -> None:
        #: The arguments → the other overload, and its arguments.
        self.spell = spell

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        func, *others = self.spell(*args, **kwargs)
        return func(*others)


class Table(dict[OpOverload, Callable[..., Any]]):
    """Overload → function. `entry` says what a function is, for error messages."""

    def __init__(self, entry: str) -> None:
        super().__init__()
        self.entry = entry

    def register(self, *targets: OpOverload | str) -> Callable[[Function], Function]:
        """A decorator that enters the function for these overloads; ValueError if one has a function already."""

        def enter(function: Function) -> Function:
            for target in targets:
                op = overload(target) if isinstance(target, str) else target
                if op is None:
                    continue
                if op in self:
                    raise ValueError(f"{op} has a {self.entry} already: {self[op]}")
                self[op] = function
            return function

        return enter
