"""What counts from the start of memory, of values that begin elsewhere in eager.

Eager's `slice_scatter` and its kin copy all memory of their operand, so that the result begins where that does. Ours
begin at the start of memory of their own, which nothing tells but what counts from there: that is refused.
Invariant: only programs are asked; graphs that the tracer makes count from where their values begin.
Neighbours: `mode.py` asks; `capture/aliasing.py` guards where the operands begin.
"""

from __future__ import annotations

from typing import Any

import torch

from stator.base.errors import Unsupported
from stator.fake.symbolic import size_of
from stator.fake.tensor import FakeTensor, memory_of

aten = torch.ops.aten

#: Operators whose results begin where their first operand does.
KEEPING = {
    aten.slice_scatter.default,
    aten.select_scatter.default,
    aten.diagonal_scatter.default,
    aten.as_strided_scatter.default,
}
#: Operators that count from the start of memory → which argument says where.
COUNTING = {
    aten.as_strided.default: 3,
    aten.as_strided_.default: 3,
    aten.as_strided_copy.default: 3,
    aten.as_strided_scatter.default: 4,
}


def check(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Refuses to count from the start of memory where that is not eager's."""
    position = COUNTING.get(func)
    if position is None or not isinstance(args[0], FakeTensor) or not memory_of(args[0]).moved:
        return
    start = args[position] if position < len(args) else kwargs.get("storage_offset")
    if start is not None:
        why = "it counts from the start of memory, and eager's result of a scatter begins there where its operand does"
        raise Unsupported(func, why, "clone the operand of the scatter")


def note(func: Any, args: tuple[Any, ...], out: Any) -> None:
    """Remembers of a fresh result that eager's begins elsewhere."""
    if func in KEEPING and isinstance(out, FakeTensor):
        x = args[0]
        if size_of(x.storage_offset()) != 0 or (x.memory is not None and x.memory.moved):
            memory_of(out).moved = True
