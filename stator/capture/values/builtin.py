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
from typing import TYPE_CHECKING, Any

import torch

from stator.base.errors import GraphBreak
from stator.capture.generators import exhausted
from stator.capture.source import AttrSource, ConstSource
from stator.capture.value import Raised, Value
from stator.capture.values import operators, real, watch
from stator.capture.values.base import MISSING, KnownValue, find_method, look_up
from stator.capture.values.class_checks import is_instance, is_subclass
from stator.capture.values.constant import NONE, boolean
from stator.capture.values.exception import ExceptionValue
from stator.capture.values.fold import Question, fold, known, run
from stator.capture.values.function import BoundMethodValue
from stator.capture.values.iterators import CallableIterator, Enumerate, Filter, ItemsIterator, Zip
from stator.capture.values.registry import LITERALS, builds, fresh, handler_of, handles, makes, wrap
from stator.capture.values.sequence import ListValue, TupleValue, sort
from stator.capture.values.symbolic import EXACT, extreme
from stator.capture.values.tensor import TensorValue, call_graph
from stator.capture.values.tensor_class import call_override
from stator.capture.values.unknown_text import UnknownTextValue
from stator.capture.values.user_object import UserObjectValue

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from stator.capture.machine import Machine
    from stator.capture.source import Source


#: C functions that may run at capture when their arguments are known; filled by `pure.py`.
PURE: set[Any] = set()


class BuiltinValue(KnownValue):
    """A C function."""

    __slots__ = ()
    kind = "a builtin function"

    def call(self, tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        handler = handler_of(self.obj)
        if handler is not None:
            return handler(tx, args, kwargs)
        if not kwargs and self.obj in EXACT and any(arg.is_symbolic() for arg in args):
            return EXACT[self.obj](tx, args)
        if is_pure(self.obj) and not any(isinstance(arg, TensorValue) for arg in (*args, *kwargs.values())):
            return fold(tx, self.obj, args, kwargs)
        if isinstance(self.obj, functools._lru_cache_wrapper):
            return call_cached(tx, self, args, kwargs)
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
    if any(is_new(arg) for arg in (*args, *kwargs.values())):
        return value.get_attr(tx, "__wrapped__").call(tx, args, kwargs)  # no cache can know it
    plain = [identified(arg) for arg in args]
    named = {name: identified(arg) for name, arg in kwargs.items()}
    if tx.graph.grad_enabled is not torch.is_grad_enabled() or tx.graph.open_contexts:
        raise GraphBreak(f"{function.__qualname__} is cached, and called under another mode than the whole function")
    result = run(tx, function, plain, named)
    question = Question(function, plain, named)
    tx.guard("CALL", ConstSource(function), (lambda _: question() is result, True))
    return wrap(tx, result, ConstSource(result))


def is_new(value: Value) -> bool:
    """Whether the frame has made it, and it is equal to itself alone."""
    if not isinstance(value, UserObjectValue) or value.real is not None:
        return False
    hashed: Any = value.cls.__hash__
    return hashed is object.__hash__


def identified(value: Value) -> Any:
    """The object behind a value that is guarded by value or identity."""
    if value.is_constant():
        return value.constant()
    if isinstance(value, UserObjectValue) and isinstance(value.real, torch.nn.Module):
        return value.real
    raise GraphBreak(f"a cached function is called on {value.kind}", "call it outside of the compiled function")


@builds(types.BuiltinFunctionType, functools._lru_cache_wrapper, types.MethodWrapperType)
def build_builtin(tx: Machine, obj: Any, source: Source) -> Value:
    """A C function is known by identity; a bound method by what it is bound to."""
    owner = getattr(obj, "__self__", None)
    if owner is None or isinstance(owner, types.ModuleType | type) or isinstance(obj, functools._lru_cache_wrapper):
        watch.identity(tx, source, obj)
        return BuiltinValue(obj, source)
    watch.type_of(tx, source, type(obj))
    watch.equals(tx, AttrSource(source, "__name__"), obj.__name__)
    return wrap(tx, owner, AttrSource(source, "__self__")).get_attr(tx, obj.__name__)


makes(types.BuiltinFunctionType, functools._lru_cache_wrapper, types.MethodWrapperType)(BuiltinValue)


# -- attributes ----------------------------------------------------------------------------------------


def is_attribute_error(raised: Raised) -> bool:
    """Whether the program has just met an AttributeError."""
    return issubclass(raised.value.python_type(), AttributeError)


@handles(getattr)
def call_getattr(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """`getattr(obj, name[, default])`."""
    name = args[1].constant()
    if len(args) == 2:
        return args[0].get_attr(tx, name)
    try:
        return args[0].get_attr(tx, name)
    except Raised as raised:
        if is_attribute_error(raised):
            return args[2]
        raise


@handles(hasattr)
def call_hasattr(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """`hasattr(obj, name)`."""
    try:
        args[0].get_attr(tx, args[1].constant())
    except Raised as raised:
        if is_attribute_error(raised):
            return boolean(False)
        raise
    return boolean(True)


@handles(setattr)
def call_setattr(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """`setattr(obj, name, value)`."""
    args[0].set_attr(tx, args[1].constant(), args[2])
    return NONE


@handles(delattr)
def call_delattr(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """`delattr(obj, name)`."""
    args[0].del_attr(tx, args[1].constant())
    return NONE


@handles(vars)
def call_vars(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """`vars(obj)`."""
    if not args:
        raise GraphBreak("vars() without an argument is not supported")
    return args[0].get_attr(tx, "__dict__")


@handles(callable)
def call_callable(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """`callable(obj)`."""
    value = args[0]
    if operators.is_known(value):
        return boolean(callable(value.constant()))
    return boolean(look_up(tx, value.python_type(), "__call__") is not MISSING)


# -- types ---------------------------------------------------------------------------------------------


@handles(isinstance)
def call_isinstance(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """`isinstance(obj, classes)`, on the real object where there is one, else by its type."""
    value, classes = args
    if not classes.is_constant():
        raise classes.refuse("isinstance()")
    return boolean(is_instance(tx, value, classes.constant()))


@handles(issubclass)
def call_issubclass(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """`issubclass(cls, classes)`."""
    cls, classes = args
    if not cls.is_constant() or not classes.is_constant():
        raise cls.refuse("issubclass()")
    return boolean(is_subclass(tx, cls.constant(), classes.constant()))


@handles(type)
def call_type(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """`type(obj)`; making classes is refused."""
    if len(args) != 1 or kwargs:
        raise GraphBreak("making a class inside of the compiled function is not supported")
    return fresh(args[0].python_type())


@handles(id)
def call_id(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """`id(obj)` of an object that existed before, which is then guarded by identity."""
    value = args[0]
    real = value.constant() if value.is_constant() else getattr(value, "real", None)
    if real is None or value.source is None:
        raise value.refuse("id()")
    watch.identity(tx, value.source, real)
    return fresh(id(real))


# -- sizes and items -----------------------------------------------------------------------------------


@handles(len, operator.length_hint)
def call_len(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """`len(obj)`."""
    return fresh(args[0].extent(tx) if isinstance(args[0], TensorValue) else args[0].length(tx))


@handles(iter)
def call_iter(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """`iter(obj)` and `iter(function, sentinel)`."""
    if len(args) == 2:
        return CallableIterator(args[0], args[1], operators.equal)
    return args[0].iterate(tx)


@handles(next)
def call_next(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """`next(iterator[, default])`."""
    item = args[0].next_item(tx)
    if item is not None:
        return item
    if len(args) == 1:
        raise exhausted(tx, args[0])
    return args[1]


@handles(enumerate)
def call_enumerate(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """`enumerate(iterable, start)`."""
    start = args[1] if len(args) > 1 else kwargs.get("start", fresh(0))
    return Enumerate(args[0].iterate(tx), start.constant(), TupleValue)


@handles(zip)
def call_zip(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """`zip(*iterables, strict=…)`."""
    strict = "strict" in kwargs and kwargs["strict"].truth(tx)
    return Zip([arg.iterate(tx) for arg in args], lambda tx, items: TupleValue(items), zip, strict)


@handles(map)
def call_map(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """`map(function, *iterables)`."""
    function, *iterables = args
    join = lambda tx, items: function.call(tx, items, {})  # noqa: E731
    return Zip([arg.iterate(tx) for arg in iterables], join, map, function=function)


@handles(filter)
def call_filter(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """`filter(test, iterable)`."""
    return Filter(args[0], predicate(args[0]), args[1].iterate(tx))


def predicate(test: Value) -> Callable[[Machine, Value], bool]:
    """The test of `filter`; None asks for truth."""
    if test.is_none():
        return lambda tx, item: item.truth(tx)
    return lambda tx, item: test.call(tx, (item,), {}).truth(tx)


@handles(reversed)
def call_reversed(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """`reversed(obj)`."""
    value = args[0]
    if isinstance(value, UserObjectValue):
        result = value.special(tx, "__reversed__")
        if result is not None:
            return result
    elif find_method(value, "__reversed__") is not None:
        return value.get_attr(tx, "__reversed__").call(tx, (), {})
    items = [value.get_item(tx, fresh(index)) for index in range(value.length(tx))]
    return ItemsIterator(items[::-1], reversed)


@handles(sorted)
def call_sorted(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """`sorted(iterable, key=…, reverse=…)`."""
    reverse = "reverse" in kwargs and kwargs["reverse"].truth(tx)
    return ListValue(sort(tx, args[0].unpack(tx), kwargs.get("key", NONE), reverse))


# -- folds ---------------------------------------------------------------------------------------------


@handles(sum)
def call_sum(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """`sum(iterable, start)`."""
    total = args[1] if len(args) > 1 else kwargs.get("start", fresh(0))
    for item in args[0].unpack(tx):
        total = operators.binary(tx, "+", total, item)
    return total


@handles(any)
def call_any(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """`any(iterable)`, stopping early."""
    iterator = args[0].iterate(tx)
    while (item := iterator.next_item(tx)) is not None:
        if item.truth(tx):
            return boolean(True)
    return boolean(False)


@handles(all)
def call_all(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """`all(iterable)`, stopping early."""
    iterator = args[0].iterate(tx)
    while (item := iterator.next_item(tx)) is not None:
        if not item.truth(tx):
            return boolean(False)
    return boolean(True)


def _extreme(op: str) -> Callable[..., Value]:
    def call(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        items = list(args) if len(args) > 1 else args[0].unpack(tx)
        if not items:
            if "default" in kwargs:
                return kwargs["default"]
            tx.raise_roughly(ValueError, f"{'max' if op == '>' else 'min'}() iterable argument is empty")
        key = kwargs.get("key", NONE)
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


handles(max)(_extreme(">"))
handles(min)(_extreme("<"))


# -- numbers -------------------------------------------------------------------------------------------


def _by_method(function: Any, method: str) -> None:
    """A builtin that is a special method on everything but constants."""

    def call(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        if not kwargs and function in EXACT and any(arg.is_symbolic() for arg in args):
            return EXACT[function](tx, args)
        if known(args) and known(kwargs.values()):
            return fold(tx, function, args, kwargs)
        if isinstance(args[0], TensorValue):
            written = call_override(tx, args[0], method, *args[1:])
            return written or call_graph(tx, "call_function", function, args, kwargs)
        return args[0].get_attr(tx, method).call(tx, args[1:], kwargs)

    handles(function)(call)


for _function, _method in ((abs, "__abs__"), (round, "__round__"), (divmod, "__divmod__"), (pow, "__pow__")):
    _by_method(_function, _method)


@handles(hash)
def call_hash(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """`hash(obj)`."""
    return operators.hash_of(tx, args[0])


# -- text ----------------------------------------------------------------------------------------------


def text(tx: Machine, value: Value, function: Any) -> Value:
    """`str(value)` or `repr(value)`."""
    if value.is_constant():
        return fold(tx, function, (value,))
    name = "__str__" if function is str else "__repr__"
    if isinstance(value, UserObjectValue):
        raw = look_up(tx, value.cls, name)
        if name == "__str__" and getattr(raw, "__objclass__", None) is object:
            return text(tx, value, repr)
        if raw is not MISSING and getattr(raw, "__objclass__", None) is not object:
            result = value.special(tx, name)
            if result is not None:
                return result
        raise value.refuse(f"{function.__name__}()")
    if isinstance(value, ExceptionValue):
        return value.m___str__(tx) if function is str else value.m___repr__(tx)
    if isinstance(value, TensorValue | UnknownTextValue):
        return UnknownTextValue(tx)
    return fresh(function(value.snapshot()))


@handles(repr)
def call_repr(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """`repr(obj)`."""
    return text(tx, args[0], repr)


@handles(ascii)
def call_ascii(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """`ascii(obj)`: its `repr` with escapes."""
    return fresh(text(tx, args[0], repr).constant().encode("ascii", "backslashreplace").decode())


@handles(format)
def call_format(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """`format(obj, spec)`."""
    if known(args):
        return fold(tx, format, args)
    if len(args) == 1 or args[1].constant() == "":
        return text(tx, args[0], str)
    if isinstance(args[0], UserObjectValue):
        return args[0].get_attr(tx, "__format__").call(tx, args[1:], {})
    raise args[0].refuse("format()")


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
