"""The frame hook with threads, what it keeps alive, and the end of the interpreter."""

from __future__ import annotations

import contextlib
import gc
import subprocess
import sys
import threading
import weakref
from typing import Any

import pytest

from stator import _native
from stator._native import RunOriginal
from tests.native.hooked import ALWAYS, Hook


def test_only_threads_in_a_region_are_looked_at(hook: Hook) -> None:
    def f() -> str:
        return "original"

    hook.replace(f, lambda: "replaced")
    entered, leave = threading.Event(), threading.Event()

    def hold() -> None:
        entered.set()
        assert leave.wait(10)

    other = threading.Thread(target=hook.call, args=(hold,))
    other.start()
    assert entered.wait(10)
    assert _native.frame_hook_active()
    assert f() == "original"
    assert hook.through(f) == "replaced"
    assert f() == "original"
    leave.set()
    other.join()
    assert not _native.frame_hook_active()


def test_many_threads_at_once(hook: Hook) -> None:
    def f(x: int) -> int:
        return x

    def double(x: int) -> int:
        first, second = x, x
        return first + second

    hook.replace(f, double)
    wrong: list[Any] = []

    def work(number: int) -> None:
        for n in range(300):
            inside = hook.call(lambda n=n: [f(n), f(n + 1)])
            if inside != [2 * n, 2 * n + 2] or f(n) != n:
                wrong.append((number, n, inside))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert wrong == []


class Token:
    """Something whose references are counted."""


def test_reference_counts_are_exact(hook: Hook) -> None:
    def original(a: Any, *rest: Any, b: Any = None, **more: Any) -> Any: ...

    def replaced(a: Any, *rest: Any, b: Any = None, **more: Any) -> Any:
        p, q, r = a, rest, more
        if b == "raise":
            raise ValueError(p)
        if b == "give up":
            raise RunOriginal
        return [p, [q, [r, [a, [b]]]]]

    def refused(a: Any, *rest: Any, b: Any = None, **more: Any) -> Any: ...

    def answer(function: Any, slots: tuple[Any, ...], entries: Any) -> None:
        raise ValueError

    hook.answers[refused.__code__] = answer
    hook.replace(original, replaced)
    token, word = Token(), "a word"

    def program(count: int) -> None:
        for _ in range(count):
            original(token, token, word, b=token, c=token)
            original(token, b="give up")
            for function in (original, refused):
                with contextlib.suppress(ValueError):
                    function(token, token, b="raise", c=token)

    hook.call(program, 10)
    watched = [token, original, replaced, original.__code__, replaced.__code__, refused.__code__, hook, None, ALWAYS]
    before = [sys.getrefcount(item) for item in watched]
    hook.asked.clear()
    hook.call(program, 1000)
    hook.asked.clear()
    after = [sys.getrefcount(item) for item in watched]
    assert all(abs(a - b) < 50 for a, b in zip(after, before, strict=True)), (before, after)


@pytest.mark.usefixtures("few_objects")
def test_code_objects_die_with_their_versions(hook: Hook) -> None:
    scope: dict[str, Any] = {}
    exec("def f(): return 1\ndef g(): return 2", scope)
    entries = hook.replace(scope["f"], scope["g"])
    entries.owner = token = Token()
    assert hook.through(scope["f"]) == 2
    code, gone = weakref.ref(scope["f"].__code__), weakref.ref(token)
    del entries, token
    scope.clear()
    gc.collect()
    assert code() is None
    assert gone() is None


@pytest.mark.usefixtures("few_objects")
def test_entries_outlive_their_code(hook: Hook) -> None:
    scope: dict[str, Any] = {}
    exec("def f(): return 1\ndef g(): return 2", scope)
    entries = hook.replace(scope["f"], scope["g"])
    scope.clear()
    gc.collect()
    assert len(entries.entries) == 1
    entries.detach()


def test_the_interpreter_exits_from_inside_a_region() -> None:
    program = """
import atexit, sys, threading, time
from stator import _native
tree = _native.GuardTree((), (), ())
def f(): return 1
def g(): return 2
entries = _native.frame_entries(f.__code__, "settings", None)
entries.add(tree, g.__code__, False)
class Last:
    def __del__(self): print("last", f())
keep = Last()
atexit.register(lambda: print("at exit", _native.watched("settings", lambda: f())))
threading.Thread(target=lambda: _native.watched("settings", time.sleep, 60), daemon=True).start()
time.sleep(0.1)
_native.watched("settings", lambda: (print(f()), sys.exit(3)))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 3, done.stderr
    assert done.stdout.splitlines()[:2] == ["2", "at exit 2"]
    assert done.stderr == ""
