"""Classes: attributes along the MRO, calling them, and the builtin methods found on them.

A class is known by identity; what its MRO has under a name is guarded by (class, name) once for all its
instances. Calling a user's class runs `__new__` and `__init__` as Python does; an instance that the
frame makes is a `UserObjectValue` without a source.
Neighbours: `user_object.py` (instances), `builtin.py` (handlers of builtin classes), `exception.py`.
"""

from __future__ import annotations

import datetime
import enum
import operator
import re
import threading
import types
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

import torch

from stator.base.errors import GraphBreak
from stator.capture.fields import part, value_class
from stator.capture.source import AttrSource, ClassAttrSource, ConstSource
from stator.capture.value import Raised, Value
from stator.capture.values import watch
from stator.capture.values.base import Object, PinnedValue
from stator.capture.values.fold import all_constant, ask, fold, run
from stator.capture.values.lookup import MISSING, is_data_descriptor, look_up
from stator.capture.values.methods import find_method, fits, type_name
from stator.capture.values.mirror import OF_OBJECT, Mirror, apply, models
from stator.capture.values.python.constant import NONE, boolean
from stator.capture.values.python.containers.sequence import TupleValue, tuple_class
from stator.capture.values.python.iterators import ItemsIterator
from stator.capture.values.python.objects.exception import ExceptionValue
from stator.capture.values.python.objects.function import BoundMethodValue
from stator.capture.values.registry import LITERALS, builds, fresh, handler_of, handles, makes, wrap

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from stator.capture.machine import Machine
    from stator.capture.rewrite import Assembler
    from stator.capture.source import Source

#: Makes an instance of a user's class: filled by `user_object.py` (predicate on the class, maker).
INSTANCE_MAKERS: list[tuple[Callable[[type], bool], Callable[[Machine, type], Value]]] = []

#: Classes whose instances are constants: made for real when the arguments are known.
CONSTANT_CLASSES: set[type] = set()

#: C descriptors of builtin types: their methods are those of the value they are bound to.
BUILTIN_DESCRIPTORS = (
    types.WrapperDescriptorType,
    types.MethodDescriptorType,
    types.ClassMethodDescriptorType,
)


#: Modules whose metaclasses only answer.
ANSWERING = frozenset({"abc", "_py_abc", "typing", "enum", "torch", "builtins", "torch._C", "torch.nn.parameter"})


@value_class
class ClassValue(PinnedValue):
    """A class."""

    kind = "a class"

    def __post_init__(self) -> None:
        self.source = self.source or ConstSource(self.obj)

    def truth(self, tx: Machine) -> bool:
        for name in ("__bool__", "__len__"):
            if (written := self._written(tx, name)) is not None:
                return written.call(tx, (), {}).truth(tx)
            if look_up(tx, type(self.obj), name) is not MISSING:
                return ask(tx, bool, (self,)).truth(tx)
        return True

    def graph_argument(self) -> tuple[Any, Any]:
        return self.obj, self.obj

    def mirrored(self, mirror: Mirror) -> Any:
        """Builtin classes run nothing of the program's."""
        return self.obj if self.obj.__module__ == "builtins" else mirror.stand_in(self)

    # -- attributes ------------------------------------------------------------------------------------

    def get_attr(self, tx: Machine, name: str) -> Value:
        if (override := self._written(tx, "__getattribute__")) is None:
            return self._plain_attribute(tx, name)
        try:
            return override.call(tx, (fresh(name),), {})
        except Raised as raised:
            hook = self._written(tx, "__getattr__")
            if hook is None or not issubclass(raised.value.python_type(), AttributeError):
                raise
            return hook.call(tx, (fresh(name),), {})

    def _plain_attribute(self, tx: Machine, name: str) -> Value:
        """`type.__getattribute__`, then the metaclass's `__getattr__`."""
        cls = self.obj
        if name == "__class__":
            return fresh(type(cls))
        if name == "__dict__":
            return wrap(tx, cls.__dict__, AttrSource(ConstSource(cls), "__dict__"))
        meta = look_up(tx, type(cls), name)
        if meta is not MISSING and is_data_descriptor(tx, meta):
            return self._meta_attribute(tx, name, meta)
        raw = look_up(tx, cls, name)
        if raw is MISSING:
            if meta is not MISSING:
                return self._meta_attribute(tx, name, meta)
            if (hook := self._written(tx, "__getattr__")) is not None:
                return hook.call(tx, (fresh(name),), {})
            tx.raise_exception(AttributeError, f"type object {cls.__name__!r} has no attribute {name!r}")
        if isinstance(cls, enum.EnumMeta) and not callable(raw):
            return wrap(tx, getattr(cls, name), AttrSource(ConstSource(cls), name))
        return bind(tx, raw, ClassAttrSource(ConstSource(cls), name), None, cls)

    def _meta_attribute(self, tx: Machine, name: str, meta: Any) -> Value:
        if isinstance(meta, property | types.FunctionType | classmethod | staticmethod):
            return bind(tx, meta, ClassAttrSource(ConstSource(type(self.obj)), name), self, type(self.obj))
        found = run(tx, getattr, (self.obj, name))
        if isinstance(found, types.BuiltinMethodType | types.MethodWrapperType):
            return BoundMethodValue(BuiltinMethodValue(meta, type(self.obj), name), self)
        if self.obj.__flags__ & watch.IMMUTABLE:
            return fresh(found)
        return wrap(tx, found, AttrSource(ConstSource(self.obj), name))

    def _written(self, tx: Machine, name: str) -> Value | None:
        """A special method that a class statement has given to the metaclass, bound to the class."""
        raw = look_up(tx, type(self.obj), name)
        if not isinstance(raw, types.FunctionType) or raw.__module__ in ANSWERING:
            return None
        where = ClassAttrSource(ConstSource(type(self.obj)), name)
        return BoundMethodValue(wrap(tx, raw, where), self)

    def set_attr(self, tx: Machine, name: str, value: Value) -> None:
        raise self.refuse(f"setting attribute {name!r}")

    # -- containers (enum classes, generic aliases) ----------------------------------------------------

    def iterate(self, tx: Machine) -> Value:
        if (written := self._written(tx, "__iter__")) is not None:
            return written.call(tx, (), {})
        return ItemsIterator(ask(tx, list, (self,)).unpack(tx))

    def length(self, tx: Machine) -> int:
        written = self._written(tx, "__len__")
        return int((ask(tx, len, (self,)) if written is None else written.call(tx, (), {})).constant())

    def contains(self, tx: Machine, item: Value) -> Value:
        if (written := self._written(tx, "__contains__")) is not None:
            return boolean(written.call(tx, (item,), {}).truth(tx))
        return ask(tx, operator.contains, (self, item))

    def get_item(self, tx: Machine, key: Value) -> Value:
        if (written := self._written(tx, "__getitem__")) is not None:
            return written.call(tx, (key,), {})
        return ask(tx, operator.getitem, (self, key))

    def binary(self, tx: Machine, op: str, other: Value) -> Value | None:
        return None

    # -- calling ---------------------------------------------------------------------------------------

    def call(self, tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        cls = self.obj
        handler = handler_of(cls)
        if handler is not None:
            return handler(tx, args, kwargs)
        meta_call = look_up(tx, type(cls), "__call__")
        if isinstance(cls, enum.EnumMeta) or cls in CONSTANT_CLASSES:
            if all_constant(args, kwargs):
                return (ask if isinstance(cls, enum.EnumMeta) else fold)(tx, cls, args, kwargs)
            raise self.refuse(f"calling {cls.__name__} on unknown arguments")
        if isinstance(meta_call, types.FunctionType):
            function = wrap(tx, meta_call, ClassAttrSource(ConstSource(type(cls)), "__call__"))
            return function.call(tx, (self, *args), kwargs)
        return instantiate(tx, self, args, kwargs)


def instantiate(tx: Machine, cls_value: ClassValue, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """`type.__call__`: `__new__`, then `__init__` if that gave an instance."""
    cls = cls_value.obj
    if getattr(cls, "__abstractmethods__", None):
        names = ", ".join(sorted(cls.__abstractmethods__))
        tx.raise_roughly(TypeError, f"Can't instantiate abstract class {cls.__name__} with abstract methods {names}")
    raw_new = look_up(tx, cls, "__new__")
    if isinstance(raw_new, staticmethod):
        raw_new = raw_new.__func__
    if isinstance(raw_new, types.FunctionType):
        made = cls_value.get_attr(tx, "__new__").call(tx, (cls_value, *args), kwargs)
    else:
        made = new_instance(tx, cls, args, kwargs)
    if issubclass(made.python_type(), cls):
        raw_init = look_up(tx, cls, "__init__")
        if isinstance(raw_init, types.FunctionType) or not isinstance(made, ExceptionValue):
            if raw_init is object.__init__:
                if raw_new is object.__new__ and (args or kwargs):
                    tx.raise_roughly(TypeError, f"{cls.__name__}() takes no arguments")
                return made
            init = bind(tx, raw_init, ClassAttrSource(ConstSource(cls), "__init__"), made, cls)
            result = init.call(tx, args, kwargs)
            if not result.is_none():
                kind = type_name(result.python_type())
                tx.raise_exception(TypeError, f"__init__() should return None, not {kind!r}")
    return made


def new_instance(tx: Machine, cls: type, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """What a builtin `__new__` gives for a user's class."""
    if look_up(tx, cls, "__del__") is not MISSING:
        raise GraphBreak(f"instances of {cls.__qualname__} do something when they go", "make them outside of the graph")
    if issubclass(cls, BaseException):
        return ExceptionValue(cls, list(args))
    if issubclass(cls, tuple):
        return new_tuple(tx, cls, args)
    if (
        issubclass(cls, IMMUTABLE_BASES)
        and not has_operators(cls)
        and all_constant(args)
        and all_constant(kwargs.values())
    ):
        return fold(tx, cls.__new__, (fresh(cls), *args), kwargs)
    for applies, maker in INSTANCE_MAKERS:
        if applies(cls):
            return maker(tx, cls)
    raise GraphBreak(f"making an instance of {cls.__module__}.{cls.__qualname__} is not supported")


def is_value_type(cls: type) -> bool:
    """Whether the C methods of a class only compute: from values that never change."""
    return cls is object or issubclass(cls, VALUE_TYPES) or cls in CONSTANT_CLASSES


#: Classes whose instances are their value, and whose methods ask nobody else.
VALUE_TYPES = (
    *LITERALS, tuple, frozenset, range, slice, re.Pattern, re.Match, enum.Enum, datetime.timedelta,
    types.GenericAlias, types.UnionType, types.CodeType, torch.finfo, torch.iinfo,
)  # fmt: skip

#: Builtin classes whose instances are their value.
IMMUTABLE_BASES = (int, float, complex, str, bytes)


def has_operators(cls: type) -> bool:
    """Whether a class statement gives instances special methods, which operators would run."""
    written = (item for parent in cls.__mro__ for item in parent.__dict__.items())
    return any(name.startswith("__") and isinstance(raw, types.FunctionType) for name, raw in written)


# -- descriptors ---------------------------------------------------------------------------------------


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
    if not isinstance(cls, ClassValue):
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


@value_class
class SuperValue(Object):
    """`super(cls, instance)`; for class methods the instance is itself a class."""

    kind = "super()"

    after: type
    instance: Value = part()

    def python_type(self) -> type:
        return super

    def get_attr(self, tx: Machine, name: str) -> Value:
        bound: Value | None = self.instance
        cls = self.instance.python_type()
        if isinstance(self.instance, ClassValue) and not issubclass(cls, self.after):
            cls, bound = self.instance.obj, None
        owner = tx.session.looked_up.get((cls, self.after, name)) or self._find(tx, cls, name)
        return bind(tx, owner.__dict__[name], ClassAttrSource(ConstSource(owner), name), bound, cls)

    def set_attr(self, tx: Machine, name: str, value: Value) -> None:
        tx.raise_exception(AttributeError, f"'super' object has no attribute {name!r}")

    def _find(self, tx: Machine, cls: type, name: str) -> type:
        """The class that has the name itself, after this one among the bases of `cls`."""
        bases = cls.__mro__[cls.__mro__.index(self.after) + 1 :]
        place = next((place for place, parent in enumerate(bases) if name in parent.__dict__), len(bases))
        watch.passed_by_super(tx, cls, name, bases[:place])
        if place == len(bases):
            tx.raise_exception(AttributeError, f"'super' object has no attribute {name!r}")
        tx.session.looked_up[cls, self.after, name] = bases[place]
        return bases[place]


@handles(type.__dict__["__call__"])
def call_class(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """`type.__call__(cls, …)`, what a metaclass's `super().__call__(…)` comes down to."""
    cls, *rest = args
    if not isinstance(cls, ClassValue):
        raise cls.refuse("type.__call__")
    return instantiate(tx, cls, rest, kwargs)


@models(tuple.__new__)
def call_tuple_new(tx: Machine, cls: Value, items: Value | None = None, /) -> Value | None:
    """What the `__new__` of a named tuple comes down to."""
    if not issubclass(cls.python_type(), type):
        return None
    return new_tuple(tx, cls.constant(), () if items is None else (items,))


def new_tuple(tx: Machine, cls: type, args: Sequence[Value]) -> Value:
    """`tuple.__new__(cls, *args)`."""
    tuple_class(tx, cls)
    return TupleValue(args[0].unpack(tx) if args else [], cls)


@handles(super)
def call_super(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """`super()` and `super(cls, instance)`."""
    if len(args) == 2:
        cls, instance = args
    elif not args:
        cls, instance = tx.frame_super()
    else:
        raise GraphBreak("super() with one argument is not supported")
    return SuperValue(cls.constant(), instance)


# -- from objects --------------------------------------------------------------------------------------


@builds(type)
def build_class(tx: Machine, obj: type, source: Source) -> Value:
    """A class is known by identity."""
    watch.identity(tx, source, obj)
    return ClassValue(obj, source=source)


makes(type)(ClassValue)


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
