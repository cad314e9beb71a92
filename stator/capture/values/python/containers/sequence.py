"""What sequences share, and tuples: `torch.Size`, named tuples and torch's return types are such.

A plain tuple of literals is compared as one, any other is read whole when it is met; its items keep their sources.
Invariant: a tuple of constants is a constant. Neighbours: `lists.py`, `mapping.py`.
"""

from __future__ import annotations

import operator
from collections import namedtuple
from typing import TYPE_CHECKING, Any

import torch

from stator.base.errors import GraphBreak
from stator.capture.fields import part, value_class
from stator.capture.source import PLAIN, InstanceDictSource, ItemSource, StorageSource
from stator.capture.value import Value
from stator.capture.values import mirror, watch
from stator.capture.values.base import Builtin, MethodValue, bind_static
from stator.capture.values.fold import run
from stator.capture.values.lookup import MISSING, look_up
from stator.capture.values.methods import COMPARE
from stator.capture.values.python.constant import ConstantValue
from stator.capture.values.python.iterators import ItemsIterator
from stator.capture.values.python.symbolic import product
from stator.capture.values.registry import builds, fresh, makes, wrap

if TYPE_CHECKING:
    from stator.capture.machine import Machine
    from stator.capture.rewrite import Assembler
    from stator.capture.source import Source


#: What every named tuple's class has: the kind of object under the name of a field, and the code of `_replace`.
_named: Any = namedtuple("_named", "item")
FIELD = type(_named.item)
REPLACE = _named._replace.__code__


@value_class
class SequenceValue(Builtin):
    """What tuples and lists share."""

    def values(self, tx: Machine) -> list[Value]:
        """The items, materialised."""
        raise NotImplementedError

    def like(self, items: list[Value]) -> Value:
        """A slice of this, with the same type."""
        raise NotImplementedError

    def builtin(self) -> type:
        """Which of the builtin types it is, or extends."""
        raise NotImplementedError

    def truth(self, tx: Machine) -> bool:
        return self.length(tx) > 0

    def length(self, tx: Machine) -> int:
        return len(self.values(tx))

    def unpack(self, tx: Machine) -> list[Value]:
        return list(self.values(tx))

    def get_item(self, tx: Machine, key: Value) -> Value:
        if key.is_constant():
            index = key.constant()
            if type(index) is int and -self.length(tx) <= index < self.length(tx):
                return self.values(tx)[index]
            if type(index) is slice and (index != slice(None) or self.builtin() is list):
                return self.like(run(tx, operator.getitem, (self.values(tx), index)))
        elif issubclass(key.python_type(), torch.Tensor):
            raise key.refuse("using its value as an index")
        return super().get_item(tx, key)

    def held(self, tx: Machine) -> list[Value]:
        return self.unpack(tx)

    def compare(self, tx: Machine, op: str, other: Value) -> Value | None:
        if isinstance(other, SequenceValue) and self.builtin() is other.builtin():
            return mirror.apply(tx, COMPARE[op], (self.comparable(tx), other.comparable(tx)))
        return None

    def comparable(self, tx: Machine) -> Value:
        """What compares as this does: a size holds no stand-ins, and compares as a tuple does."""
        return TupleValue(self.values(tx), tuple) if self.python_type() is torch.Size and self.is_symbolic() else self

    def binary(self, tx: Machine, op: str, other: Value) -> Value | None:
        if op == "*" and other.is_constant() and type(other.constant()) is int:
            return self.like(run(tx, operator.mul, (self.values(tx), other.constant())))
        if op == "*" and not isinstance(other, SequenceValue) and mirror.is_index(other):
            return mirror.apply(tx, operator.mul, (self, other))
        if op == "+" and isinstance(other, SequenceValue) and self.builtin() is other.builtin():
            return self.like([*self.values(tx), *other.values(tx)])
        return None

    def binary_reflected(self, tx: Machine, op: str, other: Value) -> Value | None:
        return self.binary(tx, op, other) if op == "*" else None


@value_class
class TupleValue(SequenceValue):
    """A tuple, or an instance of a subclass that is made of nothing but its items."""

    kind = "a tuple"

    items: list[Value] = part()
    cls: type = tuple

    def __post_init__(self) -> None:
        self.items = list(self.items)

    def python_type(self) -> type:
        return self.cls

    def values(self, tx: Machine) -> list[Value]:
        return self.items

    def builtin(self) -> type:
        return tuple

    def mirrored(self, seen: mirror.Mirror) -> Any:
        return build_tuple(self.cls, [seen.python(item) for item in self.items])

    def like(self, items: list[Value]) -> Value:
        return TupleValue(items, torch.Size if self.cls is torch.Size else tuple)

    def is_constant(self) -> bool:
        return all(item.is_constant() for item in self.items)

    def is_symbolic(self) -> bool:
        return any(item.is_symbolic() for item in self.items)

    def constant(self) -> Any:
        return build_tuple(self.cls, [item.constant() for item in self.items])

    def snapshot(self) -> Any:
        return build_tuple(self.cls, [item.snapshot() for item in self.items])

    def iterate(self, tx: Machine) -> Value:
        return ItemsIterator(self.items, type(iter(())), self)

    def is_same(self, other: Value) -> bool:
        return self is other or (isinstance(other, TupleValue) and not self.items and not other.items)

    def get_attr(self, tx: Machine, name: str) -> Value:
        fields = fields_of(self.cls)
        if name in fields and is_field(tx, self.cls, name):
            return self.items[fields.index(name)]
        if self.has_own(tx, name):
            return bind_static(tx, self, self.cls, name)
        if self.cls is torch.Size and name == "numel" and not self.is_symbolic():
            return ConstantValue(self.constant()).get_attr(tx, name)
        if name == "_replace" and look_up(tx, self.cls, name) is not MISSING:
            return MethodValue(self, name)
        return super().get_attr(tx, name)

    def has_own(self, tx: Machine, name: str) -> bool:
        """Whether the class has something of its own under the name: a method, a property, a constant."""
        if self.cls is tuple or self.cls is torch.Size or is_return_type(self.cls):
            return False
        raw = look_up(tx, self.cls, name)
        if raw is MISSING or getattr(raw, "__code__", None) is REPLACE:
            return False
        return raw is not tuple.__dict__.get(name, object.__dict__.get(name, MISSING))

    def m_numel(self, tx: Machine, /) -> Value:
        """The product of a shape."""
        return product(tx, self.items)

    def m__replace(self, tx: Machine, /, **changes: Value) -> Value | None:
        fields = fields_of(self.cls)
        if not changes.keys() <= set(fields):
            return None
        return TupleValue([changes.get(name, item) for name, item in zip(fields, self.items, strict=True)], self.cls)

    def graph_argument(self) -> tuple[Any, Any]:
        pairs = [item.graph_argument() for item in self.items]
        return tuple(node for node, _ in pairs), build_tuple(self.cls, [fake for _, fake in pairs])

    def reconstruct(self, out: Assembler) -> None:
        if self.cls is torch.Size or is_return_type(self.cls):
            out.call(self.cls, TupleValue(self.items))
            return
        if self.cls is not tuple:
            out.call(tuple.__new__, ConstantValue(self.cls), TupleValue(self.items))
            return
        for item in self.items:
            out.load(item)
        out.build("tuple", len(self.items))


def is_return_type(cls: type) -> bool:
    """Whether it is one of torch's result tuples (`torch.return_types.max`)."""
    return cls.__module__ == "torch.return_types"


def fields_of(cls: type) -> tuple[str, ...]:
    """The names of a named tuple's items."""
    names = getattr(cls, "_fields", None)
    if names is None and is_return_type(cls):
        return tuple(name for name in cls.__match_args__)  # type: ignore[attr-defined]
    return names or ()


def is_field(tx: Machine, cls: type, name: str) -> bool:
    """Whether a class still has the item under its field's name: a subclass may have something else there."""
    return is_return_type(cls) or type(look_up(tx, cls, name)) is FIELD


def build_tuple(cls: type, items: list[Any]) -> Any:
    """An instance of a tuple class."""
    if cls is tuple:
        return tuple(items)
    if cls is torch.Size or is_return_type(cls):
        return cls(items)
    return tuple.__new__(cls, items)


# -- from objects --------------------------------------------------------------------------------------


#: What a tuple does under operators, as a value does by itself.
TUPLE_METHODS = (
    "__getitem__", "__iter__", "__len__", "__contains__", "__eq__", "__ne__", "__hash__", "__lt__", "__le__", "__gt__",
    "__ge__", "__add__", "__mul__", "__rmul__",
)  # fmt: skip


def tuple_class(tx: Machine, cls: type) -> None:
    """Refuses a class whose instances are more than tuples of their items."""
    if cls is tuple or cls is torch.Size or is_return_type(cls):
        return
    if hasattr(cls, "n_sequence_fields"):
        raise GraphBreak(f"{cls.__module__}.{cls.__qualname__}, a tuple made in C, is not modelled")
    for name in TUPLE_METHODS:
        if look_up(tx, cls, name) is not tuple.__dict__[name]:
            raise GraphBreak(f"the class {cls.__qualname__}, a subclass of tuple, has {name} of its own")


def is_literal(obj: Any) -> bool:
    """Whether a tuple holds nothing but literals (no nan: of those containers ask who they are) and such tuples."""
    return all((type(item) in PLAIN and item == item) or (type(item) is tuple and is_literal(item)) for item in obj)


@builds(tuple)
def build_tuple_value(tx: Machine, obj: tuple[Any, ...], source: Source) -> Value:
    """Tuples, sizes and named tuples are read whole; plain tuples of literals are compared as one until one changes."""
    if type(obj) is tuple and is_literal(obj) and not tx.graph.sizes.changes(source, obj):
        watch.equals(tx, source, obj)
        return TupleValue([fresh(item) for item in obj], tuple, source=source)
    cls = type(obj)
    watch.type_of(tx, source, cls)
    tuple_class(tx, cls)
    if hasattr(obj, "__dict__"):
        if obj.__dict__:
            raise GraphBreak(f"a {cls.__qualname__}, which is a tuple, with attributes of its own is not modelled")
        watch.keys(tx, InstanceDictSource(source), ())
    watch.length(tx, source, len(obj))
    place = source if cls is tuple else StorageSource(source, tuple)
    items = [wrap(tx, item, ItemSource(place, index)) for index, item in enumerate(obj)]
    return TupleValue(items, cls, source=source)


mirror.RETURNED[tuple] = lambda seen, obj: TupleValue([seen.value(item) for item in obj], type(obj))
makes(tuple)(lambda obj: TupleValue([fresh(item) for item in obj], type(obj)))
