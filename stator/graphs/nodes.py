"""The nodes of graphs, which carry fakes: made, copied, put into modules, and what a call gives.

Every node has its fake (or a tuple of fakes) in `meta["val"]`. Nodes are made without the checks that dominate `fx`'s
own cost: `Graph.create_node` walks the arguments for symbolic numbers (20 µs a node), and `GraphModule` generates its
Python text at once, although mostly nobody runs it. Neighbours: `calls.py` (what a node does); `aot` and `passes` build
and rewrite with these.
"""

from __future__ import annotations

import linecache
import weakref
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import fx
from torch.fx import graph_module
from torch.fx._lazy_graph_module import _LazyGraphModule

from stator.fake.execute import execute


def add_node(
    graph: fx.Graph, kind: str, target: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], name: str | None = None
) -> fx.Node:
    """A node at the graph's insertion point."""
    node = graph.create_node(kind, target, (), None, name)
    # A node that is set an attribute files itself anew in the graph's index of targets, which knows no arguments.
    if args:
        object.__setattr__(node, "args", args)
    if kwargs:
        object.__setattr__(node, "kwargs", kwargs)
    return node


def add_call(graph: fx.Graph, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], name: str) -> fx.Node:
    """A `call_function` node at the graph's insertion point."""
    return add_node(graph, "call_function", func, args, kwargs, name)


def copy_call(graph: fx.Graph, node: fx.Node, values: Mapping[fx.Node, fx.Node]) -> fx.Node:
    """The same call in another graph; `values` maps the nodes among its arguments."""
    kwargs = {name: _mapped(value, values) for name, value in node.kwargs.items()} if node.kwargs else {}
    copy = add_call(graph, node.target, tuple([_mapped(arg, values) for arg in node.args]), kwargs, node.name)
    copy.meta.update(node.meta)
    return copy


def _mapped(arg: Any, values: Mapping[fx.Node, fx.Node]) -> Any:
    if isinstance(arg, fx.Node):
        return values[arg]
    if isinstance(arg, (list, tuple)):
        return [_mapped(item, values) for item in arg]
    return arg


def positional(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments passed by name in their position, as far as the schema allows it."""
    if not kwargs:
        return args, kwargs
    schema = func._schema.arguments
    moved = list(args)
    for parameter in schema[len(args) :]:
        if parameter.kwarg_only:
            break
        if parameter.name in kwargs:
            moved.append(kwargs[parameter.name])
        elif any(later.name in kwargs for later in schema[len(moved) :] if not later.kwarg_only):
            moved.append(parameter.default_value)
        else:
            break
    names = {parameter.name for parameter in schema[: len(moved)]}
    return tuple(moved), {name: value for name, value in kwargs.items() if name not in names}


class LazyModule(_LazyGraphModule):
    """Torch's lazy module, whose `forward` is only that: it runs no hooks, which are for the modules of the program.

    Torch keeps the text of every module for tracebacks; here it goes with the module.
    """

    def real_recompile(self) -> None:
        fresh = self._needs_recompile()
        super().real_recompile()
        if fresh:
            weakref.finalize(self, forget_text, type(self).forward.__code__.co_filename).atexit = False

    def _lazy_forward(self, *args: Any, **kwargs: Any) -> Any:
        self.real_recompile()
        return type(self).forward(self, *args, **kwargs)

    forward = _lazy_forward


def forward_of(gm: fx.GraphModule) -> Callable[..., Any]:
    """What runs the graph in eager, its text made now: through the lazy method each call would ask for it again."""
    if isinstance(gm, LazyModule):
        gm.real_recompile()
    forward: Callable[..., Any] = gm.forward
    return forward


def forget_text(file: str) -> None:
    """Drops the text of a generated file."""
    graph_module._loader.eval_cache.pop(file, None)
    linecache.cache.pop(file, None)


def module(graph: fx.Graph, name: str, root: torch.nn.Module | None = None) -> fx.GraphModule:
    """The graph as a module whose Python text is generated when somebody calls or prints it."""
    return LazyModule(torch.nn.Module() if root is None else root, graph, name)


def values_of(args: Any) -> tuple[Any, ...]:
    """Arguments with nodes replaced by their fakes."""
    return tuple([_value_of(arg) for arg in args])


def _value_of(arg: Any) -> Any:
    if isinstance(arg, fx.Node):
        return arg.meta["val"]
    return [_value_of(item) for item in arg] if isinstance(arg, (list, tuple)) else arg


def infer(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """The fake of a call over nodes."""
    return execute(func, values_of(args), {name: _value_of(value) for name, value in kwargs.items()})


def call_for(node: fx.Node, target: Any, *args: Any, **kwargs: Any) -> fx.Node:
    """A call at the graph's insertion point that becomes part of what a node computes: its fake is inferred, the rest
    of what is known of it (its place in the program, say) is the node's.
    """
    made = add_call(node.graph, target, args, kwargs, target._opname)
    made.meta.update(node.meta, val=infer(target, args, kwargs))
    return made
