"""Large results are ordinary tensors, whatever the system says to the advice; memory that none holds is used again."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest
import torch

import stator
from stator.runtime import arena, pages

#: A large result: 4 MiB.
SHAPE, STRIDE = (1024, 1024), (1024, 1)


@pytest.fixture(autouse=True)
def nothing_kept() -> Iterator[None]:
    pages.release()
    yield
    pages.release()


@pytest.mark.parametrize("size, stride", [((3, 5), (5, 1)), ((1500, 1000), (1, 1500)), ((0, 4), (4, 1)), ((), ())])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int8])
def test_a_large_result(size: tuple[int, ...], stride: tuple[int, ...], dtype: torch.dtype) -> None:
    made = pages.large(size, stride, dtype)
    assert made.shape == size and made.stride() == stride and made.dtype is dtype
    assert (made.fill_(3) == 3).all() and made.untyped_storage().resizable()


def test_a_system_without_the_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: None) -> None:
        raise OSError

    pages._advise.cache_clear()
    with monkeypatch.context() as patch:
        patch.setattr(pages.ctypes, "CDLL", missing)
        assert pages.large((1 << 20, 2), (2, 1), torch.float32).zero_().sum() == 0
    pages._advise.cache_clear()


def test_the_advice_stays_inside_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(pages, "_advise", lambda: lambda start, length, advice: asked.append((start, length)))
    made = pages.large((3_000_000,), (1,), torch.float32)
    pages.large((100,), (1,), torch.float32)
    ((start, length),) = asked
    assert made.data_ptr() <= start and start + length <= made.data_ptr() + 12_000_000
    assert start % (2 << 20) == 0 and length >= 8 << 20


def make() -> torch.Tensor:
    return pages.large(SHAPE, STRIDE, torch.float32)


def test_memory_that_was_let_go_of_is_used_again() -> None:
    made = make()
    address = made.data_ptr()
    assert make().data_ptr() != address
    del made
    again = pages.large((1 << 22,), (1,), torch.int8)  # as many bytes
    assert again.data_ptr() == address
    assert again._version == 0 and not again._is_view() and again.untyped_storage().resizable()
    assert pages.large((1024, 1023), (1023, 1), torch.float32).data_ptr() != address


@pytest.mark.parametrize(
    "hold",
    [
        lambda made: made[3],
        lambda made: made.detach(),
        lambda made: made.numpy(),
        lambda made: made.untyped_storage(),
        lambda made: torch.utils.dlpack.to_dlpack(made),
        lambda made: torch.from_dlpack(made),
        lambda made: made.requires_grad_().exp().grad_fn,
        lambda made: torch.nn.Parameter(made),
    ],
)  # fmt: skip
def test_memory_that_somebody_holds_is_not(hold: Callable[[torch.Tensor], object]) -> None:
    made = make()
    address = made.data_ptr()
    held = hold(made)
    del made
    assert make().data_ptr() != address
    assert held is not None


def test_memory_that_was_replaced_is_not() -> None:
    for change in (torch.Tensor.share_memory_, lambda made: made.resize_(4096, 1024)):
        made = make()
        made.fill_(1.0)
        change(made)
        address = made.data_ptr()
        del made
        assert make().data_ptr() != address
        pages.release()


def test_under_inference_mode_and_outside() -> None:
    with torch.inference_mode():
        made = make()
        address = made.data_ptr()
        assert made.is_inference()
        del made
    made = make()
    assert made.data_ptr() == address and not made.is_inference()
    assert (made.fill_(2.0).requires_grad_() * 2).sum().grad_fn is not None


def test_no_more_is_kept_than_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "MOST", 10 << 20)
    first = [make() for _ in range(4)]
    assert pages.held() == 0
    first.clear()
    assert pages.held() == 8 << 20 <= arena.held()
    for _ in range(pages.PATIENCE):  # the last of them takes the place of one of the others
        pages.large((3 << 20,), (1,), torch.int8)
    assert pages.held() == 7 << 20
    kept = make()
    for _ in range(2 * pages.PATIENCE):  # what is in use does not make way, nor does anything for what is too large
        pages.large((11 << 20,), (1,), torch.int8)
        pages.large((8 << 20,), (1,), torch.int8)
    assert pages.held() == 3 << 20
    del kept
    assert pages.held() == 7 << 20
    arena.release()
    assert pages.held() == 0


def test_threads_do_not_share_memory() -> None:
    wrong = []

    def use(number: int) -> None:
        for _ in range(50):
            made = make()
            made.fill_(number)
            wrong.extend([number] * bool((made != number).any()))

    threads = [threading.Thread(target=use, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_results_of_compiled_code() -> None:
    double = stator.compile(lambda x: x * 2.0, dynamic=False)
    x = torch.randn(1500, 1500)
    kept = [double(x + number) for number in range(3)]
    address = kept.pop().data_ptr()
    again = double(x)
    assert again.data_ptr() == address
    assert torch.equal(again, x * 2) and torch.equal(kept[0], x * 2) and torch.equal(kept[1], (x + 1) * 2)


def test_results_that_backward_needs() -> None:
    step = stator.compile(lambda x: x.exp(), dynamic=False)
    x, y = torch.randn(1500, 1500, requires_grad=True), torch.randn(1500, 1500, requires_grad=True)
    total = step(x).sum()
    other = step(y).sum()  # the first result is saved, so it is not written over
    (total + other).backward()
    assert torch.allclose(x.grad, x.exp()) and torch.allclose(y.grad, y.exp())
