"""What programs say to the compiler, in our words and in those of torch's compiler."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch

import stator
from stator.base.errors import FallbackWarning, Unsupported
from tests.capture.breaking import Counting, check

X = torch.linspace(-1, 2, 6).reshape(2, 3)
pytestmark = pytest.mark.filterwarnings("ignore:.*is deprecated:DeprecationWarning")


def test_graph_break() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        x = x + 1
        stator.graph_break("asked")
        return x * 2

    check(fn, X, graphs=2)


def test_graph_break_of_torch() -> None:
    code = "import torch\ndef fn(x):\n    x = x + 1\n    torch._dynamo.graph_break()\n    return x * 2\n"
    namespace: dict[str, Any] = {}
    exec(code, namespace)
    check(namespace["fn"], X, graphs=2)


@pytest.mark.parametrize("disable", [stator.disable, torch.compiler.disable], ids=["stator", "torch"])
@pytest.mark.parametrize("recursive", [True, False])
def test_disable(disable: Any, recursive: bool) -> None:
    @disable(recursive=recursive)
    def left(x: torch.Tensor) -> torch.Tensor:
        assert not torch.compiler.is_compiling()
        return x * 3

    def fn(x: torch.Tensor) -> torch.Tensor:
        y = left(x + 1)
        return y * 2

    check(fn, X, graphs=2)


def test_is_compiling() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return x + 1 if stator.is_compiling() and torch.compiler.is_compiling() else x - 1

    assert torch.equal(stator.compile(fn, backend="eager", fullgraph=True)(X), X + 1)
    assert torch.equal(fn(X), X - 1)


@pytest.mark.parametrize("allow", [stator.allow_in_graph, torch.compiler.allow_in_graph], ids=["stator", "torch"])
def test_allow_in_graph(allow: Any) -> None:
    seen: list[str] = []

    def opaque(x: torch.Tensor, by: int) -> torch.Tensor:
        seen.append(type(x).__name__)
        return x * by

    allow(opaque)

    def fn(x: torch.Tensor) -> torch.Tensor:
        return opaque(x + 1, 3) * 2

    backend = Counting()
    compiled = stator.compile(fn, backend=backend, fullgraph=True)
    for _ in range(2):
        torch.testing.assert_close(compiled(X), (X + 1) * 6)
    assert backend.graphs == 1
    assert seen[-2:] == ["Tensor", "Tensor"]


@pytest.mark.parametrize(
    "constant", [stator.assume_constant_result, torch.compiler.assume_constant_result], ids=["stator", "torch"]
)
def test_assume_constant_result(constant: Any) -> None:
    calls: list[int] = []

    @constant
    def setting() -> int:
        calls.append(1)
        return 3

    def fn(x: torch.Tensor) -> torch.Tensor:
        return x * setting()

    compiled = stator.compile(fn, backend="eager", fullgraph=True)
    for _ in range(3):
        torch.testing.assert_close(compiled(X), X * 3)
    assert len(calls) == 1


def test_a_backend_refuses_one_call() -> None:
    graphs: list[int] = []

    def backend(gm: torch.fx.GraphModule, examples: list[Any]) -> Any:
        for node in gm.graph.nodes:
            if node.target is torch.cos:
                error = Unsupported("cos", "this backend has no cosine")
                error.refused_at(node.meta["location"], node.meta["step"])
                raise error
        graphs.append(len(gm.graph.nodes))
        return gm.forward

    def fn(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        y = torch.cos(y)
        return y * 2

    with pytest.warns(FallbackWarning, match="breaks its graph: cos is not supported") as caught:
        found = stator.compile(fn, backend=backend)(X)
    torch.testing.assert_close(found, fn(X))
    assert caught[0].lineno == fn.__code__.co_firstlineno + 2
    assert len(graphs) == 2


def test_layers_behind_a_break_share_versions() -> None:
    """The first layer has a version, and those that follow one by what they are made of."""
    layers = torch.nn.ModuleList(torch.nn.Linear(3, 3) for _ in range(12))

    def fn(x: torch.Tensor) -> torch.Tensor:
        for layer in layers:
            x = layer(x).relu()
            stator.graph_break()
        return x

    backend = Counting()
    compiled = stator.compile(fn, backend=backend)
    with pytest.warns(FallbackWarning, match="asks for a graph break") as caught:
        torch.testing.assert_close(compiled(X), fn(X))
    assert len(caught) == 1
    before = backend.graphs
    torch.testing.assert_close(compiled(X + 1), fn(X + 1))
    assert backend.graphs == before <= 3


class Clipped(torch.autograd.Function):
    """The identity, whose gradient is cut only where it is large: a branch on data, in backward."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient / 2 if gradient.sum() > 1 else gradient


def test_a_gradient_that_cannot_be_captured() -> None:
    """Its refusal ends the graph before the call whose gradient it is."""

    def fn(x: torch.Tensor) -> torch.Tensor:
        return Clipped.apply(torch.sin(x) * 2) * x  # type: ignore[no-untyped-call]

    def run(call: Any) -> Any:
        x = X.clone().requires_grad_()
        out = call(x)
        out.sum().backward()
        return out, x.grad

    stator.reset()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", stator.base.errors.StatorWarning)
        got = run(stator.compile(fn, options={"strict": True}))
    torch.testing.assert_close(got, run(fn))
    with pytest.raises(stator.base.errors.CaptureError, match="depends on the data"):
        run(stator.compile(fn, fullgraph=True))
