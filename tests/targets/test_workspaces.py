"""Workspaces of cuBLAS are forgotten for recordings, but never while another thread may be about to multiply."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

import stator
from stator.targets.cuda import workers, workspaces
from tests.recording.programs import in_threads


@pytest.fixture(autouse=True)
def no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads of pytest's are none that multiply."""
    before = set(threading.enumerate()) - {threading.current_thread()}
    enumerate_ = threading.enumerate
    monkeypatch.setattr(threading, "enumerate", lambda: [t for t in enumerate_() if t not in before])


@pytest.fixture
def started() -> Iterator[Callable[[str | None], None]]:
    """Starts a thread of a name, which waits until the test is over."""
    over, made = threading.Event(), []

    def start(name: str | None) -> None:
        made.append(threading.Thread(target=over.wait, name=name))
        made[-1].start()

    yield start
    over.set()
    for thread in made:
        thread.join()


def test_who_is_alone(started: Callable[[str | None], None]) -> None:
    assert workspaces.is_alone()
    started(workers.THREAD)
    assert workspaces.is_alone()
    started(None)
    assert not workspaces.is_alone()


@pytest.mark.parametrize("devices", [1, 2])
def test_in_backward(monkeypatch: pytest.MonkeyPatch, devices: int) -> None:
    """Whose threads are one for each device."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: devices)
    found = []

    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx: object, x: Tensor) -> Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: object, gradient: Tensor) -> Tensor:
            found.append(workspaces.is_alone())
            return gradient * 2

    Twice.apply(torch.ones(2, requires_grad=True)).sum().backward()
    assert found == [devices == 1]


class Side:
    """A stream that may have workspaces."""

    cuda_stream, device_index = 123456, 0


def test_a_stream_with_workspaces_is_there_for_calls_of_the_same_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    """And is closed once those are forgotten."""
    closed: list[int] = []
    monkeypatch.setattr(
        workspaces, "library", lambda: SimpleNamespace(cuStreamDestroy_v2=lambda s: closed.append(s.value))
    )
    monkeypatch.setattr(torch._C, "_cuda_clearCublasWorkspaces", lambda: None, raising=False)
    monkeypatch.setitem(workspaces._pools, Side.cuda_stream, [None])
    side = Side()
    workspaces.close_stream(side, 7)
    assert workspaces.side_stream(0, 7) is side and not closed
    workspaces.close_stream(side, 7)
    workspaces._forget()
    assert closed == [Side.cuda_stream] and not workspaces._spare and Side.cuda_stream not in workspaces._pools


def _multiply(x: Tensor) -> Tensor:
    return ((x * 2).sin() @ x.t()).sum(-1)


def _round(streams: Sequence[torch.cuda.Stream]) -> None:
    """A function that threads record, each on a stream of its own, and multiply beside."""
    compiled = stator.compile(_multiply, mode="reduce-overhead")

    def work(number: int) -> None:
        with torch.cuda.stream(streams[number]):
            generator = torch.Generator("cuda").manual_seed(number)
            for _ in range(6):
                x = torch.randn(64, 50, generator=generator, device="cuda")
                torch.testing.assert_close(compiled(x), _multiply(x))

    in_threads(work)


def _let_go() -> None:
    stator.reset()
    gc.collect()


@pytest.mark.gpu
def test_threads_that_multiply_while_others_record(few_objects: None) -> None:
    """Their workspaces stay, for no more streams than there were at once; alone, all go back."""
    _let_go()
    before = set(workspaces._pools)  # of lanes that others still have
    streams = [torch.cuda.Stream() for _ in range(4)]
    for _ in range(8):
        _round(streams)
        _let_go()
        assert len(workspaces._pools.keys() - before) <= len(streams)
    held = torch.cuda.memory_allocated()
    compiled = stator.compile(_multiply, mode="reduce-overhead")
    for _ in range(4):
        compiled(torch.randn(64, 50, device="cuda"))
    del compiled
    _let_go()
    spare = {side.cuda_stream for sides in workspaces._spare.values() for side in sides}
    assert workspaces._pools.keys() | spare <= before
    assert torch.cuda.memory_allocated() < held
