"""Views of dicts (`d.keys()`, `d.values()`, `d.items()`) and iterators over them.

They see what happens to the dict afterwards; an iterator notices a changed size, as Python's does.
Neighbours: `mapping.py` (the dicts), `sets.py` (what keys and items are like).
"""

from __future__ import annotations

import gc
from collections import OrderedDict, defaultdict
from dataclasses import field
from typing import TYPE_CHECKING, Any

from stator.capture.fields import part, value_class
from stator.capture.values import mirror
from stator.capture.values.base import Builtin
from stator.capture.values.lookup import MISSING, static_attribute
from stator.capture.values.methods import COMPARE, type_name
from stator.capture.values.python import operators
from stator.capture.values.python.containers.sequence import TupleValue
from stator.capture.values.python.containers.sets import COMBINING, SetValue
from stator.capture.values.python.iterators import IteratorValue, advanced, finished
from stator.capture.values.registry import fresh

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from stator.capture.machine import Machine
    from stator.capture.rewrite import Assembler
    from stator.capture.value import Value
    from stator.capture.values.python.containers.mapping import DictValue, Entry


@value_class
class DictIterator(IteratorValue):
    """Over keys, values or items; notices a changed size as Python does."""

    owner: DictValue = part()
    what: str
    #: The entries when the iteration began, in its order.
    expected: list[tuple[Any, Entry]]
    backwards: bool = False
    #: How many it has given; one more when it has ended.
    position: int = field(init=False, default=0)

    @classmethod
    def over(cls, tx: Machine, owner: DictValue, what: str, backwards: bool = False) -> DictIterator:
        """At the beginning, or at the end."""
        entries = list(owner.all_entries(tx).items())
        return cls(owner, what, entries[::-1] if backwards else entries, backwards)

    def python_type(self) -> type:
        return type((reversed if self.backwards else iter)(getattr(self.owner.cls(), self.what)()))

    def next_item(self, tx: Machine) -> Value | None:
        entries, expected = self.owner.entries(tx), self.expected
        if self.position > len(expected):
            return None
        if len(entries) != len(expected):
            kind = "OrderedDict" if self.owner.cls is OrderedDict else "dictionary"
            if kind == "OrderedDict" and self.position == len(expected):
                raise self.refuse("an OrderedDict that has changed at its end")
            tx.raise_exception(
                RuntimeError, f"{kind} {'mutated' if kind == 'OrderedDict' else 'changed size'} during iteration"
            )
        self.position += 1
        if self.position > len(expected):
            self._want(entries, expected)
            return None
        name, entry = expected[self.position - 1]
        self._want(entries, [(name, entry)])
        return pick(tx, self.owner, entry, self.what)

    def m___length_hint__(self, tx: Machine, /) -> Value:
        same = len(self.owner.entries(tx)) == len(self.expected)
        return fresh(max(0, len(self.expected) - self.position) if same else 0)

    def get_attr(self, tx: Machine, name: str) -> Value:
        if static_attribute(self.python_type(), name) is MISSING:
            tx.raise_exception(AttributeError, f"{type_name(self.python_type())!r} object has no attribute {name!r}")
        return super().get_attr(tx, name)

    def _want(self, entries: dict[Any, Entry], expected: Iterable[tuple[Any, Entry]]) -> None:
        if any(entries.get(name) is not entry for name, entry in expected):
            raise self.refuse("a dict whose keys have changed meanwhile")

    def reconstruct(self, out: Assembler) -> None:
        if self.position > len(self.expected):
            out.call(finished)
        else:
            assert self.owner._entries is not None
            if len(self.owner._entries) != len(self.expected):
                raise self.refuse("a dict whose size has changed meanwhile")
            self._want(self.owner._entries, self.expected)
            out.call(_advanced_view, self.owner, fresh(self.what), fresh(self.position), fresh(self.backwards))


def _advanced_view(owner: dict[Any, Any], what: str, count: int, backwards: bool) -> Iterator[Any]:
    view = owner if what == "keys" else getattr(owner, what)()
    return advanced(reversed(view) if backwards else view, count)


def pick(tx: Machine, owner: DictValue, entry: Entry, what: str) -> Value:
    """What a view gives for an entry."""
    if what == "keys":
        return entry.key
    value = owner.value_of(tx, entry)
    return value if what == "values" else TupleValue([entry.key, value])


@value_class
class DictViewValue(Builtin):
    """`d.keys()`, `d.values()`, `d.items()`."""

    kind = "a dict view"

    owner: DictValue = part()
    what: str

    def python_type(self) -> type:
        return type(getattr(self.owner.cls(), self.what)())

    def truth(self, tx: Machine) -> bool:
        return self.length(tx) > 0

    def length(self, tx: Machine) -> int:
        return self.owner.length(tx)

    def iterate(self, tx: Machine) -> Value:
        return DictIterator.over(tx, self.owner, self.what)

    def contains(self, tx: Machine, item: Value) -> Value:
        return self.owner.contains(tx, item) if self.what == "keys" else super().contains(tx, item)

    def m___reversed__(self, tx: Machine, /) -> Value:
        return DictIterator.over(tx, self.owner, self.what, backwards=True)

    def mirrored(self, seen: mirror.Mirror) -> Any:
        return getattr(self.owner.cls, self.what)(seen.python(self.owner))

    def binary(self, tx: Machine, op: str, other: Value) -> Value | None:
        if op not in COMBINING or self.what == "values":
            return None
        return mirror.apply(tx, operators.BINARY[op], (self, other))

    def binary_reflected(self, tx: Machine, op: str, other: Value) -> Value | None:
        if op not in COMBINING or self.what == "values":
            return None
        return mirror.apply(tx, operators.BINARY[op], (other, self))

    def compare(self, tx: Machine, op: str, other: Value) -> Value | None:
        if self.what == "values" or not isinstance(other, DictViewValue | SetValue):
            return None
        return mirror.apply(tx, COMPARE[op], (self, other))

    def reconstruct(self, out: Assembler) -> None:
        out.call(getattr(self.owner.cls, self.what), self.owner)


def returned_view(what: str) -> Callable[[mirror.Mirror, Any], Value]:
    """A new view of a dict."""

    def make(seen: mirror.Mirror, obj: Any) -> Value:
        owner = seen.value(next(item for item in gc.get_referents(obj) if isinstance(item, dict)))
        inner: Any = getattr(owner, "storage", owner)
        return DictViewValue(inner, what)

    return make


for _cls in (dict, OrderedDict, defaultdict):
    for _what in ("keys", "values", "items"):
        mirror.RETURNED[type(getattr(_cls(), _what)())] = returned_view(_what)
