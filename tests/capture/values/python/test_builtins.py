"""Builtin containers where a program could tell our models from Python's own types: keywords, subclasses, odd answers.

`tests/capture/containers` compares all methods; here is what was found from outside, and what is no method.
"""

from __future__ import annotations

import copy
import operator
import types
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from typing import Any

import pytest
import torch

import stator
from tests.capture.values.harness import check

T = torch.arange(3.0)


class Ordered(OrderedDict[Any, Any]):
    """A subclass."""


class Line(deque[Any]):
    """A subclass."""


#: Programs of a tensor that were wrong.
PROGRAMS: dict[str, Callable[[torch.Tensor], Any]] = {
    "dict_other": lambda t: (dict(other=t + 1), dict({"a": 1}, other={"b": 2}, self=3, tx=4)),  # noqa: C408
    "update_other": lambda t: [d := {"a": t + 1}, d.update(other={"b": 2}), d.update([("c", 3)], self=4, tx=5)],
    "ordered_other": lambda t: (OrderedDict(other=t + 1, self=1, tx=2), OrderedDict([("a", 1)], other=2)),
    "default_other": lambda t: defaultdict(list, {"a": t + 1}, other=1, self=2, tx=3, factory=4),
    "kept_keywords": lambda t: (lambda **named: named)(self=t + 1, tx=2, args=3, kwargs=4, cls=5),
    "ordered_fromkeys": lambda t: OrderedDict.fromkeys(["a", "b"], value=t + 1),
    "deque_copy": lambda t: (deque([1, t + 1], 3).copy(), copy.copy(deque([1, 2], 3)), copy.deepcopy(deque([1], 3))),
    "deque_equal": lambda t: (deque([1]) == [1], deque([1]) != [1], deque([1]) == deque([1], 2), t + 1),
    "ordered_copy": lambda t: (Ordered(a=t + 1).copy(), Ordered(a=1) | {"b": 2}, {"b": 2} | Ordered(a=1)),
    "line_copy": lambda t: (Line([1, t + 1], 3).copy(), Line([1], 2) + deque([2]), Line([1, 2], 3) * 2),
    "set_order": lambda t: (list({3, 1, 2}), [*{"b": 1}.keys() | {"b"}], {8, 0, 1}.pop(), t + 1),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name: str) -> None:
    check(PROGRAMS[name], T)


def outcome(function: Callable[..., Any], *args: Any) -> Any:
    try:
        return function(*args)
    except Exception as error:
        return type(error), str(error)


def same_outcome(function: Callable[..., Any], make: Callable[[], Any]) -> None:
    """Compiled, it gives or raises what it does in Python."""
    expected = outcome(function, make(), T)
    stator.reset()
    got = outcome(stator.compile(function, backend="eager", options={"strict": True}), make(), T)
    assert str(got) == str(expected)


def sliced(q: Any, t: torch.Tensor) -> Any:
    return q[:1], t + 1


def full(q: Any, t: torch.Tensor) -> Any:
    q.insert(1, t + 1)
    return q


def caught(q: Any, t: torch.Tensor) -> Any:
    try:
        q.append(item=1)
    except TypeError as error:
        return str(error), t + 1


@pytest.mark.parametrize("function", [sliced, full, caught])
def test_errors_of_a_full_deque(function: Callable[..., Any]) -> None:
    same_outcome(function, lambda: deque([1, 2], 2))


# -- special methods whose answers Python checks --------------------------------------------------------------

#: Special method -> what asks it.
ASKED: dict[str, Callable[..., Any]] = {
    "__bool__": lambda o: bool(o),
    "__len__": lambda o: (len(o), bool(o)),
    "__str__": lambda o: (str(o), f"{o}", "%s" % o),  # noqa: UP031
    "__repr__": lambda o: (repr(o), f"{o!r}", str([o])),
    "__format__": lambda o: format(o, "x"),
    "__hash__": lambda o: (hash(o) == hash(o), {o: 1}[o]),
    "__index__": lambda o: [1, 2, 3][o],
    "__int__": lambda o: int(o),
    "__float__": lambda o: float(o),
    "__complex__": lambda o: complex(o),
    "__bytes__": lambda o: bytes(o),
    "__iter__": lambda o: list(o),
    "__length_hint__": lambda o: operator.length_hint(o),
    "__contains__": lambda o: 1 in o,
    "__eq__": lambda o: (o == 1, 1 == o, o in [1], [o].count(1)),  # noqa: SIM300
    "__reversed__": lambda o: list(reversed(o)),
    "__call__": lambda o: o(),
    "__abs__": lambda o: abs(o),
    "__add__": lambda o: o + 1,
    "__round__": lambda o: round(o),
    "__init__": lambda o: type(o)(),
}
ANSWERS = (1.2, -1, 3, 2**70, "x", b"x", None, True, [1, 2], (), NotImplemented, 1j, 0)


def asking(name: str, answer: Any) -> Callable[..., Any]:
    """A function that asks a fresh object, which counts how often it is asked."""
    ask = ASKED[name]

    def method(self: Any, *args: Any) -> Any:
        self.count = getattr(self, "count", 0) + 1
        return answer

    cls = type("Odd", (), {name: method, "__hash__": object.__hash__} if name == "__eq__" else {name: method})

    def f(o: Any, t: torch.Tensor) -> Any:
        t = t + 1
        try:
            result = ask(o)
        except Exception as error:
            result = type(error), str(error)
        return result, getattr(o, "count", 0), t

    f.cls = cls  # type: ignore[attr-defined]
    return f


@pytest.mark.parametrize("name", ASKED)
def test_an_odd_answer_is_no_answer(name: str) -> None:
    for answer in ANSWERS:
        function = asking(name, answer)
        cls: type = function.cls  # type: ignore[attr-defined]
        make = lambda cls=cls: cls.__new__(cls)  # noqa: E731
        if name in ("__repr__", "__str__") or " at 0x" not in str(outcome(function, make(), T)):
            same_outcome(function, make)


def test_a_module_is_asked_once_for_each_use() -> None:
    module = types.ModuleType("lazy")
    exec("asked = []\ndef __getattr__(name):\n    asked.append(name)\n    return len(asked)\n", module.__dict__)

    def f(t: torch.Tensor) -> Any:
        return t * module.first + module.second, module.asked[-1]

    compiled = stator.compile(f, backend="eager", options={"strict": True})
    for number in range(3):
        got = compiled(T)
        assert module.asked == ["first", "second"] * (number + 1)
        torch.testing.assert_close(got[0], T * (2 * number + 1) + (2 * number + 2))
