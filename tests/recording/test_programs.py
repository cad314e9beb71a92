"""Programs of several graphs, several threads, and what is left when they end."""

from __future__ import annotations

import gc
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import stator
from stator.base.errors import OptionWarning
from tests.recording.conftest import Machine
from tests.recording.programs import Count, Kept, close, in_threads, mlp, run, steps, twins

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

    def work(seed: int) -> None:
        kept = Kept()
        generator = torch.Generator(machine.device).manual_seed(seed)
        for _ in range(25):
            x = torch.randn(6, 5, generator=generator, device=machine.device)
            kept.take(compiled(x), fn(x))
            if len(kept.pairs) > 3:
                kept.pairs.pop(0)
        kept.check()

    in_threads(work)


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
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OptionWarning)  # of products that are not tuned
        run(machine, lambda x: (x @ w).relu(), lambda: [machine.randn(4, 8)], mode="max-autotune", strict=False)
    assert recordings()


def test_explain_says_what_is_recorded(machine: Machine) -> None:
    told = stator.explain(lambda x: x * 2, mode="reduce-overhead")(machine.randn(3))
    assert told.recordings == ("forward has 1 of 1 steps recorded",)
    assert "recording: forward has 1 of 1 steps recorded" in str(told)


@pytest.mark.usefixtures("few_objects")
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
