"""`contextvars.ContextVar`: read under a guard, set as an effect that is undone when its token is given back.

Neighbours: `effects.py` (the final value is written when the compiled code runs).
"""

from __future__ import annotations

import contextvars
from dataclasses import field
from typing import TYPE_CHECKING, Any

from stator.capture.fields import part, value_class
from stator.capture.values import watch
from stator.capture.values.base import Object
from stator.capture.values.fold import run
from stator.capture.values.lookup import MISSING
from stator.capture.values.python.constant import NONE, ConstantValue
from stator.capture.values.registry import LITERALS, builds, fresh

if TYPE_CHECKING:
    from stator.capture.machine import Machine
    from stator.capture.rewrite import Assembler
    from stator.capture.source import Source
    from stator.capture.value import Value


@value_class
class ContextVariableValue(Object):
    """A context variable, known by identity."""

    kind = "a context variable"

    variable: contextvars.ContextVar[Any]
    #: What the program has set; None while it is as it was.
    content: Value | None = part(init=False, default=None)

    def python_type(self) -> type:
        return contextvars.ContextVar

    def truth(self, tx: Machine) -> bool:
        return True

    def m_get(self, tx: Machine, default: Value | None = None, /) -> Value:
        if self.content is not None:
            return self.content
        assert self.source is not None
        if not is_set(self.variable):
            tx.guard("CALL", self.source, (is_set, False))
            if default is not None:
                return default
        found = run(tx, contextvars.ContextVar.get, (self.variable,))
        if type(found) not in LITERALS:
            raise self.refuse("reading an object from it")
        tx.guard("CALL", self.source, (contextvars.ContextVar.get, found))
        return fresh(found)

    def m_set(self, tx: Machine, value: Value, /) -> Value:
        token = TokenValue(self, self.content)
        self.content = value
        tx.effects.change(self)
        return token

    def m_reset(self, tx: Machine, token: Value, /) -> Value:
        if not isinstance(token, TokenValue) or token.variable is not self or token.used:
            raise self.refuse("reset() with this token")
        token.used = True
        self.content = token.before
        return NONE

    def write_back(self, out: Assembler) -> None:
        """Emit the assignment, if it was not undone."""
        if self.content is not None:
            out.call(set_variable, ConstantValue(self.variable), self.content)
            out.pop()


@value_class
class TokenValue(Object):
    """What `set` gives, to undo it."""

    kind = "a token of a context variable"

    variable: ContextVariableValue = part()
    before: Value | None = part()
    used: bool = field(init=False, default=False)

    def python_type(self) -> type:
        return contextvars.Token


def is_set(variable: contextvars.ContextVar[Any]) -> bool:
    """Whether a context variable has a value here, other than its own default."""
    return variable.get(MISSING) is not MISSING


def set_variable(variable: contextvars.ContextVar[Any], value: object) -> None:
    """What the compiled code runs."""
    variable.set(value)


@builds(contextvars.ContextVar)
def build_context_variable(tx: Machine, obj: Any, source: Source) -> Value:
    """A context variable is known by identity; reading it guards its value."""
    watch.identity(tx, source, obj)
    return ContextVariableValue(obj, source=source)
