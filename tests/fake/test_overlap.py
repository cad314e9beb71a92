"""Operands that share memory with what is written: what eager leaves to the order of its loops is not captured."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch

import stator
from stator.base.errors import CaptureError, FallbackWarning
from stator.fake import FakeMode, overlap
from tests.differential import overlaps

STRICT = {"cache": False, "strict": True}
SQUARE = torch.arange(16.0).view(4, 4)


def _masked(x: Any) -> Any:
    flags = x > 3
    flags.masked_fill_(flags[..., 0], True)
    return flags


#: Programs of which eager's kernel reads what it has written already.
BY_ORDER: dict[str, Callable[[Any], Any]] = {
    "columns added to the next": lambda x: x[:, 1:].add_(x[:, :-1]),
    "columns moved": lambda x: x[:, 1:].copy_(x[:, :-1]),
    "columns assigned": lambda x: (x.__setitem__((slice(None), slice(1, None)), x[:, :-1]), x)[1],
    "a mask that is a part": _masked,
    "a product of itself": lambda x: x.addmm_(x, x),
    "a product into an operand": lambda x: torch.mm(x, x, out=x),
    "a factor that is an element": lambda x: x[:, ::2].mul_(x[0, 0]),
    "bytes of its own": lambda x: x.view(torch.int32)[:, 1:].add_(x[:, :-1].view(torch.int32)),
}


@pytest.mark.parametrize("name", BY_ORDER)
def test_what_depends_on_the_order_is_not_captured(name: str) -> None:
    function = BY_ORDER[name]
    with pytest.raises(CaptureError, match="order of its loops"):
        stator.compile(function, fullgraph=True, options=STRICT)(SQUARE.clone())
    x, y = SQUARE.clone(), SQUARE.clone()
    with pytest.warns(FallbackWarning, match="breaks its graph"):
        got = stator.compile(function, options=STRICT)(x)
    assert torch.equal(got, function(y))
    assert torch.equal(x, y)


#: Programs whose operands share memory, and read nothing that was written.
FREE: dict[str, Callable[[Any], Any]] = {
    "itself": lambda x: x.mul_(x),
    "itself as another view": lambda x: x[:, ::2].mul_(x[:, 0::2]),
    "halves": lambda x: x[:, :2].add_(x[:, 2:4]),
    "every second column": lambda x: x[:, ::2].add_(x[:, 1::2]),
    "a diagonal and a column": lambda x: x.diagonal()[1:].add_(x[1:, 0]),
    "a part of its bytes": lambda x: x[:, :2].add_(x.view(torch.int16)[:, 4:6]),
    "a number that is read before": lambda x: x.fill_(x[2, 2]),
    "a result in the place of an operand": lambda x: torch.add(x, 1, out=x),
    "nothing": lambda x: x[:0].add_(x[1:1]),
}


@pytest.mark.parametrize("name", FREE)
@pytest.mark.parametrize("dynamic", [False, True])
def test_what_does_not_is(name: str, dynamic: bool) -> None:
    function = FREE[name]
    compiled = stator.compile(function, fullgraph=True, options=STRICT, dynamic=dynamic)
    for size in (4, 6, 8):
        x = torch.arange(float(size * size)).view(size, size)
        y = x.clone()
        assert torch.equal(compiled(x), function(y))
        assert torch.equal(x, y)


def test_halves_of_any_size_are_one_program() -> None:
    def swap(x: Any) -> Any:
        half = x.shape[1] // 2
        x[:, :half].add_(x[:, half:])
        return x

    compiled = stator.compile(swap, fullgraph=True, dynamic=True, options={**STRICT, "recompile_limit": 1})
    for rows, columns in ((4, 6), (5, 8), (7, 10)):
        x = torch.randn(rows, columns)
        torch.testing.assert_close(compiled(x.clone()), swap(x.clone()))


def test_places_are_compared_exactly() -> None:
    rng = random.Random(7)
    seen = set()
    mode = FakeMode()
    for _ in range(400):
        memory = mode.from_real(torch.zeros(400))
        with mode:
            parts = [
                torch.as_strided(
                    memory,
                    [rng.randint(0, 3) for _ in range(rank)],
                    [rng.choice((0, 1, 2, 3, 4, 7, 12)) for _ in range(rank)],
                    rng.randint(0, 12),
                )
                for rank in (rng.randint(0, 3), rng.randint(0, 3))
            ]
        places = [overlap._positions(overlap._place(part)) for part in parts]
        found = overlap.are_disjoint(*parts)
        assert found == places[0].isdisjoint(places[1])
        seen.add(found)
    assert seen == {True, False}


@pytest.mark.parametrize("name", ["add", "where", "addmv", "tril", "lerp"])
def test_a_part_of_the_database(name: str) -> None:
    found = [(call.label, *overlaps.verdict(call)) for call in overlaps.calls(name, "float32")]
    assert [item for item in found if item[-1]] == []
    assert {kind for _, kind, _ in found} - {"as if apart"}
