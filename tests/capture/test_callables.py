"""What can be compiled, called wrongly, called by several threads, nested, raised through and thrown away."""

from __future__ import annotations

import asyncio
import copy
import functools
import gc
import pickle
import random
import sys
import threading
import traceback
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import stator
from stator.base.errors import CaptureError, FallbackWarning
from stator.capture.entry import versions_of
from tests.capture.changing import compare, outcome

quiet = pytest.mark.filterwarnings("ignore::stator.base.errors.FallbackWarning")

eager = functools.partial(stator.compile, backend="eager", options={"strict": True})


def x() -> torch.Tensor:
    return torch.arange(6.0).reshape(2, 3) + 0.5


def double(y: torch.Tensor, by: float = 2.0) -> torch.Tensor:
    return y * by


class Owner:
    by = 3.0

    def method(self, y: torch.Tensor) -> torch.Tensor:
        return y * self.by

    @eager
    def decorated(self, y: torch.Tensor) -> torch.Tensor:
        return y * self.by

    @staticmethod
    @eager
    def static(y: torch.Tensor) -> torch.Tensor:
        return y * 2

    @classmethod
    @eager
    def of_class(cls, y: torch.Tensor) -> torch.Tensor:
        return y * cls.by

    def __call__(self, y: torch.Tensor) -> torch.Tensor:
        return y - self.by


class Sub(Owner):
    by = 5.0

    def decorated(self, y: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return super().decorated(y) + 1  # type: ignore[no-any-return]


CALLABLES: list[tuple[Any, Any]] = [
    (eager(double), double),
    (eager(lambda y: y * 2), lambda y: y * 2),
    (eager(Owner().method), Owner().method),
    (Owner().decorated, Owner().method),
    (Sub().decorated, lambda y: y * 5 + 1),
    (eager(Sub().decorated), lambda y: y * 5 + 1),
    (Owner.static, lambda y: y * 2),
    (Owner().static, lambda y: y * 2),
    (Owner.of_class, lambda y: y * 3),
    (Sub.of_class, lambda y: y * 5),
    (eager(Owner()), Owner()),
    (eager(functools.partial(double, by=7.0)), functools.partial(double, by=7.0)),
    (functools.partial(eager(double), by=7.0), functools.partial(double, by=7.0)),
    (eager(functools.partialmethod(double, 7.0).__get__(x(), torch.Tensor)), lambda: x() * 7),
    (eager(eager(double)), double),
    (eager(nn.Tanh()), nn.Tanh()),
    (eager(nn.Tanh().forward), nn.Tanh().forward),
    (eager(torch.relu), torch.relu),
    (torch.no_grad()(eager(double)), double),
    (eager(torch.no_grad()(double)), torch.no_grad()(double)),
    (eager(torch.inference_mode()(double)), torch.inference_mode()(double)),
]


@quiet
@pytest.mark.parametrize("index", range(len(CALLABLES)))
def test_callable(index: int) -> None:
    compiled, plain = CALLABLES[index]
    args = () if index == 13 else (x(),)
    for _ in range(2):
        compare(compiled(*args), plain(*args))


WRONG: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    ((), {}), ((x(), 1.0, 2.0), {}), ((x(),), {"other": 1}), ((x(),), {"y": 1}), ((), {"by": 1}),
]  # fmt: skip


@pytest.mark.parametrize(("args", "kwargs"), WRONG)
@pytest.mark.parametrize("of", [lambda: double, lambda: Owner().method, lambda: nn.Linear(3, 3), lambda: lambda y: y])
def test_wrong_arguments(of: Callable[[], Any], args: Any, kwargs: Any) -> None:
    plain = of()
    compiled = eager(plain)
    for _ in range(2):
        found, expected = outcome(compiled, args, kwargs), outcome(plain, args, kwargs)
        assert type(found) is type(expected) and str(found) == str(expected)


@quiet
def test_generators_and_coroutines_are_left_alone() -> None:
    @eager
    def generator(y: torch.Tensor) -> Any:
        yield y * 2
        yield y * 3

    assert [item.sum().item() for item in generator(x())] == [(x() * 2).sum().item(), (x() * 3).sum().item()]

    @eager
    async def coroutine(y: torch.Tensor) -> torch.Tensor:
        await asyncio.sleep(0)
        return y * 2

    compare(asyncio.run(coroutine(x())), x() * 2)

    @eager
    async def stream(y: torch.Tensor) -> Any:
        yield y * 2

    async def first() -> Any:
        async for item in stream(x()):
            return item

    compare(asyncio.run(first()), x() * 2)


def test_disabled_after_compiling() -> None:
    calls: list[int] = []

    def fn(y: torch.Tensor) -> torch.Tensor:
        if not stator.is_compiling():
            calls.append(1)
        return y * 2

    compiled = eager(fn)
    left = stator.disable(compiled)
    compare(left(x()), x() * 2)
    assert calls == [1] and versions_of(compiled) == []
    compare(compiled(x()), x() * 2)
    assert len(versions_of(compiled)) == 1


def test_a_disabled_compiled_module() -> None:
    module = nn.Linear(3, 3)
    compiled = eager(module)
    stator.disable(compiled)
    for _ in range(2):
        compare(compiled(x()), module(x()))
    assert not isinstance(compiled.forward, type(eager(double)))


def test_a_disabled_compiled_method() -> None:
    owner = Owner()
    left = stator.disable(owner.decorated)
    compare(left(x()), owner.method(x()))
    assert versions_of(vars(Owner)["decorated"]) == versions_of(owner.decorated)


# -- recursion and exceptions ----------------------------------------------------------------------------


@quiet
def test_recursion() -> None:
    def power(y: torch.Tensor, n: int) -> torch.Tensor:
        return y if n == 0 else power(y, n - 1) * 1.5

    compiled = eager(power)
    for depth in (1, 5, 60, 300):
        compare(compiled(x(), depth), power(x(), depth))


@quiet
def test_a_compiled_function_that_calls_itself() -> None:
    @eager
    def power(y: torch.Tensor, n: int) -> torch.Tensor:
        return y if n == 0 else power(y, n - 1) * 2

    compare(power(x(), 6), x() * 64)


@quiet
def test_endless_recursion_is_pythons_error() -> None:
    def endless(y: torch.Tensor) -> torch.Tensor:
        return endless(y + 1)

    with pytest.raises(RecursionError):
        eager(endless)(x())


@quiet
def test_near_the_recursion_limit() -> None:
    def deep(y: torch.Tensor, n: int) -> Any:
        return y * 2 if n == 0 else deep(y, n - 1)

    def handled(y: torch.Tensor) -> Any:
        try:
            return deep(y, 90)
        except RecursionError:
            return "too deep"

    before = sys.getrecursionlimit()
    compiled = eager(handled)
    limit = len(traceback.extract_stack()) + 260
    sys.setrecursionlimit(limit)
    try:
        found, expected = compiled(x()), handled(x())
    finally:
        sys.setrecursionlimit(before)
    compare(found, expected)


class Odd(Exception):
    def __init__(self, code: int, *, why: str) -> None:
        super().__init__(f"{why} ({code})")
        self.code = code


def raises_odd(y: torch.Tensor) -> torch.Tensor:
    z = y * 2
    if z.shape[0] == 2:
        raise Odd(3, why="odd")
    return z


@pytest.mark.parametrize("fullgraph", [False, True])
def test_exceptions_are_the_programs_own(fullgraph: bool) -> None:
    compiled = stator.compile(raises_odd, backend="eager", fullgraph=fullgraph)
    for _ in range(2):
        with pytest.raises(Odd, match=r"odd \(3\)") as caught:
            compiled(x())
        assert caught.value.code == 3 and caught.value.__context__ is None and caught.value.__cause__ is None
        frames = traceback.extract_tb(caught.value.__traceback__)
        assert frames[-1].name == "raises_odd" and frames[-1].line == 'raise Odd(3, why="odd")'


def test_errors_of_the_graph_have_the_users_line() -> None:
    def fn(y: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        z = y + 1
        return z[i]

    compiled = eager(fn)
    compare(compiled(x(), torch.tensor([1])), x()[1:] + 1)
    with pytest.raises(IndexError) as caught:
        compiled(x(), torch.tensor([9]))
    frames = traceback.extract_tb(caught.value.__traceback__)
    assert frames[-1].line == "return z[i]" and caught.value.__context__ is None


# -- nesting, threads ------------------------------------------------------------------------------------


def test_compiled_in_compiled() -> None:
    inner = eager(double)

    @eager
    def outer(y: torch.Tensor) -> torch.Tensor:
        return inner(y, 3.0) + inner(y)

    compare(outer(x()), x() * 3 + x() * 2)
    assert len(versions_of(outer)) == 1 and versions_of(inner) == []
    compare(inner(x()), x() * 2)


@quiet
def test_compiled_called_below_a_break() -> None:
    inner = eager(double)

    @eager
    def outer(y: torch.Tensor) -> torch.Tensor:
        stator.graph_break()
        return inner(y) + 1

    compare(outer(x()), x() * 2 + 1)
    compare(outer(x()), x() * 2 + 1)
    assert not versions_of(inner), "what comes after the break is captured with what it calls"


def test_threads_at_the_first_call() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList([nn.Linear(3, 3) for _ in range(5)])

        def forward(self, y: torch.Tensor, by: float) -> torch.Tensor:
            for layer in self.layers:
                y = layer(y).relu()
            return y * by

    net = Net()
    compiled = eager(net)
    barrier = threading.Barrier(8)
    failures: list[BaseException] = []

    def work(index: int) -> None:
        try:
            barrier.wait()
            for turn in range(20):
                by = float((index + turn) % 3)
                with torch.set_grad_enabled(bool(index % 2)):
                    compare(compiled(x(), by), net(x(), by))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert gc.isenabled()


# -- what capture must not touch ---------------------------------------------------------------------------


def test_random_numbers_are_eagers() -> None:
    module = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5))

    def fn(y: torch.Tensor) -> torch.Tensor:
        return module(y) + torch.rand(3) + torch.randn_like(y) + torch.randint(0, 5, (3,))  # type: ignore[no-any-return]

    compiled = eager(fn)
    torch.manual_seed(0)
    expected = [fn(x()) for _ in range(3)]
    torch.manual_seed(0)
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].sum()  # type: ignore[union-attr]
    found = [compiled(x()) for _ in range(3)]
    compare(found, expected)
    assert random.getstate() == states[1] and np.random.get_state()[1].sum() == states[2]  # type: ignore[union-attr]


@quiet
def test_a_failed_capture_leaves_random_numbers_alone() -> None:
    def fn(y: torch.Tensor) -> torch.Tensor:
        z = torch.rand(3) + y
        stator.graph_break()
        return z + torch.rand(3)

    compiled = eager(fn)
    torch.manual_seed(0)
    expected = fn(x())
    torch.manual_seed(0)
    compare(compiled(x()), expected)


def test_identity_and_freshness_of_results() -> None:
    kept = [1, 2]

    @eager
    def fn(y: torch.Tensor, items: list[Any]) -> Any:
        z = y * 2
        return y, z, z, [z], [z], items, kept, {"a": items}, (y, [])

    value, items = x(), [3]
    first, second = fn(value, items), fn(value, items)
    for result in (first, second):
        assert result[0] is value and result[1] is result[2] and result[3][0] is result[1]
        assert result[3] is not result[4] and result[5] is items and result[6] is kept
        assert result[7]["a"] is items and result[8][0] is value
    assert first[1] is not second[1] and first[3] is not second[3] and first[7] is not second[7]
    assert first[8][1] is not second[8][1]


def test_tensors_are_freed() -> None:
    def fn(y: torch.Tensor, z: Any) -> Any:
        return y * 2 + z["a"], [y + 1]

    compiled = eager(fn)
    value, other = x(), x()
    result = compiled(value, {"a": other})
    dead = [weakref.ref(item) for item in (value, other, result[0], result[1][0])]
    del value, other, result
    assert [item() for item in dead] == [None] * 4


@pytest.mark.usefixtures("few_objects")
@quiet
def test_tensors_of_a_failed_capture_are_freed() -> None:
    def fn(y: torch.Tensor) -> Any:
        z = y * 2
        stator.graph_break()
        return z

    compiled = eager(fn)
    value = x()
    result = compiled(value)
    dead = [weakref.ref(item) for item in (value, result)]
    del value, result
    gc.collect()
    assert [item() for item in dead] == [None] * 2


@pytest.mark.usefixtures("few_objects")
def test_models_are_freed() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(3, 3)
            self.seen: list[int] = []

        def forward(self, y: torch.Tensor) -> torch.Tensor:
            self.seen.append(1)
            return self.linear(y)  # type: ignore[no-any-return]

    net = Net()
    compiled = eager(net)
    compiled(x())
    dead = weakref.ref(net), weakref.ref(net.linear.weight)
    del compiled, net
    gc.collect()
    gc.collect()  # code objects hide what they hold from the first
    assert [item() for item in dead] == [None, None]


@pytest.mark.usefixtures("few_objects")
def test_models_that_compile_themselves_are_freed_by_reset() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(3, 3)
            self.run = eager(self.work)

        def work(self, y: torch.Tensor) -> torch.Tensor:
            return self.linear(y)  # type: ignore[no-any-return]

        def forward(self, y: torch.Tensor) -> torch.Tensor:
            return self.run(y)  # type: ignore[no-any-return]

    net = Net()
    net(x())
    dead = weakref.ref(net), weakref.ref(net.linear.weight)
    stator.reset()
    del net
    gc.collect()
    assert [item() for item in dead] == [None, None]


@pytest.mark.usefixtures("few_objects")
def test_a_function_of_a_global_model_frees_it_after_reset() -> None:
    holder = [nn.Linear(3, 3)]

    @eager
    def fn(y: torch.Tensor) -> torch.Tensor:
        return holder[0](y)  # type: ignore[no-any-return]

    fn(x())
    dead = weakref.ref(holder[0])
    holder.clear()
    stator.reset()
    gc.collect()
    assert dead() is None


def test_copies_and_pickles_of_compiled_modules() -> None:
    module = nn.Sequential(nn.Linear(3, 3), nn.Tanh())
    compiled: Any = stator.compile(module, backend="eager")
    compiled(x())
    for other in (copy.deepcopy(compiled), pickle.loads(pickle.dumps(compiled))):
        compare(other(x()), module(x()))
        with torch.no_grad():
            other[0].weight.zero_()
        compare(other(x()), other._orig_mod(x()))
        assert not torch.equal(other(x()), module(x()))


# -- what is not captured says so --------------------------------------------------------------------------


def asks_for_grad(y: torch.Tensor) -> Any:
    made = (y * 2).detach().requires_grad_()
    return made, made * made


@pytest.mark.parametrize("fn", [asks_for_grad])
def test_gaps_are_clear(fn: Any) -> None:
    with pytest.raises(CaptureError) as caught:
        stator.compile(fn, backend="eager", fullgraph=True)(x().requires_grad_())
    assert caught.value.location is not None and caught.value.location[0] == __file__
    compiled = eager(fn)
    with pytest.warns(FallbackWarning):
        found = compiled(x().requires_grad_())
    compare(found, fn(x().requires_grad_()))


@quiet
def test_a_truth_of_numpy_with_a_tensor() -> None:
    def fn(x: torch.Tensor, n: Any) -> torch.Tensor:
        y = x.sin() * (n > 1)
        return (n < 1) * y.cos()

    compiled = eager(fn)
    x = torch.randn(5)
    for n in (np.float64(2.0), np.float64(0.5)):
        assert torch.equal(compiled(x, n), fn(x, n))
