"""What compiling a captured graph gives, as plain data: it can be written to disk and linked in another process.

The bytes are the parts in order, each with its length before it; bytes that another version wrote are not an error but
nothing. Neighbours: `pipeline.py` makes it, `driver.py` stores and links it.
"""

from __future__ import annotations

import io
import pickle

import torch

from stator.aot.metadata import Metadata
from stator.base.records import dataclass
from stator.runtime.artifact import GraphArtifact

_LENGTH = 8
#: What reading the parts of another version can raise.
UNREADABLE = (ValueError, LookupError, TypeError, AttributeError, EOFError, RuntimeError, pickle.UnpicklingError)


@dataclass(frozen=True, slots=True)
class Compiled:
    """Metadata, the two graphs, the tensors that were constants in the traced function, and what the forward graph's
    last inputs are computed by.
    """

    metadata: Metadata
    forward: GraphArtifact
    backward: GraphArtifact | None
    constants: tuple[torch.Tensor, ...] = ()
    prologue: GraphArtifact | None = None

    def to_bytes(self) -> bytes:
        """Every part with its length before it."""
        stream = io.BytesIO()
        if self.constants:
            torch.save(list(self.constants), stream)
        parts = [
            self.metadata.to_json().encode(),
            self.forward.to_bytes(),
            self.backward.to_bytes() if self.backward is not None else b"",
            stream.getvalue(),
            self.prologue.to_bytes() if self.prologue is not None else b"",
        ]
        return b"".join(len(part).to_bytes(_LENGTH, "little") + part for part in parts)

    @staticmethod
    def from_bytes(data: bytes) -> Compiled | None:
        """The inverse of `to_bytes`; None where the data was written by another version."""
        parts, at = [], 0
        while at < len(data):
            size = int.from_bytes(data[at : at + _LENGTH], "little")
            parts.append(data[at + _LENGTH : at + _LENGTH + size])
            at += _LENGTH + size
        try:
            metadata, forward, backward, constants, prologue = parts
            return Compiled(
                Metadata.from_json(metadata.decode()),
                GraphArtifact.from_bytes(forward),
                GraphArtifact.from_bytes(backward) if backward else None,
                tuple(torch.load(io.BytesIO(constants))) if constants else (),
                GraphArtifact.from_bytes(prologue) if prologue else None,
            )
        except UNREADABLE:
            return None
