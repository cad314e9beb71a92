"""What stands in a class and is not just a value: methods written in C, properties, static and class methods.

`bind` is the descriptor protocol: what an attribute found on a class is when it is asked of an instance or the class.
Invariant: a C method runs for real on constants of types that only compute, by its model or on mirrors else.
Neighbours: `klass.py` and `user_object.py` (attributes of classes and instances), `base.py` (methods of values).
"""

from __future__ import annotations

import datetime
import enum
import re
import threading
import types
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

import torch

from stator.base.errors import GraphBreak
from stator.capture.fields import part, value_class
from stator.capture.source import AttrSource, ClassAttrSource, ConstSource
from stator.capture.value import Value
from stator.capture.values import watch
from stator.capture.values.base import Object, PinnedValue
from stator.capture.values.fold import all_constant, ask, fold, run
from stator.capture.values.lookup import MISSING, look_up
from stator.capture.values.methods import find_method, fits, type_name
from stator.capture.values.mirror import OF_OBJECT, apply
from stator.capture.values.python.constant import NONE
from stator.capture.values.python.objects.function import BoundMethodValue
from stator.capture.values.python.objects.new import CONSTANT_CLASSES, new_instance
from stator.capture.values.registry import LITERALS, builds, fresh, handler_of, makes, wrap

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stator.capture.machine import Machine
    from stator.capture.rewrite import Assembler
    from stator.capture.source import Source

#: C descriptors of builtin types: their methods are those of the value they are bound to.
BUILTIN_DESCRIPTORS = (
    types.WrapperDescriptorType,
    types.MethodDescriptorType,
    types.ClassMethodDescriptorType,
)


def is_value_type(cls: type) -> bool:
    """Whether the C methods of a class only compute: from values that never change."""
    return cls is object or issubclass(cls, VALUE_TYPES) or cls in CONSTANT_CLASSES


#: Classes whose instances are their value, and whose methods ask nobody else.
VALUE_TYPES = (
    *LITERALS, tuple, frozenset, range, slice, re.Pattern, re.Match, enum.Enum, datetime.timedelta,
    types.GenericAlias, types.UnionType, types.CodeType, torch.finfo, torch.iinfo,
)  # fmt: skip


#: Classes written in C that keep attributes where only they know.
HIDING = frozenset({threading.local})


@value_class
class BuiltinMethodValue(PinnedValue):
    """A C method found on a class, unbound: `dict.__getitem__`, `object.__setattr__`."""

    kind = "a builtin method"

    owner: type
    name: str

    def descriptor_get(self, tx: Machine, instance: Value | None, cls: type) -> Value:
        """Found on an instance, it binds; a class method binds the class."""
        if isinstance(self.obj, types.ClassMethodDescriptorType | classmethod):
            return BoundBuiltinValue(self, fresh(cls))
        return self if instance is None else BoundBuiltinValue(self, instance)

    def call(self, tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        handler = handler_of(self.obj)
        if handler is not None:
            return handler(tx, args, kwargs)
        if not args:
            return apply(tx, self.obj, args, kwargs)
        instance, *rest = args
        if self.name == "__new__" and issubclass(instance.python_type(), type):
            return new_instance(tx, instance.constant(), rest, kwargs)
        if getattr(self.obj, "__objclass__", None) in HIDING:
            raise instance.refuse(f"the {self.name} of {type_name(self.owner)}")
        special = getattr(instance, "builtin_method", None)
        method = special(tx, self.owner, self.name) if special else find_method(instance, self.name)
        if method is not None and not instance.is_constant() and fits(method, len(rest), kwargs):
            found = method(tx, *rest, **kwargs)
            if found is not None:
                return found
        if isinstance(self.obj, types.ClassMethodDescriptorType):
            return call_class_method(tx, self, instance, rest, kwargs)
        if all_constant(args, kwargs) and not any(arg.by_mirrors for arg in args):
            if issubclass(self.owner, type):
                return ask(tx, self.obj, args, kwargs)
            if is_value_type(self.owner):
                return fold(tx, self.obj, args, kwargs)
            raise instance.refuse(f"{self.owner.__name__}.{self.name}")
        return apply_to(tx, self, instance, args, kwargs)


def apply_to(
    tx: Machine, method: BuiltinMethodValue, instance: Value, args: Sequence[Value], kwargs: dict[str, Value]
) -> Value:
    """A C method on a mirror, where that is an object of the class that the method is of."""
    mirrored = instance.by_mirrors or getattr(instance, "storage", None) is not None or instance.is_constant()
    fits_class = issubclass(instance.python_type(), method.owner)
    if fits_class and (not mirrored or (method.owner is object and method.name not in OF_OBJECT)):
        raise instance.refuse(f"{method.owner.__name__}.{method.name}")
    return apply(tx, method.obj, args, kwargs)


@value_class
class BoundBuiltinValue(BoundMethodValue):
    """A C method with its object, or a class method with its class."""

    kind = "a builtin method"

    def python_type(self) -> type:
        raw = self.function.constant()
        return types.MethodWrapperType if isinstance(raw, types.WrapperDescriptorType) else types.BuiltinMethodType

    def unbound(self) -> tuple[Value, Value] | None:
        raw = self.function.constant()
        return (self.function, self.instance) if isinstance(raw, types.MethodDescriptorType) else None

    def constant(self) -> Any:
        return bind_builtin(self.function.constant(), self.instance.constant())

    def reconstruct(self, out: Assembler) -> None:
        out.call(bind_builtin, self.function, self.instance)


def bind_builtin(raw: Any, instance: Any) -> Any:
    """A C method found on a class, bound."""
    if isinstance(raw, types.ClassMethodDescriptorType):
        return raw.__get__(None, instance)
    return raw.__get__(instance, type(instance))


#: Where the classes are whose class methods only compute: those of others ask for the time, say.
COMPUTING = ("builtins", "collections")


def call_class_method(
    tx: Machine, method: BuiltinMethodValue, cls: Value, args: Sequence[Value], kwargs: dict[str, Value]
) -> Value:
    """A class method written in C; of users' subclasses of dict `fromkeys`, which makes an instance."""
    if not isinstance(cls, PinnedValue) or not isinstance(cls.obj, type):
        return apply(tx, method.obj, (cls, *args), kwargs)
    if cls.obj is OrderedDict or (cls.obj.__flags__ & watch.IMMUTABLE and cls.obj.__module__ in COMPUTING):
        return apply(tx, method.obj.__get__(None, cls.obj), args, kwargs)
    if method.name != "fromkeys" or kwargs or not 1 <= len(args) <= 2:
        raise cls.refuse(f"{method.name}()")
    made = cls.call(tx, (), {})
    for key in args[0].unpack(tx):
        made.set_item(tx, key, args[1] if len(args) > 1 else NONE)
    return made


@value_class
class ExtensionMethod(Object):
    """A method that an extension module in C++ has given its class, bound: what it does is not known."""

    kind = "a method of an extension module"

    owner: Value = part()
    name: str

    def python_type(self) -> type:
        return types.MethodType

    def truth(self, tx: Machine) -> bool:
        return True

    def call(self, tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        owner = self.owner.python_type().__qualname__
        raise GraphBreak(f"{owner}.{self.name} is a method of an extension module", "call it outside")

    def reconstruct(self, out: Assembler) -> None:
        out.call(getattr, self.owner, fresh(self.name))


@value_class
class PropertyValue(PinnedValue):
    """A property, cached property or class/static method object met on a class."""

    kind = "a descriptor"

    def get_attr(self, tx: Machine, name: str) -> Value:
        return wrap(tx, run(tx, getattr, (self.obj, name)), AttrSource(self.source or ConstSource(self.obj), name))

    def descriptor_get(self, tx: Machine, instance: Value | None, cls: type) -> Value:
        """`__get__` of the descriptor."""
        match self.obj:
            case staticmethod():
                return self.get_attr(tx, "__func__")
            case classmethod():
                function = self.get_attr(tx, "__func__")
                return BoundMethodValue(function, fresh(cls))
            case property() if instance is not None:
                if self.obj.fget is None:
                    tx.raise_exception(AttributeError, "unreadable attribute")
                return self.get_attr(tx, "fget").call(tx, (instance,), {})
        return self

    def descriptor_set(self, tx: Machine, instance: Value, value: Value) -> None:
        """`__set__` of a property."""
        if self.obj.fset is None:
            tx.raise_exception(AttributeError, "can't set attribute")
        self.get_attr(tx, "fset").call(tx, (instance, value), {})

    def descriptor_delete(self, tx: Machine, instance: Value) -> None:
        """`__delete__` of a property."""
        if self.obj.fdel is None:
            tx.raise_exception(AttributeError, "can't delete attribute")
        self.get_attr(tx, "fdel").call(tx, (instance,), {})


def bind(tx: Machine, raw: Any, where: Source, instance: Value | None, cls: type) -> Value:
    """The value of a class attribute, with its descriptor protocol applied."""
    if isinstance(raw, BUILTIN_DESCRIPTORS) and handler_of(raw) is None and not is_tensor_method(raw):
        found: Value = BuiltinMethodValue(raw, raw.__objclass__, raw.__name__)
    elif type(raw).__name__ == "instancemethod" and instance is not None:
        return ExtensionMethod(instance, raw.__name__)
    elif isinstance(raw, types.BuiltinMethodType) and isinstance(raw.__self__, type):
        return BuiltinMethodValue(raw, raw.__self__, raw.__name__)  # `object.__new__` and the like: static
    else:
        found = wrap(tx, raw, where)
    getter = getattr(found, "descriptor_get", None)
    if getter is not None:
        return getter(tx, instance, cls)
    if isinstance(raw, type) or look_up(tx, type(raw), "__get__") is MISSING:
        return found
    if instance is None and not isinstance(look_up(tx, type(raw), "__get__"), types.FunctionType):
        return found  # descriptors written in C are themselves on the class
    return get_through(tx, found, raw, NONE if instance is None else instance, cls)


def is_tensor_method(raw: Any) -> bool:
    """Whether a C descriptor is one of Tensor's."""
    return raw.__objclass__ in (torch._C.TensorBase, torch.Tensor)


def get_through(tx: Machine, found: Value, raw: Any, instance: Value, cls: type) -> Value:
    """A descriptor object of a user's class: `type(raw).__get__(raw, instance, cls)`."""
    getter = look_up(tx, type(raw), "__get__")
    if not isinstance(getter, types.FunctionType):
        raise found.refuse("the descriptor protocol")
    function = wrap(tx, getter, ClassAttrSource(ConstSource(type(raw)), "__get__"))
    return function.call(tx, (found, instance, fresh(cls)), {})


@builds(property, staticmethod, classmethod)
def build_descriptor(tx: Machine, obj: Any, source: Source) -> Value:
    """Descriptors live on classes and are known by identity."""
    watch.identity(tx, source, obj)
    return PropertyValue(obj, source=source)


@builds(*BUILTIN_DESCRIPTORS)
def build_builtin_descriptor(tx: Machine, obj: Any, source: Source) -> Value:
    """A method of a builtin type."""
    return BuiltinMethodValue(obj, obj.__objclass__, obj.__name__, source=source)


makes(*BUILTIN_DESCRIPTORS)(lambda obj: BuiltinMethodValue(obj, obj.__objclass__, obj.__name__))
