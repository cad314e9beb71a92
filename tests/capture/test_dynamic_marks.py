"""What users say about sizes: stator's marks, torch's marks, ranges, and marks that cannot be kept."""

from __future__ import annotations

from typing import NamedTuple

import pytest
import torch

import stator
from stator.base.errors import InvalidArgument, MarkedSizeFixed, MarkedSizesDiffer
from tests.capture.changing_sizes import Calls, rand


def double(x: torch.Tensor) -> torch.Tensor:
    return x * 2


class Range(NamedTuple):
    """What torch keeps of a range."""

    dim: int
    min: int
    max: int


def marked(*sizes: int, **marks: object) -> torch.Tensor:
    x = rand(*sizes)
    for name, value in marks.items():
        setattr(x, name, value)
    return x


def test_a_marked_dim_is_symbolic_at_once() -> None:
    x = rand(6, 3)
    stator.mark_dynamic(x, 0)
    calls = Calls(double).all([(x,), *[(rand(n, 3),) for n in (4, 5, 6)]])
    assert calls.compiles == 1


def test_a_range_is_guarded() -> None:
    x = rand(6, 3)
    stator.mark_dynamic(x, 0, min=4, max=9)
    calls = Calls(double)
    calls(x)
    assert {"L['x'].size()[0] >= 4", "L['x'].size()[0] <= 9"} <= set(calls.conditions)
    calls.all([(rand(n, 3),) for n in (4, 9)])
    assert calls.compiles == 1
    calls(rand(10, 3))
    assert calls.compiles == 2


def test_0_and_1_where_the_range_has_them() -> None:
    x = rand(1, 3)
    stator.mark_dynamic(x, 0, min=0)
    calls = Calls(double).all([(x,), (rand(0, 3),), (rand(5, 3),)])
    assert calls.compiles <= 3


def test_marked_dims_share_nothing() -> None:
    x = rand(6, 6)
    stator.mark_dynamic(x, (0, 1))
    assert Calls(double).all([(x,), (rand(4, 5),), (rand(7, 3),)]).compiles == 1


def join(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Of two batches that need not be the same."""
    return torch.cat([x * 2, y.repeat(2, 1)[: x.size(0)] + 1])


def batches(first: int, second: int, **marks: object) -> tuple[torch.Tensor, torch.Tensor]:
    given = rand(first, 3), rand(second, 3)
    for x in given:
        stator.mark_dynamic(x, 0, **marks)  # type: ignore[arg-type]
    return given


def test_sizes_of_one_name_are_one() -> None:
    equal = "L['y'].size()[0] == L['x'].size()[0]"
    named = Calls(join).all([batches(n, n, name="batch") for n in (6, 4, 7)])
    assert named.compiles == 1 and equal in named.conditions
    apart = Calls(join).all([batches(n, n) for n in (6, 4, 7)])
    assert apart.compiles == 1 and equal not in apart.conditions


def test_sizes_of_one_tensor_may_have_one_name() -> None:
    x = rand(6, 6)
    stator.mark_dynamic(x, (0, 1), name="side")
    calls = Calls(lambda x: x + x.t()).all([(x,), (rand(4, 4),), (rand(7, 7),)])
    assert calls.compiles == 1


def test_calls_that_are_not_marked_may_differ_where_a_name_was() -> None:
    calls = Calls(join).all([batches(6, 6, name="batch"), (rand(4, 3), rand(5, 3)), (rand(7, 3), rand(9, 3))])
    assert calls.compiles == 2


@pytest.mark.parametrize("second", [4, 1])
def test_sizes_of_one_name_that_differ_are_named(second: int) -> None:
    where = r"L\['x'\].size\(\)\[0\] and L\['y'\].size\(\)\[0\]"
    with pytest.raises(MarkedSizesDiffer, match=rf"{where} are both marked as 'batch', but are 6 and {second}"):
        given = rand(6, 3), rand(second, 3)
        for x in given:
            stator.mark_dynamic(x, 0, min=1, name="batch")
        stator.compile(join, backend="eager")(*given)


def test_sizes_of_one_name_have_one_range() -> None:
    x, y = rand(6, 3), rand(6, 3)
    stator.mark_dynamic(x, 0, name="batch")
    stator.mark_dynamic(y, 0, max=9, name="batch")
    with pytest.raises(MarkedSizesDiffer, match="have two ranges"):
        stator.compile(join, backend="eager")(x, y)


def test_static() -> None:
    def static(n: int) -> torch.Tensor:
        x = rand(n, 3)
        stator.mark_static(x)
        return x

    assert Calls(double).all([(static(n),) for n in (4, 5, 6)]).compiles == 3


def test_maybe() -> None:
    def maybe(n: int) -> torch.Tensor:
        x = rand(n, 3)
        stator.maybe_mark_dynamic(x, 0)
        return x

    assert Calls(double).all([(maybe(n),) for n in (4, 5, 6)]).compiles == 1
    needs = Calls(lambda x: x + len([0] * x.size(0))).all([(maybe(n),) for n in (4, 5)])
    assert needs.compiles == 2


def test_torchs_marks_are_read() -> None:
    calls = Calls(double)
    calls(marked(6, 3, _dynamo_dynamic_indices={0}, _dynamo_dynamic_range={Range(0, 4, 9)}))
    assert "L['x'].size()[0] <= 9" in calls.conditions
    assert Calls(double).all([(marked(n, 3, _dynamo_weak_dynamic_indices={0}),) for n in (4, 5)]).compiles == 1
    assert Calls(double).all([(marked(n, 3, _dynamo_static_indices={0}),) for n in (4, 5, 6)]).compiles == 3


def test_a_mark_that_cannot_be_kept_names_the_line() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        n = x.size(0)
        return x + len([0] * n)

    x = rand(6, 3)
    stator.mark_dynamic(x, 0)
    with pytest.raises(MarkedSizeFixed, match=r"L\['x'\].size\(\)\[0\] is marked dynamic, but can only be 6") as caught:
        stator.compile(f, backend="eager")(x)
    assert caught.value.location is not None
    assert caught.value.location.file == __file__
    assert caught.value.location.line == f.__code__.co_firstlineno + 2


def test_a_mark_is_kept_where_branches_leave_one_number() -> None:
    """The program takes other numbers too, by other branches: each is a version."""

    def f(x: torch.Tensor) -> torch.Tensor:
        n, total = x.size(0), x.sum(0)
        while n > 1:
            total = total * 2 if n % 2 else total + 1
            n = n // 2
        return total

    x = rand(6, 3)
    stator.mark_dynamic(x, 0)
    compiled = stator.compile(f, fullgraph=True)
    torch.testing.assert_close(compiled(x), f(x))
    for n in (7, 12):
        torch.testing.assert_close(compiled(y := rand(n, 3)), f(y))


def test_never_wins() -> None:
    x = rand(6, 3)
    stator.mark_dynamic(x, 0)
    assert Calls(double, dynamic=False).all([(x,), (rand(5, 3),)]).compiles == 2


def test_dims_are_checked() -> None:
    x = rand(2, 3)
    for mark in (stator.mark_dynamic, stator.maybe_mark_dynamic, stator.mark_static):
        with pytest.raises(InvalidArgument, match=mark.__name__):
            mark(x, 2)
    stator.mark_dynamic(x, -1)
    with pytest.raises(InvalidArgument):
        stator.mark_dynamic(x, 0, min=5)
