"""Builtin types as constructors (`int(x)`, `list(x)`, `dict(x)`…) and the functions of `operator` and `itertools`.

Invariant: an iterator made here is as lazy as its Python counterpart, so effects keep their order.
Neighbours: `builtin.py` (the builtin functions), `iterators.py` (what the constructors give).
"""

from __future__ import annotations

import collections
import itertools
import operator
import types
from typing import TYPE_CHECKING, Any

from stator.capture.values import operators
from stator.capture.values.base import MISSING, static_attribute
from stator.capture.values.builtin import predicate, text
from stator.capture.values.constant import NONE, SliceValue, boolean
from stator.capture.values.fold import fold, known
from stator.capture.values.iterators import (
    Accumulate,
    Chain,
    Counter,
    Cycle,
    Filter,
    ItemsIterator,
    Repeat,
    Slice,
    While,
    Zip,
)
from stator.capture.values.mapping import DictValue
from stator.capture.values.proxy import ProxyValue
from stator.capture.values.real import SymbolicFloat, make
from stator.capture.values.registry import fresh, handles
from stator.capture.values.sequence import DequeValue, ListValue, TupleValue
from stator.capture.values.sets import SetValue
from stator.capture.values.symbolic import SymbolicValue
from stator.capture.values.user_object import UserObjectValue

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from stator.capture.machine import Machine
    from stator.capture.value import Value

# -- numbers and text ----------------------------------------------------------------------------------


def _number(cls: type, method: str) -> None:
    def call(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        if cls is int and len(args) == 1 and isinstance(args[0], SymbolicValue):
            return args[0]
        if cls is float and len(args) == 1 and isinstance(args[0], SymbolicValue | SymbolicFloat):
            return args[0] if isinstance(args[0], SymbolicFloat) else make(tx, args[0].sizes, "float", args[0])
        if known(args) and known(kwargs.values()):
            return fold(tx, cls, args, kwargs)
        if not args or kwargs or static_attribute(args[0].python_type(), method) is MISSING:
            tx.raise_roughly(TypeError, f"{cls.__name__}() argument must be a number")
        return args[0].get_attr(tx, method).call(tx, (), {})

    handles(cls)(call)


for _cls, _method in ((int, "__int__"), (float, "__float__"), (complex, "__complex__")):
    _number(_cls, _method)


@handles(bool)
def call_bool(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """`bool(x)`."""
    return boolean(bool(args) and args[0].truth(tx))


@handles(str)
def call_str(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """`str(x)`."""
    if len(args) != 1 or kwargs:
        return fold(tx, str, args, kwargs)
    return text(tx, args[0], str)


def _folded(cls: type) -> None:
    handles(cls)(lambda tx, args, kwargs: fold(tx, cls, args, kwargs))


_folded(bytes)
_folded(range)


@handles(object)
def call_object(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """`object()`: a new identity."""
    return UserObjectValue(object)


@handles(slice)
def call_slice(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """`slice(…)`."""
    if len(args) == 1:
        return SliceValue(NONE, args[0], NONE)
    start, stop, *rest = args
    return SliceValue(start, stop, rest[0] if rest else NONE)


# -- containers ----------------------------------------------------------------------------------------


@handles(tuple)
def call_tuple(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """`tuple(iterable)`; a tuple is itself."""
    if args and isinstance(args[0], TupleValue) and args[0].cls is tuple:
        return args[0]
    return TupleValue(args[0].unpack(tx) if args else ())


@handles(list)
def call_list(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """`list(iterable)`."""
    return ListValue(args[0].unpack(tx) if args else [])


def _set(cls: type) -> None:
    handles(cls)(lambda tx, args, kwargs: SetValue.of(tx, args[0].unpack(tx) if args else (), cls))


_set(set)
_set(frozenset)


def _dict(cls: type) -> None:
    def call(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        made = DictValue((), cls)
        made.m_update(tx, *args, **kwargs)
        return made

    handles(cls)(call)


_dict(dict)
_dict(collections.OrderedDict)


@handles(collections.defaultdict)
def call_defaultdict(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """`defaultdict(factory, …)`."""
    factory, rest = (args[0], args[1:]) if args else (NONE, ())
    plain = factory.is_none()
    made = DictValue((), collections.defaultdict, factory=None if plain else factory)
    made.m_update(tx, *rest, **kwargs)
    return made


@handles(collections.deque)
def call_deque(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """`deque(iterable, maxlen)`."""
    limit = args[1] if len(args) > 1 else kwargs.get("maxlen", NONE)
    items = args[0].unpack(tx) if args else []
    if limit.constant() is not None:
        items = items[max(0, len(items) - limit.constant()) :]
    return DequeValue(items, limit=limit.constant())


@handles(types.MappingProxyType)
def call_proxy(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """`MappingProxyType(dict)`."""
    inner = getattr(args[0], "storage", None) or args[0]
    if not isinstance(inner, DictValue):
        raise args[0].refuse("a mapping proxy")
    return ProxyValue(inner)


def fromkeys(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """`dict.fromkeys(keys, value)`."""
    cls, keys, *rest = args
    made = DictValue((), cls.constant())
    for key in keys.unpack(tx):
        made.put(tx, key, rest[0] if rest else NONE)
    return made


handles(dict.__dict__["fromkeys"], collections.OrderedDict.__dict__["fromkeys"])(fromkeys)


# -- operator ------------------------------------------------------------------------------------------


def _operator(function: Any, operation: Callable[..., Value], op: str) -> None:
    handles(function)(lambda tx, args, kwargs: operation(tx, op, *args))


for _table, _operation in (
    (operators.BINARY, operators.binary),
    (operators.INPLACE, operators.inplace),
    (operators.COMPARE, operators.compare),
    (operators.UNARY, operators.unary),
):
    for _op, _real in _table.items():
        _operator(_real, _operation, _op)

handles(operator.not_)(lambda tx, args, kwargs: operators.negate(tx, args[0]))
handles(operator.truth)(lambda tx, args, kwargs: boolean(args[0].truth(tx)))
handles(operator.is_)(lambda tx, args, kwargs: boolean(operators.identical(tx, *args)))
handles(operator.is_not)(lambda tx, args, kwargs: boolean(not operators.identical(tx, *args)))
handles(operator.contains)(lambda tx, args, kwargs: operators.contains(tx, args[1], args[0]))
handles(operator.getitem)(lambda tx, args, kwargs: args[0].get_item(tx, args[1]))


@handles(operator.setitem)
def call_setitem(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """`operator.setitem(container, key, value)`."""
    args[0].set_item(tx, args[1], args[2])
    return NONE


@handles(operator.delitem)
def call_delitem(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """`operator.delitem(container, key)`."""
    args[0].del_item(tx, args[1])
    return NONE


# -- itertools -----------------------------------------------------------------------------------------


@handles(itertools.chain)
def call_chain(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """`chain(*iterables)`."""
    return Chain(ItemsIterator(list(args)), itertools.chain)


@handles(itertools.chain.__dict__["from_iterable"])
def call_chain_from(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """`chain.from_iterable(iterables)`."""
    return Chain(args[-1].iterate(tx), itertools.chain)


@handles(itertools.count)
def call_count(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """`count(start, step)`."""
    start = args[0] if args else kwargs.get("start", fresh(0))
    step = args[1] if len(args) > 1 else kwargs.get("step", fresh(1))
    return Counter(start.constant(), step.constant(), itertools.count)


@handles(itertools.repeat)
def call_repeat(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """`repeat(item, times)`."""
    times = args[1] if len(args) > 1 else kwargs.get("times", NONE)
    return Repeat(args[0], times.constant(), itertools.repeat)


@handles(itertools.starmap)
def call_starmap(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """`starmap(function, iterable)`."""
    function = args[0]
    join = lambda tx, items: function.call(tx, items[0].unpack(tx), {})  # noqa: E731
    return Zip([args[1].iterate(tx)], join, itertools.starmap, function=function)


@handles(itertools.filterfalse)
def call_filterfalse(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """`filterfalse(test, iterable)`."""
    return Filter(args[0], predicate(args[0]), args[1].iterate(tx), keep=False)


@handles(itertools.islice)
def call_islice(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """`islice(iterable, …)`."""
    bounds = slice(*(arg.constant() for arg in args[1:]))
    start, stop, step = bounds.start or 0, bounds.stop, bounds.step or 1
    inner = args[0].iterate(tx)
    return Slice(inner, start, stop, step)


@handles(itertools.accumulate)
def call_accumulate(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """`accumulate(iterable, function, initial=…)`."""
    function = args[1] if len(args) > 1 else kwargs.get("func", NONE)
    initial = kwargs.get("initial", NONE)

    def join(tx: Machine, total: Value, item: Value) -> Value:
        return operators.binary(tx, "+", total, item) if function.is_none() else function.call(tx, (total, item), {})

    return Accumulate(function, join, args[0].iterate(tx), None if initial.is_none() else initial)


@handles(itertools.zip_longest)
def call_zip_longest(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """`zip_longest(*iterables, fillvalue=…)`."""
    rows = itertools.zip_longest(*(arg.unpack(tx) for arg in args), fillvalue=kwargs.get("fillvalue", NONE))
    return ItemsIterator([TupleValue(row) for row in rows], itertools.zip_longest)


@handles(itertools.takewhile)
def call_takewhile(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """`takewhile(test, iterable)`."""
    return While(args[0], predicate(args[0]), args[1].iterate(tx), keep=True)


@handles(itertools.dropwhile)
def call_dropwhile(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """`dropwhile(test, iterable)`."""
    return While(args[0], predicate(args[0]), args[1].iterate(tx), keep=False)


def _combinatoric(function: Callable[..., Any]) -> None:
    """`product`, `permutations`…: the iterables are read at once, as Python does."""

    def call(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        plain = {name: value.constant() for name, value in kwargs.items()}
        split = len(args) if function is itertools.product else 1
        pools = [arg.unpack(tx) for arg in args[:split]]
        rest = [arg.constant() for arg in args[split:]]
        rows = function(*pools, *rest, **plain)
        return ItemsIterator([TupleValue(row) for row in rows], function)  # type: ignore[arg-type]

    handles(function)(call)


for _function in (
    itertools.product, itertools.permutations, itertools.combinations,
    itertools.combinations_with_replacement, itertools.pairwise,
):  # fmt: skip
    _combinatoric(_function)


@handles(itertools.cycle)
def call_cycle(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """`cycle(iterable)`."""
    return Cycle(args[0].unpack(tx))
