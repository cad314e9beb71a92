"""Errors of a program's data: raised or handled, everything that can be reached is as eager leaves it."""

from __future__ import annotations

import contextlib
import gc
import random
import traceback
import weakref
from typing import Any

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import stator
from stator.base import faults
from tests.capture import data_errors

BACKENDS = ["inductor", "aot_eager", "eager"]
W = torch.arange(4.0)


@pytest.mark.parametrize(("backend", "seeds"), [("eager", 40), ("aot_eager", 40), ("inductor", 5)])
def test_random_programs(backend: str, seeds: int) -> None:
    for seed in range(4000, 4000 + seeds):
        text = data_errors.program(random.Random(seed))
        assert not data_errors.differences(text, backend, seed), f"seed {seed}{text}"


@pytest.mark.parametrize(("backend", "seeds"), [("eager", 60), ("aot_eager", 40), ("inductor", 5)])
def test_random_programs_that_eager_refuses(backend: str, seeds: int) -> None:
    for seed in range(5000, 5000 + seeds):
        text = data_errors.program(random.Random(seed), refused=True)
        assert not data_errors.differences(text, backend, seed, data_errors.ROWS), f"seed {seed}{text}"


def test_random_programs_meet_errors() -> None:
    """The run above is not empty: half of the programs raise, others handle what is raised."""
    met = handled = 0
    for seed in range(4000, 4040):
        text = data_errors.program(random.Random(seed))
        namespace: dict[str, Any] = {"torch": torch}
        exec(text, namespace)
        raised = [
            isinstance(call[0], tuple) and call[0][0] is IndexError for call in data_errors.run(namespace["f"], 0)
        ]
        met += any(raised)
        handled += "except" in text and not any(raised)
    assert met >= 20 and handled >= 5


def seen(function: Any, *args: Any) -> Any:
    """The result or exception of a call, and the arguments after it."""
    given = [arg.clone() if isinstance(arg, torch.Tensor) else arg for arg in args]
    torch.manual_seed(3)
    try:
        result = function(*given)
    except Exception as error:
        result = type(error), str(error), [frame.name for frame in traceback.extract_tb(error.__traceback__)][-1]
    kept = [(arg.tolist(), arg._version) if isinstance(arg, torch.Tensor) else arg for arg in given]
    return str(result), kept, torch.rand(()).item()


def handled_after_a_write(a: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    a.add_(1)
    try:
        return W[i]
    except IndexError:
        return a * 10


def written_and_checked_at_once(a: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    a.add_(W[i])
    return a @ a


def used_before_and_after(a: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    a.mul_(2)
    y = torch.mm(a.view(1, -1), a.view(-1, 1))
    a.add_(1)
    return W[i] * y + a


def scattered(a: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    a.index_add_(0, i, torch.ones(2))
    a[i] = 3
    return a.cumsum(0)


def drawn(a: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    noise = torch.rand(3)
    a.sub_(noise.mean())
    return W[i].sum() + torch.randn(2) * 0 + a


def raised_again(a: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    a.add_(1)
    try:
        return W[i]
    except IndexError as error:
        a.mul_(3)
        raise KeyError(str(error)) from None
    finally:
        a.sub_(0.5)


def recovered_in_a_loop(a: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    total = a.sum()
    for row in i:
        try:
            total = total + W[row.view(1)].sum()
        except IndexError:
            a.add_(100)
    return total


PROGRAMS = [
    handled_after_a_write, written_and_checked_at_once, used_before_and_after, scattered, drawn, raised_again,
    recovered_in_a_loop,
]  # fmt: skip


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_what_a_data_error_leaves(program: Any, backend: str) -> None:
    options = {"strict": True} if backend == "eager" else {"strict": True, "eager_random": True}
    compiled = stator.compile(program, backend=backend, options=options)
    for positions in ([0, 1], [1, 7], [-9, 0], [3, 2]):
        args = torch.tensor([0.5, 2.0]), torch.tensor(positions)
        assert seen(compiled, *args) == seen(program, *args)


@pytest.mark.parametrize("backend", BACKENDS)
def test_random_state_without_eagers_numbers(backend: str) -> None:
    """After a call that failed the generator stands where eager leaves it: what compiled code has drawn is put back."""
    compiled = stator.compile(drawn, backend=backend)
    compiled(torch.ones(2), torch.tensor([0, 1]))
    args = torch.ones(2), torch.tensor([0, 9])
    assert seen(compiled, *args) == seen(drawn, *args)


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("backend", BACKENDS)
def test_sizes_that_do_not_fit_later(backend: str, dynamic: bool | None) -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return (x * 2) @ (y + 1)

    compiled = stator.compile(program, backend=backend, dynamic=dynamic, options={"strict": True})
    for left, right in ((3, 3), (4, 4), (5, 6), (7, 7), (8, 3)):
        args = torch.ones(2, left), torch.ones(right, 2)
        assert seen(compiled, *args) == seen(program, *args)


def test_numbers_that_no_operator_takes_are_the_programs_error() -> None:
    """Compiling meets the error first; that is no fault, and later calls are compiled."""
    compiled = stator.compile(lambda x, a: x.masked_fill(x > 0, a))
    before = faults.total()
    for number in (0.5, 0.25, 1e300, -1e300, 2.0):
        x = torch.ones(3)
        if abs(number) > 1e38:
            with pytest.raises(RuntimeError, match="without overflow"):
                compiled(x, number)
        else:
            assert compiled(x, number).tolist() == [number] * 3
    assert faults.total() == before


@pytest.mark.parametrize("backend", BACKENDS)
def test_running_statistics(backend: str) -> None:
    """Batch norm writes them without telling autograd, and a check comes after."""

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = torch.nn.BatchNorm1d(4)
            self.calls = 0

        def forward(self, x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            return self.norm(x)[i]

    def states(function: Any, model: Model) -> list[Any]:
        found: list[Any] = []
        for positions in ([0, 1], [0, 9], [1, 1], [7, 0]):
            try:
                result: Any = function(torch.arange(8.0).view(2, 4), torch.tensor(positions)).tolist()
            except IndexError as error:
                result = str(error)
            found.append((result, model.calls, {name: value.tolist() for name, value in model.state_dict().items()}))
        return found

    plain, other = Model(), Model()
    got, want = states(stator.compile(other, backend=backend), other), states(plain, plain)
    for mine, theirs in zip(got, want, strict=True):
        assert mine[1] == theirs[1] and type(mine[0]) is type(theirs[0])
        assert isinstance(mine[0], str) <= (mine[0] == theirs[0])
        for name, value in theirs[2].items():
            torch.testing.assert_close(torch.tensor(mine[2][name]), torch.tensor(value))


# -- code of the program inside of graphs ---------------------------------------------------------------------

RUNS: list[str] = []


@torch.library.custom_op("stator_tests::picky", mutates_args=())
def picky(x: torch.Tensor) -> torch.Tensor:
    RUNS.append("picky")
    if float(x.sum()) > 10:
        raise ValueError("too much")
    return x * 2


@torch.library.custom_op("stator_tests::note", mutates_args=())
def note(x: torch.Tensor) -> None:
    RUNS.append("note")


picky.register_fake(torch.empty_like)
note.register_fake(lambda x: None)


def calls_an_operator(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    return torch.ops.stator_tests.picky(x).sin()


def calls_one_after_a_check(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    y = W[i].sin()
    torch.ops.stator_tests.note(x)
    return torch.ops.stator_tests.picky(y) + x


def calls_one_before_a_check(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    torch.ops.stator_tests.note(x)
    return W[i] + x


def handles_its_error(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    try:
        return torch.ops.stator_tests.picky(x).sin()
    except ValueError:
        return x * 100


@pytest.mark.parametrize("program", [calls_an_operator, calls_one_after_a_check, calls_one_before_a_check])
def test_operators_of_the_program_run_once(program: Any) -> None:
    compiled = stator.compile(program, options={"strict": True})
    for first, positions in ((1.0, [0, 1]), (100.0, [0, 1]), (1.0, [0, 9]), (2.0, [3, 3])):
        args = torch.tensor([first, 1.0]), torch.tensor(positions)
        RUNS.clear()
        want, ran = seen(program, *args), list(RUNS)
        RUNS.clear()
        assert seen(compiled, *args) == want and ran == RUNS


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_error_of_an_operator_that_the_program_handles(backend: str) -> None:
    compiled = stator.compile(handles_its_error, backend=backend, options={"strict": True})
    for first in (1.0, 100.0, 3.0):
        args = torch.tensor([first, 1.0]), torch.tensor([0, 1])
        assert seen(compiled, *args) == seen(handles_its_error, *args)


@pytest.mark.parametrize(
    ("function", "args"),
    [
        (torch.linalg.inv, (torch.ones(2, 2),)),
        (torch.linalg.cholesky, (-torch.eye(2),)),
        (torch.take, (torch.ones(2), torch.tensor([5]))),
        (torch.nn.functional.embedding, (torch.tensor([5]), torch.ones(2, 2))),
        (torch.floor_divide, (torch.tensor([3]), torch.tensor([0]))),
    ],
)
@pytest.mark.parametrize("backend", BACKENDS)
def test_functions_of_torch_by_themselves(backend: str, function: Any, args: Any) -> None:
    """No frame of the program raises there."""
    with pytest.raises(Exception) as expected:
        function(*args)
    with pytest.raises(type(expected.value)):
        stator.compile(function, backend=backend, options={"strict": True})(*args)


@pytest.mark.parametrize("backend", BACKENDS)
def test_hooks_on_saved_tensors_run_once(backend: str) -> None:
    packed: list[int] = []

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        packed.append(1)
        raise KeyError("pack")

    compiled = stator.compile(lambda x: (x @ x).sin(), backend=backend)
    for count in (1, 2):
        with (
            torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor),
            pytest.raises(KeyError, match="pack"),
        ):
            compiled(torch.ones(2, 2, requires_grad=True))
        assert len(packed) == count


@pytest.mark.parametrize("backend", BACKENDS)
def test_data_errors_under_a_checkpoint(backend: str) -> None:
    def block(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        return (torch.tanh(x @ x) * W[i]).sin() @ x

    def step(function: Any, positions: list[int]) -> Any:
        x = torch.full((4, 4), 0.3, requires_grad=True)
        try:
            checkpoint(function, x, torch.tensor(positions), use_reentrant=False).sum().backward()
        except IndexError as error:
            return str(error)
        return x.grad

    compiled = stator.compile(block, backend=backend, options={"strict": True})
    for positions in ([0, 1, 2, 3], [0, 1, 2, 9], [3, 3, 1, 0]):
        got, want = step(compiled, positions), step(block, positions)
        assert got == want if isinstance(want, str) else torch.allclose(got, want)


@pytest.mark.usefixtures("few_objects")
@pytest.mark.parametrize("backend", BACKENDS)
def test_nothing_outlives_a_data_error(backend: str) -> None:
    """What the caller's frames hold, such as the hooks of a checkpoint, goes when the exception does, not when the
    garbage collector runs."""

    def f(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        return (x * W[i]).sin()

    def attempt(positions: list[int]) -> weakref.ref[torch.Tensor]:
        x = torch.ones(2)
        with contextlib.suppress(IndexError):
            compiled(x, torch.tensor(positions))
        return weakref.ref(x)

    compiled = stator.compile(f, backend=backend, options={"strict": True})
    attempt([0, 1])
    gc.collect()
    gc.disable()
    try:
        assert [attempt([0, 9])() for _ in range(3)] == [None] * 3
    finally:
        gc.enable()
