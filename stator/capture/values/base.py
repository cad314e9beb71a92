"""What all objects with Python-visible methods share: attribute lookup by table, bound methods, identity.

A value class offers the method `name` of its Python type by defining `m_name(tx, …, /)` on values; the special methods
of the type are the operations of `Value` (`methods.DUNDERS`). A model returns None where it leaves a call to Python.
Invariant: a method that has no model here is refused or, of a `Builtin`, run by Python on mirrors; never guessed.
"""

from __future__ import annotations

import operator
import sys
import types
from types import FunctionType
from typing import TYPE_CHECKING, Any

from stator.capture.fields import part, value_class
from stator.capture.source import AttrSource, ClassAttrSource, ConstSource
from stator.capture.value import Value
from stator.capture.values import mirror
from stator.capture.values.fold import run
from stator.capture.values.lookup import MISSING, look_up, static_attribute
from stator.capture.values.methods import UNARY, find_method, fits
from stator.capture.values.registry import fresh, wrap

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stator.capture.machine import Machine
    from stator.capture.rewrite import Assembler


def call_written(tx: Machine, value: Value, name: str, *args: Value) -> Value | None:
    """What a special method gives that a class statement of the user's has given to a constant's class; else None."""
    cls = value.python_type()
    raw = look_up(tx, cls, name)
    if not isinstance(raw, FunctionType) or raw.__module__.partition(".")[0] in ANSWERING:
        return None
    return wrap(tx, raw, ClassAttrSource(ConstSource(cls), name)).call(tx, (value, *args), {})


#: Packages whose classes' special methods only compute, and may run for real.
ANSWERING = sys.stdlib_module_names | {"torch", "numpy"}


def bind_static(tx: Machine, instance: Value, cls: type, name: str) -> Value:
    """`instance.name`, found on its class `cls`: methods bound, properties run, the rest as it is."""
    raw = static_attribute(cls, name)
    found = wrap(tx, raw, ClassAttrSource(ConstSource(cls), name))
    descriptor_get = getattr(found, "descriptor_get", None)
    return found if descriptor_get is None else descriptor_get(tx, instance, cls)


@value_class
class Object(Value):
    """A value whose methods are `m_*` functions."""

    def get_attr(self, tx: Machine, name: str) -> Value:
        if name == "__class__":
            return fresh(self.python_type())
        if look_up(tx, self.python_type(), name) is MISSING:  # there are models of special methods for all objects
            tx.raise_exception(AttributeError, f"{self.python_type().__name__!r} object has no attribute {name!r}")
        if find_method(self, name) is not None:
            return MethodValue(self, name)
        raise self.refuse(f"reading attribute {name!r}")

    def set_attr(self, tx: Machine, name: str, value: Value) -> None:
        if self.python_type().__dictoffset__:
            raise self.refuse(f"setting attribute {name!r}")
        tx.raise_exception(AttributeError, f"{self.python_type().__name__!r} object has no attribute {name!r}")


@value_class
class Modelled(Object):
    """An object of a class that is written in Python, but whose methods are not run: there are only those modelled."""

    def method_of(self, tx: Machine, function: FunctionType) -> Value | None:
        """The model of a method that is called by its class, as `contextlib.ExitStack` does."""
        if look_up(tx, self.python_type(), function.__name__) is not function:
            return None
        if find_method(self, function.__name__) is None:
            raise self.refuse(f"calling {function.__qualname__}")
        return MethodValue(self, function.__name__)


@value_class
class Builtin(Object):
    """An object of a builtin type that is known inside out: what has no model here, Python does on mirrors."""

    by_mirrors = True

    def get_attr(self, tx: Machine, name: str) -> Value:
        if name == "__class__":
            return fresh(self.python_type())
        raw = static_attribute(self.python_type(), name)
        if isinstance(raw, METHODS):
            return MethodValue(self, name)
        if raw is MISSING and self.python_type().__module__ == "builtins":  # whatever is inside
            tx.raise_exception(AttributeError, f"{self.python_type().__name__!r} object has no attribute {name!r}")
        if isinstance(raw, types.ClassMethodDescriptorType | types.BuiltinFunctionType | staticmethod | classmethod):
            return fresh(getattr(self.python_type(), name))
        return mirror.apply(tx, getattr, (self, fresh(name)))

    def set_attr(self, tx: Machine, name: str, value: Value) -> None:
        if self.python_type().__dictoffset__:
            raise self.refuse(f"setting attribute {name!r}")
        mirror.apply(tx, setattr, (self, fresh(name), value))

    def del_attr(self, tx: Machine, name: str) -> None:
        if self.python_type().__dictoffset__:
            raise self.refuse(f"deleting attribute {name!r}")
        mirror.apply(tx, delattr, (self, fresh(name)))

    def by_python(self, tx: Machine, name: str, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        return mirror.apply(tx, mirror.method(name), (self, *args), kwargs)

    def truth(self, tx: Machine) -> bool:
        return bool(mirror.apply(tx, bool, (self,)).constant())

    def length(self, tx: Machine) -> int:
        return int(mirror.apply(tx, len, (self,)).constant())

    def contains(self, tx: Machine, item: Value) -> Value:
        return mirror.contains(tx, self, item)

    def iterate(self, tx: Machine) -> Value:
        return mirror.apply(tx, iter, (self,))

    def next_item(self, tx: Machine) -> Value | None:
        return mirror.apply(tx, next, (self,))

    def get_item(self, tx: Machine, key: Value) -> Value:
        return mirror.apply(tx, operator.getitem, (self, key))

    def set_item(self, tx: Machine, key: Value, value: Value) -> None:
        mirror.apply(tx, operator.setitem, (self, key, value))

    def del_item(self, tx: Machine, key: Value) -> None:
        mirror.apply(tx, operator.delitem, (self, key))

    def unary(self, tx: Machine, op: str) -> Value:
        return mirror.apply(tx, UNARY[op], (self,))

    def call(self, tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        return mirror.apply(tx, operator.call, (self, *args), kwargs)


#: What a method of a builtin type is in its class.
METHODS = (types.MethodDescriptorType, types.WrapperDescriptorType)


@value_class
class PinnedValue(Object):
    """An object known by identity: whoever makes the value from a source has guarded that it is this one."""

    obj: Any

    def __repr__(self) -> str:
        name = getattr(self.obj, "__qualname__", None) or getattr(self.obj, "__name__", None) or self.obj
        return f"{type(self).__name__}({name})"

    def python_type(self) -> type:
        return type(self.obj)

    def is_constant(self) -> bool:
        return True

    def is_pinned(self) -> bool:
        return True

    def constant(self) -> Any:
        return self.obj

    def is_same(self, other: Value) -> bool:
        return other.is_constant() and other.constant() is self.obj

    def truth(self, tx: Machine) -> bool:
        return True

    def get_attr(self, tx: Machine, name: str) -> Value:
        found = run(tx, getattr, (self.obj, name))
        if not hasattr(self.obj, "__dict__"):
            return fresh(found)  # nobody can set it
        return wrap(tx, found, AttrSource(self.source or ConstSource(self.obj), name))

    def reconstruct(self, out: Assembler) -> None:
        out.load_object(self.obj)


@value_class
class MethodValue(Object):
    """A builtin method bound to a value: `[].append`."""

    kind = "a method"

    owner: Value = part()
    name: str

    def python_type(self) -> type:
        return types.MethodWrapperType if self.is_wrapper() else types.BuiltinMethodType

    def is_wrapper(self) -> bool:
        """Whether it is a special method, of which the bound ones have a type of their own."""
        return isinstance(static_attribute(self.owner.python_type(), self.name), types.WrapperDescriptorType)

    def truth(self, tx: Machine) -> bool:
        return True

    def call(self, tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        method = find_method(self.owner, self.name)
        if method is not None and fits(method, len(args), kwargs):
            result = method(tx, *args, **kwargs)
            if result is not None:
                return result
        return self.owner.by_python(tx, self.name, args, kwargs)

    def get_attr(self, tx: Machine, name: str) -> Value:
        if name == "__self__":
            return self.owner
        if name == "__name__":
            return fresh(self.name)
        return super().get_attr(tx, name)

    def unbound(self) -> tuple[Value, Value] | None:
        raw = static_attribute(self.owner.python_type(), self.name)
        return (fresh(raw), self.owner) if isinstance(raw, types.MethodDescriptorType) else None

    def reconstruct(self, out: Assembler) -> None:
        out.call(getattr, self.owner, fresh(self.name))


def returned_method(seen: mirror.Mirror, obj: Any) -> Value:
    """A method bound to what it is a method of."""
    return fresh(obj) if isinstance(obj.__self__, type) else MethodValue(seen.value(obj.__self__), obj.__name__)


mirror.RETURNED[types.BuiltinMethodType] = returned_method
mirror.RETURNED[types.MethodWrapperType] = lambda seen, obj: MethodValue(seen.value(obj.__self__), obj.__name__)
