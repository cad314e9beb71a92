"""A compiled graph as plain data: wrapper text, kernel sources and what to build them with.

Nothing here is bound to a process or a folder: the libraries are found again in the store by the keys under which
they were built, and built again where they are missing. `to_bytes` and `from_bytes` are exact inverses.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

FORMAT = 3


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
    """`wrapper` is a Python module text that defines `call(inputs)`; the rest says what a call of it runs, in order."""

    name: str
    wrapper: str
    units: tuple[Unit, ...]
    launches: tuple[str, ...] = ()  # kernels
    externs: tuple[str, ...] = ()  # ATen operators

    def to_bytes(self) -> bytes:
        return json.dumps({"format": FORMAT, **asdict(self)}).encode()

    @staticmethod
    def from_bytes(data: bytes) -> GraphArtifact:
        """ValueError where the bytes are of another format."""
        found = json.loads(data)
        if found.get("format") != FORMAT:
            raise ValueError(f"graph artifact of format {found.get('format')}, not {FORMAT}")
        units = [
            Unit(u["source"], tuple(u["kernels"]), tuple(u["flags"]), u["language"], u["library"])
            for u in found["units"]
        ]
        steps = tuple(found["launches"]), tuple(found["externs"])
        return GraphArtifact(found["name"], found["wrapper"], tuple(units), *steps)
