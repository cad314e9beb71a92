"""Results and inputs over several calls: each result is eager's, and stays so whatever is called after it."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from stator.base.errors import RecordingWarning, WithoutEffect
from tests.recording.conftest import Machine
from tests.recording.programs import Count, Kept, close, run

# ---- what a call gives -----------------------------------------------------------------------------------------------


def test_results_are_kept(machine: Machine, recordings: Count) -> None:
    w = machine.randn(8, 8)
    run(machine, lambda x: (torch.relu(x @ w).sum(-1), x * 2), lambda: [machine.randn(4, 8)])
    assert recordings() >= 2


def test_nothing_is_recorded_again_where_nothing_is_kept(machine: Machine, recordings: Count) -> None:
    compiled = machine.compile(lambda x: (x * 2).sin())
    x = machine.randn(32)
    for _ in range(20):
        close(compiled(x), (x * 2).sin())
    assert recordings() == 1


def test_results_take_nothing_of_what_earlier_calls_have_left(machine: Machine) -> None:
    """Small results in pieces of large memory would keep all of it."""
    compiled = machine.compile(lambda x: tuple([x * i for i in range(24)]))
    x = machine.randn(1 << 19)
    left = [machine.randn(5 << 20) for _ in range(24)]
    close(compiled(x)[3], x * 3)
    del left
    for _ in range(3):
        close(compiled(x)[3], x * 3)
    if machine.fake is not None:
        assert machine.fake.released == machine.fake.captures == 1
    else:
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        assert torch.cuda.memory_reserved() - torch.cuda.memory_allocated() < 100 << 20


def test_the_last_result_is_kept(machine: Machine, recordings: Count) -> None:
    compiled = machine.compile(lambda x: (x * 2).sin())
    y = None
    for _ in range(12):
        x = machine.randn(32)
        before = None if y is None else y.clone()
        z = compiled(x)
        if y is not None:
            close(y, before)
        y = z
        close(y, (x * 2).sin())
    assert recordings() <= 3


def test_a_view_of_a_result_is_kept(machine: Machine) -> None:
    compiled = machine.compile(lambda x: x.cumsum(0) + 1)
    kept = Kept()
    for i in range(10):
        x = machine.randn(6, 5)
        kept.take(compiled(x)[i % 6], (x.cumsum(0) + 1)[i % 6])
    kept.check()


def test_a_few_of_many_results_are_kept(machine: Machine) -> None:
    compiled = machine.compile(lambda x: (x + 1, x * 3, x.exp()))
    kept = Kept()
    for i in range(24):
        x = machine.randn(50)
        expected = (x + 1, x * 3, x.exp())
        results = compiled(x)
        close(results, expected)
        if i % 3 == 0:
            kept.take(results[i % 2], expected[i % 2])
    kept.check()


def test_large_results_are_kept(machine: Machine) -> None:
    run(machine, lambda x: (x * 2, x.sum()), lambda: [machine.randn(600, 600)], calls=8)


def test_results_are_written_to(machine: Machine) -> None:
    compiled = machine.compile(lambda x: (x * 2, x + 1))
    for _ in range(8):
        x = machine.randn(20)
        y, z = compiled(x)
        y.zero_()
        z[3:5] = 7
        close(y, torch.zeros_like(x))
        close(z[:3], (x + 1)[:3])


def test_a_result_twice(machine: Machine) -> None:
    def fn(x: Tensor) -> tuple[Tensor, Tensor]:
        y = x.sin()
        return y, y

    compiled = machine.compile(fn)
    for _ in range(5):
        x = machine.randn(7)
        one, other = compiled(x)
        assert one is other
        close(one, x.sin())


def test_results_share_memory(machine: Machine) -> None:
    def fn(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y = x * 2
        return y, y[1:], y.t()

    run(machine, fn, lambda: [machine.randn(5, 4)])
    y, tail, turned = machine.compile(fn)(machine.randn(5, 4))
    y.zero_()
    assert not tail.any() and not turned.any()


def test_results_that_share_memory_go_on_sharing_it(machine: Machine) -> None:
    def fn(x: Tensor) -> tuple[Tensor, Tensor]:
        y = x * 2
        return y, y[1:]

    compiled = machine.compile(fn)
    kept = []
    for _ in range(8):
        x = machine.randn(5, 4)
        y, tail = compiled(x)
        close(tail, x[1:] * 2)
        y.fill_(3)
        assert bool((tail == 3).all())
        kept.append((y, tail))


def test_results_are_inputs_and_views_of_them(machine: Machine) -> None:
    def fn(x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        return x, x.view(-1), x.t(), x + 1

    compiled = machine.compile(fn)
    for _ in range(6):
        x = machine.randn(3, 4)
        same, flat, turned, more = compiled(x)
        close((same, flat, turned, more), fn(x))
        x.zero_()
        assert not same.any() and not flat.any() and not turned.any() and bool(more.any())


def test_a_result_that_is_resized(machine: Machine) -> None:
    compiled = machine.compile(lambda x: x * 2)
    for i in range(8):
        x = machine.randn(40)
        y = compiled(x)
        close(y, x * 2)
        if i % 2:
            y.untyped_storage().resize_(0)
        else:
            y.resize_(4000).zero_()


def test_a_storage_that_python_has_seen(machine: Machine) -> None:
    compiled = machine.compile(lambda x: x * 2)
    kept = Kept()
    for _ in range(8):
        x = machine.randn(40)
        y = compiled(x)
        assert y.untyped_storage().nbytes() == 160
        kept.take(y, x * 2)
        if len(kept.pairs) > 2:
            kept.pairs.pop(0)
        kept.check()


def test_empty_tensors(machine: Machine) -> None:
    run(machine, lambda x, y: (x * 2, y + 1, x.sum()), lambda: [machine.randn(0, 4), machine.randn(3)])


# ---- what a call takes -----------------------------------------------------------------------------------------------


def test_inputs_are_one_tensor(machine: Machine) -> None:
    compiled = machine.compile(lambda x, y: x * 2 + y)
    for _ in range(5):
        x = machine.randn(9)
        close(compiled(x, x), x * 3)
    for _ in range(5):
        x, y = machine.randn(9), machine.randn(9)
        close(compiled(x, y), x * 2 + y)


def test_inputs_overlap(machine: Machine) -> None:
    compiled = machine.compile(lambda x, y: x * 2 + y)
    for _ in range(6):
        memory = machine.randn(12)
        close(compiled(memory[:9], memory[3:]), memory[:9] * 2 + memory[3:])


def test_inputs_overlap_and_are_written_to(machine: Machine) -> None:
    def fn(x: Tensor, y: Tensor) -> Tensor:
        x.add_(1)
        return x + y

    compiled = machine.compile(fn)
    for _ in range(6):
        memory = machine.randn(12)
        twin = memory.clone()
        close(compiled(memory[:9], memory[3:]), fn(twin[:9], twin[3:]))
        close(memory, twin)


def test_inputs_move_with_offsets(machine: Machine) -> None:
    compiled = machine.compile(lambda x: (x * 2).tanh() + x)
    memory = machine.randn(64)
    for start in (0, 1, 2, 3, 5, 8, 1, 0):
        x = memory[start : start + 17]
        close(compiled(x), (x * 2).tanh() + x)


def test_inputs_with_holes_and_repetitions(machine: Machine) -> None:
    compiled = machine.compile(lambda x, y: x.sum(0) + y)
    for _ in range(6):
        x, y = machine.randn(6, 8)[::2, ::2], machine.randn(1).expand(4)
        close(compiled(x, y), x.sum(0) + y)


def test_a_result_is_the_next_input(machine: Machine, recordings: Count) -> None:
    def fn(y: Tensor) -> Tensor:
        return (y * 0.9).sin() + 0.1

    compiled = machine.compile(fn)
    y = z = machine.randn(30)
    for _ in range(20):
        y, z = compiled(y), fn(z)
        close(y, z)
    assert recordings() <= 8


def test_chained_functions(machine: Machine) -> None:
    def f(x: Tensor) -> Tensor:
        return x.sin() + 1

    def g(x: Tensor) -> Tensor:
        return (x * 2).cos()

    first, second = machine.compile(f), machine.compile(g)
    kept = Kept()
    for i in range(10):
        x = machine.randn(6, 6)
        middle = first(x)
        kept.take(second(second(middle)), g(g(f(x))))
        if i % 3 == 0:
            kept.take(middle, f(x))
    kept.check()


def test_writes_to_inputs_that_move(machine: Machine) -> None:
    def fn(x: Tensor, y: Tensor) -> Tensor:
        x.mul_(2)
        x[0] = y.sum()
        return x + 1

    compiled = machine.compile(fn)
    versions = set()
    for _ in range(7):
        x, y = machine.randn(8), machine.randn(3)
        twin = x.clone()
        close(compiled(x, y), fn(twin, y))
        close(x, twin)
        versions.add(x._version)
    assert len(versions) == 1 and 0 not in versions  # whether a call is recorded, replayed or neither


def test_writes_to_an_input_that_stays(machine: Machine) -> None:
    def fn(total: Tensor, x: Tensor) -> Tensor:
        total.add_(x.sum())
        return total * 2

    compiled = machine.compile(fn)
    total, twin = torch.zeros(3, device=machine.device), torch.zeros(3, device=machine.device)
    kept = Kept()
    for _ in range(8):
        x = machine.randn(5)
        kept.take(compiled(total, x), fn(twin, x))
        close(total, twin)
    kept.check()


def test_writes_to_views_of_inputs(machine: Machine) -> None:
    def fn(x: Tensor) -> Tensor:
        x[1:3].add_(5)
        x.t()[0].zero_()
        return x.sum(0)

    compiled = machine.compile(fn)
    for _ in range(6):
        x = machine.randn(5, 4)
        twin = x.clone()
        close(compiled(x), fn(twin))
        close(x, twin)


def test_numbers(machine: Machine) -> None:
    compiled = machine.compile(lambda x, n: x * n + n, dynamic=True)
    for n in (2, 3, 5, 2, 3, 5, 2, 3, 5, 2, 3):
        x = machine.randn(6)
        close(compiled(x, n), x * n + n)


def test_alternating_sizes(machine: Machine) -> None:
    def fn(x: Tensor) -> tuple[Tensor, Tensor]:
        return x.softmax(-1), (x * 2).sum()

    for dynamic in (False, True):
        compiled = machine.compile(fn, dynamic=dynamic)
        kept = Kept()
        for rows in (3, 5, 9) * 5:
            x = machine.randn(rows, 4)
            kept.take(compiled(x), fn(x))
        kept.check()


def test_more_sizes_than_are_recorded(machine: Machine) -> None:
    compiled = machine.compile(lambda x: x * 2, strict=False, dynamic=True, options={"cudagraph_sizes": 3})
    sizes = [4, 5, 6, 7, 8, 9] * 3
    with pytest.warns(RecordingWarning, match="cudagraph_sizes") as caught:
        for rows in sizes:
            x = machine.randn(rows)
            close(compiled(x), x * 2)
    assert len(caught) == 1
    strict = machine.compile(lambda x: x * 3, dynamic=True, options={"cudagraph_sizes": 1})
    strict(machine.randn(4))
    with pytest.raises(WithoutEffect, match="geometries"):
        strict(machine.randn(5))
