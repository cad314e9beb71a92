"""What calls do beside giving their values: views, random numbers, checks of data, writes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import fx

from stator.fake import FakeMode
from stator.graphs.calls import CHECKING, acts, draws, is_pure, is_view, root
from stator.graphs.checks import CHECK_DIVISOR, CHECK_POSITIONS

aten = torch.ops.aten
VIEW, PURE, DRAWS, ACTS = "view", "pure", "draws", "acts"

#: Overload, arguments behind the first, and all that is said of the call.
CALLS: list[tuple[Any, tuple[Any, ...], set[str]]] = [
    (aten.add.Tensor, (1,), {PURE}),
    (aten.add_.Tensor, (1,), set()),
    (aten.copy_.default, (1,), set()),
    (aten.view.default, ([-1],), {VIEW, PURE}),
    (aten.transpose.int, (0, 1), {VIEW, PURE}),
    (aten.clone.default, (), {PURE}),
    (aten.nonzero.default, (), {PURE}),
    (aten.bernoulli.default, (), {DRAWS, ACTS}),
    (aten.native_dropout.default, (0.5, True), {DRAWS, ACTS}),
    (aten._linalg_eigh.default, (), {PURE, ACTS}),
    (aten._assert_async.msg, ("wrong",), {PURE, ACTS}),
    (CHECK_POSITIONS, (0, 3), {PURE, ACTS}),
    (CHECK_DIVISOR, (), {PURE, ACTS}),
]


def call(target: Any, args: tuple[Any, ...]) -> fx.Node:
    graph = fx.Graph()
    return graph.call_function(target, (graph.placeholder("x"), *args))


@pytest.mark.parametrize(("target", "args", "said"), CALLS, ids=[str(target) for target, _, _ in CALLS])
def test_what_a_call_does(target: Any, args: tuple[Any, ...], said: set[str]) -> None:
    node = call(target, args)
    questions = {VIEW: is_view, PURE: is_pure, DRAWS: draws, ACTS: acts}
    assert {word for word, ask in questions.items() if ask(node)} == said


def test_a_dropout_of_nothing_draws_nothing() -> None:
    attention = aten._scaled_dot_product_flash_attention.default
    graph = fx.Graph()
    operands = [graph.placeholder(name) for name in "qkv"]
    nothing, some = (graph.call_function(attention, (*operands, rate)) for rate in (0.0, 0.1))
    assert not draws(nothing) and is_pure(nothing) and not acts(nothing)
    assert draws(some) and acts(some)


def test_what_checks_only_checks_in_forward() -> None:
    node = call(aten._linalg_eigh.default, ())
    node.meta["phase"] = "backward"
    assert not acts(node)


def test_the_memory_of_a_value_is_that_of_what_it_is_a_view_of() -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    made = graph.call_function(aten.mul.Tensor, (x, 2))
    view = graph.call_function(aten.view.default, (graph.call_function(aten.t.default, (made,)), [-1]))
    assert root(view) is made and root(x) is x


def test_what_checks_its_data_is_an_operator_of_this_pytorch() -> None:
    assert len(CHECKING - {None}) > 15
    assert all(op is None or (op._schema.returns and op.namespace == "aten") for op in CHECKING)


def test_checks_raise_as_eager_does_and_give_nothing() -> None:
    CHECK_POSITIONS(torch.tensor([0, 2]), 0, 3)
    CHECK_DIVISOR(torch.tensor([1, -1]))
    with pytest.raises(IndexError, match="size 3"):
        CHECK_POSITIONS(torch.tensor([0, 3]), 0, 3)
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        CHECK_DIVISOR(torch.tensor([1, 0]))
    with FakeMode() as mode:
        assert CHECK_POSITIONS(mode.from_real(torch.tensor([7])), 0, 3) is None
