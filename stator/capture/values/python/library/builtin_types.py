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

from stator.capture.values.fold import all_constant, fold, run
from stator.capture.values.methods import COMPARE, UNARY
from stator.capture.values.mirror import apply, by_python, models
from stator.capture.values.python import operators
from stator.capture.values.python.constant import NONE, SliceValue, boolean
from stator.capture.values.python.containers.lists import ListValue
from stator.capture.values.python.containers.mapping import DictValue
from stator.capture.values.python.containers.proxy import ProxyValue
from stator.capture.values.python.containers.sequence import TupleValue
from stator.capture.values.python.containers.sets import SetValue
from stator.capture.values.python.iterators import ItemsIterator
from stator.capture.values.python.library.builtin import is_callable, iterators, predicate
from stator.capture.values.python.library.iterators import (
    Accumulate,
    Chain,
    Counter,
    Cycle,
    Filter,
    Repeat,
    Slice,
    While,
    Zip,
)
from stator.capture.values.python.library.text import text
from stator.capture.values.python.objects.user_object import UserObjectValue
from stator.capture.values.python.real import SymbolicFloat, make
from stator.capture.values.python.symbolic import SymbolicValue
from stator.capture.values.registry import handles

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from stator.capture.machine import Machine
    from stator.capture.value import Value

# -- numbers and text ----------------------------------------------------------------------------------


def _number(cls: type) -> None:
    def call(tx: Machine, /, *args: Value, **kwargs: Value) -> Value | None:
        if cls is int and len(args) == 1 and not kwargs and isinstance(args[0], SymbolicValue):
            return args[0]
        if cls is float and len(args) == 1 and not kwargs and isinstance(args[0], SymbolicValue | SymbolicFloat):
            return args[0] if isinstance(args[0], SymbolicFloat) else make(tx, args[0].sizes, "float", args[0])
        if len(args) == 1 and not kwargs and args[0].in_graph and (read := args[0].by_builtin(tx, cls)) is not None:
            return read
        return folded(tx, cls, args, kwargs)

    models(cls)(call)


for _cls in (int, float, complex):
    _number(_cls)


def folded(tx: Machine, cls: type, args: Sequence[Value], kwargs: dict[str, Value]) -> Value | None:
    """A builtin class called on what is known."""
    return fold(tx, cls, args, kwargs) if all_constant(args, kwargs) else None


@models(bool)
def call_bool(tx: Machine, value: Value | None = None, /) -> Value:
    """`bool(x)`."""
    return boolean(value is not None and value.truth(tx))


@models(str)
def call_str(tx: Machine, /, *args: Value, **kwargs: Value) -> Value | None:
    """`str(x)`."""
    if len(args) == 1 and not kwargs:
        return text(tx, args[0], str)
    return folded(tx, str, args, kwargs)


def _folded(cls: type) -> None:
    models(cls)(lambda tx, /, *args, **kwargs: folded(tx, cls, args, kwargs))


_folded(bytes)
_folded(range)


@models(object)
def call_object(tx: Machine, /) -> Value:
    """`object()`: a new identity."""
    return UserObjectValue(object)


@models(slice)
def call_slice(tx: Machine, first: Value, /, *rest: Value) -> Value | None:
    """`slice(…)`."""
    match rest:
        case ():
            return SliceValue((NONE, first, NONE))
        case (stop,):
            return SliceValue((first, stop, NONE))
        case (stop, step):
            return SliceValue((first, stop, step))
    return None


# -- containers ----------------------------------------------------------------------------------------


@models(tuple)
def call_tuple(tx: Machine, iterable: Value | None = None, /) -> Value:
    """`tuple(iterable)`; a tuple is itself."""
    if isinstance(iterable, TupleValue) and iterable.cls is tuple:
        return iterable
    return TupleValue([] if iterable is None else iterable.unpack(tx))


@models(list)
def call_list(tx: Machine, iterable: Value | None = None, /) -> Value:
    """`list(iterable)`."""
    return ListValue([] if iterable is None else iterable.unpack(tx))


def _set(cls: type) -> None:
    @models(cls)
    def call(tx: Machine, iterable: Value | None = None, /) -> Value:
        if isinstance(iterable, SetValue) and iterable.cls is cls is frozenset:
            return iterable
        return SetValue.of(tx, () if iterable is None else iterable.unpack(tx), cls)


_set(set)
_set(frozenset)


def _dict(cls: type) -> None:
    @models(cls)
    def call(tx: Machine, other: Value | None = None, /, **named: Value) -> Value | None:
        made = DictValue((), cls)
        return None if made.m_update(tx, *([] if other is None else [other]), **named) is None else made


_dict(dict)
_dict(collections.OrderedDict)


@models(collections.defaultdict)
def call_defaultdict(tx: Machine, factory: Value = NONE, other: Value | None = None, /, **named: Value) -> Value | None:
    """`defaultdict(factory, …)`."""
    plain = factory.is_none()
    if not plain and not is_callable(tx, factory):
        return None
    made = DictValue((), collections.defaultdict, factory=None if plain else factory)
    return None if made.m_update(tx, *([] if other is None else [other]), **named) is None else made


models(collections.deque)(by_python)


@handles(types.MappingProxyType)
def call_proxy(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """`MappingProxyType(dict)`."""
    inner = (getattr(args[0], "storage", None) or args[0]) if args else None
    if len(args) != 1 or kwargs or not isinstance(inner, DictValue):
        return apply(tx, types.MappingProxyType, args, kwargs)
    return ProxyValue(inner)


# -- operator ------------------------------------------------------------------------------------------


def _operator(function: Any, operation: Callable[..., Value], op: str, count: int) -> None:
    def call(tx: Machine, /, *args: Value) -> Value | None:
        return operation(tx, op, *args) if len(args) == count else None

    models(function)(call)


for _table, _operation, _count in (
    (operators.BINARY, operators.binary, 2),
    (operators.INPLACE, operators.inplace, 2),
    (COMPARE, operators.compare, 2),
    (UNARY, operators.unary, 1),
):
    for _op, _real in _table.items():
        _operator(_real, _operation, _op, _count)

models(operator.not_)(lambda tx, value, /: operators.negate(tx, value))
models(operator.truth)(lambda tx, value, /: boolean(value.truth(tx)))
models(operator.is_)(lambda tx, left, right, /: boolean(operators.identical(tx, left, right)))
models(operator.is_not)(lambda tx, left, right, /: boolean(not operators.identical(tx, left, right)))
models(operator.contains)(lambda tx, container, item, /: boolean(operators.contains(tx, item, container).truth(tx)))
models(operator.getitem)(lambda tx, container, key, /: container.get_item(tx, key))


@models(operator.setitem)
def call_setitem(tx: Machine, container: Value, key: Value, item: Value, /) -> Value:
    """`operator.setitem(container, key, value)`."""
    container.set_item(tx, key, item)
    return NONE


@models(operator.delitem)
def call_delitem(tx: Machine, container: Value, key: Value, /) -> Value:
    """`operator.delitem(container, key)`."""
    container.del_item(tx, key)
    return NONE


# -- itertools -----------------------------------------------------------------------------------------


@models(itertools.chain)
def call_chain(tx: Machine, /, *iterables: Value) -> Value:
    """`chain(*iterables)`."""
    return Chain(ItemsIterator(list(iterables)), itertools.chain)


@models(itertools.chain.__dict__["from_iterable"])
def call_chain_from(tx: Machine, cls: Value, iterables: Value, /) -> Value:
    """`chain.from_iterable(iterables)`."""
    return Chain(iterables.iterate(tx), itertools.chain)


@models(itertools.count)
def call_count(tx: Machine, /, *args: Value, **named: Value) -> Value | None:
    """`count(start, step)`."""
    given = by_name(("start", "step"), args, named)
    if given is None or not all(is_number(value) for value in given.values()):
        return None
    start, step = (
        given[name].constant() if name in given else default for name, default in (("start", 0), ("step", 1))
    )
    return Counter(start, step, itertools.count)


def by_name(names: tuple[str, ...], args: Sequence[Value], named: dict[str, Value]) -> dict[str, Value] | None:
    """Arguments by the names of parameters that Python takes by position and by name; None where they do not fit."""
    if len(args) > len(names) or not named.keys() <= set(names[len(args) :]):
        return None
    return {**dict(zip(names, args, strict=False)), **named}


def is_number(value: Value) -> bool:
    """Whether it is a known number."""
    return value.is_constant() and type(value.constant()) in (int, float)


@models(itertools.repeat)
def call_repeat(tx: Machine, /, *args: Value, **named: Value) -> Value | None:
    """`repeat(item, times)`."""
    given = by_name(("object", "times"), args, named)
    if given is None or "object" not in given or not ("times" not in given or is_whole(given["times"])):
        return None
    return Repeat(given["object"], given["times"].constant() if "times" in given else None, itertools.repeat)


def is_whole(value: Value) -> bool:
    """Whether it is a known int."""
    return (
        value.is_constant() and isinstance(value.constant(), int) and type(value.constant()).__index__ is int.__index__
    )


@models(itertools.starmap)
def call_starmap(tx: Machine, function: Value, iterable: Value, /) -> Value:
    """`starmap(function, iterable)`."""
    join = lambda tx, items: function.call(tx, items[0].unpack(tx), {})  # noqa: E731
    return Zip([iterable.iterate(tx)], join, itertools.starmap, function=function)


@models(itertools.filterfalse)
def call_filterfalse(tx: Machine, test: Value, iterable: Value, /) -> Value:
    """`filterfalse(test, iterable)`."""
    return Filter(test, predicate(test), iterable.iterate(tx), keep=False)


@models(itertools.islice)
def call_islice(tx: Machine, iterable: Value, /, *limits: Value) -> Value | None:
    """`islice(iterable, …)`."""
    if not 1 <= len(limits) <= 3 or not all(limit.is_none() or is_whole(limit) for limit in limits):
        return None
    bounds = slice(*(limit.constant() for limit in limits))
    if any(bound is not None and bound < 0 for bound in (bounds.start, bounds.stop)) or (bounds.step or 1) < 1:
        return None
    start, stop, step = bounds.start or 0, bounds.stop, bounds.step or 1
    return Slice(iterable.iterate(tx), start, stop, step)


@models(itertools.accumulate)
def call_accumulate(tx: Machine, /, *args: Value, initial: Value = NONE, **named: Value) -> Value | None:
    """`accumulate(iterable, function, initial=…)`."""
    given = by_name(("iterable", "func"), args, named)
    if given is None or "iterable" not in given:
        return None
    function = given.get("func", NONE)

    def join(tx: Machine, total: Value, item: Value) -> Value:
        return operators.binary(tx, "+", total, item) if function.is_none() else function.call(tx, (total, item), {})

    return Accumulate(function, join, given["iterable"].iterate(tx), None if initial.is_none() else initial)


@models(itertools.zip_longest)
def call_zip_longest(tx: Machine, /, *iterables: Value, fillvalue: Value = NONE) -> Value | None:
    """`zip_longest(*iterables, fillvalue=…)`."""
    if iterators(tx, iterables) is None:
        return None
    pools = [iterable.unpack(tx) for iterable in iterables]
    rows = itertools.zip_longest(*pools, fillvalue=fillvalue)
    remade = longest, [fillvalue, *map(TupleValue, pools)]
    return ItemsIterator([TupleValue([*row]) for row in rows], itertools.zip_longest, remade=remade)


def longest(fillvalue: Any, *pools: Any) -> Any:
    """`zip_longest` with all arguments by position."""
    return itertools.zip_longest(*pools, fillvalue=fillvalue)


@models(itertools.takewhile)
def call_takewhile(tx: Machine, test: Value, iterable: Value, /) -> Value:
    """`takewhile(test, iterable)`."""
    return While(test, predicate(test), iterable.iterate(tx), keep=True)


@models(itertools.dropwhile)
def call_dropwhile(tx: Machine, test: Value, iterable: Value, /) -> Value:
    """`dropwhile(test, iterable)`."""
    return While(test, predicate(test), iterable.iterate(tx), keep=False)


def _combinatoric(function: Callable[..., Any]) -> None:
    """`product`, `permutations`…: the iterables are read at once, as Python does."""

    def call(tx: Machine, /, *args: Value, **named: Value) -> Value | None:
        split = len(args) if function is itertools.product else 1
        if not args or not all(is_whole(value) or value.is_none() for value in (*args[split:], *named.values())):
            return None
        plain = {name: value.constant() for name, value in named.items()}
        pools = [arg.unpack(tx) for arg in args[:split]]
        rest = [arg.constant() for arg in args[split:]]
        rows = run(tx, function, [*pools, *rest], plain)

        def remake(*again: Any) -> Any:
            return function(*again, *rest, **plain)

        cls: Any = function
        return ItemsIterator(
            [TupleValue([*row]) for row in rows], cls, remade=(remake, [TupleValue(pool) for pool in pools])
        )

    models(function)(call)


for _function in (
    itertools.product, itertools.permutations, itertools.combinations,
    itertools.combinations_with_replacement, itertools.pairwise,
):  # fmt: skip
    _combinatoric(_function)


@models(itertools.cycle)
def call_cycle(tx: Machine, iterable: Value, /) -> Value:
    """`cycle(iterable)`."""
    return Cycle(iterable.unpack(tx))
