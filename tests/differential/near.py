"""What fast numerics give for what is wanted where it is near what wide types give.

Neighbour: `python -m tests.differential` judges by it, of each program that differs from eager.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from stator.coverage.compare import EPSILON


def wanted_where_near(found: list[Any], exact: list[list[Any]], wanted: list[Any]) -> list[Any]:
    """What was found, but what is wanted at elements that are near exact ones, or between them."""
    alike = [values for values in exact if len(values) == len(found) == len(wanted)]
    return [
        wanted_if_near(a, [values[i] for values in alike], wanted[i]) for i, a in enumerate(found) if alike
    ] or found


def wanted_if_near(found: Any, exact: list[Any], wanted: Any) -> Any:
    """Near is up to a few roundings of the type.

    Where what is wanted is infinite or no number, and exact ones are numbers, a half type overflows on the way: then it
    is as far from these as they are apart. Or the half type overflows in what was found too, if not in as many places:
    infinities of both signs come to no number, one of them to an infinity. Where exact ones are beyond the type, too,
    unless eager has the infinity that all of these are.
    """
    if not all(isinstance(x, Tensor) and _comparable(x, found) for x in (found, wanted)):
        return found
    if found.is_complex():
        parts = [_in_parts(x) for x in exact if isinstance(x, Tensor) and x.is_complex()]
        return torch.view_as_complex(wanted_if_near(_in_parts(found), parts, _in_parts(wanted)).contiguous())
    others = [b.detach() for b in exact if isinstance(b, Tensor) and _comparable(b, found)]
    if not others or not found.is_floating_point():
        return found
    each = torch.stack(others)
    mine = found.detach().expand_as(each)  # torch 2.11 broadcasts none of no dims
    near = torch.isclose(mine, each, rtol=4 * EPSILON.get(found.dtype, 0.0), atol=0.0, equal_nan=True).any(0)
    low = torch.where(each.isfinite(), each, math.inf).amin(0)
    high = torch.where(each.isfinite(), each, -math.inf).amax(0)
    between = (low - (high - low) <= found) & (found <= high + (high - low))
    overflowing = ~found.isfinite() & ~each.isnan().all(0) & (each != wanted.detach()).any(0)
    return torch.where(near | ~wanted.isfinite() & (between | overflowing), wanted, found)


def _in_parts(tensor: Tensor) -> Tensor:
    return torch.view_as_real(tensor.detach().resolve_conj())


def _comparable(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and one.dtype == other.dtype
