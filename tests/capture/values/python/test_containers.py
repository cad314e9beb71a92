"""Lists, tuples, dicts, sets, iterators: made by the frame, passed in, changed and returned."""

from __future__ import annotations

import collections
import functools
import itertools
import operator
from collections import OrderedDict, defaultdict, deque
from typing import Any, NamedTuple

import torch

from tests.capture.values.harness import capture, check


class ResumePoint(NamedTuple):
    x: Any
    y: Any

    @property
    def norm(self) -> Any:
        return self.x * self.x + self.y * self.y

    def scaled(self, by: Any) -> ResumePoint:
        return self._replace(x=self.x * by)


def x() -> torch.Tensor:
    return torch.arange(6.0).reshape(2, 3)


def test_list_methods() -> None:
    def f(t: torch.Tensor) -> Any:
        items = [9, 1]
        items.append(t + 1)
        items.extend((2, 3))
        items.insert(0, "first")
        last = items.pop()
        items.remove("first")
        items += [4]
        items[1:2] = [7, t * 2]
        del items[-1]
        [items[0], 2].reverse()
        copied = items.copy()
        copied.clear()
        return items, last, copied, items.index(7), [1, 2, 1].count(1), items[::2], len(items), 7 in items, [0] * 3

    check(f, x())


def test_sorting() -> None:
    def f(t: torch.Tensor) -> Any:
        names = ["b", "a", "c"]
        names.sort(reverse=True)
        return (
            sorted([3, 1, 2]),
            names,
            sorted(names, key=lambda n: -ord(n)),
            min(3, 1, 2),
            max([1, 5], key=operator.neg),
            t + 1,
        )

    check(f, x())


def test_argument_list_is_changed() -> None:
    def f(items: list[Any]) -> torch.Tensor:
        items.append(items[0] * 2)
        items[0] = 5
        return items[1] + 1

    check(f, [x()])


def test_argument_dict_is_changed() -> None:
    def f(d: dict[str, Any]) -> torch.Tensor:
        d["new"] = d["a"] + 1
        d["a"] = 3
        del d["gone"]
        d.setdefault("set", []).append(d["new"])
        return d["new"] * 2

    check(f, {"a": x(), "gone": 1, "kept": 2})


def test_unchanged_entries_are_not_written() -> None:
    def f(d: dict[str, Any]) -> torch.Tensor:
        before = d["a"]
        d["a"] = 1
        d["a"] = before
        return before + 1

    class Watched(dict[str, Any]):
        pass

    captured = capture(f, {"a": x()})
    d = {"a": x()}
    captured.run(d)
    assert list(d) == ["a"]


def test_dict_methods() -> None:
    def f(t: torch.Tensor) -> Any:
        d: dict[Any, Any] = {"a": t, 1: 2, (1, "k"): None}
        d.update(b=t + 1, c=3)
        d |= {"e": 5}
        popped = d.pop("c"), d.pop("zz", "default")
        keys, values, items = list(d.keys()), list(d.values()), list(d.items())
        merged = {**d, "a": 0}
        return (
            d,
            popped,
            keys,
            values,
            items,
            merged,
            d.get("nope"),
            "a" in d,
            len(d),
            dict.fromkeys("ab", 0),
            d == dict(d),
        )

    check(f, x())


def test_dict_kinds() -> None:
    def f(t: torch.Tensor) -> Any:
        groups: defaultdict[str, list[Any]] = defaultdict(list)
        groups["x"].append(t * 2)
        ordered = OrderedDict([("b", 1), ("a", t)])
        ordered.move_to_end("b")
        queue = deque([1, 2, 3], maxlen=3)
        queue.append(4)
        queue.appendleft(t)
        return groups, ordered, queue, queue.popleft()

    check(f, x())


def test_sets() -> None:
    def f(t: torch.Tensor) -> Any:
        s = {1, 2, 3}
        s.add(4)
        s.discard(1)
        s |= {9}
        return sorted(s), 2 in s, s & {2, 4}, s - {2}, {1} <= {1, 2}, frozenset((1, 2)), len(s), t + len(s)

    check(f, x())


def test_set_argument() -> None:
    def f(s: set[str], t: torch.Tensor) -> torch.Tensor:
        if "a" in s:
            t = t + 1
        s.add("new")
        return t

    check(f, {"a", "b"}, x())


def test_tuples() -> None:
    def f(t: torch.Tensor) -> Any:
        a, *rest, b = (1, t, 2, 3)
        p = ResumePoint(t, 2)
        q = p.scaled(3)
        return (a, b), rest, p, q.x, q.norm, p[:1] + p[1:], (1, 2) < (1, 3), (0,) * 2, p[0], tuple(range(3)), p._fields

    check(f, x())


def test_argument_tuple_keeps_identity() -> None:
    def f(pair: tuple[torch.Tensor, ResumePoint]) -> Any:
        return pair, pair[1].x + pair[0]

    pair = (x(), ResumePoint(x(), 1))
    captured = capture(f, pair)
    assert captured.run(pair)[0] is pair


def test_iterators() -> None:
    def f(t: torch.Tensor) -> Any:
        pairs = list(zip([1, 2, 3], "abc", strict=True))
        numbered = list(enumerate(["p", "q"], start=5))
        mapped = list(map(lambda a, b: a * b, [1, 2], [t, t + 1]))
        kept = list(filter(None, [0, 1, 2, ""]))
        flat = list(itertools.chain([1], (2, 3), itertools.chain.from_iterable([[4]])))
        some = list(itertools.islice(itertools.count(10, 2), 3))
        grid = list(itertools.product([1, 2], "xy"))
        sums = list(itertools.accumulate([1, 2, 3], operator.mul))
        it = iter([1, 2])
        first = next(it)
        back = list(reversed([1, 2, 3]))
        total = sum(v for v in [1, 2, 3])
        return pairs, numbered, mapped, kept, flat, some, grid, sums, first, list(it), next(it, "end"), back, total

    check(f, x())


def test_comprehensions() -> None:
    def f(t: torch.Tensor) -> Any:
        return (
            [i * t for i in range(3) if i],
            {k: t + k for k in (1, 2)},
            {i % 2 for i in range(4)},
            any(i > 2 for i in range(4)),
        )

    check(f, x())


def test_list_iterator_sees_growth() -> None:
    def f(t: torch.Tensor) -> Any:
        items, seen = [1], []
        for item in items:
            seen.append(item)
            if len(items) < 4:
                items.append(item + 1)
        return seen, t + 1

    check(f, x())


def test_reduce_and_partial() -> None:
    def add(a: Any, b: Any, c: Any = 0) -> Any:
        return a + b + c

    def f(t: torch.Tensor) -> Any:
        return functools.reduce(add, [1, 2, t]), functools.partial(add, t, c=2)(1)

    check(f, x())


def test_aliases_stay_aliases() -> None:
    def f(a: list[Any], b: list[Any]) -> Any:
        a.append(b[0] + 1)
        return len(b), a is b, {"a": a, "b": b}

    shared = [x()]
    captured = capture(f, shared, shared)
    result = captured.run(shared, shared)
    assert result[:2] == (2, True)
    assert result[2]["a"] is result[2]["b"] is shared


def test_one_list_twice_in_the_result() -> None:
    def f(t: torch.Tensor) -> Any:
        inner = [t + 1]
        return [inner, inner]

    a, b = capture(f, x()).run(x())
    assert a is b


def test_errors_of_containers_are_the_programs() -> None:
    def f(t: torch.Tensor) -> Any:
        caught = []
        for attempt in (lambda: {}["k"], lambda: [][0], lambda: (1,)[5], lambda: [].pop(), lambda: next(iter([]))):
            try:
                attempt()
            except (KeyError, IndexError, StopIteration) as error:
                caught.append(type(error).__name__)
        return caught, t + 1

    check(f, x())


def test_counter_of_collections() -> None:
    assert collections.Counter("aab")["a"] == 2  # users' subclasses of dict are objects with storage

    class Tally(dict[str, int]):
        def bump(self, key: str) -> int:
            self[key] = self.get(key, 0) + 1
            return self[key]

    def f(t: torch.Tensor) -> Any:
        tally = Tally(a=1)
        tally.bump("a")
        tally.bump("b")
        return tally, len(tally), "b" in tally, list(tally), {**tally}, t + tally["a"]

    check(f, x())
