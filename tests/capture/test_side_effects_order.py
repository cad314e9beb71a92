"""Effects among others: iterators, text, exceptions, breaks, caches, contexts, the user's own protocols."""

from __future__ import annotations

import random
import warnings
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import stator
from tests.capture.effects import Box, Made, Maker, check

MAKERS: list[Maker] = []


def effect(maker: Maker) -> Maker:
    MAKERS.append(maker)
    return maker


@effect
def generators_are_advanced() -> Made:
    def numbers() -> Iterator[int]:
        for i in range(100):
            log.append(i)
            yield i

    log: list[int] = []
    source = numbers()

    def fn(y: torch.Tensor) -> torch.Tensor:
        return y * next(source) + next(source)

    return fn, lambda: (list(log), next(source))


@effect
def list_iterators_are_advanced() -> Made:
    source = iter([1, 2, 3, 4, 5, 6, 7, 8, 9])
    pairs = enumerate("abcdefghijk")
    counts = zip(range(100), range(100), strict=True)

    def fn(y: torch.Tensor) -> torch.Tensor:
        index, _ = next(pairs)
        return y * next(source) + index + sum(next(counts))

    return fn, lambda: (next(source), next(pairs), next(counts))


@effect
def iterator_loops() -> Made:
    source = iter(range(20))

    def fn(y: torch.Tensor) -> torch.Tensor:
        for item in source:
            y = y + item
            if item % 3 == 2:
                break
        return y

    return fn, lambda: next(source)


@effect
def printing() -> Made:
    def fn(y: torch.Tensor) -> torch.Tensor:
        y = y * 2
        print("doubled")
        return y + 1

    return fn, lambda: None


@effect
def warning() -> Made:
    def fn(y: torch.Tensor) -> torch.Tensor:
        warnings.warn("watch out", UserWarning, stacklevel=1)
        return y + 1

    return fn, lambda: None


@effect
def raises_midway() -> Made:
    seen: list[Any] = []
    box = Box()

    def fn(y: torch.Tensor) -> torch.Tensor:
        seen.append(len(seen))
        box.value += 1
        y = y * 2
        if box.value == 2:
            raise ValueError(f"no {box.value}")
        seen.append("done")
        return y

    return fn, lambda: (list(seen), box.value)


@effect
def data_error_midway() -> Made:
    seen: list[Any] = []

    def fn(y: torch.Tensor) -> torch.Tensor:
        seen.append("before")
        z = torch.arange(3)[torch.tensor(7 - len(seen) * 0) + y[0, 0].long() * 0]
        seen.append("after")
        return z

    return fn, lambda: list(seen)


@effect
def data_error_handled() -> Made:
    seen: list[Any] = []

    def fn(y: torch.Tensor) -> torch.Tensor:
        try:
            z = torch.linalg.cholesky(-torch.eye(3) * y[0, 0])
        except RuntimeError:
            seen.append("handled")
            z = y
        finally:
            seen.append("finally")
        return z + 1

    return fn, lambda: list(seen)


@effect
def break_midway() -> Made:
    seen: list[Any] = []
    box = Box()

    def fn(y: torch.Tensor) -> torch.Tensor:
        seen.append("before")
        box.value += 1
        y.add_(1)
        if y.sum() > 0:
            seen.append("positive")
        box.items.append(float(y.sum()))
        return y

    return fn, lambda: (list(seen), vars(box))


@effect
def break_after_a_global() -> Made:
    namespace: dict[str, Any] = {"count": 0, "stator": stator}
    exec(
        "def fn(y):\n    global count\n    count += 1\n    stator.graph_break()\n    count += 1\n    return y * count",
        namespace,
    )
    return namespace["fn"], lambda: namespace["count"]


@effect
def cached_once() -> Made:
    import functools

    log: list[int] = []

    @functools.lru_cache
    def cached(n: int) -> int:
        log.append(n)
        return n * 2

    def fn(y: torch.Tensor) -> torch.Tensor:
        return y * cached(3) + cached(3)

    return fn, lambda: list(log)


@effect
def cached_property() -> Made:
    import functools

    class Owner:
        def __init__(self) -> None:
            self.log: list[int] = []

        @functools.cached_property
        def value(self) -> int:
            self.log.append(1)
            return 4

    owner = Owner()

    def fn(y: torch.Tensor) -> torch.Tensor:
        return y * owner.value + owner.value

    return fn, lambda: (list(owner.log), dict(vars(owner)))


@effect
def context_managers() -> Made:
    log: list[Any] = []

    class Scope:
        def __enter__(self) -> int:
            log.append("enter")
            return 3

        def __exit__(self, *error: Any) -> bool:
            log.append(("exit", error[0]))
            return True

    def fn(y: torch.Tensor) -> torch.Tensor:
        with Scope() as by:
            y = y * by
        with Scope():
            y = y + 1
            raise KeyError("swallowed")
        return y

    return fn, lambda: list(log)


@effect
def custom_function() -> Made:
    log: list[str] = []

    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, y: torch.Tensor) -> torch.Tensor:
            log.append("forward")
            return y * 2

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
            log.append("backward")
            return grad * 3

    def fn(y: torch.Tensor) -> torch.Tensor:
        z = y.detach().clone().requires_grad_()
        return Double.apply(z) + 1  # type: ignore[no-untyped-call,no-any-return]

    return fn, lambda: list(log)


@effect
def custom_function_of_a_parameter() -> Made:
    log: list[str] = []

    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, y: torch.Tensor) -> torch.Tensor:
            log.append("forward")
            return y * 2

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
            log.append("backward")
            return grad * 3

    weight = nn.Parameter(torch.ones(3))

    def fn(y: torch.Tensor) -> torch.Tensor:
        return Double.apply(weight) + y  # type: ignore[no-untyped-call,no-any-return]

    return fn, lambda: list(log)


@effect
def user_hash_and_equality() -> Made:
    log: list[str] = []

    class Key:
        def __init__(self, name: str) -> None:
            self.name = name

        def __hash__(self) -> int:
            log.append("hash")
            return hash(self.name)

        def __eq__(self, other: object) -> bool:
            log.append("eq")
            return isinstance(other, Key) and other.name == self.name

    table = {Key("a"): 2.0}
    log.clear()

    def fn(y: torch.Tensor) -> torch.Tensor:
        return y * table[Key("a")]

    return fn, lambda: list(log)


@effect
def instance_checks() -> Made:
    log: list[str] = []

    class Meta(type):
        def __instancecheck__(cls, instance: object) -> bool:
            log.append("check")
            return True

    class Checked(metaclass=Meta):
        pass

    def fn(y: torch.Tensor) -> torch.Tensor:
        return y * 2 if isinstance(y, Checked) else y

    return fn, lambda: list(log)


@effect
def set_item_of_a_dict_subclass() -> Made:
    log: list[Any] = []

    class Loud(dict[str, Any]):
        def __setitem__(self, key: str, value: Any) -> None:
            log.append(key)
            super().__setitem__(key, value)

        def __missing__(self, key: str) -> int:
            log.append(("missing", key))
            return 3

    table = Loud()

    def fn(y: torch.Tensor) -> torch.Tensor:
        table["a"] = table["b"] + 1
        return y * table["a"]

    return fn, lambda: (list(log), dict(table))


@effect
def counters() -> Made:
    counts: Any = Counter()

    def fn(y: torch.Tensor) -> torch.Tensor:
        before = counts["a"]
        counts["a"] += 2
        counts["b"] = counts["c"]
        return y * before + len(counts)

    return fn, lambda: dict(counts)


@effect
def arguments_named_like_our_slots() -> Made:
    seen: list[Any] = []

    def fn(value_0: torch.Tensor, output_0: int = 2, source_0: int = 3) -> Any:
        seen.append(value_0 + output_0)
        return value_0 * output_0 + source_0, output_0, source_0, seen[0]

    return fn, lambda: list(seen)


@effect
def function_attributes() -> Made:
    def helper(y: torch.Tensor) -> torch.Tensor:
        helper.calls += 1  # type: ignore[attr-defined]
        return y * helper.calls  # type: ignore[attr-defined,no-any-return]

    helper.calls = 0  # type: ignore[attr-defined]

    def fn(y: torch.Tensor) -> torch.Tensor:
        return helper(y)

    return fn, lambda: helper.calls  # type: ignore[attr-defined]


@effect
def tensor_attributes() -> Made:
    weight = nn.Parameter(torch.ones(3))

    def fn(y: torch.Tensor) -> torch.Tensor:
        weight.mark = getattr(weight, "mark", 0) + 1  # type: ignore[attr-defined]
        return y * weight.mark  # type: ignore[attr-defined,no-any-return]

    return fn, lambda: weight.mark  # type: ignore[attr-defined]


@effect
def randomness_of_python() -> Made:
    def fn(y: torch.Tensor) -> torch.Tensor:
        return y * random.random() + float(np.random.rand())

    random.seed(3)
    np.random.seed(3)
    return fn, lambda: None


@effect
def default_argument_grows() -> Made:
    def fn(y: torch.Tensor, seen: list[int] = []) -> torch.Tensor:  # noqa: B006
        seen.append(len(seen))
        return y * len(seen)

    return fn, lambda: list(fn.__defaults__[0])  # type: ignore[index]


@effect
def grad_mode_left_off() -> Made:
    def fn(y: torch.Tensor) -> torch.Tensor:
        torch.set_grad_enabled(False)
        return y * 2

    def look() -> bool:
        enabled = torch.is_grad_enabled()
        torch.set_grad_enabled(True)
        return enabled

    return fn, look


@pytest.mark.filterwarnings("ignore::stator.base.errors.FallbackWarning")
@pytest.mark.parametrize("maker", MAKERS, ids=lambda maker: maker.__name__)
def test_effect(maker: Maker, capsys: pytest.CaptureFixture[str]) -> None:
    check(maker, capsys)
