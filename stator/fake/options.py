"""Options that eager refuses whatever the tensors are, and that neither shape functions nor formulas of ours look at.

A check gets an operator's arguments by name, defaults left out, and says what eager says, or None. It holds for the
operator in place and with `out=` too. Neighbours: `refusals.py` asks here before it asks kernels, and keeps the
answers; `execute.py` checks dims.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stator.fake.tensor import FakeTensor

Check = Callable[[dict[str, Any]], str | None]


def refused(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Exception | None:
    """What the operator raises for its options, if it does."""
    check = CHECKS.get(func._opname.removesuffix("_"))
    if check is None:
        return None
    named = {parameter.name: arg for parameter, arg in zip(func._schema.arguments, args, strict=False)}
    found = check(named | kwargs)
    return None if found is None else RuntimeError(found)


def _clamp(given: dict[str, Any]) -> str | None:
    if given.get("min") is None and given.get("max") is None:
        return "torch.clamp: At least one of 'min' or 'max' must not be None"
    return None


def _rounding(given: dict[str, Any]) -> str | None:
    mode = given.get("rounding_mode")
    if mode in (None, "trunc", "floor"):
        return None
    return f"div expected rounding_mode to be one of None, 'trunc', or 'floor' but found '{mode}'"


def _fill(given: dict[str, Any]) -> str | None:
    value = given.get("value")
    if isinstance(value, FakeTensor) and value.dim():
        return f"fill_ only supports 0-dimension value tensor but got tensor with {value.dim()} dimensions."
    return None


def _masked_fill(given: dict[str, Any]) -> str | None:
    value = given.get("value")
    if isinstance(value, FakeTensor) and value.dim():
        return (
            f"masked_fill_ only supports a 0-dimensional value tensor, but got tensor with {value.dim()} dimension(s)."
        )
    return None


def _smooth_l1(given: dict[str, Any]) -> str | None:
    beta = given.get("beta", 1.0)
    known = isinstance(beta, float | int)  # of a symbolic one nothing is asked
    return "smooth_l1_loss does not support negative values for beta." if known and beta < 0 else None


def _huber(given: dict[str, Any]) -> str | None:
    delta = given.get("delta", 1.0)
    known = isinstance(delta, float | int)
    return "huber_loss does not support non-positive values for delta." if known and delta <= 0 else None


def _random(given: dict[str, Any]) -> str | None:
    low, high = given.get("from", 0), given.get("to")
    if type(low) is int and type(high) is int and low >= high:
        return f"random_ expects 'from' to be less than 'to', but got from={low} >= to={high}"
    return None


def _searchsorted(given: dict[str, Any]) -> str | None:
    side = given.get("side")
    if side in (None, "left", "right"):
        return None
    return f"torch.searchsorted(): side can only be 'left' or 'right' but got {side}"


def _bucketize(given: dict[str, Any]) -> str | None:
    boundaries = given.get("boundaries")
    if isinstance(boundaries, FakeTensor) and boundaries.dim() != 1:
        return f"boundaries tensor must be 1 dimension, but got dim({boundaries.dim()})"
    return None


#: Operator → its check.
CHECKS: dict[str, Check] = {
    "clamp": _clamp,
    "div": _rounding,
    "divide": _rounding,
    "fill": _fill,
    "huber_loss": _huber,
    "masked_fill": _masked_fill,
    "random": _random,
    "smooth_l1_loss": _smooth_l1,
    "searchsorted": _searchsorted,
    "bucketize": _bucketize,
}
