"""The match statement."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stator.capture.machine import opcode
from stator.capture.value import Raised

if TYPE_CHECKING:
    from stator.capture.machine import Machine
    from stator.capture.value import Value

# Type flags of CPython, from Include/object.h.
SEQUENCE, MAPPING, MATCH_SELF = 1 << 5, 1 << 6, 1 << 22


@opcode("GET_LEN")
def get_len(tx: Machine, arg: None) -> None:
    stack: Any = tx.stack
    stack.append(tx.build.const(stack[-1].length(tx)))


def _has_flag(tx: Machine, flag: int) -> None:
    stack: Any = tx.stack
    stack.append(tx.build.const(bool(stack[-1].python_type().__flags__ & flag)))


@opcode("MATCH_MAPPING")
def match_mapping(tx: Machine, arg: None) -> None:
    _has_flag(tx, MAPPING)


@opcode("MATCH_SEQUENCE")
def match_sequence(tx: Machine, arg: None) -> None:
    _has_flag(tx, SEQUENCE)


@opcode("MATCH_KEYS")
def match_keys(tx: Machine, arg: None) -> None:
    stack: Any = tx.stack
    subject, keys = stack[-2], stack[-1].unpack(tx)
    found: list[Value] = []
    for key in keys:
        if not subject.contains(tx, key).truth(tx):
            stack.append(tx.session.none)
            return
        found.append(subject.get_item(tx, key))
    stack.append(tx.build.make_tuple(found))


@opcode("MATCH_CLASS")
def match_class(tx: Machine, count: int) -> None:
    stack: Any = tx.stack
    names, cls, subject = stack.pop().constant(), stack.pop(), stack.pop()
    if not tx.builtin(isinstance).call(tx, [subject, cls], {}).truth(tx):
        stack.append(tx.session.none)
        return
    found = _class_attributes(tx, subject, cls, count, names)
    stack.append(tx.session.none if found is None else tx.build.make_tuple(found))


def _match_args(tx: Machine, cls: Value) -> tuple[str, ...] | None:
    """The attributes that positional patterns of a class stand for."""
    try:
        found: tuple[str, ...] = cls.get_attr(tx, "__match_args__").constant()
    except Raised as raised:
        if issubclass(raised.value.python_type(), AttributeError):
            return None
        raise
    return found


def _class_attributes(
    tx: Machine, subject: Value, cls: Value, count: int, names: tuple[str, ...]
) -> list[Value] | None:
    """The subject's attributes for positional, then keyword patterns; None when one is missing."""
    kind = cls.constant()
    found: list[Value] = []
    positional: tuple[str, ...] = ()
    if count:
        own = _match_args(tx, cls)
        if own is None and kind.__flags__ & MATCH_SELF:
            allowed = 1
            found.append(subject)
        else:
            allowed = len(own or ())
            positional = (own or ())[:count]
        if count > allowed:
            plural = "" if allowed == 1 else "s"
            text = f"{kind.__name__}() accepts {allowed} positional sub-pattern{plural} ({count} given)"
            tx.raise_exception(TypeError, text)
    for name in (*positional, *names):
        try:
            found.append(subject.get_attr(tx, name))
        except Raised as raised:
            if issubclass(raised.value.python_type(), AttributeError):
                return None
            raise
    return found
