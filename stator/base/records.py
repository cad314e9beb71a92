"""`dataclass`, as the standard library has it, made in a quarter of the time.

The standard decorator writes the text of up to seven methods a class and has each compiled, which for the records of
this package took a tenth of a first call. Here only `__init__` is text; the others are functions over the fields. To
type checkers, `replace`, `fields` and `asdict` it is the standard one.
Invariant: what it gives behaves as the standard library's class. What it does not know (`order`, `kw_only`, `InitVar`)
it has no parameter for, or asserts.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import MISSING, Field, FrozenInstanceError
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(cls=None, *, frozen=False, slots=False, eq=True):
        """A class of these fields; see `dataclasses.dataclass`."""
        if cls is None:
            return lambda found: _made(found, frozen, slots, eq)
        return _made(cls, frozen, slots, eq)


def _made(cls: type, frozen: bool, slots: bool, eq: bool) -> type:
    own = {name for name, value in vars(cls).items() if not (name == "__hash__" and value is None)}
    made: Any = dataclasses.dataclass(init=False, repr=False, eq=False, slots=slots)(cls)
    fields = dataclasses.fields(made)
    assert not any(entry.kw_only for entry in fields), "the standard library's dataclass has fields by name alone"
    methods = {"__init__": _init(made, fields, frozen), "__repr__": _repr(fields)}
    if eq:
        methods["__eq__"] = _eq(_values([entry.name for entry in fields if entry.compare]))
        hashed = [entry.name for entry in fields if (entry.compare if entry.hash is None else entry.hash)]
        methods["__hash__"] = _hash(_values(hashed)) if frozen else None
    names = tuple([entry.name for entry in fields])
    if frozen:
        methods |= {"__setattr__": _guarded(made, names, "assign to"), "__delattr__": _guarded(made, names, "delete")}
    if frozen and slots:  # else unpickling and copying would assign
        methods |= {"__getstate__": _state(names), "__setstate__": _restore(names)}
    for name, method in methods.items():
        if name not in own:
            setattr(made, name, method)
    return made


def _init(cls: type, fields: tuple[Field[Any], ...], frozen: bool) -> Callable[..., None]:
    """The only method whose speed and signature ask for a text of its own."""
    known: dict[str, Any] = {"MISSING": MISSING, "assign": object.__setattr__}
    parameters, lines = [], []
    for entry in fields:
        name, value = entry.name, entry.name
        if entry.default is not MISSING:
            known[f"default_{name}"] = entry.default
            parameters += [f"{name}=default_{name}"] * entry.init
            value = value if entry.init else f"default_{name}"
        elif entry.default_factory is not MISSING:
            known[f"make_{name}"] = entry.default_factory
            parameters += [f"{name}=MISSING"] * entry.init
            value = f"make_{name}() if {name} is MISSING else {name}" if entry.init else f"make_{name}()"
        elif entry.init:
            parameters.append(name)
        else:
            continue
        lines.append(f"assign(self, {name!r}, {value})" if frozen else f"self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    exec(f"def __init__({', '.join(['self', *parameters])}):\n " + "\n ".join(lines or ["pass"]), known)
    made: Callable[..., None] = known["__init__"]
    made.__module__, made.__qualname__ = cls.__module__, f"{cls.__qualname__}.__init__"
    return made


def _values(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    """What gives the values of fields."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda record: tuple([getattr(record, name) for name in names])


def _eq(values: Callable[[Any], Any]) -> Any:
    def __eq__(self: Any, other: object) -> Any:
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    return __eq__


def _hash(values: Callable[[Any], Any]) -> Any:
    def __hash__(self: Any) -> int:
        return hash(values(self))

    return __hash__


def _repr(fields: tuple[Field[Any], ...]) -> Any:
    names = [entry.name for entry in fields if entry.repr]

    @recursive_repr()
    def __repr__(self: Any) -> str:
        return f"{self.__class__.__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

    return __repr__


def _guarded(cls: type, names: tuple[str, ...], action: str) -> Any:
    """Writing to a field, or removing it, raises; what a subclass adds is its own."""
    plain: Any = object.__setattr__ if action == "assign to" else object.__delattr__

    def guarded(self: Any, name: str, *value: object) -> None:
        if type(self) is cls or name in names:
            raise FrozenInstanceError(f"cannot {action} field {name!r}")
        plain(self, name, *value)

    return guarded


def _state(names: tuple[str, ...]) -> Any:
    def __getstate__(self: Any) -> list[Any]:
        return [getattr(self, name) for name in names]

    return __getstate__


def _restore(names: tuple[str, ...]) -> Any:
    def __setstate__(self: Any, state: list[Any]) -> None:
        for name, value in zip(names, state, strict=True):
            object.__setattr__(self, name, value)

    return __setstate__
