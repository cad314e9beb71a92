"""Dicts: plain, ordered and default.

Keys are compared at capture: a constant key is its Python object, any other key is its value (one
object has one value, so identity decides, as it does for modules and functions).
A dict with a source is read entry by entry: a present key guards its value, a missing one its absence,
and only iteration, len and equality guard all the keys. Changes are written back once, as a whole.
Neighbours: `dict_views.py`, `sets.py` (key naming).
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from dataclasses import InitVar, field
from typing import TYPE_CHECKING, Any

from stator.capture.fields import value_class
from stator.capture.source import AttrSource, DictKeySource, ItemSource
from stator.capture.value import Value
from stator.capture.values import mirror, watch
from stator.capture.values.base import Builtin
from stator.capture.values.instances import fill_attributes
from stator.capture.values.lookup import MISSING, look_up
from stator.capture.values.methods import COMPARE
from stator.capture.values.python import operators
from stator.capture.values.python.constant import FALSE, NONE, TRUE, ConstantValue, boolean
from stator.capture.values.python.containers.dict_views import DictIterator, DictViewValue
from stator.capture.values.python.containers.sequence import TupleValue
from stator.capture.values.python.containers.sets import hash_key
from stator.capture.values.python.symbolic import SymbolicValue
from stator.capture.values.registry import LITERALS, builds, fresh, makes, wrap

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from stator.capture.machine import Machine
    from stator.capture.rewrite import Assembler
    from stator.capture.source import Source


#: In a dict of how many keys a symbolic int is looked for without its number.
MOST_KEYS = 64


class Entry:
    """One entry: its key, and its value or, until that is needed, the real objects of both."""

    __slots__ = ("key", "name", "original", "real", "value")

    def __init__(self, key: Value, value: Value | None, name: Any = None, real: Any = None) -> None:
        self.key = key
        self.value = value
        self.name = name
        self.real = real
        #: The value that the real dict still has.
        self.original: Value | None = None


@value_class
class DictValue(Builtin):
    """A dict of the exact class `cls` (a subclass of users is a `UserObjectValue` that holds one of these)."""

    kind = "a dict"

    given: InitVar[Iterable[tuple[Any, Value, Value]] | None] = ()
    cls: type = dict
    real: dict[Any, Any] | None = None
    factory: Value | None = None
    watched: bool = field(init=False)
    #: Changes of a dict with a source: deleted keys, assigned names in order, or everything anew.
    deleted: dict[Any, Value] = field(init=False, default_factory=dict)
    written: dict[Any, None] = field(init=False, default_factory=dict)
    rewritten: bool = field(init=False, default=False)
    #: What the frame has set on a dict of its own making that can have attributes.
    attributes: dict[str, Value] = field(init=False, default_factory=dict)
    #: None until somebody looks into a real one.
    _entries: dict[Any, Entry] | None = field(init=False, default=None)

    def __post_init__(self, given: Iterable[tuple[Any, Value, Value]] | None) -> None:
        self.watched = self.source is None
        if self.real is None:
            self._entries = {name: Entry(key, value) for name, key, value in given or ()}

    def python_type(self) -> type:
        return self.cls

    # -- entries ---------------------------------------------------------------------------------------

    def entries(self, tx: Machine) -> dict[Any, Entry]:
        """All entries, in order; their values may still be real objects."""
        if self._entries is None:
            entries: dict[Any, Entry] = {}
            for index, (key, real) in enumerate((self.real or {}).items()):
                if type(key) in LITERALS:
                    entries[key] = Entry(ConstantValue(key), None, key, real)
                    continue
                assert self.source is not None
                name = wrap(tx, key, DictKeySource(self.source, index))
                entries[hash_key(tx, name, kept=True)] = Entry(name, None, key, real)
            self._entries = entries
        return self._entries

    def all_entries(self, tx: Machine) -> dict[Any, Entry]:
        """All entries, with the keys guarded: for anything that depends on which keys there are."""
        entries = self.entries(tx)
        if not self.watched:
            self.watched = True
            watch.keys(tx, self.source, tuple(self.real or ()))
        return entries

    def value_of(self, tx: Machine, entry: Entry) -> Value:
        """The value of an entry, wrapped on first use."""
        if entry.value is None:
            assert self.source is not None
            entry.value = entry.original = wrap(tx, entry.real, ItemSource(self.source, entry.name))
        return entry.value

    def find(self, tx: Machine, key: Value) -> Value | None:
        """The value under `key`, with a guard on its absence otherwise."""
        entries = self.entries(tx)
        if key.is_symbolic() and self._lacks(tx, key):
            return None
        name = hash_key(tx, key)
        entry = entries.get(name)
        if entry is not None:
            return self.value_of(tx, entry)
        if not self.watched and name not in self.deleted:
            if key.is_constant():
                watch.absent(tx, self.source, name)
            else:
                self.all_entries(tx)
        return None

    def _lacks(self, tx: Machine, key: Value) -> bool:
        """Whether a symbolic int is none of the keys, which guards say of each: its number is not needed then."""
        if not isinstance(key, SymbolicValue) or len(self.entries(tx)) > MOST_KEYS:
            return False
        return not any(key.is_same(fresh(name)) for name in self.all_entries(tx) if type(name) is int)

    def rewriting(self, tx: Machine) -> dict[Any, Entry]:
        """The entries, about to be changed as a whole (order included)."""
        entries = self.all_entries(tx)
        if self.source is not None:
            tx.effects.change(self)
            self.rewritten = True
            for entry in entries.values():
                self.value_of(tx, entry)
        return entries

    def put(self, tx: Machine, key: Value, value: Value) -> None:
        """`self[key] = value`, as `dict.__setitem__`."""
        entries = self.entries(tx)
        name = hash_key(tx, key)
        entry = entries.get(name)
        if entry is None:
            entries[name] = Entry(key, value)
        else:
            entry.value = value
        if self.source is not None:
            tx.effects.change(self)
            self.written.setdefault(name)

    def drop(self, tx: Machine, key: Value) -> Value | None:
        """Removes a key; its value, or None when there is no such key."""
        found = self.find(tx, key)
        if found is None:
            return None
        name = hash_key(tx, key)
        del self.entries(tx)[name]
        if self.source is not None:
            tx.effects.change(self)
            self.written.pop(name, None)
            self.deleted[name] = key
        return found

    # -- operations ------------------------------------------------------------------------------------

    def truth(self, tx: Machine) -> bool:
        return self.length(tx) > 0

    def length(self, tx: Machine) -> int:
        if self.watched or self in tx.effects.changed:
            return len(self.all_entries(tx))
        watch.length(tx, self.source, len(self.real or ()))
        return len(self.real or ())

    def contains(self, tx: Machine, item: Value) -> Value:
        entries = self.entries(tx)
        if item.is_symbolic() and self._lacks(tx, item):
            return FALSE
        name = hash_key(tx, item)
        if name in entries:
            if not item.is_constant():
                self.all_entries(tx)
            elif not self.watched and name not in self.written:
                watch.present(tx, self.source, name)
            return TRUE
        return boolean(self.find(tx, item) is not None)

    def iterate(self, tx: Machine) -> Value:
        return DictIterator.over(tx, self, "keys")

    def get_item(self, tx: Machine, key: Value) -> Value:
        found = self.find(tx, key)
        if found is not None:
            return found
        if self.factory is not None:
            value = self.factory.call(tx, (), {})
            self.put(tx, key, value)
            return value
        tx.raise_exception(KeyError, key)

    def set_item(self, tx: Machine, key: Value, value: Value) -> None:
        self.put(tx, key, value)

    def del_item(self, tx: Machine, key: Value) -> None:
        if self.drop(tx, key) is None:
            tx.raise_exception(KeyError, key)

    def compare(self, tx: Machine, op: str, other: Value) -> Value | None:
        if op not in ("==", "!=") or not isinstance(other, DictValue):
            return None
        if self.cls is OrderedDict or other.cls is OrderedDict:
            return mirror.apply(tx, COMPARE[op], (self, other))
        ours, theirs = self.all_entries(tx), other.all_entries(tx)
        same = ours.keys() == theirs.keys() and all(
            operators.equal(tx, self.value_of(tx, entry), other.value_of(tx, theirs[name]))
            for name, entry in ours.items()
        )
        return boolean(same is (op == "=="))

    def binary(self, tx: Machine, op: str, other: Value) -> Value | None:
        if op != "|" or not isinstance(getattr(other, "storage", other), DictValue):
            return None
        return mirror.apply(tx, operators.BINARY[op], (self, other))

    def inplace(self, tx: Machine, op: str, other: Value) -> Value | None:
        if op != "|":
            return None
        if isinstance(other, DictValue):
            self.m_update(tx, other)
            return self
        return mirror.apply(tx, operators.INPLACE[op], (self, other))

    # -- while Python's own code works on it -----------------------------------------------------------

    def mirrored(self, seen: mirror.Mirror) -> Any:
        made: dict[Any, Any] = self.cls()
        self.fill(seen, made)
        return made

    def fill(self, seen: mirror.Mirror, made: Any) -> None:
        """Mirrors the contents."""
        seen.tie(self, made)
        if isinstance(made, defaultdict):
            made.default_factory = None if self.factory is None else seen.python(self.factory)
        put = OrderedDict.__setitem__ if isinstance(made, OrderedDict) else dict.__setitem__
        for key, value in self.pairs(seen.tx):
            put(made, seen.python(key), seen.python(value))
        for name, value in self.attributes.items():
            setattr(made, name, seen.python(value))
        seen.watch(self, made)

    def held(self, tx: Machine) -> list[Value]:
        return [part for pair in self.pairs(tx) for part in pair]

    def take_back(self, seen: mirror.Mirror, obj: Any) -> None:
        items = OrderedDict.items(obj) if isinstance(obj, OrderedDict) else dict.items(obj)
        pairs = [(seen.value(key), seen.value(item)) for key, item in items]
        if isinstance(obj, defaultdict):
            self.set_factory(None if obj.default_factory is None else seen.value(obj.default_factory))
        entries = self.rewriting(seen.tx)
        entries.clear()
        for key, value in pairs:
            entries[hash_key(seen.tx, key)] = Entry(key, value)

    def set_factory(self, factory: Value | None) -> None:
        """What makes missing items from now on."""
        if self.source is not None and factory is not self.factory:
            raise self.refuse("changing its default_factory")
        self.factory = factory

    # -- methods ---------------------------------------------------------------------------------------

    def m_get(self, tx: Machine, key: Value, default: Value = NONE, /) -> Value:
        found = self.find(tx, key)
        return default if found is None else found

    def m_setdefault(self, tx: Machine, key: Value, default: Value = NONE, /) -> Value:
        found = self.find(tx, key)
        if found is None:
            self.put(tx, key, default)
            return default
        return found

    def m_pop(self, tx: Machine, key: Value, default: Value | None = None, /) -> Value:
        found = self.drop(tx, key)
        if found is not None:
            return found
        if default is None:
            tx.raise_exception(KeyError, key)
        return default

    def m_clear(self, tx: Machine, /) -> Value:
        self.rewriting(tx).clear()
        return NONE

    def m_copy(self, tx: Machine, /) -> DictValue:
        return DictValue(self.triples(tx), self.cls, factory=self.factory)

    def m_update(self, tx: Machine, other: Value | None = None, /, **named: Value) -> Value | None:
        if other is not None and not isinstance(other, DictValue) and self.real is None:
            return None
        for key, value in pairs_of(tx, other) if other is not None else ():
            self.put(tx, key, value)
        for name, value in named.items():
            self.put(tx, ConstantValue(name), value)
        return NONE

    def m_keys(self, tx: Machine, /) -> Value:
        return DictViewValue(self, "keys")

    def m_values(self, tx: Machine, /) -> Value:
        return DictViewValue(self, "values")

    def m_items(self, tx: Machine, /) -> Value:
        return DictViewValue(self, "items")

    def m___reversed__(self, tx: Machine, /) -> Value:
        return DictIterator.over(tx, self, "keys", backwards=True)

    def m___missing__(self, tx: Machine, key: Value, /) -> Value:
        if self.factory is None:
            tx.raise_exception(KeyError, key)
        return self.get_item(tx, key)

    def get_attr(self, tx: Machine, name: str) -> Value:
        if name == "default_factory" and self.cls is defaultdict:
            return self.factory or NONE
        if name in self.attributes:
            return self.attributes[name]
        if self.cls is OrderedDict and self.source is not None and not hasattr(self.cls, name):
            if name in vars(self.real):
                return wrap(tx, vars(self.real)[name], AttrSource(self.source, name))
            watch.no_instance_attribute(tx, self.source, name)
        return super().get_attr(tx, name)

    def set_attr(self, tx: Machine, name: str, value: Value) -> None:
        if name == "default_factory" and self.cls is defaultdict:
            self.set_factory(None if value.is_none() else value)
        elif self.cls is not OrderedDict or self.source is not None or hasattr(self.cls, name):
            super().set_attr(tx, name, value)
        else:
            self.attributes[name] = value

    # -- whole contents --------------------------------------------------------------------------------

    def triples(self, tx: Machine) -> list[tuple[Any, Value, Value]]:
        """(name, key, value) of every entry."""
        return [(name, entry.key, self.value_of(tx, entry)) for name, entry in self.all_entries(tx).items()]

    def pairs(self, tx: Machine) -> list[tuple[Value, Value]]:
        """(key, value) of every entry."""
        return [(key, value) for _, key, value in self.triples(tx)]

    def entries_now(self) -> list[Entry]:
        """The entries of a dict that the frame has made, or that was read whole."""
        return list((self._entries or {}).values())

    def _read(self) -> list[tuple[Value, Value]]:
        entries = (self._entries or {}).values()
        if self._entries is None or any(entry.value is None for entry in entries):
            raise self.refuse("using an unread dict as a whole")
        return [(entry.key, entry.value) for entry in entries if entry.value is not None]

    def snapshot(self) -> Any:
        if self.cls is not dict:
            raise self.refuse("use as a constant")
        return {key.snapshot(): value.snapshot() for key, value in self._read()}

    def graph_argument(self) -> tuple[Any, Any]:
        triples = [(key.constant(), *value.graph_argument()) for key, value in self._read()]
        return {key: node for key, node, _ in triples}, {key: fake for key, _, fake in triples}

    def children(self) -> Iterator[Value]:
        for entry in (self._entries or {}).values():
            yield entry.key
            if entry.value is not None:
                yield entry.value
        yield from self.attributes.values()

    def reconstruct(self, out: Assembler) -> None:
        pairs = self._read()
        if self.cls is dict:
            for key, value in pairs:
                out.load(key)
                out.load(value)
            out.build("map", len(pairs))
            return
        contents = TupleValue([TupleValue([*pair]) for pair in pairs])
        if self.cls is defaultdict:
            out.call(defaultdict, self.factory or NONE, contents)
        else:
            out.call(self.cls, contents)
        if self.attributes:
            out.remember(self)
            names, values = fresh(tuple(self.attributes)), TupleValue(list(self.attributes.values()))
            out.call(fill_attributes, self, names, values)
            out.pop()

    def write_back(self, out: Assembler) -> None:
        """Emit what has changed: single entries where order allows, else the whole contents."""
        if self.rewritten:
            out.call(replace_entries, self, TupleValue([TupleValue([*pair]) for pair in self._read()]))
            out.pop()
            return
        kind = OrderedDict if issubclass(self.cls, OrderedDict) else dict
        for name, key in self.deleted.items():
            if name not in self.written or (self.real is not None and name in self.real):
                out.call(kind.pop, self, key, NONE)
                out.pop()
        for name in self.written:
            entry = (self._entries or {}).get(name)
            if (
                entry is not None
                and entry.value is not None
                and (entry.value is not entry.original or name in self.deleted)
            ):
                out.call(kind.__setitem__, self, entry.key, entry.value)
                out.pop()


def replace_entries(target: dict[Any, Any], pairs: tuple[tuple[Any, Any], ...]) -> None:
    """Gives a dict new contents, by the plain methods whatever its class overrides."""
    kind = OrderedDict if isinstance(target, OrderedDict) else dict
    kind.clear(target)
    for key, value in pairs:
        kind.__setitem__(target, key, value)


def pairs_of(tx: Machine, other: Value) -> list[tuple[Value, Value]]:
    """The (key, value) pairs that `dict(other)` would take."""
    inner = getattr(other, "storage", other)
    if isinstance(inner, DictValue):
        return inner.pairs(tx)
    if look_up(tx, other.python_type(), "keys") is not MISSING:
        keys = other.get_attr(tx, "keys").call(tx, (), {}).unpack(tx)
        return [(key, other.get_item(tx, key)) for key in keys]
    pairs = []
    for item in other.unpack(tx):
        parts = item.unpack(tx)
        if len(parts) != 2:
            tx.raise_roughly(ValueError, f"dictionary update sequence element has length {len(parts)}; 2 is required")
        pairs.append((parts[0], parts[1]))
    return pairs


def dict_of(tx: Machine, pairs: Iterable[tuple[Value, Value]], cls: type = dict) -> DictValue:
    """A new dict; later pairs win, first positions stay."""
    made = DictValue((), cls)
    for key, value in pairs:
        made.put(tx, key, value)
    return made


def named_dict(named: dict[str, Value]) -> DictValue:
    """A new dict with string keys: `**kwargs`."""
    return DictValue([(name, ConstantValue(name), value) for name, value in named.items()])


# -- from objects --------------------------------------------------------------------------------------


@builds(dict, OrderedDict, exact=True)
def build_dict(tx: Machine, obj: dict[Any, Any], source: Source) -> Value:
    """A dict is read when used."""
    watch.type_of(tx, source, type(obj))
    return DictValue(None, type(obj), source=source, real=obj)


@builds(defaultdict, exact=True)
def build_defaultdict(tx: Machine, obj: defaultdict[Any, Any], source: Source) -> Value:
    """The factory is a fact of the object, too."""
    watch.type_of(tx, source, type(obj))
    return DictValue(None, defaultdict, source=source, real=obj, factory=factory_of(tx, obj, source))


def factory_of(tx: Machine, obj: defaultdict[Any, Any], source: Source) -> Value | None:
    """What makes the missing items of a defaultdict."""
    if obj.default_factory is None:
        watch.equals(tx, AttrSource(source, "default_factory"), None)
        return None
    return wrap(tx, obj.default_factory, AttrSource(source, "default_factory"))


makes(dict)(lambda obj: DictValue([(key, fresh(key), fresh(value)) for key, value in obj.items()], type(obj)))


def returned_dict(seen: mirror.Mirror, obj: Any) -> Value:
    """A new dict; it may hold itself."""
    factory = getattr(obj, "default_factory", None)
    made = DictValue((), type(obj), factory=None if factory is None else seen.value(factory))
    seen.tie(made, obj)
    for key, item in obj.items():
        made.put(seen.tx, seen.value(key), seen.value(item))
    return made


for _cls in (dict, OrderedDict, defaultdict):
    mirror.RETURNED[_cls] = returned_dict
