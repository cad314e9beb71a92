"""Instances of users' classes, met or made by the frame.

Attribute reading follows Python: data descriptors of the class, the instance's dict, other class
attributes, `__getattr__`; properties and overridden `__getattribute__` are run. The instance's dict is a
`DictValue`, so reads are guarded and writes recorded entry by entry, and `obj.__dict__` is just it.
An instance of a subclass of dict, list, set… holds its builtin contents in `storage`.
Neighbours: `klass.py` (making them), `nn_module.py`, `effects.py`.
"""

from __future__ import annotations

import functools
import sys
import types
from collections import OrderedDict, deque
from dataclasses import field
from typing import TYPE_CHECKING, Any, ClassVar

from stator.capture.fields import value_class
from stator.capture.source import AttrSource, ClassAttrSource, ConstSource, InstanceDictSource
from stator.capture.value import Raised, Value
from stator.capture.values import watch
from stator.capture.values.base import Object
from stator.capture.values.fold import run
from stator.capture.values.instances import HEAP_TYPE, empty_slot, fill_attributes, fill_contents, new_object
from stator.capture.values.lookup import MISSING, is_data_descriptor, look_up, static_attribute
from stator.capture.values.methods import find_method
from stator.capture.values.mirror import NEW_INSTANCES, Mirror, answering, apply
from stator.capture.values.python import operators
from stator.capture.values.python.constant import NONE, ConstantValue, boolean
from stator.capture.values.python.containers.deques import DequeValue
from stator.capture.values.python.containers.mapping import DictValue, pairs_of
from stator.capture.values.python.containers.sequence import TupleValue
from stator.capture.values.python.containers.sets import SetValue
from stator.capture.values.python.containers.storages import STORAGES, storage_base
from stator.capture.values.python.iterators import IndexIterator
from stator.capture.values.python.objects.descriptors import PropertyValue, bind
from stator.capture.values.python.objects.new import INSTANCE_MAKERS
from stator.capture.values.python.objects.object_methods import OBJECT_METHODS
from stator.capture.values.registry import builds, fresh, wrap

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from stator.capture.machine import Machine
    from stator.capture.rewrite import Assembler
    from stator.capture.source import Source

#: Class attributes that a missing override leaves to `object`.
_SETATTR = object.__setattr__
_DELATTR = object.__delattr__


@value_class
class UserObjectValue(Object):
    """An instance. `real` is None for one that the frame has made."""

    kind = "an object"

    #: Whether the copy of one is made of copies of its attributes.
    copied_by_parts: ClassVar[bool] = True

    cls: type
    real: Any = None
    storage: Value | None = None
    #: What stands in its `__dict__`.
    namespace: DictValue = field(init=False)
    slots: dict[str, Value] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        real = None if self.source is None else getattr(self.real, "__dict__", None)
        if self.source is None or real is None:
            self.namespace = DictValue()
        else:
            self.namespace = DictValue(None, real=real, source=InstanceDictSource(self.source))

    def share_dict(self, tx: Machine) -> None:
        """The instance's dict is the same object however it is reached."""
        real, source = self.namespace.real, self.namespace.source
        if real is None or source is None:
            return
        met = tx.values.setdefault(id(real), self.namespace)
        if met is not self.namespace and isinstance(met, DictValue):
            watch.again(tx, source, met, real)
            self.namespace = met

    @property
    def described(self) -> str:
        """How a refusal names it."""
        return f"an object of class {self.cls.__module__}.{self.cls.__qualname__}"

    def refuse(self, what: str) -> Any:
        error = super().refuse(what)
        error.reason = f"{what} is not supported on {self.described}"
        error.args = (error.reason,)
        return error

    def python_type(self) -> type:
        return self.cls

    def real_object(self) -> Any:
        return self.real

    # -- reading attributes ----------------------------------------------------------------------------

    def get_attr(self, tx: Machine, name: str) -> Value:
        override = look_up(tx, self.cls, "__getattribute__")
        if isinstance(override, types.FunctionType):
            source = ClassAttrSource(ConstSource(self.cls), "__getattribute__")
            try:
                return wrap(tx, override, source).call(tx, (self, fresh(name)), {})
            except Raised as raised:
                if not issubclass(raised.value.python_type(), AttributeError):
                    raise
                return self.missing_attribute(tx, name, raised)
        return self.generic_get_attr(tx, name)

    def generic_get_attr(self, tx: Machine, name: str) -> Value:
        """`object.__getattribute__`, then `__getattr__`."""
        try:
            found = self.find_attr(tx, name)
        except Raised as raised:
            # A property that raises AttributeError falls through to `__getattr__`, as in Python.
            if not issubclass(raised.value.python_type(), AttributeError):
                raise
            return self.missing_attribute(tx, name, raised)
        return self.missing_attribute(tx, name, None) if found is None else found

    def find_attr(self, tx: Machine, name: str) -> Value | None:
        """The attribute by descriptors, instance dict and class; None if there is none."""
        raw = look_up(tx, self.cls, name)
        if raw is not MISSING and is_data_descriptor(tx, raw):
            return self._data_descriptor(tx, name, raw)
        found = self.own_attr(tx, name, raw)
        if found is not None:
            return found
        if raw is MISSING:
            return None
        if isinstance(raw, functools.cached_property):
            return self._cached_property(tx, name, raw)
        return bind(tx, raw, ClassAttrSource(ConstSource(self.cls), name), self, self.cls)

    def own_attr(self, tx: Machine, name: str, raw: Any) -> Value | None:
        """The attribute in the instance's dict."""
        if self.namespace.real is None and not self.namespace.entries(tx):
            return None
        return self.namespace.find(tx, ConstantValue(name))

    def missing_attribute(self, tx: Machine, name: str, raised: Raised | None) -> Value:
        """`__getattr__`, if the class has one; else the AttributeError."""
        hook = look_up(tx, self.cls, "__getattr__")
        if hook is not MISSING:
            function = bind(tx, hook, ClassAttrSource(ConstSource(self.cls), "__getattr__"), self, self.cls)
            return function.call(tx, (fresh(name),), {})
        if raised is not None:
            raise raised
        tx.raise_exception(AttributeError, f"{self.cls.__name__!r} object has no attribute {name!r}")

    def _data_descriptor(self, tx: Machine, name: str, raw: Any) -> Value:
        if raw is object.__dict__["__class__"]:
            return fresh(self.cls)
        if name == "__dict__" and isinstance(raw, types.GetSetDescriptorType):
            return self.namespace
        if isinstance(raw, types.MemberDescriptorType | types.GetSetDescriptorType) and self.is_stored(raw):
            return self.storage.get_attr(tx, name)  # type: ignore[union-attr]
        if isinstance(raw, types.MemberDescriptorType):
            return self._slot(tx, name, raw)
        if isinstance(raw, types.GetSetDescriptorType):
            if name == "__weakref__":
                return NONE
            if self.real is not None and self.source is not None:
                return wrap(tx, run(tx, getattr, (self.real, name)), AttrSource(self.source, name))
            raise self.refuse(f"reading attribute {name!r}")
        return bind(tx, raw, ClassAttrSource(ConstSource(self.cls), name), self, self.cls)

    def is_stored(self, raw: Any) -> bool:
        """Whether a descriptor reads the builtin container that it is (`default_factory`, `maxlen`)."""
        return self.storage is not None and raw.__objclass__ is self.storage.python_type()

    def _slot(self, tx: Machine, name: str, raw: Any) -> Value:
        found = self.slots.get(name)
        if found is None and self.real is not None and self.source is not None:
            if not has_slot(raw, self.real):
                tx.guard("CALL", self.source, (functools.partial(has_slot, raw), False))
                tx.raise_exception(AttributeError, name)
            real = raw.__get__(self.real, self.cls)
            found = self.slots[name] = wrap(tx, real, AttrSource(self.source, name))
        if found is None or found is DELETED:
            tx.raise_exception(AttributeError, name)
        return found

    def _cached_property(self, tx: Machine, name: str, raw: Any) -> Value:
        source = AttrSource(ClassAttrSource(ConstSource(self.cls), name), "func")
        value = wrap(tx, raw.func, source).call(tx, (self,), {})
        self.namespace.put(tx, ConstantValue(name), value)
        return value

    # -- writing attributes ----------------------------------------------------------------------------

    def set_attr(self, tx: Machine, name: str, value: Value) -> None:
        override = look_up(tx, self.cls, "__setattr__")
        if override is not _SETATTR:
            self._call_hook(tx, "__setattr__", override, (fresh(name), value))
        else:
            self.generic_set_attr(tx, name, value)

    def generic_set_attr(self, tx: Machine, name: str, value: Value) -> None:
        """`object.__setattr__`."""
        raw = look_up(tx, self.cls, name)
        if raw is not MISSING and is_data_descriptor(tx, raw):
            if isinstance(raw, property):
                PropertyValue(raw, source=ClassAttrSource(ConstSource(self.cls), name)).descriptor_set(tx, self, value)
                return
            if isinstance(raw, types.MemberDescriptorType | types.GetSetDescriptorType) and self.is_stored(raw):
                self.storage.set_attr(tx, name, value)  # type: ignore[union-attr]
                return
            if isinstance(raw, types.MemberDescriptorType):
                self.slots[name] = value
                if self.source is not None:
                    tx.effects.change(self)
                return
            if isinstance(setter := look_up(tx, type(raw), "__set__"), types.FunctionType):
                descriptor = wrap(tx, raw, ClassAttrSource(ConstSource(self.cls), name))
                function = wrap(tx, setter, ClassAttrSource(ConstSource(type(raw)), "__set__"))
                function.call(tx, (descriptor, self, value), {})
                return
            raise self.refuse(f"setting attribute {name!r}")
        if not self.cls.__dictoffset__:
            text = f"object has no attribute {name!r}" if raw is MISSING else f"object attribute {name!r} is read-only"
            tx.raise_exception(AttributeError, f"{self.cls.__name__!r} {text}")
        self.namespace.put(tx, ConstantValue(name), value)

    def del_attr(self, tx: Machine, name: str) -> None:
        override = look_up(tx, self.cls, "__delattr__")
        if override is not _DELATTR:
            self._call_hook(tx, "__delattr__", override, (fresh(name),))
        else:
            self.generic_del_attr(tx, name)

    def generic_del_attr(self, tx: Machine, name: str) -> None:
        """`object.__delattr__`."""
        raw = look_up(tx, self.cls, name)
        if isinstance(raw, types.MemberDescriptorType):
            self._slot(tx, name, raw)  # raises when it is empty
            self.slots[name] = DELETED
            if self.source is not None:
                tx.effects.change(self)
            return
        if isinstance(raw, property):
            PropertyValue(raw, source=ClassAttrSource(ConstSource(self.cls), name)).descriptor_delete(tx, self)
            return
        if raw is not MISSING and look_up(tx, type(raw), "__delete__") is not MISSING:
            raise self.refuse(f"deleting attribute {name!r}")
        if self.namespace.drop(tx, ConstantValue(name)) is None:
            tx.raise_exception(AttributeError, f"{self.cls.__name__!r} object has no attribute {name!r}")

    def _call_hook(self, tx: Machine, name: str, raw: Any, args: Sequence[Value]) -> Value:
        return bind(tx, raw, ClassAttrSource(ConstSource(self.cls), name), self, self.cls).call(tx, args, {})

    # -- special methods -------------------------------------------------------------------------------

    def special(self, tx: Machine, name: str, *args: Value) -> Value | None:
        """`type(self).name(self, *args)`; None when the class has no such method."""
        raw = look_up(tx, self.cls, name)
        if raw is MISSING or raw is None:
            return None
        if getattr(raw, "__objclass__", None) is object and name not in ("__eq__", "__ne__", "__hash__"):
            return None
        return self._call_hook(tx, name, raw, args)

    def builtin_method(self, tx: Machine, owner: type, name: str) -> Callable[..., Value | None] | None:
        """The C method `owner.name` as it acts on this object."""
        if owner is object or name in OF_ANY_OBJECT:
            method = OBJECT_METHODS.get(name)
            return None if method is None else functools.partial(method, self)
        if self.storage is None:
            return None
        if name == "__init__" or (name == "update" and owner is OrderedDict):
            return functools.partial(fill_storage, self)
        if name == "__getitem__" and isinstance(self.storage, DictValue):
            return self._subscript
        return None if name in BY_CLASS else find_method(self.storage, name)

    def _subscript(self, tx: Machine, key: Value) -> Value:
        """`dict.__getitem__` on an instance of a subclass: a missing key is a question to `__missing__`."""
        assert isinstance(self.storage, DictValue)
        found = self.storage.find(tx, key)
        if found is None:
            found = self.special(tx, "__missing__", key)
        if found is None:
            tx.raise_exception(KeyError, key)
            raise AssertionError
        return found

    def _required(self, tx: Machine, name: str, *args: Value) -> Value:
        result = self.special(tx, name, *args)
        if result is None:
            if name in ("__getitem__", "__setitem__", "__delitem__", "__iter__", "__len__"):
                text = _REFUSALS.get(name, "object does not support the operation")
                tx.raise_roughly(TypeError, text.format(self.cls.__name__))
            raise self.refuse(name)
        return result

    def truth(self, tx: Machine) -> bool:
        name, result = "__bool__", self.special(tx, "__bool__")
        if result is None:
            name, result = "__len__", self.special(tx, "__len__")
        if result is None:
            return True
        if result.python_type() is not bool if name == "__bool__" else not is_size(result):
            result = answering(tx, bool, self, name, result)
        return result.truth(tx)

    def length(self, tx: Machine) -> int:
        return int(self._length(tx).constant())

    def _length(self, tx: Machine) -> Value:
        """What `len(obj)` gives: a size of a tensor, maybe, which changes from call to call."""
        result = self._required(tx, "__len__")
        if result.is_symbolic() and result.python_type() is int:
            if operators.compare(tx, ">=", result, fresh(0)).truth(tx):
                return result
        elif is_size(result):
            return result
        return answering(tx, len, self, "__len__", result)

    def by_builtin(self, tx: Machine, function: Any, /, *args: Value, **kwargs: Value) -> Value | None:
        if function is len and not args and not kwargs:
            return self._length(tx)
        return super().by_builtin(tx, function, *args, **kwargs)

    def iterate(self, tx: Machine) -> Value:
        if look_up(tx, self.cls, "__iter__") is MISSING and look_up(tx, self.cls, "__getitem__") is not MISSING:
            return IndexIterator(self)
        result = self._required(tx, "__iter__")
        if static_attribute(result.python_type(), "__next__") is MISSING:
            return answering(tx, iter, self, "__iter__", result)
        return result

    def next_item(self, tx: Machine) -> Value | None:
        try:
            return self._required(tx, "__next__")
        except Raised as raised:
            if issubclass(raised.value.python_type(), StopIteration):
                return None
            raise

    def pairs(self, tx: Machine) -> list[tuple[Value, Value]]:
        if isinstance(self.storage, DictValue):
            return self.storage.pairs(tx)
        keys = self.get_attr(tx, "keys").call(tx, (), {}).unpack(tx)
        return [(key, self.get_item(tx, key)) for key in keys]

    def get_item(self, tx: Machine, key: Value) -> Value:
        return self._required(tx, "__getitem__", key)

    def set_item(self, tx: Machine, key: Value, value: Value) -> None:
        self._required(tx, "__setitem__", key, value)

    def del_item(self, tx: Machine, key: Value) -> None:
        self._required(tx, "__delitem__", key)

    def contains(self, tx: Machine, item: Value) -> Value:
        result = self.special(tx, "__contains__", item)
        if result is not None:
            return boolean(result.truth(tx))
        return boolean(any(operators.equal(tx, item, candidate) for candidate in self.unpack(tx)))

    def call(self, tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        raw = look_up(tx, self.cls, "__call__")
        if raw is MISSING:
            tx.raise_roughly(TypeError, f"{self.cls.__name__!r} object is not callable")
        source = ClassAttrSource(ConstSource(self.cls), "__call__")
        return bind(tx, raw, source, self, self.cls).call(tx, args, kwargs)

    def _operator(self, tx: Machine, name: str, *args: Value) -> Value | None:
        raw = look_up(tx, self.cls, name)
        if (
            raw is MISSING
            or raw is None
            or (getattr(raw, "__objclass__", None) is object and name not in ("__eq__", "__ne__"))
        ):
            return None
        if getattr(raw, "__objclass__", None) is object:
            override = look_up(tx, self.cls, "__eq__")
            if name == "__ne__" and getattr(override, "__objclass__", None) is not object:
                result = self._operator(tx, "__eq__", *args)
                return None if result is None else boolean(not result.truth(tx))
            return None
        result = self._call_hook(tx, name, raw, args)
        return None if result.is_constant() and result.constant() is NotImplemented else result

    def unary(self, tx: Machine, op: str) -> Value:
        result = self._operator(tx, {"-": "__neg__", "+": "__pos__", "~": "__invert__"}[op])
        if result is None:
            tx.raise_roughly(TypeError, f"bad operand type for unary {op}: {self.cls.__name__!r}")
        return result

    def binary(self, tx: Machine, op: str, other: Value) -> Value | None:
        return self._operator(tx, f"__{NAMES[op]}__", other)

    def binary_reflected(self, tx: Machine, op: str, other: Value) -> Value | None:
        return self._operator(tx, f"__r{NAMES[op]}__", other)

    def inplace(self, tx: Machine, op: str, other: Value) -> Value | None:
        return self._operator(tx, f"__i{NAMES[op]}__", other)

    def compare(self, tx: Machine, op: str, other: Value) -> Value | None:
        return self._operator(tx, f"__{COMPARE_NAMES[op]}__", other)

    def m___hash__(self, tx: Machine, /) -> Value:
        result = self.special(tx, "__hash__")
        if result is None:
            raise self.refuse("hash()")
        plain = result.is_constant() and type(result.constant()) is int and abs(result.constant()) < 1 << 32
        return result if plain and result.constant() != -1 else answering(tx, hash, self, "__hash__", result)

    # -- while Python's own code works on it -----------------------------------------------------------

    def mirrored(self, mirror: Mirror) -> Any:
        base = storage_base(self.cls) if self.storage is not None else None
        if base is None:
            return mirror.stand_in(self)
        made = mirror.stand_in(self, base)
        if isinstance(self.storage, DequeValue):
            deque.__init__(made, maxlen=self.storage.limit)
        self.storage.fill(mirror, made)  # type: ignore[union-attr]
        return made

    # -- after capture ---------------------------------------------------------------------------------

    def graph_argument(self) -> tuple[Any, Any]:
        if self.storage is not None:
            return self.storage.graph_argument()
        raise self.refuse("passing it to a torch function")

    def children(self) -> Iterator[Value]:
        yield self.namespace
        if self.storage is not None:
            yield self.storage
        yield from (value for value in self.slots.values() if value is not DELETED)

    def reconstruct(self, out: Assembler) -> None:
        out.call(new_object, ConstantValue(self.cls))
        out.remember(self)
        if self.storage is not None:
            out.call(fill_contents, self, self.storage)
            out.pop()
        pairs = [(name, value) for name, value in self.slots.items() if value is not DELETED]
        attributes = [(entry.key, entry.value) for entry in self.namespace.entries_now()]
        names = TupleValue([*(fresh(name) for name, _ in pairs), *(key for key, _ in attributes)])
        values = TupleValue([*(value for _, value in pairs), *(value for _, value in attributes if value is not None)])
        out.call(fill_attributes, self, names, values)
        out.pop()

    def write_back(self, out: Assembler) -> None:
        """Emit changed slots (the dict writes itself back)."""
        for name, value in self.slots.items():
            if value is DELETED:
                out.call(empty_slot, self, fresh(name))
            else:
                out.call(_SETATTR, self, fresh(name), value)
            out.pop()


#: Methods of builtin containers whose results go by the class of the object, or that return the object itself.
BY_CLASS = frozenset(
    {
        "copy", "__copy__", "__add__", "__mul__", "__rmul__", "__or__", "__ror__", "__and__", "__sub__", "__xor__",
        "__rand__", "__rsub__", "__rxor__", "__iadd__", "__imul__", "__ior__", "__iand__", "__isub__", "__ixor__",
        "__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__",
    }
)  # fmt: skip

#: Methods that classes written in C take over from `object`, or do as it does.
OF_ANY_OBJECT = frozenset({"__getattribute__", "__setattr__", "__delattr__", "__init_subclass__"})

#: Marks a slot that the program has emptied.
DELETED = Value()

NAMES = {
    "+": "add", "-": "sub", "*": "mul", "/": "truediv", "//": "floordiv", "%": "mod", "**": "pow", "@": "matmul",
    "&": "and", "|": "or", "^": "xor", "<<": "lshift", ">>": "rshift",
}  # fmt: skip
COMPARE_NAMES = {"<": "lt", "<=": "le", "==": "eq", "!=": "ne", ">": "gt", ">=": "ge"}
_REFUSALS = {
    "__getitem__": "{0!r} object is not subscriptable",
    "__setitem__": "{0!r} object does not support item assignment",
    "__delitem__": "{0!r} object does not support item deletion",
    "__iter__": "{0!r} object is not iterable",
    "__len__": "object of type {0!r} has no len()",
}


def is_size(value: Value) -> bool:
    """Whether it is a number that `__len__` may give."""
    plain = value.is_constant() and not value.is_symbolic() and type(value.constant()) is int
    return plain and 0 <= value.constant() <= sys.maxsize


def has_slot(raw: types.MemberDescriptorType, obj: Any) -> bool:
    """Whether a slot of an object holds something."""
    try:
        raw.__get__(obj)
    except AttributeError:
        return False
    return True


# -- subclasses of builtin containers ------------------------------------------------------------------


def fill_storage(value: UserObjectValue, tx: Machine, /, *args: Value, **kwargs: Value) -> Value:
    """`dict.__init__`, `list.__init__`… on an instance of a subclass."""
    storage = value.storage
    match storage:
        case DictValue() if storage.cls is OrderedDict and isinstance(
            look_up(tx, value.cls, "__setitem__"), types.FunctionType
        ):
            # Unlike dict, OrderedDict fills itself through the class's own `__setitem__`.
            for key, item in pairs_of(tx, args[0]) if args else ():
                value.set_item(tx, key, item)
            for name, item in kwargs.items():
                value.set_item(tx, fresh(name), item)
        case SetValue() if len(args) == 1 and not kwargs and not storage.items and storage.m_update(tx, args[0]):
            pass  # in the order of the items
        case _:
            base: Any = storage_base(value.cls)
            apply(tx, base.__init__, (value, *args), kwargs)
    return NONE


# -- from objects --------------------------------------------------------------------------------------


@builds(object)
def build_object(tx: Machine, obj: Any, source: Source) -> Value:
    """Any object that no other builder takes."""
    cls = type(obj)
    watch.type_of(tx, source, cls)
    base = storage_base(cls)
    storage = STORAGES[base][1](tx, obj, source) if base is not None else None
    value = UserObjectValue(cls, source=source, real=obj, storage=storage)
    value.share_dict(tx)
    return value


def is_plain_class(cls: type) -> bool:
    """Whether instances consist of a dict, slots, and at most a known builtin container."""
    base: type | None = cls
    while base is not None and base is not object:
        if base in STORAGES:
            return True
        if type(vars(base).get("__new__")) is types.BuiltinFunctionType:
            return False  # made in C, whatever its flags say
        if not base.__flags__ & HEAP_TYPE and not base.__module__.startswith(
            ("abc", "typing", "contextlib", "collections")
        ):
            return False
        base = base.__base__
    return bool(cls.__flags__ & HEAP_TYPE) or cls in STORAGES or cls is object


def make_instance(tx: Machine, cls: type) -> Value:
    """A new instance of a plain class."""
    base = storage_base(cls)
    return UserObjectValue(cls, storage=STORAGES[base][0]() if base is not None else None)


def new_instance(mirror: Mirror, cls: type, obj: Any) -> Value:
    """An instance of a subclass of a builtin container that one of its builtin methods has made."""
    made = make_instance(mirror.tx, cls)
    mirror.tie(made, obj)
    assert isinstance(made, UserObjectValue) and made.storage is not None
    if isinstance(made.storage, DequeValue):
        made.storage.limit = obj.maxlen
    made.storage.take_back(mirror, obj)
    return made


NEW_INSTANCES.append(new_instance)
INSTANCE_MAKERS.append((is_plain_class, make_instance))
