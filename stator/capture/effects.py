"""Side effects of the interpreted program on objects that outlive the frame.

A changed object keeps its new state in its own value; this file remembers which values changed, in
order of first change, and the calls to replay (warnings). The rewritten code replays the calls in
program order, then writes every changed object back once, in its final state.
Invariant: only objects with a source (or cells and globals of real functions) are ever listed;
objects made by the frame are rebuilt complete, or vanish.
Neighbours: `values/*` (record), `rewrite.py` (calls `replay` and asks `live` for what must survive).
"""

from __future__ import annotations

import operator
from dataclasses import field
from typing import TYPE_CHECKING, Any

from stator.capture.fields import value_class
from stator.capture.value import Value
from stator.capture.values.python.constant import ConstantValue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from stator.capture.rewrite import Assembler

#: Marks a name that the program has deleted.
DELETED = Value()


@value_class
class GlobalsValue(Value):
    """The changed names of one globals dict."""

    kind = "globals"

    namespace: dict[str, Any]
    changed: dict[str, Value] = field(init=False, default_factory=dict)

    def children(self) -> Iterator[Value]:
        return (value for value in self.changed.values() if value is not DELETED)

    def write_back(self, out: Assembler) -> None:
        """Emit the assignments."""
        namespace = ConstantValue(self.namespace)
        for name, value in self.changed.items():
            if value is DELETED:
                # It may never have existed outside: made and deleted by the frame.
                out.call(dict.pop, namespace, ConstantValue(name), ConstantValue(None))
            else:
                out.call(operator.setitem, namespace, ConstantValue(name), value)
            out.pop()


class Effects:
    """What the frame has done to the world, as data."""

    __slots__ = ("calls", "changed", "globals")

    def __init__(self) -> None:
        #: Calls to replay: a live function and its arguments.
        self.calls: list[tuple[Callable[..., object], tuple[Value, ...]]] = []
        #: Values that implement `write_back(out)` (and list what they hold in `children`).
        self.changed: dict[Value, None] = {}
        self.globals: dict[int, GlobalsValue] = {}

    def __bool__(self) -> bool:
        return bool(self.calls or self.changed)

    def change(self, value: Value) -> None:
        """`value` differs from its object; its `write_back` brings the object up to date."""
        self.changed.setdefault(value)

    def call(self, function: Callable[..., object], *args: Value) -> None:
        """Replay `function(*args)` when the compiled frame runs."""
        self.calls.append((function, args))

    # -- globals -----------------------------------------------------------------------------------------

    def store_global(self, namespace: dict[str, Any], name: str, value: Value) -> None:
        """`global name; name = value` (or `del name`, with `DELETED`) in a function with these globals."""
        entry = self.globals.get(id(namespace))
        if entry is None:
            entry = self.globals[id(namespace)] = GlobalsValue(namespace)
        entry.changed[name] = value
        self.change(entry)

    def stored_global(self, namespace: dict[str, Any], name: str) -> Value | None:
        """What the frame has put there, `DELETED` included; None when it has not touched the name."""
        entry = self.globals.get(id(namespace))
        return None if entry is None else entry.changed.get(name)

    # -- after capture -------------------------------------------------------------------------------------

    def live(self) -> Iterator[Value]:
        """Every value that the replay will load."""
        for _, args in self.calls:
            yield from args
        for value in self.changed:
            yield value
            yield from value.children()

    def replay(self, out: Assembler) -> None:
        """Emit the effects."""
        for function, args in self.calls:
            out.call(function, *args)
            out.pop()
        for value in self.changed:
            value.write_back(out)  # type: ignore[attr-defined]
