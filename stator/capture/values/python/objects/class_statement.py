"""A class statement inside of a function: the class is made for real at capture, as a model of those of other calls.

Its functions are the ones of this frame (`tx.values` gives them for what stands in the real class), so closures hold
values. A class that leaves the function is made anew by each call, as in eager: the assembler asks `made_here`.
Invariant: only classes that Python makes without asking anybody are taken, from functions, descriptors and constants.
Neighbours: `opcodes/classes.py` (class bodies), `klass.py` (what is done with classes).
"""

from __future__ import annotations

import builtins
import types
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import torch

from stator.base.errors import GraphBreak
from stator.capture.fields import part, value_class
from stator.capture.machine import Machine
from stator.capture.values.base import Object
from stator.capture.values.python.containers.mapping import named_dict
from stator.capture.values.python.containers.sequence import TupleValue
from stator.capture.values.python.objects.function import CellValue, FunctionValue
from stator.capture.values.python.objects.klass import ClassValue
from stator.capture.values.registry import LITERALS, fresh, handles

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stator.capture.rewrite import Assembler
    from stator.capture.value import Value

HINT = "move it to module level"

#: Names by which a class, not its instances, takes part in what Python does.
HOOKS = frozenset({"__class_getitem__", "__init_subclass__", "__set_name__", "__del__", "__match_args__"})

#: Bases that do not run code when a class is made from them, besides classes made in the same way.
BASES = (object, torch.autograd.Function)

#: Classes made in captures that go on, by id.
MADE: WeakValueDictionary[int, MadeClassValue] = WeakValueDictionary()


def made_here(obj: Any) -> Value | None:
    """The value of a class that a running capture has made."""
    return MADE.get(id(obj)) if isinstance(obj, type) else None


class ClassBody:
    """The function of a class body: it runs with names of its own."""

    def __init__(self, function: FunctionValue) -> None:
        self.function = function
        self.code = function.code
        self.globals = function.globals
        self.qualname = function.qualname
        self.namespace: dict[str, Value] = {}

    def default(self, tx: Machine, position: int) -> Value | None:
        """It has no parameters."""
        return None

    def keyword_default(self, tx: Machine, name: str) -> Value | None:
        """It has no parameters."""
        return None

    def closure_cell(self, tx: Machine, index: int) -> Value:
        """The cell of a free variable."""
        return self.function.closure_cell(tx, index)


@value_class
class MadeClassValue(ClassValue):
    """A class that the frame has made; `obj` is the model of it."""

    bases: Sequence[Value] = part()
    namespace: dict[str, Value] = part()
    cell: Any

    def __post_init__(self) -> None:
        MADE[id(self.obj)] = self

    def reconstruct(self, out: Assembler) -> None:
        if self.cell is not None:
            raise GraphBreak("a class made inside leaves the function, and its methods ask for their class", HINT)
        parts = fresh(self.obj.__name__), TupleValue(list(self.bases)), named_dict(self.namespace)
        out.call(make_class, *parts)


def make_class(name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> type:
    """What a class statement makes of its parts."""
    return types.new_class(name, bases, exec_body=lambda body: body.update(namespace))


@value_class
class MadeDescriptorValue(Object):
    """`staticmethod(f)`, `classmethod(f)` or `property(f)` of functions that the frame has made."""

    kind = "a descriptor"

    cls: type
    functions: Sequence[Value] = part()

    def python_type(self) -> type:
        return self.cls

    def reconstruct(self, out: Assembler) -> None:
        out.call(self.cls, *self.functions)


def descriptors_of(cls: type) -> None:
    """Lets the frame make descriptors of this class."""

    @handles(cls)
    def call_descriptor(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        if kwargs or not args or not all(isinstance(arg, FunctionValue) for arg in args):
            raise GraphBreak(f"{cls.__name__}() of anything but functions is not supported")
        return MadeDescriptorValue(cls, args)


for _cls in (staticmethod, classmethod, property):
    descriptors_of(_cls)


# -- the statement -------------------------------------------------------------------------------------


@handles(builtins.__build_class__)
def call_build_class(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """`class Name(*bases): body`."""
    function, name, *bases = args
    if kwargs or not isinstance(function, FunctionValue) or function.function is not None:
        raise GraphBreak("a class statement runs inside the compiled function, with a metaclass or keywords", HINT)
    for base in bases:
        if not isinstance(base, MadeClassValue) and not (base.is_constant() and base.constant() in BASES):
            raise GraphBreak(f"a class statement inside the compiled function derives from {base}", HINT)
    body = ClassBody(function)
    returned = Machine(tx.session, body.code, body, [], tx).run()
    cell = body.namespace.pop("__classcell__", None)
    assert returned is cell or returned.is_none()
    modelled = {key: model(tx, key, value) for key, value in body.namespace.items()}
    cls = make_class(name.constant(), tuple(base.constant() for base in bases), modelled)
    made = MadeClassValue(cls, bases, body.namespace, cell)
    tx.values[id(cls)] = made
    tx.graph.kept.append(cls)
    if isinstance(cell, CellValue):
        cell.set(tx, made)
    return made


def model(tx: Machine, name: str, value: Value) -> Any:
    """What stands in the real class for an attribute."""
    if name in HOOKS:
        raise GraphBreak(f"a class statement inside the compiled function defines {name}", HINT)
    match value:
        case FunctionValue(function=None):
            made = model_function(value)
            tx.values[id(made)] = value
            tx.graph.kept.append(made)
            return made
        case MadeDescriptorValue():
            return value.cls(*[model(tx, "", function) for function in value.functions])
        case _ if value.is_constant() and not value.is_symbolic() and is_plain(value.constant()):
            return value.constant()
    raise GraphBreak(f"a class statement inside the compiled function gives {name!r} a value that it has made", HINT)


def is_plain(obj: Any) -> bool:
    """Whether an attribute of a class is a literal, or a tuple of such."""
    return type(obj) in LITERALS or (type(obj) is tuple and all(map(is_plain, obj)))


def model_function(value: FunctionValue) -> types.FunctionType:
    """A function with the code of one that the frame has made, and with cells and defaults that nobody may use."""
    cells = tuple(types.CellType() for _ in value.closure) or None
    made = types.FunctionType(value.code, value.globals, None, None, cells)
    made.__qualname__ = value.qualname
    if value.defaults:
        made.__defaults__ = (None,) * len(value.defaults)
    if value.keyword_defaults:
        made.__kwdefaults__ = dict.fromkeys(value.keyword_defaults)
    return made
