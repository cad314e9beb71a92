"""Values that hold real objects: lets the machine run plain Python programs without torch.

Every operation is done for real on the held object, calls of Python functions are inlined, so a difference between
the machine's result and Python's own is the fault of an opcode.
"""

from __future__ import annotations

import operator
import types
from typing import Any

from stator.capture import opcodes as _opcodes  # fills the machine's table
from stator.capture.generators import GeneratorValue
from stator.capture.machine import Machine, Session
from stator.capture.value import Raised, Value

assert _opcodes.__all__
SYMBOLS = {
    "+": "add", "-": "sub", "*": "mul", "/": "truediv", "//": "floordiv", "%": "mod", "**": "pow", "@": "matmul",
    "&": "and_", "|": "or_", "^": "xor", "<<": "lshift", ">>": "rshift",
    "<": "lt", "<=": "le", "==": "eq", "!=": "ne", ">": "gt", ">=": "ge",
}  # fmt: skip


class Bridge:
    """A value seen by real code: calling or iterating it goes back to the machine."""

    __slots__ = ("__dict__", "tx", "value")

    def __init__(self, tx: Machine, value: Value) -> None:
        self.tx, self.value = tx, value

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return through(self.tx, lambda: self.value.call(self.tx, [hold(a) for a in args], hold_all(kwargs)))

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> Any:
        item = through(self.tx, lambda: self.value.next_item(self.tx))
        if item is StopIteration:
            raise StopIteration
        return item


def through(tx: Machine, action: Any) -> Any:
    """Runs the machine from real code: its exceptions become real ones."""
    try:
        value = action()
    except Raised as raised:
        raise release(tx, raised.value) from None
    return StopIteration if value is None else release(tx, value)


def hold(obj: Any) -> Value:
    return obj.value if type(obj) is Bridge else Plain(obj)


def hold_all(kwargs: dict[str, Any]) -> dict[str, Value]:
    return {name: hold(value) for name, value in kwargs.items()}


def release(tx: Machine, value: Value) -> Any:
    return value.obj if isinstance(value, Plain) else Bridge(tx, value)


class Plain(Value):
    __slots__ = ("obj",)

    def __init__(self, obj: Any) -> None:
        super().__init__()
        self.obj = obj

    def do(self, tx: Machine, function: Any, *args: Value, **kwargs: Value) -> Value:
        real = [release(tx, arg) for arg in args]
        named = {name: release(tx, arg) for name, arg in kwargs.items()}
        try:
            return hold(function(self.obj, *real, **named))
        except Exception as error:
            raise Raised(Plain(error)) from None

    def python_type(self) -> type:
        return type(self.obj)

    def is_constant(self) -> bool:
        return True

    def constant(self) -> Any:
        return self.obj

    def truth(self, tx: Machine) -> bool:
        return self.do(tx, bool).obj  # type: ignore[attr-defined]

    def get_attr(self, tx: Machine, name: str) -> Value:
        return self.do(tx, lambda obj: getattr(obj, name))

    def set_attr(self, tx: Machine, name: str, value: Value) -> None:
        self.do(tx, lambda obj, item: setattr(obj, name, item), value)

    def del_attr(self, tx: Machine, name: str) -> None:
        self.do(tx, lambda obj: delattr(obj, name))

    def get_item(self, tx: Machine, key: Value) -> Value:
        return self.do(tx, operator.getitem, key)

    def set_item(self, tx: Machine, key: Value, value: Value) -> None:
        self.do(tx, operator.setitem, key, value)

    def del_item(self, tx: Machine, key: Value) -> None:
        self.do(tx, operator.delitem, key)

    def contains(self, tx: Machine, item: Value) -> Value:
        return self.do(tx, operator.contains, item)

    def length(self, tx: Machine) -> int:
        return self.do(tx, len).obj  # type: ignore[attr-defined]

    def iterate(self, tx: Machine) -> Value:
        return self.do(tx, iter)

    def next_item(self, tx: Machine) -> Value | None:
        try:
            return hold(next(self.obj))
        except StopIteration:
            return None
        except Exception as error:
            raise Raised(Plain(error)) from None

    def add_item(self, tx: Machine, item: Value) -> None:
        self.do(tx, set.add if isinstance(self.obj, set) else list.append, item)

    def pairs(self, tx: Machine) -> list[tuple[Value, Value]]:
        return [(hold(key), hold(value)) for key, value in self.obj.items()]

    def call(self, tx: Machine, args: Any, kwargs: dict[str, Value]) -> Value:
        if isinstance(self.obj, types.MethodType):
            return Plain(self.obj.__func__).call(tx, [hold(self.obj.__self__), *args], kwargs)
        if isinstance(self.obj, types.FunctionType):
            return tx.inline(Known(self.obj), args, kwargs)
        if self.obj is super and not args:
            cls, instance = tx.frame_super()
            args = [cls, instance]
        return self.do(tx, lambda function, *a, **k: function(*a, **k), *args, **kwargs)

    def is_same(self, other: Value) -> bool:
        return isinstance(other, Plain) and self.obj is other.obj


class CellValue(Value):
    def __init__(self, content: Value | None) -> None:
        super().__init__()
        self.content = content

    def get(self, tx: Machine) -> Value | None:
        return self.content

    def set(self, tx: Machine, value: Value | None) -> None:
        self.content = value


class RealCell(Value):
    """A cell of a real function: written through, so that real code sees it."""

    def __init__(self, cell: types.CellType) -> None:
        super().__init__()
        self.cell = cell

    def get(self, tx: Machine) -> Value | None:
        try:
            return hold(self.cell.cell_contents)
        except ValueError:
            return None

    def set(self, tx: Machine, value: Value | None) -> None:
        if value is None:
            del self.cell.cell_contents
        else:
            self.cell.cell_contents = release(tx, value)


class Known:
    """A real function as the machine inlines it."""

    def __init__(self, function: types.FunctionType) -> None:
        self.function = function
        self.code, self.globals, self.qualname = function.__code__, function.__globals__, function.__qualname__

    def default(self, tx: Machine, position: int) -> Value | None:
        defaults = self.function.__defaults__ or ()
        index = position - self.code.co_argcount + len(defaults)
        return hold(defaults[index]) if index >= 0 else None

    def keyword_default(self, tx: Machine, name: str) -> Value | None:
        defaults = self.function.__kwdefaults__ or {}
        return hold(defaults[name]) if name in defaults else None

    def closure_cell(self, tx: Machine, index: int) -> Value:
        return RealCell(self.function.__closure__[index])  # type: ignore[index]


class Made(Value):
    """A function made by the program."""

    def __init__(
        self, tx: Machine, code: Any, qualname: str, closure: Any, defaults: Any, keyword_defaults: Any
    ) -> None:
        super().__init__()
        self.code, self.qualname, self.globals, self.closure = code, qualname, tx.globals, closure
        self.defaults, self.keyword_defaults = defaults, keyword_defaults

    def python_type(self) -> type:
        return types.FunctionType

    def truth(self, tx: Machine) -> bool:
        return True

    def default(self, tx: Machine, position: int) -> Value | None:
        index = position - self.code.co_argcount + len(self.defaults)
        return self.defaults[index] if index >= 0 else None

    def keyword_default(self, tx: Machine, name: str) -> Value | None:
        return self.keyword_defaults.get(name)

    def closure_cell(self, tx: Machine, index: int) -> Value:
        return self.closure[index]

    def call(self, tx: Machine, args: Any, kwargs: dict[str, Value]) -> Value:
        return tx.inline(self, args, kwargs)

    def get_attr(self, tx: Machine, name: str) -> Value:
        assert name == "__name__"
        return Plain(self.code.co_name)


class Build:
    """The `Builder` for plain values."""

    def __init__(self) -> None:
        self.tx: Any = None

    def wrap(self, tx: Machine, obj: Any, source: Any) -> Value:
        return hold(obj)

    def const(self, obj: Any) -> Value:
        return Plain(obj)

    def _real(self, items: Any) -> list[Any]:
        return [release(self.tx, item) for item in items]

    def make_tuple(self, items: Any) -> Value:
        if any(isinstance(item, CellValue | RealCell) for item in items):
            return Cells(items)
        return Plain(tuple(self._real(items)))

    def make_list(self, items: Any) -> Value:
        return Plain(self._real(items))

    def make_set(self, tx: Machine, items: Any) -> Value:
        return Plain(items).do(tx, lambda values: set(self._real(values)))

    def make_dict(self, tx: Machine, pairs: Any) -> Value:
        return Plain(pairs).do(tx, lambda entries: {release(tx, k): release(tx, v) for k, v in entries})

    def make_slice(self, start: Value, stop: Value, step: Value) -> Value:
        return Plain(slice(*self._real([start, stop, step])))

    def make_function(
        self,
        tx: Machine,
        code: Any,
        qualname: str,
        closure: Any,
        defaults: Any,
        keyword_defaults: Any,
        annotations: Any,
    ) -> Value:
        return Made(tx, code, qualname, closure, defaults, keyword_defaults)

    def make_cell(self, content: Value | None, cell: Any = None, source: Any = None) -> Value:
        return CellValue(content)

    def make_exception(self, tx: Machine, cls: type[BaseException], args: list[Value]) -> Value:
        return Plain(cls(*self._real(args)))


class Cells(Value):
    def __init__(self, items: list[Value]) -> None:
        super().__init__()
        self.items = items

    def unpack(self, tx: Machine) -> list[Value]:
        return self.items


class Operators:
    def _do(self, tx: Machine, name: str, left: Value, right: Value) -> Value:
        return Plain(release(tx, left)).do(tx, getattr(operator, name), right)

    def binary(self, tx: Machine, op: str, left: Value, right: Value) -> Value:
        return self._do(tx, SYMBOLS[op], left, right)

    def inplace(self, tx: Machine, op: str, left: Value, right: Value) -> Value:
        return self._do(tx, "i" + SYMBOLS[op].removesuffix("_"), left, right)

    compare = binary

    def unary(self, tx: Machine, op: str, value: Value) -> Value:
        return Plain(release(tx, value)).do(tx, {"-": operator.neg, "+": operator.pos, "~": operator.invert}[op])

    def contains(self, tx: Machine, item: Value, container: Value) -> Value:
        return container.contains(tx, item)

    def identical(self, tx: Machine, left: Value, right: Value) -> bool:
        return left is right or left.is_same(right)


class Effects:
    """Globals are written for real."""

    def store_global(self, namespace: dict[str, Any], name: str, value: Value) -> None:
        if value is DELETED:
            del namespace[name]
        else:
            namespace[name] = value.obj  # type: ignore[attr-defined]

    def stored_global(self, namespace: dict[str, Any], name: str) -> Value | None:
        return hold(namespace[name]) if name in namespace else None


DELETED = Value()


def run(function: types.FunctionType, *args: Any) -> Any:
    """`function(*args)` on the machine; raises what the program raises."""
    build = Build()
    session = Session(
        graph=None, effects=Effects(), guard=lambda *fact: None, build=build, operators=Operators(), deleted=DELETED,
        root_globals=function.__globals__,
    )  # fmt: skip
    known = Known(function)
    root = Machine(session, Start.__code__, Known(Start), [], None)
    build.tx = root
    try:
        value = root.inline(known, [hold(arg) for arg in args], {})
    except Raised as raised:
        raise release(root, raised.value) from None
    assert not isinstance(value, GeneratorValue)
    return release(root, value)


def Start() -> None:
    """The frame below the program."""
