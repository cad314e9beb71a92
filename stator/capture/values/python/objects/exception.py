"""Exceptions of the interpreted program.

An exception value is its class, its arguments and whatever attributes the program gave it; it has no
traceback. Neighbours: `Raised` in `value.py`, the machine (unwinding), `klass.py` (makes them).
"""

from __future__ import annotations

import types
from dataclasses import field
from typing import TYPE_CHECKING, Any

from stator.capture.fields import value_class
from stator.capture.source import AttrSource
from stator.capture.values import watch
from stator.capture.values.base import Object, bind_static
from stator.capture.values.fold import run
from stator.capture.values.lookup import MISSING, look_up, static_attribute
from stator.capture.values.methods import DUNDERS
from stator.capture.values.python.constant import NONE, ConstantValue
from stator.capture.values.python.containers.lists import ListValue
from stator.capture.values.python.containers.sequence import TupleValue
from stator.capture.values.registry import builds, fresh, wrap

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stator.capture.machine import Machine
    from stator.capture.rewrite import Assembler
    from stator.capture.source import Source
    from stator.capture.value import Value

_LINKS = ("__cause__", "__context__", "__traceback__", "__suppress_context__")


@value_class
class TracebackValue(Object):
    """The traceback of an exception that was raised while capturing: there is one, and nothing more is known."""

    kind = "a traceback"

    def python_type(self) -> type:
        return types.TracebackType

    def truth(self, tx: Machine) -> bool:
        return True


@value_class
class ExceptionValue(Object):
    """An instance of an exception class."""

    kind = "an exception"

    cls: type[BaseException]
    args: list[Value]
    #: The exception itself, where it existed before.
    obj: BaseException | None = None
    #: Whether the arguments are those that eager gives it.
    exact: bool = field(init=False, default=True)
    attributes: dict[str, Value] = field(init=False, default_factory=dict)

    def python_type(self) -> type:
        return self.cls

    def truth(self, tx: Machine) -> bool:
        return True

    def get_attr(self, tx: Machine, name: str) -> Value:
        if name in self.attributes:
            return self.attributes[name]
        if name == "args":
            self.check_exact()
            return TupleValue(self.args)
        if self.obj is not None and self.source is not None:
            if name in _LINKS or name in self.obj.__dict__ or is_member(self.cls, name):
                return wrap(tx, getattr(self.obj, name), AttrSource(self.source, name))
            watch.no_instance_attribute(tx, self.source, name)
        if name in _LINKS:
            return fresh("__cause__" in self.attributes) if name == "__suppress_context__" else NONE
        if name == "value" and issubclass(self.cls, StopIteration):
            return self.args[0] if self.args else NONE
        raw = look_up(tx, self.cls, name)
        if raw is MISSING:
            tx.raise_exception(AttributeError, f"{self.cls.__name__!r} object has no attribute {name!r}")
        if hasattr(raw, "__objclass__") and name not in DUNDERS and not hasattr(self, "m_" + name):
            if all(arg.is_constant() for arg in self.args):
                return fresh(run(tx, getattr, (self.real(), name)))
            raise self.refuse(f"reading attribute {name!r}")
        if hasattr(raw, "__objclass__") or name in ("with_traceback", "add_note", "__class__"):
            return super().get_attr(tx, name)
        return bind_static(tx, self, self.cls, name)

    def set_attr(self, tx: Machine, name: str, value: Value) -> None:
        if self.obj is not None:
            raise self.refuse(f"setting attribute {name!r}")
        if name == "args":
            self.args = value.unpack(tx)
        else:
            self.attributes[name] = value

    def raised_while(self, tx: Machine, handled: Value | None) -> None:
        """It is raised, while another one may be being handled."""
        other = handled is not None and handled is not self
        if self.obj is None:
            self.attributes["__traceback__"] = TracebackValue()
            if handled is not None and other:
                self.attributes["__context__"] = handled
        elif other:
            raise self.refuse("raising it while another exception is being handled")

    def m___init__(self, tx: Machine, /, *args: Value, **kwargs: Value) -> Value:
        self.args = list(args)
        return NONE

    def m___str__(self, tx: Machine, /) -> Value:
        if self.obj is not None and self.cls.__str__ not in (BaseException.__str__, KeyError.__str__):
            raise self.refuse("str()")  # it may tell more than the arguments
        return fresh(str(self.real()))

    def m___repr__(self, tx: Machine, /) -> Value:
        return fresh(repr(self.real()))

    def m_with_traceback(self, tx: Machine, traceback: Value, /) -> Value:
        if self.obj is not None:
            raise self.refuse("with_traceback()")
        return self

    def m_add_note(self, tx: Machine, note: Value, /) -> Value:
        if self.obj is not None:
            raise self.refuse("add_note()")
        notes = self.attributes.setdefault("__notes__", ListValue([]))
        notes.add_item(tx, note)
        return NONE

    def real(self) -> BaseException:
        """The exception itself, when its arguments are known."""
        self.check_exact()
        return BaseException.__new__(self.cls, *(arg.snapshot() for arg in self.args))

    def children(self) -> Iterator[Value]:
        yield from self.args
        yield from (value for name, value in self.attributes.items() if name not in _LINKS)

    def check_exact(self) -> None:
        """Refuses to show a text that Python would word otherwise."""
        if not self.exact:
            raise self.refuse("reading the message")

    def reconstruct(self, out: Assembler) -> None:
        self.check_exact()
        names = tuple(name for name in self.attributes if name != "__traceback__")
        values = TupleValue([self.attributes[name] for name in names])
        out.call(make_exception, ConstantValue(self.cls), TupleValue(self.args), fresh(names), values)


def is_member(cls: type, name: str) -> bool:
    """Whether an attribute is a field of the C object (`KeyError.args`, `ImportError.name`)."""
    return isinstance(static_attribute(cls, name), types.MemberDescriptorType | types.GetSetDescriptorType)


def make_exception(
    cls: type[BaseException], args: tuple[Any, ...], names: tuple[str, ...], values: tuple[Any, ...]
) -> BaseException:
    """Rebuilds an exception without running its `__init__` again."""
    made = cls.__new__(cls, *args)
    made.args = args
    for name, value in zip(names, values, strict=True):
        setattr(made, name, value)
    return made


@builds(BaseException)
def build_exception(tx: Machine, obj: BaseException, source: Source) -> Value:
    """An exception object that existed before."""
    watch.type_of(tx, source, type(obj))
    args = wrap(tx, obj.args, AttrSource(source, "args"))
    return ExceptionValue(type(obj), args.unpack(tx), source=source, obj=obj)
