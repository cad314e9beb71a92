"""Guards: the facts about existing objects that compiled code relies on, as data.

A `Guard` is (kind, source, payload), compared by value; what the kinds compare and how they print is the table of
`csrc/guard_kinds.h`. A `GuardSet` collects them without duplicates, in order of discovery, and `compile_tree` turns
a set into a `_native.GuardTree` that checks it in C, sharing the common parts of the ways to the values.
Neighbours: `guard_kinds.py` (kinds and payloads), `source.py` (the ways), `values/watch.py` (who asks for which),
`csrc/guards.c` (evaluation).
"""

from __future__ import annotations

import types
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from stator import _native
from stator.capture.arguments import parameters
from stator.capture.conditions import ConditionFacts
from stator.capture.guard_kinds import KINDS, STATES, TogetherFacts
from stator.capture.source import (
    AttrSource,
    CellSource,
    ClassAttrSource,
    ClosureSource,
    ConstSource,
    DictKeySource,
    FunctionClosureSource,
    FunctionCodeSource,
    FunctionDefaultSource,
    FunctionGlobalsSource,
    FunctionKwDefaultSource,
    GlobalSource,
    GlobalsSource,
    InstanceDictSource,
    ItemSource,
    LocalSource,
    Source,
    StorageSource,
    TypeSource,
)


class Guard:
    """One fact. `source` is None for kinds about no object (STATE, NOT_ALIASED, …).

    The payload of TENSOR may be given as a live tensor, of MEMBERS, KEYS, NOT_ALIASED and ALIASED as any
    iterable, of CONDITION as a pair (operands, program).
    """

    __slots__ = ("_identity", "kind", "payload", "source")

    def __init__(self, kind: str, source: Source | None = None, payload: Any = None) -> None:
        row = KINDS.get(kind)
        if row is None:
            raise ValueError(f"there is no kind of guard {kind!r}")
        payload = row.payload.make(payload)
        self.kind = kind
        self.source = source
        self.payload = payload
        self._identity = (kind, source, row.payload.key(payload))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Guard) and self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self._identity)

    def __str__(self) -> str:
        return KINDS[self.kind].write(self.source, self.payload)

    def __repr__(self) -> str:
        return f"<{self.kind} {self}>"

    def __reduce__(self) -> Any:
        return Guard, (self.kind, self.source, self.payload)


class GuardSet:
    """Guards without duplicates, in the order in which they were met."""

    __slots__ = ("_guards",)

    def __init__(self, guards: Iterable[Guard] = ()) -> None:
        self._guards = dict.fromkeys(guards)

    def add(self, guard: Guard) -> None:
        """Adds a guard, once."""
        self._guards[guard] = None

    def update(self, guards: Iterable[Guard]) -> None:
        """Adds guards, each once."""
        self._guards.update(dict.fromkeys(guards))

    def __iter__(self) -> Iterator[Guard]:
        return iter(self._guards)

    def __len__(self) -> int:
        return len(self._guards)

    def __str__(self) -> str:
        return "\n".join(self.describe())

    def describe(self) -> list[str]:
        """One line a guard, as Python expressions where that is possible."""
        return [str(guard) for guard in self]


def state_guards() -> list[Guard]:
    """Guards on torch's global state as it is now."""
    return [Guard("STATE", None, (name, state.read())) for name, state in STATES.items() if state.when()]


#: The state that decides which version is wanted, even where all of them are right.
_MODES: Final = frozenset({"grad_mode", "keys_included", "keys_excluded"})


def of_calls(guards: Iterable[Guard]) -> GuardSet:
    """Those that tell calls apart: by what they are given, by variables around the function and by torch's modes.

    They are enough for a version that is the function itself, which is right whenever it runs.
    """
    kept = GuardSet()
    for guard in guards:
        if guard.kind == "STATE":
            wanted = guard.payload[0] in _MODES
        else:
            way = list(guard.source.path()) if guard.source is not None else []
            given = any(isinstance(step, LocalSource | ClosureSource) for step in way)
            wanted = given and not isinstance(guard.source, InstanceDictSource | ClassAttrSource)
        if wanted:
            kept.add(guard)
    return kept


# -- the native tree -----------------------------------------------------------------------------------


#: The slot of a frame that holds the function object that it runs.
FUNCTION: Final = ".function"


class Readable:
    """The fact that a node's value can be reached at all, written when it is told."""

    __slots__ = ("way",)

    def __init__(self, way: Source | str) -> None:
        self.way = way

    def __str__(self) -> str:
        return f"{self.way} can be read"


class Node:
    """A step of the tree while it is built: how its value is reached from its parent's, and what hangs on it."""

    __slots__ = ("accessor", "checks", "children", "key", "register", "way", "weight")

    def __init__(self, accessor: str, key: object, way: Source | str) -> None:
        self.accessor = accessor
        self.key = key
        self.way = way
        self.checks: list[Guard] = []
        self.children: list[Node] = []
        self.register = -1
        self.weight = 0

    def cost(self) -> int:
        """What it costs to check all of it; asked once the tree is complete."""
        if not self.weight:
            own = 1 + sum([KINDS[guard.kind].cost for guard in self.checks])
            self.weight = own + sum([child.cost() for child in self.children])
        return self.weight

    def spec(self) -> tuple[Any, ...]:
        """The form that `_native.GuardTree` takes; what is cheap comes first."""
        checks = tuple(map(check_spec, sorted(self.checks, key=lambda guard: KINDS[guard.kind].cost)))
        return self.accessor, self.key, Readable(self.way), self.register, checks, specs(self.children)


def specs(nodes: list[Node]) -> tuple[Any, ...]:
    """The specifications of sibling nodes, the cheapest first."""
    return tuple(node.spec() for node in sorted(nodes, key=Node.cost))


def check_spec(guard: Guard) -> tuple[str, Any, Guard]:
    """A check in the form that `_native.GuardTree` takes."""
    return guard.kind, KINDS[guard.kind].payload.native(guard.payload), guard


class Roots(NamedTuple):
    """Where the ways of a frame start: its slots by name, and where its globals and cells are.

    A frame of a known function pins its globals and cells. One whose code may belong to many functions
    has the function object in the slot `FUNCTION`, through which they are reached.
    """

    slots: tuple[str, ...]
    globals: dict[str, Any] | None = None
    cells: Mapping[str, types.CellType] = types.MappingProxyType({})
    freevars: tuple[str, ...] = ()

    @classmethod
    def of(cls, function: types.FunctionType) -> Roots:
        """Calls of this function; the slots are its parameters, as `Dispatcher` binds them."""
        code = function.__code__
        cells = dict(zip(code.co_freevars, function.__closure__ or (), strict=True))
        return cls(parameters(code), function.__globals__, cells)

    @classmethod
    def of_code(cls, code: types.CodeType) -> Roots:
        """Frames of any function that has this code: the parameters, then the function object."""
        return cls((*parameters(code), FUNCTION), freevars=code.co_freevars)

    def globals_step(self) -> tuple[Source | None, str, object]:
        """How the globals dict of the frame is reached."""
        if self.globals is None:
            return LocalSource(FUNCTION), "globals", None
        return None, "constant", self.globals

    def closure_step(self, name: str) -> tuple[Source | None, str, object]:
        """How the contents of the cell of a free variable are reached."""
        if name in self.cells:
            return ConstSource(self.cells[name]), "cell", None
        return LocalSource(FUNCTION), "closure", self.freevars.index(name)


class TreeBuilder:
    """Hangs guards on a tree whose nodes follow the sources; equal ways share their nodes."""

    def __init__(self, frame: Roots) -> None:
        self.frame = frame
        self.roots: list[Node] = []
        self.nodes: dict[Source, Node] = {}
        self.registers = 0

    def node(self, source: Source) -> Node:
        """The node whose value is the source's."""
        if isinstance(source, StorageSource):
            return self.node(source.base)
        found = self.nodes.get(source)
        if found is None:
            parent, accessor, key = self.step(source)
            found = self.nodes[source] = Node(accessor, key, source)
            siblings = self.roots if parent is None else self.node(parent).children
            siblings.append(found)
        return found

    def step(self, source: Source) -> tuple[Source | None, str, object]:
        """Where a source starts from, and the accessor and key of its step."""
        base = source.base
        match source:
            case LocalSource(name):
                return None, "slot", self.frame.slots.index(name)
            case ConstSource(value):
                return None, "constant", value
            case GlobalsSource():
                return self.frame.globals_step()
            case GlobalSource(name):
                return GlobalsSource(), "item", name
            case ClosureSource(name):
                return self.frame.closure_step(name)
            case CellSource():
                return base, "cell", None
            case AttrSource(_, name):
                return base, "attribute", name
            case ItemSource(_, key):
                return base, "item", key
            case DictKeySource(_, index):
                return base, "dict_key", index
            case TypeSource():
                return base, "type", None
            case ClassAttrSource(_, name):
                return base, "class_attribute", name
            case InstanceDictSource():
                return base, "instance_dict", None
            case FunctionCodeSource():
                return base, "code", None
            case FunctionGlobalsSource():
                return base, "globals", None
            case FunctionDefaultSource(_, index):
                return base, "default", index
            case FunctionKwDefaultSource(_, name):
                return base, "kwdefault", name
            case FunctionClosureSource(_, index):
                return base, "closure", index
        raise TypeError(f"no guard can be put on {source!r}")

    def grouped(self) -> list[Node]:
        """The roots, those that are pinned objects below one node: they are checked together.

        Cells and the frame's own globals change more often than the rest, and stay apart.
        """
        pinned = Node("constant", None, "what is pinned")
        apart: list[Node] = []
        for root in self.roots:
            alone = root.accessor != "constant" or root.key is self.frame.globals or type(root.key) is types.CellType
            (apart if alone else pinned.children).append(root)
        return [*apart, pinned] if pinned.children else apart

    def register(self, source: Source) -> int:
        """The register in which the value of a source is kept for relations."""
        node = self.node(source)
        if node.register < 0:
            node.register = self.registers
            self.registers += 1
        return node.register

    def relation(self, guard: Guard) -> tuple[str, tuple[Any, ...], Guard]:
        """A relation in the form that `_native.GuardTree` takes: registers in the place of sources."""
        match guard.payload:
            case ConditionFacts(operands, program):
                read = tuple((self.register(source), kind, dim) for source, kind, dim in operands)
                return guard.kind, (read, program), guard
            case TogetherFacts(function, answer, sources):
                return guard.kind, ((function, answer), tuple(map(self.register, sources))), guard
            case tuple(sources):
                return guard.kind, tuple(map(self.register, sources)), guard
            case other:
                assert guard.source is not None
                return guard.kind, (self.register(guard.source), self.register(other)), guard


def compile_tree(guards: Iterable[Guard], frame: Roots) -> _native.GuardTree:
    """The native tree of these guards; the slots that it is checked on are those of `frame`."""
    builder = TreeBuilder(frame)
    state: list[Guard] = []
    relations: list[Guard] = []
    for guard in guards:
        if KINDS[guard.kind].relation:
            relations.append(guard)
        elif guard.source is None:
            state.append(guard)
        else:
            builder.node(guard.source).checks.append(guard)
    related = tuple(map(builder.relation, relations))
    return _native.GuardTree(tuple(map(check_spec, state)), specs(builder.grouped()), related)
