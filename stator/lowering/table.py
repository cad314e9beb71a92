"""The table of lowerings, empty here; the family files fill it.

A lowering is a function of (context, out, *args, **kwargs) for one overload: `out` is the `Spec` of
the result (a tuple of them for several results), tensors among the arguments are `Tensorish`. It
gives a `Tensorish`, or a tuple of them. An overload without a lowering becomes an extern call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from torch._ops import OpOverload

from stator.prims.set import overload

Function = TypeVar("Function", bound=Callable[..., Any])

#: Overload → lowering. Filled by importing the families.
LOWERINGS: dict[OpOverload, Callable[..., Any]] = {}


def lowers(*targets: OpOverload | str) -> Callable[[Function], Function]:
    """Register a lowering for overloads; a name that this torch lacks is skipped."""

    def register(function: Function) -> Function:
        for target in targets:
            op = overload(target) if isinstance(target, str) else target
            if op is None:
                continue
            if op in LOWERINGS:
                raise ValueError(f"{op} has a lowering already")
            LOWERINGS[op] = function
        return function

    return register
