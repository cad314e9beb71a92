"""What may not be renamed: memory that leaves the graph, and inputs that are written to.

`Escapes` is a fact sheet of one graph: a value *escapes* if an output lies in its memory. Replacing a fresh copy by its
source is only sound if that does not make two escaping things, or an input and an output, the same memory.
Neighbours: `noop.py`, `views.py` and `equal.py` ask it.
"""

from __future__ import annotations

import math

import torch
from torch import fx

from stator.fake.symbolic import extents
from stator.graphs.calls import root
from stator.sizes import Extent

COPY_IN_PLACE = torch.ops.aten.copy_.default


class Escapes:
    """The memory roots of a graph's outputs, the outputs themselves, and the written inputs."""

    __slots__ = ("outputs", "roots", "written")

    def __init__(self, graph: fx.Graph) -> None:
        output = graph.output_node()
        #: Nodes that are outputs.
        self.outputs: set[fx.Node] = set(output.all_input_nodes)
        #: Nodes in whose memory an output lies.
        self.roots: set[fx.Node] = {root(node) for node in self.outputs}
        self.written: set[fx.Node] = {
            node.args[0] for node in graph.nodes if node.op == "call_function" and node.target is COPY_IN_PLACE
        }

    def may_stand_for(self, source: fx.Node, copy: fx.Node) -> bool:
        """Whether `source` can take the place of `copy`, a fresh value equal to it in values and layout."""
        memory = root(source)
        if memory in self.written and any(user.target is COPY_IN_PLACE for user in copy.users):
            return False  # the write-backs run one after the other: a later one would read what an earlier one wrote
        if root(copy) not in self.roots:
            return True
        # A caller that has copied a part lets go of the rest.
        return memory.op != "placeholder" and memory not in self.roots and _elements(memory) == _elements(root(copy))

    def replace(self, copy: fx.Node, source: fx.Node) -> None:
        """Put `source` in the place of `copy`, which leaves the graph, and keep the facts true."""
        copy.replace_all_uses_with(source)
        if copy in self.outputs:
            self.outputs.add(source)
        if root(copy) in self.roots:
            self.roots.add(root(source))
        copy.graph.erase_node(copy)


def _elements(node: fx.Node) -> Extent:
    """How many elements the node's value has."""
    return math.prod(extents(node.meta["val"].shape))
