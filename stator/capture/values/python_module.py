"""Python modules: known by identity, their attributes guarded one by one as items of the module's dict.

Invariant: a name that the program has assigned is read from the effects, never from the real module.
Neighbours: `effects.py` (assigned globals), the machine (`load_global` reads the same dicts).
"""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

from stator.capture.source import AttrSource, ConstSource, InstanceDictSource, ItemSource
from stator.capture.value import Raised
from stator.capture.values import watch
from stator.capture.values.base import Object
from stator.capture.values.fold import run
from stator.capture.values.registry import builds, fresh, makes, wrap

if TYPE_CHECKING:
    from stator.capture.machine import Machine
    from stator.capture.rewrite import Assembler
    from stator.capture.source import Source
    from stator.capture.value import Value


class PythonModuleValue(Object):
    """A module."""

    __slots__ = ("module",)
    kind = "a module"

    def __init__(self, module: types.ModuleType, source: Source | None = None) -> None:
        super().__init__(source)
        self.module = module

    def __repr__(self) -> str:
        return f"PythonModuleValue({self.module.__name__})"

    def python_type(self) -> type:
        return type(self.module)

    def is_constant(self) -> bool:
        return True

    def constant(self) -> Any:
        return self.module

    def is_same(self, other: Value) -> bool:
        return other.is_constant() and other.constant() is self.module

    def truth(self, tx: Machine) -> bool:
        return True

    def get_attr(self, tx: Machine, name: str) -> Value:
        namespace = self.module.__dict__
        stored = tx.effects.stored_global(namespace, name)
        if stored is not None:
            return stored
        if name in namespace:
            # From the dict itself: shared by all paths to the module, and comparable by dict version.
            return wrap(tx, namespace[name], ItemSource(InstanceDictSource(ConstSource(self.module)), name))
        try:
            found = run(tx, getattr, (self.module, name))
        except Raised:
            watch.absent(tx, InstanceDictSource(ConstSource(self.module)), name)
            raise
        if name in namespace:
            return self.get_attr(tx, name)
        watch.absent(tx, InstanceDictSource(ConstSource(self.module)), name)
        if name.startswith("__") or isinstance(found, types.MethodType | types.BuiltinMethodType):
            return fresh(found)
        return wrap(tx, found, AttrSource(ConstSource(self.module), name))

    def set_attr(self, tx: Machine, name: str, value: Value) -> None:
        tx.effects.store_global(self.module.__dict__, name, value)

    def reconstruct(self, out: Assembler) -> None:
        out.load_object(self.module)


@builds(types.ModuleType)
def build_module(tx: Machine, obj: types.ModuleType, source: Source) -> Value:
    """A module is known by identity."""
    watch.identity(tx, source, obj)
    return PythonModuleValue(obj, source)


makes(types.ModuleType)(PythonModuleValue)
