"""Python's builtin functions, one handler each.

A C function that has no handler runs for real when it is in the table of pure functions (`pure.py`) and
its arguments are known; otherwise it is refused.
Neighbours: `builtin_types.py` (int, list, dict… as constructors, itertools), `text.py` (`repr`, `format`), `caches.py`
(functions under `lru_cache`), `iterators.py` (what `zip` and the like give), `operators.py`.
"""

from __future__ import annotations

import builtins
import functools
import operator
import re
import types
from collections import deque
from typing import TYPE_CHECKING, Any

from stator.base.errors import GraphBreak
from stator.capture.fields import value_class
from stator.capture.generators import exhausted
from stator.capture.source import AttrSource, ConstSource
from stator.capture.value import Raised, Value
from stator.capture.values import watch
from stator.capture.values.base import Builtin, PinnedValue
from stator.capture.values.fold import all_constant, fold
from stator.capture.values.lookup import MISSING, look_up, static_attribute
from stator.capture.values.methods import find_method
from stator.capture.values.mirror import apply, by_python, models
from stator.capture.values.python import operators, real
from stator.capture.values.python.constant import FALSE, NONE, boolean
from stator.capture.values.python.containers.lists import ListValue, ReversedList
from stator.capture.values.python.containers.mapping import DictValue
from stator.capture.values.python.containers.sequence import TupleValue
from stator.capture.values.python.containers.sets import SetValue
from stator.capture.values.python.iterators import ItemsIterator
from stator.capture.values.python.library.caches import call_cached
from stator.capture.values.python.library.class_checks import is_instance, is_subclass
from stator.capture.values.python.library.iterators import CallableIterator, Enumerate, Filter, Zip
from stator.capture.values.python.objects.function import BoundMethodValue
from stator.capture.values.python.objects.user_object import UserObjectValue
from stator.capture.values.python.symbolic import EXACT, extreme
from stator.capture.values.registry import LITERALS, builds, fresh, handler_of, handles, makes, wrap
from stator.capture.values.watch import IMMUTABLE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from stator.capture.machine import Machine
    from stator.capture.source import Source


#: C functions that may run at capture when their arguments are known; filled by `pure.py`.
PURE: set[Any] = set()


@value_class
class BuiltinValue(PinnedValue):
    """A C function."""

    kind = "a builtin function"

    def call(self, tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        handler = handler_of(self.obj)
        if handler is not None:
            return handler(tx, args, kwargs)
        if not kwargs and self.obj in EXACT and any(arg.is_symbolic() for arg in args):
            return EXACT[self.obj](tx, args)
        if is_pure(self.obj) and not any(arg.in_graph for arg in (*args, *kwargs.values())):
            whole = all_constant(args, kwargs)
            return fold(tx, self.obj, args, kwargs) if whole else apply(tx, self.obj, args, kwargs)
        if isinstance(self.obj, functools._lru_cache_wrapper):
            return call_cached(tx, self, args, kwargs)
        owner = getattr(self.obj, "__self__", None)
        if isinstance(owner, type) and owner.__flags__ & IMMUTABLE:
            return apply(tx, self.obj, args, kwargs)  # a class method of a builtin type
        name = f"{getattr(self.obj, '__module__', None) or 'builtins'}.{getattr(self.obj, '__qualname__', '?')}"
        raise GraphBreak(f"calling the C function {name} is not supported", "call it outside of the compiled function")

    def descriptor_get(self, tx: Machine, instance: Value | None, cls: type) -> Value:
        """A cached function on a class binds like a function; a C function does not."""
        if instance is None or not isinstance(self.obj, functools._lru_cache_wrapper):
            return self
        return BoundMethodValue(self, instance)


def is_pure(function: Any) -> bool:
    """Whether it may run at capture; unhashable callables may not."""
    owner = getattr(function, "__self__", None)
    if isinstance(owner, re.Pattern | re.Match) or (isinstance(owner, type) and owner in LITERALS):
        return True  # `str.maketrans`, and methods that were taken off their constant
    try:
        return function in PURE
    except TypeError:
        return False


@builds(types.BuiltinFunctionType, functools._lru_cache_wrapper, types.MethodWrapperType)
def build_builtin(tx: Machine, obj: Any, source: Source) -> Value:
    """A C function is known by identity; a bound method by what it is bound to, if that has it by its name."""
    owner = getattr(obj, "__self__", None)
    bound = owner is not None and not isinstance(owner, types.ModuleType | type) and bool(obj.__name__)
    if not bound or isinstance(obj, functools._lru_cache_wrapper):
        watch.identity(tx, source, obj)
        return BuiltinValue(obj, source=source)
    watch.type_of(tx, source, type(obj))
    watch.equals(tx, AttrSource(source, "__name__"), obj.__name__)
    return wrap(tx, owner, AttrSource(source, "__self__")).get_attr(tx, obj.__name__)


makes(types.BuiltinFunctionType, functools._lru_cache_wrapper, types.MethodWrapperType)(BuiltinValue)


# -- attributes ----------------------------------------------------------------------------------------


def is_attribute_error(raised: Raised) -> bool:
    """Whether the program has just met an AttributeError."""
    return issubclass(raised.value.python_type(), AttributeError)


def attribute_name(value: Value) -> str | None:
    """The name of an attribute, where it is one."""
    name = value.constant() if value.is_constant() else None
    return name if isinstance(name, str) else None


@models(getattr)
def call_getattr(tx: Machine, value: Value, attribute: Value, default: Value | None = None, /) -> Value | None:
    """`getattr(obj, name[, default])`."""
    name = attribute_name(attribute)
    if name is None:
        return None
    try:
        return value.get_attr(tx, name)
    except Raised as raised:
        if default is not None and is_attribute_error(raised):
            return default
        raise


@models(hasattr)
def call_hasattr(tx: Machine, value: Value, attribute: Value, /) -> Value | None:
    """`hasattr(obj, name)`."""
    name = attribute_name(attribute)
    if name is None:
        return None
    if value.is_symbolic() and value.python_type() in (int, float):
        return boolean(hasattr(value.python_type(), name))
    try:
        value.get_attr(tx, name)
    except Raised as raised:
        if is_attribute_error(raised):
            return boolean(False)
        raise
    return boolean(True)


@models(setattr)
def call_setattr(tx: Machine, value: Value, attribute: Value, item: Value, /) -> Value | None:
    """`setattr(obj, name, value)`."""
    name = attribute_name(attribute)
    if name is None:
        return None
    value.set_attr(tx, name, item)
    return NONE


@models(delattr)
def call_delattr(tx: Machine, value: Value, attribute: Value, /) -> Value | None:
    """`delattr(obj, name)`."""
    name = attribute_name(attribute)
    if name is None:
        return None
    value.del_attr(tx, name)
    return NONE


@handles(vars)
def call_vars(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """`vars(obj)`."""
    if len(args) != 1 or kwargs:
        raise GraphBreak("vars() without an argument is not supported")
    if isinstance(args[0], Builtin) or static_attribute(args[0].python_type(), "__dict__") is MISSING:
        return apply(tx, vars, args, mute=True)
    return args[0].get_attr(tx, "__dict__")


@models(callable)
def call_callable(tx: Machine, value: Value, /) -> Value:
    """`callable(obj)`."""
    return boolean(is_callable(tx, value))


def is_callable(tx: Machine, value: Value) -> bool:
    """Whether an object can be called."""
    if operators.is_foldable(value):
        return callable(value.constant())
    return look_up(tx, value.python_type(), "__call__") is not MISSING


# -- types ---------------------------------------------------------------------------------------------


@models(isinstance)
def call_isinstance(tx: Machine, value: Value, classes: Value, /) -> Value:
    """`isinstance(obj, classes)`, on the real object where there is one, else by its type."""
    if isinstance(classes, ListValue | DictValue | SetValue):
        return apply(tx, isinstance, (NONE, classes))
    if not classes.is_constant():
        raise classes.refuse("isinstance()")
    return boolean(is_instance(tx, value, classes.constant()))


@models(issubclass)
def call_issubclass(tx: Machine, cls: Value, classes: Value, /) -> Value:
    """`issubclass(cls, classes)`."""
    if not cls.is_constant() or not classes.is_constant():
        raise cls.refuse("issubclass()")
    return boolean(is_subclass(tx, cls.constant(), classes.constant()))


@handles(type)
def call_type(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """`type(obj)`; making classes is refused."""
    if len(args) != 1 or kwargs:
        raise GraphBreak("making a class inside of the compiled function is not supported")
    return fresh(args[0].python_type())


@models(id)
def call_id(tx: Machine, value: Value, /) -> Value:
    """`id(obj)` of an object that existed before, which is then guarded by identity."""
    real = value.constant() if value.is_constant() else getattr(value, "real", None)
    if real is None or value.source is None:
        raise value.refuse("id()")
    watch.identity(tx, value.source, real)
    return fresh(id(real))


# -- sizes and items -----------------------------------------------------------------------------------


models(operator.length_hint)(by_python)


@models(len)
def call_len(tx: Machine, value: Value, /) -> Value:
    """`len(obj)`."""
    return value.by_builtin(tx, len) or fresh(value.length(tx))


@models(iter)
def call_iter(tx: Machine, value: Value, sentinel: Value | None = None, /) -> Value | None:
    """`iter(obj)` and `iter(function, sentinel)`."""
    if sentinel is None:
        return value.iterate(tx)
    if not is_callable(tx, value):
        return None
    return CallableIterator(value, sentinel, operators.equal)


@models(next)
def call_next(tx: Machine, iterator: Value, default: Value | None = None, /) -> Value | None:
    """`next(iterator[, default])`."""
    if look_up(tx, iterator.python_type(), "__next__") is MISSING:
        return apply(tx, next, (iterator,), mute=True)
    item = iterator.next_item(tx)
    if item is not None:
        return item
    if default is None:
        raise exhausted(tx, iterator)
    return default


@models(enumerate)
def call_enumerate(tx: Machine, iterable: Value, start: Value | None = None, /, **named: Value) -> Value | None:
    """`enumerate(iterable, start)`."""
    if named and (start is not None or named.keys() != {"start"}):
        return None
    start = named.get("start", start)
    number = 0 if start is None else start.constant() if start.is_constant() else None
    if not isinstance(number, int) or type(number).__index__ is not int.__index__:
        return None
    return Enumerate(iterable.iterate(tx), operator.index(number), TupleValue)


@models(zip)
def call_zip(tx: Machine, /, *iterables: Value, strict: Value = FALSE) -> Value | None:
    """`zip(*iterables, strict=…)`."""
    exact = strict.truth(tx)
    inner = iterators(tx, iterables)
    return None if inner is None else Zip(inner, lambda tx, items: TupleValue(items), zip, exact)


def iterators(tx: Machine, iterables: Sequence[Value]) -> list[Value] | None:
    """Their iterators; None where one of them, by its type, is not iterable."""
    if any(not is_iterable(tx, iterable.python_type()) for iterable in iterables):
        return None
    return [iterable.iterate(tx) for iterable in iterables]


def is_iterable(tx: Machine, cls: type) -> bool:
    """Whether objects of a class may be iterable."""
    return any(look_up(tx, cls, name) is not MISSING for name in ("__iter__", "__getitem__"))


@models(map)
def call_map(tx: Machine, function: Value, first: Value, /, *more: Value) -> Value | None:
    """`map(function, *iterables)`."""
    join = lambda tx, items: function.call(tx, items, {})  # noqa: E731
    inner = iterators(tx, (first, *more))
    return None if inner is None else Zip(inner, join, map, function=function)


@models(filter)
def call_filter(tx: Machine, test: Value, iterable: Value, /) -> Value:
    """`filter(test, iterable)`."""
    return Filter(test, predicate(test), iterable.iterate(tx))


def predicate(test: Value) -> Callable[[Machine, Value], bool]:
    """The test of `filter`; None asks for truth."""
    if test.is_none():
        return lambda tx, item: item.truth(tx)
    return lambda tx, item: test.call(tx, (item,), {}).truth(tx)


@models(reversed)
def call_reversed(tx: Machine, value: Value, /) -> Value | None:
    """`reversed(obj)`."""
    cls = value.python_type()
    written = look_up(tx, cls, "__reversed__")
    sequence = all(look_up(tx, cls, name) is not MISSING for name in ("__len__", "__getitem__"))
    if written is None or (written is MISSING and not sequence):
        return apply(tx, reversed, (value,), mute=True)
    if isinstance(value, UserObjectValue):
        result = value.special(tx, "__reversed__")
        if result is not None:
            return result
    elif type(value) is not ListValue and find_method(value, "__reversed__") is not None:
        return value.get_attr(tx, "__reversed__").call(tx, (), {})
    if issubclass(cls, dict | set | frozenset):
        return None
    if type(value) is ListValue:
        return ReversedList(value, len(value.values(tx)) - 1)
    items = [value.get_item(tx, fresh(index)) for index in range(value.length(tx))]
    kinds: dict[type, type] = {range: type(reversed(range(0))), deque: type(reversed(deque()))}
    return ItemsIterator(items[::-1], kinds.get(cls, reversed), remade=(reversed, [value]))


models(sorted)(by_python)


# -- folds ---------------------------------------------------------------------------------------------


@models(sum)
def call_sum(tx: Machine, iterable: Value, first: Value | None = None, /, **named: Value) -> Value | None:
    """`sum(iterable, start)`."""
    if named and (first is not None or named.keys() != {"start"}):
        return None
    total = named.get("start", first) or fresh(0)
    if issubclass(total.python_type(), str | bytes | bytearray):
        return None
    for item in iterable.unpack(tx):
        total = operators.binary(tx, "+", total, item)
    return total


@models(any)
def call_any(tx: Machine, iterable: Value, /) -> Value:
    """`any(iterable)`, stopping early."""
    iterator = iterable.iterate(tx)
    while (item := iterator.next_item(tx)) is not None:
        if item.truth(tx):
            return boolean(True)
    return boolean(False)


@models(all)
def call_all(tx: Machine, iterable: Value, /) -> Value:
    """`all(iterable)`, stopping early."""
    iterator = iterable.iterate(tx)
    while (item := iterator.next_item(tx)) is not None:
        if not item.truth(tx):
            return boolean(False)
    return boolean(True)


def _extreme(function: Any, op: str) -> Callable[..., Value | None]:
    def call(
        tx: Machine, first: Value, /, *more: Value, key: Value = NONE, default: Value | None = None
    ) -> Value | None:
        if more and default is not None:
            return None
        items = [first, *more] if more else first.unpack(tx)
        if not items:
            return default or apply(tx, function, (TupleValue([]),))
        plain = key.is_none()
        symbolic = (real.extreme(tx, op, items) or extreme(op, items)) if plain and len(items) > 1 else None
        if symbolic is not None:
            return symbolic
        best, best_key = items[0], items[0] if plain else key.call(tx, (items[0],), {})
        for item in items[1:]:
            item_key = item if plain else key.call(tx, (item,), {})
            if operators.compare(tx, op, item_key, best_key).truth(tx):
                best, best_key = item, item_key
        return best

    return call


models(max)(_extreme(max, ">"))
models(min)(_extreme(min, "<"))


# -- numbers -------------------------------------------------------------------------------------------


def _computing(function: Any) -> None:
    """A builtin that computes: symbolically, at capture, in the graph, or by the special methods of its operands."""

    def call(tx: Machine, /, *args: Value, **kwargs: Value) -> Value | None:
        if not kwargs and function in EXACT and any(arg.is_symbolic() for arg in args):
            return EXACT[function](tx, args)
        if all_constant(args, kwargs):
            return fold(tx, function, args, kwargs)
        return args[0].by_builtin(tx, function, *args[1:], **kwargs) if args else None

    models(function)(call)


for _function in (abs, round, divmod, pow):
    _computing(_function)


@models(hash)
def call_hash(tx: Machine, value: Value, /) -> Value:
    """`hash(obj)`."""
    return operators.hash_of(tx, value)


# -- text ----------------------------------------------------------------------------------------------


@handles(print, input, builtins.open, builtins.eval, builtins.exec, builtins.compile, globals, locals, breakpoint)
def call_outside(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """What reaches outside of the program."""
    raise GraphBreak(
        "the program prints, reads, or looks at its own frames here", "do it outside of the compiled function"
    )


@handles(dir)
def call_dir(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """`dir(obj)` of an object that existed before."""
    real = args[0].constant() if args and args[0].is_constant() else getattr(args[0] if args else None, "real", None)
    if real is None:
        raise GraphBreak("dir() of an object made inside of the compiled function is not supported")
    names = dir(real)
    tx.guard("CALL", args[0].source or ConstSource(real), (dir, names))
    return fresh(list(names))
