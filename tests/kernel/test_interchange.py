"""Reductions down columns, some rows at a time: that it computes the same, as exactly, and when it is done."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stator.base.dtypes import ITEMSIZE
from stator.kernel import decisions, interchange
from stator.kernel.decisions import LoopPlan, decide
from stator.kernel.evaluate import run
from stator.kernel.ir import Flush, Function, walk
from stator.kernel.strategies import vectors
from stator.loop.evaluate import Memory
from stator.loop.expr import Expr, load, op, reduce
from stator.loop.index import Axis
from stator.loop.kernel import Kernel, Param, Store, kernel
from stator.loop.scalar import Number
from stator.targets import typical
from tests.kernel.programs import checked, compare

#: One core whose caches hold nothing.
FAR = replace(typical("cpu"), cores=1, cache_bytes=0, vector_bytes=16)


@pytest.fixture(autouse=True)
def short_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of rows are long from 16 columns on, so that tests need no more."""
    monkeypatch.setattr(decisions, "SHORT_ROW", 16)


def columns(rows: tuple[int, ...], width: int, *kinds: str, dtype: str = "f32") -> Kernel:
    """Reductions of these kinds down columns, over axes of these sizes; a number of each column is multiplied by."""
    x, reduced = Axis("x0", width), tuple([Axis(f"r{i}", size) for i, size in enumerate(rows)])
    row, numel = Axis("x0", width).index, width
    for axis in reversed(reduced):
        row, numel = row + axis.index * numel, numel * axis.size  # type: ignore[operator]
    value: Expr = op("mul", load("p0", row, dtype), load("p1", x.index, dtype))
    found = [reduce(kind, value) for kind in kinds]
    scaled = [op("mul", one, load("p1", x.index, dtype)) if one.dtype == dtype else one for one in found]
    stores = [Store(f"p{2 + i}", x.index, one, "outer") for i, one in enumerate(scaled)]
    params = [Param("p0", dtype, "in", numel), Param("p1", dtype, "in", width)]
    params += [Param(store.buffer, store.value.dtype, "out", width) for store in stores]
    return kernel((x,), reduced, tuple(stores), tuple(params))


def planned(made: Kernel) -> tuple[LoopPlan, Function]:
    plan = decide(made, FAR)
    return plan, checked(vectors(plan, "k"))


def results(function: Function, given: dict[str, list[Number]]) -> dict[str, list[Number]]:
    memories = {}
    for param in function.params:
        assert isinstance(param.numel, int)
        memories[param.name] = memory = Memory(bytearray(ITEMSIZE[param.dtype] * param.numel), 0, param.dtype)
        for i, value in enumerate(given.get(param.name, ())):
            memory.write(i, value)
    assert run(function, memories) == 0
    outs = [param for param in function.params if param.role == "out"]
    return {p.name: [memories[p.name].read(i) for i in range(p.numel)] for p in outs}  # type: ignore[arg-type]


@pytest.mark.parametrize("rows", [(33,), (100,), (5, 7), (3, 50), (50, 3), (2, 20, 2), (40, 20)], ids=str)
@pytest.mark.parametrize("width", [32, 45])
def test_it_computes_the_same(rows: tuple[int, ...], width: int) -> None:
    made = columns(rows, width, "sum", "max")
    plan, function = planned(made)
    assert plan.interchanged >= 32 and "some rows of" in plan.reason(FAR)
    apart = checked(vectors(replace_nothing(made), "k"))
    assert any(isinstance(s, Flush) for s in walk(apart.body)) > any(isinstance(s, Flush) for s in walk(function.body))
    numel = made.params[0].numel
    assert isinstance(numel, int)
    given: dict[str, list[Number]] = {"p0": [(i * 37 % 61 - 30) / 4 for i in range(numel)]}
    given["p1"] = [(i % 5 - 2) / 2 for i in range(width)]
    assert results(function, given) == results(apart, given)  # all of it is exact


def replace_nothing(made: Kernel) -> LoopPlan:
    """The plan where caches hold everything: as ever."""
    plan = decide(made, replace(FAR, cache_bytes=1 << 40))
    assert not plan.interchanged
    return plan


def test_what_rounding_loses_is_kept() -> None:
    """As in sums that are flushed: half a unit in the last place, where a plain sum is off by hundreds."""
    rows, width = 4096, 16
    _, function = planned(columns((rows,), width, "sum"))
    term = [1.0 + i / 8192 for i in range(rows)]
    given: dict[str, list[Number]] = {"p0": [t for t in term for _ in range(width)], "p1": [1.0] * width}
    assert all(abs(found - sum(term)) <= 2.0**-12 for found in results(function, given)["p2"])


def test_infinities_stay() -> None:
    _, function = planned(columns((40,), 32, "sum"))
    given: dict[str, list[Number]] = {"p0": [float("inf") if i == 37 else 1.0 for i in range(40 * 32)]}
    given["p1"] = [1.0] * 32
    found = results(function, given)["p2"]
    assert found[37 - 32] == float("inf") and found[0] == 40.0


@pytest.mark.parametrize("seed", range(300, 330))
def test_random_kernels(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """All reductions down columns that it can be done to, however short they are."""
    for module in (decisions, interchange):
        monkeypatch.setattr(module, "PART", 2)
    monkeypatch.setattr(decisions, "SHORT_ROW", 1)
    compare(seed, lambda kernel, name: vectors(decide(kernel, FAR), name))


@pytest.mark.parametrize(
    ("made", "device"),
    [
        (columns((32,), 64, "sum"), FAR),  # a short sum
        (columns((100,), 12, "sum"), FAR),  # a short part of a row
        (columns((100,), 24, "sum"), replace(FAR, cores=2)),  # of each core
        (columns((100,), 64, "argmax"), FAR),
        (columns((100,), 64, "sum"), typical("cpu")),  # caches hold it
    ],
    ids=["rows", "columns", "cores", "positions", "near"],
)
def test_when_it_does_not_pay(made: Kernel, device: object) -> None:
    assert not decide(made, device).interchanged  # type: ignore[arg-type]
