"""Loop nests as text, and the operations that have loops of their own.

The last axis of a nest is walked by vectors, as many lanes as divide its size; the axis along which a nest reduces is
the innermost loop. All that a chunk computes is computed before anything of it is written to buffers, so that a carried
tile may be overwritten in place. Neighbours: `writer` writes the rest of a program; `reductions`, `along`, `products`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack

from stator.tile.cpu.along import Scan, commutative, sort
from stator.tile.cpu.casts import register, stored
from stator.tile.cpu.code import Maker
from stator.tile.cpu.evaluate import VIEWS, Evaluator
from stator.tile.cpu.lanes import Coordinate, Index, Lanes, expanded
from stator.tile.cpu.plan import Assign, Buffer, Nest
from stator.tile.cpu.prefixes import prefixes
from stator.tile.cpu.products import Product
from stator.tile.cpu.reductions import Reduction
from stator.tile.cpu.refused import Refused
from stator.tile.cpu.writer import Writer
from stator.tile.ir.core import Operation, Value
from stator.tile.ir.rules import dtype_of

#: Vectors that a reduction along the lanes takes at once.
_COPIES = 4


def power_up_to(size: int, most: int) -> int:
    """The greatest power of two that divides a size, up to a number."""
    return min(size & -size, most)


class Nests:
    """Writes nests with the evaluators and scalars of a `Writer`."""

    def __init__(self, writer: Writer) -> None:
        self.writer, self.code = writer, writer.code

    def width(self, shape: tuple[int, ...]) -> int:
        lanes = power_up_to(shape[-1], self.writer.lanes)
        return lanes if lanes > 1 else 0

    def nest(self, nest: Nest) -> None:
        shape, width = nest.shape, self.width(nest.shape)
        last = len(shape) - 1
        with ExitStack() as stack:
            index: list[Coordinate] = []
            for axis, size in enumerate(shape):
                if axis == last and width and nest.axis != last:
                    loops = nest.axis is not None and size > width
                    place = stack.enter_context(self.code.loop("0", str(size), width)) if loops else "0"
                    index.append(Coordinate(place, 1, aligned=True))
                elif axis == nest.axis or size == 1:
                    index.append(Coordinate("0"))
                else:
                    index.append(Coordinate(stack.enter_context(self.code.loop("0", str(size)))))
            if nest.axis is None:
                self.rows(nest, tuple(index), width)
            else:
                self.reduce(nest, nest.axis, tuple(index), width)

    def rows(self, nest: Nest, index: Index, width: int) -> None:
        """All along the last axis, if it is longer than a vector."""
        if nest.shape[-1] <= width or not width:
            self.chunk(nest, index, width, ())
            return

        def run(known: Sequence[Value]) -> None:
            with self.code.loop("0", str(nest.shape[-1]), width) as place:
                self.chunk(nest, (*index[:-1], Coordinate(place, 1, aligned=True)), width, known)

        self.versions(nest, index, run)

    def versions(self, nest: Nest, index: Index, run: Callable[[Sequence[Value]], None]) -> None:
        """Twice: once for rows that masks leave whole, which need none then, once for others."""
        masks, code = prefixes(nest, self.writer.plan, self.writer.axes), self.code
        if not masks:
            run(())
            return
        e, end = self.writer.evaluator(0), (*index[:-1], Coordinate(str(nest.shape[-1] - 1)))
        whole = "true"
        for mask in masks:
            whole = code.value(f"and i1 {whole}, {e.at(mask, end).text}")
        names = [code.fresh(name) for name in ("whole", "masked", "end")]
        code.branch(whole, names[0], names[1])
        for name, known in zip(names, (masks, ()), strict=False):
            code.block(name)
            run(known)
            code.jump(names[2])
        code.block(names[2])

    def chunk(self, nest: Nest, here: Index, width: int, known: Sequence[Value]) -> Evaluator:
        """All steps at one place, where some masks are known to hold."""
        e = self.writer.evaluator(width, here)
        e.registers.update(dict.fromkeys(known, Lanes("true", "i1")))
        writes: list[tuple[Buffer, Lanes]] = []
        for step in nest.steps:
            if isinstance(step, Assign):
                writes.append((step.buffer, e.at(step.value, here)))
                continue
            if step.op == "reduce":
                continue
            found = self.step(e, step, here)
            for result in step.results:
                e.registers[result] = found
                if result in self.writer.plan.buffers:
                    writes.append((self.writer.plan.buffers[result], found))
        for operation in nest.steps:  # what is reduced is read before anything is overwritten, too
            if isinstance(operation, Operation) and operation.op == "reduce":
                for operand in operation.operands:
                    e.at(operand, here)
        for buffer, lanes in writes:
            e.write(buffer, here, lanes)
        return e

    def step(self, e: Evaluator, operation: Operation, here: Index) -> Lanes:
        if operation.op == "gather":
            return self.gather(e, operation, here)
        given = [e.at(operand, here) for operand in operation.operands]
        if operation.op in ("load", "store", "atomic_rmw", "atomic_cas"):
            return self.writer.access(operation, given, e.width)
        return e.compute(operation, given)

    def gather(self, e: Evaluator, operation: Operation, here: Index) -> Lanes:
        """Elements at positions, which are checked."""
        source, positions = operation.operands
        axis, dtype = operation.attrs["axis"], dtype_of(positions.type)
        lanes = e.at(positions, here)
        m = Maker(self.code, 0 if lanes.uniform else e.width)
        text = expanded(self.code, lanes, m.width)
        if lanes.type != "i64":
            text = m.convert("sext" if dtype.kind == "int" else "zext", lanes.type, "i64", text)
        size = source.type.shape[axis]
        inside = m.compare("ult", "i64", text, m.number("i64", size))
        if m.width:
            inside = self.code.call("i1", f"llvm.vector.reduce.and.v{m.width}i1", (m.type("i1"), inside))
        self.writer.fail_unless(inside, f"gather takes a position outside of an axis of {size}", operation)
        place = Coordinate("0", vector=text) if m.width else Coordinate(text)
        return e.at(source, (*here[:axis], place, *here[axis + 1 :]))

    # ---- reductions

    def reduce(self, nest: Nest, axis: int, index: Index, width: int) -> None:
        shape, code = nest.shape, self.code
        across = axis == len(shape) - 1 and width > 0
        size, step = shape[axis], width if across else 1
        operations = [s for s in nest.steps if isinstance(s, Operation) and s.op == "reduce"]
        copies = power_up_to(size // step, _COPIES) if across else 1
        if any(commutative(operation.regions[0]) is None for operation in operations):
            copies = 1
        found = [Reduction(code, operation, width, copies, across, self.writer.evaluator) for operation in operations]

        def run(known: Sequence[Value]) -> None:
            with code.loop("0", str(size), step * copies) as place:
                is_first = code.value(f"icmp eq i64 {place}, 0")
                for copy in range(copies):
                    base = code.value(f"add nuw nsw i64 {place}, {copy * step}") if copy else place
                    coordinate = Coordinate(base, 1, aligned=True) if across else Coordinate(base)
                    here = (*index[:axis], coordinate, *index[axis + 1 :])
                    e = self.chunk(nest, here, width, known)
                    for reduction in found:
                        values = [e.at(operand, here) for operand in reduction.operation.operands]
                        reduction.take(copy, values, is_first)

        if across and size > width:
            self.versions(nest, index, run)
        else:
            run(())
        rest = (*index[:axis], *index[axis + 1 :])
        for reduction in found:
            for result, lanes in zip(reduction.operation.results, reduction.finish(), strict=True):
                if result.type.is_scalar:
                    self.writer.scalars[result] = lanes.text
                elif result in self.writer.plan.buffers:
                    self.writer.evaluator(width).write(self.writer.plan.buffers[result], rest, lanes)

    # ---- operations with loops of their own

    def whole(self, operation: Operation) -> None:
        match operation.op:
            case "dot":
                Product(self.code, self.writer.plan, operation, self.writer.lanes, self.writer.evaluator).emit()
            case "scan":
                self.scan(operation)
            case "sort":
                self.sort(operation)
            case "histogram":
                self.histogram(operation)
            case "assert":
                self.hold_all(operation)
            case "print":
                self.writer.print(operation)
            case op if op in VIEWS:  # of single elements: scalars that a tile is split into
                for result in operation.results:
                    e = self.writer.evaluator(0)
                    self.writer.scalars[result] = VIEWS[op](e, operation, result, ()).text
            case op:
                raise Refused(op, "there is no code for it", operation.location)

    def scan(self, operation: Operation) -> None:
        width = self.width(operation.operands[0].type.shape)
        buffers = self.writer.plan.buffers
        (region,) = operation.regions

        def read(number: int, index: Index) -> Lanes:
            return self.writer.evaluator(width).at(operation.operands[number], index)

        def write(number: int, index: Index, lanes: Lanes) -> None:
            self.writer.evaluator(width).write(buffers[operation.results[number]], index, lanes)

        Scan(
            self.code, operation, width, read, write,
            lambda given, lanes: self.writer.evaluator(lanes).combine(region, given, lanes),
        ).emit()  # fmt: skip

    def sort(self, operation: Operation) -> None:
        """Row after row, in the buffer of the result."""
        (source,), code = operation.operands, self.code
        shape, axis, dtype = source.type.shape, operation.attrs["axis"], dtype_of(source.type)
        size = shape[axis]
        if size & (size - 1):
            raise Refused("sort", f"an axis of {size} is no power of two", operation.location)
        buffer = self.writer.plan.buffers[operation.result]
        nest = Nest(shape, [Assign(buffer, source)])
        self.nest(nest)
        stride = 1
        for extent in shape[axis + 1 :]:
            stride *= extent
        e = self.writer.evaluator(0)
        type_ = stored(source.type.element)
        outer = source.type.numel // (size * stride)
        with code.loop("0", str(outer)) as before, code.loop("0", str(stride)) as behind:
            start = code.value(f"add i64 {code.value(f'mul i64 {before}, {size * stride}')}, {behind}")
            base = e.address(buffer, start)

            def address(place: str) -> str:
                return code.at(base, code.value(f"mul i64 {place}, {stride}") if stride > 1 else place, type_)

            sort(code, dtype, size, operation.attrs["descending"], address, type_)

    def histogram(self, operation: Operation) -> None:
        """One after the other."""
        code, data = self.code, operation.operands[0]
        bins, dtype = operation.attrs["bins"], dtype_of(data.type)
        buffer, e = self.writer.plan.buffers[operation.result], self.writer.evaluator(0)
        with code.loop("0", str(bins)) as place:
            code.store("i32", "0", e.address(buffer, place))
        with code.loop("0", str(data.type.numel)) as place:
            e = self.writer.evaluator(0)
            index = (Coordinate(place),)
            texts = [e.at(operand, index).text for operand in operation.operands]
            number, m = texts[0], Maker(code, 0)
            if register(dtype) != "i64":
                number = m.convert("sext" if dtype.kind == "int" else "zext", register(dtype), "i64", number)
            counted = m.compare("ult", "i64", number, str(bins))
            if len(texts) > 1:
                counted = m.op("and", "i1", counted, texts[1])
            with code.when(counted):
                address = e.address(buffer, number)
                code.store("i32", m.op("add", "i32", code.load("i32", address), "1"), address)

    def hold_all(self, operation: Operation) -> None:
        """All conditions of a tile."""
        (condition,), code = operation.operands, self.code
        shape = condition.type.shape
        held = code.memory("i1")
        code.store("i1", "true", held)
        with ExitStack() as stack:
            index = tuple([Coordinate(stack.enter_context(code.loop("0", str(size)))) for size in shape])
            found = self.writer.evaluator(0).at(condition, index).text
            code.store("i1", code.value(f"and i1 {code.load('i1', held)}, {found}"), held)
        message = f"assertion failed: {operation.attrs['message']}"
        self.writer.fail_unless(code.load("i1", held), message, operation)
