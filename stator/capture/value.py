"""The protocol between the machine and the value classes.

A `Value` stands for one Python object during symbolic execution. The machine and the opcode
functions only ever talk to values through the methods of this class; what a method does not
support it refuses with a `GraphBreak`, so a missing case can never give a wrong result.

Invariant: a value is either known by a `source` (it existed before the frame ran, and every fact
used about it is guarded) or was made by the frame (source is None) and can be rebuilt by
`reconstruct`. Neighbours: `machine.py` (passed as `tx`), `source.py`, `rewrite.py`.

What values ask of the machine (`tx`), the same objects in every frame of one conversion:
  tx.graph, tx.effects        `GraphBuilder`, `Effects`
  tx.values                   dict: id(object) -> Value, the identity memo of `values.build.wrap`
  tx.guard(kind, source, payload=None)                   adds one guard (kinds: `guards.py`)
  tx.inline(function, args, kwargs) -> Value             runs a `values.function.FunctionValue` in a child frame
  tx.call(fn, args, kwargs) -> Value                     `fn.call(...)`
  tx.raise_exception(type, *args)                        raises `Raised` with a fresh exception (args: values or plain)
  tx.raise_real(exception)                               the same for an exception that real code has just raised
  tx.build, tx.operators                                 `Builder`, `Operators` below
  tx.frame_super() -> (class value, self value)          what `super()` without arguments means here
  tx.location() -> (file, line)                          the user's line
What values give the opcodes:
  values/build.py             wrap(tx, obj, source), const(obj), make_tuple/list/set/dict/slice/function/cell/exception
  values/python/operators.py  binary, compare, … (tx, op, left, right): Python's dispatch between two values
What `reconstruct` and the effects ask of the assembler (`out`):
  out.load(value)             push a value (once per frame: by source, memo or `reconstruct`)
  out.load_output(node)       push the tensor that the graph computes at an fx node
  out.load_object(obj)        push a live Python object (literal or pinned by identity)
  out.call(obj, *values)      push `obj(*values)`: a live function called on values
  out.build(kind, count)      "list", "tuple", "set", "map" or "slice" of the `count` topmost items (2·count for map)
  out.remember(value)         TOS is `value` from now on (before its parts are filled in: cycles are then safe)
  out.pop()                   drop TOS
"""

from __future__ import annotations

import dataclasses
from dataclasses import field
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from stator.base.errors import GraphBreak
from stator.capture.fields import value_class

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import CodeType

    from stator.capture.machine import Machine
    from stator.capture.rewrite import Assembler
    from stator.capture.source import Source
    from stator.capture.values.mirror import Mirror


class Raised(Exception):
    """An exception of the interpreted program on its way to a handler; `value` is its exception value."""

    def __init__(self, value: Value, certain: bool = True, again: bool = False) -> None:
        super().__init__(value)
        self.value = value
        #: Whether it goes on after a handler that did not want it, as it was: it is not raised anew.
        self.again = again
        #: Whether eager raises just this; of an error on fake tensors only that eager raises something is known.
        self.certain = certain


@value_class
class Value:
    """One Python object as the machine sees it."""

    source: Source | None = field(default=None, kw_only=True)

    #: The fields that hold values (`fields.py`).
    PARTS: ClassVar[tuple[str, ...]] = ()

    #: How error messages call this kind of value.
    kind: ClassVar[str] = "object"

    #: Whether Python itself may run what has no model, on a mirror (`values/mirror.py`).
    by_mirrors: ClassVar[bool] = False

    #: Whether the graph computes it, so that no function of Python's can run on it at capture.
    in_graph: ClassVar[bool] = False

    def __repr__(self) -> str:
        names = [entry.name for entry in dataclasses.fields(self) if entry.name != "source"]
        return f"{type(self).__name__}({', '.join(f'{name}={shown(getattr(self, name, None))}' for name in names)})"

    # -- what it is --------------------------------------------------------------------------------

    def python_type(self) -> type:
        """The exact `type()` of the object."""
        raise self.refuse("type()")

    def is_constant(self) -> bool:
        """Whether `constant()` gives the object itself (int, str, None, dtype, function, class, …)."""
        return False

    def is_symbolic(self) -> bool:
        """Whether it is an int that differs from call to call, or contains one; `constant()` fixes it, with a guard."""
        return False

    def is_pinned(self) -> bool:
        """Whether it is one and the same object in all calls that the guards let through."""
        return False

    def pin(self, tx: Machine) -> None:
        """Makes it so, where its class guards objects by less until somebody asks for more."""

    def is_none(self) -> bool:
        """Whether it is None."""
        return self.is_constant() and not self.is_symbolic() and self.constant() is None

    def constant(self) -> Any:
        """The Python object, where it is known at capture time; guards must already cover it."""
        raise self.refuse("use as a constant")

    def snapshot(self) -> Any:
        """A Python object equal to this one, for pure functions that run at capture; copies lists and dicts."""
        return self.constant()

    def real_object(self) -> Any:
        """The object itself, where it existed before the frame and may answer what its class alone does not decide."""
        return None

    def is_kind_of(self, tx: Machine, wanted: Any) -> bool | None:
        """`isinstance(v, wanted)`, where neither the class nor the object decides it; None: they do."""
        return None

    # -- operations (each may add guards, graph nodes and effects through `tx`) -----------------------

    def truth(self, tx: Machine) -> bool:
        """`bool(v)` as a Python bool; a data-dependent one is a graph break."""
        raise self.refuse("bool()")

    def get_attr(self, tx: Machine, name: str) -> Value:
        """`v.name`; raises through `tx.raise_exception(AttributeError, …)` where eager would."""
        raise self.refuse(f"reading attribute {name!r}")

    def set_attr(self, tx: Machine, name: str, value: Value) -> None:
        """`v.name = value`."""
        raise self.refuse(f"setting attribute {name!r}")

    def del_attr(self, tx: Machine, name: str) -> None:
        """`del v.name`."""
        raise self.refuse(f"deleting attribute {name!r}")

    def get_item(self, tx: Machine, key: Value) -> Value:
        """`v[key]`."""
        raise self.refuse("indexing")

    def set_item(self, tx: Machine, key: Value, value: Value) -> None:
        """`v[key] = value`."""
        raise self.refuse("item assignment")

    def del_item(self, tx: Machine, key: Value) -> None:
        """`del v[key]`."""
        raise self.refuse("item deletion")

    def contains(self, tx: Machine, item: Value) -> Value:
        """`item in v`."""
        raise self.refuse("the 'in' operator")

    def length(self, tx: Machine) -> int:
        """`len(v)`."""
        raise self.refuse("len()")

    def iterate(self, tx: Machine) -> Value:
        """`iter(v)`: a value with `next_item`."""
        raise self.refuse("iteration")

    def next_item(self, tx: Machine) -> Value | None:
        """`next(v)` of an iterator value; None at exhaustion."""
        raise self.refuse("next()")

    def unpack(self, tx: Machine) -> list[Value]:
        """All items in order, for `*v`, unpacking and `list(v)`."""
        iterator = self.iterate(tx)
        items: list[Value] = []
        while (item := iterator.next_item(tx)) is not None:
            items.append(item)
        return items

    def add_item(self, tx: Machine, item: Value) -> None:
        """Append to a list or add to a set that a display or comprehension is building."""
        raise self.refuse("adding an item")

    def pairs(self, tx: Machine) -> list[tuple[Value, Value]]:
        """Keys and values of a mapping in order, for `**v` and `{**v}`."""
        raise self.refuse("** unpacking")

    def by_builtin(self, tx: Machine, function: Any, /, *args: Value, **kwargs: Value) -> Value | None:
        """What a builtin function gives of it, where that is not what the operations here say; None: it is."""
        return None

    def call(self, tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        """`v(*args, **kwargs)`."""
        raise self.refuse("calling it")

    def unary(self, tx: Machine, op: str) -> Value:
        """`op` is one of - + ~ (not goes through truth)."""
        raise self.refuse(f"unary {op}")

    def binary(self, tx: Machine, op: str, other: Value) -> Value | None:
        """`v op other`, op is the Python operator text ("+", "//", "@", …); None means NotImplemented."""
        return None

    def binary_reflected(self, tx: Machine, op: str, other: Value) -> Value | None:
        """`other op v`, asked when `other.binary` gave None."""
        return None

    def inplace(self, tx: Machine, op: str, other: Value) -> Value | None:
        """`v op= other`; None means: fall back to the plain operator."""
        return None

    def compare(self, tx: Machine, op: str, other: Value) -> Value | None:
        """`v op other` for < <= == != > >=; None means NotImplemented."""
        return None

    def is_same(self, other: Value) -> bool:
        """`v is other`, decided at capture time (guards must make it safe)."""
        return self is other

    def unbound(self) -> tuple[Value, Value] | None:
        """The function and the object of a bound method written in C that Python would call without binding it."""
        return None

    def raised_while(self, tx: Machine, handled: Value | None) -> None:
        """It has been raised as an exception, while another one may be being handled."""

    # -- while Python's own code works on it (`values/mirror.py`) ---------------------------------------

    def mirrored(self, mirror: Mirror) -> Any:
        """The object that stands for it: a container of mirrors, or what asks this value."""
        return mirror.stand_in(self)

    def held(self, tx: Machine) -> Sequence[Value]:
        """What a container holds, in order."""
        return ()

    def take_back(self, mirror: Mirror, obj: Any) -> None:
        """C code has changed its mirror: so is it."""
        raise self.refuse("a change by a builtin function")

    def by_python(self, tx: Machine, name: str, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        """A call of its method `name` that has no model here."""
        tx.raise_roughly(TypeError, f"wrong arguments for {name}()")

    # -- in the graph ----------------------------------------------------------------------------------

    def graph_argument(self) -> tuple[Any, Any]:
        """As an argument of a graph call: what the fx node gets (nodes for tensors) and what the fake call gets."""
        raise self.refuse("passing it to a torch function")

    # -- after capture ---------------------------------------------------------------------------------

    def reconstruct(self, out: Assembler) -> None:
        """Emit code that pushes this object, once per frame (the assembler keeps identity by memo)."""
        raise self.refuse("returning it from a compiled frame")

    def children(self) -> Iterator[Value]:
        """Values inside, for finding live tensors and changed objects."""
        for name in self.PARTS:
            match getattr(self, name):
                case None:
                    pass
                case Value() as value:
                    yield value
                case dict() as values:
                    yield from values.values()
                case values:
                    yield from values

    def refuse(self, what: str) -> GraphBreak:
        """A graph break that says what is not supported, to be raised by the caller."""
        return GraphBreak(f"{what} is not supported on {self.kind}", hint="")


def shown(item: Any) -> str:
    """A field in the text of a value: of what the program made only the kind, since its own `__repr__` must not run."""
    if isinstance(item, type):
        return item.__qualname__
    return repr(item) if type(item) in (int, float, bool, str, type(None)) else type(item).__name__


class Cell(Protocol):
    """A closure cell: made by a frame, or a real one whose contents have a source."""

    def get(self, tx: Machine) -> Value | None:
        """The contents; None when the cell is empty."""

    def set(self, tx: Machine, value: Value | None) -> None:
        """`nonlocal` store; an effect when the cell is a real one."""


class Inlinable(Protocol):
    """What `Machine.inline` asks of a function value (made in the frame or known by a source)."""

    code: CodeType
    #: The real module dictionary; names in it are read through `tx.load_global`.
    globals: dict[str, Any]
    qualname: str

    def default(self, tx: Machine, position: int) -> Value | None:
        """The default of the positional parameter number `position`, or None."""

    def keyword_default(self, tx: Machine, name: str) -> Value | None:
        """The default of a keyword-only parameter, or None."""

    def closure_cell(self, tx: Machine, index: int) -> Value:
        """The cell (a value that is a `Cell`) for `code.co_freevars[index]`."""


class Builder(Protocol):
    """How opcodes make values (`tx.build`): the module `values.build`, or a small stand-in in tests."""

    def wrap(self, tx: Machine, obj: Any, source: Source) -> Value:
        """The value of an existing object."""

    def const(self, obj: Any) -> Value:
        """Any literal of a code object (tuples, frozensets included), or a bool, int, str… just computed."""

    def make_tuple(self, items: list[Value]) -> Value: ...

    def make_list(self, items: list[Value]) -> Value: ...

    def make_set(self, tx: Machine, items: list[Value]) -> Value: ...

    def make_dict(self, tx: Machine, pairs: list[tuple[Value, Value]]) -> Value: ...

    def make_slice(self, start: Value, stop: Value, step: Value) -> Value: ...

    def make_function(
        self,
        tx: Machine,
        code: CodeType,
        qualname: str,
        closure: list[Value],
        defaults: list[Value],
        keyword_defaults: dict[str, Value],
        annotations: Value | None,
    ) -> Value:
        """`def` or `lambda` in the frame; its globals are `tx.globals`. The value is an `Inlinable`."""

    def make_cell(
        self, content: Value | None, cell: Any = None, source: Source | None = None, contents: Source | None = None
    ) -> Value:
        """A `Cell`: fresh, or (content None) the real `cell`, which `source` reaches, and `contents` what it holds."""

    def make_exception(self, tx: Machine, cls: type[BaseException], args: list[Value]) -> Value:
        """An instance of an exception class; its `python_type()` is `cls`."""


class Operators(Protocol):
    """Python's dispatch between two values (`tx.operators`): the module `values.python.operators`."""

    def binary(self, tx: Machine, op: str, left: Value, right: Value) -> Value: ...

    def inplace(self, tx: Machine, op: str, left: Value, right: Value) -> Value: ...

    def compare(self, tx: Machine, op: str, left: Value, right: Value) -> Value: ...

    def unary(self, tx: Machine, op: str, value: Value) -> Value: ...

    def contains(self, tx: Machine, item: Value, container: Value) -> Value: ...

    def identical(self, tx: Machine, left: Value, right: Value) -> bool: ...

    def is_reflexive(self, value: Value) -> bool: ...

    def hash_of(self, tx: Machine, value: Value) -> Value: ...
