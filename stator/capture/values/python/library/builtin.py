"""Python's builtin functions, one handler each.

A C function that has no handler runs for real when it is in the table of pure functions (`pure.py`) and
its arguments are known; otherwise it is refused.
Neighbours: `builtin_types.py` (int, list, dict… as constructors, itertools), `operators.py`.
"""

from __future__ import annotations

import builtins
import functools
import operator
import re
import types
from collections import deque
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._pytree import tree_leaves

from stator.base.errors import GraphBreak
from stator.capture.fields import value_class
from stator.capture.generators import exhausted
from stator.capture.source import AttrSource, ConstSource
from stator.capture.value import Raised, Value
from stator.capture.values import watch
from stator.capture.values.base import Builtin, PinnedValue, bind_static, call_written
from stator.capture.values.fold import Question, all_constant, ask, fold, run
from stator.capture.values.lookup import MISSING, look_up, static_attribute
from stator.capture.values.methods import find_method
from stator.capture.values.mirror import answering, apply, by_python, models
from stator.capture.values.python import operators, real
from stator.capture.values.python.constant import FALSE, NONE, boolean
from stator.capture.values.python.containers.mapping import DictValue
from stator.capture.values.python.containers.sequence import ListValue, ReversedList, TupleValue
from stator.capture.values.python.containers.sets import SetValue
from stator.capture.values.python.iterators import CallableIterator, Enumerate, Filter, ItemsIterator, Zip
from stator.capture.values.python.library.class_checks import is_instance, is_subclass
from stator.capture.values.python.objects.exception import ExceptionValue
from stator.capture.values.python.objects.function import BoundMethodValue
from stator.capture.values.python.objects.user_object import UserObjectValue
from stator.capture.values.python.symbolic import EXACT, SymbolicValue, extreme
from stator.capture.values.registry import LITERALS, builds, fresh, handler_of, handles, makes, wrap
from stator.capture.values.watch import IMMUTABLE
from stator.sizes import hint

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


def call_cached(tx: Machine, value: BuiltinValue, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """`functools.lru_cache`: called now, as the program would; the same answer must be in the cache at later calls."""
    function = value.obj
    if any(is_new(tx, arg) for arg in (*args, *kwargs.values())):
        return value.get_attr(tx, "__wrapped__").call(tx, args, kwargs)  # no cache can know it
    if any(arg.is_symbolic() for arg in (*args, *kwargs.values())) and gives_numbers(tx, function, args, kwargs):
        return value.get_attr(tx, "__wrapped__").call(tx, args, kwargs)
    plain = [identified(tx, arg) for arg in args]
    named = {name: identified(tx, arg) for name, arg in kwargs.items()}
    if tx.graph.grad_enabled is not torch.is_grad_enabled() or tx.graph.open_contexts:
        raise GraphBreak(f"{function.__qualname__} is cached, and called under another mode than the whole function")
    result = run(tx, function, plain, named)
    question = Question(function, plain, named)
    tx.guard("CALL", ConstSource(function), (lambda _: question() is result, True))
    return wrap(tx, result, ConstSource(result))


def gives_numbers(tx: Machine, function: Any, args: Sequence[Value], kwargs: dict[str, Value]) -> bool:
    """Whether a cached function makes nothing but numbers of this call's, so that it may compute with symbolic ones."""
    plain = [now(tx, arg) for arg in args]
    named = {name: now(tx, arg) for name, arg in kwargs.items()}
    return all(type(leaf) in NUMBERS for leaf in tree_leaves(run(tx, function, plain, named)))


#: What a function may give for numbers, in containers or by itself.
NUMBERS = (int, float, bool, str, type(None))


def now(tx: Machine, value: Value) -> Any:
    """The object behind a value in the call at hand."""
    if isinstance(value, TupleValue) and value.cls in (tuple, torch.Size):
        return value.cls([now(tx, item) for item in value.items])
    if isinstance(value, SymbolicValue):
        return hint(value.size)
    return identified(tx, value)


def is_new(tx: Machine, value: Value) -> bool:
    """Whether the frame has made it, and it is equal to itself alone."""
    if not isinstance(value, UserObjectValue) or value.real is not None:
        return False
    return look_up(tx, value.cls, "__hash__") is object.__hash__


def identified(tx: Machine, value: Value) -> Any:
    """The object behind a value that is guarded by value or identity: by that, where it is how caches find it."""
    if value.is_constant():
        return value.constant()
    hashed: Any = value.cls.__hash__ if isinstance(value, UserObjectValue) and value.real is not None else None
    if isinstance(value, UserObjectValue) and hashed is object.__hash__:
        watch.identity(tx, value.source, value.real)
        return value.real
    raise GraphBreak(f"a cached function is called on {value.kind}", "call it outside of the compiled function")


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


def text_of_constant(tx: Machine, value: Value, function: Any, name: str) -> Value:
    """The text of what is known: by a method of the user's, and with the names that a class or function has now."""
    written = call_written(tx, value, name)
    if written is not None:
        return written
    named = isinstance(value, PinnedValue) or issubclass(value.python_type(), types.FunctionType | types.MethodType)
    return (ask if named else fold)(tx, function, (value,))


def text(tx: Machine, value: Value, function: Any) -> Value:
    """`str(value)` or `repr(value)`."""
    name = "__str__" if function is str else "__repr__"
    if value.is_constant():
        return text_of_constant(tx, value, function, name)
    if isinstance(value, UserObjectValue):
        raw = look_up(tx, value.cls, name)
        if name == "__str__" and getattr(raw, "__objclass__", None) is object:
            return text(tx, value, repr)
        if raw is not MISSING and getattr(raw, "__objclass__", None) is not object:
            result = value.special(tx, name)
            if result is not None:
                whole = issubclass(result.python_type(), str)
                return result if whole else answering(tx, function, value, name, result)
        raise value.refuse(f"{function.__name__}()")
    if isinstance(value, ExceptionValue):
        if isinstance(look_up(tx, value.python_type(), name), types.FunctionType):
            return bind_static(tx, value, value.python_type(), name).call(tx, (), {})
        return value.m___str__(tx) if function is str else value.m___repr__(tx)
    if (own := value.by_builtin(tx, function)) is not None:
        return own
    if isinstance(value, Builtin):
        return apply(tx, function, (value,))
    return fresh(function(value.snapshot()))


@models(repr)
def call_repr(tx: Machine, value: Value, /) -> Value:
    """`repr(obj)`."""
    return text(tx, value, repr)


@models(ascii)
def call_ascii(tx: Machine, value: Value, /) -> Value:
    """`ascii(obj)`: its `repr` with escapes."""
    return fresh(text(tx, value, repr).constant().encode("ascii", "backslashreplace").decode())


@models(format)
def call_format(tx: Machine, value: Value, spec: Value | None = None, /) -> Value | None:
    """`format(obj, spec)`."""
    if value.is_constant() and (spec is None or spec.is_constant()):
        return None if isinstance(value, Builtin) else fold(tx, format, (value,) if spec is None else (value, spec))
    if isinstance(value, UserObjectValue):
        written = look_up(tx, value.cls, "__format__")
        if getattr(written, "__objclass__", None) is not object:
            result = value.special(tx, "__format__", fresh("") if spec is None else spec)
            if result is not None and not issubclass(result.python_type(), str):
                return answering(tx, format, value, "__format__", result)
            return result
    if spec is None or (spec.is_constant() and spec.constant() == ""):
        return text(tx, value, str)
    if isinstance(value, Builtin):
        return None
    raise value.refuse("format()")


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
