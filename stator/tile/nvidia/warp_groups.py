"""Products by warp groups: `wgmma` reads operands of 16 bits from shared memory, while the threads go on.

Four warps that follow one another are a group, and an instruction gives 64 rows and up to 256 columns of it. A
descriptor of 64 bits says where an operand lies: address, bytes between atoms, and how vectors are exchanged. The left
operand may be words in registers. Sums stay in the registers that they are in: an instruction has them as results and
as operands in the same places, and `wgmma_wait` once more, so that nothing takes them before.
Neighbours: `stator.tile.layouts.matrix` knows the forms in memory; `buffers` has the fence behind what threads write.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stator.tile.gpu.instructions import GROUP_INSTRUCTIONS
from stator.tile.gpu.operators import buffer, content
from stator.tile.ir.core import Operation, Value
from stator.tile.layouts.linear import LANES, Layout
from stator.tile.layouts.matrix import SWIZZLES, plan_matrix
from stator.tile.layouts.mma import GROUP_ROWS, ROWS, group_columns
from stator.tile.nvidia.buffers import layout_of
from stator.tile.nvidia.places import element_at
from stator.tile.nvidia.writer import Registers, Results, Writer, operation

_ZERO = "0x0000000000000000"
#: Bits of a descriptor: each number of bytes without its lowest four bits.
_DROPPED, _COLUMN_AT, _ATOM_AT, _SWIZZLE_AT = 4, 16, 32, 62
_FLOAT, _WORD, _DESCRIPTOR = "f", "r", "l"


@dataclass(frozen=True)
class _InMemory:
    """An operand's descriptor for the first part of each warp group, and how parts lie behind that."""

    w: Writer
    value: Value
    outer: int
    groups: Sequence[int]  # what each bit of a group's number adds along the outer axis

    def place(self, outer: int, inner: int) -> int:
        """The byte of an element."""
        at = (outer, inner) if self.outer == 0 else (inner, outer)
        return buffer(self.value.type).offset_of(at) * content(self.value.type).itemsize

    @property
    def turned(self) -> int:
        """Whether neighbours are along the outer axis."""
        matrix = plan_matrix(buffer(self.value.type), content(self.value.type).itemsize)
        assert matrix is not None
        return int(matrix.inner == self.outer)

    def first(self) -> str:
        """The descriptor of the operand's first part."""
        w, m = self.w, self.w.m
        matrix = plan_matrix(buffer(self.value.type), content(self.value.type).itemsize)
        assert matrix is not None
        (base,) = w.get(self.value)
        address = m.op("add", "i32", w.shared_address(), base)
        own = w.warp_sum([0] * (LANES + 2) + [self.place(step, 0) for step in self.groups])
        if own != "0":
            address = m.op("add", "i32", address, own)
        low = m.convert("zext", "i32", "i64", m.op("lshr", "i32", address, str(_DROPPED)))
        high = matrix.column >> _DROPPED << _COLUMN_AT | matrix.atom >> _DROPPED << _ATOM_AT
        high |= SWIZZLES[matrix.row] << _SWIZZLE_AT
        return m.op("or", "i64", low, str(high - (1 << 64) if high >> 63 else high))

    def part(self, first: str, outer: int, inner: int) -> str:
        """The descriptor of a part, by its first element: parts are whole atoms, or begin in the first row of one."""
        behind = self.place(outer, inner) >> _DROPPED
        return self.w.m.op("add", "i64", first, str(behind)) if behind else first


class _Product:
    """All instructions of a product, as one text."""

    def __init__(self, w: Writer, o: Operation) -> None:
        left, right, acc = o.operands
        self.w, self.acc, self.layout = w, acc, layout_of(acc)
        self.columns = group_columns(self.layout)
        self.found = GROUP_INSTRUCTIONS[str(content(right.type))]
        self.inner = right.type.shape[0]
        self.constraints: list[str] = []
        self.given: list[tuple[str, str]] = []
        groups = self.layout.warp[2:]
        self.right = _InMemory(w, right, 1, [base[1] for base in groups])
        self.left = (
            None if isinstance(left.type.layout, Layout) else _InMemory(w, left, 0, [base[0] for base in groups])
        )
        self.words = w.get_words(left) if self.left is None else []
        self.left_value = left

    def add(self, constraint: str, type_: str, value: str) -> str:
        """One more operand of the text, by its number."""
        self.constraints.append(constraint)
        self.given.append((type_, value))
        return f"${self.count + len(self.given) - 1}"

    def run(self) -> Registers:
        sums = self.w.get(self.acc)
        self.count = len(sums)
        starts = all(value == _ZERO for value in sums)
        if not starts:
            for number, value in enumerate(sums):
                self.add(str(number), "float", value)
        each = self.columns // 2
        right = self.right.first()
        left = self.left.first() if self.left is not None else ""
        go_on, begin = self.add("b", "i1", "true"), self.add("b", "i1", "false") if starts else ""
        lines = ["wgmma.fence.sync.aligned"]
        for first in range(0, self.count, each):  # all of one part's sums at once: they are added up where they are
            row, column = self.layout.coordinates(first, 0, 0)
            for inner in range(0, self.inner, self.found.inner):
                b = self.add(_DESCRIPTOR, "i64", self.right.part(right, column, inner))
                a, turned = self.left_operand(left, row, inner)
                results = ",".join([f"${number}" for number in range(first, first + each)])
                scale = begin if starts and not inner else go_on
                lines.append(f"{self.name} {{{results}}}, {a}, {b}, {scale}, 1, 1, {turned}{self.right.turned}")
        lines.append("wgmma.commit_group.sync.aligned")
        constraints = ["=" + _FLOAT] * self.count + self.constraints + ["~{memory}"]
        return self.w.assembly("; ".join(lines) + ";", constraints, ["float"] * self.count, self.given)

    @property
    def name(self) -> str:
        operand = self.found.operand
        return f"wgmma.mma_async.sync.aligned.m{GROUP_ROWS}n{self.columns}k{self.found.inner}.f32.{operand}.{operand}"

    def left_operand(self, first: str, row: int, inner: int) -> tuple[str, str]:
        """A part of it, and in front of how the right one is turned how this one is."""
        if self.left is not None:
            return self.add(_DESCRIPTOR, "i64", self.left.part(first, row, inner)), f"{self.left.turned}, "
        places, half = self.w.places(self.left_value), self.found.inner // 2
        corners = [(row + down, inner + over) for over in (0, half) for down in (0, ROWS // 2)]
        numbers = [places.at[element_at(corner, places.shape)] // self.found.width for corner in corners]
        words = [self.add(_WORD, "i32", self.words[number]) for number in numbers]
        return f"{{{','.join(words)}}}", ""


@operation("wgmma")
def wgmma(w: Writer, o: Operation) -> Results:
    return [_Product(w, o).run()]


@operation("wgmma_wait")
def wgmma_wait(w: Writer, o: Operation) -> Results:
    sums = w.get(o.operands[0])
    constraints = ["=" + _FLOAT] * len(sums) + [str(number) for number in range(len(sums))] + ["~{memory}"]
    text = f"wgmma.wait_group.sync.aligned {o.attrs['pending']};"
    return [w.assembly(text, constraints, ["float"] * len(sums), [("float", value) for value in sums])]
