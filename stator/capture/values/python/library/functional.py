"""Callables of `functools`, `operator`, `types` and `reprlib` that are written in C, or wrap without a meaning here.

A wrapper is known by its code, which all functions that a decorator makes share (`registry.CODES`).
Neighbours: `function.py` (partial, bound methods), `builtin.py` (C functions), `pure.py`.
"""

from __future__ import annotations

import bisect
import collections
import dataclasses
import functools
import heapq
import importlib.util
import operator
import sys
import types
from typing import TYPE_CHECKING, Any

import torch._compile

from stator.capture.fields import part, value_class
from stator.capture.source import ConstSource
from stator.capture.values import watch
from stator.capture.values.base import Object, PinnedValue
from stator.capture.values.fold import all_constant, ask
from stator.capture.values.python import operators
from stator.capture.values.python.constant import NONE
from stator.capture.values.python.library.builtin import PURE
from stator.capture.values.python.objects.function import BoundMethodValue, FunctionValue
from stator.capture.values.python.objects.new import CONSTANT_CLASSES
from stator.capture.values.python.objects.user_object import UserObjectValue
from stator.capture.values.registry import CALLS, CODES, builds, fresh, handles, makes, wrap

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from stator.capture.machine import Machine
    from stator.capture.rewrite import Assembler
    from stator.capture.source import Source
    from stator.capture.value import Value

PURE.update({str.maketrans, bytes.maketrans})

#: The class of sort keys, which has no name of its own.
_Key: type = type(functools.cmp_to_key(operator.sub)(0))

# -- heaps and sorted lists --------------------------------------------------------------------------------


def written_in_python(module: types.ModuleType, accelerator: str) -> types.ModuleType:
    """A module of the standard library without the C functions that replace its own."""
    spec = importlib.util.find_spec(module.__name__)
    assert spec is not None and spec.loader is not None
    twin = importlib.util.module_from_spec(spec)
    replaced = sys.modules.pop(accelerator, None)
    sys.modules[accelerator] = None  # type: ignore[assignment]
    try:
        spec.loader.exec_module(twin)
    finally:
        del sys.modules[accelerator]
        if replaced is not None:
            sys.modules[accelerator] = replaced
    return twin


def _as(function: types.FunctionType) -> Callable[..., Value]:
    def call(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        return wrap(tx, function, ConstSource(function)).call(tx, args, kwargs)

    return call


for _module, _accelerator in ((heapq, "_heapq"), (bisect, "_bisect")):
    for _name, _function in vars(written_in_python(_module, _accelerator)).items():
        _fast = getattr(_module, _name)
        if isinstance(_fast, types.BuiltinFunctionType) and isinstance(_function, types.FunctionType):
            CALLS[_fast] = _as(_function)

# -- wrappers --------------------------------------------------------------------------------------------


def look_through(tx: Machine, value: FunctionValue, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """A call of what the wrapper wraps."""
    return value.get_attr(tx, "__wrapped__").call(tx, args, kwargs)


def _nothing() -> None:
    """What the decorators below are tried on."""


#: Keeps another compiler away from torch's own functions, by importing it.
CODES[torch._compile._disable_dynamo(_nothing).__code__] = look_through

if hasattr(dataclasses, "_recursive_repr"):  # until 3.12
    CODES[dataclasses._recursive_repr(_nothing).__code__] = look_through


def dispatch(tx: Machine, value: FunctionValue, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """`f.dispatch(cls)` of a function made by `functools.singledispatch`."""
    if value.function is None or not all_constant(args):
        return tx.inline(value, args, kwargs)
    return ask(tx, value.function, args)


CODES[functools.singledispatch(look_through).dispatch.__code__] = dispatch


# -- operator ----------------------------------------------------------------------------------------------

GETTERS = (operator.itemgetter, operator.attrgetter, operator.methodcaller)
CONSTANT_CLASSES.update(GETTERS)


@value_class
class GetterValue(PinnedValue):
    """`itemgetter(…)`, `attrgetter(…)` or `methodcaller(…)`."""

    kind = "a getter"

    def call(self, tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        cls, parts = self.obj.__reduce__()[:2]
        if kwargs or len(args) != 1 or not isinstance(cls, type):
            raise self.refuse("these arguments")
        if cls is operator.methodcaller:
            name, *rest = parts
            return args[0].get_attr(tx, name).call(tx, [fresh(item) for item in rest], {})
        found = [self._get(tx, args[0], part) for part in parts]
        return found[0] if len(found) == 1 else tx.build.make_tuple(found)

    def _get(self, tx: Machine, value: Value, part: Any) -> Value:
        if isinstance(self.obj, operator.itemgetter):
            return value.get_item(tx, fresh(part))
        for name in part.split("."):
            value = value.get_attr(tx, name)
        return value


makes(*GETTERS)(GetterValue)


@builds(*GETTERS)
def build_getter(tx: Machine, obj: Any, source: Source) -> Value:
    """A getter is known by identity."""
    watch.identity(tx, source, obj)
    return GetterValue(obj, source=source)


# -- functools and types -----------------------------------------------------------------------------------


@value_class
class OrderedKey(Object):
    """What `functools.cmp_to_key(f)` makes of an item: compared by `f`."""

    kind = "a sort key"

    function: Value = part()
    item: Value = part()

    def python_type(self) -> type:
        return _Key

    def compare(self, tx: Machine, op: str, other: Value) -> Value | None:
        if not isinstance(other, OrderedKey):
            return None
        return operators.compare(tx, op, self.function.call(tx, (self.item, other.item), {}), fresh(0))


@value_class
class KeyMaker(Object):
    """`functools.cmp_to_key(f)`."""

    kind = "a key function"

    function: Value = part()

    def python_type(self) -> type:
        return _Key

    def call(self, tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        return OrderedKey(self.function, args[0])

    def reconstruct(self, out: Assembler) -> None:
        out.call(functools.cmp_to_key, self.function)


@handles(functools.cmp_to_key)
def call_cmp_to_key(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """`functools.cmp_to_key(f)`."""
    return KeyMaker(args[0] if args else kwargs["mycmp"])


@handles(types.MethodType)
def call_method_type(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """`types.MethodType(function, instance)`."""
    return BoundMethodValue(args[0], args[1])


@handles(types.SimpleNamespace)
def call_namespace(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """`types.SimpleNamespace(**attributes)`."""
    made = UserObjectValue(types.SimpleNamespace)
    for name, value in [*(args[0].pairs(tx) if args else ()), *((fresh(key), item) for key, item in kwargs.items())]:
        made.namespace.put(tx, name, value)
    return made


@handles(collections._count_elements)  # type: ignore[attr-defined]
def call_count_elements(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """How `collections.Counter` counts."""
    mapping, items = args
    for item in items.unpack(tx):
        count = mapping.get_attr(tx, "get").call(tx, (item, fresh(0)), {})
        mapping.set_item(tx, item, operators.binary(tx, "+", count, fresh(1)))
    return NONE
