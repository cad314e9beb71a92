"""Callables written in Python: functions with their closure cells and attributes, and bound methods.

A function value is what `Machine.inline` runs (`Inlinable`). Defaults and cells of a real function are
read when needed, each under its own guard, so a closure made anew by every call of its maker is guarded
by its code and by what its cells hold, not by identity.
Neighbours: `registry.CALLS` (functions that are not inlined), `klass.py`, `partial.py`.
"""

from __future__ import annotations

import functools
import types
from dataclasses import field
from typing import TYPE_CHECKING, Any

from stator.capture.fields import part, value_class
from stator.capture.source import (
    AttrSource,
    CellSource,
    ConstSource,
    FunctionClosureSource,
    FunctionCodeSource,
    FunctionDefaultSource,
    FunctionKwDefaultSource,
    InstanceDictSource,
    ItemSource,
    LocalSource,
)
from stator.capture.value import Value
from stator.capture.values import watch
from stator.capture.values.base import Modelled, Object
from stator.capture.values.fold import run
from stator.capture.values.python import operators
from stator.capture.values.python.constant import NONE, ConstantValue
from stator.capture.values.python.containers.mapping import named_dict
from stator.capture.values.python.containers.sequence import TupleValue
from stator.capture.values.registry import CODES, builds, fresh, handler_of, handles, makes, wrap

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stator.capture.machine import Machine
    from stator.capture.rewrite import Assembler
    from stator.capture.source import Source

#: Attributes by which libraries mark functions for compilers, and what we make of them.
MARKED_DISABLED = "_torchdynamo_disable"
MARKED_ORIGINAL = "_torchdynamo_orig_callable"

#: Functions of libraries that prepare an object once, before its first use: they run at capture, as the first call
#: would have made them run, and do nothing afterwards.
SET_UP = {("transformers.utils.output_capturing", "maybe_install_capturing_hooks")}

#: Notes that another compiler takes about modules as they are made, once it has run in the process; nothing for us.
BOOKKEEPING = {("torch._dynamo.mutation_guard", "GenerationTracker.tag")}


def set_up(tx: Machine, function: Any, args: Sequence[Value]) -> Value:
    """Runs one of `SET_UP` on the real objects."""
    reals = [arg.constant() if arg.is_constant() else getattr(arg, "real", None) for arg in args]
    if any(real is None for real in reals):
        raise args[0].refuse(f"calling {function.__qualname__}")
    return fresh(run(tx, function, reals))


@value_class
class CellValue(Value):
    """A closure cell. `content` is None while it is empty or, for a real cell, unread."""

    kind = "a closure cell"

    content: Value | None = part()
    cell: types.CellType | None = None
    #: How what a real cell holds is reached; `source` is how the cell itself is.
    contents: Source | None = None
    #: The function that it was reached through, which other calls may exchange for one with other cells.
    owner: FunctionValue | None = None
    read: bool = field(init=False)

    def __post_init__(self) -> None:
        self.read = self.cell is None

    def python_type(self) -> type:
        return types.CellType

    def get(self, tx: Machine) -> Value | None:
        """The contents, None when the cell is empty."""
        if not self.read:
            self.read = True
            assert self.cell is not None and self.contents is not None and self.source is not None
            try:
                obj = self.cell.cell_contents
            except ValueError:
                tx.guard("CALL", self.source, (is_empty, True))
                return None
            self.content = wrap(tx, obj, self.contents)
        return self.content

    def set(self, tx: Machine, value: Value | None) -> None:
        """A `nonlocal` store."""
        if self.owner is not None:
            self.owner.pin(tx)
        self.read = True
        self.content = value
        if self.cell is not None:
            tx.effects.change(self)

    def get_attr(self, tx: Machine, name: str) -> Value:
        if name == "cell_contents":
            content = self.get(tx)
            if content is None:
                tx.raise_roughly(ValueError, "Cell is empty")
            return content
        return super().get_attr(tx, name)

    def reconstruct(self, out: Assembler) -> None:
        out.call(types.CellType)
        if self.content is not None:
            out.remember(self)  # a function in it may have it in its closure
            self.write_back(out)

    def write_back(self, out: Assembler) -> None:
        """Emit the assignment."""
        if self.content is None:
            out.call(delattr, self, fresh("cell_contents"))
        else:
            out.call(setattr, self, fresh("cell_contents"), self.content)
        out.pop()


def is_empty(cell: types.CellType) -> bool:
    """Whether a cell has no contents."""
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return True
    return False


@value_class
class FunctionValue(Object):
    """A Python function, real (`function`) or made by the frame."""

    kind = "a function"

    code: types.CodeType
    globals: dict[str, Any]
    qualname: str
    closure: list[Value] = part(default_factory=list)
    defaults: list[Value] = part(default_factory=list)
    keyword_defaults: dict[str, Value] = part(default_factory=dict)
    annotations: Value | None = None
    #: The real function; of no closer type, since a type checker would bind it as a method.
    function: Any = None
    #: Whether a real function is guarded by identity, not by its code and what is read of it.
    pinned: bool = True
    attributes: dict[str, Value] = part(init=False, default_factory=dict)

    def python_type(self) -> type:
        return types.FunctionType

    def is_constant(self) -> bool:
        return self.function is not None and self.pinned

    def constant(self) -> Any:
        if self.function is None or not self.pinned:
            raise self.refuse("use as a constant")
        return self.function

    def is_pinned(self) -> bool:
        return self.is_constant()

    def pin(self, tx: Machine) -> None:
        """Guards a real function by identity."""
        if not self.pinned:
            self.pinned = True
            watch.identity(tx, self.source, self.function)

    def is_same(self, other: Value) -> bool:
        return self is other or (
            self.is_constant() and isinstance(other, FunctionValue) and self.function is other.function and other.pinned
        )

    def truth(self, tx: Machine) -> bool:
        return True

    # -- what inlining asks ----------------------------------------------------------------------------

    def default(self, tx: Machine, position: int) -> Value | None:
        """The default of a positional parameter."""
        real = self.function
        if real is None:
            index = position - (self.code.co_argcount - len(self.defaults))
            return self.defaults[index] if index >= 0 else None
        defaults = real.__defaults__ or ()
        index = position - (self.code.co_argcount - len(defaults))
        if index < 0:
            return None
        assert self.source is not None
        return wrap(tx, defaults[index], FunctionDefaultSource(self.source, index - len(defaults)))

    def keyword_default(self, tx: Machine, name: str) -> Value | None:
        """The default of a keyword-only parameter."""
        real = self.function
        if real is None:
            return self.keyword_defaults.get(name)
        defaults = real.__kwdefaults__ or {}
        if name not in defaults:
            return None
        assert self.source is not None
        return wrap(tx, defaults[name], FunctionKwDefaultSource(self.source, name))

    def closure_cell(self, tx: Machine, index: int) -> Value:
        """The cell of a free variable; one real cell has one value."""
        if self.function is None:
            return self.closure[index]
        assert self.function.__closure__ is not None
        assert self.source is not None
        cell = self.function.__closure__[index]
        found = tx.values.get(id(cell))
        if found is None:
            place = ItemSource(AttrSource(self.source, "__closure__"), index)
            contents = FunctionClosureSource(self.source, index)
            owner = None if self.pinned else self
            found = tx.values[id(cell)] = CellValue(None, cell, source=place, contents=contents, owner=owner)
        elif not self.pinned and getattr(found, "owner", None) is not self:
            self.pin(tx)  # two ways lead to this cell
        return found

    def call(self, tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        real = self.function
        if real is not None:
            handler = handler_of(real)
            if handler is not None:
                return handler(tx, args, kwargs)
            by_code = CODES.get(real.__code__)
            if by_code is not None:
                watch.code(tx, self.source, real)
                return by_code(tx, self, args, kwargs)
            if args and isinstance(args[0], Modelled) and (method := args[0].method_of(tx, real)) is not None:
                return method.call(tx, args[1:], kwargs)
            if (real.__module__, real.__qualname__) in SET_UP:
                return set_up(tx, real, args)
            if (real.__module__, real.__qualname__) in BOOKKEEPING:
                return fresh(None)
            if real.__dict__:
                if getattr(real, MARKED_DISABLED, False) and real.__module__.startswith("torch."):
                    # Torch's compiler marks some of torch's own functions when it is imported, for itself alone.
                    return self.get_attr(tx, MARKED_ORIGINAL).call(tx, args, kwargs)
                if getattr(real, MARKED_DISABLED, False):
                    raise self.refuse(f"calling {self.qualname}, which is marked as not to be compiled,")
            watch.code(tx, self.source, real)
        return tx.inline(self, args, kwargs)

    def descriptor_get(self, tx: Machine, instance: Value | None, cls: type) -> Value:
        """A function found on a class becomes a bound method."""
        return self if instance is None else BoundMethodValue(self, instance)

    # -- attributes ------------------------------------------------------------------------------------

    def get_attr(self, tx: Machine, name: str) -> Value:
        if name in self.attributes:
            return self.attributes[name]
        if name in ("__get__", "__call__"):
            return FunctionMethod(self, name)
        if self.function is not None:
            self.pin(tx)
            assert self.source is not None
            try:
                found = getattr(self.function, name)
            except AttributeError as error:
                watch.no_instance_attribute(tx, self.source, name)
                tx.raise_exception(AttributeError, *error.args)
            return wrap(tx, found, AttrSource(self.source, name))
        return self._made_attribute(tx, name)

    def _made_attribute(self, tx: Machine, name: str) -> Value:
        match name:
            case "__code__":
                return fresh(self.code)
            case "__name__":
                return fresh(self.qualname.rpartition(".")[2])
            case "__qualname__":
                return fresh(self.qualname)
            case "__defaults__":
                return TupleValue(self.defaults) if self.defaults else NONE
            case "__kwdefaults__":
                return named_dict(self.keyword_defaults) if self.keyword_defaults else NONE
            case "__closure__":
                return TupleValue(self.closure) if self.closure else NONE
            case "__module__":
                return fresh(self.globals.get("__name__"))
            case "__doc__":
                first = self.code.co_consts[0] if self.code.co_consts else None
                return fresh(first if isinstance(first, str) else None)
            case "__dict__":
                return named_dict(self.attributes)
            case "__annotations__":
                return self.annotations or named_dict({})
            case "__type_params__":
                return TupleValue([])
        if not hasattr(types.FunctionType, name):
            tx.raise_exception(AttributeError, f"'function' object has no attribute {name!r}")
        return super().get_attr(tx, name)

    def set_attr(self, tx: Machine, name: str, value: Value) -> None:
        if self.function is not None:
            raise self.refuse(f"setting attribute {name!r}")
        self.attributes[name] = value

    def reconstruct(self, out: Assembler) -> None:
        if self.is_constant():
            out.load_object(self.function)
            return
        parts = (
            ConstantValue(self.code),
            ConstantValue(self.globals),
            fresh(self.qualname),
            TupleValue(self.defaults) if self.defaults else NONE,
            TupleValue(self.closure) if self.closure else NONE,
            named_dict(self.keyword_defaults) if self.keyword_defaults else NONE,
            named_dict(self.attributes),
        )
        out.call(make_function, *parts)


def make_function(
    code: types.CodeType,
    namespace: dict[str, Any],
    qualname: str,
    defaults: tuple[Any, ...] | None,
    closure: tuple[types.CellType, ...] | None,
    keyword_defaults: dict[str, Any] | None,
    attributes: dict[str, Any],
) -> types.FunctionType:
    """Rebuilds a function that the frame has made."""
    function = types.FunctionType(code, namespace, code.co_name, defaults, closure)
    function.__qualname__ = qualname
    function.__kwdefaults__ = keyword_defaults
    for name, value in attributes.items():
        setattr(function, name, value)
    return function


@value_class
class FunctionMethod(Object):
    """`function.__get__` or `function.__call__`."""

    kind = "a function's method"

    function: FunctionValue = part()
    name: str

    def python_type(self) -> type:
        return types.MethodWrapperType

    def call(self, tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        if self.name == "__call__":
            return self.function.call(tx, args, kwargs)
        bound = args[0] if args else NONE
        return self.function if bound.is_same(NONE) else BoundMethodValue(self.function, bound)


@value_class
class BoundMethodValue(Object):
    """A function with its first argument."""

    kind = "a bound method"

    function: Value = part()
    instance: Value = part()

    def python_type(self) -> type:
        return types.MethodType

    def truth(self, tx: Machine) -> bool:
        return True

    def is_constant(self) -> bool:
        return self.function.is_constant() and self.instance.is_constant()

    def constant(self) -> Any:
        return types.MethodType(self.function.constant(), self.instance.constant())

    def call(self, tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        return self.function.call(tx, (self.instance, *args), kwargs)

    def get_attr(self, tx: Machine, name: str) -> Value:
        if name == "__self__":
            return self.instance
        if name == "__func__":
            return self.function
        return self.function.get_attr(tx, name)

    def compare(self, tx: Machine, op: str, other: Value) -> Value | None:
        if op not in ("==", "!=") or not isinstance(other, BoundMethodValue):
            return None
        same = operators.identical(tx, self.function, other.function)
        same = same and operators.identical(tx, self.instance, other.instance)
        return fresh(same is (op == "=="))

    def reconstruct(self, out: Assembler) -> None:
        out.call(types.MethodType, self.function, self.instance)


# -- from objects --------------------------------------------------------------------------------------


@builds(types.FunctionType)
def build_function(tx: Machine, obj: types.FunctionType, source: Source) -> Value:
    """Functions passed as arguments are guarded by their code, others by identity."""
    made_anew = bool(obj.__closure__) and isinstance(source.root, LocalSource)
    if made_anew:
        watch.type_of(tx, source, types.FunctionType)
        watch.identity(tx, FunctionCodeSource(source), obj.__code__)
    else:
        watch.identity(tx, source, obj)
    return FunctionValue(
        obj.__code__, obj.__globals__, obj.__qualname__, function=obj, source=source, pinned=not made_anew
    )


@makes(types.FunctionType)
def made_function(obj: types.FunctionType) -> Value:
    """A function reached through something that is known: pinned by identity."""
    return FunctionValue(obj.__code__, obj.__globals__, obj.__qualname__, function=obj, source=ConstSource(obj))


@makes(types.MethodType)
def made_method(obj: types.MethodType) -> Value:
    """A bound method reached through something that is known."""
    return BoundMethodValue(fresh(obj.__func__), fresh(obj.__self__), source=ConstSource(obj))


@builds(types.MethodType)
def build_method(tx: Machine, obj: types.MethodType, source: Source) -> Value:
    """A bound method is its function and its object."""
    watch.type_of(tx, source, types.MethodType)
    function = wrap(tx, obj.__func__, AttrSource(source, "__func__"))
    return BoundMethodValue(function, wrap(tx, obj.__self__, AttrSource(source, "__self__")), source=source)


@builds(types.CellType)
def build_cell(tx: Machine, obj: types.CellType, source: Source) -> Value:
    """A cell met as an object (`f.__closure__[0]`)."""
    watch.identity(tx, source, obj)
    return CellValue(None, obj, source=source, contents=CellSource(source))


@handles(functools.update_wrapper)
def call_update_wrapper(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """`functools.wraps`: the names that a wrapper takes over."""
    wrapper = args[0] if args else kwargs["wrapper"]
    wrapped = args[1] if len(args) > 1 else kwargs["wrapped"]
    for name in (name for name in functools.WRAPPER_ASSIGNMENTS if name != "__annotations__"):
        if isinstance(wrapped, FunctionValue):
            wrapper.set_attr(tx, name, wrapped.get_attr(tx, name))
    if isinstance(wrapped, FunctionValue):
        if wrapped.function is not None and wrapped.source is not None:
            watch.keys(tx, InstanceDictSource(wrapped.source), tuple(wrapped.function.__dict__))
        for attribute in wrapped.function.__dict__ if wrapped.function else wrapped.attributes:
            wrapper.set_attr(tx, attribute, wrapped.get_attr(tx, attribute))
    wrapper.set_attr(tx, "__wrapped__", wrapped)
    return wrapper
