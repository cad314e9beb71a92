"""The common case of the runtime wrapper: which way a call goes, and what is recorded for backward."""

from __future__ import annotations

import gc
import sys
import weakref
from typing import Any

import pytest
import torch
from torch.autograd import forward_ad

from stator._native import Empty, Plan, record


class Function(torch.autograd.Function):
    forward = staticmethod(record)

    @staticmethod
    def backward(ctx: Any, *tangents: Any) -> Any:
        ctx.bound.append((ctx.saved_tensors, tangents, getattr(ctx, "unsaved", None)))
        return (None, *[tangents[0]] * (len(ctx.needs_input_grad) - 1))


def double(inputs: list[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    assert not torch.is_grad_enabled()
    made = tuple([x * 2 for x in inputs])
    inputs.clear()
    return made


def plan(forward: Any = double, attributes: Any = (), **options: Any) -> Plan:
    bound: list[Any] = []
    values = options.pop("values", 1)
    bare = options.pop("bare", True)
    levels = options.pop("levels", vars(forward_ad))

    def general(plan: Plan, *args: Any, **kwargs: Any) -> Any:
        return "general", args, kwargs

    def own(value: torch.Tensor) -> torch.Tensor:
        return value.clone() if value._is_view() else value

    return Plan(bound, forward, attributes, general, levels, own, values, bare, **options)


@pytest.mark.parametrize("enabled", [True, False])
def test_the_graph_runs_without_grad_mode(enabled: bool) -> None:
    with torch.set_grad_enabled(enabled):
        (result,) = plan()(torch.ones(2))
        assert torch.is_grad_enabled() is enabled
        assert result.tolist() == [2, 2]
        with pytest.raises(ZeroDivisionError):
            plan(lambda inputs: 1 // 0)(torch.ones(2))
        assert torch.is_grad_enabled() is enabled


def test_attributes_come_first() -> None:
    made = plan(lambda inputs: [torch.stack(inputs)], (torch.zeros(()), torch.ones(())))(torch.tensor(2.0))
    assert type(made) is tuple and made[0].tolist() == [0, 1, 2]


def test_values_are_no_views() -> None:
    x = torch.ones(2, 3)
    turned, same = plan(lambda inputs: (inputs[0].t(), x), values=2)(x)
    assert not turned._is_view() and turned.shape == (3, 2) and same is x


def test_everything_else_goes_to_general() -> None:
    x = torch.ones(2)
    assert plan(bare=False)(x) == ("general", (x,), {})
    assert plan()(x=x) == ("general", (), {"x": x})
    assert plan(levels={"_current_level": 0})(x) == ("general", (x,), {})
    assert plan(levels={})(x) == ("general", (x,), {})
    with torch.no_grad():
        assert plan(apply=Function.apply, enables_grad=True)(x) == ("general", (x,), {})
        (result,) = plan(apply=Function.apply)(x)
        assert result.tolist() == [2, 2]


def test_what_backward_needs_is_recorded() -> None:
    x, y, weight = torch.ones(2, requires_grad=True), torch.ones(2), torch.ones(2, requires_grad=True)
    anchor = Empty((0,), (1,), torch.float32)
    after: list[Any] = []
    made = plan(
        lambda inputs: (*double(inputs), torch.full((1,), 7.0)),
        (weight,),
        values=3,
        apply=Function.apply,
        anchor=anchor,
        after=lambda ctx, inputs, values: after.append((inputs, values)),
        saved=(1, 3, 6),  # x, the first value, the extra result
        constant=(2,),
        watched=(0, 2),
    )
    values = made(x, y)
    assert [value.requires_grad for value in values] == [True, True, False]
    assert len(values) == 3 and len(after) == 1 and after[0][0][1] is x and after[0][1][0] is values[0]
    version = weight._version
    values[0].sum().backward()
    ((saved, tangents, unsaved),) = made.bound
    assert [t.tolist() for t in saved] == [[1, 1], [2, 2], [7], []]
    assert saved[0] is x and saved[1].grad_fn is values[0].grad_fn is saved[3].grad_fn
    assert tangents[0].tolist() == [1, 1] and tangents[1:] == (None, None, None)
    assert unsaved[0] == (version, None) and unsaved[1][0] == y._version and unsaved[1][1]() is y


def test_mistakes_are_said() -> None:
    x = torch.ones(2, requires_grad=True)
    with pytest.raises(ValueError, match="too few results"):
        plan(lambda inputs: ())(x)
    with pytest.raises(ValueError, match="too few results"):
        plan(apply=Function.apply, saved=(4,))(x)
    with pytest.raises(ValueError, match="out of range"):
        plan(apply=Function.apply, constant=(1,))
    with pytest.raises(TypeError):
        record(None, None)  # type: ignore[arg-type]


def test_nothing_is_kept() -> None:
    x = torch.ones(2, requires_grad=True)
    made = plan(apply=Function.apply, saved=(0, 1), anchor=Empty((0,), (1,), torch.float32), watched=(0,))
    before = sys.getrefcount(x), sys.getrefcount(made), sys.getrefcount(made.bound)
    gc.disable()
    try:
        for _ in range(50):
            (value,) = made(x)
            gone = weakref.ref(value)
            del value
            assert gone() is None
    finally:
        gc.enable()
    assert (sys.getrefcount(x), sys.getrefcount(made), sys.getrefcount(made.bound)) == before
