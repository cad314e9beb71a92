"""Compiled modules: a second object over the same state, whose `forward` is compiled.

A compiled module is an instance of a subclass of the module's own class, made on the fly, that shares the original's
`__dict__`: parameters, buffers, hooks, `train()`, `state_dict()` and every attribute are the same by construction, on
either side. `forward` runs bound to the original, which is `_orig_mod`. Copies are compiled anew over a copy; a pickle
holds the original and the settings. Neighbours: `entry.py` (makes the callables), `values/stator/compiled.py` (how
they look to a program that is being captured).
"""

from __future__ import annotations

import copy
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import torch

from stator._native import Dispatcher

if TYPE_CHECKING:
    from stator.base.options import Settings

#: Makes the compiled form of a callable.
Compile = Callable[[Callable[..., Any], "Settings"], Callable[..., Any]]

#: Class of a module → class of its compiled form.
_classes: WeakValueDictionary[type, type] = WeakValueDictionary()

#: The one slot of a compiled module: it must not be in the shared `__dict__`.
_LINK = "_stator_link"


class Link:
    """What a compiled module has and its original has not."""

    __slots__ = ("_compiled", "_forward", "compile", "module", "settings")

    def __init__(self, module: torch.nn.Module, settings: Settings, compile_callable: Compile) -> None:
        self.module = module
        self.settings = settings
        self.compile = compile_callable
        self._forward: Any = None
        self._compiled: Callable[..., Any] | None = None

    def forward(self) -> Callable[..., Any]:
        """The compiled form of the original's `forward`, which may have been replaced on the instance or the class."""
        module = self.module
        own = module.__dict__.get("forward")
        current = type(module).forward if own is None else own
        if self._compiled is None or current is not self._forward:
            self._forward = current
            self._compiled = self.compile(module.forward, self.settings)
        return self._compiled

    def again(self, module: torch.nn.Module) -> torch.nn.Module:
        """Another module, compiled the same way."""
        return share(module, self.settings, self.compile)


def link_of(compiled: Any) -> Link:
    """The link of a compiled module."""
    return object.__getattribute__(compiled, _LINK)


class _Forward:
    """`forward` of compiled modules: compiled on an instance; on the class the original, which tracers look at."""

    def __get__(self, instance: CompiledModule | None, owner: type[CompiledModule]) -> Callable[..., Any]:
        original: type[Any] = owner.__bases__[-1]
        if instance is None:
            return original.forward
        if torch.compiler.is_dynamo_compiling():  # so do torch.export and torch.compile
            return super(CompiledModule, instance).forward  # type: ignore[misc]
        return link_of(instance).forward()

    def __set__(self, instance: CompiledModule, value: Callable[..., Any]) -> None:
        vars(instance)["forward"] = value

    def __delete__(self, instance: CompiledModule) -> None:
        if "forward" not in vars(instance):
            raise AttributeError("forward")
        del vars(instance)["forward"]


class _Original:
    """`_orig_mod` of compiled modules. No property: TorchScript would compile one."""

    def __get__(self, instance: CompiledModule | None, owner: type[CompiledModule]) -> Any:
        return self if instance is None else link_of(instance).module


class CompiledModule:
    """What compiled modules override; comes before the module's class among the bases."""

    __slots__ = (_LINK,)
    forward = _Forward()
    _orig_mod = _Original()

    def __init_subclass__(cls, **arguments: Any) -> None:
        """The module's class is not told of a subclass that is only a view."""

    def __setattr__(self, name: str, value: Any) -> None:
        """As on the original. A lazy module takes its final class once it knows its sizes, and so does this."""
        if name != "__class__":
            super().__setattr__(name, value)
            return
        link_of(self).module.__class__ = value
        object.__setattr__(self, "__class__", _class_of(value))

    def __copy__(self) -> torch.nn.Module:
        link = link_of(self)
        return link.again(copy.copy(link.module))

    def __deepcopy__(self, memo: dict[int, Any]) -> torch.nn.Module:
        link = link_of(self)
        return link.again(copy.deepcopy(link.module, memo))

    def __reduce_ex__(self, protocol: Any) -> Any:
        link = link_of(self)
        return link.compile, (link.module, link.settings)


def share(module: torch.nn.Module, settings: Settings, compile_callable: Compile) -> torch.nn.Module:
    """The compiled form of a module; `compile_callable` also restores pickles, so it takes modules too."""
    compiled: Any = object.__new__(_class_of(type(module)))
    object.__setattr__(compiled, _LINK, Link(module, settings, compile_callable))
    object.__setattr__(compiled, "__dict__", module.__dict__)
    return compiled


def _class_of(cls: type) -> type:
    """The class of compiled forms of modules of a class."""
    found = _classes.get(cls)
    if found is None:
        names = {"__slots__": (), "__module__": cls.__module__, "__qualname__": cls.__qualname__}
        found = types.new_class(cls.__name__, (CompiledModule, cls), {}, lambda namespace: namespace.update(names))
        found.__doc__ = cls.__doc__
        _classes[cls] = found
    return found


def original_of(obj: Any) -> Any:
    """What a compiled callable or module was made from; any other object itself."""
    if type(obj) is Dispatcher:
        return obj.original
    if isinstance(obj, CompiledModule):
        return link_of(obj).module
    return obj
