"""Constants: objects whose whole meaning is known at capture.

Immutable literals, torch's dtypes and devices, enum members, compiled patterns, versions, signatures:
anything that Python may compute with during capture, because guards (or identity) fix it.
Invariant: the object is never mutated through its value. Operators between constants are folded by
running Python (`operators.py`); methods of a constant run for real on constant arguments.
"""

from __future__ import annotations

import enum
import operator
import re
import types
import typing
from typing import TYPE_CHECKING, Any

import torch
import torch.torch_version

from stator.capture.fields import part, value_class
from stator.capture.source import AttrSource, ClassAttrSource, ConstSource
from stator.capture.value import Value
from stator.capture.values import mirror, watch
from stator.capture.values.base import METHODS, Builtin, bind_static
from stator.capture.values.fold import all_constant, fold, run
from stator.capture.values.lookup import look_up, static_attribute
from stator.capture.values.methods import COMPARE
from stator.capture.values.python.iterators import ItemsIterator
from stator.capture.values.python.real import SymbolicFloat
from stator.capture.values.python.symbolic import SymbolicValue
from stator.capture.values.registry import LITERALS, SINGLE, builds, fresh, makes, wrap
from stator.capture.values.watch import IMMUTABLE
from stator.sizes.real import Real

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stator.capture.machine import Machine
    from stator.capture.rewrite import Assembler
    from stator.capture.source import Source


#: The ints of which the interpreter has one object each.
CACHED = range(-5, 257)

#: Guarded by what they hold, not by identity.
BY_VALUE = (slice, range, frozenset)

#: What `typing` has instead of classes: `Optional`, `List[int]`.
TYPING: type = typing._Final


@value_class
class ConstantValue(Value):
    """A known object."""

    kind = "a constant"

    value: Any

    def python_type(self) -> type:
        return type(self.value)

    def is_constant(self) -> bool:
        return True

    def is_pinned(self) -> bool:
        kind = type(self.value)
        if kind not in LITERALS or kind in SINGLE:
            return kind not in BY_VALUE
        return kind is int and self.value in CACHED

    def constant(self) -> Any:
        return self.value

    def truth(self, tx: Machine) -> bool:
        return bool(run(tx, bool, (self.value,)))

    def graph_argument(self) -> tuple[Any, Any]:
        """A float of another class (NumPy's, a user's) is to an operator the float that it is."""
        value = float.__float__(self.value) if isinstance(self.value, float) else self.value
        return value, value

    def is_same(self, other: Value) -> bool:
        if not other.is_constant() or other.python_type() is not type(self.value):
            return False
        if other.is_symbolic():
            return other is self or other.is_same(self)
        theirs = other.constant()
        return self.value is theirs or (self.is_pinned() and type(self.value) in LITERALS and self.value == theirs)

    def mirrored(self, seen: mirror.Mirror) -> Any:
        """Python code of a class that is not the enum module's own is the program's, and does not run for real."""
        kind = type(self.value)
        if kind in (float, complex) and self.value != self.value:
            watch.identity(seen.tx, self.source, self.value)  # containers know it by that alone
        return self.value if kind in mirror.PLAIN or is_quiet(kind) else seen.stand_in(self)

    def binary(self, tx: Machine, op: str, other: Value) -> Value | None:
        if not isinstance(self.value, str | bytes):
            return None
        if op == "%":
            return mirror.apply(tx, operator.mod, (self, other))
        return mirror.apply(tx, operator.mul, (self, other)) if op == "*" and mirror.is_index(other) else None

    def binary_reflected(self, tx: Machine, op: str, other: Value) -> Value | None:
        if op == "*" and isinstance(self.value, str | bytes) and mirror.is_index(other):
            return mirror.apply(tx, operator.mul, (other, self))
        return None

    def is_users(self) -> bool:
        """Whether a class statement of the user's made its class: an enum, or a number or text with methods."""
        return isinstance(self.value, enum.Enum | int | float | complex | str | bytes)

    def reconstruct(self, out: Assembler) -> None:
        base = next((kind for kind in LITERALS if kind in type(self.value).__mro__[1:]), None)
        made_in_c = type(self.value).__flags__ & IMMUTABLE
        if base is None or made_in_c or isinstance(self.value, enum.Enum) or self.source is not None:
            out.load_object(self.value)
        else:  # an object of its own at each call
            out.call(base.__new__, ConstantValue(type(self.value)), ConstantValue(base(self.value)))

    # -- reading ---------------------------------------------------------------------------------------

    def get_attr(self, tx: Machine, name: str) -> Value:
        if self.is_users() and type(static_attribute(type(self.value), name)) in WRITTEN:
            return bind_static(tx, self, type(self.value), name)  # a method or property of the user's
        found = run(tx, getattr, (self.value, name))
        if type(found) in BOUND_METHODS:
            return BoundConstantValue(self, name, found)
        if type(self.value) in LITERALS:
            return fresh(found)
        if self.source is not None or hasattr(self.value, "__dict__"):
            return wrap(tx, found, AttrSource(self.source or ConstSource(self.value), name))
        return fresh(found)

    def get_item(self, tx: Machine, key: Value) -> Value:
        if isinstance(self.value, TYPING):  # a type of annotations, which Python's own code makes
            return fold(tx, operator.getitem, (self, key))
        return mirror.apply(tx, operator.getitem, (self, key))

    def set_item(self, tx: Machine, key: Value, value: Value) -> None:
        mirror.apply(tx, operator.setitem, (self, key, value), mute=True)

    def del_item(self, tx: Machine, key: Value) -> None:
        mirror.apply(tx, operator.delitem, (self, key), mute=True)

    def length(self, tx: Machine) -> int:
        return int(run(tx, len, (self.value,)))

    def contains(self, tx: Machine, item: Value) -> Value:
        return mirror.contains(tx, self, item)

    def iterate(self, tx: Machine) -> Value:
        try:
            items = list(self.value)
        except TypeError as error:
            tx.raise_exception(TypeError, *error.args)
        return ItemsIterator([fresh(item) for item in items], type(iter(self.value)), self)

    def call(self, tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        if not callable(self.value):
            return mirror.apply(tx, operator.call, (self,), mute=True)
        if isinstance(self.value, TYPING | types.GenericAlias):
            made = fresh(typing.get_origin(self.value)).call(tx, args, kwargs)
            if not made.python_type().__flags__ & IMMUTABLE:
                made.set_attr(tx, "__orig_class__", self)
            return made
        written = look_up(tx, kind := type(self.value), "__call__")
        if isinstance(written, types.FunctionType):  # a member of an enumeration that says what calling it does
            return wrap(tx, written, ClassAttrSource(ConstSource(kind), "__call__")).call(tx, (self, *args), kwargs)
        raise self.refuse(f"calling {self.value!r}")

    def set_attr(self, tx: Machine, name: str, value: Value) -> None:
        if type(self.value) not in mirror.PLAIN:
            raise self.refuse(f"setting attribute {name!r}")
        mirror.apply(tx, setattr, (self, fresh(name), value), mute=True)

    def del_attr(self, tx: Machine, name: str) -> None:
        if type(self.value) not in mirror.PLAIN:
            raise self.refuse(f"deleting attribute {name!r}")
        mirror.apply(tx, delattr, (self, fresh(name)), mute=True)


def is_quiet(cls: type) -> bool:
    """Whether nothing of a program's runs when C code uses an instance of this class of constants."""
    if not issubclass(cls, int | float | complex | str | bytes | enum.Enum):
        return False
    written = (item for parent in cls.__mro__ for item in parent.__dict__.items())
    return not any(
        name.startswith("__") and isinstance(raw, types.FunctionType) and raw.__module__ != "enum"
        for name, raw in written
    )


#: What a class statement makes of `def`.
WRITTEN = (types.FunctionType, property, staticmethod, classmethod)

BOUND_METHODS = (type("".join), type((1).__add__), type(re.compile("").match), type(ConstantValue(1).truth))


@value_class
class BoundConstantValue(Value):
    """A method of a constant; it runs for real when its arguments are known."""

    kind = "a method of a constant"

    owner: Value = part()
    name: str
    function: Any

    def python_type(self) -> type:
        return type(self.function)

    def is_constant(self) -> bool:
        return True

    def constant(self) -> Any:
        return self.function

    def truth(self, tx: Machine) -> bool:
        return True

    def call(self, tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        kind = self.owner.python_type()
        if (kind in mirror.PLAIN or is_quiet(kind)) and isinstance(static_attribute(kind, self.name), METHODS):
            return mirror.apply(tx, mirror.method(self.name), (self.owner, *args), kwargs)
        if all_constant(args, kwargs):
            return fold(tx, self.function, args, kwargs)
        if isinstance(self.function, types.MethodType):
            written = wrap(tx, self.function.__func__, ConstSource(self.function.__func__))
            return written.call(tx, (self.owner, *args), kwargs)
        return mirror.apply(tx, self.function, args, kwargs)

    def get_attr(self, tx: Machine, name: str) -> Value:
        return fresh(run(tx, getattr, (self.function, name)))

    def reconstruct(self, out: Assembler) -> None:
        out.load_object(self.function)


@value_class
class SliceValue(Builtin):
    """`slice(start, stop, step)`, whose parts may be tensors."""

    kind = "a slice"

    parts: tuple[Value, Value, Value] = part()

    def python_type(self) -> type:
        return slice

    def is_constant(self) -> bool:
        return all(part.is_constant() for part in self.parts)

    def is_symbolic(self) -> bool:
        return any(part.is_symbolic() for part in self.parts)

    def constant(self) -> slice:
        return slice(*(part.constant() for part in self.parts))

    def truth(self, tx: Machine) -> bool:
        return True

    def compare(self, tx: Machine, op: str, other: Value) -> Value | None:
        return mirror.apply(tx, COMPARE[op], (self, other)) if isinstance(other, SliceValue) else None

    def mirrored(self, seen: mirror.Mirror) -> Any:
        return slice(*(seen.python(part) for part in self.parts))

    def graph_argument(self) -> tuple[Any, Any]:
        pairs = [part.graph_argument() for part in self.parts]
        return slice(*(node for node, _ in pairs)), slice(*(fake for _, fake in pairs))

    def reconstruct(self, out: Assembler) -> None:
        for item in self.parts:
            out.load(item)
        out.build("slice", 3)


NONE = ConstantValue(None)
TRUE = ConstantValue(True)
FALSE = ConstantValue(False)


def boolean(value: bool) -> ConstantValue:
    """The value of a bool."""
    return TRUE if value else FALSE


@builds(*LITERALS, exact=True)
def build_literal(tx: Machine, obj: Any, source: Source) -> Value:
    """A literal is guarded by its value; an int or a float that changes from call to call by its type."""
    if type(obj) is float and (symbol := tx.graph.sizes.real(source, obj)) is not None:
        watch.type_of(tx, source, float)
        return SymbolicFloat(Real("bits", (symbol.size,)), tx.graph.sizes, source=source)
    if type(obj) is int and (symbol := tx.graph.sizes.number(source, obj)) is not None:
        watch.type_of(tx, source, int)
        return SymbolicValue(symbol.size, tx.graph.sizes, source=source)
    watch.equals(tx, source, obj)
    return ConstantValue(obj, source=source)


@builds(
    enum.Enum, re.Pattern, torch.finfo, torch.iinfo, types.UnionType, types.GenericAlias, TYPING, torch._C._SDPBackend,
    torch.torch_version.TorchVersion,
)  # fmt: skip
def build_by_identity(tx: Machine, obj: Any, source: Source) -> Value:
    """An immutable object with an identity."""
    watch.identity(tx, source, obj)
    return ConstantValue(obj, source=source)


@builds(slice)
def build_slice(tx: Machine, obj: slice, source: Source) -> Value:
    """A slice is its parts."""
    watch.type_of(tx, source, slice)
    start, stop, step = (wrap(tx, getattr(obj, name), AttrSource(source, name)) for name in ("start", "stop", "step"))
    return SliceValue((start, stop, step), source=source)


@builds(range)
def build_range(tx: Machine, obj: range, source: Source) -> Value:
    """A range is guarded by its parts: ranges are equal when their items are."""
    watch.type_of(tx, source, range)
    for name in ("start", "stop", "step"):
        watch.equals(tx, AttrSource(source, name), getattr(obj, name))
    return ConstantValue(obj, source=source)


def returned_slice(seen: mirror.Mirror, obj: slice) -> Value:
    """A new slice."""
    return SliceValue((seen.value(obj.start), seen.value(obj.stop), seen.value(obj.step)))


mirror.RETURNED[slice] = returned_slice
makes(object, *LITERALS)(ConstantValue)
makes(slice)(lambda obj: SliceValue((fresh(obj.start), fresh(obj.stop), fresh(obj.step))))
