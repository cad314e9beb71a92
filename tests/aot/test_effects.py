"""Calls with effects through the whole compiler: kept though equal or unused, in order, and made once in a step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch import distributed as dist
from torch.utils.checkpoint import checkpoint

import stator
from stator.base.errors import Unsupported
from tests.effects.operations import LOG, drawn, fill, heard, note, told
from tests.plan.both import Twice, watching

STRICT = {"strict": True, "eager_random": True}


def filled(x: Tensor, number: int) -> Tensor:
    out = torch.empty_like(x)
    fill(x, out, number)
    return out


def logs(function: Callable[..., Any], *inputs: Tensor) -> list[tuple[str, int]]:
    torch.manual_seed(0)
    LOG.clear()
    function(*inputs)
    return [entry[:2] for entry in LOG]


@pytest.mark.parametrize("call", [note, told, heard, drawn, filled])
def test_equal_and_unused_calls_are_made(call: Callable[[Tensor, int], Any]) -> None:
    def program(x: Tensor) -> Tensor:
        call(x, 1)
        first = call(x, 1)
        call(x + 1, 2)
        second = call(x, 1)
        return x * 1 if first is None else first + second

    x = torch.randn(3)
    compiled = stator.compile(program, fullgraph=True, options=STRICT)
    want = logs(program, x)
    assert len(want) == 4 and logs(compiled, x) == want == logs(compiled, x)


def plans(function: Callable[..., Any], *inputs: Tensor) -> list[Twice]:
    with watching() as made:
        stator.compile(function, fullgraph=True, options=STRICT | {"cache": False})(*inputs)
    return made


def test_equal_assertions_and_draws_are_made() -> None:
    def program(x: Tensor) -> Tensor:
        torch._assert_async(x.sum() > 0)
        torch._assert_async(x.sum() > 0)
        torch.rand(3)
        return torch.rand(3) + torch.rand(3)

    (made,) = plans(program, torch.ones(3))
    assert made.plan.externs.count("aten._assert_async.default") == 2
    assert [effect.kind for effect in made.plan.effects] == ["check", "check", "random", "random", "random"]


def test_nothing_is_made_again_in_backward() -> None:
    """Not even in a checkpointed region, where eager does: it is an effect, which nobody asked for twice."""

    def region(x: Tensor) -> Tensor:
        return drawn(told(x.sin(), 1), 2).exp()

    def program(x: Tensor) -> Tensor:
        y: Tensor = checkpoint(region, x.cos(), use_reentrant=False)
        return y.sum()

    x = torch.randn(3, requires_grad=True)
    compiled = stator.compile(program, fullgraph=True, options=STRICT)
    for _ in range(2):
        assert logs(lambda x: compiled(x).backward(), x) == [("told", 1), ("drawn", 2)]


def test_gradients_of_gradients_do_not_run_it_again() -> None:
    def program(x: Tensor) -> Tensor:
        return told(x, 1).sin().sum()

    x = torch.randn(3, requires_grad=True)
    (gradient,) = torch.autograd.grad(stator.compile(program, fullgraph=True)(x), x, create_graph=True)
    with pytest.raises(Unsupported, match="effects cannot be taken back"):
        gradient.sum().backward()


@pytest.fixture
def group() -> Iterator[str]:
    if not dist.is_available() or not dist.is_gloo_available():
        pytest.skip("without torch.distributed")
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        yield dist.group.WORLD.group_name  # type: ignore[union-attr]
    finally:
        dist.destroy_process_group()


def test_equal_collectives_are_made(group: str) -> None:
    def program(x: Tensor) -> Tensor:
        ops = torch.ops._c10d_functional
        ops.wait_tensor(ops.all_reduce(x, "sum", group))
        first = ops.wait_tensor(ops.all_reduce(x, "sum", group))
        second = ops.wait_tensor(ops.all_reduce(x, "sum", group))
        return first + second

    x = torch.randn(3)
    (made,) = plans(program, x)
    assert [extern.split(".")[1] for extern in made.plan.externs] == ["all_reduce", "wait_tensor"] * 3
    assert {effect.kind for effect in made.plan.effects} == {"collective"} and len(made.plan.effects) == 6
    torch.testing.assert_close(stator.compile(program, fullgraph=True)(x), x * 2)


def test_an_effect_waits_for_what_may_fail() -> None:
    """The original runs from the start and does it; where that is not possible the error is told as it is."""

    def free(x: Tensor, positions: Tensor) -> Tensor:
        told(x, 1)
        return x[positions]

    def bound(x: Tensor, positions: Tensor) -> Tensor:
        return told(x, 1)[positions]

    x, good, bad = torch.randn(3), torch.tensor([0]), torch.tensor([3])
    for program in (free, bound):
        compiled = stator.compile(program, fullgraph=True, options=STRICT)
        compiled(x, good)
        LOG.clear()
        with pytest.raises(IndexError):
            compiled(x, bad)
        assert [entry[:2] for entry in LOG] == [("told", 1)]


def test_what_is_registered_later_is_asked_for_then() -> None:
    library = torch.library.Library("stator_effects_later", "FRAGMENT")
    library.define("f(Tensor x) -> Tensor")
    library.impl("f", lambda x: x + 1, "CompositeExplicitAutograd")
    f = torch.ops.stator_effects_later.f

    def program(x: Tensor) -> Tensor:
        f(x)
        return f(x) + f(x)

    counts = []
    for effect in (None, torch.library.EffectType.ORDERED):
        torch.library._register_effectful_op("stator_effects_later::f", effect, lib=library)
        (made,) = plans(program, torch.randn(3))
        counts.append(len(made.plan.externs))
    assert counts == [1, 3]
