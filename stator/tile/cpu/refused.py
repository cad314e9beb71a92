"""What code generation refuses: an operator, why, and the line of the kernel where it is.

A refusal comes before anything has run. Neighbours: everything in this package raises it; `entry` says it once and
leaves the kernel to the interpreter.
"""

from __future__ import annotations

from stator.tile.ir.core import Location


class Refused(Exception):
    """An operator that there is no code for, and why."""

    def __init__(self, op: str, why: str, location: Location | None = None) -> None:
        self.op, self.why, self.location = op, why, location
        super().__init__(f"{op}: {why}" + ("" if location is None else f" ({location.file}:{location.line})"))
