"""The special methods of builtin types, as operations of values; and whether a call fits the function that models it.

Every function that models a call takes what the machine gives it (the object, `tx`) and what Python takes by position
only as positional-only parameters, so that no keyword of a program can meet one of our names (`tests/meta` holds it).
A call that does not fit, or that a model declines by returning None, is Python's to decide: see `mirror.py`.
Neighbours: `base.py` (method lookup), `mirror.py`.
"""

from __future__ import annotations

import functools
import inspect
import operator
import types
from typing import TYPE_CHECKING, Any

from stator.capture.values.registry import fresh
from stator.capture.values.watch import IMMUTABLE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from stator.capture.machine import Machine
    from stator.capture.value import Value


def _next(value: Value, tx: Machine, /) -> Value:
    item = value.next_item(tx)
    if item is None:
        tx.raise_exception(StopIteration)
    return item


def _or_not_implemented(result: Value | None) -> Value:
    return fresh(NotImplemented) if result is None else result


def _none(_: None) -> Value:
    return fresh(None)


#: Operator text -> function.
UNARY: dict[str, Callable[[Any], Any]] = {"-": operator.neg, "+": operator.pos, "~": operator.invert}
COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt, "<=": operator.le, "==": operator.eq, "!=": operator.ne, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip

#: Special method -> how it is done on a value.
DUNDERS: dict[str, Callable[..., Value]] = {
    "__len__": lambda v, tx, /: fresh(v.length(tx)),
    "__bool__": lambda v, tx, /: fresh(v.truth(tx)),
    "__iter__": lambda v, tx, /: v.iterate(tx),
    "__next__": _next,
    "__getitem__": lambda v, tx, key, /: v.get_item(tx, key),
    "__setitem__": lambda v, tx, key, item, /: _none(v.set_item(tx, key, item)),
    "__delitem__": lambda v, tx, key, /: _none(v.del_item(tx, key)),
    "__contains__": lambda v, tx, item, /: v.contains(tx, item),
    "__call__": lambda v, tx, /, *args, **kwargs: v.call(tx, args, kwargs),
    "__getattribute__": lambda v, tx, name, /: v.get_attr(tx, attribute_name(tx, name)),
    "__setattr__": lambda v, tx, name, item, /: _none(v.set_attr(tx, attribute_name(tx, name), item)),
    "__delattr__": lambda v, tx, name, /: _none(v.del_attr(tx, attribute_name(tx, name))),
    "__neg__": lambda v, tx, /: v.unary(tx, "-"),
    "__pos__": lambda v, tx, /: v.unary(tx, "+"),
    "__invert__": lambda v, tx, /: v.unary(tx, "~"),
}

#: Special method -> (the operation of `Value`, the operator).
OPERATOR_DUNDERS: dict[str, tuple[str, str]] = {}
for _name, _op in {
    "add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%", "pow": "**",
    "matmul": "@", "and": "&", "or": "|", "xor": "^", "lshift": "<<", "rshift": ">>",
}.items():  # fmt: skip
    OPERATOR_DUNDERS[f"__{_name}__"] = ("binary", _op)
    OPERATOR_DUNDERS[f"__r{_name}__"] = ("binary_reflected", _op)
    OPERATOR_DUNDERS[f"__i{_name}__"] = ("inplace", _op)
for _name, _op in {"lt": "<", "le": "<=", "eq": "==", "ne": "!=", "gt": ">", "ge": ">="}.items():
    OPERATOR_DUNDERS[f"__{_name}__"] = ("compare", _op)


def _operation(value: Value, attribute: str, op: str, tx: Machine, other: Value, /) -> Value:
    return _or_not_implemented(getattr(value, attribute)(tx, op, other))


def find_method(value: Value, name: str) -> Callable[..., Value | None] | None:
    """The method of the builtin type that `value` models, as `method(tx, *args, **kwargs)`."""
    own = getattr(value, "m_" + name, None)
    if own is not None:
        return own
    dunder = DUNDERS.get(name)
    if dunder is not None:
        return functools.partial(dunder, value)
    operation = OPERATOR_DUNDERS.get(name)
    if operation is not None and not value.by_mirrors:
        return functools.partial(_operation, value, *operation)
    return None


#: Flag of classes that a class statement, or other code that runs, has made (CPython's Include/object.h).
HEAP_TYPE = 1 << 9


def type_name(cls: type) -> str:
    """How Python's messages name a class: those written in C with their module, but for the builtin ones.

    Those of extension modules may be on the heap too; what tells them from a program's is that nobody can change them.
    """
    written = cls.__flags__ & HEAP_TYPE and not cls.__flags__ & IMMUTABLE
    return cls.__name__ if written or cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__name__}"


def attribute_name(tx: Machine, value: Value) -> str:
    """The name of an attribute, which has to be a string."""
    name = value.constant() if issubclass(value.python_type(), str) else None
    if not isinstance(name, str):
        tx.raise_exception(TypeError, f"attribute name must be string, not {type_name(value.python_type())!r}")
    return name


def fits(method: Callable[..., Any], count: int, names: Iterable[str]) -> bool:
    """Whether a model takes this many arguments after `tx`, and keywords of these names."""
    given = 1 + count
    while not isinstance(method, types.FunctionType):
        if isinstance(method, functools.partial):
            given += len(method.args)
            method = method.func
        else:
            given += 1
            method = method.__func__  # type: ignore[attr-defined]
    code = method.__code__
    most = code.co_argcount
    if given < most - len(method.__defaults__ or ()) or (given > most and not code.co_flags & inspect.CO_VARARGS):
        return False
    if code.co_flags & inspect.CO_VARKEYWORDS:
        return True
    allowed = code.co_varnames[most : most + code.co_kwonlyargcount]
    return all(name in allowed for name in names)
