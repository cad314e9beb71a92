"""Operators on lists of tensors (`aten._foreach_add_.List`, as optimizers call them), as one operator an element.

    _foreach_add_([a, b], [c, d], alpha=2)  -->  add_(a, c, alpha=2); add_(b, d, alpha=2)

Fusion puts the elements' kernels together again where that is worth it. Neighbours: `tracer.py` runs what comes out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

PREFIX = "_foreach_"

#: Operators whose form for one tensor has another name, and how it is called.
RENAMED: dict[str, Callable[..., Any]] = {
    "norm": lambda x, order=2, dtype=None: torch.linalg.vector_norm(x, order, dtype=dtype),
    "maximum": torch.clamp_min,
    "minimum": torch.clamp_max,
    "maximum_": torch.clamp_min_,
    "minimum_": torch.clamp_max_,
}

#: Operators of three tensors, whose number is a keyword when there is one tensor.
WITH_VALUE = {"addcdiv", "addcdiv_", "addcmul", "addcmul_"}


def is_foreach(func: Any) -> bool:
    """Whether it works on lists, an element at a time."""
    return bool(func.namespace == "aten") and str(func.overloadpacket.__name__).startswith(PREFIX)


def run_foreach(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The results as a list; None for an operator in place."""
    name = func.overloadpacket.__name__.removeprefix(PREFIX)
    single = RENAMED.get(name) or getattr(torch.ops.aten, name)
    if name in WITH_VALUE and len(args) == 4:
        *args, kwargs["value"] = args  # type: ignore[assignment]
        if isinstance(kwargs["value"], torch.Tensor):
            kwargs["value"] = kwargs["value"].unbind(0)
    count = next(len(arg) for arg in args if isinstance(arg, list | tuple))  # the first may be a number
    results = [
        single(*[element(arg, index) for arg in args], **{key: element(arg, index) for key, arg in kwargs.items()})
        for index in range(count)
    ]
    if not name.endswith("_"):
        return results
    for tensor in args[0]:  # autograd, above, counts writes to lists only where it records them
        torch.autograd.graph.increment_version(tensor)
    return None


def element(arg: Any, index: int) -> Any:
    """What one element of the list gets of an argument."""
    return arg[index] if isinstance(arg, list | tuple) else arg
