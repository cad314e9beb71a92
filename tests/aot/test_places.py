"""Nodes of both graphs say which line of the program they come from; of backward, the call that has the gradient."""

import inspect

import torch

import stator
from stator.aot import trace


def program(x):
    y = torch.sin(x)
    z = torch.exp(y)
    return z.sum()


def test_nodes_of_backward_have_the_line_of_their_call():
    seen = []

    def backend(gm, examples):
        seen.append(trace.trace(gm, examples, decompositions={}))
        return gm.forward

    stator.compile(program, backend=backend)(torch.randn(3, requires_grad=True))
    first = inspect.getsourcelines(program)[1]
    backward = [node for node in seen[0].graph.nodes if node.op == "call_function" and node.meta["phase"] == "backward"]
    places = {(str(node.target), node.meta["location"][1] - first) for node in backward}
    products = {("aten.mul.Tensor", 2), ("aten.mul.Tensor", 1)}
    assert places >= {("aten.expand.default", 3), ("aten.cos.default", 1)} | products
