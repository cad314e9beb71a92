"""Changes of modules between two calls: the second call gives what eager gives."""

from __future__ import annotations

import copy
import types
import weakref
from collections import OrderedDict
from typing import Any

import pytest
import torch
from torch import nn

from tests.capture.changing import Calls, Table, check, ids_of

table = Table()
changes, keeps, breaks = table.changes, table.keeps, table.breaks


def x() -> torch.Tensor:
    return torch.arange(6.0).reshape(2, 3) + 0.5


class Scaled(nn.Module):
    """A little of everything."""

    kind = "double"
    scale: Any

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.layers = nn.ModuleList([nn.Linear(3, 3), nn.Tanh()])
        self.stack = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Dropout(0.0))
        self.register_buffer("offset", torch.ones(3))
        self.weight = nn.Parameter(torch.full((3,), 2.0))
        self.scale = 2.0
        self.options = {"shift": 1.0, "names": ["a", "b"]}
        self.extra = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x) * self.scale + self.offset
        for layer in self.layers:
            y = layer(y)
        y = self.stack(y) * self.weight
        if self.training:
            y = y + 1
        if self.kind == "double":
            y = y * 2
        if self.extra is not None:
            y = y + self.extra
        return self.helper(y) + self.options["shift"] * len(self.options["names"])

    def helper(self, y: torch.Tensor) -> torch.Tensor:
        return y - 1


def forward_other(self: Any, x: torch.Tensor) -> torch.Tensor:
    return self.linear(x) - 5


def fresh_class() -> type[Scaled]:
    """A class of its own, so that changing it concerns nobody else."""
    namespace: dict[str, Any] = {"forward": Scaled.forward, "helper": Scaled.helper, "kind": "double"}
    return type("Fresh", (Scaled,), namespace)


def simple(name: str, change: Any, kind: str = "changes") -> None:
    """A case: call, change the module, call."""

    def case(call: Calls) -> None:
        torch.manual_seed(0)
        module = fresh_class()()
        call(module, x())
        change(module)
        call(module, x())

    case.__name__ = name
    getattr(table, kind)(case)


def pre_double(module: Any, args: Any) -> Any:
    return (args[0] * 2,)


def post_double(module: Any, args: Any, result: Any) -> Any:
    return result * 2


def swap_parameter(module: Any) -> None:
    module.weight = nn.Parameter(torch.full((3,), 5.0))


def set_data(module: Any) -> None:
    module.weight.data = torch.full((3,), 7.0)


def set_data_stride(module: Any) -> None:
    module.linear.weight.data = torch.arange(9.0).reshape(3, 3).t()


def copy_data(module: Any) -> None:
    with torch.no_grad():
        module.weight.copy_(torch.full((3,), 9.0))


def tie(module: Any) -> None:
    module.layers[0].weight = module.linear.weight


def new_dict(module: Any) -> None:
    module.__dict__ = {**module.__dict__, "scale": 11.0}


def shadow_parameter(module: Any) -> None:
    module.__dict__["weight"] = torch.full((3,), -1.0)


def shadow_submodule(module: Any) -> None:
    module.__dict__["linear"] = lambda y: y * 3


def class_property(module: Any) -> None:
    type(module).scale = property(lambda self: 100.0)


def class_property_over_parameter(module: Any) -> None:
    type(module).weight = property(lambda self: torch.full((3,), 100.0))


def class_property_over_module(module: Any) -> None:
    type(module).linear = property(lambda self: lambda y: y)


def other_class(module: Any) -> None:
    class Other(Scaled):
        def helper(self, y: torch.Tensor) -> torch.Tensor:
            return y - 100

    module.__class__ = Other


def other_class_of_part(module: Any) -> None:
    class Other(nn.Tanh):
        def forward(self, y: torch.Tensor) -> torch.Tensor:
            return y - 100

    module.layers[1].__class__ = Other


def parametrized(module: Any) -> None:
    class Negated(nn.Module):
        def forward(self, weight: torch.Tensor) -> torch.Tensor:
            return -weight

    torch.nn.utils.parametrize.register_parametrization(module.linear, "weight", Negated())


simple("attribute", lambda m: setattr(m, "scale", 3.0))
simple("attribute_type", lambda m: setattr(m, "scale", 2))
simple("attribute_becomes_tensor", lambda m: setattr(m, "scale", torch.tensor(3.0)))
simple("attribute_deleted", lambda m: delattr(m, "scale"))
simple("attribute_none_becomes_tensor", lambda m: setattr(m, "extra", torch.ones(3)))
simple("attribute_none_becomes_zero", lambda m: setattr(m, "extra", 0))
simple("class_attribute", lambda m: setattr(type(m), "kind", "single"))
simple("class_attribute_deleted", lambda m: delattr(type(m), "kind"), "keeps")
simple("class_attribute_shadowed", lambda m: setattr(m, "kind", "single"))
simple("class_property_added", class_property)
simple("class_property_over_parameter", class_property_over_parameter)
simple("class_property_over_module", class_property_over_module)
simple("nested_value", lambda m: m.options.update(shift=4.0))
simple("nested_list", lambda m: m.options["names"].append("c"))
simple("nested_list_replaced", lambda m: m.options.update(names=["a"]))
simple("container_replaced", lambda m: setattr(m, "options", OrderedDict(shift=3.0, names=["a"])))
simple("key_deleted", lambda m: m.options.pop("shift"))
simple("dict_replaced", new_dict)
simple("parameter_swapped", swap_parameter)
simple("parameter_none", lambda m: setattr(m, "weight", None))
simple("parameter_deleted", lambda m: delattr(m, "weight"))
simple("parameter_dtype", lambda m: m.double())
simple("parameter_data", set_data, "keeps")
simple("parameter_data_stride", set_data_stride)
simple("parameter_values", copy_data, "keeps")
simple("parameter_shadowed", shadow_parameter)
simple("parameter_tied", tie)
simple("parametrized", parametrized)
simple("requires_grad_off", lambda m: m.weight.requires_grad_(False))
simple("requires_grad_off_everywhere", lambda m: m.requires_grad_(False))
simple("grad_set", lambda m: setattr(m.weight, "grad", torch.ones(3)), "keeps")
simple("buffer_replaced", lambda m: setattr(m, "offset", torch.full((3,), 4.0)))
simple("buffer_values", lambda m: m.offset.fill_(6.0), "keeps")
simple("buffer_registered_again", lambda m: m.register_buffer("offset", torch.zeros(3)))
simple("buffer_none", lambda m: setattr(m, "offset", None))
simple("submodule_replaced", lambda m: setattr(m, "linear", nn.Linear(3, 3)))
simple("submodule_shadowed", shadow_submodule)
simple("submodule_deleted", lambda m: delattr(m, "linear"))
simple("list_item_replaced", lambda m: m.layers.__setitem__(1, nn.Sigmoid()))
simple("list_item_added", lambda m: m.layers.append(nn.Tanh()))
simple("list_item_removed", lambda m: m.layers.__delitem__(0))
simple("list_item_inserted", lambda m: m.layers.insert(0, nn.Linear(3, 3)))
simple("sequential_item_replaced", lambda m: m.stack.__setitem__(1, nn.Sigmoid()))
simple("sequential_item_added", lambda m: m.stack.append(nn.Tanh()))
simple("sequential_item_removed", lambda m: m.stack.__delitem__(0))
simple("sequential_add_module", lambda m: m.stack.add_module("last", nn.Sigmoid()))
simple("training", lambda m: m.eval())
simple("training_of_one", lambda m: m.stack[2].eval(), "changes")
simple("dropout_probability", lambda m: setattr(m.stack[2], "p", 1.0))
simple("forward_on_class", lambda m: setattr(type(m), "forward", forward_other))
simple("forward_on_instance", lambda m: setattr(m, "forward", types.MethodType(forward_other, m)))
simple("forward_of_part", lambda m: setattr(m.linear, "forward", lambda y: y * 2))
simple("method_on_class", lambda m: setattr(type(m), "helper", lambda self, y: y + 50))
simple("method_on_instance", lambda m: setattr(m, "helper", lambda y: y + 50))
simple("method_deleted_from_class", lambda m: delattr(type(m), "helper"), "changes")
simple("class_changed", other_class)
simple("class_of_part_changed", other_class_of_part)
simple("call_on_class", lambda m: setattr(type(m), "__call__", lambda self, y: y * 0))
simple("getattr_on_class", lambda m: setattr(type(m), "__getattr__", lambda self, name: nn.Identity()))
simple("getattribute_on_class", lambda m: setattr(type(m), "__getattribute__", patched_getattribute))
simple("iter_of_part_patched", lambda m: setattr(m.layers, "__class__", Reversed))
simple("hook", lambda m: m.register_forward_hook(post_double))
simple("pre_hook", lambda m: m.register_forward_pre_hook(pre_double))
simple("hook_on_part", lambda m: m.linear.register_forward_hook(post_double))
simple("pre_hook_on_part", lambda m: m.layers[1].register_forward_pre_hook(pre_double))
simple("hook_with_kwargs", lambda m: m.linear.register_forward_hook(lambda m, a, k, r: r * 3, with_kwargs=True))
simple("hooks_dict_replaced", lambda m: setattr(m.linear, "_forward_hooks", OrderedDict({0: post_double})))
simple("unrelated_attribute", lambda m: setattr(m, "unused", 1), "keeps")
simple("unrelated_class_attribute", lambda m: setattr(type(m), "unused", 1), "keeps")
simple("unrelated_parameter", lambda m: setattr(m, "unused", nn.Parameter(torch.ones(1))), "keeps")
simple("unrelated_submodule", lambda m: m.add_module("unused", nn.Linear(1, 1)), "keeps")
simple("unrelated_method", lambda m: setattr(type(m), "unused", lambda self: None), "keeps")
simple("train_again", lambda m: m.train(), "keeps")
simple("state_dict_loaded", lambda m: m.load_state_dict(fresh_class()().state_dict()), "keeps")
simple("attribute_set_again", lambda m: setattr(m, "scale", 2.0), "keeps")
simple("zero_grad", lambda m: m.zero_grad(), "keeps")
simple("same_forward_again", lambda m: setattr(type(m), "forward", type(m).forward), "keeps")


def patched_getattribute(self: Any, name: str) -> Any:
    return 1000.0 if name == "scale" else nn.Module.__getattribute__(self, name)


class Reversed(nn.ModuleList):
    def __iter__(self) -> Any:
        return iter(list(self._modules.values())[::-1])


@changes
def hook_removed(call: Calls) -> None:
    module = Scaled()
    handle = module.linear.register_forward_hook(post_double)
    call(module, x())
    handle.remove()
    call(module, x())


@changes
def hook_replaced(call: Calls) -> None:
    module = Scaled()
    handle = module.linear.register_forward_hook(post_double)
    call(module, x())
    handle.remove()
    module.linear.register_forward_hook(lambda m, a, r: r * 7)
    call(module, x())


@changes
def second_hook(call: Calls) -> None:
    module = Scaled()
    module.linear.register_forward_hook(post_double)
    call(module, x())
    module.linear.register_forward_hook(lambda m, a, r: r * 7)
    call(module, x())


@changes
def global_hook(call: Calls) -> None:
    module = Scaled()
    call(module, x())
    handle = nn.modules.module.register_module_forward_hook(post_double)
    try:
        call(module, x())
    finally:
        handle.remove()
    call(module, x())


@changes
def global_pre_hook(call: Calls) -> None:
    module = Scaled()
    call(module, x())
    handle = nn.modules.module.register_module_forward_pre_hook(pre_double)
    try:
        call(module, x())
    finally:
        handle.remove()


@changes
def library_function_patched(call: Calls) -> None:
    module = Scaled()
    call(module, x())
    original = nn.functional.relu
    nn.functional.relu = lambda y, inplace=False: y * 10
    F = nn.functional
    try:
        assert F.relu is not original
        call(module, x())
    finally:
        nn.functional.relu = original


@changes
def library_method_patched(call: Calls) -> None:
    module = Scaled()
    call(module, x())
    original = nn.Linear.forward
    nn.Linear.forward = lambda self, y: y * 10  # type: ignore[method-assign]
    try:
        call(module, x())
    finally:
        nn.Linear.forward = original  # type: ignore[method-assign]


@changes
def tensor_method_patched(call: Calls) -> None:
    def fn(y: torch.Tensor) -> torch.Tensor:
        return y.relu() + 1

    call(fn, x())
    torch.Tensor.relu = lambda self: self * 10  # type: ignore[method-assign,assignment]
    try:
        call(fn, x())
    finally:
        del torch.Tensor.relu  # the method of the base class shows again


@changes
def another_instance(call: Calls) -> None:
    def fn(module: Any, y: torch.Tensor) -> torch.Tensor:
        return module(y)  # type: ignore[no-any-return]

    call(fn, Scaled(), x())
    call(fn, Scaled(), x())


@changes
def id_used_again(call: Calls) -> None:
    def fn(module: Any, y: torch.Tensor) -> torch.Tensor:
        return module(y) * module.scale  # type: ignore[no-any-return]

    for scale in range(8):
        module = Scaled()
        module.scale = float(scale)
        call(fn, module, x())
        del module


@changes
def parameter_id_used_again(call: Calls) -> None:
    module = Scaled()
    for value in range(8):
        del module.weight
        module.weight = nn.Parameter(torch.full((3,), float(value)))
        call(module, x())


@changes
def deep_copy_is_apart(call: Calls) -> None:
    module = Scaled()
    call(module, x())
    compiled = call.of(module)
    other = copy.deepcopy(compiled)
    with torch.no_grad():
        other.weight.fill_(-3.0)
    other.scale = 50.0
    assert torch.equal(other(x()), other._orig_mod(x()))
    assert not torch.equal(other(x()), module(x()))
    call(module, x())


@changes
def shared_module_twice(call: Calls) -> None:
    module = Scaled()
    module.layers[0] = module.linear
    call(module, x())
    module.layers[0] = nn.Linear(3, 3)
    call(module, x())


@changes
def weak_reference_dies(call: Calls) -> None:
    holder = [Scaled()]
    reference = weakref.ref(holder[0])

    def fn(y: torch.Tensor) -> torch.Tensor:
        return y * 2 if reference() is None else y * 3

    call(fn, x())
    holder.clear()
    call(fn, x())


@changes
def buffer_changed_in_forward(call: Calls) -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(()))

        def forward(self, y: torch.Tensor) -> torch.Tensor:
            self.count += 1
            return y + self.count * 0

    module = Counting()
    for _ in range(3):
        call(module, x())
    assert module.count == 6  # each call runs both ways, on the shared buffer


@pytest.mark.parametrize(("kind", "case"), table, ids=ids_of(table))
def test_change(kind: str, case: Any) -> None:
    check(kind, case)
