"""`as_strided` counts from the start of the memory, also where its operand was written alone, as a part of another."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import stator
from stator.base.errors import CaptureError

Part = Callable[[Tensor], Tensor]
PARTS: dict[str, Part] = {
    "rows": lambda base: base[1:3],
    "a row": lambda base: base[2],
    "columns": lambda base: base[:, 1:3],
    "transposed": lambda base: base.t(),
    "split": lambda base: base.split(2)[1],
    "unbound": lambda base: base.unbind(1)[2],
    "every second": lambda base: base[::2],
    "diagonal": lambda base: base.diagonal(1),
    "flat": lambda base: base.view(-1),
    "columns transposed": lambda base: base.t().chunk(2)[1],
}
PARTS_OF_PARTS: tuple[Part, ...] = (lambda part: part, lambda part: part[-1], lambda part: part[:1])
PLACES = [
    ((2,), (1,), 1),
    ((2,), (1,), None),
    ((2, 2), (5, 2), 0),
    ((3,), (7,), 3),
    ((4,), (6,), 2),
    ((2,), (3,), 20),
]
WRITES: tuple[Callable[[Tensor], Tensor], ...] = (
    lambda part: part.mul_(3),
    lambda part: part.fill_(2.0),
    lambda part: part.copy_(torch.ones_like(part) * 7),
    lambda part: part.add_(part.flip(0)),
)


@pytest.mark.parametrize("dynamic", [False, True], ids=["sizes known", "sizes symbolic"])
@pytest.mark.parametrize("name", PARTS)
def test_elements_around_a_part_that_was_written(name: str, dynamic: bool) -> None:
    compared = 0
    for number, (inner, place) in enumerate(itertools.product(PARTS_OF_PARTS, PLACES)):
        write, given = WRITES[number % len(WRITES)], number % 3 == 0

        def program(
            x: Tensor, inner: Part = inner, place: Any = place, write: Part = write, given: bool = given
        ) -> tuple[Tensor, ...]:
            base = x if given else x * 2
            write(part := PARTS[name](base))
            return inner(part).as_strided(*place).clone(), base.clone(), part.clone()

        x = torch.arange(24.0).view(4, 6) + 1
        try:
            wanted = program(x.clone())
        except (RuntimeError, IndexError):  # not in the memory
            continue
        found = stator.compile(program, fullgraph=True, dynamic=dynamic)(x.clone())
        assert all(map(torch.equal, found, wanted)), (number, found, wanted)
        compared += 1
    assert compared >= 12


@pytest.mark.parametrize("dynamic", [False, True], ids=["sizes known", "sizes symbolic"])
@pytest.mark.parametrize("name", PARTS)
def test_copies_and_scatters_count_as_far(name: str, dynamic: bool) -> None:
    """A scatter into a part that was written is refused, as the value has memory of its own."""
    compared = refused = 0
    for write, (size, stride, start), scatters in itertools.product(WRITES[:2], PLACES[:4], (False, True)):

        def program(
            x: Tensor, write: Part = write, place: Any = (size, stride, start), scatters: bool = scatters
        ) -> Tensor:
            write(part := PARTS[name](x * 2))
            if scatters:
                return torch.as_strided_scatter(part, torch.full(place[0], -5.0), *place)
            return torch.as_strided_copy(part, *place)

        x = torch.arange(24.0).view(4, 6) + 1
        try:
            wanted = program(x.clone())
        except RuntimeError:  # not in the memory
            continue
        try:
            found = stator.compile(program, fullgraph=True, dynamic=dynamic)(x.clone())
        except CaptureError as error:
            assert scatters and "it counts through memory of a tensor that was written to" in str(error)
            refused += 1
        else:
            assert torch.equal(found, wanted), (size, stride, start, found, wanted)
            compared += 1
    assert compared and (refused or name not in ("rows", "a row", "split"))
