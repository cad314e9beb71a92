"""Functions, closures, methods, decorators, exceptions, builtins: inlined as Python would run them."""

from __future__ import annotations

import contextlib
import contextvars
import functools
import inspect
import logging
import math
import os
import re
import typing
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import stator
from tests.capture.values.harness import capture, check, refused

COUNTER = 0
SCALE = {"factor": 2.0}
logger = logging.getLogger("stator.tests.values")


def x() -> torch.Tensor:
    return torch.arange(4.0)


def doubled(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs) * 2

    return wrapper


@doubled
def decorated(t: torch.Tensor, *, k: int = 3) -> Any:
    return t * k


@functools.lru_cache
def cached(n: int) -> int:
    return n * 10


@contextlib.contextmanager
def scope(seen: list[str], name: str) -> Iterator[str]:
    seen.append(f"enter {name}")
    try:
        yield name
    finally:
        seen.append(f"leave {name}")


def test_calls_and_defaults() -> None:
    def g(a: Any, b: Any = 2, *rest: Any, c: Any = 3, **named: Any) -> Any:
        return a, b, rest, c, named

    def f(t: torch.Tensor) -> Any:
        return g(t), g(1, 2, 3, t, c=4, d=5), g(*[1, 2], c=t + 1), decorated(t), decorated(t, k=1), cached(2)

    check(f, x())


def test_closures() -> None:
    def make(t: torch.Tensor) -> Any:
        count = 0

        def bump(by: int = 1) -> int:
            nonlocal count
            count += by
            return count

        return bump

    def f(t: torch.Tensor) -> Any:
        bump = make(t)
        bump()
        return bump(by=4), t + bump()

    check(f, x())


def test_a_closure_leaves_the_frame() -> None:
    def f(t: torch.Tensor) -> Any:
        u = t + 1

        def later(v: Any, w: Any = 2) -> Any:
            return u * v + w

        return later, u

    later, u = capture(f, x()).run(x())
    torch.testing.assert_close(later(3), u * 3 + 2)


def test_real_cells_are_written() -> None:
    total = 1

    def f(t: torch.Tensor) -> Any:
        nonlocal total
        total += 1
        return t * total

    captured = capture(f, x())
    torch.testing.assert_close(captured.run(x()), x() * 2)
    assert total == 2


def test_globals_are_written() -> None:
    def f(t: torch.Tensor) -> Any:
        global COUNTER
        COUNTER += 5
        return t + COUNTER

    captured = capture(f, x())
    assert COUNTER == 0
    captured.run(x())
    assert globals()["COUNTER"] == 5
    globals()["COUNTER"] = 0


def test_globals_are_guarded() -> None:
    def f(t: torch.Tensor) -> Any:
        return t * SCALE["factor"]

    assert any("SCALE" in guard and "2.0" in guard for guard in capture(f, x()).guards)


def test_exceptions() -> None:
    class Custom(ValueError):
        def __init__(self, code: int) -> None:
            super().__init__(f"code {code}")
            self.code = code

    def fail(code: int) -> None:
        raise Custom(code)

    def f(t: torch.Tensor) -> Any:
        notes: list[Any] = []
        try:
            fail(3)
        except Custom as error:
            notes += [error.code, str(error), error.args]
        finally:
            notes.append("done")
        try:
            try:
                raise KeyError("k")
            except KeyError as inner:
                raise RuntimeError("outer") from inner
        except RuntimeError as error:
            notes.append(repr(error))
        return notes, t + 1

    check(f, x())


def test_context_managers() -> None:
    def f(t: torch.Tensor) -> Any:
        seen: list[str] = []
        with scope(seen, "a") as name, contextlib.nullcontext(4) as four, contextlib.suppress(KeyError):
            t = t + four
            raise KeyError(name)
        return seen, t

    check(f, x())


def test_generators() -> None:
    def numbers(n: int) -> Iterator[int]:
        for i in range(n):
            got = yield i
            if got:
                yield got

    def f(t: torch.Tensor) -> Any:
        return [t * i for i in numbers(3)], sum(numbers(4)), dict(zip("ab", numbers(9), strict=False))

    check(f, x())


def test_builtins() -> None:
    def f(t: torch.Tensor) -> Any:
        return (
            len("abc"), isinstance(3, int | str), issubclass(bool, int), callable(len), abs(-2), round(2.567, 1),
            divmod(7, 2), pow(2, 3), ord("a"), chr(98), hash("x"), repr([1, "a"]), str(1.5), format(3.14159, ".2f"),
            f"{len('ab'):>4}|{'x'!r}", int("7"), float("1e3"), bool([]), list("ab"), tuple(range(2)), set("a"),
            dict(zip("a", [1], strict=True)),
            all([1, 0]), any([]), hex(255), math.sqrt(16), math.pi, "a,b".split(","), " ".join(["p", "q"]),
            "{}-{}".format("a", 1),
            getattr(t, "nope", "default"), hasattr(t, "shape"), int, bytes(2), slice(1, 2).stop, range(5)[1:3], t + 1,
        )  # fmt: skip

    check(f, x())


def test_functions_on_known_things_run() -> None:
    def g(a: int, b: str = "z") -> None: ...

    def f(t: torch.Tensor) -> Any:
        return (
            list(inspect.signature(g).parameters), re.match(r"a(\d+)", "a12").group(1), os.environ.get("NOT_THERE",
            "d"),
            typing.get_origin(list[int]), g.__name__, g.__defaults__, g.__code__.co_varnames, t + 1,
        )  # fmt: skip

    check(f, x())


def test_warnings_are_given_by_each_run() -> None:
    def f(t: torch.Tensor) -> Any:
        warnings.warn("careful", UserWarning, stacklevel=2)
        return t + 1

    captured = capture(f, x())
    with pytest.warns(UserWarning, match="careful"):
        captured.run(x())


def test_log_messages(caplog: pytest.LogCaptureFixture) -> None:
    def f(t: torch.Tensor) -> Any:
        logger.debug("quiet")
        logger.warning("loud %s", 3)
        return t + 1

    captured = capture(f, x())
    captured.run(x())
    assert [record.getMessage() for record in caplog.records] == ["loud 3"]


def test_what_reaches_outside_is_refused() -> None:
    def f(t: torch.Tensor) -> Any:
        print(t)
        return t

    assert "prints" in refused(f, x())


def test_functions_as_arguments() -> None:
    def f(g: Callable[..., Any], t: torch.Tensor) -> Any:
        return g(t) + 1

    def make(n: int) -> Callable[..., Any]:
        return lambda t: t * n

    captured = capture(f, make(3), x())
    torch.testing.assert_close(captured.run(make(3), x()), x() * 3 + 1)
    assert any("cell_contents == 3" in guard for guard in captured.guards)


def test_match_statement() -> None:
    def f(t: torch.Tensor, what: Any) -> Any:
        match what:
            case {"op": "add", "by": by}:
                return t + by
            case [first, *_]:
                return t * first
        return t

    check(f, x(), {"op": "add", "by": 4})
    check(f, x(), [5, 6])


UNSET: contextvars.ContextVar[int] = contextvars.ContextVar("unset")
SCALED: contextvars.ContextVar[float] = contextvars.ContextVar("scaled", default=3.0)


def test_context_variables_are_read_anew_after_a_change() -> None:
    def scaled(t: torch.Tensor) -> torch.Tensor:
        return t * UNSET.get(2) * SCALED.get() * SCALED.get(5.0)

    def lacking(t: torch.Tensor) -> torch.Tensor:
        try:
            return t * UNSET.get()
        except LookupError:
            return t + 1

    check(lacking, x())
    check(scaled, x())
    compiled = stator.compile(scaled, backend="eager", fullgraph=True)
    assert compiled(x()).tolist() == scaled(x()).tolist()
    for variable, value in ((UNSET, 7), (SCALED, 0.5), (UNSET, 8)):
        token = variable.set(value)  # type: ignore[arg-type]
        try:
            assert compiled(x()).tolist() == scaled(x()).tolist()
        finally:
            variable.reset(token)  # type: ignore[arg-type]
