"""Functions under `functools.lru_cache`: called at capture, as the program would call them.

Invariant: the same answer must be in the cache at later calls, which a guard asks; what no cache can have is inlined.
Neighbour: `builtin.py` (which value such a function is).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.utils._pytree import tree_leaves

from stator.base.errors import GraphBreak
from stator.capture.source import ConstSource
from stator.capture.value import Value
from stator.capture.values import watch
from stator.capture.values.fold import Question, run
from stator.capture.values.lookup import look_up
from stator.capture.values.python.containers.sequence import TupleValue
from stator.capture.values.python.objects.user_object import UserObjectValue
from stator.capture.values.python.symbolic import SymbolicValue
from stator.capture.values.registry import wrap
from stator.sizes import hint

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stator.capture.machine import Machine
    from stator.capture.values.python.library.builtin import BuiltinValue


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
