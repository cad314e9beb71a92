"""ATen operators that a wrapper calls, bound once by name.

`into("aten.mm.out")` is called with the operator's arguments and `out=`; `returning("aten.topk.default")` gives always
a tuple of the results that are tensors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def _overload(target: str) -> Any:
    import torch  # the room itself does not need torch

    namespace, name, overload = target.split(".")
    return getattr(getattr(getattr(torch.ops, namespace), name), overload)


def into(target: str) -> Callable[..., Any]:
    """An operator that writes its result into `out`. Torch's own binding costs half of the overload's call."""
    import torch  # the room itself does not need torch

    namespace, name, overload = target.split(".")
    direct = getattr(torch, name, None) if (namespace, overload) == ("aten", "out") else None
    return direct if direct is not None else _overload(target)._op


def returning(target: str) -> Callable[..., tuple[Any, ...]]:
    """An operator that makes its results."""
    import torch  # the room itself does not need torch

    overload = _overload(target)
    operator = overload._op
    returns = overload._schema.returns
    if len(returns) == 1 and str(returns[0].type) == "Tensor":
        return lambda *args, **kwargs: (operator(*args, **kwargs),)

    def call(*args: Any, **kwargs: Any) -> tuple[Any, ...]:
        results = operator(*args, **kwargs)
        return tuple([r for r in results if isinstance(r, torch.Tensor)])

    return call
