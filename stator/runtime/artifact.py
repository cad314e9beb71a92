"""A compiled graph as plain data: its plan, kernel sources and what to build them with.

Nothing here is bound to a process or a folder: the libraries are found again in the store by the keys under which
they were built, and built again where they are missing. `to_bytes` and `from_bytes` are exact inverses.
"""

from __future__ import annotations

import json
from dataclasses import asdict

from stator import plan as plans
from stator.base.records import dataclass

FORMAT = 4
_LENGTH = 8


@dataclass(frozen=True, slots=True)
class Unit:
    """One translation unit: its source, the kernels it defines, and the flags it was written for.

    `library` is the key of what it was compiled to, where that has been done.
    """

    source: str
    kernels: tuple[str, ...]
    flags: tuple[str, ...]
    language: str = "cpp"
    library: str = ""


@dataclass(frozen=True, slots=True)
class GraphArtifact:
    """What a call runs, and the units of its kernels."""

    plan: plans.Plan
    units: tuple[Unit, ...]

    def to_bytes(self) -> bytes:
        """The length of the plan, the plan, the units."""
        plan = plans.to_bytes(self.plan)
        units = json.dumps({"format": FORMAT, "units": [asdict(unit) for unit in self.units]}).encode()
        return len(plan).to_bytes(_LENGTH, "little") + plan + units

    @staticmethod
    def from_bytes(data: bytes) -> GraphArtifact:
        """ValueError where the bytes are of another format."""
        end = _LENGTH + int.from_bytes(data[:_LENGTH], "little")
        found = json.loads(data[end:])
        if not isinstance(found, dict) or found.get("format") != FORMAT:
            raise ValueError(f"what was read is no graph artifact of format {FORMAT}")
        units = [
            Unit(u["source"], tuple(u["kernels"]), tuple(u["flags"]), u["language"], u["library"])
            for u in found["units"]
        ]
        return GraphArtifact(plans.from_bytes(data[_LENGTH:end]), tuple(units))
