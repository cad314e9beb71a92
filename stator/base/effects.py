"""What a call may do beside giving its value: a small closed set, in which graphs, loops and plans speak of it.

What has an effect is not dropped, merged with an equal call, or made again; calls with effects stay in their order. Two
are free of it: nobody sees when a check is made, for a graph that raises has done nothing; and writes of the caller's
memory are seen only when the graph is done.
Neighbours: `fake/effects.py` (of operators), `graphs/calls.py` (of nodes), `loop/deps.py` and `plan/order.py` (order).
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class Effect(StrEnum):
    """One kind; a call may have several."""

    #: It takes numbers from torch's generator.
    RANDOM = "random"
    #: It writes memory that its caller sees; so does the functional form of such an operator, maybe.
    WRITE = "write"
    #: It raises for some data.
    CHECK = "check"
    #: It meets calls of other processes, which make the same ones in the same order.
    COLLECTIVE = "collective"
    #: It does what only its author knows.
    CUSTOM = "custom"


#: What nobody can take back: generators are put back, and so is memory.
LASTING: Final = frozenset({Effect.COLLECTIVE, Effect.CUSTOM})
#: The namespace of functional forms of operators of the program that write to arguments (`aot/written.py`).
WRITTEN: Final = "stator_written"
