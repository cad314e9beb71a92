"""Context managers that stand in the graph: entering and leaving one are calls in it.

Where a graph ends inside of some, it leaves them, and the real contexts are entered behind it: `leave_open`.
Invariant: they are left in the opposite order of that in which they were entered; a program that does it otherwise is
refused.
Neighbours: `autocast.py` and `inference.py` (the kinds there are), `graph.py` (`open_contexts`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stator.base.errors import GraphBreak
from stator.capture.fields import value_class
from stator.capture.values.base import Modelled
from stator.capture.values.python.constant import FALSE

if TYPE_CHECKING:
    from stator.capture.machine import Machine
    from stator.capture.value import Value


@value_class
class GraphContext(Modelled):
    """A context that is entered and left in the graph; it may be entered again while it is open."""

    def truth(self, tx: Machine) -> bool:
        return True

    def enter(self, tx: Machine) -> Value:
        """Begins it in the graph; what `with … as` binds."""
        raise NotImplementedError(type(self).__name__)

    def leave(self, tx: Machine) -> None:
        """Ends it in the graph."""
        raise NotImplementedError(type(self).__name__)

    def m___enter__(self, tx: Machine, /) -> Value:
        entered = self.enter(tx)
        tx.graph.open_contexts.append(self)
        return entered

    def m___exit__(self, tx: Machine, /, *exception: Value) -> Value:
        contexts = tx.graph.open_contexts
        if not contexts or contexts[-1] is not self:
            raise GraphBreak(f"{self.kind} is left that is not the innermost one", "use a with statement")
        self.leave(tx)
        contexts.pop()
        return FALSE


def leave_open(tx: Machine) -> None:
    """The graph ends here: what is open in it goes on behind it, in real contexts."""
    for context in reversed(tx.graph.open_contexts):
        context.leave(tx)
    for context in tx.graph.open_contexts:
        tx.effects.call(context.python_type().__enter__, context)
    tx.graph.open_contexts.clear()
