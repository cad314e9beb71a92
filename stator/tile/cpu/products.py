"""Matrix products: blocks of rows and vectors of columns whose sums stay in registers along the inner axis.

The operands lie in buffers, row-major, floats of 16 bits as f32. A block takes so many rows and vectors that the sums,
a row of vectors of the right operand and a number of the left one fill the registers.
Neighbours: `kernel` calls this for `dot`; `schedule` has put the operands into buffers.
"""

from __future__ import annotations

from collections.abc import Callable

from stator.tile.cpu.casts import register, rounded
from stator.tile.cpu.code import Code, Maker
from stator.tile.cpu.evaluate import Evaluator
from stator.tile.cpu.lanes import Coordinate, Index, Lanes, expanded
from stator.tile.cpu.plan import Plan
from stator.tile.ir.core import Operation, Value
from stator.tile.ir.rules import dtype_of

#: Vectors of sums in a block at most, and vectors of columns.
_SUMS, _COLUMNS = 24, 4


def blocked(size: int, most: int) -> int:
    """The greatest divisor of a size up to a number."""
    return max(number for number in range(1, most + 1) if size % number == 0)


class Product:
    """Writes one `dot`. `evaluator` makes an evaluator for a width."""

    def __init__(
        self, code: Code, plan: Plan, operation: Operation, lanes: int, evaluator: Callable[[int], Evaluator]
    ) -> None:
        self.code, self.plan, self.operation, self.evaluator = code, plan, operation, evaluator
        self.a, self.b, self.acc = operation.operands
        self.left, self.result = dtype_of(self.a.type), dtype_of(self.acc.type)
        *_, self.rows, self.inner = self.a.type.shape
        self.columns = self.b.type.shape[-1]
        self.type = register(self.result)
        most = lanes // 2 if self.type == "double" else lanes
        self.width = max(
            number for number in range(1, most + 1) if not number & (number - 1) and self.columns % number == 0
        )
        self.vectors = blocked(self.columns // self.width, _COLUMNS)
        self.height = blocked(self.rows, min(_SUMS // self.vectors, 8))

    def emit(self) -> None:
        shape = self.a.type.shape
        if len(shape) == 3:
            with self.code.loop("0", str(shape[0])) as batch:
                self.matrix((Coordinate(batch),))
        else:
            self.matrix(())

    def matrix(self, batch: Index) -> None:
        with self.code.loop("0", str(self.columns), self.width * self.vectors) as column:
            columns = [self.column(column, number) for number in range(self.vectors)]
            with self.code.loop("0", str(self.rows), self.height) as row:
                rows = [self.shifted(row, number) for number in range(self.height)]
                self.block(batch, rows, columns)

    def shifted(self, base: str, by: int) -> Coordinate:
        return Coordinate(self.code.value(f"add nuw nsw i64 {base}, {by}") if by else base)

    def column(self, base: str, number: int) -> Coordinate:
        place = self.shifted(base, number * self.width)
        return Coordinate(place.base, 1, aligned=True) if self.width > 1 else place

    def block(self, batch: Index, rows: list[Coordinate], columns: list[Coordinate]) -> None:
        code, m = self.code, Maker(self.code, self.width if self.width > 1 else 0)
        kind = m.type(self.type)
        before = self.evaluator(m.width)
        sums = {}
        for i, row in enumerate(rows):
            for j, column in enumerate(columns):
                sums[i, j] = code.memory(kind)
                start = expanded(code, before.at(self.acc, (*batch, row, column)), m.width)
                code.store(kind, start, sums[i, j])
        with code.loop("0", str(self.inner)) as k:
            inside, place = self.evaluator(m.width), Coordinate(k)
            right = [self.operand(m, inside, self.b, (*batch, place, column)) for column in columns]
            for i, row in enumerate(rows):
                left = m.splat(self.type, self.operand(Maker(code, 0), inside, self.a, (*batch, row, place)))
                for j in range(len(columns)):
                    code.store(kind, self.added(m, left, right[j], code.load(kind, sums[i, j])), sums[i, j])
        target = self.plan.buffers[self.operation.result]
        for (i, j), slot in sums.items():
            found = code.load(kind, slot)
            found = rounded(m, self.result, found) if self.result.is_float else found
            before.write(target, (*batch, rows[i], columns[j]), Lanes(found, self.type, m.width))

    def operand(self, m: Maker, evaluator: Evaluator, value: Value, index: Index) -> str:
        """An element, or a vector of them, in the type of the sums."""
        lanes = evaluator.at(value, index)
        text = expanded(self.code, lanes, m.width)
        if lanes.type == self.type:
            return text
        return m.convert("sext" if self.left.kind == "int" else "zext", lanes.type, self.type, text)

    def added(self, m: Maker, left: str, right: str, total: str) -> str:
        if self.result.is_float:
            return m.fma(self.type, left, right, total)
        return m.op("add", self.type, m.op("mul", self.type, left, right), total)
