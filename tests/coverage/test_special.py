"""The database with special values among its numbers: a fixed slice, and that odd numbers are there."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from stator.coverage import database
from stator.coverage.judge import Stator, judge
from stator.coverage.special import ODD, spoil

#: Entries whose gradient multiplies or divides what it masks; those that were wrong are among them.
CHOSEN = ("cumprod", "prod", "max.reduction_no_dim", "amax", "logcumsumexp", "nn.functional.normalize", "var")


@pytest.mark.parametrize("name", CHOSEN)
@pytest.mark.filterwarnings("ignore")
def test_values_and_gradients_at_special_values(name: str) -> None:
    (sample,) = database.samples(name, "float32", 1)
    for turn in (0, 1, 2):
        judged = judge(Stator(), name, spoil(sample, turn))
        assert judged.verdict != "fails", judged.why


@pytest.mark.parametrize("turn", range(len(ODD)))
def test_odd_numbers_are_put_among_the_others(turn: int) -> None:
    (sample,) = database.samples("nn.functional.pairwise_distance", "float32", 1)
    before, after = ([leaf for leaf in s.leaves if isinstance(leaf, Tensor)] for s in (sample, spoil(sample, turn)))
    for old, new in zip(before, after, strict=True):
        same = (old == new) | (old.isnan() & new.isnan())
        assert (~same).any()
        assert {str(x) for x in new[~same].tolist()} <= {str(torch.tensor(x).item()) for x in ODD[turn]}
        assert new.requires_grad == old.requires_grad
