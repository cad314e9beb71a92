"""The text of a tensor, which only the data knows: a string that the program may pass around and drop.

Messages of checks are made before anybody needs them, mostly in vain. Whatever reads such a string, or leaves the frame
with it, ends the graph; it then ends before the string is made.
Neighbours: `builtin.py` (`str`, `repr`, `format`), `opcodes/text.py` (f-strings).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from stator.base.errors import GraphBreak
from stator.capture.fields import value_class
from stator.capture.values.base import Object

if TYPE_CHECKING:
    from stator.capture.machine import Machine
    from stator.capture.rewrite import Assembler
    from stator.capture.value import Value
    from stator.capture.values.mirror import Mirror


@value_class
class UnknownTextValue(Object):
    """A string of which only is known that it is one."""

    kind = "the text of a tensor"

    location: tuple[str, int]
    step: int

    @classmethod
    def here(cls, tx: Machine) -> UnknownTextValue:
        """A text that the program makes at this place."""
        return cls(tx.location(), tx.graph.step)

    def python_type(self) -> type:
        return str

    def refuse(self, what: str) -> GraphBreak:
        stop = GraphBreak("the text of a tensor depends on its data", "print outside of the compiled function")
        stop.location, stop.step = self.location, self.step
        return stop

    def by_builtin(self, tx: Machine, function: Any, /, *args: Value, **kwargs: Value) -> Value | None:
        return UnknownTextValue.here(tx) if function in (str, repr) else None

    def get_attr(self, tx: Machine, name: str) -> Value:
        raise self.refuse(name)

    def is_same(self, other: Value) -> bool:
        return self is other

    def _read(self, tx: Machine, op: str, other: Value) -> NoReturn:
        raise self.refuse(op)

    binary = binary_reflected = inplace = compare = _read

    def mirrored(self, mirror: Mirror) -> NoReturn:
        raise self.refuse("use")

    def reconstruct(self, out: Assembler) -> None:
        raise self.refuse("use")
