"""The way round: stator as a backend of `torch.compile(backend="stator")`.

PyTorch captures, stator compiles what it captured; the entry point in pyproject.toml makes the name known. Compilation
waits for the first call, because only then the inputs are real tensors. Where PyTorch passes sizes as inputs, each
combination of sizes is compiled on its own, with the sizes written into the graph.
Neighbours: `driver.compile_graph`. This is the one file that may import parts of torch's compiler; it needs none.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import fx

from stator import driver
from stator.base.options import CODE, TRACE, Options


def stator(
    gm: fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: Mapping[str, object] | None = None,
) -> Callable[..., Any]:
    """The callable of a graph that `torch.compile` captured."""
    known = Options.from_user(mode, options)
    known.announce_unread(options or (), (TRACE, CODE), "torch.compile(backend='stator')")
    if all(isinstance(value, torch.Tensor) for value in example_inputs):
        return _Lazy(gm, known)
    return _PerSize(gm, known)


class _Lazy:
    """Compiled at the first call; the caller's guards see to it that one version is enough."""

    __slots__ = ("compiled", "gm", "options")

    def __init__(self, gm: fx.GraphModule, options: Options) -> None:
        self.gm = gm
        self.options = options
        self.compiled: Callable[..., Any] | None = None

    def __call__(self, *tensors: torch.Tensor) -> Any:
        if self.compiled is None:
            self.compiled = driver.compile_graph(self.gm, list(tensors), options=self.options)
        return self.compiled(*tensors)


class _PerSize:
    """One version for each combination of sizes among the inputs."""

    __slots__ = ("gm", "options", "versions")

    def __init__(self, gm: fx.GraphModule, options: Options) -> None:
        self.gm = gm
        self.options = options
        self.versions: dict[tuple[Any, ...], _Lazy] = {}

    def __call__(self, *inputs: Any) -> Any:
        key = tuple((v.shape, v.stride()) if isinstance(v, torch.Tensor) else v for v in inputs)
        version = self.versions.get(key)
        if version is None:
            version = self.versions[key] = _Lazy(with_numbers(self.gm, inputs), self.options)
        return version(*(v for v in inputs if isinstance(v, torch.Tensor)))


def with_numbers(gm: fx.GraphModule, inputs: Sequence[Any]) -> fx.GraphModule:
    """`gm` with its number inputs replaced by the numbers: f(s, x) --> f(3, x) as a function of x."""
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    graph.output(graph.graph_copy(gm.graph, copies))
    for node, value in zip(gm.graph.find_nodes(op="placeholder"), inputs, strict=True):
        if isinstance(value, torch.Tensor):
            continue
        write = functools.partial(_instead, copies[node], value)
        for user in list(copies[node].users):
            user.args = fx.map_arg(user.args, write)
            user.kwargs = fx.map_arg(user.kwargs, write)
        graph.erase_node(copies[node])
    return fx.GraphModule(gm, graph)


def _instead(old: fx.Node, number: Any, node: fx.Node) -> Any:
    return number if node is old else node
