"""Python modules: known by identity, their attributes guarded one by one as items of the module's dict.

Invariant: a name that the program has assigned is read from the effects, never from the real module.
Neighbours: `effects.py` (assigned globals), the machine (`load_global` reads the same dicts).
"""

from __future__ import annotations

import sysconfig
import types
from pathlib import Path
from typing import TYPE_CHECKING

from stator.capture.fields import value_class
from stator.capture.source import AttrSource, ConstSource, InstanceDictSource, ItemSource
from stator.capture.value import Raised
from stator.capture.values import watch
from stator.capture.values.base import PinnedValue
from stator.capture.values.fold import run
from stator.capture.values.lookup import MISSING, is_data_descriptor, look_up
from stator.capture.values.registry import builds, fresh, makes, wrap

if TYPE_CHECKING:
    from stator.capture.machine import Machine
    from stator.capture.source import Source
    from stator.capture.value import Value


#: Where the modules of libraries are: what their `__getattr__` does (importing, mostly) it may do at capture.
INSTALLED = (
    *{sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")},
    str(Path(__file__).parents[2]),
)


@value_class
class PythonModuleValue(PinnedValue):
    """A module."""

    kind = "a module"

    def get_attr(self, tx: Machine, name: str) -> Value:
        namespace = self.obj.__dict__
        if name == "__dict__":
            return wrap(tx, namespace, InstanceDictSource(ConstSource(self.obj)))
        stored = tx.effects.stored_global(namespace, name)
        if stored is not None:
            return stored
        cls = type(self.obj)
        tx.guard("TYPE", ConstSource(self.obj), cls)
        if (
            cls is not types.ModuleType
            and (raw := look_up(tx, cls, name)) is not MISSING
            and is_data_descriptor(tx, raw)
        ):
            return wrap(tx, run(tx, getattr, (self.obj, name)), AttrSource(ConstSource(self.obj), name))
        if name in namespace:
            # From the dict itself: shared by all paths to the module, and comparable by dict version.
            return wrap(tx, namespace[name], ItemSource(InstanceDictSource(ConstSource(self.obj)), name))
        if name not in dir(types.ModuleType) and (hook := self.users_hook(tx)) is not None:
            watch.absent(tx, InstanceDictSource(ConstSource(self.obj)), name)
            return hook.call(tx, (fresh(name),), {})
        try:
            found = run(tx, getattr, (self.obj, name))
        except Raised:
            watch.absent(tx, InstanceDictSource(ConstSource(self.obj)), name)
            self.watch_fallback(tx)
            raise
        if name in namespace:
            return self.get_attr(tx, name)
        watch.absent(tx, InstanceDictSource(ConstSource(self.obj)), name)
        if name.startswith("__") or isinstance(found, types.MethodType | types.BuiltinMethodType):
            return fresh(found)
        return wrap(tx, found, AttrSource(ConstSource(self.obj), name))

    def users_hook(self, tx: Machine) -> Value | None:
        """The `__getattr__` that the user's module has: what it does, it does once for each use."""
        hook = self.obj.__dict__.get("__getattr__")
        if not isinstance(hook, types.FunctionType) or hook.__code__.co_filename.startswith(INSTALLED):
            return None
        return wrap(tx, hook, ItemSource(InstanceDictSource(ConstSource(self.obj)), "__getattr__"))

    def watch_fallback(self, tx: Machine) -> None:
        """The module's own `__getattr__`, which is asked for what its dict lacks."""
        source = InstanceDictSource(ConstSource(self.obj))
        if "__getattr__" in self.obj.__dict__:
            watch.identity(tx, ItemSource(source, "__getattr__"), self.obj.__dict__["__getattr__"])
        else:
            watch.absent(tx, source, "__getattr__")

    def set_attr(self, tx: Machine, name: str, value: Value) -> None:
        tx.effects.store_global(self.obj.__dict__, name, value)


@builds(types.ModuleType)
def build_module(tx: Machine, obj: types.ModuleType, source: Source) -> Value:
    """A module is known by identity."""
    watch.identity(tx, source, obj)
    return PythonModuleValue(obj, source=source)


makes(types.ModuleType)(PythonModuleValue)
