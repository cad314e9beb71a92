"""Programs as libraries and curious users write them, each of which once crashed, broke or answered wrongly."""

from __future__ import annotations

import builtins
import functools
import math
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

import stator
from stator.base.errors import FallbackWarning
from stator.capture import frames


def test_a_backend_that_compiles_its_graph() -> None:
    def again(gm: Any, examples: Any) -> Any:
        return stator.compile(gm)

    compiled = stator.compile(lambda x: x.sin() * 2 + 1, backend=again, options={"strict": True})
    for size in (3, 4, 5):
        x = torch.randn(size)
        torch.testing.assert_close(compiled(x), x.sin() * 2 + 1)


@torch.library.custom_op("stator_library_tests::tripled", mutates_args=())
def tripled(x: Tensor) -> Tensor:
    return x * 3


def test_an_operator_that_is_disabled(monkeypatch: pytest.MonkeyPatch) -> None:
    namespace = torch.ops.stator_library_tests
    monkeypatch.setattr(namespace, "tripled", stator.disable(namespace.tripled))
    compiled = stator.compile(lambda x: torch.ops.stator_library_tests.tripled(x + 1) * 2)
    x = torch.randn(3)
    with pytest.warns(FallbackWarning):
        torch.testing.assert_close(compiled(x), (x + 1) * 6)


def test_a_builtin_that_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Our own code does not look it up in the program's builtins."""
    compiled = stator.compile(lambda x, items: x * len(items))
    x = torch.ones(2)
    assert compiled(x, [1, 2]).tolist() == [2, 2]
    with pytest.warns(FallbackWarning, match="is not Python's own"), monkeypatch.context() as patch:
        patch.setattr(builtins, "len", lambda items: 7)
        found = compiled(x, [1, 2]), compiled(x, [1, 2])
    assert [result.tolist() for result in found] == [[7, 7], [7, 7]]
    assert compiled(x, [1, 2]).tolist() == [2, 2]


@pytest.mark.parametrize("name", ["shape", "size", "stride", "numel", "storage_offset", "dtype"])
@pytest.mark.parametrize("dynamic", [None, True])
def test_a_geometry_that_is_replaced(name: str, dynamic: bool | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the program says of a tensor is not taken for what lies in memory, whether its code was compiled before."""
    lies: dict[str, Any] = {
        "shape": property(lambda t: torch.Size([100, 100])),
        "size": lambda t, *dim: 100 if dim else torch.Size([100, 100]),
        "stride": lambda t, *dim: 7 if dim else (7, 7),
        "numel": lambda t: 10_000,
        "storage_offset": lambda t: 90,
        "dtype": property(lambda t: torch.float64),
    }

    def asks(x: Tensor) -> Any:
        found = getattr(x, name)
        return x * 2 + 1, found() if callable(found) else found

    def computes(x: Tensor) -> Tensor:
        return (x.view(-1) * 2).cumsum(0) + x.sin().mean(0).sum()

    earlier = [stator.compile(function, dynamic=dynamic) for function in (asks, computes)]
    x = torch.randn(4, 3)
    right = [function(x) for function in (asks, computes)]
    frames.forget_warnings()
    for compiled in earlier:
        compiled(x)
    with pytest.warns(FallbackWarning, match="is not torch's own"), monkeypatch.context() as patch:
        patch.setattr(Tensor, name, lies[name])
        found = [
            (compiled(x), stator.compile(function)(x))
            for compiled, function in zip(earlier, (asks, computes), strict=True)
        ]
        lie = asks(x)[1]
    assert [result[1] for result in found[0]] == [lie, lie] != [right[0][1]] * 2
    for result, _ in found[0]:
        torch.testing.assert_close(result, right[0][0])
    for result in found[1]:
        torch.testing.assert_close(result, right[1], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(earlier[0](x)[0], right[0][0])


class Edges(NamedTuple):
    """Fields named as methods of tuple are, as those of graph libraries."""

    index: Tensor
    count: int

    def gathered(self, x: Tensor) -> Tensor:
        return x.new_zeros(self.count, x.shape[1]).index_add_(0, self.index[1], x[self.index[0]])


class Recipe:
    """A recipe that a cached function makes from text, once, and that is called many times."""

    def __init__(self, pattern: str) -> None:
        left, right = pattern.split("->")
        self.names, self.groups = left.split(), [group.split() for group in right.strip("() ").split(")(")]

    def apply(self, x: Tensor) -> Tensor:
        sizes = dict(zip(self.names, x.shape, strict=True))
        moved = x.permute([self.names.index(name) for group in self.groups for name in group])
        return moved.reshape([math.prod(sizes[name] for name in group) for group in self.groups])


@functools.lru_cache(256)
def recipe(pattern: str) -> Recipe:
    return Recipe(pattern)


def rearranged(x: Tensor) -> Tensor:
    return recipe("b c h w -> (b)(h w)(c)").apply(x) + recipe("b c h w -> (b)(w h)(c)").apply(x)


def passed(x: Tensor) -> Tensor:
    edges = Edges(torch.tensor([[0, 1, 2], [1, 0, 0]]), x.shape[0])
    return edges.gathered(x.sin()) * edges.count


def bound(x: Tensor) -> Any:
    """Names of parameters that are ours as well."""
    return OrderedDict(other=3, self=2, tx=1), (lambda **names: names)(tx=1, args=2, source=x), x + 1


@pytest.mark.parametrize(
    ("program", "sizes"),
    [
        (rearranged, [(2, 3, 4, 5), (2, 3, 6, 5), (3, 3, 4, 7)]),
        (passed, [(3, 2), (4, 2), (5, 3)]),
        (bound, [(2,), (3,)]),
    ],
)
def test_one_graph(program: Callable[[Tensor], Any], sizes: list[tuple[int, ...]]) -> None:
    compiled = stator.compile(program, fullgraph=True, options={"strict": True})
    for size in sizes:
        x = torch.randn(size)
        torch.testing.assert_close(compiled(x), program(x))
