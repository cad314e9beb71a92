"""Memory of gradients over activations: what it is to others, and how much there is of it."""

from __future__ import annotations

import copy
import gc
import random
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor

import stator
from stator.base import log
from stator.recording import overlays, users
from stator.recording.overlays import Room, laid_bytes, pack
from stator.recording.policy import Policy
from tests.recording.conftest import Machine
from tests.recording.programs import in_threads
from tests.recording.runs import Run, Tower, accumulate, clear_last, places, same

# ---- around it -------------------------------------------------------------------------------------------------------


def test_gradients_are_like_all_tensors(machine: Machine, policies: Callable[[], list[Policy]]) -> None:
    torch.manual_seed(0)
    run = Run(machine, Tower(), None)
    run.call = machine.compile(run.module)
    clear_last(run)
    loss, _ = run.call(run.batch(9))
    loss.backward()
    over = {place.address for place in places(policies()) if place.lies_over}
    found = [gradient for gradient in run.gradients() if gradient is not None and gradient.data_ptr() in over]
    assert len(found) > 4
    for gradient in found:
        assert gradient.storage_offset() == 0 and not gradient._is_view() and gradient.is_contiguous()
        assert gradient.untyped_storage().nbytes() == gradient.nbytes
        assert gradient.data_ptr() % overlays.ALIGNMENT == 0 or machine.fake is not None
        gradient.add_(1)


@pytest.mark.usefixtures("few_objects")
def test_gradients_outlive_the_function(machine: Machine) -> None:
    """And the activations whose memory they are in."""
    kept: list[Tensor] = []
    wanted: list[Tensor] = []
    for seed in range(3):
        torch.manual_seed(seed)
        run = Run(machine, Tower(), None)
        run.call = machine.compile(run.module)
        clear_last(run)
        loss, _ = run.call(run.batch(9))
        loss.backward()
        kept += [gradient for gradient in run.gradients() if gradient is not None]
        wanted += [gradient.clone() for gradient in run.gradients() if gradient is not None]
        del run, loss
        stator.reset()
        gc.collect()
        others = [machine.randn(64, 32) for _ in range(40)]
        assert all(map(torch.equal, kept, wanted))
        del others


def test_a_hidden_state_that_is_resized(machine: Machine) -> None:
    def scenario(run: Run) -> None:
        for i in range(9):
            run.optimizer.zero_grad()
            loss, hidden = run.call(run.batch(i))
            loss.backward()
            if i % 3 == 2:
                hidden.untyped_storage().resize_(0)
            run.note(loss, *run.gradients())

    same(machine, scenario)


def test_streams_that_use_gradients_are_awaited(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, policies: Callable[[], list[Policy]]
) -> None:
    """Before forward writes the memory again; the allocator is told of what is its own."""
    if machine.fake is None:
        pytest.skip("what is awaited is only counted on the host")
    told: list[Tensor] = []
    monkeypatch.setattr(users, "_kinds", set())
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda self, s: told.append(self))
    torch.manual_seed(0)
    run = Run(machine, Tower(), None)
    run.call = machine.compile(run.module)
    clear_last(run)
    loss, _ = run.call(run.batch(9))
    over = [place for place in places(policies()) if place.lies_over]
    base = over[0].base
    assert base is not None
    base.use("below")
    del base
    loss.backward()
    assert machine.fake.awaited == ["below"]  # backward writes there
    addresses = {place.address for place in over}
    large = next(g for g in run.gradients() if g is not None and g.data_ptr() in addresses)
    large.record_stream("side")  # type: ignore[arg-type]
    assert told[-1] is not large and told[-1].data_ptr() == large.data_ptr()
    run.optimizer.zero_grad()
    del large
    assert machine.fake.awaited == ["below"]
    run.call(run.batch(10))
    assert machine.fake.awaited == ["below", "side"]


def test_other_streams(machine: Machine) -> None:
    if machine.fake is None:
        pytest.skip("the host has a stream by its number")
    fake = machine.fake

    def scenario(run: Run) -> None:
        for i in range(16):
            fake.stream = 0x700 + i // 2 % 2
            run.optimizer.zero_grad()
            loss, _ = run.call(run.batch(i))
            loss.backward()
            run.note(loss, *run.gradients())
            if i == 9:  # one of the two gives up
                run.call(run.batch(i))
        fake.stream = 0x700

    same(machine, scenario)


def test_threads(machine: Machine) -> None:
    torch.manual_seed(0)
    module = Tower().to(machine.device)
    compiled, parameters = machine.compile(module), list(module.parameters())
    batches = [[machine.randn(64, 16) for _ in range(8)] for _ in range(4)]
    plain = stator.compile(copy.deepcopy(module))
    wanted = [[torch.autograd.grad(module(x)[0], parameters) for x in some] for some in batches]
    del plain

    def work(number: int) -> None:
        kept = []
        for x, expected in zip(batches[number], wanted[number], strict=True):
            loss, _ = compiled(x)
            found = torch.autograd.grad(loss, parameters)
            del loss
            kept.append((found, expected))
            for mine, theirs in kept[-2:]:
                torch.testing.assert_close(mine, theirs, atol=2e-5, rtol=2e-4)

    in_threads(work)


# ---- how much --------------------------------------------------------------------------------------------------------


def test_what_recordings_take_is_what_is_told(
    machine: Machine, policies: Callable[[], list[Policy]], tmp_path: Any
) -> None:
    torch.manual_seed(0)
    module = Tower().to(machine.device)
    compiled = machine.compile(module, options={"debug": str(tmp_path), "check_speed": "off"})
    run = Run(machine, module, compiled)
    for i in range(6):
        run.optimizer.zero_grad()
        loss, _ = run.call(run.batch(i))
        loss.backward()
    found = places(policies())
    laid = laid_bytes(found)
    (text,) = [path.read_text() for path in tmp_path.glob("**/*backward*_recording.txt")]
    (line,) = [line for line in text.splitlines() if line.startswith("gradients over activations")]
    assert line.split(": ")[1].startswith(f"{laid:,} bytes of ") and laid > 0
    for base in {place.base.storage: place.base for place in found if place.base is not None}.values():
        over = sorted([(p.address, p.address + p.nbytes) for p in found if p.base is base])
        assert all(end <= begin for (_, end), (begin, _) in pairwise(over))
        assert over[0][0] >= base.address and over[-1][1] <= base.address + base.nbytes


@pytest.mark.parametrize("seed", range(20))
def test_what_is_packed_fits(seed: int) -> None:
    rng = random.Random(seed)
    rooms = [Room(rng.randrange(30), rng.randrange(1, 20000)) for _ in range(12)]
    wanted = [(rng.randrange(1, 6000), rng.randrange(40)) for _ in range(30)]
    found = pack(wanted, rooms)
    assert any(where is not None for where in found)
    taken: dict[int, list[tuple[int, int]]] = {}
    for (nbytes, first), where in zip(wanted, found, strict=True):
        if where is not None:
            room, start = where
            assert rooms[room].last < first and start % overlays.ALIGNMENT == 0
            assert start + nbytes <= rooms[room].nbytes
            taken.setdefault(room, []).append((start, start + nbytes))
    for ranges in taken.values():
        assert all(end <= begin for (_, end), (begin, _) in pairwise(sorted(ranges)))


@pytest.mark.usefixtures("few_objects")
def test_a_device_has_so_much_more(machine: Machine, policies: Callable[[], list[Policy]]) -> None:
    """Between two steps it is the places that take memory, and those over others take none."""
    if machine.fake is not None:
        pytest.skip("nobody counts the memory of the host")
    held, laid = [], 0
    for least in (64, 1 << 40):
        overlays.LEAST = least
        gc.collect()  # what tests before have left goes now, not in between
        before = torch.cuda.memory_allocated()
        torch.manual_seed(0)
        run = Run(machine, Tower(), None)
        run.call = machine.compile(run.module)
        clear_last(run)
        run.seen.clear()
        laid += laid_bytes(places(policies()))
        gc.collect()
        held.append(torch.cuda.memory_allocated() - before)
        del run
        stator.reset()
        gc.collect()
    assert 0 < laid <= held[1] - held[0]


def test_what_is_told(machine: Machine) -> None:
    if machine.fake is None:
        pytest.skip("a device's backward runs in another thread")
    with log.collect() as recorder:
        same(machine, clear_last)
        same(machine, accumulate)
    told = [facts["told"] for facts in recorder.of(log.RECORDING)]
    assert any(text.endswith("MiB of them over activations") for text in told)
    assert any("no gradients over activations any more: gradients are still there" in text for text in told)
