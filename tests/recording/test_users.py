"""Results that another stream uses, told by `record_stream`: a replay waits before it writes them again."""

from __future__ import annotations

import gc
from typing import Any

import pytest
import torch
from torch import Tensor

import stator
from stator.recording import users
from tests.recording.conftest import Machine
from tests.recording.programs import close


def chain(x: Tensor) -> Tensor:
    for _ in range(4):
        x = x.sin() + x
    return x


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the method is given that the first recording wraps."""
    found: list[Any] = []
    monkeypatch.setattr(users, "_kinds", set())
    monkeypatch.setattr(users, "_original", None)
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda self, s: found.append(s))
    return found


def test_a_replay_waits_once_for_each_stream(machine: Machine, told: list[Any]) -> None:
    if machine.fake is None:
        pytest.skip("what is awaited is only counted on the host")
    compiled = machine.compile(chain)
    x = machine.randn(64)
    for _ in range(3):
        result = compiled(x)
    result.view(8, 8)[2:].record_stream("first")  # type: ignore[arg-type]
    result.record_stream("second")  # type: ignore[arg-type]
    assert told == ["first", "second"] and machine.fake.awaited == []
    kept = compiled(x)  # the result is there still, so this one has other memory
    assert machine.fake.awaited == []
    del result
    first = compiled(x)
    assert sorted(machine.fake.awaited) == ["first", "second"]  # type: ignore[type-var]
    close(kept, chain(x))
    close(first, chain(x))
    del first
    compiled(x)
    assert len(machine.fake.awaited) == 2


def test_what_is_no_result_is_as_before(machine: Machine, told: list[Any]) -> None:
    compiled = machine.compile(chain)
    x = machine.randn(64)
    for _ in range(3):
        compiled(x)
    pieces = [torch.randn(2), torch.randn(3)]
    nested = torch.nested.as_nested_tensor(pieces, layout=torch.jagged)
    others = [x, machine.randn(3), torch.randn(3).to_sparse(), nested]
    for other in others:
        other.record_stream("stream")  # type: ignore[arg-type]
    assert told == ["stream"] * 4
    compiled(x)
    assert machine.fake is None or machine.fake.awaited == []


def test_who_wraps_the_method_too_is_called(machine: Machine, told: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind the first recording: later ones do not take the wrapper off again."""
    compiled, x = machine.compile(chain), machine.randn(64)
    for _ in range(3):
        compiled(x)
    ours = torch.Tensor.record_stream

    def theirs(self: Tensor, s: Any) -> None:
        told.append("theirs")
        ours(self, s)

    monkeypatch.setattr(torch.Tensor, "record_stream", theirs)
    kept = [compiled(machine.randn(64)) for _ in range(6)]
    x.record_stream("stream")  # type: ignore[arg-type]
    assert told == ["theirs", "stream"] and len(kept) == 6


@pytest.mark.usefixtures("few_objects")
def test_places_are_not_kept(machine: Machine) -> None:
    compiled = machine.compile(chain)
    x = machine.randn(64)
    for _ in range(3):
        compiled(x)
    before = len(users._places)
    assert before >= 1
    del compiled
    stator.reset()
    gc.collect()
    assert len(users._places) < before


def test_a_compiled_function_leaves_it_to_python(machine: Machine, told: list[Any]) -> None:
    """The break is where the program calls it."""

    def fn(x: Tensor, stream: object) -> Tensor:
        y = x * 2
        y.record_stream(stream)  # type: ignore[arg-type]
        return y + 1

    compiled = machine.compile(fn, strict=False)
    x = machine.randn(64)
    stream: Any = torch.cuda.Stream() if machine.fake is None else "stream"
    for _ in range(4):
        assert torch.equal(compiled(x, stream), x * 2 + 1)
    assert told == [stream] * 4


@pytest.mark.gpu
def test_another_stream_reads_it_still() -> None:
    """The stream is kept busy, the result let go of, and its memory written by the next calls."""
    compiled = stator.compile(lambda x: x * 2 + 1, mode="reduce-overhead")
    side = torch.cuda.Stream()
    x = torch.randn(1 << 20, device="cuda")
    for _ in range(3):
        compiled(x)
    for i in range(20):
        given = torch.full_like(x, i)
        result = compiled(given)
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            torch.cuda._sleep(2_000_000)
            read = result.clone()
        result.record_stream(side)
        del result
        for _ in range(3):
            compiled(x)
        torch.cuda.synchronize()
        assert torch.equal(read, given * 2 + 1)
    stator.reset()
