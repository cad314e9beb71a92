"""Small functions over plain Python, with arguments: together they hold what a function's bytecode can."""

from __future__ import annotations

import contextlib
import sys
from typing import Any

counter = 0


def loops(items: list[int]) -> tuple[int, list[int]]:
    total = 0
    seen = []
    for position, item in enumerate(items):
        if item < 0:
            continue
        if item > 50:
            break
        while item:
            total += item % 10 * position
            item //= 10
        seen.append(total)
    else:
        total = -total
    return total, seen


def calls(a: int, *rest: int) -> Any:
    def inner(x: int, *more: int, key: int = 3, **named: int) -> Any:
        return x, more, key, sorted(named.items()), a

    return inner(a, *rest, key=a), inner(*rest, **{"b": 2, "c": a}), inner(1, z=4), max(rest, key=lambda v: -v)


def closures(n: int) -> tuple[int, ...]:
    total = 0

    def add(x: int) -> int:
        nonlocal total
        total += x
        return total

    first = add(n)
    n += 1
    functions = [lambda: n + k for k in range(3)]
    n += 10
    second = add(n)
    return first, second, total, *(function() for function in functions)


def comprehensions(items: list[int]) -> Any:
    x = 100
    nested = [[x * y for y in items if y] for x in items]
    made = {x: [lambda: x + 1 for _ in range(2)][0]() for x in items}
    return nested, made, {i % 3 for i in items}, x


def texts(name: str, value: float) -> str:
    width = 12
    return f"{name!r:>{width}}|{value:.2f}|{name}{value!s}|{name!a:<9}|{value + 1}" + "%s" % name


def handlers(items: list[Any]) -> Any:
    log: list[Any] = []
    for item in items:
        try:
            try:
                log.append(10 // item)
            except ZeroDivisionError as error:
                log.append(str(error))
                raise ValueError(item) from error
            except TypeError:
                log.append(sys.exc_info()[0])
                try:
                    [][item]
                except Exception:
                    log.append(sys.exc_info()[0])
                log.append(sys.exc_info()[0])
                continue
            else:
                log.append("fine")
            finally:
                log.append("finally")
        except ValueError as error:
            log.append((type(error.__cause__), type(error.__context__), error.args))
    return log, sys.exc_info()


def reraises(items: list[int]) -> Any:
    log = []
    try:
        try:
            log.append(1 // items[0])
        except ArithmeticError:
            log.append(2)
            raise
    except ZeroDivisionError:
        log.append(3)
    try:
        return log
    finally:
        log.append(4)


def escapes(items: list[int]) -> Any:
    try:
        return items[5]
    except IndexError:
        raise KeyError("gone")


def managers(depth: int) -> Any:
    log: list[Any] = []

    @contextlib.contextmanager
    def level(name: Any) -> Any:
        log.append(("enter", name))
        try:
            yield name
        except ZeroDivisionError:
            log.append(("caught", name))
        finally:
            log.append(("exit", name))

    with level(1) as one, level(2):
        log.append(one)
        with level(3):
            log.append(depth // 0)
        with contextlib.suppress(KeyError):
            {}["x"]
        for i in range(3):
            with level(i):
                if i == 1:
                    break
    with level(4):
        return log


def matches(subjects: list[Any]) -> list[Any]:
    found: list[Any] = []
    for subject in subjects:
        match subject:
            case {"kind": str(kind), **rest}:
                found.append((kind, rest))
            case [first, *_, complex(real=re) as last]:
                found.append((first, last, re))
            case int(n) | float(n) if n > 3:
                found.append(n)
            case (1, 2):
                found.append("pair")
            case None:
                found.append(None)
            case _:
                found.append("?")
    return found


def unpacking(items: list[int], mapping: dict[str, int]) -> Any:
    a, (b, *c), *d = items[0], items[1:4], *items[4:]
    e = [*items, *mapping]
    f = {**mapping, "z": a}
    g = {*e, b}
    a, b = b, a
    mapping["a"] += 5
    del items[1:3], mapping["b"]
    items[0:1] = [a, b]
    return a, b, c, d, e, f, len(g), items, mapping


def operators(a: int, b: int, c: Any) -> Any:
    text = a if a is not None and b or c else -a
    chain = 0 < a < b <= 10 != c
    if not (a & b) | ~a ^ (b << 2) >> 1:
        return None
    return text, chain, a @ c if hasattr(a, "__matmul__") else +a, a not in [b], a is b, -(a**2) % 7, (w := b) + w


class Base:
    def __init__(self, value: int) -> None:
        self.value = value

    def result(self, more: int) -> int:
        return self.value + more


class Derived(Base):
    def __init__(self, value: int) -> None:
        super().__init__(value * 2)
        del self.value
        self.value = value

    def result(self, more: int) -> int:
        parent = super()
        here = [super(Derived, self).result(i) for i in range(2)]
        return sum(here) + super().result(more) + parent.result(1) + len(str(__class__))  # type: ignore[name-defined]

    def captured(self, more: int) -> int:
        def get() -> int:
            return self.value

        parent = super()
        return parent.result(more) + get()


def initialise(n: int) -> int:
    made = Derived(n)
    return made.value + made.result(n)


def globals_and_imports(n: int) -> Any:
    global counter
    import os.path as path
    from math import floor

    counter = n
    counter += 1
    after = counter
    assert after == n + 1, "it counts"
    counter = 0
    return after, path.basename("a/b"), floor(2.5)


def unbound(n: int) -> Any:
    log = []
    for i in range(n):
        try:
            log.append(late)
            del late
        except UnboundLocalError:
            late = i
            log.append("unbound")
    return log


def sees_locals(a: int, b: int) -> Any:
    c = a + b

    def get() -> int:
        return c + b

    found = {name: value for name, value in locals().items() if name != "get"}
    return sorted(found.items(), key=str), sorted(vars()), get()


def iterating(n: int) -> Any:
    pairs = [(a, b) for a in range(n) for b in "xy" if a != 1]
    numbers = iter(range(n))
    first = next(numbers)
    return pairs, first, list(numbers), sum(i * i for i in range(n)), all(a or b for a, b in pairs)


def asserts(n: int) -> int:
    assert n > 5, f"{n} is small"
    return n


def annotated(n: int) -> Any:
    def inner(x: int, *, y: str = "a") -> tuple[int, str]:
        return x + n, y

    return inner(2), sorted(inner.__annotations__), inner.__kwdefaults__


PROGRAMS: list[tuple[Any, tuple[Any, ...]]] = [
    (loops, ([1, -2, 35, 7],)),
    (loops, ([1, 99, 7],)),
    (calls, (1, 2, 3)),
    (closures, (5,)),
    (comprehensions, ([0, 1, 2],)),
    (texts, ("näme", 2.5)),
    (handlers, ([1, 0, "x", 3],)),
    (reraises, ([0],)),
    (reraises, ([1],)),
    (escapes, ([1],)),
    (managers, (1,)),
    (matches, ([{"kind": "a", "b": 1}, [1, 2, 3j], 7, (1, 2), 2.0, None, {}],)),
    (unpacking, ([1, 2, 3, 4, 5, 6], {"a": 1, "b": 2})),
    (operators, (3, 5, 2.5)),
    (operators, (0, 0, 0)),
    (globals_and_imports, (3,)),
    (unbound, (4,)),
    (sees_locals, (1, 2)),
    (iterating, (3,)),
    (asserts, (3,)),
    (asserts, (9,)),
    (annotated, (3,)),
    (initialise, (3,)),
    (Derived.result, (Derived(2), 3)),
    (Derived.captured, (Derived(2), 3)),
]
