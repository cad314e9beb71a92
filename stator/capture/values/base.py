"""What all objects with Python-visible methods share: attribute lookup by table, bound methods, identity.

A value class offers the method `name` of its Python type by defining `m_name(tx, *args, **kwargs)` on
values; the special methods of the type are the operations of `Value` (`DUNDERS`).
Invariant: a method that is not defined here is refused, never guessed.
"""

from __future__ import annotations

import sys
from types import FunctionType
from typing import TYPE_CHECKING, Any

from stator.capture.source import ClassAttrSource, ConstSource
from stator.capture.value import Value
from stator.capture.values import watch
from stator.capture.values.fold import run
from stator.capture.values.registry import fresh, wrap

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from stator.capture.machine import Machine
    from stator.capture.rewrite import Assembler
    from stator.capture.source import Source


#: Marks an attribute that does not exist.
MISSING: Any = object()


def _next(value: Value, tx: Machine) -> Value:
    item = value.next_item(tx)
    if item is None:
        tx.raise_exception(StopIteration)
    return item


def _or_not_implemented(result: Value | None) -> Value:
    return fresh(NotImplemented) if result is None else result


def _none(_: None) -> Value:
    return fresh(None)


#: Special method -> how it is done on a value.
DUNDERS: dict[str, Callable[..., Value]] = {
    "__len__": lambda v, tx: fresh(v.length(tx)),
    "__bool__": lambda v, tx: fresh(v.truth(tx)),
    "__iter__": lambda v, tx: v.iterate(tx),
    "__next__": _next,
    "__getitem__": lambda v, tx, key: v.get_item(tx, key),
    "__setitem__": lambda v, tx, key, item: _none(v.set_item(tx, key, item)),
    "__delitem__": lambda v, tx, key: _none(v.del_item(tx, key)),
    "__contains__": lambda v, tx, item: v.contains(tx, item),
    "__call__": lambda v, tx, *args, **kwargs: v.call(tx, args, kwargs),
    "__getattribute__": lambda v, tx, name: v.get_attr(tx, name.constant()),
    "__setattr__": lambda v, tx, name, item: _none(v.set_attr(tx, name.constant(), item)),
    "__delattr__": lambda v, tx, name: _none(v.del_attr(tx, name.constant())),
    "__neg__": lambda v, tx: v.unary(tx, "-"),
    "__pos__": lambda v, tx: v.unary(tx, "+"),
    "__invert__": lambda v, tx: v.unary(tx, "~"),
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


def find_method(value: Value, name: str) -> Callable[..., Value] | None:
    """The method of the builtin type that `value` models, as `method(tx, *args, **kwargs)`."""
    own = getattr(value, "m_" + name, None)
    if own is not None:
        return own
    dunder = DUNDERS.get(name)
    if dunder is not None:
        return lambda tx, *args, **kwargs: dunder(value, tx, *args, **kwargs)
    operation = OPERATOR_DUNDERS.get(name)
    if operation is not None:
        attribute, op = operation
        return lambda tx, other: _or_not_implemented(getattr(value, attribute)(tx, op, other))
    return None


def static_attribute(cls: type, name: str) -> Any:
    """What the MRO of `cls` has under `name`, without calling descriptors; `MISSING` if nothing."""
    for parent in cls.__mro__:
        if name in parent.__dict__:
            return parent.__dict__[name]
    return MISSING


def look_up(tx: Machine, cls: type, name: str) -> Any:
    """`static_attribute`, with a guard on the answer."""
    known, key = tx.session.looked_up, (cls, name)
    raw = known.get(key)
    if raw is None:
        raw = known[key] = static_attribute(cls, name)
        watch.class_attribute(tx, cls, name, raw, raw is not MISSING)
    return raw


def call_written(tx: Machine, value: Value, name: str, *args: Value) -> Value | None:
    """What a special method gives that a class statement of the user's has given to a constant's class; else None."""
    cls = value.python_type()
    raw = look_up(tx, cls, name)
    if not isinstance(raw, FunctionType) or raw.__module__.partition(".")[0] in ANSWERING:
        return None
    return wrap(tx, raw, ClassAttrSource(ConstSource(cls), name)).call(tx, (value, *args), {})


#: Packages whose classes' special methods only compute, and may run for real.
ANSWERING = sys.stdlib_module_names | {"torch", "numpy"}


def is_data_descriptor(tx: Machine, raw: Any) -> bool:
    """Whether a class attribute comes before the instance's dict."""
    return any(look_up(tx, type(raw), name) is not MISSING for name in ("__set__", "__delete__"))


def bind_static(tx: Machine, instance: Value, cls: type, name: str) -> Value:
    """`instance.name`, found on its class `cls`: methods bound, properties run, the rest as it is."""
    raw = static_attribute(cls, name)
    found = wrap(tx, raw, ClassAttrSource(ConstSource(cls), name))
    descriptor_get = getattr(found, "descriptor_get", None)
    return found if descriptor_get is None else descriptor_get(tx, instance, cls)


class Object(Value):
    """A value whose methods are `m_*` functions."""

    __slots__ = ()

    def get_attr(self, tx: Machine, name: str) -> Value:
        if name == "__class__":
            return fresh(self.python_type())
        if find_method(self, name) is not None:
            return MethodValue(self, name)
        if look_up(tx, self.python_type(), name) is MISSING:
            tx.raise_exception(AttributeError, f"{self.python_type().__name__!r} object has no attribute {name!r}")
        raise self.refuse(f"reading attribute {name!r}")

    def set_attr(self, tx: Machine, name: str, value: Value) -> None:
        if self.python_type().__dictoffset__:
            raise self.refuse(f"setting attribute {name!r}")
        tx.raise_exception(AttributeError, f"{self.python_type().__name__!r} object has no attribute {name!r}")


class KnownValue(Object):
    """An object known by identity: whoever makes the value from a source has guarded that it is this one."""

    __slots__ = ("obj",)

    def __init__(self, obj: Any, source: Source | None = None) -> None:
        super().__init__(source)
        self.obj = obj

    def __repr__(self) -> str:
        name = getattr(self.obj, "__qualname__", None) or getattr(self.obj, "__name__", None) or self.obj
        return f"{type(self).__name__}({name})"

    def python_type(self) -> type:
        return type(self.obj)

    def is_constant(self) -> bool:
        return True

    def is_pinned(self) -> bool:
        return True

    def constant(self) -> Any:
        return self.obj

    def is_same(self, other: Value) -> bool:
        return other.is_constant() and other.constant() is self.obj

    def truth(self, tx: Machine) -> bool:
        return True

    def get_attr(self, tx: Machine, name: str) -> Value:
        return fresh(run(tx, getattr, (self.obj, name)))

    def reconstruct(self, out: Assembler) -> None:
        out.load_object(self.obj)


class MethodValue(Object):
    """A builtin method bound to a value: `[].append`."""

    __slots__ = ("name", "owner")
    kind = "a method"

    def __init__(self, owner: Value, name: str, source: Source | None = None) -> None:
        super().__init__(source)
        self.owner = owner
        self.name = name

    def python_type(self) -> type:
        return type([].append)

    def truth(self, tx: Machine) -> bool:
        return True

    def call(self, tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        method = find_method(self.owner, self.name)
        assert method is not None
        try:
            return method(tx, *args, **kwargs)
        except TypeError as error:
            if error.__traceback__ is not None and error.__traceback__.tb_next is None:
                tx.raise_roughly(TypeError, f"wrong arguments for {self.name}()")
            raise

    def get_attr(self, tx: Machine, name: str) -> Value:
        if name == "__self__":
            return self.owner
        if name == "__name__":
            return fresh(self.name)
        return super().get_attr(tx, name)

    def children(self) -> Iterator[Value]:
        yield self.owner

    def reconstruct(self, out: Assembler) -> None:
        out.call(getattr, self.owner, fresh(self.name))
