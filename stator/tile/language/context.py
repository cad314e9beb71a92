"""Where the functions of the language put what they compute: the builder of the kernel that is being compiled or run.

A kernel's text has no place to pass a context through (`a + b`, `tl.arange(0, 8)`), so it is a variable of the thread:
set by `entered`, read by `active`. Outside of a kernel there is none, and the language's functions say so.
Neighbours: `stator.tile.ir.build` has the builders, the front end and `frontend/direct.py` enter contexts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, NamedTuple

from stator.tile.errors import InvalidUse
from stator.tile.ir.rules import TypeRule
from stator.tile.ir.types import Type
from stator.tile.language.static import unwrap
from stator.tile.language.types import dtype, type_of_ir
from stator.tile.language.values import tensor


class Checks(NamedTuple):
    """What a kernel checks while it runs: its own assertions, and that integers of up to 32 bits do not overflow."""

    assertions: bool = False
    overflow: bool = False


NO_CHECKS = Checks()


@dataclass
class Context:
    """A kernel on its way: who builds it, and how functions of the program are called in it."""

    builder: Any
    #: Calls a function of the program, jit or plain, with values of the language.
    call: Callable[[Any, Sequence[Any]], Any]
    #: Whether the kernel's text runs directly, so that tensors have numbers.
    direct: bool = False
    #: Whether what is built now is thrown away afterwards: nothing is printed for it.
    discarded: bool = False
    checks: Checks = NO_CHECKS
    #: Whether the kernel has made a pointer of an integer, which may be into memory that no argument names.
    makes_pointers: bool = False


_ACTIVE: ContextVar[Context | None] = ContextVar("stator_tile_context", default=None)


def active() -> Context:
    """The context of the kernel whose text is being compiled or run."""
    context = _ACTIVE.get()
    if context is None:
        text = "a function of the language was called outside of a kernel"
        raise InvalidUse(text, "call it in a `@triton.jit` function")
    return context


def is_active() -> bool:
    """Whether a kernel is being compiled or run."""
    return _ACTIVE.get() is not None


@contextmanager
def entered(context: Context) -> Iterator[Context]:
    """The context is the active one."""
    token = _ACTIVE.set(context)
    try:
        yield context
    finally:
        _ACTIVE.reset(token)


def emit_operation(op: str, handles: Sequence[Any], regions: Sequence[Any] = (), **attrs: Any) -> list[Any]:
    """Appends an operation on handles and gives the handles of its results."""
    plain = {name: unwrap(value) for name, value in attrs.items()}
    try:
        return list(active().builder.emit(op, handles, plain, tuple(regions)))
    except TypeRule as error:
        raise InvalidUse(str(error), _HINTS.get(op, "")) from error


def emit_all(op: str, operands: Sequence[Any], regions: Sequence[Any] = (), **attrs: Any) -> list[Any]:
    """Appends an operation on tensors and gives the handles of its results."""
    return emit_operation(op, [operand.handle for operand in operands], regions, **attrs)


#: What helps where an operator of the IR does not take what it is given.
_HINTS = dict.fromkeys("add sub mul div neg lt le gt ge eq ne maximum minimum".split(), "cast fp8 to tl.float16 first")


def emit(op: str, *operands: tensor, type: dtype | None = None, **attrs: Any) -> tensor:
    """Appends an operation with one result; its type is the one given, or what the IR's rule says."""
    (handle,) = emit_all(op, operands, **attrs)
    return tensor(handle, type_of_ir(handle.type) if type is None else type)


def constant(value: Any, type: dtype) -> tensor:
    """A number of a dtype."""
    (handle,) = emit_all("constant", [], value=value, type=Type(type.ir))
    return tensor(handle, type)
