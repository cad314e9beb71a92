"""Graph breaks that resume: what runs for real, what goes on captured, and that nothing is lost or done twice."""

from __future__ import annotations

import contextlib
from typing import Any

import torch

import stator
from tests.capture.breaking import asserting, check, risky

X = torch.linspace(-1, 2, 6).reshape(2, 3)


def test_print() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        print("between", 3)
        return y + 1

    backend = check(fn, X, graphs=2)
    assert backend.graphs == 2 and backend.calls == 6


def test_print_in_an_inlined_call() -> None:
    def inner(x: torch.Tensor) -> torch.Tensor:
        x = x.sin()
        print("inner")
        return x.cos()

    def fn(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        return inner(y + 1) * y

    check(fn, X)


def test_break_at_the_start_and_at_the_end() -> None:
    def fn(x: torch.Tensor) -> float:
        print("start")
        return (x + 1).sum().item()

    check(fn, X, graphs=1)


def test_data_dependent_conditions() -> None:
    def fn(x: torch.Tensor) -> Any:
        y = x + 1
        if y.sum() > 0:
            y = y * 2
        while y.sum() < 50:
            y = y + 3
        z = y if (y > 0).all() else -y
        a = y.max() > 0 and y.min() < 0
        b = y.max() < 0 or y.min() < 5
        return y, z, a, b, 0 < y.max() < 10, not y.min()

    check(fn, X)
    check(fn, -X)


def test_assert_on_a_tensor() -> None:
    check(asserting, X.abs(), graphs=1)
    check(asserting, -X.abs())


def test_item_tolist_int() -> None:
    def fn(x: torch.Tensor) -> Any:
        a = (x * 2).sum()
        n = int(a)
        y = x + n
        return y, y.tolist(), float(y[0, 0]), y.sum().item() + 1

    check(fn, X)


def test_numpy_round_trip() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        y = (x * 2).numpy()
        return torch.from_numpy(y + 1) * x

    check(fn, X)


def test_loops() -> None:
    def fn(x: torch.Tensor) -> Any:
        out = []
        for i in [1, 2, 3]:
            x = x + i
            print("list", i)
        for i in (1, 2):
            x = x * i
            print("tuple", i)
        for key, value in {"a": 1, "b": 2}.items():
            x = x - value
            print(key)
            out.append(key)
        for key in {"a": 1, "b": 2}:
            x = x + 1
            print(key)
        for i in range(3):
            x = x + i
            print("range", i)
        for i, v in enumerate([x, x + 1]):
            x = x + v
            print("enumerate", i)
        for a, b in zip([1, 2], (x, x), strict=True):
            x = x + a * b
            print("zip", a)
        for i in reversed([1, 2]):
            x = x + i
            print("reversed", i)
        for i in map(abs, [-2, 3]):
            x = x + i
            print("map", i)
        return x, out

    check(fn, X)


def test_loop_over_a_generator() -> None:
    def numbers(n: int) -> Any:
        for i in range(n):
            print("made", i)
            yield i

    def fn(x: torch.Tensor) -> torch.Tensor:
        y = x.sin()
        for i in numbers(3):
            y = y + i
            print("used", i)
        return y * 2

    check(fn, X)


def test_the_list_that_is_iterated_grows() -> None:
    def fn(x: torch.Tensor) -> Any:
        items = [1]
        for i in items:
            x = x + i
            print(i)
            if len(items) < 4:
                items.append(i + 1)
        return x, items

    check(fn, X)


def test_for_else_continue_break() -> None:
    def fn(x: torch.Tensor, stop: int) -> torch.Tensor:
        for i in range(4):
            if i == 1:
                continue
            x = x + i
            print(i)
            if i == stop:
                break
        else:
            print("else")
            x = x * 2
        return x + 1

    check(fn, X, 2)
    check(fn, X, 9)


def test_many_rounds() -> None:
    def fn(x: torch.Tensor, rounds: list[int]) -> torch.Tensor:
        for _ in rounds:
            x = x + 1
            stator.graph_break()
        return x

    backend = check(fn, X, [0] * 5000, calls=2)
    assert backend.graphs < 5


def test_with_blocks() -> None:
    class Scope:
        def __init__(self, log: list[Any], swallow: bool = False) -> None:
            self.log, self.swallow = log, swallow

        def __enter__(self) -> Any:
            self.log.append("enter")
            return self

        def __exit__(self, kind: Any, error: Any, trace: Any) -> bool:
            self.log.append(("exit", kind, str(error), trace is not None))
            return self.swallow

    def fn(x: torch.Tensor, fail: bool, swallow: bool) -> Any:
        log: list[Any] = []
        with Scope(log, swallow) as scope:
            x = x + 1
            print("inside", scope is not None)
            x = x * 2
            if fail:
                raise ValueError("failed")
        return x + 1, log

    check(fn, X, False, False)
    check(fn, X, True, True)
    check(fn, X, True, False)


@contextlib.contextmanager
def announced(name: str) -> Any:
    print("enter", name)
    try:
        yield name
    finally:
        print("leave", name)


def test_contextlib() -> None:
    def fn(x: torch.Tensor, fail: bool) -> torch.Tensor:
        with announced("a") as name, announced("b"):
            x = x + 1
            print("inside", name)
            if fail:
                raise KeyError(name)
            x = x * 2
        return x + 1

    check(fn, X, False)
    check(fn, X, True)


def test_grad_modes() -> None:
    def fn(x: torch.Tensor, w: torch.Tensor) -> Any:
        with torch.no_grad():
            y = x * w
            print(torch.is_grad_enabled(), y.requires_grad)
            z = y * w
            with torch.enable_grad():
                u = z * w
                print(torch.is_grad_enabled(), u.requires_grad)
                v = u * w
        return (y.requires_grad, z.requires_grad, u.requires_grad, v.requires_grad), v * w

    check(fn, X, torch.ones(3, requires_grad=True))


def test_autocast() -> None:
    def fn(x: torch.Tensor) -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = x @ x.t()
            print(y.dtype, torch.is_autocast_enabled("cpu"))
            z = y.float() @ x
        return y, z, x @ x.t()

    check(fn, X)


def test_try_handled() -> None:
    def fn(x: torch.Tensor, table: dict[str, int]) -> Any:
        y = x + 1
        try:
            y = y * 2
            value = int(print("looking") or table["key"])
            y = y * value
        except KeyError as error:
            print("missing", error, error.__traceback__ is not None)
            y = y - 1
        else:
            print("found")
            y = y + 10
        finally:
            print("finally")
            y = y + 1
        return y * 2

    check(fn, X, {"key": 3})
    check(fn, X, {})


def test_the_offending_instruction_raises() -> None:
    def fn(x: torch.Tensor, n: int) -> Any:
        y = x + 1
        try:
            y = y * risky(n)
        except ValueError as error:
            y = y - 1
            saved = str(error), error.args
            print("handled", saved)
            y = y * 3
            return y, saved
        return y + 1

    check(fn, X, 1)
    check(fn, X, 2)


def test_not_handled() -> None:
    def fn(x: torch.Tensor, n: int) -> torch.Tensor:
        y = x + 1
        return y * risky(n)

    check(fn, X, 2)


def test_bare_raise_and_context() -> None:
    def fn(x: torch.Tensor, how: str) -> torch.Tensor:
        y = x + 1
        try:
            y = y * risky(5)
        except ValueError as error:
            y = y * 2
            print("caught")
            if how == "bare":
                raise
            if how == "other":
                raise KeyError("other")  # noqa: B904
            if how == "from":
                raise KeyError("from") from error
            if how == "none":
                raise KeyError("none") from None
        return y + 1

    for how in ("bare", "other", "from", "none", "pass"):
        check(fn, X, how)


def test_raised_and_handled_in_the_program() -> None:
    def fn(x: torch.Tensor) -> Any:
        y = x + 1
        try:
            raise ValueError("mine")
        except ValueError as error:
            print("caught", error, error.__traceback__ is not None)
            y = y * 2
        try:
            try:
                raise KeyError("inner")
            finally:
                print("finally")
                y = y + 1
        except KeyError as error:
            print("outer", repr(error))
        return y

    check(fn, X)


def test_nested_handlers() -> None:
    def fn(x: torch.Tensor) -> Any:
        try:
            risky(2)
        except ValueError as first:
            try:
                risky(3)
            except ValueError as second:
                print(first, second, second.__context__ is first)
                x = x + 1
                print("still")
            x = x * 2
            print(first)
        return x * 3

    check(fn, X)
