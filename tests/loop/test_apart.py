"""Why two nests are not one kernel: what is told is what decided."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stator.base.device import Device
from stator.loop import fusion
from stator.loop.apart import Apart
from stator.loop.deps import analyse
from stator.loop.expr import op
from stator.loop.fusion import Refusal
from stator.loop.nest import Buffer, Program
from stator.targets import typical
from tests.loop.build import Build, get, number, softmax, total
from tests.loop.random_programs import make

CPU = typical("cpu")
Made = tuple[Program, str, str]


def apart(program: Program, device: Device = CPU) -> Apart:
    return Apart(fusion.decide(analyse(program), device))


def plus(b: Build, x: Buffer, value: float = 1.0) -> Buffer:
    return b.pointwise(x.size, lambda *a: op("add", get(x, *a), number(value)))


def chain() -> Made:
    b = Build()
    one = plus(b, b.input(8, 16))
    two = plus(b, one, 2.0)
    return b.program(one, two), one.name, two.name


def sizes() -> Made:
    b = Build()
    one = plus(b, b.input(8, 16))
    rows = b.reduction([8], [16], lambda i, j: total(get(one, i, j)))
    two = b.scan([], 8, lambda j: op("add", get(rows, j), get(rows, j)))
    return b.program(one, rows, two), one.name, two.name


def transposed() -> Made:
    b = Build()
    x = b.input(64, 64)
    one = b.reduction([64], [64], lambda i, j: total(get(x, i, j)))
    two = b.reduction([64], [64], lambda i, j: total(op("mul", get(x, j, i), get(one, j))))
    return b.program(one, two), one.name, two.name


def between() -> Made:
    b = Build()
    one = plus(b, b.input(8, 16))
    called = b.extern("aten.mm", [one], [8, 16])
    two = b.pointwise([8, 16], lambda i, j: op("add", get(one, i, j), get(called, i, j)))
    return b.program(one, two), one.name, two.name


def columns() -> Made:
    b = Build()
    x = b.input(512, 8)
    one = plus(b, x)
    two = b.reduction([8], [512], lambda j, i: total(get(one, i, j)))
    return b.program(one, two), one.name, two.name


def windows() -> Made:
    b = Build()
    x = b.input(12, 64)
    moved = [lambda i, j, d=d: get(x, i.index + d, j) for d in range(4)]
    pairs = [lambda i, j, d=d: op("add", moved[d](i, j), moved[d + 1](i, j)) for d in (0, 2)]
    one = b.pointwise([8, 64], lambda i, j: op("add", pairs[0](i, j), pairs[1](i, j)))
    two = b.reduction([64], [8], lambda j, i: total(get(one, i, j)))
    return b.program(one, two), one.name, two.name


def strangers() -> Made:
    b = Build()
    one, two = plus(b, b.input(8, 16)), plus(b, b.input(8, 16), 2.0)
    return b.program(one, two), one.name, two.name


#: What is made, the refusal, what the text says besides, and a device that refuses for it.
REFUSED: list[tuple[Callable[[], Made], Refusal, str, Device]] = [
    (sizes, Refusal.SIZES, "([8 | 16] and [1 | 8])", CPU),
    (transposed, Refusal.MAPS, "b0 is made at i0 for [64 | 64] and read at j0 for [64 | 64]", CPU),
    (between, Refusal.BETWEEN, ": b1", CPU),
    (columns, Refusal.FEW_COLUMNS, "([512×8] and [8 | 512])", CPU),
    (windows, Refusal.WINDOWS, "([8×64] and [64 | 8])", replace(CPU, cores=1, cache_bytes=1 << 10)),
    (chain, Refusal.OPERATIONS, "(3 and 3, of 4)", replace(CPU, max_nodes=4)),
    (chain, Refusal.BUFFERS, "(2)", replace(CPU, max_params=2)),
]


@pytest.mark.parametrize(("making", "refusal", "detail", "device"), REFUSED, ids=[row[1].name for row in REFUSED])
def test_the_check_that_decided_is_told(
    making: Callable[[], Made], refusal: Refusal, detail: str, device: Device
) -> None:
    program, one, two = making()
    told = apart(program, device).why(one, two)
    assert refusal.value in told and detail in told, told
    if device is not CPU:
        assert "are in one kernel" in apart(program).why(one, two), "it is the limit that keeps them apart"


def test_what_is_one_kernel_says_what_was_saved() -> None:
    program, one, two = chain()
    assert apart(program).why(one, two) == f"{one} and {two} are in one kernel: 2 nests, joined for 512 bytes"
    assert list(apart(program).lines()) == []


def test_what_shares_nothing_was_not_tried() -> None:
    program, one, two = strangers()
    assert apart(program).why(one, two).startswith(f"{one} and {two} were not tried, as they share no buffer; if they")


def test_calls_are_no_loops() -> None:
    program, one, _ = between()
    assert "b1 is what a call of aten.mm gives" in apart(program).why("b1", one)


@settings(max_examples=100)
@given(st.integers(0, 2**32))
def test_every_pair_has_an_answer(seed: int) -> None:
    """A line for each two groups that were tried, and the same verdict for each pair that is asked for."""
    plan = fusion.decide(analyse(make(seed)), CPU)
    found = Apart(plan)
    tried = {frozenset((plan.decision.group[pair.one], plan.decision.group[pair.other])) for pair in plan.tried}
    assert len(list(found.lines())) == sum(len(groups) == 2 for groups in tried)
    for one, first in found.nodes.items():
        for two, second in found.nodes.items():
            nests = first in plan.facts.nests and second in plan.facts.nests
            same = plan.decision.group[first] is plan.decision.group[second]
            assert (" are in one kernel: " in found.why(one, two)) == (nests and same)


def test_nothing_is_told_before_it_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scheduling must not take longer for it: what tells of a plan keeps it and no more."""
    b = Build()
    plan = fusion.decide(analyse(b.program(softmax(b, b.input(2, 5)))), CPU)
    monkeypatch.setattr(fusion.Decision, "refusal", None)
    assert Apart(plan).plan is plan
