"""What only a device shows: streams, memory, captures of others, steps that it does not record."""

from __future__ import annotations

import gc
import threading
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.profiler import ProfilerActivity, profile

import stator
from stator import targets
from stator.base import announce
from stator.base.errors import FallbackWarning, RecordingWarning
from stator.recording import lanes
from tests.recording.conftest import Machine
from tests.recording.programs import Count, Kept, close, in_threads, mlp, steps, twins

pytestmark = pytest.mark.gpu


@pytest.fixture
def machine() -> Iterator[Machine]:
    announce.forget()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FallbackWarning)
        warnings.simplefilter("error", RecordingWarning)
        yield Machine("cuda", None)
        torch.cuda.synchronize()
    stator.reset()


def test_several_streams(machine: Machine, recordings: Count) -> None:
    def fn(x: Tensor) -> tuple[Tensor, Tensor]:
        for _ in range(20):
            x = (x * 1.01).sin() + x
        return x, x.sum()

    compiled = machine.compile(fn)
    streams = [torch.cuda.current_stream(), torch.cuda.Stream(), torch.cuda.Stream()]
    kept = []
    for i in range(30):
        stream = streams[i % 3]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            x = torch.randn(200_000, device="cuda")
            kept.append((stream, x, compiled(x)))
        kept = kept[-7:]
    for stream, x, found in kept:
        with torch.cuda.stream(stream):
            close(found, fn(x))
    assert recordings() >= 3


def test_another_stream_than_the_default(machine: Machine) -> None:
    model, twin = twins(machine, lambda: mlp(machine))
    batches = [machine.randn(5, 16) for _ in range(8)]
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        found = steps(model, machine.compile(model), batches)
        close(found, steps(twin, twin, batches))


def test_the_program_captures(machine: Machine) -> None:
    """A graph of the program's own, with a compiled function in it, before and after that is recorded."""
    compiled = machine.compile(lambda x: (x * 2).sin() + 1)
    static = machine.randn(100)
    for _ in range(2):
        graph = torch.cuda.CUDAGraph()
        compiled(static)
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            y = compiled(static)
        for _ in range(4):
            x = machine.randn(100)
            static.copy_(x)
            graph.replay()
            close(y, (x * 2).sin() + 1)
            close(compiled(x), (x * 2).sin() + 1)


@pytest.mark.usefixtures("few_objects")
def test_memory_goes_back(machine: Machine) -> None:
    def use() -> None:
        model = nn.Sequential(nn.Conv2d(3, 32, 3), nn.ReLU(), nn.Conv2d(32, 32, 3)).cuda()
        compiled = machine.compile(model)
        for _ in range(5):
            compiled(machine.randn(16, 3, 64, 64)).square().mean().backward()

    stator.reset()
    use()
    stator.reset()
    before = _reserved()
    for _ in range(3):
        use()
        stator.reset()
    assert _reserved() <= before


def test_memory_of_training(machine: Machine) -> None:
    """The activations of one step, and not those of several, although losses are kept."""

    def peak(call: Any, model: nn.Module) -> int:
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        steps(model, call, [torch.randn(4096, 256, device="cuda") for _ in range(6)])
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated()

    def make() -> nn.Module:
        return nn.Sequential(*[nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 256)) for _ in range(6)])

    model, twin = twins(machine, make)
    plain = peak(stator.compile(twin), twin)
    stator.reset()
    assert peak(machine.compile(model), model) < 1.35 * plain


@pytest.mark.usefixtures("few_objects")
def test_new_memory_is_one_piece() -> None:
    """By themselves these take 12 MiB and 8 of 10.4 and 6.5."""
    forms = [((2100, 1300), (1300, 1), torch.float32), ((1300, 1300), (1, 1300), torch.float32)] * 10
    forms += [((3,), (1,), torch.bfloat16), ((0, 4), (4, 1), torch.float32)]
    recorder = targets.recorder("cuda")
    assert recorder is not None
    small = torch.empty(3, device="cuda")  # a piece for what is small is there
    before = _reserved()
    made = recorder.empty(0, forms)
    assert [(tuple(t.shape), t.stride(), t.dtype) for t in made] == forms
    for number, tensor in enumerate(made):
        tensor.fill_(number)
    assert all(bool((tensor == number).all()) for number, tensor in enumerate(made))
    assert _reserved() - before <= sum(tensor.nbytes for tensor in made) + 3 * 2**20
    kept = made[3]
    del made, tensor
    assert _reserved() > before and bool((kept == 3).all())
    del kept
    assert _reserved() == before
    del small


def _reserved() -> int:
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    return torch.cuda.memory_reserved()


def test_memory_of_the_host_in_between(machine: Machine, recordings: Count) -> None:
    def fn(x: Tensor, y: Tensor) -> Tensor:
        a = (x * 2).sin()
        b = a.sum().to("cpu") + y
        return a * b.to("cuda") + 1

    compiled = machine.compile(fn, strict=False)
    kept = Kept()
    for _ in range(8):
        x, y = machine.randn(30), torch.randn(())
        kept.take(compiled(x, y), fn(x, y))
    kept.check()
    assert recordings()


@torch.library.custom_op("tests_recording::through_the_host", mutates_args=())
def through_the_host(x: Tensor) -> Tensor:
    """Nothing tells that the host waits for it."""
    return torch.full_like(x, float(x.sum()))


@through_the_host.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


def test_a_step_that_is_not_recorded(machine: Machine, recordings: Count) -> None:
    def fn(x: Tensor) -> Tensor:
        y = (x * 2).sin()
        z = through_the_host(y)
        return (z + y).cos().softmax(-1)

    compiled = machine.compile(fn, strict=False)
    kept = Kept()
    for _ in range(10):
        x = machine.randn(4, 30)
        kept.take(compiled(x), fn(x))
    kept.check()
    assert recordings() >= 2


def test_others_use_the_device_meanwhile(machine: Machine) -> None:
    wrong: list[BaseException] = []
    stop = threading.Event()

    def work() -> None:
        try:
            with torch.cuda.stream(torch.cuda.Stream()):
                while not stop.is_set():
                    assert torch.isfinite(torch.randn(100, device="cuda")).all()
                    x = torch.randn(1000).pin_memory().to("cuda", non_blocking=True)
                    assert torch.isfinite(x.cumsum(0).cpu()).all()
                    torch.cuda.current_stream().synchronize()
        except BaseException as error:
            wrong.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        for seed in range(6):
            model, twin = twins(machine, lambda: mlp(machine, seed=seed))  # noqa: B023  (called at once)
            batches = [machine.randn(5, 16) for _ in range(6)]
            close(steps(model, machine.compile(model), batches), steps(twin, twin, batches))
    finally:
        stop.set()
        thread.join()
    assert not wrong, wrong


def test_threads_on_streams_of_their_own(machine: Machine) -> None:
    def fn(x: Tensor) -> Tensor:
        return ((x * 2).sin() @ x.t()).sum(-1)

    compiled = machine.compile(fn)

    def work(seed: int) -> None:
        with torch.cuda.stream(torch.cuda.Stream()):
            generator = torch.Generator("cuda").manual_seed(seed)
            kept = Kept()
            for _ in range(20):
                x = torch.randn(64, 50, generator=generator, device="cuda")
                kept.take(compiled(x), fn(x))
                kept.pairs = kept.pairs[-3:]
            kept.check()

    in_threads(work)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_attention_and_convolutions(machine: Machine, dtype: torch.dtype) -> None:
    """Operators of libraries, which have workspaces and choose kernels."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm, self.heads = nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.Linear(16, 96)

        def forward(self, x: Tensor) -> Tensor:
            x = self.norm(self.conv(x)).relu().flatten(2).transpose(1, 2)
            q, k, v = self.heads(x).view(*x.shape[:2], 3, 2, 16).permute(2, 0, 3, 1, 4)
            return F.scaled_dot_product_attention(q, k, v, is_causal=True).mean((1, 2))

    torch.manual_seed(0)
    model, twin = twins(machine, lambda: Net().to(dtype))
    batches = [machine.randn(4, 3, 10, 10, dtype=dtype) for _ in range(8)]
    found, expected = steps(model, machine.compile(model), batches), steps(twin, twin, batches)
    torch.testing.assert_close(found, expected, atol=2e-2, rtol=2e-2)


def test_recordings_that_draw_take_turns(machine: Machine, recordings: Count) -> None:
    """Operators that draw are captured by PyTorch, and one recording goes before the next one is made."""

    def fn(x: Tensor) -> Tensor:
        q = (x * 1.5).view(2, 2, 32, 16)
        return (F.scaled_dot_product_attention(q, q, q, dropout_p=0.25) * 2).sin()

    compiled = machine.compile(fn)
    kept = []
    with torch.no_grad():
        for seed in range(12):
            x = machine.randn(2, 32, 32, dtype=torch.bfloat16)
            kept.append(x)  # inputs move
            torch.manual_seed(seed)
            found = compiled(x)
            torch.manual_seed(seed)
            torch.testing.assert_close(found, fn(x), atol=2e-2, rtol=2e-2)
    assert recordings() >= 2
    assert torch.rand(3, device=machine.device).isfinite().all(), "the generator is nobody's"


@pytest.mark.parametrize("late", [False, True])
def test_recording_does_not_touch_the_numbers_of_others(machine: Machine, late: bool) -> None:
    """Beginning a capture writes where PyTorch's generator goes on, which all graphs that draw read: those that are
    still under way, and later the one that was captured (`late`: what is queued beside comes late).
    """
    wide = torch.randn(4096, 4096, device="cuda") / 64

    def slow(x: Tensor) -> Tensor:
        y = x
        for _ in range(24):
            y = y @ wide
        return F.dropout(torch.ones_like(x) + 0 * y, 0.5)

    def quick(x: Tensor) -> Tensor:
        return F.dropout(x, 0.25) + torch.rand_like(x)

    functions = (quick, slow) if late else (slow, quick)
    first, second = (machine.compile(fn, options={"eager_random": True}) for fn in functions)
    x = torch.randn(4096, 4096, device="cuda")
    with torch.no_grad():
        for _ in range(3):
            first(x)
        second(x)
        torch.cuda.synchronize()
        if late:
            for lane in list(lanes._lanes.values()):
                with torch.cuda.stream(lane.side):
                    torch.cuda._sleep(50_000_000)
        runs = []
        for called in ((first, second), functions):
            torch.manual_seed(5)
            torch.rand(64, device="cuda")
            runs.append([fn(x) for fn in called])
        close(*runs)


def test_several_devices(machine: Machine) -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("there is one device")
    compiled = machine.compile(lambda x: (x * 2).sin().sum())
    for i in range(12):
        x = torch.randn(50, device=f"cuda:{i % 2}")
        close(compiled(x), (x * 2).sin().sum())


def test_the_device_of_a_thread_is_not_set(machine: Machine) -> None:
    compiled = machine.compile(lambda x: x * 2 + 1)
    x = machine.randn(20)
    for _ in range(3):
        compiled(x)
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(compiled(x)))
    thread.start()
    thread.join()
    close(found[0], x * 2 + 1)


def test_no_python_runs_in_a_replay(machine: Machine) -> None:
    import sys

    compiled = machine.compile(lambda x: (x * 2).sin().sum(-1))
    x = machine.randn(8, 9)
    with torch.no_grad():
        for _ in range(4):
            compiled(x)
        frames: list[str] = []
        sys.setprofile(lambda frame, event, _: frames.append(frame.f_code.co_qualname) if event == "call" else None)
        try:
            compiled(x)
        finally:
            sys.setprofile(None)
    assert not [name for name in frames if "lambda" not in name], frames


def test_a_replay_launches_no_kernel_by_itself(machine: Machine) -> None:
    """Launches of graphs through the driver are not among what the profiler sees, those of kernels are."""
    compiled = machine.compile(mlp(machine).eval())
    x = machine.randn(5, 16)
    with torch.no_grad():
        for _ in range(4):
            compiled(x)
        torch.cuda.synchronize()
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], acc_events=True) as made:
            for _ in range(5):
                compiled(x)
            torch.cuda.synchronize()
    events = made.key_averages()
    assert not [event.key for event in events if "LaunchKernel" in event.key]
    assert sum(event.device_time_total for event in events) > 0, "kernels run all the same"
