"""Classes: attributes along the MRO and along the metaclass, calling them, and `super()`.

A class is known by identity; what its MRO has under a name is guarded by (class, name) once for all its
instances. Calling a user's class runs `__new__` and `__init__` as Python does; an instance that the
frame makes is a `UserObjectValue` without a source.
Neighbours: `new.py` (what `__new__` gives), `descriptors.py` (methods and properties), `user_object.py` (instances).
"""

from __future__ import annotations

import enum
import operator
import types
from typing import TYPE_CHECKING, Any

from stator.base.errors import GraphBreak
from stator.capture.fields import part, value_class
from stator.capture.source import AttrSource, ClassAttrSource, ConstSource
from stator.capture.value import Raised, Value
from stator.capture.values import watch
from stator.capture.values.base import Object, PinnedValue
from stator.capture.values.fold import all_constant, ask, fold, run
from stator.capture.values.lookup import MISSING, is_data_descriptor, look_up
from stator.capture.values.methods import type_name
from stator.capture.values.mirror import Mirror
from stator.capture.values.python.constant import boolean
from stator.capture.values.python.iterators import ItemsIterator
from stator.capture.values.python.objects.descriptors import BuiltinMethodValue, bind
from stator.capture.values.python.objects.exception import ExceptionValue
from stator.capture.values.python.objects.function import BoundMethodValue
from stator.capture.values.python.objects.new import CONSTANT_CLASSES, new_instance
from stator.capture.values.registry import builds, fresh, handler_of, handles, makes, wrap

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stator.capture.machine import Machine
    from stator.capture.source import Source


#: Flags of classes: made at run time, and not to be written to.
HEAP_TYPE, IMMUTABLE_TYPE = 1 << 9, 1 << 8

#: Modules whose metaclasses only answer.
ANSWERING = frozenset({"abc", "_py_abc", "typing", "enum", "torch", "builtins", "torch._C", "torch.nn.parameter"})


def is_subscripted_in_c(cls: type) -> bool:
    """Whether what `cls[…]` gives follows from the key alone: a generic alias, of a class that nobody can change."""
    fixed = not cls.__flags__ & HEAP_TYPE or cls.__flags__ & IMMUTABLE_TYPE
    method = vars(cls).get("__class_getitem__")
    return bool(fixed) and type(cls) is type and isinstance(method, types.ClassMethodDescriptorType)


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
            return wrap(tx, run(tx, getattr, (cls, name)), AttrSource(ConstSource(cls), name))
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
        return (fold if is_subscripted_in_c(self.obj) else ask)(tx, operator.getitem, (self, key))

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
        if not isinstance(meta_call, types.WrapperDescriptorType):  # `type.__call__`
            function = bind(tx, meta_call, ClassAttrSource(ConstSource(type(cls)), "__call__"), self, type(cls))
            return function.call(tx, args, kwargs)
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
    if cls in made.python_type().__mro__:  # whatever the metaclass says of subclasses
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


# -- descriptors ---------------------------------------------------------------------------------------


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
