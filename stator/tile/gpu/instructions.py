"""The products that tensor cores compute, by the dtype of the operands: one row each.

`mma.sync` of a warp gives 16 by 8 results; how much it takes of the inner axis, and how many elements make a word of 32
bits, follow from the dtype. `wgmma` of a group of four warps gives 64 by up to 256, of operands in shared memory.
Neighbours: `stator.tile.layouts.mma` has the layouts; `operators` checks `mma` by this table, `matmul` chooses by it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from stator.tile.ir.types import Element


@dataclass(frozen=True)
class Instruction:
    """`name` is the shape in PTX; `inner` elements of the inner axis at once, `width` in a word; sums in `sums`."""

    name: str
    operand: str  # as PTX calls it
    inner: int
    width: int
    sums: tuple[str, ...]
    precisions: tuple[str, ...] = ("tf32", "tf32x3", "ieee", "bf16x3", "bf16x6")


#: The dtype of both operands → the instruction. f32 is cut to tf32, where a precision asks for no more.
INSTRUCTIONS: dict[str, Instruction] = {
    "f16": Instruction("m16n8k16", "f16", 16, 2, ("f32", "f16")),
    "bf16": Instruction("m16n8k16", "bf16", 16, 2, ("f32",)),
    "f32": Instruction("m16n8k8", "tf32", 8, 1, ("f32",), ("tf32",)),
    "i8": Instruction("m16n8k32", "s8", 32, 4, ("i32",)),
    "u8": Instruction("m16n8k32", "u8", 32, 4, ("i32",)),
}
#: The same of warp groups.
GROUP_INSTRUCTIONS: dict[str, Instruction] = {
    "f16": Instruction("m64nNk16", "f16", 16, 2, ("f32",)),
    "bf16": Instruction("m64nNk16", "bf16", 16, 2, ("f32",)),
}


def instruction(
    a: Element, b: Element, sums: Element, precision: str, table: Mapping[str, Instruction] = INSTRUCTIONS
) -> Instruction | None:
    """The one that multiplies operands of these dtypes, or None."""
    found = table.get(str(a)) if a == b else None
    fits = found is not None and str(sums) in found.sums and precision in found.precisions
    return found if fits else None
