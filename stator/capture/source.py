"""Sources: how a value that existed before the frame ran is reached from the frame.

A source is data: a path of steps from a root (a local, a cell, a global, a pinned object). It has
three readers: `guards.py` builds the native guard tree along it, `rewrite.py` emits the bytecode
that loads it, and `resolve` walks it in Python.
Invariant: sources are interned, so equal paths are one object and `is` is equality; they are never
changed after construction. Constructors take their fields by position.
"""

from __future__ import annotations

import linecache
import sys
import textwrap
import types
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple
from weakref import ReferenceType, WeakValueDictionary

from stator.bytecode.decode import decode
from stator.bytecode.flow import pushed_by
from stator.bytecode.instructions import Position

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


class Scope(NamedTuple):
    """What a source is resolved against: the frame's arguments, its function's globals and its cells."""

    locals: Mapping[str, Any]
    globals: Mapping[str, Any]
    closure: Mapping[str, types.CellType] = types.MappingProxyType({})


def scope_of(fn: types.FunctionType, arguments: Mapping[str, Any]) -> Scope:
    """The scope of a call of `fn` with bound `arguments`."""
    cells = dict(zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True))
    return Scope(arguments, fn.__globals__, cells)


#: How many characters of the user's program stand for a value without a name.
SHOWN = 60

#: Types whose values are named by value; anything else is named by identity.
PLAIN = (int, float, str, bytes, bool, complex, type(None))


def constant_key(value: object) -> object:
    """A hashable stand-in that is equal only for interchangeable constants (1, 1.0 and True differ)."""
    kind = type(value)
    if kind is str or value is None or isinstance(value, Source):
        return value
    if kind is int or kind is bool:
        return kind, value
    if kind is float or kind is complex:
        return kind, repr(value)  # keeps -0.0 and nan apart from 0.0 and from each other
    if kind is bytes:
        return kind, value
    if kind is tuple:
        return kind, tuple(constant_key(item) for item in value)  # type: ignore[attr-defined]
    if kind is slice:
        return kind, tuple(constant_key(part) for part in (value.start, value.stop, value.step))  # type: ignore[attr-defined]
    return kind, id(value)  # the interned source keeps the object, so its id stays its own


class Interned(type):
    """Makes `cls(*fields)` return the one instance with these fields."""

    _table: ClassVar[WeakValueDictionary[tuple[object, ...], Any]] = WeakValueDictionary()
    # What the table is kept in: nearly every lookup finds something.
    _references: ClassVar[dict[tuple[object, ...], ReferenceType[Any]]] = _table.data  # type: ignore[attr-defined]

    def __call__(cls, *fields: Any) -> Any:
        for field in fields:
            if type(field) is not str and type(type(field)) is not Interned:
                key = (cls, *[field if type(field) is str else constant_key(field) for field in fields])
                break
        else:
            key = (cls, *fields)
        reference = cls._references.get(key)
        found = None if reference is None else reference()
        if found is None:
            found = super().__call__(*fields)
            cls._table[key] = found
        return found


class Source(metaclass=Interned):
    """The root of a path, or a step from another source, its `base`; roots have none."""

    __slots__ = ("__weakref__", "_text", "base")
    base: Source | None

    def __init__(self, base: Source | None = None) -> None:
        self.base = base
        self._text: str | None = None

    def resolve(self, scope: Scope) -> Any:
        """The object itself; raises what the user's expression would raise."""
        raise NotImplementedError(type(self).__name__)

    def write(self) -> str:
        """The Python expression a user would write, with `L` for locals and `G` for globals."""
        raise NotImplementedError(type(self).__name__)

    def path(self) -> Iterator[Source]:
        """The sources from the root to this one."""
        if self.base is not None:
            yield from self.base.path()
        yield self

    @property
    def root(self) -> Source:
        """The source this path starts at."""
        return next(self.path())

    def __str__(self) -> str:
        if self._text is None:
            self._text = self.write()
        return self._text

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self}>"

    def __reduce__(self) -> Any:
        return type(self), tuple(getattr(self, name) for name in self.__match_args__)

    __match_args__: ClassVar[tuple[str, ...]] = ()


# -- roots -------------------------------------------------------------------------------------------


class LocalSource(Source):
    """An argument of the frame (`*args` and `**kwargs` by their names, as tuple and dict)."""

    __slots__ = ("name",)
    __match_args__ = ("name",)

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def resolve(self, scope: Scope) -> Any:
        return scope.locals[self.name]

    def write(self) -> str:
        return f"L[{self.name!r}]"


class StackSource(LocalSource):
    """An argument of a resume function that was on the stack: a value without a name, between two instructions."""

    __slots__ = ("code", "position", "start")
    __match_args__ = ("name", "code", "start", "position")

    def __init__(self, name: str, code: types.CodeType, start: int, position: int) -> None:
        super().__init__(name)
        self.code = code
        self.start = start
        self.position = position

    def write(self) -> str:
        """The expression that gave it, as it stands in the user's file."""
        decoded = decode(self.code)
        index = pushed_by(decoded, self.start, self.position)
        place = decoded.position(index if index is not None else self.start)
        if index is None or place.line is None:
            return f"(a value on the way to line {place.line})"
        return f"({_segment(self.code.co_filename, place) or 'a value'} at line {place.line})"


def _segment(file: str, place: Position) -> str:
    """A piece of a file, on one line and not too long; nothing where the file cannot be read."""
    if place.line is None or place.end_line is None:
        return ""
    lines = [line.encode() for line in linecache.getlines(file)[place.line - 1 : place.end_line]]
    if not lines:
        return ""
    lines[-1] = lines[-1][: place.end_column]
    lines[0] = lines[0][place.column or 0 :]
    return textwrap.shorten(b" ".join(lines).decode(errors="replace"), SHOWN, placeholder="…")


class ClosureSource(Source):
    """The contents of the frame's cell for a free variable."""

    __slots__ = ("name",)
    __match_args__ = ("name",)

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def resolve(self, scope: Scope) -> Any:
        return scope.closure[self.name].cell_contents

    def write(self) -> str:
        return f"L[{self.name!r}]"


class GlobalsSource(Source):
    """The globals dict of the frame's own function."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__()

    def resolve(self, scope: Scope) -> Any:
        return scope.globals

    def write(self) -> str:
        return "G"


class GlobalSource(Source):
    """A global of the frame's own function, present in its globals dict (not a builtin)."""

    __slots__ = ("name",)
    __match_args__ = ("name",)

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def resolve(self, scope: Scope) -> Any:
        return scope.globals[self.name]

    def write(self) -> str:
        return f"G[{self.name!r}]"


class EarlierSource(Source):
    """What a call gives that the new code makes before it runs the graph; only the new code knows it."""

    __slots__ = ("index",)
    __match_args__ = ("index",)

    def __init__(self, index: int) -> None:
        super().__init__()
        self.index = index

    def write(self) -> str:
        return f"drawn[{self.index}]"


class ConstSource(Source):
    """An object pinned by identity: a class, a module, another module's globals dict, a function."""

    __slots__ = ("value",)
    __match_args__ = ("value",)

    def __init__(self, value: object) -> None:
        super().__init__()
        self.value = value

    def resolve(self, scope: Scope) -> Any:
        return self.value

    def write(self) -> str:
        match self.value:
            case types.ModuleType():
                return self.value.__name__
            case type() | types.FunctionType() | types.BuiltinFunctionType():
                return f"{self.value.__module__}.{self.value.__qualname__}"
            case {"__name__": str(name)}:
                return f"{name}.__dict__"
            case value if value is sys.modules:
                return "sys.modules"
            case value if isinstance(value, PLAIN):
                return repr(value)
            case value if isinstance(text := getattr(value, "guard_text", None), str):
                return f"({text})"
            case value:
                return f"<{type(value).__qualname__} at {id(value):#x}>"


# -- steps -------------------------------------------------------------------------------------------


class Step(Source):
    """A source that starts from another one."""

    __slots__ = ()
    __match_args__ = ("base",)
    base: Source

    def __init__(self, base: Source) -> None:
        super().__init__(base)


class CellSource(Step):
    """The contents of a cell that the frame is given as a cell object, as continuations are."""

    __slots__ = ()

    def resolve(self, scope: Scope) -> Any:
        return self.base.resolve(scope).cell_contents

    def write(self) -> str:
        return str(self.base)


class AttrSource(Step):
    """`base.name`, an ordinary attribute read."""

    __slots__ = ("name",)
    __match_args__ = ("base", "name")

    def __init__(self, base: Source, name: str) -> None:
        super().__init__(base)
        self.name = name

    def resolve(self, scope: Scope) -> Any:
        return getattr(self.base.resolve(scope), self.name)

    def write(self) -> str:
        return f"{self.base}.{self.name}"


class ItemSource(Step):
    """`base[key]` of a list, tuple or dict; the key is a constant (or an object, by identity)."""

    __slots__ = ("key",)
    __match_args__ = ("base", "key")

    def __init__(self, base: Source, key: object) -> None:
        super().__init__(base)
        self.key = key

    def resolve(self, scope: Scope) -> Any:
        return self.base.resolve(scope)[self.key]

    def write(self) -> str:
        return f"{self.base}[{self.key!r}]"


class StorageSource(Step):
    """The builtin container that an instance of a subclass is: read by the methods of `kind`, whatever it overrides.

    It is the same object, so guards, which read containers like that anyhow, are put on `base`.
    """

    __slots__ = ("kind",)
    __match_args__ = ("base", "kind")

    def __init__(self, base: Source, kind: type) -> None:
        super().__init__(base)
        self.kind = kind

    def resolve(self, scope: Scope) -> Any:
        obj = self.base.resolve(scope)
        return contents(obj, self.kind)

    def write(self) -> str:
        return str(self.base)


def contents(obj: Any, kind: type) -> Any:
    """A copy of what an instance of a subclass of this builtin container holds, by the builtin's methods."""
    if issubclass(kind, dict):
        return (OrderedDict if issubclass(kind, OrderedDict) else dict)(kind.items(obj))
    return list(kind.__iter__(obj))  # type: ignore[attr-defined]


class DictKeySource(Step):
    """The `index`-th key of a dict, in order: reaches keys that are objects."""

    __slots__ = ("index",)
    __match_args__ = ("base", "index")

    def __init__(self, base: Source, index: int) -> None:
        super().__init__(base)
        self.index = index

    def resolve(self, scope: Scope) -> Any:
        return list(self.base.resolve(scope))[self.index]

    def write(self) -> str:
        return f"list({self.base})[{self.index}]"


class TypeSource(Step):
    """`type(base)`."""

    __slots__ = ()

    def resolve(self, scope: Scope) -> Any:
        return type(self.base.resolve(scope))

    def write(self) -> str:
        return f"type({self.base})"


class SizeSource(Step):
    """`base.size()[dim]` of a tensor."""

    __slots__ = ("dim",)
    __match_args__ = ("base", "dim")

    def __init__(self, base: Source, dim: int) -> None:
        super().__init__(base)
        self.dim = dim

    def resolve(self, scope: Scope) -> Any:
        return self.base.resolve(scope).size(self.dim)

    def write(self) -> str:
        return f"{self.base}.size()[{self.dim}]"


class StrideSource(Step):
    """`base.stride()[dim]` of a tensor."""

    __slots__ = ("dim",)
    __match_args__ = ("base", "dim")

    def __init__(self, base: Source, dim: int) -> None:
        super().__init__(base)
        self.dim = dim

    def resolve(self, scope: Scope) -> Any:
        return self.base.resolve(scope).stride(self.dim)

    def write(self) -> str:
        return f"{self.base}.stride()[{self.dim}]"


class LengthSource(Step):
    """`len(base)` of a list or deque."""

    __slots__ = ()

    def resolve(self, scope: Scope) -> Any:
        return len(self.base.resolve(scope))

    def write(self) -> str:
        return f"len({self.base})"


class ClassAttrSource(Step):
    """A name found along the MRO of the class `base`, without calling descriptors."""

    __slots__ = ("name",)
    __match_args__ = ("base", "name")

    def __init__(self, base: Source, name: str) -> None:
        super().__init__(base)
        self.name = name

    def resolve(self, scope: Scope) -> Any:
        cls = self.base.resolve(scope)
        for parent in cls.__mro__:
            if self.name in parent.__dict__:
                return parent.__dict__[self.name]
        raise AttributeError(f"type object {cls.__name__!r} has no attribute {self.name!r}")

    def write(self) -> str:
        return f"inspect.getattr_static({self.base}, {self.name!r})"


class InstanceDictSource(Step):
    """`base.__dict__`, the attributes of an instance as a dict."""

    __slots__ = ()

    def resolve(self, scope: Scope) -> Any:
        return self.base.resolve(scope).__dict__

    def write(self) -> str:
        return f"{self.base}.__dict__"


class FunctionCodeSource(Step):
    """`base.__code__` of a Python function."""

    __slots__ = ()

    def resolve(self, scope: Scope) -> Any:
        return self.base.resolve(scope).__code__

    def write(self) -> str:
        return f"{self.base}.__code__"


class FunctionGlobalsSource(Step):
    """`base.__globals__` of a Python function."""

    __slots__ = ()

    def resolve(self, scope: Scope) -> Any:
        return self.base.resolve(scope).__globals__

    def write(self) -> str:
        return f"{self.base}.__globals__"


class FunctionDefaultSource(Step):
    """`base.__defaults__[index]`."""

    __slots__ = ("index",)
    __match_args__ = ("base", "index")

    def __init__(self, base: Source, index: int) -> None:
        super().__init__(base)
        self.index = index

    def resolve(self, scope: Scope) -> Any:
        return self.base.resolve(scope).__defaults__[self.index]

    def write(self) -> str:
        return f"{self.base}.__defaults__[{self.index}]"


class FunctionKwDefaultSource(Step):
    """`base.__kwdefaults__[name]`."""

    __slots__ = ("name",)
    __match_args__ = ("base", "name")

    def __init__(self, base: Source, name: str) -> None:
        super().__init__(base)
        self.name = name

    def resolve(self, scope: Scope) -> Any:
        return self.base.resolve(scope).__kwdefaults__[self.name]

    def write(self) -> str:
        return f"{self.base}.__kwdefaults__[{self.name!r}]"


class FunctionClosureSource(Step):
    """`base.__closure__[index].cell_contents`."""

    __slots__ = ("index",)
    __match_args__ = ("base", "index")

    def __init__(self, base: Source, index: int) -> None:
        super().__init__(base)
        self.index = index

    def resolve(self, scope: Scope) -> Any:
        return self.base.resolve(scope).__closure__[self.index].cell_contents

    def write(self) -> str:
        return f"{self.base}.__closure__[{self.index}].cell_contents"
