"""Split off what a forward graph computes from parameters alone: the prologue, a graph of its own.

Its results are the last inputs of what is left. Only of graphs that no backward follows. Nothing is baked in: the
prologue runs again when a parameter has been written to (`stator/aot/frozen.py`, `csrc/frozen.c`).
Neighbours: `graphs/frozen.py` says which calls these are; `stator.pipeline` compiles both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from stator.aot.metadata import Frozen, Metadata, Packed
from stator.base.device import HOST
from stator.base.records import dataclass
from stator.graphs.calls import root
from stator.graphs.frozen import FROZEN, PACKS, frozen, nbytes
from stator.graphs.nodes import add_node, copy_call, module


@dataclass(frozen=True, slots=True)
class Prologue:
    """The graph (None where it would compute nothing), what the runtime is told, and the bytes that are kept."""

    graph: fx.GraphModule | None
    frozen: Frozen
    kept: int


def mark(graph: fx.Graph, metadata: Metadata, attributes: Sequence[torch.Tensor]) -> None:
    """Mark the placeholders of parameters, buffers and constants whose writes will be seen.

    PyTorch's kernels write to buffers without a trace (batch norm's statistics): these are compared by value, on the
    host. An inference tensor counts no writes.
    """
    written = set(metadata.overwritten)
    for i, (node, tensor) in enumerate(zip(graph.find_nodes(op="placeholder"), attributes, strict=False)):
        watched = isinstance(tensor, torch.nn.Parameter) or tensor.device.type == HOST
        if i not in written and watched and not tensor.is_inference():
            node.meta[FROZEN] = True


def split(gm: fx.GraphModule) -> Prologue | None:
    """Take the prologue out of a forward graph; None, and no change, where there is none."""
    graph = gm.graph
    known = frozen(graph)
    read = {root(node): None for node in graph.nodes if node in known and any(user not in known for user in node.users)}
    kept = [node for node in read if node.op != "placeholder" and node.target not in PACKS]
    packs = [node for node in read if node.target in PACKS]
    if not kept and not packs:
        return None
    sources = [root(pack.args[0]) for pack in packs]  # type: ignore[arg-type]
    results = list(dict.fromkeys([*kept, *[node for node in sources if node.op != "placeholder"]]))
    needed = _ancestors([*results, *sources])
    places = {node: i for i, node in enumerate(graph.find_nodes(op="placeholder"))}
    inputs = [node for node in places if node in needed]
    numbers = {node: i for i, node in enumerate([*inputs, *results])}
    packed = [_packed(pack, source, numbers[source]) for pack, source in zip(packs, sources, strict=True)]
    told = Frozen(tuple([places[node] for node in inputs]), len(kept), tuple(packed))
    prologue = _copied(graph, inputs, results, needed) if results else None
    last = list(places)[-1]
    for node in (*kept, *packs):
        with graph.inserting_after(last):
            last = add_node(graph, "placeholder", f"{node.name}_kept", (), {}, f"{node.name}_kept")
        last.meta.update(node.meta)
        node.replace_all_uses_with(last)
    return Prologue(prologue, told, sum(nbytes(node.meta["val"]) for node in {*results, *packs}))


def _packed(pack: fx.Node, source: fx.Node, number: int) -> Packed:
    """How the runtime makes what `pack` gives."""
    weight, *rest = pack.args
    view, whole = weight.meta["val"], source.meta["val"]  # type: ignore[union-attr]
    offset = view.storage_offset() - whole.storage_offset()
    args: Any = tuple([tuple(item) if isinstance(item, list) else item for item in rest])
    target: Any = pack.target
    geometry = tuple(view.shape), tuple(view.stride()), offset
    return Packed(number, *geometry, target.namespace, target._opname, args)


def _copied(graph: fx.Graph, inputs: list[fx.Node], results: list[fx.Node], needed: set[fx.Node]) -> fx.GraphModule:
    """The calls that are needed for some results, as a graph of these inputs."""
    prologue = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    for node in inputs:
        copies[node] = add_node(prologue, "placeholder", node.target, (), {}, node.name)
        copies[node].meta.update(node.meta)
    for node in graph.nodes:
        if node in needed and node not in copies:
            copies[node] = copy_call(prologue, node, copies)
    prologue.output(tuple([copies[node] for node in results]))
    return module(prologue, "forward_prologue")


def _ancestors(nodes: Sequence[fx.Node]) -> set[fx.Node]:
    queue = list(nodes)
    needed = set(queue)
    for node in queue:
        fresh = [parent for parent in node.all_input_nodes if parent not in needed]
        needed.update(fresh)
        queue += fresh
    return needed
