"""Products of 32-bit integers of which a kernel wants both halves: one instruction gives them (`mul.wide`).

The upper half alone takes as long as that, and the lower half alone half as long, so a generator of random numbers
(Philox, which takes both of every product) has a third less to do. LLVM would make two of it again: it narrows a
product of which only the low bits are used, so this is an instruction of PTX.
Neighbours: `elementwise` asks here for `mul` and `mulhi`.
"""

from __future__ import annotations

from stator.tile.cpu.code import Maker
from stator.tile.ir.core import Function, Operation
from stator.tile.ir.types import DType
from stator.tile.nvidia.formulas import instruction

_BITS = 32


class WideProducts:
    """Which products of a function are wanted whole, and those that have been written so far."""

    def __init__(self, function: Function) -> None:
        halves: dict[frozenset[int], set[str]] = {}
        for o in function.body.walk():
            if o.op in ("mul", "mulhi"):
                halves.setdefault(_operands(o), set()).add(o.op)
        self._whole = {operands for operands, ops in halves.items() if len(ops) == 2}
        #: The registers that were multiplied → the lower and the upper half; of this region and those around it.
        self.known: dict[tuple[str, frozenset[str]], tuple[str, str]] = {}

    def wants(self, o: Operation) -> bool:
        """Whether both halves of an operation's product are computed somewhere."""
        element = o.results[0].type.element
        fits = isinstance(element, DType) and element.is_integer and element.bits == _BITS
        return fits and _operands(o) in self._whole

    def product(self, m: Maker, dtype: DType, a: str, b: str) -> tuple[str, str]:
        """The lower and the upper half."""
        factors = dtype.kind, frozenset((a, b))
        if factors not in self.known:
            name = f"mul.wide.{'s' if dtype.kind == 'int' else 'u'}{_BITS}"
            whole = instruction(m, name, "i64", ("i32", a), ("i32", b))
            upper = m.convert("trunc", "i64", "i32", m.op("lshr", "i64", whole, str(_BITS)))
            self.known[factors] = m.convert("trunc", "i64", "i32", whole), upper
        return self.known[factors]


def _operands(o: Operation) -> frozenset[int]:
    return frozenset(map(id, o.operands))
