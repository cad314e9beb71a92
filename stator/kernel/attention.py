"""How attention runs on a GPU: how many rows of queries and of keys a program takes at once.

A program of the forward kernel, and of that for the gradient of queries, has a block of rows of queries and walks the
keys; that for the gradients of keys and values has a block of keys and walks the queries. `candidates` are those that
fit the device, in the order in which they were the fastest on an H100 (bfloat16, 4,096 rows, 32 heads of 64 or 16 of
128 elements): `choose` takes the first. Under `autotune` they are timed.
Neighbours: `loop/attention.py` says what is computed, `codegen/triton/attention.py` prints it.
"""

from __future__ import annotations

from dataclasses import dataclass

from stator.base.device import Device
from stator.base.dtypes import ITEMSIZE
from stator.kernel.blocks import power_of_two
from stator.kernel.decisions import pieces_of
from stator.loop.attention import Attention
from stator.loop.kernel import Kernel
from stator.sizes import Extent, hint

#: Rows of a tile that tensor cores multiply, at least.
LEAST = 16


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of queries and of keys in a block, steps that are on their way from memory, and warps of a program."""

    queries: int
    keys: int
    stages: int
    warps: int

    def __str__(self) -> str:
        return f"{self.queries} by {self.keys} rows, {self.stages} stages, {self.warps} warps"


#: Kind of kernel → elements of a row up to which these blocks are the fastest, best first.
FASTEST: dict[str, tuple[tuple[int, tuple[Rows, ...]], ...]] = {
    "forward": (
        (64, (Rows(64, 64, 3, 4), Rows(128, 64, 3, 8), Rows(128, 64, 3, 4), Rows(128, 128, 2, 4), Rows(64, 32, 3, 4))),
        (128, (Rows(128, 64, 2, 4), Rows(128, 64, 3, 8), Rows(64, 64, 2, 4), Rows(128, 32, 3, 4), Rows(64, 32, 2, 4))),
        (256, (Rows(128, 32, 2, 8), Rows(64, 32, 2, 4), Rows(64, 64, 2, 4), Rows(32, 32, 2, 4), Rows(16, 32, 1, 4))),
    ),
    "keys": (
        (64, (Rows(64, 64, 3, 4), Rows(64, 64, 2, 4), Rows(32, 128, 3, 4), Rows(128, 128, 2, 8), Rows(32, 64, 2, 4))),
        (128, (Rows(64, 64, 2, 4), Rows(64, 128, 2, 8), Rows(32, 64, 2, 4), Rows(32, 128, 3, 8), Rows(32, 32, 1, 4))),
        (256, (Rows(32, 64, 1, 8), Rows(32, 32, 1, 4), Rows(64, 64, 1, 8), Rows(16, 32, 1, 4), Rows(16, 16, 1, 4))),
    ),
    "queries": (
        (64, (Rows(64, 64, 3, 4), Rows(128, 64, 3, 8), Rows(64, 64, 2, 4), Rows(128, 32, 3, 4), Rows(32, 64, 2, 4))),
        (128, (Rows(64, 64, 2, 4), Rows(128, 64, 2, 8), Rows(64, 32, 2, 4), Rows(128, 32, 2, 8), Rows(32, 32, 1, 4))),
        (256, (Rows(64, 32, 1, 8), Rows(32, 32, 1, 4), Rows(64, 64, 1, 8), Rows(16, 32, 1, 4), Rows(16, 16, 1, 4))),
    ),
}


@dataclass(frozen=True, slots=True)
class AttentionPlan:
    """A kernel of attention and its blocks."""

    kernel: Kernel
    attention: Attention
    rows: Rows
    threads: int

    @property
    def blocks(self) -> Extent:
        """Blocks of the rows that are not walked."""
        attention = self.attention
        along = (attention.keys, self.rows.keys) if attention.kind == "keys" else (attention.queries, self.rows.queries)
        return pieces_of(*along)

    @property
    def programs(self) -> Extent:
        """Programs: one for each block of each head."""
        attention = self.attention
        heads = attention.heads // attention.groups if attention.kind == "keys" else attention.heads
        return self.blocks * heads * attention.batches

    def reason(self, device: Device) -> str:
        """The decision in a line."""
        return f"{self.programs} blocks of {self.rows}: {hint(self.programs) / device.cores:.1f} waves"


def plan_attention(kernel: Kernel, device: Device, rows: Rows | None = None) -> AttentionPlan:
    """These blocks, or the first of the candidates."""
    assert kernel.attention is not None
    rows = rows or candidates(kernel.attention, device)[0]
    return AttentionPlan(kernel, kernel.attention, rows, rows.warps * device.warp)


def candidates(attention: Attention, device: Device) -> list[Rows]:
    """What fits the device, the fastest first; blocks are no larger than what there is, as far as that is known."""
    width = max(attention.width, attention.depth)
    (listed,) = [rows for most, rows in FASTEST[attention.kind] if width <= most][:1]
    fitted = [
        Rows(_fitted(r.queries, attention.queries), _fitted(r.keys, attention.keys), r.stages, r.warps) for r in listed
    ]
    found = [rows for rows in dict.fromkeys(fitted) if shared_bytes(attention, rows) <= device.shared_bytes]
    return found or fitted[-1:]


def _fitted(rows: int, extent: Extent) -> int:
    return min(rows, max(LEAST, power_of_two(extent))) if type(extent) is int else rows


def shared_bytes(attention: Attention, rows: Rows) -> int:
    """What is near a core: what stays for a block, and the stages of what is walked."""
    row = power_of_two(attention.width) + power_of_two(attention.depth)
    kept, walked = (rows.keys, rows.queries) if attention.kind == "keys" else (rows.queries, rows.keys)
    return row * ITEMSIZE[attention.dtype] * (kept + walked * rows.stages)
