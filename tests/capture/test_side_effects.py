"""What a program does to containers, objects, variables, tensors and modules: what eager does, once, in order."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from typing import Any

import pytest
import torch
from torch import nn

from tests.capture.effects import Box, Made, Maker, check

MAKERS: list[Maker] = []


def effect(maker: Maker) -> Maker:
    MAKERS.append(maker)
    return maker


@effect
def list_of_a_closure() -> Made:
    seen: list[Any] = []

    def fn(y: torch.Tensor) -> torch.Tensor:
        seen.append(1)
        z = y * 2
        seen.append(z)
        seen.insert(0, len(seen))
        return z + 1

    return fn, lambda: list(seen)


@effect
def list_methods() -> Made:
    seen: list[Any] = [5, 3, 4]

    def fn(y: torch.Tensor) -> torch.Tensor:
        seen.sort()
        seen.extend([9, 8])
        seen.reverse()
        last = seen.pop()
        seen[0] = last
        del seen[1]
        seen[1:2] = [7, 7]
        seen.remove(7)
        seen.insert(1, 6)
        return y * len(seen) + last

    return fn, lambda: list(seen)


@effect
def list_keeps_its_identity() -> Made:
    seen: list[Any] = [1]
    alias = seen

    def fn(y: torch.Tensor) -> torch.Tensor:
        nonlocal seen
        seen += [2]
        seen = [*seen, 3]
        return y * len(alias)

    return fn, lambda: (seen, alias, seen is alias)


@effect
def dict_methods() -> Made:
    table: dict[Any, Any] = {"a": 1, "b": 2}

    def fn(y: torch.Tensor) -> torch.Tensor:
        table["c"] = table.get("c", 0) + 1
        if "c" in table:
            y = y + 1
        table["d"] = y
        del table["d"]
        if "d" not in table:
            y = y + 1
        if table.get("d") is None:
            y = y * 2
        table.setdefault("e", []).append(1)
        table.update(f=2, a=3)
        first = table.pop("b", 10)
        table["b"] = first + 1
        return y * len(table) + sum(v for k, v in table.items() if k != "e")

    return fn, lambda: dict(table)


@effect
def new_key_then_all_keys() -> Made:
    table: dict[Any, Any] = {}

    def fn(y: torch.Tensor) -> torch.Tensor:
        key = f"k{len(table)}"
        table[key] = y.sum()
        return torch.stack(list(table.values())).sum() + y

    return fn, lambda: dict(table)


@effect
def ordered_and_default_dicts() -> Made:
    ordered: Any = OrderedDict(a=1, b=2, c=3)
    default: Any = defaultdict(list)

    def fn(y: torch.Tensor) -> torch.Tensor:
        ordered.move_to_end("a")
        ordered["d"] = ordered.pop("b", 0)
        default["x"].append(len(default))
        default["y" * len(default)].append(y.shape)
        return y * len(ordered)

    return fn, lambda: (list(ordered.items()), dict(default))


@effect
def deque_and_set() -> Made:
    queue: deque[int] = deque([1, 2], 3)
    members = {1, 2}

    def fn(y: torch.Tensor) -> torch.Tensor:
        queue.append(len(queue))
        queue.appendleft(7)
        members.add(len(queue) + len(members))
        members.discard(1)
        return y * queue[0] + len(members)

    return fn, lambda: (list(queue), sorted(members))


@effect
def nonlocal_counter() -> Made:
    count = 0

    def fn(y: torch.Tensor) -> torch.Tensor:
        nonlocal count
        count += 1
        return y * count

    return fn, lambda: count


@effect
def nonlocal_tensor() -> Made:
    total: Any = torch.zeros(2, 3)

    def fn(y: torch.Tensor) -> torch.Tensor:
        nonlocal total
        total = total + y
        return total * 2

    return fn, lambda: total


@effect
def globals_of_a_function() -> Made:
    namespace: dict[str, Any] = {"count": 0, "items": []}
    exec(
        "def fn(y):\n    global count, fresh\n    count += 1\n    fresh = y * count\n    items.append(count)\n"
        "    return fresh + 1\n",
        namespace,
    )
    return namespace["fn"], lambda: (namespace["count"], namespace.get("fresh"), namespace["items"])


@effect
def global_deleted() -> Made:
    namespace: dict[str, Any] = {"value": 2}
    exec(
        "def fn(y):\n    global value\n    z = y * value\n    del value\n    value = 3\n    return z\n",
        namespace,
    )
    return namespace["fn"], lambda: namespace.get("value")


@effect
def attributes() -> Made:
    box = Box()

    def fn(y: torch.Tensor) -> torch.Tensor:
        box.value += 1
        box.items.append(box.value)
        box.last = y * box.value  # type: ignore[attr-defined]
        if hasattr(box, "gone"):
            del box.gone
        else:
            box.gone = 1  # type: ignore[attr-defined]
        return box.last + 1  # type: ignore[attr-defined,no-any-return]

    return fn, lambda: dict(vars(box))


@effect
def slots() -> Made:
    class Slotted:
        __slots__ = ("a", "b")

    box = Slotted()
    box.a = 1

    def fn(y: torch.Tensor) -> torch.Tensor:
        box.a += 1
        if hasattr(box, "b"):
            del box.b
        else:
            box.b = y
        return y * box.a

    return fn, lambda: (box.a, getattr(box, "b", None))


@effect
def class_attributes() -> Made:
    class Counter:
        count = 0

    def fn(y: torch.Tensor) -> torch.Tensor:
        Counter.count += 1
        return y * Counter.count

    return fn, lambda: Counter.count


@effect
def properties_and_setters() -> Made:
    class Owner:
        def __init__(self) -> None:
            self.log: list[Any] = []

        @property
        def value(self) -> int:
            self.log.append("get")
            return len(self.log)

        @value.setter
        def value(self, new: int) -> None:
            self.log.append(("set", new))

        def __setattr__(self, name: str, value: Any) -> None:
            if name == "other":
                self.log.append("other")
            object.__setattr__(self, name, value)

    owner = Owner()

    def fn(y: torch.Tensor) -> torch.Tensor:
        owner.value = owner.value + 1
        owner.other = 3  # type: ignore[attr-defined]
        return y * owner.value

    return fn, lambda: list(owner.log)


@effect
def two_names_of_one_list() -> Made:
    first: list[Any] = [1]
    box = Box()
    box.items = first

    def fn(y: torch.Tensor) -> torch.Tensor:
        first.append(2)
        box.items.append(3)
        return y * len(first) + len(box.items)

    return fn, lambda: (list(first), first is box.items)


@effect
def an_object_made_and_kept() -> Made:
    kept: list[Any] = []

    def fn(y: torch.Tensor) -> Any:
        box = Box()
        box.value = y * 2
        box.items.append(box.value)
        kept.append(box)
        kept.append(box)
        return box.value

    return fn, lambda: [(b.value, b.items, b.items[0] is b.value, b is kept[0]) for b in kept]


@effect
def tensors_in_place() -> Made:
    state = torch.zeros(3)
    views = state[1:]

    def fn(y: torch.Tensor) -> torch.Tensor:
        state.add_(1)
        state[0] = 5
        state.mul_(y[0])
        return state * 2

    return fn, lambda: (state, views)


@effect
def buffers_of_a_module() -> Made:
    module = nn.BatchNorm1d(3)

    def fn(y: torch.Tensor) -> torch.Tensor:
        return module(y)  # type: ignore[no-any-return]

    return fn, lambda: list(module.state_dict().values())


@effect
def a_module_that_counts() -> Made:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.count = 0
            self.register_buffer("total", torch.zeros(()))
            self.history: list[Any] = []

        def forward(self, y: torch.Tensor) -> torch.Tensor:
            self.count += 1
            self.total = self.total + y.sum()
            self.history.append((self.count, y.shape))
            self.extra = y * self.count
            return y + self.total

    net = Net()
    return net.forward, lambda: (net.count, net.total, net.history, net.extra, list(net._buffers))


@pytest.mark.filterwarnings("ignore::stator.base.errors.FallbackWarning")
@pytest.mark.parametrize("maker", MAKERS, ids=lambda maker: maker.__name__)
def test_effect(maker: Maker, capsys: pytest.CaptureFixture[str]) -> None:
    check(maker, capsys)
