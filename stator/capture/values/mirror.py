"""Python's own code on values: for everything about builtin types that has no model here, errors included.

A list of values is mirrored by a list, a dict by a dict; an object that capture knows only as a value is mirrored by a
stand-in of a class of the same name, whose special methods ask the value. Then Python itself does what was asked, on
the mirrors; what has changed in them is taken back, and the result is the value that it mirrors, or a new one.
Invariant: whatever C code may see of a program's object it sees of its mirror, or the mirror refuses.
Neighbours: `value.py` (`mirrored`, `take_back`), `methods.py` (special methods of values), `operators.py`, `base.py`.
"""

from __future__ import annotations

import enum
import operator
import types
from collections import OrderedDict, defaultdict, deque
from typing import TYPE_CHECKING, Any

import torch

from stator.base.errors import GraphBreak, StatorError
from stator.capture.value import Raised, Value
from stator.capture.values.lookup import MISSING, look_up, static_attribute
from stator.capture.values.methods import HEAP_TYPE, find_method, fits, type_name
from stator.capture.values.registry import CALLS, LITERALS, fresh

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from stator.capture.machine import Machine

#: Types whose objects are their own mirrors: immutable, and nothing of a program's runs when they are used.
PLAIN: frozenset[type] = LITERALS | {range}

#: Types of which C code reads the insides, so that a stand-in is found out.
SEEN_THROUGH = (int, float, complex, str, bytes, bytearray, list, tuple, dict, set, frozenset, slice, type)

#: Exact type of a new object -> its value.
RETURNED: dict[type, Callable[[Mirror, Any], Value]] = {}

#: Makes the value of a new instance of a user's subclass of a builtin container: filled by `user_object.py`.
NEW_INSTANCES: list[Callable[[Mirror, type, Any], Value]] = []

_BINARY = (
    "add",
    "sub",
    "mul",
    "truediv",
    "floordiv",
    "mod",
    "pow",
    "matmul",
    "and",
    "or",
    "xor",
    "lshift",
    "rshift",
    "divmod",
)

#: Special methods that C code may ask for.
DELEGATED: tuple[str, ...] = (
    "lt", "le", "eq", "ne", "gt", "ge", "hash", "bool", "len", "length_hint", "iter", "next", "reversed", "getitem",
    "setitem", "delitem", "contains", "missing", "call", "index", "int", "float", "complex", "bytes", "str", "repr",
    "format", "abs", "neg", "pos", "invert", "round", "trunc", "floor", "ceil", "enter", "exit", "fspath", "copy",
    "deepcopy",
    *_BINARY, *(f"r{name}" for name in _BINARY), *(f"i{name}" for name in _BINARY if name != "divmod"),
)  # fmt: skip

#: Of methods of `object`, those that tell nothing of where an object is or how it is made.
OF_OBJECT = frozenset(
    {
        "__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "__format__", "__dir__", "__getattribute__",
        "__setattr__", "__delattr__", "__str__", "__init__", "__new__",
    }
)  # fmt: skip

#: Ways of hashing that go by identity alone.
BY_IDENTITY: tuple[Any, ...] = (
    object.__hash__,
    torch.Tensor.__hash__,
    types.FunctionType.__hash__,
    types.BuiltinFunctionType.__hash__,
)

TEXT = {"__str__": str, "__repr__": repr, "__format__": format}

#: Those of which C code wants a number.
NUMBERS = frozenset({"__len__", "__index__", "__int__", "__float__", "__hash__", "__bool__", "__length_hint__"})

_IMMUTABLE = 1 << 8


class StandIn:
    """What mirrors an object that only its value knows."""

    modelled: type
    _mirror: Mirror
    _value: Value

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        cls = self._value.python_type()
        if cls.__flags__ & _IMMUTABLE and not cls.__dictoffset__ and static_attribute(cls, name) is MISSING:
            raise AttributeError(f"{cls.__name__!r} object has no attribute {name!r}")
        mirror = self._mirror
        return mirror.asked(lambda: self._value.get_attr(mirror.tx, name))


def _hash(self: Any, /) -> Any:
    """Asked once: C code may ask again."""
    hashed = self.__dict__.get("_hashed")
    if hashed is None and self.modelled.__hash__ in BY_IDENTITY and not self._value.is_constant():
        self._value.pin(self._mirror.tx)
        self._mirror.tell_apart(self._value)
        hashed = self.__dict__["_hashed"] = object.__hash__(self)
    if hashed is None:
        hashed = self.__dict__["_hashed"] = self._mirror.special(self._value, "__hash__", (), {})
    return hashed


def _delegate(name: str) -> Callable[..., Any]:
    if name == "__hash__":
        return _hash

    def method(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        mirror: Mirror = self._mirror
        values = [mirror.value(arg) for arg in args]
        named = {key: mirror.value(arg) for key, arg in kwargs.items()}
        return mirror.special(self._value, name, values, named)

    return method


_DELEGATES = {name: _delegate(name) for name in (f"__{stem}__" for stem in DELEGATED)}


class Mirror:
    """The mirrors of one call."""

    __slots__ = (
        "classes",
        "hashed",
        "kept",
        "mute",
        "muted",
        "objects",
        "raised",
        "seen_through",
        "tx",
        "values",
        "watched",
    )

    def __init__(self, tx: Machine, mute: bool = False) -> None:
        self.tx = tx
        #: Whether stand-ins have no special methods: nothing of the program's is run.
        self.mute = mute
        #: Whether one of them would have had some.
        self.muted = False
        self.objects: dict[Value, Any] = {}
        self.values: dict[int, Value] = {}
        #: What has been hashed by identity.
        self.hashed: list[Value] = []
        #: Everything that `values` knows by id.
        self.kept: list[Any] = []
        self.classes: dict[tuple[type, type], type] = {}
        #: Exceptions of the program on their way through C code, by id.
        self.raised: dict[int, Raised] = {}
        #: Containers that C code may change: the value, its mirror, what both held.
        self.watched: list[tuple[Value, Any, Any, Any]] = []
        #: A stand-in that C code may have found out.
        self.seen_through: Value | None = None

    # -- from values to objects ------------------------------------------------------------------------

    def python(self, value: Value) -> Any:
        """The mirror of a value."""
        found = self.objects.get(value, self)
        if found is self:
            found = value.mirrored(self)
            self.tie(value, found)
        return found

    def argument(self, value: Value) -> Any:
        """The mirror of what is given to C code directly: it asks for the number."""
        if value.python_type() in PLAIN and value.is_symbolic():
            return value.constant()
        return self.python(value)

    def tie(self, value: Value, obj: Any) -> None:
        """From now on this object mirrors this value."""
        self.objects[value] = obj
        self.values[id(obj)] = value
        self.kept.append(obj)

    def tell_apart(self, value: Value) -> None:
        """A key known by identity is another object than the other keys, which a later call may have otherwise."""
        if self.tx.operators.is_reflexive(value):
            return
        for other in self.hashed:
            if other is not value and other.python_type() is value.python_type():
                self.tx.operators.identical(self.tx, value, other)
        self.hashed.append(value)

    def watch(self, value: Value, obj: Any) -> None:
        """What changes in this mirror is taken back."""
        self.watched.append((value, obj, image(obj), value.held(self.tx)))

    def stand_in(self, value: Value, base: Any = object) -> Any:
        """An object of a class like the value's."""
        cls = value.python_type()
        made = self.classes.get((cls, base))
        if made is None:
            made = self.classes[cls, base] = self._class(cls, base)
        if base is object and issubclass(cls, SEEN_THROUGH) and self.seen_through is None:
            self.seen_through = value
        obj: Any = base.__new__(made)
        object.__setattr__(obj, "_mirror", self)
        object.__setattr__(obj, "_value", value)
        return obj

    def _class(self, cls: type, base: type) -> type:
        namespace: dict[str, Any] = {"modelled": cls}
        mutable = not cls.__flags__ & _IMMUTABLE
        for name, method in _DELEGATES.items():
            raw = look_up(self.tx, cls, name) if mutable else static_attribute(cls, name)
            owner = getattr(raw, "__objclass__", None)
            if raw is None:
                namespace[name] = None
            elif isinstance(owner, type) and owner is not object and issubclass(base, owner):
                continue  # the builtin's own
            elif owner is object and name not in ("__eq__", "__hash__", "__repr__", "__str__"):
                continue
            elif raw is not MISSING and (not self.mute or name == "__hash__"):
                namespace[name] = method
            elif raw is not MISSING and owner is not object:
                self.muted = True
        if base is not object and any(
            isinstance(cls.__dict__.get(name), types.FunctionType) for name in ("__init__", "__new__")
        ):
            namespace["__init__"] = _refuse_init
        made = type(
            type_name(cls),
            (StandIn, base) if base is not object else (StandIn,),
            namespace,
        )
        made.__qualname__, made.__module__ = cls.__qualname__, cls.__module__
        return made

    # -- what C code asks of a stand-in ----------------------------------------------------------------

    def special(self, value: Value, name: str, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Any:
        """`type(value).name(value, *args)`."""
        found = self.asked(lambda: self._special(value, name, args, kwargs))
        return self.values[id(found)].constant() if name in NUMBERS and isinstance(found, StandIn) else found

    def _special(self, value: Value, name: str, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        tx = self.tx
        if name == "__call__":
            return value.call(tx, args, dict(kwargs))
        if name in TEXT:
            return tx.builtin(TEXT[name]).call(tx, (value, *args), {})
        if name == "__hash__":
            return tx.operators.hash_of(tx, value)
        if name in ("__eq__", "__ne__"):
            if not any(tx.operators.is_reflexive(operand) for operand in (value, args[0])):
                tx.operators.identical(tx, value, args[0])  # guarded; what `==` says of one object is asked below
            return tx.operators.compare(tx, "==" if name == "__eq__" else "!=", value, args[0])
        ask = getattr(value, "special", None)
        if ask is not None:
            found: Value | None = ask(tx, name, *args)
        else:
            method = find_method(value, name)
            found = None if method is None else method(tx, *args)
            if method is None:
                found = value.get_attr(tx, name).call(tx, args, {})
        if found is None:
            raise value.refuse(name)
        return found

    def asked(self, question: Callable[[], Value]) -> Any:
        """The mirror of an answer; an exception of the program goes through C code as what it is."""
        try:
            return self.python(question())
        except Raised as raised:
            raise self.real(raised) from None

    def real(self, raised: Raised) -> BaseException:
        """An exception object that stands for one of the program."""
        cls: Any = raised.value.python_type()
        made = next(base for base in cls.__mro__ if not base.__flags__ & HEAP_TYPE).__new__(cls)
        self.raised[id(made)] = raised
        self.kept.append(made)
        return made

    # -- from objects to values ------------------------------------------------------------------------

    def value(self, obj: Any) -> Value:
        """The value that an object mirrors, or the value of a new object."""
        found = self.values.get(id(obj))
        if found is not None:
            return found
        kind = type(obj)
        if kind in PLAIN or isinstance(obj, enum.Enum):
            return fresh(obj)
        if isinstance(obj, type):
            return fresh(obj.__dict__["modelled"] if issubclass(obj, StandIn) else obj)
        maker = RETURNED.get(kind)
        if maker is not None:
            return maker(self, obj)
        if isinstance(obj, tuple) and not issubclass(kind, StandIn):
            return RETURNED[tuple](self, obj)
        if issubclass(kind, StandIn):
            return NEW_INSTANCES[0](self, kind.modelled, obj)
        raise GraphBreak(f"a {kind.__qualname__} that Python's own code makes of the program's objects is not modelled")

    def settle(self) -> None:
        """Takes back what C code has changed."""
        for value, obj, before, held in self.watched:
            changed = image(obj) != before
            if not same_values(value.held(self.tx), held) and changed:
                raise value.refuse("a change by the program while a builtin method is changing it")
            if changed:
                value.take_back(self, obj)

    def run(self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Value:
        """Calls a C function on mirrors; what it raises, the program raises."""
        try:
            result = function(*args, **kwargs)
        except (GraphBreak, StatorError, Raised, RecursionError):
            raise
        except Exception as error:
            self.settle()
            found = self.error(error)
            if found is not None:
                raise found from None
            self.tx.raise_exception(type(error), *[self.value(arg) for arg in error.args])
        self.settle()
        return self.value(result)

    def error(self, error: Exception) -> Raised | None:
        """The program's exception that an error stands for."""
        found = self.raised.get(id(error))
        if found is None and self.seen_through is not None:
            raise self.seen_through.refuse("what a builtin function asks of it")
        return found


def _refuse_init(self: Any, /, *args: Any, **kwargs: Any) -> None:
    raise GraphBreak(f"a builtin method makes an instance of {type(self).__qualname__}, which has __init__ of its own")


def image(obj: Any) -> Any:
    """What a container holds, by identity."""
    if isinstance(obj, dict):
        ordering: Any = OrderedDict if isinstance(obj, OrderedDict) else dict
        factory = id(obj.default_factory) if isinstance(obj, defaultdict) else None
        return factory, [(id(key), id(item)) for key, item in ordering.items(obj)]
    if isinstance(obj, deque):
        return obj.maxlen, [id(item) for item in deque.__iter__(obj)]
    if isinstance(obj, bytearray):
        return bytes(obj)
    if isinstance(obj, set):
        return {id(item) for item in set.__iter__(obj)}
    kind: Any = type(obj).__mro__[-2]  # past what a subclass overrides
    return [id(item) for item in kind.__iter__(obj)]


def is_index(value: Value) -> bool:
    """Whether it is, by its type, a number that may stand for a place."""
    cls = value.python_type()
    return not issubclass(cls, torch.Tensor) and static_attribute(cls, "__index__") not in (None, MISSING)


def same_values(ours: Sequence[Value], theirs: Sequence[Value]) -> bool:
    """Whether these are the same values in the same order."""
    return len(ours) == len(theirs) and all(one is other for one, other in zip(ours, theirs, strict=True))


def apply(
    tx: Machine,
    function: Callable[..., Any],
    args: Sequence[Value],
    kwargs: Mapping[str, Value] | None = None,
    mute: bool = False,
) -> Value:
    """What a C function makes of these values; `mute` where it can only raise an error that names their types."""
    mirror = Mirror(tx, mute)
    plain = [mirror.argument(value) for value in args]
    named = {name: mirror.argument(value) for name, value in (kwargs or {}).items()}
    found = mirror.run(function, plain, named)
    if mirror.muted:
        raise args[0].refuse(function.__name__)
    return found


def contains(tx: Machine, container: Value, item: Value) -> Value:
    """`item in container` as C does it; a sequence only compares the item, which may then be symbolic."""
    mirror = Mirror(tx)
    compares = issubclass(container.python_type(), list | tuple | deque)
    plain = mirror.argument(container), (mirror.python if compares else mirror.argument)(item)
    return mirror.run(operator.contains, plain, {})


def answering(tx: Machine, function: Callable[..., Any], value: Value, name: str, answer: Value) -> Value:
    """What `function` makes of an object whose special method `name` has given an answer, which it may not like."""
    mirror = Mirror(tx)
    given = mirror.argument(answer)
    made = types.new_class(type_name(value.python_type()), exec_body=lambda body: body.update({name: lambda *_: given}))
    return mirror.run(function, [made()], {})


def method(name: str) -> Callable[..., Any]:
    """The function that calls the method `name` of its first argument, as `object.name(…)` does."""

    def call(receiver: Any, /, *args: Any, **kwargs: Any) -> Any:
        return getattr(type(receiver), name)(receiver, *args, **kwargs)

    return call


def models(*functions: Any) -> Callable[[Callable[..., Value | None]], Callable[..., Value | None]]:
    """Registers what calls of C functions do; a call that does not fit, or gives None, Python does on mirrors."""

    def register(model: Callable[..., Value | None]) -> Callable[..., Value | None]:
        for function in functions:
            CALLS[function] = _handler(function, model)
        return model

    return register


def _handler(function: Any, model: Callable[..., Value | None]) -> Callable[..., Value]:
    def call(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        if fits(model, len(args), kwargs):
            found = model(tx, *args, **kwargs)
            if found is not None:
                return found
        return apply(tx, function, args, kwargs)

    return call


def by_python(tx: Machine, /, *args: Value, **kwargs: Value) -> Value | None:
    """The model of what Python always does itself."""
    return None
