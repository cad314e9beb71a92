"""Programs over several calls: each result is eager's, and stays so whatever is called after it."""

from __future__ import annotations

import copy
import gc
import pickle
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import stator
from stator.base.errors import RecordingWarning, WithoutEffect
from tests.recording.conftest import Machine

Count = Callable[[], int]


def close(found: Any, expected: Any) -> None:
    torch.testing.assert_close(found, expected, atol=2e-5, rtol=2e-4)


class Kept:
    """What calls gave, with what it has to be for good."""

    def __init__(self) -> None:
        self.pairs: list[tuple[Any, Any]] = []

    def take(self, found: Any, expected: Any) -> None:
        close(found, expected)
        self.pairs.append((found, copy.deepcopy(detached(expected))))

    def check(self) -> None:
        for found, expected in self.pairs:
            close(detached(found), expected)


def detached(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().clone()
    return type(value)([detached(item) for item in value]) if isinstance(value, tuple | list) else value


def run(
    machine: Machine, fn: Callable[..., Any], make: Callable[[], Sequence[Any]], calls: int = 6, **arguments: Any
) -> None:
    """Calls with fresh inputs, of which all results are kept; then as many of which none is."""
    compiled = machine.compile(fn, **arguments)
    kept = Kept()
    for _ in range(calls):
        inputs = make()
        kept.take(compiled(*inputs), fn(*inputs))
    kept.check()
    for _ in range(calls):
        inputs = make()
        close(compiled(*inputs), fn(*inputs))
    kept.check()


def mlp(machine: Machine, *, seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 8)).to(machine.device)


def twins(machine: Machine, make: Callable[[], nn.Module]) -> tuple[nn.Module, nn.Module]:
    """Two equal modules."""
    one = make().to(machine.device)
    return one, copy.deepcopy(one)


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
    for _ in range(7):
        x, y = machine.randn(8), machine.randn(3)
        twin = x.clone()
        version = x._version
        close(compiled(x, y), fn(twin, y))
        close(x, twin)
        assert x._version > version


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


# ---- modules, gradients and optimizers -------------------------------------------------------------------------------


def test_inference_of_a_module(machine: Machine, recordings: Count) -> None:
    model = mlp(machine).eval()
    compiled = machine.compile(model)
    kept = Kept()
    for mode in (torch.no_grad, torch.inference_mode) * 4:
        x = machine.randn(5, 16)
        with mode():
            kept.take(compiled(x), model(x))
    kept.check()
    assert recordings()


def steps(model: nn.Module, call: Callable[..., Any], batches: Sequence[Tensor], **facts: Any) -> list[Tensor]:
    """Losses of some training steps."""
    optimizer = facts.get("optimizer", torch.optim.SGD)(model.parameters(), lr=0.05)
    losses = []
    for x in batches:
        optimizer.zero_grad(set_to_none=facts.get("to_none", True))
        loss = call(x).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss)
    return losses


@pytest.mark.parametrize("to_none", [True, False])
@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.AdamW])
def test_training(machine: Machine, optimizer: Any, to_none: bool, recordings: Count) -> None:
    model, twin = twins(machine, lambda: mlp(machine))
    batches = [machine.randn(5, 16) for _ in range(10)]
    found = steps(model, machine.compile(model), batches, optimizer=optimizer, to_none=to_none)
    close(found, steps(twin, twin, batches, optimizer=optimizer, to_none=to_none))
    for mine, theirs in zip(model.parameters(), twin.parameters(), strict=True):
        close(mine, theirs)
        close(mine.grad, theirs.grad)
    assert recordings() >= 2


def test_a_whole_step_in_one_function(machine: Machine) -> None:
    model, twin = twins(machine, lambda: mlp(machine))

    def step(model: nn.Module, x: Tensor) -> tuple[Tensor, ...]:
        loss = model(x).square().mean()
        return (loss.detach(), *torch.autograd.grad(loss, [*model.parameters()]))

    compiled = machine.compile(lambda x: step(model, x))
    kept = Kept()
    for _ in range(8):
        x = machine.randn(5, 16)
        kept.take(compiled(x), step(twin, x))
    kept.check()


def test_batch_norm_in_training(machine: Machine) -> None:
    model, twin = twins(machine, lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()))
    batches = [machine.randn(4, 3, 8, 8) for _ in range(8)]
    close(steps(model, machine.compile(model), batches), steps(twin, twin, batches))
    for mine, theirs in zip(model.buffers(), twin.buffers(), strict=True):
        close(mine, theirs)


def test_gradients_are_accumulated(machine: Machine) -> None:
    model, twin = twins(machine, lambda: mlp(machine))
    compiled = machine.compile(model)
    for _ in range(4):
        for module in (model, twin):
            module.zero_grad()
        for _ in range(3):
            x = machine.randn(5, 16)
            compiled(x).square().sum().backward()
            twin(x).square().sum().backward()
        for mine, theirs in zip(model.parameters(), twin.parameters(), strict=True):
            close(mine.grad, theirs.grad)


def test_backward_twice(machine: Machine) -> None:
    model, twin = twins(machine, lambda: mlp(machine))
    compiled = machine.compile(model)
    for _ in range(5):
        x = machine.randn(5, 16)
        for module, call in ((model, compiled), (twin, twin)):
            module.zero_grad()
            loss = call(x).square().sum()
            loss.backward(retain_graph=True)
            loss.backward()
        for mine, theirs in zip(model.parameters(), twin.parameters(), strict=True):
            close(mine.grad, theirs.grad)


def test_several_forwards_before_their_backwards(machine: Machine) -> None:
    model, twin = twins(machine, lambda: mlp(machine))
    compiled = machine.compile(model)
    for _ in range(4):
        batches = [machine.randn(5, 16) for _ in range(3)]
        for module, call in ((model, compiled), (twin, twin)):
            module.zero_grad()
            for loss in [call(x).square().sum() for x in batches]:
                loss.backward()
        for mine, theirs in zip(model.parameters(), twin.parameters(), strict=True):
            close(mine.grad, theirs.grad)


def test_gradients_of_inputs_are_kept(machine: Machine) -> None:
    compiled = machine.compile(lambda x, w: (x @ w).tanh())
    w = machine.randn(6, 6, requires_grad=True)
    kept = Kept()
    for _ in range(8):
        x = machine.randn(4, 6, requires_grad=True)
        found = torch.autograd.grad(compiled(x, w).sum(), [x, w])
        kept.take(found, torch.autograd.grad((x @ w).tanh().sum(), [x, w]))
    kept.check()


def test_parameters_are_replaced(machine: Machine) -> None:
    model = mlp(machine)
    compiled = machine.compile(model)
    with torch.no_grad():
        for i in range(12):
            x = machine.randn(5, 16)
            close(compiled(x), model(x))
            if i % 3 == 2:
                model[0].weight.data = machine.randn(32, 16)
            if i == 7:
                model.load_state_dict(mlp(machine, seed=5).state_dict())
            if i == 9:
                model[3] = nn.Linear(32, 8).to(machine.device)


def test_a_module_is_copied_and_pickled(machine: Machine) -> None:
    model = mlp(machine).eval()
    compiled = machine.compile(model)
    with torch.no_grad():
        for _ in range(4):
            x = machine.randn(5, 16)
            close(compiled(x), model(x))
        other = copy.deepcopy(compiled)
        third = pickle.loads(pickle.dumps(model))
        again = machine.compile(third)
        model[0].weight.mul_(1.5)
        for _ in range(4):
            x = machine.randn(5, 16)
            close(compiled(x), model(x))
            close(other(x), third(x))
            close(again(x), third(x))


# ---- random numbers --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("eager_random", [False, True])
def test_random_numbers_advance_and_repeat(machine: Machine, eager_random: bool) -> None:
    compiled = machine.compile(lambda x: F.dropout(x, 0.5), options={"eager_random": eager_random})
    x = torch.ones(400, device=machine.device)
    runs = []
    for _ in range(2):
        torch.manual_seed(3)
        runs.append([compiled(x) for _ in range(6)])
    for one, other in zip(*runs, strict=True):
        assert set(one.unique().tolist()) == {0.0, 2.0}
        assert torch.equal(one, other)
    assert all(not torch.equal(a, b) for a, b in zip(runs[0], runs[0][1:], strict=False))


def test_random_numbers_of_eager(machine: Machine) -> None:
    def fn(x: Tensor) -> Tensor:
        return F.dropout(x, 0.3) + torch.rand_like(x)

    compiled = machine.compile(fn, options={"eager_random": True})
    x = machine.randn(64)
    for seed in range(8):
        torch.manual_seed(seed)
        found = [compiled(x), compiled(x), torch.rand(3, device=machine.device)]
        torch.manual_seed(seed)
        close(found, [fn(x), fn(x), torch.rand(3, device=machine.device)])


def test_backward_has_the_numbers_of_forward(machine: Machine) -> None:
    compiled = machine.compile(lambda x: F.dropout(x * 1.5, 0.5))
    for _ in range(8):
        x = torch.ones(200, device=machine.device, requires_grad=True)
        y = compiled(x)
        y.sum().backward()
        close(x.grad, y.detach() / x.detach())


# ---- programs of several graphs --------------------------------------------------------------------------------------


def test_a_compiled_function_in_another(machine: Machine) -> None:
    inner = machine.compile(lambda x: x.sin() * 2)
    run(machine, lambda x: inner(x) + 1, lambda: [machine.randn(12)])


def test_a_graph_break(machine: Machine) -> None:
    seen = []

    def fn(x: Tensor) -> Tensor:
        y = x.sin() + 1
        seen.append(len(seen))
        print(end="")
        total = y.sum().item()
        return y * 2 if total > -1e9 else y

    run(machine, fn, lambda: [machine.randn(12)], strict=False)


def test_a_break_in_training(machine: Machine) -> None:
    def make() -> nn.Module:
        return nn.ModuleList([nn.Linear(16, 16), nn.Linear(16, 4)])

    def forward(model: Any, x: Tensor) -> Tensor:
        y = model[0](x).relu()
        print(end="")
        return model[1](y)  # type: ignore[no-any-return]

    model, twin = twins(machine, make)
    compiled = machine.compile(lambda x: forward(model, x), strict=False)
    batches = [machine.randn(5, 16) for _ in range(8)]
    close(steps(model, compiled, batches), steps(twin, lambda x: forward(twin, x), batches))


def test_generation_with_a_static_cache(machine: Machine) -> None:
    def step(token: Tensor, position: Tensor, keys: Tensor, w: Tensor) -> Tensor:
        k = token @ w
        keys.index_copy_(0, position, k[None])
        weights = (keys @ k).softmax(0)
        return weights @ keys

    compiled = machine.compile(step)
    w = machine.randn(8, 8)
    outputs: list[tuple[Tensor, Tensor]] = []
    for _ in range(2):
        keys, twin = torch.zeros(12, 8, device=machine.device), torch.zeros(12, 8, device=machine.device)
        token = other = machine.randn(8)
        for i in range(12):
            position = torch.tensor([i], device=machine.device)
            token, other = compiled(token, position, keys, w), step(other, position, twin, w)
            outputs.append((token, other))
            close(keys, twin)
    for found, expected in outputs:
        close(found, expected)


def test_generation_with_a_growing_cache(machine: Machine) -> None:
    def step(token: Tensor, keys: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        keys = torch.cat([keys, (token @ w)[None]])
        return (keys @ token).softmax(0) @ keys, keys

    compiled = machine.compile(step, strict=False, options={"cudagraph_sizes": 64})
    w = machine.randn(8, 8)
    for _ in range(3):
        keys = twin = machine.randn(1, 8)
        token = other = machine.randn(8)
        found = []
        for _ in range(9):
            token, keys = compiled(token, keys, w)
            other, twin = step(other, twin, w)
            found.append((token, keys, other, twin))
        for token, keys, other, twin in found:
            close((token, keys), (other, twin))


# ---- threads, errors, the end ----------------------------------------------------------------------------------------


def test_threads(machine: Machine) -> None:
    def fn(x: Tensor) -> Tensor:
        return ((x * 2).sin() @ x.t()).sum(-1)

    compiled = machine.compile(fn)
    wrong: list[Any] = []

    def work(seed: int) -> None:
        kept = Kept()
        try:
            generator = torch.Generator(machine.device).manual_seed(seed)
            for _ in range(25):
                x = torch.randn(6, 5, generator=generator, device=machine.device)
                kept.take(compiled(x), fn(x))
                if len(kept.pairs) > 3:
                    kept.pairs.pop(0)
            kept.check()
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong, wrong


def test_the_backend(machine: Machine, recordings: Count) -> None:
    model, twin = twins(machine, lambda: mlp(machine))
    batches = [machine.randn(5, 16) for _ in range(8)]
    compiled = machine.compile(model, backend="cudagraphs")
    close(steps(model, compiled, batches), steps(twin, twin, batches))
    assert recordings() >= 2
    run(machine, lambda x: (x * 2, x.t(), x), lambda: [machine.randn(4, 3)], backend="cudagraphs")


def test_the_backend_writes_to_inputs(machine: Machine) -> None:
    def fn(x: Tensor, y: Tensor) -> Tensor:
        x.add_(y)
        return x * 2

    compiled = machine.compile(fn, backend="cudagraphs")
    for _ in range(6):
        x, y = machine.randn(5), machine.randn(5)
        twin = x.clone()
        close(compiled(x, y), fn(twin, y))
        close(x, twin)


def test_the_mode_of_autotuning(machine: Machine, recordings: Count) -> None:
    w = machine.randn(8, 8)
    run(machine, lambda x: (x @ w).relu(), lambda: [machine.randn(4, 8)], mode="max-autotune")
    assert recordings()


def test_what_is_recorded_goes_with_the_function(machine: Machine) -> None:
    from stator._native import Recording

    def alive() -> int:
        gc.collect()
        return sum(type(item) is Recording for item in gc.get_objects())

    before = alive()
    model = mlp(machine)
    compiled = machine.compile(model)
    for _ in range(5):
        y = compiled(machine.randn(5, 16))
        y.sum().backward()
    assert alive() > before
    y = y.detach()
    kept = y.clone()
    del compiled, model
    stator.reset()
    assert alive() == before
    close(y, kept)


def test_reset_begins_anew(machine: Machine, recordings: Count) -> None:
    compiled = machine.compile(lambda x: x * 2 + 1)
    kept = Kept()
    for i in range(9):
        x = machine.randn(5)
        kept.take(compiled(x), x * 2 + 1)
        if i == 4:
            stator.reset()
    kept.check()
    assert recordings() >= 2


def test_any_order_of_keeping_and_letting_go(machine: Machine) -> None:
    """Several functions, of which results are kept for a while, fed to one another, written to and dropped."""

    def f(x: Tensor) -> tuple[Tensor, Tensor]:
        return x.sin(), (x * 2).sum(0)

    def g(x: Tensor, y: Tensor) -> Tensor:
        return (x * y).tanh() + 0.5

    first, second = machine.compile(f, strict=False), machine.compile(g, strict=False)
    generator = torch.Generator().manual_seed(1)
    pool = [(x, x.clone()) for x in [machine.randn(4, 6) for _ in range(3)]]

    def pick(count: int) -> int:
        return int(torch.randint(count, (1,), generator=generator))

    for _ in range(80):
        found, expected = pool[pick(len(pool))]
        if pick(2):
            results, references = first(found), f(expected)
            close(results, references)
            pool.append((results[0], references[0]))
        else:
            other, reference = pool[pick(len(pool))]
            pool.append((second(found, other), g(expected, reference)))
        if pick(4) == 0:
            found, expected = pool[-1]
            found.add_(1)
            expected.add_(1)
        while len(pool) > 6:
            pool.pop(pick(len(pool)))
        for found, expected in pool:
            close(found, expected)
