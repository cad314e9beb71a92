"""What may run for real at capture, and what libraries do that is not part of the computation.

`PURE` functions depend on nothing but their arguments (or on facts of the process that do not change: installed
packages, signatures). The environment, the file system and log levels are asked again by guards. Log messages below the
logger's level vanish. Neighbours: `builtin.BuiltinValue` (C functions),
`function.FunctionValue` (Python functions, by handler).
"""

from __future__ import annotations

import cmath
import dataclasses
import functools
import importlib.metadata
import importlib.util
import inspect
import json
import logging
import math
import operator
import os
import re
import sys
import time
import types
import typing
import weakref
from typing import TYPE_CHECKING, Any

from stator.base.errors import GraphBreak
from stator.capture.fields import part, value_class
from stator.capture.source import AttrSource, ClassAttrSource, ConstSource, ItemSource
from stator.capture.values import watch
from stator.capture.values.base import Object
from stator.capture.values.fold import all_constant, ask, fold
from stator.capture.values.lookup import MISSING, look_up
from stator.capture.values.python.constant import NONE, ConstantValue
from stator.capture.values.python.containers.sequence import TupleValue
from stator.capture.values.python.library.builtin import PURE
from stator.capture.values.python.objects.function import BoundMethodValue, FunctionValue
from stator.capture.values.python.objects.new import CONSTANT_CLASSES
from stator.capture.values.registry import CALLS, builds, fresh, handles, wrap

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from stator.capture.machine import Machine
    from stator.capture.rewrite import Assembler
    from stator.capture.source import Source
    from stator.capture.value import Value

# -- pure functions ------------------------------------------------------------------------------------


def _functions(module: types.ModuleType) -> list[Any]:
    return [item for name, item in vars(module).items() if callable(item) and not isinstance(item, type)]


#: C functions.
PURE.update(item for item in _functions(math))
PURE.update(item for item in _functions(cmath))
PURE.update({operator.index, operator.indexOf})
PURE.update(item for item in _functions(operator) if not item.__name__.startswith("i"))
PURE.update({ord, chr, hex, oct, bin, os.fspath, sys.intern})

#: Python functions: run for real instead of being inlined when all arguments are known.
PYTHON_PURE: tuple[Any, ...] = (
    inspect.isclass, inspect.isfunction, inspect.ismethod, importlib.util.find_spec, importlib.metadata.version,
    re.match, re.search, re.fullmatch, re.sub, re.split, re.findall, re.compile, re.escape,
    os.path.join, os.path.basename, os.path.dirname,
    typing.get_origin, typing.get_args, typing.cast, inspect.cleandoc,
)  # fmt: skip

CONSTANT_CLASSES.update({re.Pattern, inspect.Signature, inspect.Parameter})


def _folded(function: Any) -> Callable[..., Value]:
    def call(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        if all_constant(args, kwargs):
            return fold(tx, function, args, kwargs)
        inline = wrap(tx, function, ConstSource(function))
        return tx.inline(inline, args, kwargs)  # type: ignore[arg-type]

    return call


for _function in PYTHON_PURE:
    CALLS[_function] = _folded(_function)

#: Functions of the state of the process: their answers are guarded.
ASKED: tuple[Any, ...] = (
    os.getenv, os.getpid, os.path.exists, os.path.isdir, os.path.isfile,
    inspect.getfullargspec, inspect.getmodule, inspect.unwrap, inspect.iscoroutinefunction, inspect.isgeneratorfunction,
    inspect.getdoc, typing.get_type_hints,
)  # fmt: skip


def _asked(function: Any) -> Callable[..., Value]:
    return lambda tx, args, kwargs: ask(tx, function, args, kwargs)


for _function in ASKED:
    CALLS[_function] = _asked(_function)


@handles(dataclasses.is_dataclass)
def is_dataclass(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """`dataclasses.is_dataclass(x)` of a class or an instance."""
    value = args[0]
    cls = value.constant() if issubclass(value.python_type(), type) else value.python_type()
    return fresh(look_up(tx, cls, "__dataclass_fields__") is not MISSING)


@handles(dataclasses.fields)
def dataclass_fields(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """`dataclasses.fields(x)`: facts of the class."""
    value = args[0]
    cls = value.constant() if issubclass(value.python_type(), type) else value.python_type()
    if not dataclasses.is_dataclass(cls):
        tx.raise_roughly(TypeError, "must be called with a dataclass type or instance")
    table = cls.__dataclass_fields__
    watch.identity(tx, ClassAttrSource(ConstSource(cls), "__dataclass_fields__"), table)
    return TupleValue([ConstantValue(field) for field in dataclasses.fields(cls)])


@handles(inspect.signature)
def call_signature(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """`inspect.signature(f)`; of a bound method whatever it is bound to."""
    value = args[0]
    if isinstance(value, BoundMethodValue) and value.function.is_constant():
        return fresh(inspect.signature(types.MethodType(value.function.constant(), object())))
    if isinstance(value, FunctionValue) and value.function is None:
        function = types.FunctionType(value.code, value.globals, closure=tuple(types.CellType() for _ in value.closure))
        function.__defaults__ = tuple(item.constant() for item in value.defaults) or None
        function.__kwdefaults__ = {name: item.constant() for name, item in value.keyword_defaults.items()}
        return fresh(inspect.signature(function))
    return ask(tx, inspect.signature, args, kwargs)


@handles(importlib.import_module)
def call_import_module(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """`importlib.import_module(name)` of a module that is loaded: what `sys.modules` has."""
    names = [value.constant() for value in (*args, *kwargs.values())]
    full = importlib.util.resolve_name(*names) if len(names) > 1 else names[0]
    if full not in sys.modules:
        raise GraphBreak(f"importing {full!r} for the first time", "import it at module level")
    return wrap(tx, sys.modules[full], ItemSource(ConstSource(sys.modules), full))


def _json(function: Any) -> Callable[..., Value]:
    def call(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        """Texts of numbers and texts in lists and dicts, and back: all else has ways of its own to be converted."""
        converted = kwargs.keys() & {"cls", "default", "object_hook", "object_pairs_hook"}
        if converted or len(args) != 1 or not is_data(tx, args[0]):
            raise GraphBreak(f"json.{function.__name__} of more than numbers and texts in lists and dicts")
        return fold(tx, function, args, kwargs)

    return call


for _function in (json.dumps, json.loads):
    CALLS[_function] = _json(_function)


def is_data(tx: Machine, value: Value) -> bool:
    """Whether it is made of numbers and texts, in exact lists, tuples and dicts."""
    kind = value.python_type()
    if kind is dict:
        return all(is_data(tx, key) and is_data(tx, item) for key, item in value.pairs(tx))
    if kind in (list, tuple):
        return all(is_data(tx, item) for item in value.unpack(tx))
    return value.is_constant() and kind in (int, float, bool, str, bytes, type(None))


@handles(typing.cast)
def call_cast(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """`typing.cast(type, value)`."""
    return args[1] if len(args) > 1 else kwargs["val"]


@handles(time.time, time.perf_counter, time.monotonic, time.time_ns, time.sleep)
def call_time(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """The clock differs from call to call."""
    raise GraphBreak("the program asks for the time", "measure outside of the compiled function")


@handles(functools.reduce)
def call_reduce(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """`functools.reduce(function, iterable[, initial])`."""
    function, iterable, *rest = args
    items = iterable.unpack(tx)
    if not rest and not items:
        tx.raise_roughly(TypeError, "reduce() of empty iterable with no initial value")
    total = rest[0] if rest else items.pop(0)
    for item in items:
        total = function.call(tx, (total, item), {})
    return total


@handles(sys.exc_info)
def call_exc_info(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """`sys.exc_info()` of what the program handles, or where nothing is handled, by it or by its caller."""
    handled = tx.handled_exception()
    if handled is not None:
        return TupleValue([fresh(handled.python_type()), handled, handled.get_attr(tx, "__traceback__")])
    if not nothing_handled():
        raise GraphBreak("the exception that the caller handles is asked for with its traceback")
    tx.guard("CALL", ConstSource(sys.exc_info), (nothing_handled, True))
    return TupleValue([NONE] * 3)


def nothing_handled(_: object = None) -> bool:
    """Whether the caller is not inside an except clause."""
    return sys.exc_info()[1] is None


# -- the environment -----------------------------------------------------------------------------------


@value_class
class EnvironValue(Object):
    """`os.environ`: what is read is guarded."""

    kind = "os.environ"

    def python_type(self) -> type:
        return type(os.environ)

    def get_item(self, tx: Machine, key: Value) -> Value:
        return ask(tx, os.environ.__getitem__, (key,))

    def contains(self, tx: Machine, item: Value) -> Value:
        return ask(tx, os.environ.__contains__, (item,))

    def m_get(self, tx: Machine, key: Value, default: Value = NONE, /) -> Value:
        return ask(tx, os.environ.get, (key, default))


@builds(type(os.environ))
def build_environ(tx: Machine, obj: Any, source: Source) -> Value:
    """The environment."""
    watch.identity(tx, source, obj)
    return EnvironValue(source=source)


# -- logging -------------------------------------------------------------------------------------------


@value_class
class LoggerValue(Object):
    """A `logging.Logger`: what is below its level vanishes, the rest is replayed."""

    kind = "a logger"

    logger: logging.Logger

    def python_type(self) -> type:
        return type(self.logger)

    def get_attr(self, tx: Machine, name: str) -> Value:
        if name in LOG_LEVELS:
            return LogMethod(self.logger, name)
        if name in ("isEnabledFor", "getEffectiveLevel"):
            return LogMethod(self.logger, name)
        if name in ("level", "name", "disabled", "propagate"):
            assert self.source is not None
            return wrap(tx, getattr(self.logger, name), AttrSource(self.source, name))
        raise self.refuse(f"reading attribute {name!r}")


#: Method of a logger -> its level.
LOG_LEVELS = {
    "debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR,
    "critical": logging.CRITICAL, "exception": logging.ERROR, "warning_once": logging.WARNING,
    "info_once": logging.INFO, "warning_advice": logging.WARNING, "debug_once": logging.DEBUG,
}  # fmt: skip


@value_class
class LogMethod(Object):
    """`logger.warning` and the like."""

    kind = "a logger's method"

    logger: logging.Logger
    name: str

    def python_type(self) -> type:
        return types.MethodType

    def truth(self, tx: Machine) -> bool:
        return True

    def call(self, tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        if self.name not in LOG_LEVELS:
            return ask(tx, getattr(self.logger, self.name), args, kwargs)
        if not ask(tx, self.logger.isEnabledFor, (fresh(LOG_LEVELS[self.name]),)).constant():
            return NONE
        if not all_constant(args):
            raise GraphBreak("a log message whose text is not known at capture is not supported")
        tx.effects.call(getattr(self.logger, self.name), *args)
        return NONE


@builds(logging.Logger)
def build_logger(tx: Machine, obj: logging.Logger, source: Source) -> Value:
    """A logger."""
    watch.identity(tx, source, obj)
    return LoggerValue(obj, source=source)


# -- weak references ---------------------------------------------------------------------------------


@value_class
class WeakReferenceValue(Object):
    """A `weakref.ref`: known by identity, and so is what it refers to."""

    kind = "a weak reference"

    reference: weakref.ref[Any]

    def python_type(self) -> type:
        return weakref.ref

    def truth(self, tx: Machine) -> bool:
        return True

    def call(self, tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        referent = self.reference()
        if referent is None:
            return NONE
        tx.guard("CALL", ConstSource(self.reference), (is_alive, True))
        met = tx.values.get(id(referent))
        return wrap(tx, referent, ConstSource(referent)) if met is None else met


@value_class
class ReferenceValue(Object):
    """A weak reference that the program has made, to an object that others keep."""

    kind = "a weak reference"

    referent: Value = part()

    def python_type(self) -> type:
        return weakref.ref

    def truth(self, tx: Machine) -> bool:
        return True

    def call(self, tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        return self.referent

    def reconstruct(self, out: Assembler) -> None:
        out.call(weakref.ref, self.referent)


@handles(weakref.ref)
def call_reference(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """`weakref.ref(obj)`: how long an object of the program's own making lives is not known."""
    if len(args) != 1 or kwargs or args[0].source is None:
        raise args[0].refuse("a weak reference")
    return ReferenceValue(args[0])


def is_alive(reference: weakref.ref[Any]) -> bool:
    """Whether a weak reference still refers to something."""
    return reference() is not None


@builds(weakref.ref)
def build_weak_reference(tx: Machine, obj: weakref.ref[Any], source: Source) -> Value:
    """The reference object itself is guarded."""
    watch.identity(tx, source, obj)
    return WeakReferenceValue(obj, source=source)
