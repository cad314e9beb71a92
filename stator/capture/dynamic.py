"""Which sizes, ints and floats are symbolic, and what of that becomes guards.

A `History` belongs to the versions of one function and remembers the sizes, strides and ints that its captures have
met, by place: what has had two values is symbolic from then on, like what the user marks. `Sizes` is the environment of
one capture: it gives inputs their symbols and, in the end, the guards under which the symbols may take other values.
Invariant: whatever is symbolic is guarded by `guards()`, everything else by its value; so sharing a symbol, or a stride
written in terms of sizes, is only ever a guard that may fail.
Neighbours: `values/python/symbolic.py` (the values), `graph.py` (the nodes), `frames.py`, `sizes/environment.py`.
"""

from __future__ import annotations

import gc
import sys
import weakref
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

import torch

from stator.base import log
from stator.base.errors import MarkedSizeFixed, MarkedSizesDiffer
from stator.base.markers import DYNAMIC, STATIC, WEAK, Changing
from stator.capture.conditions import Operand
from stator.capture.guard_kinds import TensorFacts
from stator.capture.guards import Guard
from stator.capture.source import (
    ConstSource,
    ItemSource,
    LengthSource,
    LocalSource,
    Scope,
    SizeSource,
    Source,
    StorageSource,
    StrideSource,
)
from stator.fake.symbolic import symint
from stator.sizes import Environment, Extent, Size, Symbol, hint, postfix, symbols
from stator.sizes.environment import nowhere
from stator.sizes.real import bits_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from stator.fake.mode import Geometry

#: Sizes that operators treat otherwise than all greater ones.
SPECIAL: Final = (0, 1)

#: Ints beyond this are compared by value: guards compute with 64 bits.
GREATEST: Final = 2**62

#: How many modules at one place are known by identity, and how many that need a version tell that they share none.
MOST_MODULES: Final = 64
MANY_MODULES: Final = 5

#: How many marks a hint names.
NAMED: Final = 3

#: The marks that torch's own functions leave on a tensor.
TORCH_MARKS: Final = ("_dynamo_dynamic_indices", "_dynamo_weak_dynamic_indices", "_dynamo_static_indices")


class History:
    """The sizes, ints and modules that the captures of one function have met, and where they found that it raises."""

    __slots__ = (
        "changed", "fixed", "former", "generic", "inherited", "later", "mode", "modules", "pins", "raised",
        "reconsidered", "refused", "seen", "structural",
    )  # fmt: skip

    def __init__(self, mode: str = "auto", pins: bool = False) -> None:
        #: "always": symbolic at once where possible, "never", or "auto": with the second value.
        self.mode = mode
        #: By place, the values of successive captures.
        self.seen: dict[Source, list[float]] = defaultdict(list)
        #: Places that have had more than one value.
        self.changed: set[Source] = set()
        #: Sizes that places had which have changed since; and the places that were first met with one of these.
        self.former: dict[float, SizeSource] = {}
        self.inherited: set[Source] = set()
        #: Places that stay static because something could not do with a symbol.
        self.refused: set[Source] = set()
        #: Places whose number the last capture has needed, although they change.
        self.fixed: set[Source] = set()
        #: Whether the last version is being made, which is to serve as many calls as it can.
        self.generic = False
        #: Whether a capture has been before this one.
        self.later = False
        #: By place, the modules that calls have had there; and the places where they are known by their structure.
        self.modules: dict[Source, list[weakref.ref[torch.nn.Module]]] = {}
        self.structural: set[Source] = set()
        #: Whether parameters are to be part of the graph, so that modules that stay have versions of their own; and
        #: whether that was decided the other way.
        self.pins = pins
        self.reconsidered = False
        #: By the outermost instruction, exceptions that a capture has found to leave the function; true where the
        #: call then returned.
        self.raised: dict[int, bool] = {}

    def clear(self) -> None:
        """Forgets everything."""
        self.seen.clear()
        self.changed.clear()
        self.former.clear()
        self.inherited.clear()
        self.refused.clear()
        self.fixed.clear()
        self.modules.clear()
        self.structural.clear()
        self.raised.clear()
        self.generic = self.later = self.reconsidered = False

    def review(self, scope: Scope) -> None:
        """Notes what a new call has at the places that are known, so that what has changed is known from its start."""
        self.later = bool(self.seen)
        for place, values in list(self.seen.items()) if self.mode != "never" else ():
            value = reached(place, scope)
            if type(value) is type(values[-1]):
                self.note(place, value)

    def note(self, place: Source, value: float) -> None:
        """A capture has met this value there; nan is nan, 0.0 is not -0.0."""
        values = self.seen[place]
        if values and repr(values[-1]) == repr(value):
            return
        if values:
            if isinstance(place, SizeSource) and values[-1] not in SPECIAL:
                self.former.setdefault(values[-1], place)
            self._change(place, f"was {values[-1]} and is {value}")
        values.append(value)

    def note_size(self, place: SizeSource, size: int) -> None:
        """The size of a tensor that is no parameter.

        What one call computes is often what the next one is given, as a cache is. So of a tensor that was not there
        before, a size that another dim had, which has changed since, is taken to go on changing with it; and so is a
        size of 1 where an object holds the tensor, which the calls before have grown from nothing.
        """
        if self.later and place not in self.seen:
            if (before := self.former.get(size)) is not None:
                self.inherited.add(place)
                self._change(place, f"is {size}, as {before} was")
            elif size == 1 and place.base is not None and not is_argument(place.base):
                self.inherited.add(place)
                self.changed.add(place)
        self.note(place, size)

    def _change(self, place: Source, how: str) -> None:
        if place not in self.changed:
            self.changed.add(place)
            if self.mode != "never":
                log.record(log.RECOMPILE, reason=f"{place} {how}: from now on it is symbolic")

    def by_structure(self, place: Source, module: torch.nn.Module) -> bool:
        """Whether the module at a place is known by its structure: another of its class has been there before."""
        shared = bool(self.structural) and any(step in self.structural for step in place.path())
        if shared and place not in self.modules:
            return True
        met = self.modules.setdefault(place, [])
        earlier = [seen() for seen in met]
        if any(other is module for other in earlier):
            return shared
        met.append(weakref.ref(module))
        if (
            shared
            or not earlier
            or any(len(self.modules.get(step, ())) > 1 for step in place.path() if step is not place)
        ):
            return shared  # where what a module is inside of has changed, that is shared, or nothing
        if self.apart:
            # It is asked for seldom, because looking for who keeps an object takes long.
            asked = len(met) & (len(met) - 1) == 0
            found = len(met) > MOST_MODULES or (asked and forsaken(met[-2]))
        else:
            found = any(other is None or type(other) is type(module) for other in earlier)
        if found:
            log.record(log.RECOMPILE, reason=f"{place} is another module now: it is taken by its structure")
            self.structural.add(place)
        return found

    @property
    def apart(self) -> bool:
        """Whether modules that stay have versions of their own."""
        return self.pins is not self.reconsidered

    def reconsider(self) -> bool:
        """Whether modules that stay are known in the other way from now on: asked at the limit of versions, once.

        Where each has had its own versions they share them, and where those that they share did not serve them, each
        has its own.
        """
        if self.reconsidered or all(len(met) < MANY_MODULES for met in self.modules.values()):
            return False
        self.reconsidered = True
        if self.apart:
            self.structural.difference_update(self.modules)
        return True

    def generalise(self) -> bool:
        """Whether one more version, for all that has changed, may serve the calls to come; asked once."""
        wanted = self.mode != "never" and not self.generic and bool(self.changed - self.refused - self.fixed)
        self.generic = self.generic or wanted
        return wanted

    def advice(self) -> str:
        """What to mark, as the user would write it."""
        changed = [place for place in self.changed if isinstance(place, SizeSource)]
        calls = [f"stator.mark_dynamic({place.base}, {place.dim})" for place in sorted(changed, key=str)]
        return "; ".join(calls[:NAMED])

    def differ(self, first: Source, second: Source) -> bool:
        """Whether two places have been seen with different values, or may well be: in tensors that are new."""
        if (
            first in self.inherited
            and second in self.inherited
            and getattr(first, "dim", 0) != getattr(second, "dim", 0)
        ):
            return True
        return self.seen[first][:-1] != self.seen[second][:-1]


def forsaken(reference: weakref.ref[torch.nn.Module]) -> bool:
    """Whether nothing keeps a module alive but guards, and what is left of a capture that cycles keep."""
    module = reference()
    if module is None:
        return True
    keepers = [keeper for keeper in gc.get_referrers(module) if type(keeper).__module__.startswith("stator.")]
    return sys.getrefcount(module) - 2 <= len(keepers)  # the others: `module`, and the argument


def reached(place: Source, scope: Scope) -> object:
    """What a call has at a place; None where it has no such place, whatever looking for it raises."""
    try:
        return place.resolve(scope)
    except Exception:
        return None


class NotForAllSizes(Exception):
    """Something cannot do with the symbols of a capture: it is repeated with numbers."""

    def __init__(self, sizes: Sizes, why: str) -> None:
        super().__init__(why)
        self.sizes = sizes
        self.why = why


class Marks:
    """What has been said about the dims of a tensor, by stator's functions or torch's."""

    __slots__ = ("dynamic", "static", "weak")

    def __init__(self, tensor: torch.Tensor) -> None:
        own = tensor.__dict__
        self.dynamic: dict[int, Changing] = dict(own.get(DYNAMIC, {}))
        indices, weak, static = (set(own.get(name, ())) for name in TORCH_MARKS)
        self.weak: set[int] = set(own.get(WEAK, ())) | weak
        self.static: set[int] = set(own.get(STATIC, ())) | static
        ranges = {item.dim: (item.min, item.max) for item in own.get("_dynamo_dynamic_range", ())}
        for dim in indices:
            low, high = ranges.get(dim, (None, None))
            self.dynamic.setdefault(dim, Changing(2 if low is None else low, high))


class Sizes(Environment):
    """The environment of one capture."""

    __slots__ = ("_ints", "_named", "_strides", "floats", "graph", "history", "static")

    def __init__(self, history: History | None = None, static: bool = False, known_literals: bool = False) -> None:
        super().__init__()
        self.known_literals = known_literals
        self.history = history or History("never")
        #: Whether everything is a number.
        self.static = static or self.history.mode == "never"
        #: The graph under construction, where symbols have nodes.
        self.graph: Any = None
        # Strides that follow from sizes.
        self._strides: list[tuple[StrideSource, Size]] = []
        #: The symbols that stand for the bits of floats.
        self.floats: set[Symbol] = set()
        # Ints and floats by place.
        self._ints: dict[Source, Symbol] = {}
        # Names that the user marked sizes with → where the first of them is found, what it is, and what is said of it.
        self._named: dict[str, tuple[SizeSource, int, Changing]] = {}

    @property
    def symbolic(self) -> bool:
        """Whether anything is symbolic."""
        return bool(self.places)

    # -- tensors -----------------------------------------------------------------------------------

    def tensor(self, source: Source, tensor: torch.Tensor) -> tuple[Geometry | None, TensorFacts]:
        """The symbolic geometry of an input, None if it is static, and the facts that are to be guarded."""
        facts = TensorFacts.of(tensor)
        sizes = self._sizes(source, tensor)
        strides = self._follow(source, tensor, sizes)
        if not any(isinstance(extent, Size) for extent in (*sizes, *strides)):
            return None, facts
        geometry = [symint(extent, self) for extent in sizes], [symint(extent, self) for extent in strides]
        return geometry, facts._replace(sizes=_numbers(sizes), strides=_numbers(strides))

    def _sizes(self, source: Source, tensor: torch.Tensor) -> list[Extent]:
        marks = Marks(tensor)
        static = isinstance(tensor, torch.nn.Parameter)
        found: list[Extent] = []
        for dim, size in enumerate(tensor.shape):
            place = SizeSource(source, dim)
            (self.history.note if static else self.history.note_size)(place, size)
            found.append(self._size(place, size, marks, dim, static))
        return found

    def _size(self, place: SizeSource, size: int, marks: Marks, dim: int, static: bool) -> Extent:
        history = self.history
        if self.static or dim in marks.static:
            return size
        marked = marks.dynamic.get(dim)
        if marked is None and place in history.refused:
            return size
        if marked is not None:
            return self._marked(place, size, marked)
        if size == 1 and place in history.inherited and not self.static:
            return self.symbol(size, place, 1, shared=False).size
        wanted = place in history.changed or dim in marks.weak or (history.mode == "always" and not static)
        return self.symbol(size, place).size if wanted and size not in SPECIAL else size

    def _marked(self, place: SizeSource, size: int, marked: Changing) -> Extent:
        """A size that the user marked: a symbol of its own, or that of all sizes of its name."""
        low, high, name = marked
        first, value, bounds = self._named.setdefault(name, (place, size, marked)) if name else (place, size, marked)
        if value != size:
            raise MarkedSizesDiffer(first, place, name, f"are {value} and {size}")
        if bounds != marked:
            raise MarkedSizesDiffer(first, place, name, "have two ranges")
        if size < low or (high is not None and size > high) or low == high or size in SPECIAL:
            return size
        if first is place:
            return self.symbol(size, place, low, high, marked=True).size
        found = self._symbol_of(first)
        self.places[found].append(place)
        return found.size

    def partner(self, value: int, place: Any, low: int | None, high: int | None) -> Symbol | None:
        found = super().partner(value, place, low, high)
        first: Any = None if found is None else self.places[found][0]
        return None if first is None or self.history.generic or self.history.differ(first, place) else found

    def _follow(self, source: Source, tensor: torch.Tensor, sizes: list[Extent]) -> list[Extent]:
        """The strides, in terms of the sizes inside of them where they are what a dense tensor has."""
        strides = list(tensor.stride())
        found: list[Extent] = list(strides)
        order = sorted(range(len(strides)), key=lambda dim: (strides[dim], -dim))
        for position, dim in enumerate(order):
            place = StrideSource(source, dim)
            for inner in reversed(order[:position]):
                extent = found[inner] * sizes[inner]
                if hint(extent) == strides[dim]:
                    found[dim] = extent
                    if isinstance(extent, Size):
                        self._strides.append((place, extent))
                    break
            else:
                found[dim] = self._stride(place, strides[dim])
        return found

    def _stride(self, place: StrideSource, stride: int) -> Extent:
        """A stride that follows from nothing."""
        history = self.history
        history.note(place, stride)
        if self.static or place not in history.changed or place in history.refused or stride in SPECIAL:
            return stride
        return self.symbol(stride, place, shared=False).size

    # -- ints --------------------------------------------------------------------------------------

    def number(self, source: Source, value: int) -> Symbol | None:
        """The symbol of an int from outside, or None where it is static."""
        made = self._ints.get(source)
        if made is not None:
            return made
        if isinstance(source, ConstSource) or abs(value) >= GREATEST:
            return None
        history = self.history
        history.note(source, value)
        if self.static or source in history.refused:
            return None
        wanted = history.mode == "always" and value not in SPECIAL and is_argument(source)
        if not wanted and source not in history.changed:
            return None
        made = self._ints[source] = self.symbol(value, source, None, shared=False)
        return made

    def real(self, source: Source, value: float) -> Symbol | None:
        """The symbol of the bits of a float from outside, or None where it is static."""
        made = self._ints.get(source)
        if made is not None:
            return made
        if isinstance(source, ConstSource):
            return None
        history = self.history
        history.note(source, value)
        wanted = source in history.changed or (history.mode == "always" and is_argument(source))
        if self.static or source in history.refused or not wanted:
            return None
        made = self._ints[source] = self.symbol(bits_of(value), source, None, shared=False)
        self.floats.add(made)
        return made

    def changes(self, source: Source, items: tuple[Any, ...]) -> bool:
        """Whether a number in a tuple of literals has had another value: then each item is guarded by itself."""
        if isinstance(source, ConstSource):
            return False
        changed = False
        for index, item in enumerate(items):
            place = ItemSource(source, index)
            if type(item) is tuple:
                changed |= self.changes(place, item)
            elif type(item) is int or type(item) is float:
                self.history.note(place, item)
                changed |= not self.static and place in self.history.changed and place not in self.history.refused
        return changed

    # -- the end -----------------------------------------------------------------------------------

    def guard_list(self) -> Iterator[Guard]:
        """Everything that calls with other sizes have to satisfy."""
        for place, extent in self._strides:
            yield self._condition("==", extent, place)
        for found in self.places.values():
            for other in found[1:]:
                yield self._condition("==", self._symbol_of(found[0]).size, other)  # type: ignore[arg-type]
        for recorded in self.guards():
            op, left, right = recorded.condition
            yield self._condition(op, left, right)

    def _symbol_of(self, place: Any) -> Symbol:
        return next(symbol for symbol, places in self.places.items() if places[0] is place)

    def _condition(self, op: str, left: Extent, right: Extent | Source) -> Guard:
        """A comparison as a guard, in terms of the places where its symbols are found."""
        operands: dict[Any, int] = {}
        for symbol in sorted(symbols(left) | (frozenset() if isinstance(right, Source) else symbols(right)), key=str):
            operands[symbol] = len(operands)
        found = [self.operand(symbol) for symbol in operands]
        if isinstance(right, Source):
            program = (("operand", len(found)), *postfix(left, operands), (op,))
            found.append(operand_of(right))
        else:
            program = (*postfix(left, operands), *postfix(right, operands), (op,))
        return Guard("CONDITION", None, (found, program))

    def operand(self, symbol: Symbol) -> Operand:
        """Where a guard finds the number."""
        place: Any = self.places[symbol][0]
        return Operand(place, "bits") if symbol in self.floats else operand_of(place)

    def fixed_places(self) -> Iterator[Source]:
        """Where the symbols come from that can only be one number in this version."""
        return (place for symbol in self.fixed() for place in self.places[symbol] if isinstance(place, Source))

    def leave(self) -> None:
        """The frame has been run: whoever keeps the environment does not keep the frame and its tensors."""
        self.graph = None
        self.locate = nowhere

    def fixed_mark(self) -> MarkedSizeFixed | None:
        """What to say where the program takes only one number for a size that the user marked."""
        for symbol, recorded in self.demanded().items():
            if symbol in self.marked:
                why = recorded.reason or "an operator depends on it"
                return MarkedSizeFixed(self.places[symbol][0], symbol.hint, why, recorded.location)
        return None

    def refusal(self, why: str) -> MarkedSizeFixed | NotForAllSizes:
        """What to raise where something cannot do with symbols: an error for those that the user marked."""
        for symbol in sorted(self.marked, key=str):
            return MarkedSizeFixed(self.places[symbol][0], symbol.hint, why)
        return NotForAllSizes(self, why)

    def refuse(self) -> None:
        """What is symbolic here is static in further captures."""
        for places in self.places.values():
            self.history.refused.update(places)  # type: ignore[arg-type]


def _numbers(extents: Sequence[Extent]) -> tuple[int | None, ...]:
    """What a TENSOR guard compares: nothing where a size is symbolic."""
    return tuple(extent if isinstance(extent, int) else None for extent in extents)


def operand_of(place: Any) -> Operand:
    """Where a guard finds a symbol's value."""
    match place:
        case SizeSource(base=Source() as base, dim=dim):
            return Operand(base, "size", dim)
        case StrideSource(base=Source() as base, dim=dim):
            return Operand(base, "stride", dim)
        case LengthSource(base=Source() as base):
            return Operand(base, "length")
    return Operand(place, "int")


def is_argument(source: Source) -> bool:
    """Whether an int is an argument of the call, or an item of one; settings are mostly attributes."""
    return all(isinstance(step, LocalSource | ItemSource | StorageSource) for step in source.path())
