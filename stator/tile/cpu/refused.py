"""What code generation refuses. Neighbours: everything here raises it; `launch` says it once and interprets."""

from __future__ import annotations

from stator.tile.ir.core import Location


class Refused(Exception):
    """An operator that there is no code for, and why."""

    def __init__(self, op: str, why: str, location: Location | None = None) -> None:
        self.op, self.why, self.location = op, why, location
        super().__init__(f"{op}: {why}" + ("" if location is None else f" ({location.file}:{location.line})"))
