"""Guards: the facts about existing objects that compiled code relies on, as data.

A `Guard` is (kind, source, payload), compared by value; what the kinds mean and how they print is the table
`KINDS`. A `GuardSet` collects them without duplicates, in order of discovery, and `compile_tree` turns
a set into a `_native.GuardTree` that checks it in C, sharing the common parts of the ways to the values.
Invariant: a guard keeps no user tensor alive; its payload holds only the tensor's facts.
Neighbours: `source.py` (the ways), `values/watch.py` (who asks for which), `csrc/guards.c` (evaluation).
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import torch
from torch.utils._device import DeviceContext

from stator import _native
from stator.capture.arguments import parameters
from stator.capture.conditions import ConditionFacts
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
    constant_key,
)

#: Learn where torch keeps metadata now, not in the middle of a call, where modes may be active.
TENSOR_ACCESS: Final = _native.tensor_access()

# -- facts ---------------------------------------------------------------------------------------------


class TensorFacts(NamedTuple):
    """What a TENSOR guard compares; a size or stride of None may be any. Layout, conjugation and
    inference are among the dispatch keys."""

    cls: type
    dtype: torch.dtype
    device: torch.device
    sizes: tuple[int | None, ...]
    strides: tuple[int | None, ...]
    requires_grad: bool
    keys: int
    #: How the native reader numbers dtype and device.
    numbers: tuple[int, int]

    @classmethod
    def of(cls, tensor: torch.Tensor) -> TensorFacts:
        """The facts of a live tensor."""
        sizes, strides, dtype, device, keys, requires_grad = _native.tensor_facts(tensor)
        return cls(type(tensor), tensor.dtype, tensor.device, sizes, strides, requires_grad, keys, (dtype, device))

    def __str__(self) -> str:
        shape = ", ".join("*" if size is None else str(size) for size in self.sizes)
        strides = ", ".join("*" if stride is None else str(stride) for stride in self.strides)
        name = "" if self.cls is torch.Tensor else f"{self.cls.__name__} "
        grad = " requires_grad" if self.requires_grad else ""
        return f"{name}{str(self.dtype).removeprefix('torch.')}[{shape}] strides ({strides}) {self.device}{grad}"


class State(NamedTuple):
    """One piece of torch's global state that compiled code depends on."""

    read: Callable[[], Any]
    text: str


def included_keys() -> int:
    """Dispatch keys that this thread adds: transforms, dispatch modes, inference mode."""
    return int(torch._C._dispatch_tls_local_include_set().raw_repr())


def excluded_keys() -> int:
    """Dispatch keys that this thread leaves out: autocast unless it is on, autograd in inference mode."""
    return int(torch._C._dispatch_tls_local_exclude_set().raw_repr())


#: Global state by name; `state_guards` guards all of it, as it is while capturing. The native reader may know the
#: same names.
STATES: Final[dict[str, State]] = {
    "grad_mode": State(torch.is_grad_enabled, "torch.is_grad_enabled()"),
    "keys_included": State(included_keys, "dispatch keys of modes and transforms"),
    "keys_excluded": State(excluded_keys, "dispatch keys left out (autocast, inference mode)"),
    "function_modes": State(torch._C._len_torch_function_stack, "len(torch function modes)"),
    "default_dtype": State(torch.get_default_dtype, "torch.get_default_dtype()"),
    "deterministic": State(torch._C._get_deterministic_algorithms, "torch.are_deterministic_algorithms_enabled()"),
}

#: Read in addition while autocast is on: what it does per device.
AUTOCAST_DEVICES: Final = ("cpu", "cuda")

# -- kinds ---------------------------------------------------------------------------------------------


class Kind(NamedTuple):
    """A kind of guard: how dear its check is (for the order), what it means, how it prints."""

    cost: int
    meaning: str
    write: Callable[[str, Any], str]


def _name(value: object) -> str:
    """A short text for an object that is meant by identity."""
    return str(ConstSource(value))


def _sequence(items: Iterable[object]) -> str:
    return ", ".join(repr(item) if isinstance(item, (str, int, float, bytes)) else _name(item) for item in items)


def _write_code(source: str, code: types.CodeType) -> str:
    return f"{source}.__code__ is <code of {code.co_qualname}, line {code.co_firstlineno}>"


def _write_call(source: str, payload: tuple[Any, Any]) -> str:
    function, expected = payload
    return f"{_name(function)}({source}) == {expected!r}"


KINDS: Final[dict[str, Kind]] = {
    "TYPE": Kind(0, "the exact type", lambda s, p: f"type({s}) is {_name(p)}"),
    "ID": Kind(0, "the very object", lambda s, p: f"{s} is {_name(p)}"),
    "EQUALS": Kind(1, "type and value of a constant; nan is nan, 0.0 is not -0.0", lambda s, p: f"{s} == {p!r}"),
    "CODE": Kind(1, "the code of a Python function", _write_code),
    "LENGTH": Kind(1, "the number of items", lambda s, p: f"len({s}) == {p}"),
    "PRESENT": Kind(2, "a key of a dict or set is there", lambda s, p: f"{_sequence([p])} in {s}"),
    "ABSENT": Kind(2, "a key of a dict or set is not there", lambda s, p: f"{_sequence([p])} not in {s}"),
    "LACKS": Kind(2, "a class and its bases have no such attribute", lambda s, p: f"not hasattr({s}, {p!r})"),
    "MRO": Kind(1, "the bases of a class, in order", lambda s, p: f"{s}.__mro__ == ({_sequence(p)})"),
    "EMPTY": Kind(2, "these items of a dict are empty dicts", lambda s, p: f"not any({s}[name] for name in {p!r})"),
    "TENSOR": Kind(3, "metadata of a tensor", lambda s, p: f"{s} is {p}"),
    "KEYS": Kind(4, "all keys of a dict, in order", lambda s, p: f"list({s}) == [{_sequence(p)}]"),
    "MEMBERS": Kind(5, "the items of a set, in its order", lambda s, p: f"list({s}) == [{_sequence(p)}]"),
    "CALL": Kind(9, "a function of the object gives a constant", _write_call),
    "STATE": Kind(2, "a piece of torch's global state", lambda s, p: f"{STATES[p[0]].text} == {p[1]!r}"),
    "AUTOCAST": Kind(3, "what autocast does on a device", lambda s, p: f"autocast of {p[0]} is {p[1:]}"),
    "SAME": Kind(1, "two ways lead to one object", lambda s, p: f"{s} is {p}"),
    "NOT_SAME": Kind(1, "two ways lead to two objects", lambda s, p: f"{s} is not {p}"),
    "NOT_ALIASED": Kind(
        6, "no two of these tensors share storage", lambda s, p: f"no shared storage in ({', '.join(map(str, p))})"
    ),
    "ALIASED": Kind(2, "these tensors share one storage", lambda s, p: f"one storage for ({', '.join(map(str, p))})"),
    "CONDITION": Kind(2, "a comparison of sizes", lambda s, p: str(p)),
}

#: Kinds that compare several values; checked after all others.
RELATIONS: Final = frozenset({"SAME", "NOT_SAME", "NOT_ALIASED", "ALIASED", "CONDITION"})


class Guard:
    """One fact. `source` is None for kinds about no object (STATE, NOT_ALIASED, …).

    The payload of TENSOR may be given as a live tensor, of MEMBERS, KEYS, NOT_ALIASED and ALIASED as any
    iterable, of CONDITION as a pair (operands, program).
    """

    __slots__ = ("_identity", "kind", "payload", "source")

    def __init__(self, kind: str, source: Source | None = None, payload: Any = None) -> None:
        match kind:
            case "TENSOR":
                if not isinstance(payload, TensorFacts):
                    payload = TensorFacts.of(payload)
                key: object = payload
            case "KEYS" | "MEMBERS" | "MRO" | "EMPTY" | "NOT_ALIASED" | "ALIASED":
                payload = tuple(payload)
                key = constant_key(payload)
            case "CONDITION":
                operands, program = payload
                key = payload = ConditionFacts(tuple(operands), tuple(program))
            case _:
                if kind not in KINDS:
                    raise ValueError(f"there is no kind of guard {kind!r}")
                key = constant_key(payload)
        self.kind = kind
        self.source = source
        self.payload = payload
        self._identity = (kind, source, key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Guard) and self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self._identity)

    def __str__(self) -> str:
        return KINDS[self.kind].write(str(self.source), self.payload)

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


def default_device(_: object = None) -> torch.device | None:
    """Where tensors are made that nobody says a device for, if it has been set: PyTorch has a function mode for it."""
    if not torch._C._len_torch_function_stack():
        return None
    mode = torch._C._get_function_stack_at(0)
    return mode.device if isinstance(mode, DeviceContext) else None


def state_guards() -> list[Guard]:
    """Guards on torch's global state as it is now."""
    guards = [Guard("STATE", None, (name, state.read())) for name, state in STATES.items()]
    if (device := default_device()) is not None:
        guards.append(Guard("CALL", ConstSource(default_device), (default_device, device)))
    if torch._C._is_any_autocast_enabled():
        guards += [Guard("AUTOCAST", None, (device, *autocast_of(device))) for device in AUTOCAST_DEVICES]
    if torch.are_deterministic_algorithms_enabled():
        fills = torch._C._get_deterministic_fill_uninitialized_memory
        guards.append(Guard("CALL", None, (fills, fills())))
    return guards


def autocast_of(device: str) -> tuple[bool, torch.dtype, bool]:
    """Whether autocast is on for a device type, to which dtype, and whether casts are cached."""
    return (
        torch.is_autocast_enabled(device),
        torch.get_autocast_dtype(device),
        torch.is_autocast_cache_enabled(),
    )


def state_number(name: str, value: Any) -> int | None:
    """The native reader's number for a state that is `value`, where that is known: while it is so."""
    return _native.read_state(name) if STATES[name].read() == value else None


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
        """How dear it is to check all of it; asked once the tree is whole."""
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
    kind, payload = guard.kind, guard.payload
    if kind == "TENSOR":
        payload = (payload.cls, payload.sizes, payload.strides, *payload.numbers, payload.keys, payload.requires_grad)
    elif kind == "STATE" and (number := state_number(*payload)) is not None:
        payload = payload[0], number
    elif kind == "STATE":
        kind, payload = "CALL", (STATES[payload[0]].read, payload[1])
    elif kind == "AUTOCAST":
        device, *expected = payload
        kind, payload = "CALL", (lambda: autocast_of(device), tuple(expected))
    return kind, payload, guard


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
            return self.node(source.base)  # type: ignore[arg-type]
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

    def relation(self, guard: Guard) -> tuple[Any, ...]:
        """A relation in the form that `_native.GuardTree` takes."""
        if guard.kind == "CONDITION":
            operands = tuple((self.register(source), kind, dim) for source, kind, dim in guard.payload.operands)
            return guard.kind, operands, guard.payload.program, guard
        sources = guard.payload if guard.kind in ("NOT_ALIASED", "ALIASED") else (guard.source, guard.payload)
        return guard.kind, tuple(map(self.register, sources)), guard


def compile_tree(guards: Iterable[Guard], frame: Roots) -> _native.GuardTree:
    """The native tree of these guards; the slots that it is checked on are those of `frame`."""
    builder = TreeBuilder(frame)
    state: list[Guard] = []
    relations: list[Guard] = []
    for guard in guards:
        if guard.kind in RELATIONS:
            relations.append(guard)
        elif guard.source is None:
            state.append(guard)
        else:
            builder.node(guard.source).checks.append(guard)
    related = tuple(map(builder.relation, relations))
    return _native.GuardTree(tuple(map(check_spec, state)), specs(builder.grouped()), related)
