"""Operators on values that the graph makes itself: a fixed slice of the database, and what was wrong once."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

import stator
from stator.coverage import database, record
from stator.coverage.derived import derivable, derive, ways
from stator.coverage.judge import Dynamic, Stator, judge

#: A fixed fortieth of the database.
RECORDED = record.read(Path(__file__).with_name("recorded.txt").read_text(encoding="utf-8"))[1]
CHOSEN = [name for name, dtype in RECORDED if dtype == "int64" and zlib.crc32(name.encode()) % 40 == 0]


@pytest.mark.parametrize("name", CHOSEN)
@pytest.mark.filterwarnings("ignore")
def test_an_entry_on_values_of_the_graph(name: str) -> None:
    for sample in database.samples(name, "int64", 1):
        for turn, engine in ((0, Stator()), (1, Dynamic()), (2, Stator())):
            judged = judge(engine, name, derive(sample, turn))
            assert judged.verdict != "fails", judged.why


TENSORS = [
    torch.tensor([[3, -2, 7], [0, 1, 5]]), torch.tensor([0, 1, 1, 0]), torch.tensor(4), torch.tensor([9, 9, 9]),
    torch.tensor([0, 200, 255], dtype=torch.uint8), torch.tensor([-(2**63), 2**63 - 1]), torch.tensor([True, False]),
    torch.tensor([0.0, 3.0, -7.0]), torch.tensor([], dtype=torch.int64), torch.tensor([-(2**31), 2**31 - 1]),
    torch.arange(100) * 7,
]  # fmt: skip


@pytest.mark.parametrize("t", TENSORS, ids=lambda t: str(t.tolist())[:30])
def test_every_way_makes_the_same_values(t: Tensor) -> None:
    found = ways(t)
    assert len(found) > 1 or t.numel() == 0
    for way in found:
        made = way(t)
        assert made.dtype is t.dtype and torch.equal(made, t)


def test_a_derived_sample_is_the_same_call() -> None:
    sample = next(filter(derivable, database.samples("gather", "float32", 0)))
    for turn in range(4):
        given = sample.fresh()
        made = derive(sample, turn)
        assert torch.equal(sample.function(*given.args, **given.kwargs), made.function(*given.args, **given.kwargs))


#: Positions of the least and greatest of integers that provably fit in 32 bits.
POSITIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "argmin of a comparison": lambda x: (x > 0).long().argmin(),
    "argmin of rows": lambda x: (x > 0).long().argmin(1),
    "min of a clamp": lambda x: x.long().clamp(0, 3).min(0)[1],
    "argmin of buckets": lambda x: torch.bucketize(x, torch.tensor([-1.0, 0.0, 1.0])).argmin(1),
    "argmax of columns": lambda x: (x * 3).long().clamp(-2, 3).argmax(0),
    "argmax of negative numbers": lambda x: (x.long() % 5 - 9).argmax(1),
    "argmax near the lowest int": lambda x: (x.long().clamp(0, 4) - 2**31).argmax(),
    "argmin near the greatest int": lambda x: (2**31 - 1 - x.long().clamp(0, 4)).argmin(0),
    "least position": lambda x: torch.arange(x.shape[1]).expand_as(x).argmin(1),
    "all are the lowest": lambda x: (x.long().clamp(0, 0) - 2**31).argmax(1),
    "median of a mask": lambda x: (x > 0).long().median(0)[1],
    "sorted positions": lambda x: x.argsort(1).argmin(1),
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", POSITIONS)
def test_positions_of_narrow_integers(name: str, dynamic: bool) -> None:
    function = POSITIONS[name]
    compiled = stator.compile(function, fullgraph=True, dynamic=dynamic, options={"strict": True})
    for rows, columns in ((5, 4), (2, 37), (33, 16)):
        x = torch.randn(rows, columns) * 2
        assert torch.equal(compiled(x), function(x))
