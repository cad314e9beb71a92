"""The key of a graph: everything that changes the result changes it, and nothing else does."""

from __future__ import annotations

import contextlib
import functools
import operator
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import fx

from stator.base.errors import Unsupported
from stator.base.options import Options
from stator.fingerprint import _name, graph_key
from stator.graphs import nodes

F = torch.nn.functional


class Made:
    """A small graph with all that a captured one has; each test changes one thing."""

    def __init__(self, **changes: Any) -> None:
        self.names = ["x", "y", "weight"]
        self.attribute: Any = torch.nn.Parameter(torch.ones(4, 4))
        self.x = torch.randn(3, 4)
        self.y = torch.randn(3, 4)
        self.function: Any = F.relu
        self.method = "transpose"
        self.arguments: tuple[Any, ...] = (0, 1)
        self.kwargs: dict[str, Any] = {"alpha": 2}
        self.options = Options()
        self.order = False
        self.__dict__.update(changes)

    def key(self) -> str:
        graph = fx.Graph()
        x, y = graph.placeholder(self.names[0]), graph.placeholder(self.names[1])
        weight = graph.get_attr(self.names[2])
        product = graph.call_function(torch.matmul, (x, weight))
        summed = graph.call_function(torch.add, (y, product) if self.order else (product, y), self.kwargs)
        moved = graph.call_method(self.method, (summed, *self.arguments))
        last = graph.create_node("call_function", self.function, (moved,), {}, "last")
        graph.output((last, x))
        root = torch.nn.Module()
        if isinstance(self.attribute, torch.nn.Parameter):
            root.register_parameter(self.names[2], self.attribute)
        else:
            root.register_buffer(self.names[2], self.attribute)
        return graph_key(nodes.module(graph, "graph", root), [self.x, self.y], self.options)


def views(offset: int) -> dict[str, torch.Tensor]:
    memory = torch.randn(64)
    return {"x": memory[:12].view(3, 4), "y": memory[offset : offset + 12].view(3, 4)}


same = torch.randn(3, 4)
CHANGES: dict[str, dict[str, Any]] = {
    "shape": {"x": torch.randn(5, 4)},
    "rank": {"x": torch.randn(1, 3, 4)},
    "stride": {"x": torch.randn(4, 3).t()},
    "offset": {"x": torch.randn(16)[4:].view(3, 4)},
    "dtype": {"x": torch.randn(3, 4, dtype=torch.float64)},
    "requires_grad": {"x": torch.randn(3, 4, requires_grad=True)},
    "leaf": {"x": torch.randn(3, 4, requires_grad=True) * 1},
    "device": {"x": torch.empty(3, 4, device="meta")},
    "conj": {"x": torch.randn(3, 4, dtype=torch.complex64).conj()},
    "complex": {"x": torch.randn(3, 4, dtype=torch.complex64)},
    "buffer": {"attribute": torch.ones(4, 4)},
    "frozen": {"attribute": torch.nn.Parameter(torch.ones(4, 4), requires_grad=False)},
    "same tensor twice": {"x": same, "y": same},
    "one memory": views(0),
    "one memory, shifted": views(4),
    "input is attribute": {"x": same, "attribute": same.t()},
    "constant": {"arguments": (0, -1)},
    "type of constant": {"arguments": (0, 1.0)},
    "bool constant": {"arguments": (0, True)},
    "keyword": {"kwargs": {"alpha": 3}},
    "no keyword": {"kwargs": {}},
    "negative zero": {"kwargs": {"alpha": -0.0}},
    "zero": {"kwargs": {"alpha": 0.0}},
    "function": {"function": torch.sigmoid},
    "overload": {"function": torch.ops.aten.relu.default},
    "method": {"method": "swapaxes"},
    "order of arguments": {"order": True},
    "list": {"arguments": ([0, 1],)},
    "tuple": {"arguments": ((0, 1),)},
    "slice": {"arguments": (slice(0, 1),)},
    "dtype argument": {"arguments": (torch.float32,)},
    "string": {"arguments": ("float32",)},
    "numerics": {"options": Options(numerics="fast")},
    "threads": {"options": Options(threads=3)},
    "cpu_kernels": {"options": Options(cpu_kernels="c")},
    "triton": {"options": Options(triton="stator")},
    "eager_random": {"options": Options(eager_random=True)},
    "compiler": {"options": Options(compiler="clang++")},
    "budget": {"options": Options(activation_memory_budget=0.5)},
}


def test_each_change_gives_a_key_of_its_own() -> None:
    keys = {"nothing": Made().key(), **{name: Made(**change).key() for name, change in CHANGES.items()}}
    assert len(set(keys.values())) == len(keys), [n for n, k in keys.items() if list(keys.values()).count(k) > 1]


@contextlib.contextmanager
def setting(change: Callable[[Any], Any], new: Any, old: Any) -> Iterator[None]:
    change(new)
    try:
        yield
    finally:
        change(old)


MODES: dict[str, Callable[[], contextlib.AbstractContextManager[Any]]] = {
    "no_grad": torch.no_grad,
    "inference_mode": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "autocast to half": lambda: torch.autocast("cpu", torch.float16),
    "default dtype": lambda: setting(torch.set_default_dtype, torch.float64, torch.float32),
    "deterministic": lambda: setting(torch.use_deterministic_algorithms, True, False),
    "precision": lambda: setting(torch.set_float32_matmul_precision, "high", "highest"),
    "mkldnn": lambda: torch.backends.mkldnn.flags(enabled=False),
    "attention": lambda: torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH),
    "threads": lambda: setting(torch.set_num_threads, torch.get_num_threads() + 1, torch.get_num_threads()),
}


@pytest.mark.filterwarnings("ignore:TF32")
def test_each_mode_gives_a_key_of_its_own() -> None:
    made = Made()
    keys = {"nothing": made.key()}
    for name, mode in MODES.items():
        with mode():
            keys[name] = made.key()
    assert len(set(keys.values())) == len(keys), [n for n, k in keys.items() if list(keys.values()).count(k) > 1]
    assert made.key() == keys["nothing"]


@pytest.mark.parametrize(
    "change",
    [
        {"names": ["a", "b", "deep_weight"]},
        {"x": torch.zeros(3, 4), "y": torch.full((3, 4), float("nan"))},
        {"attribute": torch.nn.Parameter(torch.zeros(4, 4))},
        {"options": Options(strict=True, debug="somewhere", logs="graphs", cache_dir="elsewhere", recompile_limit=3)},
    ],
    ids=["names", "data", "weights", "options"],
)
def test_what_changes_nothing_changes_no_key(change: dict[str, Any]) -> None:
    assert Made(**change).key() == Made().key()


def users_own(x: torch.Tensor) -> torch.Tensor:
    return x + 1


def named_like_torch(x: torch.Tensor) -> torch.Tensor:
    return x - 1


named_like_torch.__module__, named_like_torch.__qualname__ = "torch.nn.functional", "relu"
library = torch.library.Library("stator_tests_fingerprint", "DEF")
library.define("twice(Tensor x) -> Tensor")
library.impl("twice", lambda x: x * 2, "CompositeImplicitAutograd")


@pytest.mark.parametrize(
    "function",
    [
        users_own, named_like_torch, lambda x: x, functools.partial(torch.add, 1), operator.itemgetter(0),
        torch.ops.stator_tests_fingerprint.twice.default, torch.ops.stator_tests_fingerprint.twice, Made,
    ],
    ids=["function", "disguised", "lambda", "partial", "object", "overload", "packet", "class"],
)  # fmt: skip
def test_code_that_may_change_has_no_key(function: Any) -> None:
    with pytest.raises(Unsupported, match=r"without its name changing|no stable text"):
        Made(function=function).key()
    with pytest.raises(Unsupported):
        Made(kwargs={"alpha": function}).key()


@pytest.mark.parametrize("value", [torch.ones(2), object(), {1, 2}], ids=["tensor", "object", "set"])
def test_values_without_stable_text_have_no_key(value: Any) -> None:
    with pytest.raises(Unsupported):
        Made(kwargs={"alpha": value}).key()


@pytest.mark.parametrize(
    "function",
    [
        torch.relu, torch.sin, F.linear, F.gelu, F.softmax, torch.einsum, torch.tensor, operator.add, operator.getitem,
        torch.Tensor.add, torch.Tensor.split, torch.Tensor.__add__, torch._C._set_grad_enabled, torch.special.erf,
        torch.ops.aten.add.Tensor, torch.ops.aten.add, torch.conv2d, F.scaled_dot_product_attention, torch.split,
        getattr, torch.amp.autocast_mode._enter_autocast, torch.linalg.norm, torch.fft.fft, F.embedding,
    ],
    ids=lambda function: getattr(function, "__name__", str(function)),
)  # fmt: skip
def test_what_pytorch_and_python_define_has_a_key(function: Any) -> None:
    assert Made(function=function).key() == Made(function=function).key() != Made().key()


def test_functions_that_torch_makes_of_two_others_are_named() -> None:
    pooled = torch.nn.functional.max_pool2d
    assert "<" in pooled.__qualname__
    assert _name(pooled).startswith("max_pool2d of [")
    assert _name(pooled) != _name(torch.nn.functional.max_pool1d)
