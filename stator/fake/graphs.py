"""Graphs whose nodes carry fakes: making, copying, emitting nodes, and whose memory a node's value is in.

Every node has its fake (or a tuple of fakes) in `meta["val"]`. Nodes are made without the checks that dominate `fx`'s
own cost: `Graph.create_node` walks the arguments for symbolic numbers (20 µs a node), and `GraphModule` generates its
Python text at once, although mostly nobody runs it. Neighbours: `aot` and `passes` build and rewrite with these.
"""

from __future__ import annotations

import linecache
import weakref
from collections.abc import Mapping
from typing import Any

import torch
from torch import fx
from torch.fx import graph_module
from torch.fx._lazy_graph_module import _LazyGraphModule

from stator.fake.execute import argument, execute, plan_of
from stator.fake.overloads import overload

#: Operators whose kernels raise for some values of their operands.
CHECKING = {
    overload(name)
    for name in (
        *("_linalg_svd", "_linalg_eigh", "linalg_eig", "_linalg_eigvals", "linalg_eigvals", "cholesky_inverse"),
        *("linalg_lstsq", "lu_unpack", "linalg_lu_solve", "linalg_ldl_solve", "ormqr", "linalg_householder_product"),
        *("ctc_loss.IntList", "_ctc_loss", "multi_margin_loss", "multilabel_margin_loss_forward"),
        *("max_unpool2d", "max_unpool3d", "binary_cross_entropy", "masked_scatter", "segment_reduce"),
    )
}


def add_node(
    graph: fx.Graph, kind: str, target: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], name: str | None = None
) -> fx.Node:
    """A node at the graph's insertion point."""
    node = graph.create_node(kind, target, (), None, name)
    # A node that is set an attribute files itself anew in the graph's index of targets, which knows no arguments.
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


def is_view(node: fx.Node) -> bool:
    """Whether the node only renames memory."""
    target: Any = node.target
    return node.op == "call_function" and isinstance(target, torch._ops.OpOverload) and plan_of(target).view


def is_pure(node: fx.Node) -> bool:
    """Whether the call gives the same for the same arguments, and does nothing else."""
    target: Any = node.target
    return not isinstance(target, torch._ops.OpOverload) or plan_of(target).pure or _drops_nothing(target, node)


def draws(node: fx.Node) -> bool:
    """Whether the call takes numbers from torch's generator, which it does although nobody reads its results."""
    target: Any = node.target
    if not isinstance(target, torch._ops.OpOverload) or torch.Tag.nondeterministic_seeded not in target.tags:
        return False
    return not _drops_nothing(target, node)


def acts(node: fx.Node) -> bool:
    """Whether the call does something although nobody reads its results: it draws random numbers, or checks data."""
    target: Any = node.target
    if not isinstance(target, torch._ops.OpOverload):
        return False
    checks = not target._schema.returns or (target in CHECKING and node.meta.get("phase", "forward") == "forward")
    return draws(node) or (checks and plan_of(target).pure)


def _drops_nothing(target: Any, node: fx.Node) -> bool:
    """Whether a call that writes nothing draws random numbers only for a dropout, of which there is none."""
    arguments = target._schema.arguments
    names = [parameter.name for parameter in arguments]
    if "dropout_p" not in names or any(a.alias_info is not None and a.alias_info.is_write for a in arguments):
        return False
    position = names.index("dropout_p")
    rate = argument(target, node.args, node.kwargs, position)
    return bool((arguments[position].default_value if rate is None else rate) == 0)


def root(node: fx.Node) -> fx.Node:
    """The node in whose memory the node's value lies."""
    while is_view(node):
        node = node.args[0]  # type: ignore[assignment]
    return node
