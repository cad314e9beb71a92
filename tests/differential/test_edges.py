"""What `edges.py` generates, compiled: in one graph for a dtype and layout, every bit as in eager."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import pytest
import torch
from torch import Tensor

import stator
from tests.differential.edges import FLOATS, INTEGERS, LENGTHS, conversions, layouts, operations

Work = Sequence[tuple[str, Callable[..., Tensor], tuple[Tensor, ...]]]


def bits(x: Tensor) -> Tensor:
    """The same where equal, NaN being one value."""
    if not x.is_floating_point():
        return x
    return torch.where(x.isnan(), torch.full_like(x, torch.nan), x).view(torch.uint8)


def differing(work: Work, dynamic: bool = False) -> Iterable[str]:
    """What comes out differently, all of it compiled at once for each layout."""
    functions = [function for _, function, _ in work]
    compiled = stator.compile(
        lambda given: [function(*args) for function, args in zip(functions, given, strict=True)],
        fullgraph=True,
        dynamic=dynamic,
        options={"strict": True, "cache": False},
    )
    for parts in zip(*[list(layouts(tensors)) for _, _, tensors in work], strict=True):
        given = [args for _, args in parts]
        results = compiled(given)
        for (name, function, _), (layout, args), got in zip(work, parts, results, strict=True):
            want = function(*args)
            if got.dtype is not want.dtype or not torch.equal(bits(got), bits(want)):
                yield f"{name}, {layout}: {[a.tolist() for a in args]} give {got.tolist()}, in eager {want.tolist()}"


@pytest.mark.parametrize("source", [*FLOATS, *INTEGERS], ids=str)
def test_conversions(source: torch.dtype) -> None:
    assert list(differing(conversions(source), dynamic=True)) == []


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_operators_of_integers(dtype: torch.dtype) -> None:
    assert list(differing(list(operations(dtype)), dynamic=True)) == []


def test_every_way_is_taken() -> None:
    assert {1, 3} < set(LENGTHS) and any(length % 16 and length > 16 for length in LENGTHS)
