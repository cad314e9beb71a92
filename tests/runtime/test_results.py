"""Large results take the memory of earlier ones that the program has let go of, and are ordinary tensors."""

from __future__ import annotations

import copy
import io
import os
import pickle
import resource
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

import stator
from stator._native import results_bytes
from stator.runtime import arena

#: A large result: 4 MiB.
SHAPE = (1024, 1024)
BYTES = 4 << 20


def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2.0


@pytest.fixture(scope="module")
def double() -> Callable[[torch.Tensor], torch.Tensor]:
    compiled = stator.compile(doubled, fullgraph=True, options={"strict": True})
    compiled(X)  # of which nothing is remembered
    return compiled


@pytest.fixture(autouse=True)
def nothing_kept() -> Iterator[None]:
    arena.release()
    yield
    arena.release()


X = torch.ones(SHAPE)
Double = Callable[[torch.Tensor], torch.Tensor]


def test_memory_that_was_let_go_of_is_used_again(double: Double) -> None:
    made = double(X)
    address = made.data_ptr()
    other = double(X)
    assert other.data_ptr() != address
    del made
    assert results_bytes() == BYTES <= arena.held()
    again = double(X + 1)
    assert again.data_ptr() == address and address % 64 == 0
    assert torch.equal(again, torch.full(SHAPE, 4.0)) and torch.equal(other, torch.full(SHAPE, 2.0))
    assert again._version == 0 and not again._is_view() and again._base is None
    assert again.untyped_storage().resizable() and again.untyped_storage().nbytes() == BYTES


def test_of_a_first_call_nothing_is_remembered() -> None:
    fresh = stator.compile(doubled, fullgraph=True, options={"strict": True})
    fresh(X)
    assert results_bytes() == 0
    fresh(X)
    assert results_bytes() == BYTES


def test_memory_of_other_sizes_and_dtypes_is_not(double: Double) -> None:
    address = double(X).data_ptr()
    assert double(X[:, 1:].contiguous()).data_ptr() != address
    assert double(X.bfloat16()).dtype is torch.bfloat16
    assert double(X.double()[:512]).dtype is torch.float64  # as many bytes
    turned = double(X.view(512, 2048).t())
    assert turned.data_ptr() == address and turned.shape == (2048, 512) and turned.stride() == (1, 2048)


@pytest.mark.parametrize(
    "hold",
    [
        lambda made: made[3],
        lambda made: made.detach(),
        lambda made: made.data,
        lambda made: made.numpy(),
        lambda made: memoryview(made.numpy()),
        lambda made: made.untyped_storage(),
        lambda made: made.untyped_storage()._weak_ref(),
        lambda made: torch.utils.dlpack.to_dlpack(made),
        lambda made: torch.from_dlpack(made),
        lambda made: made.requires_grad_().exp().grad_fn,
        lambda made: torch.nn.Parameter(made),
        lambda made: torch.empty(0).set_(made.untyped_storage(), 0, SHAPE),
        lambda made: torch._lazy_clone(made),
    ],
)  # fmt: skip
def test_memory_that_somebody_holds_is_not(double: Double, hold: Callable[[torch.Tensor], object]) -> None:
    made = double(X)
    address = made.data_ptr()
    held = hold(made)
    del made
    again = double(X + 1)
    assert again.data_ptr() != address
    assert held is not None
    if isinstance(held, torch.Tensor):
        assert bool((held == 2).all())


@pytest.mark.parametrize(
    "change",
    [
        torch.Tensor.share_memory_,
        lambda made: made.resize_(4096, 1024),
        lambda made: made.untyped_storage().resize_(2 * BYTES),
        lambda made: made.untyped_storage().resize_(0),
        lambda made: torch.save(made, io.BytesIO()),
        copy.deepcopy,
    ],
)  # fmt: skip
def test_memory_that_was_replaced_is_forgotten(double: Double, change: Callable[[torch.Tensor], object]) -> None:
    made = double(X)
    change(made)
    del made
    others = [double(X) for _ in range(2)]  # the second is remembered after what is spoiled was let go of
    assert all(torch.equal(other, torch.full(SHAPE, 2.0)) for other in others)
    others.clear()
    assert results_bytes() == 2 * BYTES


def test_results_behave_as_eagers_do(double: Double) -> None:
    double(X)
    made = double(X)  # in the memory of the first
    grown = made.resize_(2048, 1024)
    assert grown.shape == (2048, 1024) and bool((grown[:1024] == 2).all())
    made = double(X)
    assert torch.equal(pickle.loads(pickle.dumps(made)), made) and torch.equal(copy.deepcopy(made), made)
    made.add_(1)
    assert made._version == 1 and float(made.sum()) == 3.0 * made.numel()
    first, second = double(X), double(X + 1)
    torch.utils.swap_tensors(first, second)
    assert float(first[0, 0]) == 4.0 and float(second[0, 0]) == 2.0
    first.set_(second)
    assert first.data_ptr() == second.data_ptr()
    first.untyped_storage().resize_(0)
    assert second.untyped_storage().nbytes() == 0


def test_under_inference_mode_and_outside(double: Double) -> None:
    with torch.inference_mode():
        double(X)  # another graph
        made = double(X)
        address = made.data_ptr()
        assert made.is_inference()
        del made
    made = double(X)
    assert not made.is_inference()
    assert (made.fill_(2.0).requires_grad_() * 2).sum().grad_fn is not None
    del made
    with torch.inference_mode():
        made = double(X)
        assert made.is_inference() and made.data_ptr() == address


def test_no_more_is_kept_than_a_part_of_what_the_process_had(double: Double) -> None:
    for rows in range(1024, 1024 + 300, 4):
        double(torch.ones(rows, 1024))
        assert results_bytes() <= resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 // 4
    assert results_bytes() > BYTES
    arena.release()
    assert results_bytes() == 0


def test_what_the_program_keeps_makes_way_in_the_end(double: Double) -> None:
    kept = [double(X) for _ in range(100)]
    for _ in range(5):
        double(X)
    double(X)
    assert results_bytes() >= BYTES
    assert all(bool((one == 2).all()) for one in kept)


def test_threads_share_none_and_let_go_of_each_others(double: Double) -> None:
    wrong: list[int] = []
    handed: list[torch.Tensor] = []
    double(X)

    def use(number: int) -> None:
        x, expected = torch.full(SHAPE, float(number)), 2.0 * number
        for _ in range(40):
            made = double(x)
            wrong.extend([number] * bool((made != expected).any()))
            handed.append(made)
            while len(handed) > 3:
                handed.pop(0)
            wrong.extend([number] * bool((made != expected).any()))

    threads = [threading.Thread(target=use, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_child_has_memory_of_its_own(double: Double) -> None:
    address = double(X).data_ptr()
    kept = double(X)
    del kept
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        torch.set_num_threads(1)  # OpenMP waits for the parent's threads otherwise, which are not in the child
        made = torch.full(SHAPE, 7.0)
        os.write(write, b"ok" if results_bytes() == BYTES and float(made[5, 5]) == 7 else b"no")
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert os.read(read, 2) == b"ok"
    assert double(X).data_ptr() == address


def test_at_exit_nothing_is_in_the_way() -> None:
    text = (
        "import atexit, stator, torch\n"
        "f = stator.compile(lambda x: x * 2)\n"
        "x = torch.ones(1024, 1024)\n"
        "kept = f(x); f(x)\n"
        "atexit.register(lambda: print(float(f(x)[0, 0] + kept[0, 0])))\n"
    )
    root = Path(stator.__file__).parents[1]
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True, cwd=root)
    assert done.stdout == "4.0\n" and not done.stderr


def test_the_switch() -> None:
    fresh = stator.compile(doubled, fullgraph=True, options={"reuse_results": False, "strict": True})
    fresh(X)
    fresh(X)
    assert results_bytes() == 0


def test_results_that_backward_needs() -> None:
    step = stator.compile(lambda x: x.exp(), dynamic=False)
    x, y = torch.randn(SHAPE, requires_grad=True), torch.randn(SHAPE, requires_grad=True)
    for _ in range(3):
        x.grad = y.grad = None
        total = step(x).sum()
        other = step(y).sum()  # the first result is saved, so it is not written over
        (total + other).backward()
        assert x.grad is not None and torch.allclose(x.grad, x.exp()) and torch.allclose(y.grad, y.exp())
