"""What crosses a graph break: objects, cells, names, gradients, modules; and how a break is told."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
import torch

import stator
from stator.base.errors import CaptureError
from tests.capture.breaking import check, risky

X = torch.linspace(-1, 2, 6).reshape(2, 3)


class Box:
    def __init__(self, value: Any) -> None:
        self.value = value

    @property
    def doubled(self) -> Any:
        print("property")
        return self.value * 2

    def method(self, x: torch.Tensor, *, k: int = 2) -> torch.Tensor:
        self.value = self.value + x
        print("method")
        return self.value * k


def test_methods_properties_and_objects() -> None:
    def fn(x: torch.Tensor) -> Any:
        box = Box(x)
        y = box.method(x + 1, k=3)
        z = box.doubled + y
        box.extra = z
        print("extra")
        made = Box(z)
        print(type(made).__name__)
        made.value = made.value + 1
        box.made = made
        return made.doubled, box.value, box.extra, box.made is made

    check(fn, X)


def test_closures_and_cells() -> None:
    def fn(x: torch.Tensor) -> Any:
        count = 1

        def bump(k: int) -> int:
            nonlocal count
            count += k
            return count

        x = x + bump(1)
        print(count)
        x = x + bump(2)
        print("again", bump(3), count)
        count = 100
        print(bump(1))
        return x * count, (lambda: count)()

    check(fn, X)


def test_recursive_closure() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        def down(n: int) -> int:
            return 0 if n == 0 else n + down(n - 1)

        y = x + down(2)
        print("down", down(3))
        return y + down(4)

    check(fn, X)


COUNT = 0


def test_globals_and_nonlocals() -> None:
    outer = 5

    def fn(x: torch.Tensor) -> Any:
        nonlocal outer
        global COUNT
        outer += 1
        COUNT += 1
        x = x + outer
        print(outer, COUNT)
        outer += 1
        COUNT += 1
        return x * outer, COUNT

    for _ in range(2):
        outer, before = 5, 0
        globals()["COUNT"] = before
        expected = fn(X)
        outer = 5
        globals()["COUNT"] = before
        with pytest.warns(UserWarning) if _ == 0 else contextlib.nullcontext():
            found = stator.compile(fn, backend="eager")(X)
        assert torch.equal(found[0], expected[0]) and found[1] == expected[1] and outer == 7


def test_comprehensions_and_lambdas() -> None:
    def fn(x: torch.Tensor) -> Any:
        rows = [print("row", i) or x + i for i in range(3)]
        pairs = {i: rows[i].sum().item() for i in range(2)}
        add = lambda v, k=2: print("lambda") or v + k  # noqa: E731
        return add(rows[0]) * 2, pairs, sum(r.sum() for r in rows)

    check(fn, X)


def test_identity_is_kept() -> None:
    def fn(x: torch.Tensor) -> Any:
        first = [x + 1]
        second = first
        nested = {"list": first}
        print(first is second)
        second.append(x * 2)
        nested["list"].append(3)
        return first, second, nested["list"] is first, len(first)

    check(fn, X)


def test_views_and_in_place() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> Any:
        x.add_(1)
        view = x[0]
        z = y * 2
        part = z[1]
        print("before")
        view.mul_(3)
        part.zero_()
        y.sub_(1)
        return x, z, view, part

    check(fn, X, X + 1)


def test_gradients() -> None:
    def fn(x: torch.Tensor, w: torch.Tensor) -> Any:
        y = (x * w).tanh()
        print("middle")
        z = (y * w).sum()
        return z, y

    w = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    expected = torch.autograd.grad(fn(X, w)[0], w)
    with pytest.warns(UserWarning):
        found = torch.autograd.grad(stator.compile(fn, backend="aot_eager")(X, w)[0], w)
    torch.testing.assert_close(found, expected)


def test_signatures() -> None:
    def fn(a: torch.Tensor, /, b: int = 2, *rest: Any, c: int, d: int = 4, **extra: Any) -> Any:
        a = a * b
        print(rest, extra)
        return a + c * d, sum(rest), extra.get("e")

    check(fn, X, c=1)
    check(fn, X, 3, 4, 5, c=1, d=2, e=6)


class Base:
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1


class Derived(Base):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x * 2
        print("derived")
        return super().forward(x) * 3


def test_super_after_a_break() -> None:
    check(Derived().forward, X)


def test_unbound_locals_and_del() -> None:
    def fn(x: torch.Tensor, define: bool) -> Any:
        y = x + 1
        if define:
            later = 1
        print("break")
        z = y * 2
        del y
        print("deleted")
        return z, later

    check(fn, X, True)
    check(fn, X, False)

    def gone(x: torch.Tensor) -> Any:
        y = x + 1
        del y
        print("break")
        return y  # noqa: F821

    check(gone, X)


def test_generators_are_left_alone() -> None:
    def fn(x: torch.Tensor) -> Any:
        yield x + 1
        print("between")
        yield x + 2

    with pytest.warns(UserWarning):
        found = list(stator.compile(fn, backend="eager")(X))
    assert torch.equal(found[1], X + 2)


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(3, 4)
        self.second = torch.nn.Linear(4, 3)
        self.seen = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x).relu()
        self.seen += 1
        print("seen", self.seen)
        return self.second(x)


def test_modules() -> None:
    net = Net()
    with pytest.warns(UserWarning):
        found = stator.compile(net, backend="aot_eager")(X)
    expected = net(X)
    torch.testing.assert_close(found, expected)
    assert net.seen == 2


def test_modules_in_a_loop() -> None:
    layers = torch.nn.ModuleList(Net() for _ in range(3))

    def fn(x: torch.Tensor) -> torch.Tensor:
        for layer in layers:
            x = layer(x)
            print("layer")
        return x * 2

    with pytest.warns(UserWarning):
        found = stator.compile(fn, backend="eager")(X)
    for layer in layers:
        layer.seen = 0
    torch.testing.assert_close(found, fn(X))


def test_tracebacks_name_the_lines() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        x = x + 1
        print("once")
        risky(2)
        return x * 2

    with pytest.warns(UserWarning), pytest.raises(ValueError, match="too big") as caught:
        stator.compile(fn, backend="eager")(X)
    frames = [(frame.name, frame.lineno) for frame in caught.traceback]
    assert ("fn", fn.__code__.co_firstlineno + 2) in frames


def test_fullgraph_raises() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        print("no")
        return x

    with pytest.raises(CaptureError):
        stator.compile(fn, fullgraph=True, backend="eager")(X)


def test_frames_that_read_themselves() -> None:
    def fn(x: torch.Tensor) -> Any:
        y = x + 1
        print(sorted(locals()))
        return y * 2

    check(fn, X)
