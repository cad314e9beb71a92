"""Small programs over every statement and instruction, each a function with the arguments to run it with."""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

PROGRAMS: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []
COUNTER = 0
BOX: dict[str, int] = {"n": 0}


def program(*cases: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Registers a program with one case a set of arguments; a bare value is one argument."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        for case in cases or ((),):
            PROGRAMS.append((function, case if isinstance(case, tuple) else (case,)))
        return function

    return register


class Manager:
    def __init__(self, log: list[Any], swallow: bool = False) -> None:
        self.log, self.swallow = log, swallow

    def __enter__(self) -> Manager:
        self.log.append("enter")
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> bool:
        self.log.append(("exit", kind and kind.__name__, str(error)))
        return self.swallow


class Base:
    factor = 3

    def __init__(self, n: int = 1) -> None:
        self.n = n

    def scale(self, x: int) -> int:
        return self.factor * x + self.n

    @property
    def double(self) -> int:
        return 2 * self.n


class Derived(Base):
    factor = 5

    def scale(self, x: int) -> int:
        return super().scale(x) + 1

    def older(self, x: int) -> int:
        return super(Derived, self).scale(x)


@dataclass
class ResumePoint:
    x: int
    y: int


@program((3, 4), (2.5, -1))
def arithmetic(a, b):
    return a + b, a - b, a * b, a / b, a // b, a % b, a**b, -a, +a, not a


@program((12, 5))
def bits(a, b):
    return a & b, a | b, a ^ b, a << b, a >> b, ~a


@program((12, 5))
def in_place(a, b):
    c = a
    c += b
    c -= 2
    c *= 3
    c //= 2
    c %= 100
    c **= 2
    c <<= 1
    c >>= 2
    c &= 255
    c |= 3
    c ^= 9
    d = a / 1
    d /= b
    return c, d


@program()
def in_place_list():
    a = b = [1]
    a += [2]
    a *= 2
    return a, b, a is b


@program((1, 2), (2, 2), ("a", "b"))
def comparisons(a, b):
    return a < b, a <= b, a == b, a != b, a > b, a >= b, a is b, a is not b, a in [b], a not in [b], 0 < len([a]) < 3


@program((0, 1), (1, 0), ("", []))
def boolean(a, b):
    return a and b, a or b, not a, not not b, (a or b) and 5, a if b else 3


@program(1, 0)
def truth_as_value(a):
    return bool(a), (a == 1) is True, not (a == 1)


@program(None, 1)
def none_tests(a):
    if a is None:
        return "none"
    while a is not None:
        a = None
    return "was"


@program(10)
def loops(n):
    total = 0
    for i in range(n):
        if i == 3:
            continue
        if i == 8:
            break
        total += i
    else:
        total = -1
    for i in range(3):
        total += i
    else:
        total += 100
    while n > 4:
        n -= 1
    else:
        total += n
    return total, i, n


@program(5)
def nested_loops(n):
    return [(i, j) for i in range(n) for j in range(i) if (i + j) % 2]


@program()
def comprehensions():
    words = ["a", "bb", "ccc"]
    return (
        [w.upper() for w in words], {len(w) for w in words}, {w: len(w) for w in words},
        list(w * 2 for w in words), [[x for x in w] for w in words], sum(len(w) for w in words),
    )  # fmt: skip


@program(3)
def comprehension_scopes(x):
    x = x + 1
    ys = [x for x in range(3)]
    zs = [lambda: y for y in range(3)]
    return x, ys, [z() for z in zs]


@program()
def displays():
    a, b = [1, 2], {"k": 1}
    return (
        [*a, 3, *a],
        (*a, 4),
        {*a, 9},
        {**b, "z": 2, **{"k": 5}},
        {1: 2, "x": a[0]},
        {"p": 1, "q": 2},
        (),
        [],
        {},
        set(a),
    )


@program([1, 2, 3, 4, 5])
def unpacking(items):
    a, *b, c = items
    (d, e), f = (a, c), b
    *g, h = items
    i, *j = "xy"
    k, m = iter([1, 2])
    return a, b, c, d, e, f, g, h, i, j, k, m


@program([1, 2], [1, 2, 3, 4])
def unpack_wrong(items):
    a, b, c = iter(items)
    return a


@program([1])
def unpack_too_few(items):
    a, b, *c = items
    return a


@program([0, 1, 2, 3, 4, 5])
def slices(x):
    y = list(x)
    y[1:3] = [9, 9, 9]
    y[0] = 7
    del y[-1]
    del y[:1]
    return x[1:3], x[:2], x[3:], x[::2], x[-1], x[slice(1, 2)], y


@program((3, 0.5, "hi"))
def formatting(n, f, s):
    width = 8
    return f"{n} {f:.3f} {s!r:>{width}} {n:04d} {s!s} {'é'!a} {{}} {n=}", f"{s}", f"{f:{width}.2f}", "%s-%d" % (s, n)


def keywords(a, /, b, *args, c=3, d, **rest):
    return a, b, args, c, d, rest


@program()
def calls():
    extra = {"e": 5}
    return (
        keywords(1, 2, d=4), keywords(1, 2, 3, 4, c=0, d=1, **extra), keywords(*[1, 2, 3], **{"d": 2}, e=9),
        keywords(1, b=2, d=3, a=7), max([1, 3], key=lambda v: -v), int("10", base=2), dict(a=1, **extra),
    )  # fmt: skip


@program()
def bad_calls():
    results = []
    attempts = [
        lambda: keywords(), lambda: keywords(1), lambda: keywords(1, 2), lambda: keywords(1, 2, b=3, d=1),
        lambda: two(), lambda: two(1, 2, 3), lambda: two(1, 2, z=3), lambda: two(1, y=2, x=3), lambda: two(x=1),
        lambda: one_default(), lambda: one_default(1, 2, 3), lambda: only_keywords(1), lambda: only_keywords(),
        lambda: only_keywords(1, a=2), lambda: two(**{"x": 1}, **{"x": 2}), lambda: positional_only(a=1, b=2),
    ]  # fmt: skip
    for attempt in attempts:
        try:
            attempt()
        except TypeError as error:
            results.append(str(error))
    return results


def two(x, y):
    return x + y


def one_default(x, y=2):
    return x + y


def only_keywords(*, a, b=1, c):
    return a


def positional_only(a, b, /):
    return a


@program()
def defaults():
    def f(a, b=[1], *, c=(2, 3), d="x"):
        return a, b, c, d

    return f(0), f(0, 1, c=5), f.__name__


@program(4)
def closures(n):
    count = 0

    def up(by=n):
        nonlocal count
        count += by
        return count

    def outer():
        def inner():
            return count * n

        return inner()

    return up(), up(1), outer(), count


@program()
def closure_errors():
    def read():
        return late

    try:
        read()
    except NameError as error:
        text = str(error)
    late = 1
    first = read()
    del late
    try:
        late
    except NameError as error:
        return text, first, str(error), type(error).__name__


@program()
def recursion():
    def fact(n):
        return 1 if n < 2 else n * fact(n - 1)

    return fact(10)


@program()
def unbound():
    try:
        x
    except UnboundLocalError as error:
        text = str(error)
    x = 1
    del x
    try:
        return x
    except UnboundLocalError as error:
        return text, str(error)
    x = 2


@program()
def missing_global():
    try:
        return there_is_no_such_name  # noqa: F821
    except NameError as error:
        return str(error)


@program()
def global_store():
    global COUNTER
    COUNTER = 5
    COUNTER += 1
    a = COUNTER
    COUNTER = 0
    global fresh_global
    fresh_global = 3
    b = fresh_global
    del fresh_global
    return a, b


@program()
def methods():
    b, d = Base(), Derived(2)
    d.extra = 4
    e = d.extra
    del d.extra
    return b.scale(2), d.scale(2), d.older(2), b.double, Base.scale(b, 3), hasattr(d, "extra"), e, d.n


@program()
def missing_attribute():
    try:
        return Base().nothing
    except AttributeError as error:
        return str(error)


@program(0, 1, 2, 3)
def try_all(case):
    log = []
    try:
        log.append("try")
        if case == 1:
            raise ValueError("one")
        if case == 2:
            {}["k"]
        if case == 3:
            return log
    except ValueError as error:
        log.append(str(error))
    except (KeyError, IndexError):
        log.append("lookup")
    else:
        log.append("else")
    finally:
        log.append("finally")
    return log


@program()
def reraise():
    log = []
    try:
        try:
            raise ValueError("a")
        except ValueError:
            log.append("inner")
            raise
        finally:
            log.append("finally")
    except Exception as error:
        log.append(repr(error))
    return log


@program()
def raise_from():
    try:
        try:
            1 / 0
        except ZeroDivisionError as error:
            raise KeyError("b") from error
    except KeyError as error:
        first = type(error.__cause__).__name__
    try:
        raise KeyError("c") from None
    except KeyError as error:
        return first, error.__cause__


@program()
def raise_class():
    raise ValueError


@program()
def raise_odd():
    raise 3


@program()
def bare_raise():
    raise


@program()
def nested_bare_raise():
    def again():
        raise

    try:
        raise KeyError("x")
    except KeyError:
        try:
            again()
        except KeyError as error:
            return repr(error)


@program()
def catch_wrong():
    try:
        raise ValueError
    except int:
        pass


@program((1,), (0,))
def assertions(x):
    assert x, f"x is {x}"
    assert x
    return x


@program()
def finally_return():
    for i in range(3):
        try:
            return i
        finally:
            if i == 0:
                continue
    return "end"


@program()
def loop_with_try():
    done = []
    for i in range(4):
        try:
            if i == 1:
                continue
            if i == 3:
                break
            done.append(10 // (i - 2))
        except ZeroDivisionError:
            done.append("zero")
        finally:
            done.append(i)
    return done


@program()
def exception_name_is_cleared():
    error = 1
    try:
        raise KeyError
    except KeyError as error:
        pass
    try:
        error
    except NameError:
        return "cleared"


@program(True, False)
def with_statement(swallow):
    log = []
    with Manager(log) as m, Manager(log, True):
        log.append(m.swallow)
    try:
        with Manager(log, swallow):
            raise ValueError("inside")
        log.append("after")
    except ValueError as error:
        log.append(str(error))
    return log


@program()
def with_return():
    log = []
    for i in range(3):
        with Manager(log):
            if i == 1:
                return log, i
            continue


@program()
def with_wrong():
    with 3:
        pass


@program()
def context_manager_generator():
    log = []

    @contextlib.contextmanager
    def scope(name):
        log.append("in " + name)
        try:
            yield name * 2
        except KeyError:
            log.append("key")
        finally:
            log.append("out " + name)

    with scope("a") as doubled:
        log.append(doubled)
    with scope("b"):
        raise KeyError
    return log


@program(4)
def generators(n):
    def count(limit):
        i = 0
        while i < limit:
            got = yield i
            i += got or 1
        return "done"

    def outer():
        result = yield from count(2)
        yield result
        yield from [7, 8]

    g = count(10)
    first = next(g)
    second = g.send(3)
    rest = list(g)
    return list(count(n)), list(outer()), first, second, rest, sum(count(n)), tuple(x * 2 for x in count(n))


@program()
def generator_throw():
    log = []

    def inner():
        while True:
            try:
                yield 1
            except ValueError as error:
                log.append(str(error))
                yield 2
                return "r"
            finally:
                log.append("f")

    def outer():
        log.append((yield from inner()))
        yield 3

    g = outer()
    a = next(g)
    b = g.throw(ValueError("v"))
    c = next(g)
    h = outer()
    next(h)
    h.close()
    try:
        g.throw(KeyError("k"))
    except KeyError as error:
        log.append(repr(error))
    try:
        next(g)
    except StopIteration:
        log.append("stop")
    return a, b, c, log


@program()
def generator_errors():
    def g():
        yield 1
        raise StopIteration

    def h():
        yield 1
        return 5

    out = []
    try:
        list(g())
    except RuntimeError as error:
        out.append(str(error))
    it = h()
    next(it)
    try:
        it.send(None)
    except StopIteration as error:
        out.append(error.value)
    try:
        h().send(1)
    except TypeError as error:
        out.append(str(error))
    return out


@program()
def generator_return_in_throw():
    log = []

    def inner():
        try:
            yield 1
        except ValueError:
            return "caught"

    def outer():
        log.append((yield from inner()))
        yield 2

    g = outer()
    next(g)
    return g.throw(ValueError), log


@program()
def iteration_tools():
    pairs = list(zip([1, 2], "ab"))
    return (
        pairs, list(enumerate("ab", 1)), list(map(lambda x: x + 1, [1, 2])), list(filter(None, [0, 1])),
        sorted([3, 1, 2], key=lambda v: -v), any(x > 1 for x in [1, 2]), all(x > 1 for x in [1, 2]),
        list(itertools.chain([1], [2])), functools.reduce(lambda a, b: a * b, [1, 2, 3, 4]), dict(pairs),
        list(reversed([1, 2])), min((3, 1)), [*range(3)],
    )  # fmt: skip


@program(
    0,
    1,
    "x",
    ((1, 2),),
    [1, [2, 3]],
    {"k": 1, "z": 3},
    {"name": "n", "v": [1]},
    ResumePoint(0, 1),
    ResumePoint(5, 6),
    2.5,
    None,
)
def matching(value):
    match value:
        case 0:
            return "zero"
        case int(n) if n > 0:
            return "int", n
        case str() as s:
            return "str", s
        case (1, b):
            return "pair", b
        case [a, [b, *c]]:
            return "nested", a, b, c
        case {"k": v, **rest}:
            return "dict", v, rest
        case {"name": str(name), "v": [x]}:
            return "dict2", name, x
        case ResumePoint(0, y=y):
            return "point", y
        case ResumePoint(x=x, y=y):
            return "xy", x, y
        case float() | None:
            return "other"


@program()
def match_too_many():
    match ResumePoint(1, 2):
        case ResumePoint(1, 2, 3):
            return 1


@program()
def imports():
    import collections.abc
    import os.path as p
    from collections import OrderedDict, abc

    return collections.abc is abc, p.join("a", "b"), OrderedDict.__name__


@program()
def import_missing():
    try:
        from collections import nothing_of_this_name  # noqa: F401
    except ImportError as error:
        return str(error).split("(")[0]


@program(3)
def walrus_and_chains(n):
    if (m := n + 1) > 3:
        a = b = m
    return a, b, [y := 1, y**2], 1 < n < 5 < m * 10


@program()
def deletion():
    d = {"a": 1, "b": 2}
    x = [1, 2, 3]
    del d["a"], x[0]
    y = 5
    del y
    return d, x, "y" in locals.__name__


@program()
def shared_cell_argument(n=3):
    def add(x):
        return x + n

    n = 10
    return add(1)


@program((1, 2, 3))
def star_args(*args):
    def inner(*a, **k):
        return a, k

    return inner(*args, x=args), args[0]


@program()
def decorators():
    def twice(f):
        @functools.wraps(f)
        def wrapper(*args, **kwargs):
            return f(*args, **kwargs) * 2

        return wrapper

    def base(x, y=1):
        return x + y

    return twice(base)(3, y=4)


@program()
def annotations():
    def f(a: int, b: str = "x") -> list:
        c: int = 3
        return [a, b, c]

    return f(1)


@program()
def set_and_dict_building():
    s = set()
    for i in range(3):
        s |= {i}
    d = {}
    for k, v in {"a": 1}.items():
        d[k] = v
    d |= {"c": 3}
    return s, d, {k: v for k, v in d.items() if v}, {**d}, d == {"a": 1, "c": 3}


@program()
def class_private():
    return (
        Base.factor,
        Derived.factor,
        Derived.__mro__[1] is Base,
        isinstance(Derived(), Base),
        issubclass(Derived, Base),
    )


@program(25)
def collatz(n):
    steps = 0
    while n != 1:
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        steps += 1
    return steps


@program()
def sort_by_exception():
    def pick(x):
        try:
            return [10, 20][x]
        except IndexError:
            return -1

    return [pick(i) for i in range(4)]


@program()
def exception_in_comprehension():
    x = "kept"
    try:
        [1 // x for x in (1, 0)]
    except ZeroDivisionError:
        return x


@program()
def nested_with_exception_in_exit():
    log = []

    class_like = Manager(log)
    try:
        with class_like:
            with class_like:
                raise KeyError("deep")
    except KeyError as error:
        log.append(error.args)
    return log


@program()
def string_methods():
    return "a,b".split(","), "-".join(str(i) for i in range(3)), "abc"[::-1], "x" * 3, "%d" % 3, "{}".format(4)


@program()
def many_arguments():
    def f(a, b, c, d, e, f, g=7, *, h=8):
        return a, b, c, d, e, f, g, h

    return f(1, 2, *(3, 4), *[5], **{"f": 6}, h=0)
