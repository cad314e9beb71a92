"""What changes around recorded calls: modes of PyTorch, weights, who holds results and where, memory, the function."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import stator
from stator import targets
from stator.base.errors import RecordingWarning, WithoutEffect
from stator.recording.policy import Policy
from tests.recording.conftest import Machine
from tests.recording.fake import Recorder
from tests.recording.programs import Count, Kept, close, detached, mlp, run, twins


def chain(x: Tensor) -> Tensor:
    for _ in range(4):
        x = (x * 1.5).sin() + x
    return x


def test_results_that_autograd_keeps(machine: Machine) -> None:
    """Eager's operators save results for backward: nothing else holds them."""
    weight = machine.randn(8, requires_grad=True)
    compiled = machine.compile(chain)
    for _ in range(4):
        inputs = [machine.randn(4, 8) for _ in range(5)]
        found = [(compiled(x) * weight).square().sum() for x in inputs]  # compiled(x) is only saved
        wanted = [(chain(x) * weight).square().sum() for x in inputs]
        close(torch.autograd.grad(sum(found), weight)[0], torch.autograd.grad(sum(wanted), weight)[0])  # type: ignore[arg-type]


def test_results_that_a_thread_holds(machine: Machine) -> None:
    compiled = machine.compile(chain)
    box: list[Tensor] = []
    seen: list[Tensor] = []
    given, taken = threading.Event(), threading.Event()

    def hold() -> None:
        mine = box.pop()
        taken.set()
        given.wait()
        seen.append(mine.clone())

    for _ in range(4):
        given.clear(), taken.clear()
        x = machine.randn(50)
        box.append(compiled(x))
        holder = threading.Thread(target=hold)
        holder.start()
        taken.wait()
        for _ in range(3):
            compiled(machine.randn(50))
        given.set()
        holder.join()
        close(seen.pop(), chain(x))


@pytest.mark.usefixtures("few_objects")
def test_results_outlive_the_function(machine: Machine) -> None:
    """Also where its memory has gone back, and others have taken what there is."""
    kept = Kept()
    for _ in range(3):
        compiled = machine.compile(chain)
        for _ in range(5):
            x = machine.randn(1000)
            kept.take(compiled(x), chain(x))
        del compiled
        stator.reset()
        gc.collect()
        if machine.device == "cuda":
            torch.cuda.empty_cache()
        others = [machine.randn(1000) for _ in range(20)]
        kept.check()
        del others


@pytest.mark.usefixtures("few_objects")
def test_memory_is_given_back_between_calls(machine: Machine) -> None:
    compiled = machine.compile(chain)
    for i in range(12):
        x = machine.randn(300)
        close(compiled(x), chain(x))
        del x
        gc.collect()
        if machine.device == "cuda" and i % 3 == 0:
            torch.cuda.empty_cache()


def test_with_and_without_gradients_in_turn(machine: Machine) -> None:
    model, twin = twins(machine, lambda: mlp(machine))
    compiled = machine.compile(model)
    for i in range(12):
        x = machine.randn(5, 16)
        if i % 3 == 0:
            with torch.no_grad():
                close(compiled(x), twin(x))
        elif i % 3 == 1:
            with torch.inference_mode():
                close(compiled(x).clone(), twin(x))
        else:
            for module, call in ((model, compiled), (twin, twin)):
                module.zero_grad()
                call(x).square().sum().backward()
            close([p.grad for p in model.parameters()], [p.grad for p in twin.parameters()])


def test_inputs_that_need_gradients_in_turn(machine: Machine) -> None:
    compiled = machine.compile(chain)
    for i in range(8):
        x = machine.randn(20, requires_grad=i % 2 == 0)
        found = compiled(x)
        assert found.requires_grad == x.requires_grad
        if x.requires_grad:
            close(torch.autograd.grad(found.sum(), x)[0], torch.autograd.grad(chain(x).sum(), x)[0])
        close(found.detach(), chain(x).detach())


def test_autocast_in_turn(machine: Machine) -> None:
    model, twin = twins(machine, lambda: mlp(machine))
    compiled = machine.compile(model)
    for i in range(8):
        x = machine.randn(5, 16)
        with torch.no_grad(), torch.autocast(machine.device, torch.bfloat16, enabled=i % 2 == 0):
            found, wanted = compiled(x), twin(x)
        assert found.dtype == wanted.dtype
        torch.testing.assert_close(found, wanted, atol=2e-2, rtol=2e-2)


def test_weights_that_are_written(machine: Machine) -> None:
    """In place, by loading, and by an average of another model's: a replay reads what is there then."""
    model, twin = twins(machine, lambda: mlp(machine))
    compiled = machine.compile(model)
    kept = Kept()
    with torch.no_grad():
        for i in range(12):
            others = {name: torch.randn_like(value) * 0.2 for name, value in model.state_dict().items()}
            for module in (model, twin):
                match i % 3:
                    case 0:
                        module.load_state_dict(others)
                    case 1:
                        for name, value in module.named_parameters():
                            value.lerp_(others[name], 0.3)
                    case 2:
                        for name, value in module.named_parameters():
                            value.data.copy_(others[name])
            x = machine.randn(5, 16)
            kept.take(compiled(x), twin(x))
    kept.check()


def test_numbers_of_the_host_in_tensors(machine: Machine) -> None:
    """A tensor of no dims on the host is read at each call, not when it is recorded."""

    def fn(x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
        return (x * scale).sin() + shift

    compiled = machine.compile(fn, strict=False)
    kept = Kept()
    for i in range(10):
        x, scale, shift = machine.randn(30), torch.tensor(0.5 + i), torch.tensor(float(-i))
        kept.take(compiled(x, scale, shift), fn(x, scale, shift))
    kept.check()


def test_one_address_after_another(machine: Machine) -> None:
    """What is let go of comes back as the memory of an input of another size, or at another offset."""

    def fn(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return x.softmax(-1) + y.sum(), y * 2

    compiled = machine.compile(fn)
    for i in range(24):
        sizes = [(64, 32), (32, 64), (16, 128)][i % 3]
        x, y = machine.randn(*sizes), machine.randn(7 + i % 2)
        if i % 4 == 1:
            x = machine.randn(sizes[0] * sizes[1] + 8)[8:].view(sizes)
        close(compiled(x, y), fn(x, y))
        del x, y


def test_sizes_that_come_to_nothing(machine: Machine) -> None:
    def fn(x: Tensor) -> tuple[Tensor, Tensor]:
        return x * 2 + 1, x.sum(0)

    compiled = machine.compile(fn, dynamic=True)
    for rows in (4, 4, 4, 0, 0, 3, 0, 4, 1, 1, 0):
        x = machine.randn(rows, 5)
        close(compiled(x), fn(x))


def test_two_functions_with_the_same_weights(machine: Machine) -> None:
    """One of which writes them."""
    weight = machine.randn(16, 16)
    other = weight.clone()

    def read(x: Tensor, w: Tensor) -> Tensor:
        return F.gelu(x @ w)

    def write(x: Tensor, w: Tensor) -> Tensor:
        w.mul_(0.9).add_(x.mean() * 0.01)
        return w.sum()

    reading, writing = machine.compile(read), machine.compile(write)
    kept = Kept()
    for _ in range(8):
        x = machine.randn(4, 16)
        kept.take(reading(x, weight), read(x, other))
        kept.take(writing(x, weight), write(x, other))
    close(weight, other)
    kept.check()


def test_a_result_is_written_by_the_function_that_gets_it(machine: Machine) -> None:
    """A chain whose links write to what they are given, which is memory of another recording."""

    def first(x: Tensor) -> Tensor:
        return x * 2

    def second(y: Tensor) -> Tensor:
        y.add_(1)
        return y.sin()

    one, other = machine.compile(first), machine.compile(second)
    kept = Kept()
    for _ in range(10):
        x = machine.randn(40)
        y = one(x)
        kept.take(other(y), second(first(x)))
        kept.take(y, first(x) + 1)
        close(x * 2, first(x))
    kept.check()


def test_a_gradient_that_a_hook_keeps(machine: Machine) -> None:
    model, twin = twins(machine, lambda: mlp(machine))
    compiled = machine.compile(model)
    kept: list[tuple[list[Tensor], list[Tensor]]] = []
    for _ in range(6):
        x = machine.randn(5, 16)
        pair: list[list[Tensor]] = []
        for module, call in ((model, compiled), (twin, twin)):
            seen: list[Tensor] = []
            hooks = [p.register_hook(lambda gradient, seen=seen: seen.append(gradient)) for p in module.parameters()]
            module.zero_grad()
            call(x).square().sum().backward()
            for hook in hooks:
                hook.remove()
            pair.append(sorted(seen, key=lambda gradient: (gradient.shape, float(gradient.sum()))))
        kept.append((pair[0], detached(pair[1])))
    for mine, theirs in kept:
        close(mine, theirs)


def test_backward_in_another_thread(machine: Machine) -> None:
    model, twin = twins(machine, lambda: mlp(machine))
    compiled = machine.compile(model)
    for _ in range(6):
        x = machine.randn(5, 16)
        losses = compiled(x).square().sum(), twin(x).square().sum()
        model.zero_grad(), twin.zero_grad()
        for loss in losses:
            worker = threading.Thread(target=loss.backward)
            worker.start()
            worker.join()
        close([p.grad for p in model.parameters()], [p.grad for p in twin.parameters()])


def test_random_choices_with_a_seed(machine: Machine) -> None:
    """Drawn numbers go on from call to call, as they do where nothing is recorded, and a seed brings them back."""

    def fn(logits: Tensor) -> Tensor:
        noise = -torch.log(-torch.log(torch.rand_like(logits).clamp(1e-6, 1 - 1e-6)))
        return (logits + noise).argmax(-1)

    compiled, logits = machine.compile(fn), machine.randn(6, 500)
    drawn = []
    for _ in range(3):
        torch.manual_seed(5)
        drawn.append([compiled(logits).clone() for _ in range(6)])
    for again in drawn[1:]:
        assert all(torch.equal(a, b) for a, b in zip(again, drawn[0], strict=True))
    assert not all(torch.equal(a, drawn[0][0]) for a in drawn[0])


def test_a_recurrent_state(machine: Machine) -> None:
    """The last state goes in again, what came out in between is kept at times."""
    cell = nn.GRUCell(8, 12).to(machine.device).requires_grad_(False)

    def step(x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        state = cell(x, state)
        return state, state.tanh()

    compiled = machine.compile(step)
    mine = theirs = machine.randn(3, 12)
    kept = Kept()
    for i in range(20):
        x = machine.randn(3, 8)
        mine, out = compiled(x, mine)
        theirs, wanted = step(x, theirs)
        if i % 4 == 0:
            kept.take(out, wanted)
        close(mine, theirs)
    kept.check()


@pytest.mark.parametrize("view", [lambda x: x.t(), lambda x: x[:, 1:], lambda x: x[::2], lambda x: x.expand(2, 4, 6)])
def test_views_go_in(machine: Machine, view: Callable[[Tensor], Tensor]) -> None:
    run(machine, lambda x: (x * 2).sum(0) + x, lambda: [view(machine.randn(4, 6))])


@pytest.mark.gpu
def test_a_consumer_on_another_stream() -> None:
    """What is made on one stream is read on another that waits for it, while the next call is under way."""
    machine = Machine("cuda", None)
    one, other = machine.compile(chain), machine.compile(lambda x: x.cos() * 3)
    side = torch.cuda.Stream()
    kept = []
    for _ in range(20):
        x = torch.randn(300_000, device="cuda")
        y = one(x)
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            kept.append((x, y, other(y)))
        kept = kept[-4:]
        torch.cuda.current_stream().wait_stream(side)
    for x, y, z in kept:
        close(y, chain(x))
        close(z, chain(x).cos() * 3)
    stator.reset()


@pytest.mark.gpu
def test_results_on_their_way_to_the_host() -> None:
    """Copies that do not wait are queued behind the replay that makes what they read, and before the next one."""
    machine = Machine("cuda", None)
    compiled = machine.compile(chain)
    inputs = [torch.randn(100_000, device="cuda") for _ in range(12)]
    there = [torch.empty(100_000, pin_memory=True) for _ in inputs]
    for x, host in zip(inputs, there, strict=True):
        host.copy_(compiled(x), non_blocking=True)
    torch.cuda.synchronize()
    for x, host in zip(inputs, there, strict=True):
        close(host, chain(x).cpu())
    stator.reset()


def test_an_allocator_without_pools(monkeypatch: pytest.MonkeyPatch, recordings: Count) -> None:
    """Calls run as they are, and that is told; it is an error under `strict`."""
    fake = Recorder()
    fake.refuses = "PyTorch's allocator has no pools of memory"
    monkeypatch.setattr(targets, "recorder", lambda device: fake)
    machine, x = Machine("cpu", fake), torch.randn(30)
    with pytest.warns(Warning, match="'cudagraphs' has no effect: PyTorch's allocator has no pools"):
        compiled = machine.compile(chain, strict=False)
        for _ in range(4):
            close(compiled(x), chain(x))
    assert recordings() == 0
    with pytest.raises(WithoutEffect, match="no pools of memory"):
        machine.compile(lambda x: chain(x) + 1)(x)
    stator.reset()


@pytest.mark.gpu
@pytest.mark.parametrize("settings", ["expandable_segments:True", "backend:cudaMallocAsync"])
def test_settings_of_the_allocator(settings: str) -> None:
    program = """
        import torch, stator
        call = stator.compile(lambda x: x.sin() * 2, mode="reduce-overhead")
        for _ in range(5):
            x = torch.randn(100, device="cuda")
            torch.testing.assert_close(call(x), x.sin() * 2)
        stator.reset()
        print("right")
    """
    environment = {**os.environ, "PYTORCH_CUDA_ALLOC_CONF": settings}
    command = [sys.executable, "-c", textwrap.dedent(program)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.stdout.split()[-1:] == ["right"], done.stderr
    assert "'cudagraphs' has no effect: PyTorch's allocator" in done.stderr


@pytest.mark.usefixtures("few_objects")
def test_memory_of_operators_goes_with_its_recording(machine: Machine) -> None:
    """What they make lies in memory of one recording, which no later one can have."""
    w = machine.randn(4, 3, 3, 3)

    def fn(x: Tensor) -> tuple[Tensor, Tensor]:
        y = F.conv2d(x, w)
        return y, y.relu()

    compiled = machine.compile(fn)
    with torch.no_grad():
        x = machine.randn(2, 3, 8, 8)
        for _ in range(3):
            close(compiled(x), fn(x))
        for _ in range(4):  # the input moves: it is recorded anew, and copied from then on
            y = machine.randn(2, 3, 8, 8)
            close(compiled(y), fn(y))
    found = [item for item in gc.get_objects() if type(item) is Policy and item.recordings]
    assert len(found) == 1
    for variant in found[0]._by_key.values():
        used = {place.storage for recording in variant.recordings for place in recording.places}
        assert {place.storage for places in variant.places.values() for place in places} <= used


def test_inputs_in_memory_of_several_kinds(machine: Machine) -> None:
    """Steps that copy take one kind only, so calls with others run as they are; in the end all do, which is told."""
    if machine.fake is None:
        pytest.skip("what is mapped by a device is in test_zeros.py")
    compiled = machine.compile(lambda x: (x * 2).sin(), strict=False)
    kept = Kept()
    mapped = machine.fake.zeros(0, 64, True).view(torch.float32)
    with pytest.warns(RecordingWarning, match="mapped"):
        for i in range(24):
            x = mapped.fill_(i) if i % 3 == 2 else machine.randn(16)
            kept.take(compiled(x), (x * 2).sin())
    kept.check()
