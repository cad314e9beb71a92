"""What calls do beside giving their values: views, random numbers, checks of data, writes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import fx

from stator.aot.written import written_form
from stator.base.effects import Effect
from stator.fake import FakeMode
from stator.graphs.calls import CHECKING, effects_of, is_view, may_merge, may_repeat, root
from stator.graphs.checks import CHECK_DIVISOR, CHECK_POSITIONS, CHECK_PROBABILITIES

aten = torch.ops.aten

LIBRARY = torch.library.Library("stator_calls_tests", "FRAGMENT")
LIBRARY.define("plain(Tensor x) -> Tensor")
LIBRARY.define("drawn(Tensor x) -> Tensor", tags=torch.Tag.nondeterministic_seeded)
LIBRARY.define("told(Tensor x) -> Tensor")
LIBRARY.define("note(Tensor x) -> ()")
LIBRARY.define("fill(Tensor x, Tensor(a!) out) -> ()")
torch.library._register_effectful_op("stator_calls_tests::told", torch.library.EffectType.ORDERED, lib=LIBRARY)
ours = torch.ops.stator_calls_tests

#: Overload, arguments behind the first, its effects, and whether it may be made once more, and once for equal calls.
CALLS: list[tuple[Any, tuple[Any, ...], str, bool, bool]] = [
    (aten.add.Tensor, (1,), "", True, True),
    (aten.view.default, ([-1],), "", True, True),
    (aten.nonzero.default, (), "", True, True),
    (aten.add_.Tensor, (1,), "write", False, False),
    (aten.copy_.default, (1,), "write", False, False),
    (aten.bernoulli.default, (), "random", False, False),
    (aten.native_dropout.default, (0.5, True), "random", False, False),
    (aten._linalg_eigh.default, (), "check", True, True),
    (aten._assert_async.msg, ("wrong",), "check", True, False),
    (CHECK_POSITIONS, (0, 3), "check", True, False),
    (CHECK_DIVISOR, (), "check", True, False),
    (CHECK_PROBABILITIES, (), "check", True, False),
    (ours.plain.default, (), "", True, True),
    (ours.drawn.default, (), "random", False, False),
    (ours.told.default, (), "custom", False, False),
    (ours.note.default, (), "custom", False, False),
    (ours.fill.default, (1,), "write", False, False),
]


def call(target: Any, args: tuple[Any, ...]) -> fx.Node:
    graph = fx.Graph()
    return graph.call_function(target, (graph.placeholder("x"), *args))


@pytest.mark.parametrize(("target", "args", "effects", "repeats", "merges"), CALLS, ids=[str(c[0]) for c in CALLS])
def test_what_a_call_does(target: Any, args: tuple[Any, ...], effects: str, repeats: bool, merges: bool) -> None:
    node = call(target, args)
    assert (" ".join(effects_of(node)), may_repeat(node), may_merge(node)) == (effects, repeats, merges)
    assert is_view(node) == (target is aten.view.default)


def test_the_functional_form_of_a_write_has_its_effect() -> None:
    form = written_form(ours.fill.default)
    assert form is not None and effects_of(call(form.func, (1,))) == (Effect.WRITE,)


def test_collectives_are_known_by_their_namespace() -> None:
    if torch.distributed.is_available():
        assert Effect.COLLECTIVE in effects_of(call(torch.ops._c10d_functional.all_reduce.default, ("sum", "0")))


def test_a_dropout_of_nothing_draws_nothing() -> None:
    attention = aten._scaled_dot_product_flash_attention.default
    graph = fx.Graph()
    operands = [graph.placeholder(name) for name in "qkv"]
    nothing, some = (graph.call_function(attention, (*operands, rate)) for rate in (0.0, 0.1))
    assert effects_of(nothing) == () and effects_of(some) == (Effect.RANDOM,)


def test_what_checks_only_checks_in_forward() -> None:
    node = call(aten._linalg_eigh.default, ())
    node.meta["phase"] = "backward"
    assert effects_of(node) == ()


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
    CHECK_PROBABILITIES(torch.tensor([0.0, 1.0]))
    for wrong in (-0.5, 1.5, torch.nan):
        with pytest.raises(RuntimeError, match="between 0 and 1"):
            CHECK_PROBABILITIES(torch.tensor([0.5, wrong]))
    with FakeMode() as mode:
        assert CHECK_POSITIONS(mode.from_real(torch.tensor([7])), 0, 3) is None
