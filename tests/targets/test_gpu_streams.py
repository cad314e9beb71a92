"""Streams and devices: work is queued where eager would queue it, and memory is safe there."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import stator

pytestmark = pytest.mark.gpu

STRICT: dict[str, Any] = {"strict": True, "check_speed": "off"}
#: Cycles that a device sleeps, so that what does not wait for it is seen: some tenths of a second.
SLEEP = 200_000_000


@pytest.fixture
def two_devices() -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("there is one device")


def compiled(function: Callable[..., Any]) -> Any:
    return stator.compile(function, options=STRICT)


class Block(nn.Module):
    """With intermediates that lie in scratch memory."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        attended = (x @ x.transpose(-1, -2)).softmax(-1) @ x
        inner: Tensor = self.down(F.gelu(self.up(self.norm(attended))))
        return x + inner


def test_work_is_queued_on_the_current_stream() -> None:
    x = torch.zeros(1000, device="cuda")
    call = compiled(lambda x: (x * 2).softmax(0) + x)
    call(x)
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(SLEEP)
        x.fill_(3)
        found = call(x)
        assert not stream.query()
    torch.cuda.default_stream().synchronize()
    assert not stream.query()  # nothing waits on the host, and nothing was queued elsewhere
    stream.synchronize()
    torch.testing.assert_close(found, torch.full_like(x, 3 + 1 / 1000))


def test_backward_is_queued_where_forward_was() -> None:
    model = Block().cuda()
    call = stator.compile(model, options=STRICT)
    inputs = [torch.randn(4, 30, 64, device="cuda", requires_grad=True) for _ in range(3)]
    wanted = [torch.autograd.grad(model(x).square().mean(), [x, *model.parameters()]) for x in inputs]
    streams = [torch.cuda.Stream() for _ in inputs]
    torch.cuda.synchronize()
    for stream, x, gradients in zip(streams, inputs, wanted, strict=True):
        with torch.cuda.stream(stream):
            torch.cuda._sleep(SLEEP // 10)
            found = torch.autograd.grad(call(x).square().mean(), [x, *model.parameters()])
        stream.synchronize()
        torch.testing.assert_close(found, gradients, rtol=1e-4, atol=1e-5)


def test_threads_have_streams_of_their_own() -> None:
    """Scratch memory is nobody else's while it is in use; neither is a graph."""
    model = Block().cuda().eval()
    call = stator.compile(model, options=STRICT)
    inputs = [torch.randn(8, 50, 64, device="cuda") for _ in range(4)]
    with torch.no_grad():
        wanted = [model(x) for x in inputs]
        call(inputs[0])
    torch.cuda.synchronize()
    wrong: list[object] = []

    def work(number: int) -> None:
        stream = torch.cuda.Stream()
        try:
            with torch.cuda.stream(stream), torch.no_grad():
                for _ in range(40):
                    found = call(inputs[number])
                    torch.testing.assert_close(found, wanted[number], rtol=1e-4, atol=1e-5)
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_streams_that_overlap_share_no_scratch_memory() -> None:
    """The first stream sleeps while the second computes all: only then do the pieces of the first come to be read."""
    model = Block().cuda().eval()
    call = stator.compile(model, options=STRICT)
    first, second = torch.randn(2, 8, 50, 64, device="cuda")
    streams = torch.cuda.Stream(), torch.cuda.Stream()
    with torch.no_grad():
        wanted = model(first), model(second)
        call(first)
        torch.cuda.synchronize()
        with torch.cuda.stream(streams[0]):
            torch.cuda._sleep(SLEEP)
            one = call(first)
        with torch.cuda.stream(streams[1]):
            other = call(second)
    torch.cuda.synchronize()
    torch.testing.assert_close([one, other], list(wanted), rtol=1e-4, atol=1e-5)


def test_results_are_memory_of_the_stream_that_made_them() -> None:
    """As eager's: what is let go of while its stream still writes to it is nobody else's meanwhile."""
    call = compiled(lambda x: x * 2)
    x = torch.ones(1 << 20, device="cuda")
    call(x)
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(SLEEP)
        call(x)  # let go of at once
    fresh = [torch.zeros(1 << 20, device="cuda") for _ in range(4)]
    torch.cuda.synchronize()
    assert all(not t.any() for t in fresh)


def test_numbers_of_the_host_in_kernels_of_the_device() -> None:
    x = torch.randn(100, device="cuda")
    number = torch.tensor(2.5)
    call = compiled(lambda x, n: (x * n + n).relu() / (n + 1))
    for n in (number, torch.tensor(-1.25), torch.tensor(0.5, dtype=torch.float64)):
        torch.testing.assert_close(call(x, n), (x * n + n).relu() / (n + 1))
    half = x.half()
    torch.testing.assert_close(call(half, number), (half * number + number).relu() / (number + 1))


def test_ways_between_host_and_device() -> None:
    def function(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        there = x.to("cuda") * 2 + y
        back = (there + 1).cpu() * 3
        return there, back, back.cuda().sum() + y

    x, y = torch.randn(50), torch.randn(50, device="cuda")
    found, wanted = compiled(function)(x, y), function(x, y)
    torch.testing.assert_close(found, wanted)
    assert [t.device for t in found] == [t.device for t in wanted]


def test_copies_that_do_not_block() -> None:
    x = torch.randn(1 << 16).pin_memory()
    call = compiled(lambda x: x.to("cuda", non_blocking=True) * 2 + 1)
    torch.testing.assert_close(call(x), x.cuda() * 2 + 1)

    def back(x: Tensor) -> Tensor:
        return (x * 2).to("cpu", non_blocking=True)

    y = torch.randn(1 << 16, device="cuda")
    found, wanted = compiled(back)(y), back(y)
    torch.cuda.synchronize()
    torch.testing.assert_close(found, wanted)
    assert found.is_pinned() == wanted.is_pinned()


@pytest.mark.filterwarnings("ignore::stator.base.errors.FallbackWarning")
def test_a_number_that_is_read_ends_the_graph() -> None:
    def function(x: Tensor) -> Tensor:
        total = x.sum().item()
        return x * 2 if total > 0 else x - total

    call = stator.compile(function, options={"check_speed": "off"})
    for x in (torch.ones(9, device="cuda"), -torch.ones(9, device="cuda")):
        torch.testing.assert_close(call(x), function(x))


@pytest.mark.filterwarnings("ignore::stator.base.errors.FallbackWarning")
@pytest.mark.parametrize("wrong", ["weight", "bias", "both"])
def test_tensors_on_different_devices_are_eagers_error(wrong: str) -> None:
    def function(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        return (x @ w + b).relu()

    places = {"w": "cpu" if wrong != "bias" else "cuda", "b": "cpu" if wrong != "weight" else "cuda"}
    given = torch.ones(3, 4, device="cuda"), torch.ones(4, 5, device=places["w"]), torch.ones(5, device=places["b"])
    with pytest.raises(RuntimeError) as eager:
        function(*given)
    with pytest.raises(RuntimeError) as found:
        stator.compile(function)(*given)
    assert str(found.value).splitlines()[0] == str(eager.value).splitlines()[0]


def test_memory_that_is_let_go_while_a_stream_sleeps() -> None:
    """Growing sizes: scratch memory that has become too small goes back while its kernels wait."""
    model = Block().cuda().eval()
    call = stator.compile(model, dynamic=True, options=STRICT)
    inputs = [torch.randn(2, n, 64, device="cuda") for n in (10, 40, 160, 320)]
    stream = torch.cuda.Stream()
    with torch.no_grad():
        call(inputs[0])
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            torch.cuda._sleep(SLEEP)
            found = [call(x) for x in inputs]
        others = [torch.full((1 << 20,), 7.0, device="cuda") for _ in range(8)]
        torch.cuda.synchronize()
        torch.testing.assert_close(found, [model(x) for x in inputs], rtol=1e-4, atol=1e-5)
    assert all(bool((t == 7).all()) for t in others)


@pytest.mark.filterwarnings("ignore::stator.base.errors.FallbackWarning")
def test_streams_inside_of_a_function() -> None:
    side = torch.cuda.Stream()

    def function(x: Tensor) -> Tensor:
        y = x * 2
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            z = (y + 1).softmax(0)
        torch.cuda.current_stream().wait_stream(side)
        return z * y

    x = torch.randn(1 << 16, device="cuda")
    call = stator.compile(function, options={"check_speed": "off"})
    for _ in range(3):
        torch.testing.assert_close(call(x), function(x))


def test_another_device_is_current(two_devices: None) -> None:
    x = torch.randn(1000, device="cuda:1")
    call = compiled(lambda x: (x * 2).softmax(0) + x)
    for current in (0, 1, 0):
        with torch.cuda.device(current):
            found = call(x)
            assert torch.cuda.current_device() == current and found.device == x.device
            torch.testing.assert_close(found, (x * 2).softmax(0) + x)


def test_one_function_on_two_devices(two_devices: None) -> None:
    model = [Block().to(f"cuda:{i}") for i in range(2)]
    call = compiled(lambda model, x: model(x))
    for i in (0, 1, 0, 1):
        torch.cuda.set_device(1 - i)
        x = torch.randn(2, 10, 64, device=f"cuda:{i}")
        torch.testing.assert_close(call(model[i], x), model[i](x), rtol=1e-4, atol=1e-5)
    torch.cuda.set_device(0)


@pytest.mark.filterwarnings("ignore::stator.base.errors.FallbackWarning")
def test_peers_in_one_graph(two_devices: None) -> None:
    def function(x: Tensor) -> Tensor:
        return (x * 2).to("cuda:1").exp() + 1

    x = torch.randn(100, device="cuda:0")
    found = stator.compile(function)(x)
    assert found.device == torch.device("cuda:1")
    torch.testing.assert_close(found, function(x))
