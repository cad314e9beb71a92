"""Changes by ways that objects do not see: dicts and classes exchanged from below, slots, descriptors, tensors."""

from __future__ import annotations

import functools
import sys
import types
import warnings
from typing import Any

import pytest
import torch
from torch import nn

from stator.base.errors import FallbackWarning
from tests.capture.changing import Calls, Table, check, ids_of, patched, x

table = Table()
changes = table.changes

here: Any = sys.modules[__name__]
FACTOR: Any = 2.0


class Meta(type):
    shade: Any = 1.0


class Plain(metaclass=Meta):
    level: Any = 3.0

    def __init__(self) -> None:
        self.by = 2.0

    def value(self) -> Any:
        return self.by * type(self).level


class Mixin:
    def value(self) -> Any:
        return 50.0


class Slotted:
    __slots__ = ("by",)

    def __init__(self) -> None:
        self.by = 2.0


class Doubling:
    """A data descriptor."""

    def __init__(self, times: float) -> None:
        self.times = times

    def __get__(self, instance: Any, owner: Any) -> Any:
        return vars(instance)["by"] * self.times

    def __set__(self, instance: Any, value: Any) -> None:
        vars(instance)["by"] = value


class Described(Plain):
    twice = Doubling(2.0)

    def value(self) -> Any:
        return self.twice


def uses(p: Any, y: torch.Tensor) -> torch.Tensor:
    return y * p.value() + p.by + type(p).shade


def reads(p: Any, y: torch.Tensor) -> torch.Tensor:
    return y * p.by


def case_of(name: str, base: type, fn: Any, change: Any) -> None:
    """A case for an object of a fresh subclass: call, change the object, call."""

    def case(call: Calls) -> None:
        fresh = type(base)("Fresh", (base,), {"__slots__": ()} if base is Slotted else {})
        target = fresh()
        with patched(Meta, "shade", Meta.shade):
            call(fn, target, x())
            change(target)
            call(fn, target, x())
            call(fn, target, x())

    case.__name__ = name
    changes(case)


def put_first(p: Any) -> None:
    type(p).__bases__ = (type("Front", (Mixin, *type(p).__bases__), {}),)


case_of("metaclass_attribute", Plain, uses, lambda p: setattr(Meta, "shade", 7.0))
case_of("class_attribute_over_metaclass", Plain, uses, lambda p: setattr(type(p), "shade", 9.0))
case_of("mro_changed", Plain, uses, put_first)
case_of("object_setattr", Plain, uses, lambda p: object.__setattr__(p, "by", 5.0))
case_of("attribute_through_vars", Plain, uses, lambda p: vars(p).update(by=5.0))
case_of("dict_swapped", Plain, uses, lambda p: setattr(p, "__dict__", {"by": 5.0}))
case_of("dict_swapped_while_held", Plain, uses, lambda p: (vars(p), setattr(p, "__dict__", {"by": 6.0})))
case_of("method_through_dict", Plain, uses, lambda p: vars(p).update(value=lambda: 11.0))
case_of("method_through_bound_method", Plain, uses, lambda p: vars(p).update(value=Mixin().value))
case_of("method_through_partial", Plain, uses, lambda p: vars(p).update(value=functools.partial(float, 4)))
case_of("class_exchanged", Plain, uses, lambda p: setattr(p, "__class__", type("Other", (Plain,), {"level": 8.0})))
case_of(
    "class_exchanged_for_equal_name", Plain, uses, lambda p: setattr(p, "__class__", type("Fresh", (Mixin, Plain), {}))
)
case_of("base_class_attribute", Plain, uses, lambda p: setattr(type(p), "level", 13.0))
case_of("getattribute_on_base", Plain, reads, lambda p: setattr(type(p), "__getattribute__", lambda s, n: 5.0))
case_of("slot_value", Slotted, reads, lambda p: setattr(p, "by", 5.0))
case_of("slot_value_by_descriptor", Slotted, reads, lambda p: Slotted.by.__set__(p, 6.0))  # type: ignore[attr-defined]
case_of("slot_shadowed", Slotted, reads, lambda p: setattr(type(p), "by", 7.0))
case_of("descriptor_replaced", Described, uses, lambda p: setattr(type(p), "twice", Doubling(5.0)))
case_of("descriptor_state", Described, uses, lambda p: setattr(p, "twice", 9.0))
case_of("descriptor_becomes_value", Described, uses, lambda p: setattr(type(p), "twice", 3.0))


# -- functions -------------------------------------------------------------------------------------------------


def helper(y: torch.Tensor, by: Any = 2.0, *, more: Any = 1.0) -> torch.Tensor:
    return y * by + more + FACTOR


def other(y: torch.Tensor, by: Any = 2.0, *, more: Any = 1.0) -> torch.Tensor:
    return y - by


def function_case(name: str, change: Any) -> None:
    """A case for a function that calls a fresh copy of the helper."""

    def case(call: Calls) -> None:
        inner = types.FunctionType(helper.__code__, helper.__globals__, "inner", helper.__defaults__)
        inner.__kwdefaults__ = dict(helper.__kwdefaults__)
        bound = [inner]

        def fn(y: torch.Tensor) -> torch.Tensor:
            return bound[0](y)

        with patched(here, "FACTOR", 2.0):
            call(fn, x())
            change(bound)
            call(fn, x())
            call(fn, x())

    case.__name__ = name
    changes(case)


function_case("code", lambda b: setattr(b[0], "__code__", other.__code__))
function_case("defaults", lambda b: setattr(b[0], "__defaults__", (5.0,)))
function_case(
    "defaults_equal_then_other",
    lambda b: (setattr(b[0], "__defaults__", (2.0,)), setattr(b[0], "__defaults__", (float("4"),))),
)
function_case("kwdefaults_in_place", lambda b: b[0].__kwdefaults__.update(more=5.0))
function_case("kwdefaults_swapped", lambda b: setattr(b[0], "__kwdefaults__", {"more": 6.0}))
function_case("function_replaced", lambda b: b.__setitem__(0, other))
function_case("becomes_partial", lambda b: b.__setitem__(0, functools.partial(helper, by=7.0)))
function_case("becomes_partial_method", lambda b: b.__setitem__(0, functools.partial(b[0], more=7.0)))
function_case("becomes_callable_object", lambda b: b.__setitem__(0, nn.ReLU()))
function_case(
    "same_code_other_globals",
    lambda b: b.__setitem__(
        0,
        types.FunctionType(helper.__code__, {"FACTOR": 30.0}, "inner", (2.0,))
        if not setattr(here, "FACTOR", 3.0)
        else None,
    ),
)
function_case("global_by_dict", lambda b: helper.__globals__.update(FACTOR=9.0))


@changes
def partial_state_changed(call: Calls) -> None:
    part = functools.partial(helper, by=3.0)

    def fn(y: torch.Tensor) -> torch.Tensor:
        return part(y)

    call(fn, x())
    part.keywords["by"] = 4.0
    call(fn, x())
    part.__setstate__((other, (), {"by": 1.0}, None))  # type: ignore[attr-defined]
    call(fn, x())


@changes
def module_gets_a_getattr(call: Calls) -> None:
    module = types.ModuleType("made")

    def fn(y: torch.Tensor) -> torch.Tensor:
        return y * getattr(module, "missing", 1.0)

    call(fn, x())
    module.__getattr__ = lambda name: 4.0  # type: ignore[method-assign]
    call(fn, x())
    module.missing = 5.0  # type: ignore[attr-defined]
    call(fn, x())


class Lowest:
    def value(self) -> Any:
        return 2.0


class Between(Lowest):
    pass


def below_super() -> Any:
    """An object whose method asks `super()`, of fresh classes."""
    between = type("Between", (Between,), {})

    class Top(between):  # type: ignore[misc, valid-type]
        def value(self) -> Any:
            return super().value() + 1

    return Top()


def asks(p: Any, y: torch.Tensor) -> torch.Tensor:
    return y * p.value()


def super_case(name: str, change: Any) -> None:
    """A case for a method that asks `super()`: call, change the classes, call."""

    def case(call: Calls) -> None:
        target = below_super()
        for _ in range(3):
            call(asks, target, x())
        with patched(Lowest, "value", Lowest.value):
            change(type(target))
            for _ in range(3):
                call(asks, target, x())

    case.__name__ = name
    changes(case)


super_case("method_below_super", lambda top: setattr(Lowest, "value", lambda self: 5.0))
super_case("method_put_between", lambda top: setattr(top.__mro__[1], "value", lambda self: 6.0))
super_case("bases_of_super", lambda top: setattr(top, "__bases__", (type("New", (), {"value": lambda self: 7.0}),)))


@changes
def cell_exchanged_between_functions(call: Calls) -> None:
    value: Any = 2.0

    def fn(y: torch.Tensor) -> torch.Tensor:
        return y * value

    call(fn, x())
    for value in (3.0, 2.0, 3, True, torch.ones(3)):  # noqa: B007 (the program reads it)
        call(fn, x())


@changes
def freed_and_made_again(call: Calls) -> None:
    """Floats that may lie where the last one lay."""
    holder = [2.0]

    def fn(y: torch.Tensor) -> torch.Tensor:
        return y * holder[0]

    call(fn, x())
    for i in range(6):
        holder[0] = float(str(i))
        call(fn, x())


# -- modules ---------------------------------------------------------------------------------------------------


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 3)
        self.second = nn.Linear(3, 3)
        self.register_buffer("offset", torch.ones(3))
        self.scale = 2.0

    def forward(self, y: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(y)) * self.scale + self.offset


def module_case(name: str, change: Any) -> None:
    """A case for modules: call three times, change, call three times."""

    def case(call: Calls) -> None:
        torch.manual_seed(0)
        module = Net()
        for _ in range(3):
            call(module, x())
        change(module)
        for _ in range(3):
            call(module, x())

    case.__name__ = name
    changes(case)


def swap_impl(m: Any) -> None:
    torch.utils.swap_tensors(m.first.weight, nn.Parameter(torch.ones(3, 3)))


def new_parameters(m: Any) -> None:
    vars(m.first)["_parameters"] = {"weight": nn.Parameter(torch.ones(3, 3)), "bias": None}


def new_modules(m: Any) -> None:
    vars(m)["_modules"] = dict(m._modules, second=nn.Tanh())


def parameter_over_module(m: Any) -> None:
    m._parameters["offset"] = nn.Parameter(torch.full((3,), 5.0))


module_case("parameters_dict_replaced", new_parameters)
module_case("modules_dict_replaced", new_modules)
module_case("buffers_dict_replaced", lambda m: vars(m).update(_buffers={"offset": torch.full((3,), 3.0)}))
module_case("parameter_before_buffer", parameter_over_module)
module_case("parameter_through_dict", lambda m: m.first._parameters.update(weight=nn.Parameter(torch.ones(3, 3))))
module_case("weights_tied", lambda m: setattr(m.second, "weight", m.first.weight))
module_case("modules_tied", lambda m: setattr(m, "second", m.first))
module_case("data_transposed", lambda m: setattr(m.first.weight, "data", m.first.weight.data.t()))
module_case("data_of_other_type", lambda m: m.double())
module_case("metadata_by_set", lambda m: m.first.weight.data.set_(torch.ones(3, 3).t()))
module_case("transposed_in_place", lambda m: m.offset.unsqueeze_(0))
module_case("resized_in_place", lambda m: m.offset.resize_(1))
module_case("tensors_swapped", swap_impl)
module_case("requires_grad_of_one", lambda m: m.first.bias.requires_grad_(False))
module_case("buffer_requires_grad", lambda m: m.offset.requires_grad_(True))
module_case("buffer_gets_history", lambda m: setattr(m, "offset", m.first.bias * 2))
module_case(
    "part_exchanged_class",
    lambda m: setattr(m.first, "__class__", type("Mine", (nn.Linear,), {"forward": lambda s, y: y})),
)
module_case("dict_of_part_swapped", lambda m: setattr(m.first, "__dict__", dict(vars(nn.Linear(3, 3, bias=False)))))
module_case("hooks_dict_filled", lambda m: m.first._forward_hooks.update({0: lambda s, a, r: r * 2}))
module_case("pre_hooks_dict_filled", lambda m: m.second._forward_pre_hooks.update({0: lambda s, a: (a[0] * 2,)}))
module_case("hooks_dict_exchanged", lambda m: vars(m.first).update(_forward_hooks={0: lambda s, a, r: r * 2}))
module_case("deleted_through_dict", lambda m: m._buffers.pop("offset") is not None and setattr(m, "offset", 4.0))
module_case("frozen_then_float", lambda m: setattr(m, "scale", float("2.5")))
module_case("scale_type", lambda m: setattr(m, "scale", 2))
module_case("call_impl_on_instance", lambda m: vars(m.first).update(forward=lambda y: y * 3))


@changes
def inference_buffer(call: Calls) -> None:
    module = Net().eval()
    with torch.no_grad():
        call(module, x())
        with torch.inference_mode():
            module.offset = torch.ones(3)
        call(module, x())


@changes
def changed_many_times(call: Calls) -> None:
    """What keeps changing is found each time, however long it had stayed."""
    module = Net()
    call(module, x())
    for i in range(5):
        for _ in range(i * 3):
            call(module, x())
        module.scale = float(i % 3)
        call(module, x())


# -- tensors ---------------------------------------------------------------------------------------------------


def added(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a * 2 + b


def filled(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    a.fill_(7)
    return a + b


def in_eager(call: Calls, fn: Any, *args: Any) -> None:
    """A call that may not be captured, which is said then."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FallbackWarning)
        call(fn, *args)


def tensors_case(name: str, fn: Any, *makers: Any) -> None:
    """A case of calls with tensors that are made anew each time; some are not captured."""

    def case(call: Calls) -> None:
        call(fn, *makers[0]())
        for make in makers[1:]:
            in_eager(call, fn, *make())

    case.__name__ = name
    changes(case)


def pair() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.ones(6), torch.ones(6)


def viewed(first: slice, second: slice) -> Any:
    def make() -> tuple[torch.Tensor, torch.Tensor]:
        base = torch.arange(12.0)
        return base[first], base[second]

    return make


class Marked(torch.Tensor):
    """A subclass that adds nothing."""


@changes
def subclass(call: Calls) -> None:
    call(added, *pair())
    in_eager(call, added, torch.ones(6).as_subclass(Marked), torch.ones(6))
    call(added, *pair())


@changes
def class_of_parameter(call: Calls) -> None:
    module = Net()
    for _ in range(3):
        call(module, x())
    module.first.weight.__class__ = type("Odd", (nn.Parameter,), {})
    in_eager(call, module, x())


def inferred() -> tuple[torch.Tensor, torch.Tensor]:
    with torch.inference_mode():
        return torch.ones(6), torch.ones(6)


tensors_case("overlapping_views", filled, pair, viewed(slice(0, 6), slice(3, 9)), pair)
tensors_case("the_same_view", filled, pair, viewed(slice(0, 6), slice(0, 6)))
tensors_case("views_apart", filled, pair, viewed(slice(0, 6), slice(6, 12)))
tensors_case("expanded", added, pair, lambda: (torch.ones(1).expand(6), torch.ones(6)))
tensors_case("step_view", added, pair, viewed(slice(0, 12, 2), slice(1, 12, 2)))
tensors_case("inference_tensors", added, pair, inferred)
tensors_case("parameter_and_tensor", added, pair, lambda: (nn.Parameter(torch.ones(6)), torch.ones(6)))
tensors_case("one_without_elements", added, pair, lambda: (torch.ones(0), torch.ones(0)))
tensors_case("rank_zero", added, pair, lambda: (torch.ones(()), torch.ones(6)), lambda: (torch.ones(6), torch.ones(())))
tensors_case("negated_view", added, pair, lambda: (torch._neg_view(torch.ones(6)), torch.ones(6)))
tensors_case("history", added, pair, lambda: (torch.ones(6, requires_grad=True) * 1, torch.ones(6)))


@pytest.mark.parametrize(("kind", "case"), table, ids=ids_of(table))
def test_case(kind: str, case: Any) -> None:
    check(kind, case)
