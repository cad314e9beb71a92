"""Tuples (with torch.Size, named tuples, torch's return types), lists and deques.

A list with a source is materialised when its items are first needed, under a guard on its length; its items keep
their sources. Changes stay in the value and are written back once, as the whole contents or as what was added.
Invariant: a tuple of constants is a constant. Neighbours: `mapping.py`, `effects.py`.
"""

from __future__ import annotations

import operator
from collections import deque, namedtuple
from typing import TYPE_CHECKING, Any

import torch

from stator.base.errors import GraphBreak
from stator.capture.source import PLAIN, AttrSource, InstanceDictSource, ItemSource, StorageSource
from stator.capture.value import Value
from stator.capture.values import operators, watch
from stator.capture.values.base import MISSING, Object, bind_static, look_up
from stator.capture.values.constant import FALSE, NONE, ConstantValue, boolean
from stator.capture.values.fold import fold, run
from stator.capture.values.iterators import ItemsIterator, IteratorValue, advanced, finished
from stator.capture.values.registry import builds, fresh, makes, wrap
from stator.capture.values.symbolic import product

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from stator.capture.machine import Machine
    from stator.capture.rewrite import Assembler
    from stator.capture.source import Source


#: What every named tuple's class has: the kind of object under the name of a field, and the code of `_replace`.
_named: Any = namedtuple("_named", "item")
FIELD = type(_named.item)
REPLACE = _named._replace.__code__


class SequenceValue(Object):
    """What tuples and lists share."""

    __slots__ = ()

    def values(self, tx: Machine) -> list[Value]:
        """The items, materialised."""
        raise NotImplementedError

    def like(self, items: list[Value]) -> Value:
        """A slice of this, with the same type."""
        raise NotImplementedError

    def truth(self, tx: Machine) -> bool:
        return self.length(tx) > 0

    def length(self, tx: Machine) -> int:
        return len(self.values(tx))

    def unpack(self, tx: Machine) -> list[Value]:
        return list(self.values(tx))

    def contains(self, tx: Machine, item: Value) -> Value:
        return boolean(any(operators.equal(tx, item, candidate) for candidate in self.values(tx)))

    def get_item(self, tx: Machine, key: Value) -> Value:
        items: list[Value] = self.values(tx)
        if not key.is_constant():
            if issubclass(key.python_type(), torch.Tensor):
                raise key.refuse("using its value as an index")
            key = key.get_attr(tx, "__index__").call(tx, (), {})
        index = key.constant()
        if type(index) is slice:
            return self.like(run(tx, operator.getitem, (items, index)))
        try:
            item: Value = items[index]
            return item
        except IndexError:
            tx.raise_exception(IndexError, f"{self.python_type().__name__} index out of range")
        except TypeError:
            names = self.python_type().__name__, type(index).__name__
            tx.raise_roughly(TypeError, f"{names[0]} indices must be integers or slices, not {names[1]}")

    def m_index(self, tx: Machine, item: Value, start: Value = fresh(0), stop: Value | None = None) -> Value:  # noqa: B008
        items = self.values(tx)
        last = len(items) if stop is None else stop.constant()
        for position in range(*slice(start.constant(), last).indices(len(items))):
            if operators.equal(tx, item, items[position]):
                return fresh(position)
        tx.raise_roughly(ValueError, f"{self.python_type().__name__}.index(x): x not in sequence")

    def m_count(self, tx: Machine, item: Value) -> Value:
        return fresh(sum(operators.equal(tx, item, candidate) for candidate in self.values(tx)))

    def compare(self, tx: Machine, op: str, other: Value) -> Value | None:
        if not isinstance(other, SequenceValue) or isinstance(self, TupleValue) is not isinstance(other, TupleValue):
            return None
        ours, theirs = self.values(tx), other.values(tx)
        for left, right in zip(ours, theirs, strict=False):
            if not operators.equal(tx, left, right):
                return boolean(op == "!=") if op in ("==", "!=") else operators.compare(tx, op, left, right)
        return fresh(operators.COMPARE[op](len(ours), len(theirs)))

    def binary(self, tx: Machine, op: str, other: Value) -> Value | None:
        if op == "*" and other.is_constant():
            return self.like(run(tx, operator.mul, (self.values(tx), other.constant())))
        if op == "+" and isinstance(other, SequenceValue) and type(self) is type(other):
            return self.like([*self.values(tx), *other.values(tx)])
        return None

    def binary_reflected(self, tx: Machine, op: str, other: Value) -> Value | None:
        return self.binary(tx, op, other) if op == "*" and other.is_constant() else None


class TupleValue(SequenceValue):
    """A tuple, or an instance of a subclass that is made of nothing but its items."""

    __slots__ = ("cls", "items")
    kind = "a tuple"

    def __init__(self, items: Sequence[Value], cls: type = tuple, source: Source | None = None) -> None:
        self.source = source
        self.items = list(items)
        self.cls = cls

    def python_type(self) -> type:
        return self.cls

    def values(self, tx: Machine) -> list[Value]:
        return self.items

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
        if name == "_fields":
            return fresh(fields)
        return super().get_attr(tx, name)

    def has_own(self, tx: Machine, name: str) -> bool:
        """Whether the class has something of its own under the name: a method, a property, a constant."""
        if self.cls is tuple or self.cls is torch.Size or is_return_type(self.cls):
            return False
        raw = look_up(tx, self.cls, name)
        if raw is MISSING or getattr(raw, "__code__", None) is REPLACE:
            return False
        return raw is not tuple.__dict__.get(name, object.__dict__.get(name, MISSING))

    def m_numel(self, tx: Machine) -> Value:
        """The product of a shape."""
        return product(tx, self.items)

    def m__replace(self, tx: Machine, **changes: Value) -> Value:
        fields = fields_of(self.cls)
        return TupleValue([changes.get(name, item) for name, item in zip(fields, self.items, strict=True)], self.cls)

    def graph_argument(self) -> tuple[Any, Any]:
        pairs = [item.graph_argument() for item in self.items]
        return tuple(node for node, _ in pairs), build_tuple(self.cls, [fake for _, fake in pairs])

    def children(self) -> Iterator[Value]:
        return iter(self.items)

    def m___hash__(self, tx: Machine) -> Value:
        return fold(tx, hash, (TupleValue([operators.hash_of(tx, item) for item in self.items]),))

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


class ListValue(SequenceValue):
    """A list. `real` is the object until its items are first needed; until then, `added` is what it has gained."""

    __slots__ = ("added", "items", "real")
    kind = "a list"

    def __init__(self, items: list[Value] | None, source: Source | None = None, real: list[Any] | None = None) -> None:
        self.source = source
        self.items = items
        self.real = real
        self.added: list[Value] = []

    def python_type(self) -> type:
        return list

    def values(self, tx: Machine) -> list[Value]:
        if self.items is None:
            real = self.real or ()
            watch.length(tx, self.source, len(real))
            assert self.source is not None
            source = self.source
            self.items = []
            self.items.extend(wrap(tx, item, ItemSource(source, index)) for index, item in enumerate(real))
            self.items += self.added
        return self.items

    def length(self, tx: Machine) -> int:
        if self.items is not None:
            return len(self.items)
        real = self.real or ()
        watch.length(tx, self.source, len(real))
        return len(real) + len(self.added)

    def get_item(self, tx: Machine, key: Value) -> Value:
        if self.items is None and key.is_constant() and type(key.constant()) is int:
            index: int = key.constant()
            if -len(self.added) <= index < 0:
                return self.added[index]
        return super().get_item(tx, key)

    def grow(self, tx: Machine, more: list[Value]) -> None:
        """Puts items at the end: where nobody has read the list, it need not have the same length in every call."""
        if self.items is None:
            self.added += more
            tx.effects.change(self)
        else:
            self.changed(tx).extend(more)

    def like(self, items: list[Value]) -> Value:
        return ListValue(items)

    def changed(self, tx: Machine) -> list[Value]:
        """The items, about to be changed."""
        items = self.values(tx)
        if self.source is not None:
            tx.effects.change(self)
        return items

    def snapshot(self) -> Any:
        if self.items is None:
            raise self.refuse("using an unread list as a constant")
        return [item.snapshot() for item in self.items]

    def iterate(self, tx: Machine) -> Value:
        self.values(tx)
        return ListIterator(self)

    def graph_argument(self) -> tuple[Any, Any]:
        if self.items is None:
            raise self.refuse("passing an unread list to a torch function")
        pairs = [item.graph_argument() for item in self.items]
        return [node for node, _ in pairs], [fake for _, fake in pairs]

    # -- changes ---------------------------------------------------------------------------------------

    def set_item(self, tx: Machine, key: Value, value: Value) -> None:
        items = self.changed(tx)
        new: Any = value if type(key.constant()) is not slice else value.unpack(tx)
        run(tx, operator.setitem, (items, key.constant(), new))

    def del_item(self, tx: Machine, key: Value) -> None:
        run(tx, operator.delitem, (self.changed(tx), key.constant()))

    def inplace(self, tx: Machine, op: str, other: Value) -> Value | None:
        if op == "+":
            self.m_extend(tx, other)
            return self
        if op == "*" and other.is_constant():
            items = self.changed(tx)
            items[:] = items * other.constant()
            return self
        return None

    def add_item(self, tx: Machine, item: Value) -> None:
        self.changed(tx).append(item)

    def m_append(self, tx: Machine, item: Value) -> Value:
        self.grow(tx, [item])
        return NONE

    def m_extend(self, tx: Machine, other: Value) -> Value:
        self.grow(tx, other.unpack(tx))
        return NONE

    def m_insert(self, tx: Machine, index: Value, item: Value) -> Value:
        self.changed(tx).insert(index.constant(), item)
        return NONE

    def m_pop(self, tx: Machine, index: Value | None = None) -> Value:
        position = -1 if index is None else index.constant()
        return run(tx, list.pop, (self.changed(tx), position))

    def m_remove(self, tx: Machine, item: Value) -> Value:
        position = self.m_index(tx, item).constant()
        del self.changed(tx)[position]
        return NONE

    def m_clear(self, tx: Machine) -> Value:
        self.changed(tx).clear()
        return NONE

    def m_reverse(self, tx: Machine) -> Value:
        self.changed(tx).reverse()
        return NONE

    def m_copy(self, tx: Machine) -> Value:
        return ListValue(list(self.values(tx)))

    def m_sort(self, tx: Machine, key: Value = NONE, reverse: Value = FALSE) -> Value:
        items = self.changed(tx)
        items[:] = sort(tx, items, key, reverse.truth(tx))
        return NONE

    # -- after capture ---------------------------------------------------------------------------------

    def children(self) -> Iterator[Value]:
        return iter(self.added if self.items is None else self.items)

    def reconstruct(self, out: Assembler) -> None:
        if contains_itself(self):
            out.build("list", 0)
            out.remember(self)
            self.write_back(out)
            return
        for item in self.items or ():
            out.load(item)
        out.build("list", len(self.items or ()))

    def write_back(self, out: Assembler) -> None:
        """Emit the new contents, or what has been added to them."""
        if self.items is None:
            out.call(operator.iadd, self, TupleValue(self.added))
        else:
            out.call(replace_items, self, TupleValue(self.items))
        out.pop()


def contains_itself(value: Value) -> bool:
    """Whether an object made by the frame is reached from itself."""
    seen: set[int] = set()
    waiting = list(value.children())
    while waiting:
        inner = waiting.pop()
        if inner is value:
            return True
        if inner.source is None and id(inner) not in seen:
            seen.add(id(inner))
            waiting.extend(inner.children())
    return False


def replace_items(target: Any, items: tuple[Any, ...]) -> None:
    """Gives a list or a deque new contents."""
    if isinstance(target, list):
        target[:] = items
    else:
        target.clear()
        target.extend(items)


class DequeValue(ListValue):
    """A `collections.deque`."""

    __slots__ = ("limit",)
    kind = "a deque"

    def __init__(
        self, items: list[Value] | None, source: Source | None = None, real: Any = None, limit: int | None = None
    ) -> None:
        super().__init__(items, source, real)
        self.limit = limit

    def python_type(self) -> type:
        return deque

    def like(self, items: list[Value]) -> Value:
        return DequeValue(items, limit=self.limit)

    def grow(self, tx: Machine, more: list[Value]) -> None:
        if self.limit is not None:
            self.values(tx)
        super().grow(tx, more)

    def _trim(self, left: bool) -> None:
        items = self.items
        if self.limit is not None and items is not None and len(items) > self.limit:
            extra = len(items) - self.limit
            del items[slice(self.limit, None) if left else slice(extra)]

    def m_append(self, tx: Machine, item: Value) -> Value:
        super().m_append(tx, item)
        self._trim(left=False)
        return NONE

    def m_appendleft(self, tx: Machine, item: Value) -> Value:
        self.changed(tx).insert(0, item)
        self._trim(left=True)
        return NONE

    def m_extend(self, tx: Machine, other: Value) -> Value:
        super().m_extend(tx, other)
        self._trim(left=False)
        return NONE

    def m_extendleft(self, tx: Machine, other: Value) -> Value:
        for item in other.unpack(tx):
            self.m_appendleft(tx, item)
        return NONE

    def m_popleft(self, tx: Machine) -> Value:
        return self.m_pop(tx, fresh(0))

    def m_rotate(self, tx: Machine, count: Value = fresh(1)) -> Value:  # noqa: B008
        items = self.changed(tx)
        turned = deque(items)
        turned.rotate(count.constant())
        items[:] = turned
        return NONE

    def get_attr(self, tx: Machine, name: str) -> Value:
        return fresh(self.limit) if name == "maxlen" else super().get_attr(tx, name)

    def reconstruct(self, out: Assembler) -> None:
        out.call(deque, TupleValue(self.items or ()), fresh(self.limit))


class ListIterator(IteratorValue):
    """`iter(list)`: sees later changes of the list."""

    __slots__ = ("done", "index", "owner")

    def __init__(self, owner: ListValue) -> None:
        super().__init__()
        self.owner = owner
        self.index = 0
        #: Exhausted for good, even if the list grows afterwards.
        self.done = False

    def python_type(self) -> type:
        return type(iter([]))

    def next_item(self, tx: Machine) -> Value | None:
        items = self.owner.values(tx)
        if self.done or self.index >= len(items):
            self.done = True
            return None
        self.index += 1
        return items[self.index - 1]

    def children(self) -> Iterator[Value]:
        yield self.owner

    def reconstruct(self, out: Assembler) -> None:
        if self.done:
            out.call(finished)
        else:
            out.call(advanced, self.owner, fresh(self.index))


class SortKey:
    """Orders values as the program's comparison would."""

    __slots__ = ("tx", "value")

    def __init__(self, tx: Machine, value: Value) -> None:
        self.tx = tx
        self.value = value

    def __lt__(self, other: SortKey) -> bool:
        return operators.compare(self.tx, "<", self.value, other.value).truth(self.tx)


def sort(tx: Machine, items: Sequence[Value], key: Value, reverse: bool) -> list[Value]:
    """`sorted(items, key=key, reverse=reverse)`."""
    plain = key.is_none()
    keys = [item if plain else key.call(tx, (item,), {}) for item in items]
    order = sorted(range(len(items)), key=lambda index: SortKey(tx, keys[index]), reverse=reverse)
    return [items[index] for index in order]


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
    """Tuples, sizes and named tuples are read whole; plain tuples of literals are compared as one."""
    if type(obj) is tuple and is_literal(obj):
        watch.equals(tx, source, obj)
        return TupleValue([fresh(item) for item in obj], tuple, source)
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
    return TupleValue(items, cls, source)


@builds(list, exact=True)
def build_list(tx: Machine, obj: list[Any], source: Source) -> Value:
    """A list is read when used."""
    watch.type_of(tx, source, type(obj))
    return ListValue(None, source, obj)


@builds(deque, exact=True)
def build_deque(tx: Machine, obj: deque[Any], source: Source) -> Value:
    """A deque is read when used."""
    watch.type_of(tx, source, type(obj))
    watch.equals(tx, AttrSource(source, "maxlen"), obj.maxlen)
    return DequeValue(None, source, obj, obj.maxlen)


makes(tuple)(lambda obj: TupleValue([fresh(item) for item in obj], type(obj)))
makes(list)(lambda obj: ListValue([fresh(item) for item in obj]))
makes(deque)(lambda obj: DequeValue([fresh(item) for item in obj], limit=obj.maxlen))
