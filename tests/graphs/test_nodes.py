"""Nodes made without fx's checks: the same graphs, modules whose text comes late, and calls that know their fakes."""

from __future__ import annotations

import gc
import linecache

import pytest
import torch
from torch import fx
from torch.fx import graph_module

from stator.fake import FakeMode
from stator.graphs.nodes import add_call, copy_call, infer, module, values_of

aten = torch.ops.aten


def doubled() -> fx.Graph:
    graph = fx.Graph()
    x = graph.placeholder("x")
    made = add_call(graph, aten.mul.Tensor, (x, 2), {}, "doubled")
    graph.output(add_call(graph, aten.sum.dim_IntList, (made, [0]), {"keepdim": True}, "total"))
    return graph


def test_graphs_are_as_fx_makes_them() -> None:
    graph, plain = doubled(), fx.Graph()
    x = plain.placeholder("x")
    made = plain.call_function(aten.mul.Tensor, (x, 2), name="doubled")
    plain.output(plain.call_function(aten.sum.dim_IntList, (made, [0]), {"keepdim": True}, name="total"))
    graph.lint()
    assert [node.format_node() for node in graph.nodes] == [node.format_node() for node in plain.nodes]
    first, second, *_ = graph.nodes
    assert list(first.users) == [second]


@pytest.mark.usefixtures("few_objects")
def test_a_module_has_its_text_when_somebody_asks() -> None:
    gm = module(doubled(), "Doubled")
    assert gm._needs_recompile()
    x = torch.arange(6.0).reshape(2, 3)
    assert torch.equal(gm(x), x.mul(2).sum(0, keepdim=True))
    assert not gm._needs_recompile()
    file = type(gm).forward.__code__.co_filename
    assert "aten.mul" in "".join(linecache.getlines(file, vars(graph_module)))
    assert file in graph_module._loader.eval_cache
    del gm
    gc.collect()
    assert file not in graph_module._loader.eval_cache and file not in linecache.cache


def test_calls_are_copied_with_what_is_known_of_them() -> None:
    graph, other = doubled(), fx.Graph()
    total = next(node for node in graph.nodes if node.name == "total")
    total.meta["val"] = "known"
    copy = copy_call(other, total, {total.args[0]: other.placeholder("y")})  # type: ignore[dict-item]
    assert copy.format_node() == "%total : [num_users=0] = call_function[target=torch.ops.aten.sum.dim_IntList]" + (
        "(args = (%y, [0]), kwargs = {keepdim: True})"
    )
    assert copy.meta["val"] == "known"
    with pytest.raises(KeyError):
        copy_call(other, total, {})


def test_calls_know_their_fakes() -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    with FakeMode() as mode:
        x.meta["val"] = mode.from_real(torch.ones(2, 3))
        fake = infer(aten.sum.dim_IntList, (x, [0]), {"keepdim": True})
    assert values_of(([x], 1)) == ([x.meta["val"]], 1)
    assert tuple(fake.shape) == (1, 3)
