"""Many threads call one compiled function at once, cold and hot, and get what eager gives."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import stator

THREADS = 8


def straight(x: torch.Tensor, n: int) -> Any:
    return (x * n).sin() + n


def breaking(x: torch.Tensor, n: int) -> Any:
    total = x
    for number in range(3):
        total = total * n + number
        stator.graph_break()
        total = total - 1
    with torch.no_grad():
        stator.graph_break()
        grad = torch.is_grad_enabled()
    return total, grad


def calling(x: torch.Tensor, n: int) -> Any:
    stator.graph_break()
    return straight(x, n) + breaking(x, n)[0]


def depending(x: torch.Tensor, n: int) -> Any:
    if x.sum() > 0:
        return x + n
    return [x - n, straight(x, n)]


FUNCTIONS = [straight, breaking, calling, depending]


def together(work: Callable[[int], None]) -> None:
    """Runs `work` in all threads at the same time; the first failure is raised."""
    barrier, failures = threading.Barrier(THREADS), []

    def run(number: int) -> None:
        try:
            barrier.wait(timeout=60)
            work(number)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
    assert not any(thread.is_alive() for thread in threads), "a thread hangs"
    if failures:
        raise failures[0]


def same(got: Any, expected: Any) -> None:
    if isinstance(expected, torch.Tensor):
        assert torch.equal(got, expected)
    elif isinstance(expected, list | tuple):
        assert type(got) is type(expected) and len(got) == len(expected)
        for one, other in zip(got, expected, strict=True):
            same(one, other)
    else:
        assert got == expected


@pytest.mark.filterwarnings("ignore::stator.base.errors.FallbackWarning")
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_cold_and_hot(function: Callable[..., Any]) -> None:
    for _ in range(3):
        compiled = stator.compile(function, backend="eager", dynamic=False)

        def work(number: int, compiled: Callable[..., Any] = compiled) -> None:
            for turn in range(30):
                x = torch.randn(2 + (number + turn) % 4)
                n = 1 + turn % 2
                same(compiled(x, n), function(x, n))
                assert torch.is_grad_enabled()

        together(work)
        together(work)
        stator.reset()


@pytest.mark.filterwarnings("ignore::stator.base.errors.FallbackWarning")
def test_reset_while_others_call() -> None:
    compiled = stator.compile(breaking, backend="eager", dynamic=False)

    def work(number: int) -> None:
        for turn in range(40):
            x = torch.randn(2 + turn % 3)
            same(compiled(x, 2), breaking(x, 2))
            if number == 0 and turn % 10 == 0:
                stator.reset()

    together(work)


@pytest.mark.filterwarnings("ignore::stator.base.errors.FallbackWarning")
def test_modes_belong_to_the_thread() -> None:
    compiled = stator.compile(breaking, backend="eager", dynamic=False)

    def work(number: int) -> None:
        with torch.set_grad_enabled(number % 2 == 0):
            for _ in range(30):
                x = torch.randn(3, requires_grad=True)
                got, expected = compiled(x, 2), breaking(x, 2)
                same(got, expected)
                assert got[0].requires_grad is expected[0].requires_grad is (number % 2 == 0)

    together(work)


def stack_of_transforms() -> int | None:
    """Where PyTorch has this thread's stack of transforms of torch.func; None where it has not made one."""
    libraries = Path(torch.__file__).parent / "lib"
    library = ctypes.CDLL(str(next(libraries.glob("libtorch_cpu.*"))))
    accessor = library._ZN2at9functorch20functorchTLSAccessorEv
    accessor.restype = ctypes.c_void_p
    return ctypes.c_void_p.from_address(accessor()).value


def test_calls_leave_no_stack_of_transforms_behind() -> None:
    """Each backward pass of the thread would copy it, in eager too."""
    found: list[int | None] = []

    def run() -> None:
        found.append(stack_of_transforms())
        compiled, x = stator.compile(straight), torch.randn(8, requires_grad=True)
        for _ in range(3):
            compiled(x, 2).sum().backward()
        found.append(stack_of_transforms())
        torch.vmap(torch.sin)(x)
        found.append(stack_of_transforms())

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert found[:2] == [None, None] and found[2] is not None
