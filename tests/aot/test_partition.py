"""The cut is minimal, and what is saved is what it should be."""

import itertools
import random

import pytest
import torch
import torch.nn.functional as F

import stator.prims.decompositions  # noqa: F401
from stator.aot.metadata import Metadata, Saved
from stator.aot.mincut import INFINITE, FlowGraph
from stator.aot.partition import partition
from stator.aot.trace import trace
from stator.prims.random import RANDOM_OPERATORS
from stator.prims.table import DECOMPOSITIONS
from tests.aot.models import GPT, Function, captured

aten = torch.ops.aten


def cut_value(edges, side):
    return sum(capacity for a, b, capacity in edges if a in side and b not in side)


def test_cuts_are_minimal():
    source = random.Random(0)
    for _ in range(60):
        count = source.randint(3, 8)
        graph = FlowGraph()
        for _ in range(count - 2):
            graph.node()
        edges = [
            (a, b, source.choice([1, 2, 5, 9, INFINITE]))
            for a, b in itertools.permutations(range(count), 2)
            if source.random() < 0.4 and b != 0 and a != 1
        ]
        for edge in edges:
            graph.edge(*edge)
        best = min(
            cut_value(edges, {0, *rest})
            for size in range(count - 1)
            for rest in itertools.combinations(range(2, count), size)
        )
        if best < INFINITE:
            assert cut_value(edges, graph.source_side()) == best


def split(function, x, *, parameter=None, budget=1.0):
    module = Function(function, torch.randn(4) if parameter is None else parameter)
    joint = trace(captured(module, [x]), [x], decompositions=DECOMPOSITIONS, random_operators=RANDOM_OPERATORS)
    return partition(joint, budget)


def test_inputs_are_saved_as_themselves():
    parts = split(lambda x, w: (x * w).sum(), torch.randn(3, 4))
    assert parts.metadata.saved == (Saved("input", 1),)
    assert len(parts.forward(torch.randn(4), torch.randn(3, 4))) == 1


def test_cheap_chains_are_computed_again():
    parts = split(lambda x, w: torch.tanh(torch.exp(x * w).neg() * 2) + 1, torch.randn(3, 4))
    assert all(saved.source != "extra" for saved in parts.metadata.saved)


def test_results_are_saved_as_themselves():
    parts = split(lambda x, w: (x @ w).exp(), torch.randn(3, 4), parameter=torch.randn(4, 4))
    assert Saved("value", 0) in parts.metadata.saved


def test_products_and_reductions_are_never_computed_again():
    parts = split(lambda x, w: F.softmax(x @ w, -1) @ w, torch.randn(3, 4), parameter=torch.randn(4, 4))
    targets = [node.target for node in parts.backward.graph.nodes]
    assert aten.amax.default not in targets
    assert targets.count(aten.mm.default) == 3  # the input needs no gradient


def test_dropout_masks_are_drawn_again():
    parts = split(lambda x, w: F.dropout(x * w, 0.5, True), torch.randn(30, 4))
    assert all(saved.source == "input" for saved in parts.metadata.saved)
    assert parts.metadata.uses_random
    assert torch.ops.stator.random.default in [node.target for node in parts.backward.graph.nodes]


@pytest.mark.parametrize("budget", [0.7, 0.3, 0.0])
def test_budget_is_a_bound(budget):
    net = GPT(vocabulary=31, length=6, width=16, layers=3, heads=2)
    tokens = torch.randint(0, 31, (2, 6))

    def saved_bytes(share):
        joint = trace(captured(net, [tokens] * 2), [tokens] * 2, decompositions=DECOMPOSITIONS)
        parts = partition(joint, share)
        outputs = parts.forward.graph.output_node().args[0]
        extra = outputs[len(parts.metadata.values) :]
        return sum(node.meta["val"].nbytes for node in extra)

    assert saved_bytes(budget) <= budget * saved_bytes(1.0)


def test_metadata_survives_text():
    def f(x, w):
        x.add_(1)
        y = F.dropout(x * w, 0.5, True)
        return y, y.view(-1), x, 3, x.t(), x.argmax()

    metadata = split(f, torch.randn(3, 4)).metadata
    assert metadata.mutated == (1,) and metadata.uses_random and metadata.has_backward
    assert [output.kind for output in metadata.outputs] == [
        "value", "output_view", "input", "constant", "input_view", "value",
    ]  # fmt: skip
    assert Metadata.from_json(metadata.to_json()) == metadata


def test_phases_and_functional_form():
    net = GPT(vocabulary=31, length=6, width=16, layers=1, heads=2)
    tokens = torch.randint(0, 31, (2, 6))
    for table in ({}, DECOMPOSITIONS):
        joint = trace(captured(net, [tokens] * 2), [tokens] * 2, decompositions=table)
        joint.graph.lint()
        for node in joint.graph.nodes:
            if node.op == "call_function":
                assert node.meta["phase"] in ("forward", "backward") and "val" in node.meta
                if isinstance(node.target, torch._ops.OpOverload):
                    assert not node.target._schema.is_mutable
