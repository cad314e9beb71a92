"""Raising, handling and the with statement."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stator.capture.generators import as_exception
from stator.capture.machine import opcode
from stator.capture.source import ConstSource
from stator.capture.value import Raised
from stator.capture.values.methods import type_name

if TYPE_CHECKING:
    from stator.capture.machine import Machine
    from stator.capture.value import Value


@opcode("RAISE_VARARGS")
def raise_varargs(tx: Machine, count: int) -> None:
    stack: Any = tx.stack
    if count == 0:
        handled = tx.handled_exception()
        if handled is None:
            tx.raise_exception(RuntimeError, "No active exception to reraise")
        raise Raised(handled, again=True)
    cause = stack.pop() if count == 2 else None
    exception = as_exception(tx, stack.pop())
    if cause is not None:
        nothing = cause.is_none()
        exception.set_attr(tx, "__cause__", cause if nothing else as_exception(tx, cause))
    handled = tx.handled_exception()
    if handled is not None and handled is not exception and exception.source is None:
        exception.set_attr(tx, "__context__", handled)
    raise Raised(exception)


@opcode("RERAISE")
def reraise(tx: Machine, depth: int) -> None:
    """`depth` finds the instruction that raised first; only tracebacks need it."""
    exception: Any = tx.stack.pop()
    raise Raised(exception, again=True)


@opcode("PUSH_EXC_INFO")
def push_exc_info(tx: Machine, arg: None) -> None:
    stack = tx.stack
    exception = stack[-1]
    stack[-1] = tx.handled
    stack.append(exception)
    tx.handled = exception


@opcode("POP_EXCEPT")
def pop_except(tx: Machine, arg: None) -> None:
    tx.handled = tx.stack.pop()


#: Flag of classes whose bases cannot be assigned (CPython's Include/object.h).
IMMUTABLE = 1 << 8


@opcode("CHECK_EXC_MATCH")
def check_exc_match(tx: Machine, arg: None) -> None:
    stack: Any = tx.stack
    wanted = stack.pop()
    kind = stack[-1].python_type()
    if not kind.__flags__ & IMMUTABLE:
        tx.guard("MRO", ConstSource(kind), kind.__mro__)
    stack.append(tx.build.const(any(issubclass(kind, cls) for cls in exception_classes(tx, wanted))))


def exception_classes(tx: Machine, wanted: Value) -> list[type[BaseException]]:
    """The classes that an except clause names."""
    entries = wanted.unpack(tx) if issubclass(wanted.python_type(), tuple) else [wanted]
    classes: list[type[BaseException]] = []
    for entry in entries:
        if not (issubclass(entry.python_type(), type) and issubclass(entry.constant(), BaseException)):
            text = "catching classes that do not inherit from BaseException is not allowed"
            tx.raise_exception(TypeError, text)
        classes.append(entry.constant())
    return classes


@opcode("BEFORE_WITH")
def before_with(tx: Machine, arg: None) -> None:
    stack: Any = tx.stack
    manager = stack.pop()
    try:
        enter = manager.get_attr(tx, "__enter__")
        leave = manager.get_attr(tx, "__exit__")
    except Raised as raised:
        if not issubclass(raised.value.python_type(), AttributeError):
            raise
        name = type_name(manager.python_type())
        missing = "" if hasattr(manager.python_type(), "__exit__") else " (missed __exit__ method)"
        missing = missing if hasattr(manager.python_type(), "__enter__") else ""
        tx.raise_exception(TypeError, f"{name!r} object does not support the context manager protocol{missing}")
    stack.append(leave)
    stack.append(enter.call(tx, [], {}))


@opcode("WITH_EXCEPT_START")
def with_except_start(tx: Machine, arg: None) -> None:
    stack: Any = tx.stack
    leave, exception = stack[-4], stack[-1]
    kind = tx.builtin(exception.python_type())
    stack.append(leave.call(tx, [kind, exception, exception.get_attr(tx, "__traceback__")], {}))
