"""How far from eager's a result may be, as eager's other runs tell: each element, and all where many move."""

from __future__ import annotations

import pytest
import torch

from stator.coverage.compare import Seen, Spread, differences

COUNT, AWAY = 1280, 1e-4


def other(run: int, moving: int) -> Seen:
    """A run in which other elements than in the one before are `AWAY` from 0."""
    result = torch.zeros(COUNT)
    result[run * moving : (run + 1) * moving] = AWAY
    return Seen(results=[result])


@pytest.mark.parametrize(("moving", "off", "alike"), [(10, 0.9, True), (10, 3.0, False), (1, 0.9, False)])
def test_where_many_elements_move_all_may(moving: int, off: float, alike: bool) -> None:
    """As far as the middle one of them does: a rounding decides there, and no run shows all of that."""
    found = torch.zeros(COUNT)
    found[-1] = off * AWAY
    spread = Spread(Seen(results=[torch.zeros(COUNT)]), [other(run, moving) for run in range(5)])
    assert (not differences(Seen(results=[found]), spread, layout=False)) == alike


def test_an_element_that_moves_may_be_further_off() -> None:
    found = torch.zeros(COUNT)
    found[0] = 9 * AWAY
    spread = Spread(Seen(results=[torch.zeros(COUNT)]), [other(run, 10) for run in range(5)])
    assert not differences(Seen(results=[found]), spread, layout=False)
