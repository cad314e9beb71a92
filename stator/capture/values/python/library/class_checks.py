"""`isinstance` and `issubclass`: what decides them, and the guards on it.

A plain class is asked for its bases alone. An abstract class, a protocol or one of typing's forms decides by registries
and hooks that change, so guards ask it again. A metaclass of the user's that decides ends the graph.
Neighbours: `builtin.py` (the builtins), `klass.py`.
"""

from __future__ import annotations

import functools
import types
from typing import TYPE_CHECKING, Any

from stator.base.errors import GraphBreak
from stator.capture.values import watch
from stator.capture.values.fold import run
from stator.capture.values.lookup import look_up
from stator.capture.values.python import operators

if TYPE_CHECKING:
    from stator.capture.machine import Machine
    from stator.capture.value import Value

#: Packages whose metaclasses only answer.
ANSWERING = frozenset({"abc", "_py_abc", "typing", "enum", "torch", "builtins"})

#: How classes written by class statements are checked for.
CHECKS = ("__instancecheck__", "__subclasscheck__")


def is_instance(tx: Machine, value: Value, wanted: Any) -> bool:
    """`isinstance(value, wanted)`."""
    if isinstance(wanted, tuple):
        return any(is_instance(tx, value, item) for item in wanted)
    if isinstance(wanted, types.UnionType):
        return any(is_instance(tx, value, item) for item in wanted.__args__)
    cls = value.python_type()
    decides = check_metaclass(tx, wanted)
    if (own := value.is_kind_of(tx, wanted)) is not None:
        return own
    if look_up(tx, cls, "__class__") is not object.__dict__["__class__"]:
        raise GraphBreak(f"{cls.__qualname__} defines __class__, by which isinstance() decides")
    real = object_of(value)
    if real is None:
        return is_subclass(tx, cls, wanted)
    found = bool(run(tx, isinstance, (real, wanted)))
    if not decides:
        watch.bases(tx, cls)
    elif value.source is not None:
        tx.guard("CALL", value.source, (InstanceOf(wanted), found))
    return found


def is_subclass(tx: Machine, cls: Any, wanted: Any) -> bool:
    """`issubclass(cls, wanted)`."""
    if isinstance(wanted, tuple):
        return any(is_subclass(tx, cls, item) for item in wanted)
    if isinstance(wanted, types.UnionType):
        return any(is_subclass(tx, cls, item) for item in wanted.__args__)
    found = bool(run(tx, issubclass, (cls, wanted)))
    if check_metaclass(tx, wanted):
        tx.guard("CALL", None, (functools.partial(issubclass, cls, wanted), found))
    elif isinstance(cls, type):
        watch.bases(tx, cls)
    return found


def object_of(value: Value) -> Any:
    """The object itself, where there is one and its class alone does not decide."""
    if operators.is_foldable(value):
        return value.constant()
    return value.real_object()


def check_metaclass(tx: Machine, wanted: Any) -> bool:
    """Whether the metaclass decides what is an instance; refuses one that runs the user's code for it."""
    if not isinstance(wanted, type):
        return True
    decides = False
    for name in CHECKS:
        check = look_up(tx, type(wanted), name)
        if isinstance(check, types.FunctionType) and check.__module__.partition(".")[0] not in ANSWERING:
            raise GraphBreak(f"{type(wanted).__qualname__}.{name} decides what is an instance")
        decides = decides or check is not type.__dict__[name]
    return decides


class InstanceOf:
    """Asks an object whether it is an instance of a class that may change its mind."""

    __slots__ = ("wanted",)

    def __init__(self, wanted: Any) -> None:
        self.wanted = wanted

    def __call__(self, obj: object) -> bool:
        return isinstance(obj, self.wanted)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, InstanceOf) and other.wanted is self.wanted

    def __hash__(self) -> int:
        return id(self.wanted)
