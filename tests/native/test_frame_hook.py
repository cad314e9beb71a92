"""The frame hook over plain Python, without torch: replaced frames behave as calls do, all others are left alone."""

from __future__ import annotations

import asyncio
import sys
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from stator import _native
from stator._native import Continuation, GuardTree, RunOriginal
from tests.native.hooked import ALWAYS, Hook


def guard(slot: int, kind: str, payload: object) -> GuardTree:
    """A tree with one check on one slot."""
    return GuardTree((), (("slot", slot, f"slot {slot}", -1, ((kind, payload, kind),), ()),), ())


def deep(a: Any, b: Any = 2, *rest: Any, c: Any = 3, **more: Any) -> Any:
    """Needs many locals and a deep stack."""
    p, q, r, s, t, u, v, w = a, b, c, rest, more, 6, 7, 8
    first = [p, [q, [r, [s, [t, [u, [v, [w, [a, [b, [c, [rest, [more]]]]]]]]]]]]]
    second = {"p": p, "q": q, "r": r, "s": s, "t": t}
    total = (u, (v, (w, (u, (v, (w, (u, (v, (w, (u, (v, (w, (u, v)))))))))))))
    return first, second, total


# -- replacement ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [((1,), {}), ((1, 5), {}), ((1, 5, 6, 7), {"c": 8}), ((1,), {"b": 5, "x": 9, "y": 10}), ((), {"a": 1, "c": 4})],
)
def test_a_replacement_sees_the_arguments_in_a_larger_frame(
    hook: Hook, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    def small(a: Any, b: Any = 2, *rest: Any, c: Any = 3, **more: Any) -> Any:
        return None

    hook.replace(small, deep)
    assert small(*args, **kwargs) is None
    assert hook.through(small, *args, **kwargs) == deep(*args, **kwargs)
    assert small(*args, **kwargs) is None


def test_a_replacement_may_be_smaller(hook: Hook) -> None:
    def small(a: Any, b: Any = 2, *rest: Any, c: Any = 3, **more: Any) -> Any:
        return a

    def large(a: Any, b: Any = 2, *rest: Any, c: Any = 3, **more: Any) -> Any:
        return deep(a, b, *rest, c=c, **more)

    hook.replace(large, small)
    assert hook.through(large, 1, 2, 3) == 1


def test_frames_that_do_not_fit_into_the_chunk_run_beside(hook: Hook) -> None:
    """At every depth: some frames lie at the end of a chunk of the interpreter's stack."""
    scope: dict[str, Any] = {}
    signature, items = "(a, b=2, *rest, c=3, **more)", "a, b, c, rest, more, " * 60
    exec(f"def small{signature}: return None\ndef large{signature}: return [{items}]", scope)
    exec(f"def gentle{signature}: return None\ndef fails{signature}: raise ValueError([{items}])", scope)
    hook.replace(scope["small"], scope["large"])
    hook.replace(scope["gentle"], scope["fails"])
    expected = [1, 5, 8, (6, 7), {"d": 9}] * 60

    def descend(depth: int) -> int:
        good = int(scope["small"](1, 5, 6, 7, c=8, d=9) == expected)
        try:
            scope["gentle"](1, 5, 6, 7, c=8, d=9)
        except ValueError as error:
            good += int(error.args == (expected,))
        return good + (descend(depth - 1) if depth else 0)

    assert hook.call(descend, 120) == 242


def test_cells_and_closures(hook: Hook) -> None:
    def make(start: int) -> tuple[Any, Any]:
        count = start

        def add(x: int) -> int:
            nonlocal count
            count += x
            return count

        def subtract(x: int) -> int:
            nonlocal count
            by = lambda: x  # noqa: E731
            count -= by()
            return count

        return add, subtract

    add, subtract = make(10)
    other, _ = make(100)
    hook.replace(add, subtract)
    assert hook.through(add, 1) == 9
    assert hook.through(other, 1) == 99
    assert add(1) == 10


def test_a_version_serves_every_function_of_its_code(hook: Hook) -> None:
    def make(n: int) -> Any:
        def inner(x: int, y: int = n) -> int:
            return 0

        return inner

    def product(x: int, y: int) -> int:
        return x * y

    first, second = make(2), make(3)
    hook.replace(first, product, guard(2, "ID", first))  # the function is the slot after the parameters
    assert hook.through(first, 5) == 10
    assert hook.through(second, 5) == 0


def test_versions_are_tried_in_turn(hook: Hook) -> None:
    def f(x: int) -> str:
        return "original"

    def zero(x: int) -> str:
        return "zero"

    def one(x: int) -> str:
        return "one"

    entries = hook.replace(f, zero, guard(0, "EQUALS", 0))
    hook.replace(f, one, guard(0, "EQUALS", 1))
    assert [hook.through(f, n) for n in (0, 1, 2, 1, 0)] == ["zero", "one", "original", "one", "zero"]
    assert [code.co_name for _, code, _ in entries.entries] == ["zero", "one"]
    entries.clear()
    assert hook.through(f, 0) == "original"


def test_what_does_not_fit_is_refused(hook: Hook) -> None:
    def f(x: int) -> int:
        return x

    def generator(x: int) -> Any:
        yield x

    entries = _native.frame_entries(f.__code__, hook, None)
    for wrong in (deep.__code__, generator.__code__, f, 3):
        with pytest.raises(TypeError):
            entries.add(ALWAYS, wrong, False)
    assert entries.entries == []


# -- asking --------------------------------------------------------------------------------------------------


def test_unknown_code_is_asked_about_once(hook: Hook) -> None:
    def helper() -> int:
        return 1

    def program() -> int:
        return helper() + helper()

    assert hook.call(program) == 2
    assert hook.asked == ["helper"]
    assert hook.call(program) == 2
    assert hook.asked == ["helper"]
    _native.forget(helper.__code__)
    hook.call(program)
    assert hook.asked == ["helper", "helper"]


def test_a_version_that_the_handler_adds_runs_at_once(hook: Hook) -> None:
    def helper(x: int) -> int:
        return x

    def negative(x: int) -> int:
        return -x

    seen = []

    def answer(function: Any, slots: tuple[Any, ...], entries: Any) -> None:
        seen.append((slots, entries))
        assert _native.suspended()
        hook.replace(function, negative, guard(0, "EQUALS", slots[0]))
        _native.frame_entries(function.__code__, hook, None).closed = False

    hook.answers[helper.__code__] = answer
    assert hook.through(helper, 1) == -1
    assert hook.through(helper, 2) == -2
    assert hook.through(helper, 1) == -1
    assert [slots for slots, _ in seen] == [(1,), (2,)]
    assert seen[0][1] is None
    assert isinstance(seen[1][1], _native.FrameEntries)


def test_what_the_handler_raises_is_raised_by_the_frame(hook: Hook) -> None:
    def helper(x: list[int]) -> None:
        x.append(1)

    def answer(function: Any, slots: tuple[Any, ...], entries: Any) -> None:
        raise KeyError("asked for")

    hook.answers[helper.__code__] = answer
    items: list[int] = []
    with pytest.raises(KeyError, match="asked for"):
        hook.through(helper, items)
    assert items == []
    assert sys.getrefcount(items) == 2


def test_what_runs_below_the_handler_is_not_looked_at(hook: Hook) -> None:
    def below() -> None: ...

    def helper() -> int:
        return 1

    hook.answers[helper.__code__] = lambda *_: below()
    assert hook.through(helper) == 1
    assert hook.asked == ["helper"]


def test_hushed_code_quietens_what_it_calls(hook: Hook) -> None:
    def below() -> int:
        return 1

    def skipped_recursively() -> int:
        return below()

    _native.skip_recursively(skipped_recursively.__code__)
    assert hook.through(skipped_recursively) == 1
    assert hook.asked == []
    assert _native.watched(None, below) == 1
    assert hook.through(below) == 1
    assert hook.asked == ["below"]


@pytest.mark.parametrize("watch", [False, True])
def test_frames_below_a_version_are_looked_at_if_it_says_so(hook: Hook, watch: bool) -> None:
    def below() -> int:
        return 1

    def original() -> int:
        return below()

    def replaced() -> int:
        return below() + 1

    hook.replace(original, replaced, watch=watch)
    assert hook.through(original) == 2
    assert hook.asked == ["below"] * watch
    hook.asked.clear()
    _native.forget(below.__code__)
    _native.forget(original.__code__)
    hook.replace(original, None, watch=watch)
    assert hook.through(original) == 1
    assert hook.asked == ["below"] * watch


def test_settings_have_versions_of_their_own(hook: Hook) -> None:
    def f() -> str:
        return "original"

    def first() -> str:
        return "first"

    def second() -> str:
        return "second"

    other = Hook()
    hook.replace(f, first)
    other.replace(f, second)
    assert hook.through(f) == "first"
    assert other.through(f) == "second"
    assert hook.call(lambda: (f(), other.through(f), f())) == ("first", "second", "first")


def test_instances_have_versions_of_their_own(hook: Hook) -> None:
    class Thing:
        def name(self) -> str:
            return "original"

    def numbered(n: int) -> Any:
        scope: dict[str, Any] = {}
        exec(f"def name(self): return {n}", scope)
        return scope["name"]

    things = [Thing() for _ in range(40)]
    kept = [hook.replace(Thing.name, numbered(n), instance=thing) for n, thing in enumerate(things)]
    hook.replace(Thing.name, numbered(-1))
    assert [hook.through(thing.name) for thing in things] == list(range(40))
    assert hook.through(Thing().name) == -1
    for entries in kept[::2]:
        entries.detach()
        entries.detach()
    assert [hook.through(thing.name) for thing in things] == [n if n % 2 else -1 for n in range(40)]


# -- what is left alone -----------------------------------------------------------------------------------------


def test_outside_of_regions_nothing_happens(hook: Hook) -> None:
    def f() -> int:
        return 1

    hook.replace(f, lambda: 2)
    assert f() == 1
    assert not _native.frame_hook_active()
    assert hook.call(_native.frame_hook_active)
    _native.suspend()
    try:
        assert hook.through(f) == 1
    finally:
        _native.resume()
    assert hook.through(f) == 2


def test_the_function_of_a_region_is_left_alone_once(hook: Hook) -> None:
    def free(n: int) -> list[int]:
        return [n, *(globals_of["free"](n - 1) if n else [])]

    globals_of = {"free": free}

    def end(n: int) -> list[int]:
        globals_of.get("free")
        return [-n]

    hook.replace(free, end)
    assert hook.call(free, 3) == [3, -2]


def test_generators_coroutines_and_bodies_are_left_alone(hook: Hook) -> None:
    def numbers() -> Iterator[int]:
        yield 1
        yield 2

    async def wait() -> int:
        await asyncio.sleep(0)
        return 3

    def program() -> Any:
        class Local:
            x = 4

        scope: dict[str, int] = {}
        exec("x = 5", scope)
        closing = numbers()
        assert next(closing) == 1
        with pytest.raises(KeyError):
            closing.throw(KeyError("x"))
        return list(numbers()), asyncio.run(wait()), Local.x, scope["x"], list(numbers()), eval("6")

    assert hook.call(program) == ([1, 2], 3, 4, 5, [1, 2], 6)
    assert not {"numbers", "wait", "Local", "<module>"} & set(hook.asked)


@pytest.mark.parametrize("install", [sys.settrace, sys.setprofile])
def test_traced_frames_are_left_alone(hook: Hook, install: Callable[[Any], None]) -> None:
    def f() -> str:
        return "original"

    hook.replace(f, lambda: "replaced")
    before = sys.gettrace() if install is sys.settrace else sys.getprofile()

    def program() -> tuple[str, str]:
        seen = []
        install(lambda frame, event, arg: seen.append(frame.f_code))
        first = f()
        install(before)
        assert f.__code__ in seen
        return first, f()

    assert hook.call(program) == ("original", "replaced")


@pytest.mark.skipif(sys.version_info < (3, 12), reason="sys.monitoring is new in 3.12")
def test_monitored_frames_are_left_alone(hook: Hook) -> None:
    def f() -> str:
        return "original"

    hook.replace(f, lambda: "replaced")
    sys.monitoring.use_tool_id(3, "test")
    try:
        assert hook.through(f) == "original"
    finally:
        sys.monitoring.free_tool_id(3)
    assert hook.through(f) == "replaced"


# -- exceptions ---------------------------------------------------------------------------------------------------


def test_exceptions_and_tracebacks(hook: Hook) -> None:
    def original(x: int) -> None: ...

    def raises(x: int) -> None:
        a, b, c = x, x, x
        raise ValueError((a, (b, (c, (a, (b, c))))))

    def left_alone(x: int) -> None:
        raise KeyError(x)

    def program(function: Any) -> Any:
        try:
            function(3)
        except Exception as error:
            return error

    hook.replace(original, raises)
    error = hook.call(program, original)
    assert isinstance(error, ValueError)
    assert [frame.name for frame in traceback.extract_tb(error.__traceback__)] == ["program", "raises"]
    error = hook.call(program, left_alone)
    assert [frame.name for frame in traceback.extract_tb(error.__traceback__)] == ["program", "left_alone"]
    assert sys.exc_info() == (None, None, None)


def test_run_original_runs_the_original_on_the_same_arguments(hook: Hook) -> None:
    def original(a: Any, b: Any = 2, *rest: Any, c: Any = 3, **more: Any) -> Any:
        a.append(b)
        return a, b, rest, c, more

    def gives_up(a: Any, b: Any = 2, *rest: Any, c: Any = 3, **more: Any) -> Any:
        raise RunOriginal

    hook.replace(original, gives_up)
    items: list[int] = []
    result = hook.through(original, items, 5, 6, 7, c=8, d=9)
    assert result == ([5], 5, (6, 7), 8, {"d": 9})
    assert result[0] is items


def test_continuations_run_here(hook: Hook) -> None:
    def count(n: int) -> Any:
        return Continuation(count, (n - 1,)) if n else "done"

    def original(n: int) -> Any:
        return count and None

    def replaced(n: int) -> Any:
        return Continuation(count, (n,))

    hook.replace(original, replaced)
    assert hook.through(original, 20_000) == "done"


def test_recursion_ends_as_usual(hook: Hook) -> None:
    def forever(n: int) -> int:
        return forever(n + 1) + 1

    with pytest.raises(RecursionError):
        hook.call(forever, 0)
    assert not _native.frame_hook_active()


@pytest.mark.parametrize("replaced", [False, True])
def test_deep_recursion_takes_no_more_c_stack(hook: Hook, replaced: bool) -> None:
    scope: dict[str, Any] = {}
    exec("def f(n):\n  return f(n - 1) + 1 if n else 0\n", scope)
    exec("def g(n):\n  m = n\n  return (f(m - 1) + 1) if m else 0\n", scope)
    if replaced:
        hook.replace(scope["f"], scope["g"], watch=True)
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(200_000)
    try:
        assert hook.through(scope["f"], 100_000) == 100_000
    finally:
        sys.setrecursionlimit(limit)
