"""`nn.Module` instances.

Parameters and buffers become graph attributes (live objects), submodules values reached through
`_modules`. A call goes straight to `forward` when no hook is registered, under guards that say so;
otherwise through `_call_impl`, as in eager.
The first module at a place is known by identity: the graph holds its parameters. From the second of its class on they
are known by their structure (`dynamic.py` decides), and their tensors are inputs of the graph.
Neighbours: `user_object.py` (everything else about it), `tensor.build_attribute`.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

import torch
from torch.nn.modules import module as torch_module

from stator.base.errors import GraphBreak
from stator.capture.fields import value_class
from stator.capture.source import ConstSource, InstanceDictSource, ItemSource
from stator.capture.values import watch
from stator.capture.values.base import bind_static
from stator.capture.values.lookup import MISSING, look_up
from stator.capture.values.python.constant import ConstantValue
from stator.capture.values.python.containers.mapping import DictValue, Entry
from stator.capture.values.python.objects.new import INSTANCE_MAKERS
from stator.capture.values.python.objects.user_object import UserObjectValue
from stator.capture.values.registry import builds
from stator.capture.values.torch.tensor import TensorValue
from stator.capture.values.torch.tensor_inputs import build_attribute

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stator.capture.machine import Machine
    from stator.capture.source import Source
    from stator.capture.value import Raised, Value

#: Where `__getattr__` looks, in its order.
REGISTRIES = ("_parameters", "_buffers", "_modules")

#: Hooks of one module that a call would run.
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")

#: Hooks of all modules.
GLOBAL_HOOKS = {
    name: ItemSource(ConstSource(vars(torch_module)), name)
    for name in (
        "_global_forward_hooks", "_global_forward_pre_hooks", "_global_backward_hooks", "_global_backward_pre_hooks",
    )
}  # fmt: skip

#: Where modules are defined that keep other processes or devices informed around the module that they wrap.
WRAPPERS = ("torch.nn.parallel.distributed", "torch.distributed.fsdp.", "torch.distributed._composable.")

_CALL = torch.nn.Module.__call__
_CALL_IMPL = torch.nn.Module._call_impl
_GETATTR = torch.nn.Module.__getattr__
_SETATTR = torch.nn.Module.__setattr__


@value_class
class RegistryValue(DictValue):
    """`_parameters`, `_buffers` or `_modules` of a module that existed before: its tensors are graph attributes."""

    def value_of(self, tx: Machine, entry: Entry) -> Value:
        if entry.value is None and isinstance(entry.real, torch.Tensor):
            assert self.source is not None
            source = ItemSource(self.source, entry.name)
            entry.value = entry.original = build_attribute(tx, entry.real, source)
        return super().value_of(tx, entry)


@value_class
class ModuleValue(UserObjectValue):
    """A module."""

    kind = "a module"
    copied_by_parts = False

    #: Whether a module that existed before is known by identity.
    pinned: bool = True
    registries: dict[str, DictValue] = field(init=False, default_factory=dict)
    #: Where `__getattr__` looks, once guards say which of them are empty.
    searched: tuple[DictValue, ...] = field(init=False, default=())

    def is_pinned(self) -> bool:
        return self.source is not None and self.pinned

    # -- attributes ------------------------------------------------------------------------------------

    def registry(self, tx: Machine, name: str) -> DictValue | None:
        """One of the dicts of `REGISTRIES` and `HOOKS`; None before `Module.__init__`."""
        found = self.registries.get(name)
        if found is None:
            entry = self.namespace.entries(tx).get(name)
            if entry is None:
                return None
            if entry.value is None:
                assert self.source is not None
                source = ItemSource(InstanceDictSource(self.source), name)
                met = tx.values.get(id(entry.real))
                if met is not None:  # as through the handle of a hook
                    watch.again(tx, source, met, entry.real)
                else:
                    kind = RegistryValue if self.pinned else DictValue
                    met = tx.values[id(entry.real)] = kind(None, type(entry.real), real=entry.real, source=source)
                entry.value = entry.original = met
            if not isinstance(entry.value, DictValue):
                return None
            found = self.registries[name] = entry.value
        return found

    def find_attr(self, tx: Machine, name: str) -> Value | None:
        if name in REGISTRIES or name in HOOKS:
            found = self.registry(tx, name)
            if found is not None:
                return found
        elif look_up(tx, self.cls, name) is MISSING and name not in self.namespace.entries(tx):
            registered = self.registered(tx, name) if look_up(tx, self.cls, "__getattr__") is _GETATTR else None
            if registered is not None:
                self.namespace.find(tx, ConstantValue(name))  # guarded not to be there, unless the program did that
                return registered
        return super().find_attr(tx, name)

    def missing_attribute(self, tx: Machine, name: str, raised: Raised | None) -> Value:
        """`nn.Module.__getattr__`, natively: three registries, then the error."""
        if look_up(tx, self.cls, "__getattr__") is not _GETATTR:
            return super().missing_attribute(tx, name, raised)
        found = self.registered(tx, name)
        if found is not None:
            return found
        tx.raise_exception(AttributeError, f"{self.cls.__name__!r} object has no attribute {name!r}")

    def registered(self, tx: Machine, name: str) -> Value | None:
        """A parameter, buffer or submodule; the registries before the one that has it are guarded to lack it."""
        key = ConstantValue(name)
        for registry in self.searched or self._search(tx):
            found = registry.find(tx, key)
            if found is not None:
                return found
        return None

    def _search(self, tx: Machine) -> tuple[DictValue, ...]:
        """The dicts of `REGISTRIES`, the empty ones under one guard, not one for each name that they lack."""
        found = {each: registry for each in REGISTRIES if (registry := self.registry(tx, each)) is not None}
        empty = [each for each, registry in found.items() if self._is_empty(tx, each, registry)]
        if empty:
            watch.empty(tx, self.source, tuple(empty))
        for each in empty:
            found[each].watched = True
        if len(found) == len(REGISTRIES):
            self.searched = tuple(found.values())
        return tuple(found.values())

    def _is_empty(self, tx: Machine, name: str, registry: DictValue) -> bool:
        """Whether the real module's own dict under this name is empty, and nobody has asked for its keys."""
        if registry.watched or registry.real:
            return False
        entry = self.namespace.entries(tx).get(name)
        return entry is not None and entry.original is registry

    def set_attr(self, tx: Machine, name: str, value: Value) -> None:
        if look_up(tx, self.cls, "__setattr__") is not _SETATTR:
            super().set_attr(tx, name, value)
        else:
            self.module_set_attr(tx, name, value)

    def module_set_attr(self, tx: Machine, name: str, value: Value) -> None:
        """`nn.Module.__setattr__`."""
        key = ConstantValue(name)
        cls = value.python_type()
        if cls is torch.nn.Parameter or cls is torch.nn.Buffer or issubclass(cls, torch.nn.Module):
            self._register(tx, name, value, "_modules" if issubclass(cls, torch.nn.Module) else "_parameters")
            return
        for registry_name in REGISTRIES:
            registry = self.registry(tx, registry_name)
            if registry is None or name not in registry.entries(tx):
                continue
            if not value.is_none() and (registry_name != "_buffers" or not isinstance(value, TensorValue)):
                what = {"_parameters": "parameter", "_buffers": "buffer", "_modules": "child module"}[registry_name]
                tx.raise_roughly(TypeError, f"cannot assign {cls.__name__!r} object to {what} {name!r}")
            registry.put(tx, key, value)
            return
        self.generic_set_attr(tx, name, value)

    def _register(self, tx: Machine, name: str, value: Value, registry_name: str) -> None:
        registry = self.registry(tx, registry_name)
        if registry is None:
            tx.raise_exception(AttributeError, "cannot assign before Module.__init__() call")
        key = ConstantValue(name)
        for other in (self.namespace, *(self.registry(tx, other) for other in REGISTRIES if other != registry_name)):
            if other is not None and name in other.entries(tx):
                other.drop(tx, key)
        registry.put(tx, key, value)

    def del_attr(self, tx: Machine, name: str) -> None:
        for registry_name in REGISTRIES:
            registry = self.registry(tx, registry_name)
            if registry is not None and name in registry.entries(tx):
                registry.drop(tx, ConstantValue(name))
                return
        self.generic_del_attr(tx, name)

    # -- calls -----------------------------------------------------------------------------------------

    def call(self, tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        if str(self.cls.__module__).startswith(WRAPPERS):
            raise GraphBreak(f"{self.cls.__qualname__} does more than compute", "what it calls is captured by itself")
        if look_up(tx, self.cls, "__call__") is not _CALL:
            return super().call(tx, args, kwargs)
        if look_up(tx, self.cls, "_call_impl") is not _CALL_IMPL:
            return bind_static(tx, self, self.cls, "_wrapped_call_impl").call(tx, args, kwargs)
        compiled = self.find_attr(tx, "_compiled_call_impl")
        if compiled is not None and not compiled.is_none():
            return compiled.call(tx, args, kwargs)
        if self.has_hooks(tx) or has_global_hooks(tx):
            return bind_static(tx, self, self.cls, "_call_impl").call(tx, args, kwargs)
        return self.get_attr(tx, "forward").call(tx, args, kwargs)

    def has_hooks(self, tx: Machine) -> bool:
        """Whether a call runs hooks of this module; guards the answer no."""
        unread: list[str] = []
        for name in HOOKS:
            registry = self.registry(tx, name)
            if registry is None:
                continue
            if registry not in tx.effects.changed and self._is_empty(tx, name, registry):
                unread.append(name)
            elif registry.all_entries(tx):
                return True
        if unread:
            watch.empty(tx, self.source, tuple(unread))
        return False


def has_global_hooks(tx: Machine) -> bool:
    """Whether hooks on all modules are registered."""
    for name, source in GLOBAL_HOOKS.items():
        if getattr(torch_module, name):
            return True
        watch.length(tx, source, 0)
    return False


@builds(torch.nn.Module)
def build_module(tx: Machine, obj: torch.nn.Module, source: Source) -> Value:
    """A module is known by identity, or by its structure; its class can be exchanged."""
    pinned = not tx.graph.sizes.history.by_structure(source, obj)
    if pinned:
        watch.identity(tx, source, obj)
    watch.type_of(tx, source, type(obj))
    value = ModuleValue(type(obj), source=source, real=obj, pinned=pinned)
    value.share_dict(tx)
    return value


INSTANCE_MAKERS.insert(0, (lambda cls: issubclass(cls, torch.nn.Module), lambda tx, cls: ModuleValue(cls)))
