"""Goes through a function of tile IR with layouts and writes the code of a thread: values, control flow, parameters.

A value is a list of texts of LLVM, one for each register of its layout, or for two where `words` says so; a scalar is
one. What an operator becomes is a
row of a table that other files fill, each for its own operators. Regions become blocks, and what they carry phis.
Neighbours: `threads` has what a thread can do, `kernel` makes the module around it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from stator.tile.analysis.axes import analyse
from stator.tile.cpu.casts import memory, pack, register
from stator.tile.cpu.code import literal
from stator.tile.cpu.refused import Refused
from stator.tile.gpu.operators import GPU_OPERATORS
from stator.tile.gpu.scratch import scratch_bytes
from stator.tile.ir.core import Block, Function, Operation, Value
from stator.tile.ir.types import Element
from stator.tile.layouts.linear import LANES
from stator.tile.layouts.text import AnyLayout
from stator.tile.nvidia.halves import Halves
from stator.tile.nvidia.hazards import Hazards, pointers_of
from stator.tile.nvidia.places import Places, bits_of, strides
from stator.tile.nvidia.threads import Threads, are_disjoint
from stator.tile.nvidia.wide import WideProducts
from stator.tile.nvidia.words import word_values

Registers: TypeAlias = list[str]
Results: TypeAlias = list[Registers]
Handler: TypeAlias = "Callable[[Writer, Operation], Results]"

#: What writes an operator.
HANDLERS: dict[str, Handler] = {}


def operation(*names: str) -> Callable[[Handler], Handler]:
    """Registers what writes these operators."""

    def add(handler: Handler) -> Handler:
        HANDLERS.update(dict.fromkeys(names, handler))
        return handler

    return add


class Writer(Threads):
    """The code of a function."""

    def __init__(
        self,
        function: Function,
        layouts: Callable[[Value], Places],
        warps: int,
        architecture: int,
        kept: int = 0,
    ) -> None:
        super().__init__(warps, kept)
        self.function, self._layouts = function, layouts
        self.architecture = architecture
        self.values: dict[Value, Registers] = {}
        self._places: dict[AnyLayout | None, Places] = {}
        self._axes = analyse(function, lambda op: op in GPU_OPERATORS and GPU_OPERATORS[op].elementwise)
        self._uses = Counter(operand for o in function.body.walk() for operand in o.operands)
        self._once = Places((), (), (0,) * LANES, (0,) * bits_of(warps))
        self.strings: dict[str, str] = {}
        self.hazards = Hazards(function)
        self.halves = Halves(function)
        self.wide = WideProducts(function)
        self.are_words = word_values(function)

    # ---- values

    def get(self, value: Value) -> Registers:
        assert value not in self.are_words, f"{value} has words, which products alone take"
        return self.values[value]

    def get_words(self, value: Value) -> Registers:
        """Words of 32 bits, of two neighbouring registers each."""
        found = self.values[value]
        if value in self.are_words:
            return found
        element = value.type.element
        return [self.word(element, found[place : place + 2]) for place in range(0, len(found), 2)]

    def word(self, element: Element, values: Sequence[str]) -> str:
        """Numbers side by side in 32 bits."""
        kind, vector = self.vector(memory(element), [pack(self.m, element, value) for value in values])
        return vector if kind == "i32" else self.code.value(f"bitcast {kind} {vector} to i32")

    def like(self, value: Value, other: Value) -> Registers:
        """A value as registers or words, whichever another one of its type has."""
        return self.get_words(value) if other in self.are_words else self.get(value)

    def number_type(self, value: Value) -> str:
        """The type of what a value is a list of."""
        return "i32" if value in self.are_words else register(value.type.element)

    def places(self, value: Value) -> Places:
        """Who holds which elements of a value; of a scalar every thread all."""
        if value.type.is_scalar:
            return self._once
        found = self._places.get(value.type.layout)
        if found is None:
            found = self._places[value.type.layout] = self._layouts(value)
        return found

    def equal(self, value: Value) -> Sequence[int]:
        """For each register of a tile the first one that is known to hold the same number, in every thread."""
        places, axes = self.places(value), self._axes[value]
        mask = sum(
            (min(run, size) - 1) * stride
            for run, size, stride in zip(axes.constancy, places.shape, strides(places.shape), strict=False)
        )
        if not mask:
            return range(places.count)
        found: dict[int, int] = {}
        return [found.setdefault(element & ~mask, number) for number, element in enumerate(places.elements)]

    def behind(self, value: Value) -> Iterator[tuple[int, int]]:
        """For each register of contiguous numbers one before it, and by how much it is more, in every thread."""
        places, axes = self.places(value), self._axes[value]
        plain = are_disjoint([*places.threads, *[basis for basis in places.registers if basis], places.origin])
        runs = zip(axes.contiguity, places.shape, strides(places.shape), strict=False)
        run, size, stride = max(runs, default=(1, 1, 1)) if plain else (1, 1, 1)
        mask = (min(run, size) - 1) * stride
        found: dict[int, tuple[int, int]] = {}
        for number, element in enumerate(places.elements):
            first, part = found.setdefault(element & ~mask, (number, element & mask))
            yield first, ((element & mask) - part) // stride

    def side_by_side(self, pointer: Value, size: int, masks: Sequence[Value], most: int) -> int:
        """How many registers in a row lie in a row in memory, at a multiple of their bytes and under one mask."""
        places, axes = self.places(pointer), self._axes[pointer]
        known = [self._axes[mask].constancy for mask in masks]
        for axis, stride in enumerate(strides(places.shape)):
            count = 1
            while count < most:
                bit = count.bit_length() - 1
                if bit >= len(places.registers) or places.registers[bit] != stride << bit:
                    break
                wide = 2 * count
                runs = axes.contiguity[axis] >= wide and axes.divisibility[axis] >= wide * size
                if not runs or any(constancy[axis] < wide for constancy in known):
                    break
                count = wide
            if count > 1:
                return count
        return 1

    def is_used(self, value: Value) -> bool:
        return self._uses[value] > 0

    def zero(self, element: Element) -> str:
        """The number that a masked load gives without another."""
        return literal(register(element), 0)

    def both(self, a: str, b: str) -> str:
        """Whether both conditions hold."""
        if "true" in (a, b):
            return b if a == "true" else a
        return self.m.op("and", "i1", a, b)

    def string(self, text: str) -> str:
        """A constant text that ends in a 0."""
        return self.strings.setdefault(text, f"@text{len(self.strings)}")

    def before_access(self, o: Operation) -> None:
        """Has threads wait for one another if another one may have touched what an operation touches."""
        if self.hazards.meets(o, own=not self.places(pointers_of(o)).alone):
            self.barrier()

    # ---- instructions

    def assembly(
        self,
        text: str,
        constraints: Sequence[str],
        results: Sequence[str],
        given: Sequence[tuple[str, str]],
        effects: bool = True,
    ) -> list[str]:
        """Instructions of PTX, whose results have these types."""
        kind = "void" if not results else results[0] if len(results) == 1 else "{ " + ", ".join(results) + " }"
        args = ", ".join([f"{type_} {value}" for type_, value in given])
        spelled = text.replace("\\", "\\5C").replace('"', "\\22").replace("\n", "\\0A")
        mark, tail = (" sideeffect", "") if effects else ("", " #1")
        call = f'call {kind} asm{mark} "{spelled}", "{",".join(constraints)}"({args}){tail}'
        if not results:
            self.code.do(call)
            return []
        found = self.code.value(call) if effects else self.code.pure(call)
        if len(results) == 1:
            return [found]
        return [self.code.pure(f"extractvalue {kind} {found}, {place}") for place in range(len(results))]

    def guarded(self, condition: str, type_: str, other: str, write: Callable[[], str]) -> str:
        """What is computed if a condition holds, else another value."""
        if condition == "true":
            return write()
        before, then, end = self.code.label, self.code.fresh("then"), self.code.fresh("end")
        self.code.branch(condition, then, end)
        self.code.block(then)
        found = write()
        inner = self.code.label
        self.code.jump(end)
        self.code.block(end)
        return self.code.value(f"phi {type_} [{found}, %{inner}], [{other}, %{before}]")

    # ---- operations

    def block(self, block: Block, like: Sequence[Value] = ()) -> Results:
        """All but the terminator; what its operands are, as what values of theirs have."""
        around = dict(self.wide.known)
        for each in block.operations[:-1]:
            self.operation(each)
        self.wide.known = around
        operands = block.operations[-1].operands
        return [self.like(*pair) for pair in zip(operands, like or operands, strict=True)]

    def operation(self, o: Operation) -> None:
        match o.op:
            case "if":
                found = self._if(o)
            case "for":
                found = self._for(o)
            case "while":
                found = self._while(o)
            case op if op in HANDLERS:
                before, place = self.barriers, o.attrs.get("scratch", -1)
                self.begin((place, scratch_bytes(o)) if place >= 0 else (0, 0))
                found = HANDLERS[op](self, o)
                if place >= 0 and self.barriers == before:
                    self.barrier()  # whoever has put barriers counts on one here
            case op:
                raise Refused(op, "there is no code for it on a GPU", o.location)
        self.values.update(zip(o.results, found, strict=True))

    def _if(self, o: Operation) -> Results:
        (condition,) = self.get(o.operands[0])
        then, otherwise, end = (self.code.fresh(name) for name in ("then", "else", "end"))
        self.code.branch(condition, then, otherwise)
        came: list[tuple[str, Results]] = []
        before, after = self.hazards.since, []
        for label, region in zip((then, otherwise), o.regions, strict=True):
            self.code.block(label)
            self.entered()
            self.hazards.since = before
            found = self.block(region)
            after.append(self.hazards.since)
            came.append((self.code.label, found))
            self.code.jump(end)
        self.code.block(end)
        self.entered()
        self.hazards.joined(after)
        return [
            [self._phi(value, [(label, found[place][each]) for label, found in came]) for each in range(len(first))]
            for place, (value, first) in enumerate(zip(o.results, came[0][1], strict=True))
        ]

    def _phi(self, value: Value, came: Sequence[tuple[str, str]]) -> str:
        first = came[0][1]
        if all(text == first for _, text in came):
            return first
        sources = ", ".join([f"[{text}, %{label}]" for label, text in came])
        return self.code.value(f"phi {register(value.type.element)} {sources}")

    def _for(self, o: Operation) -> Results:
        (body,) = o.regions
        before = self.hazards.since
        self.hazards.again(o)
        (lower,), (upper,), (step,) = (self.get(operand) for operand in o.operands[:3])
        starts = [[lower], *[self.like(*pair) for pair in zip(o.operands[3:], body.args[1:], strict=True)]]
        head, inside, end = (self.code.fresh(name) for name in ("head", "body", "end"))
        loop = _Loop(self, body.args, starts, head)
        signed = getattr(body.args[0].type.element, "kind", "") == "int"
        type_ = register(body.args[0].type.element)
        (index,) = loop.phis[0]
        self.code.branch(self._goes_on(type_, signed, index, upper, step), inside, end)
        self.code.block(inside)
        given = self.block(body, body.args[1:])
        after = self.m.op("add", type_, index, step)
        loop.close([[after], *given])
        self.code.block(end)
        self.hazards.joined([before, self.hazards.since])
        return loop.phis[1:]

    def _goes_on(self, type_: str, signed: bool, index: str, upper: str, step: str) -> str:
        """Whether a turn follows; which way the bounds are compared is known where the step is."""
        m, kind = self.m, "s" if signed else "u"
        known = step.lstrip("-").isdigit()
        if known or not signed:
            down = known and int(step) < 0
            more = m.compare(f"{kind}{'gt' if down else 'lt'}", type_, index, upper)
            return more if known else self.both(more, m.compare("ne", type_, step, "0"))
        rises = m.compare("sgt", type_, step, "0")
        return m.select(rises, "i1", m.compare("slt", type_, index, upper), m.compare("sgt", type_, index, upper))

    def _while(self, o: Operation) -> Results:
        test, body = o.regions
        self.hazards.again(o)
        head, inside, end = (self.code.fresh(name) for name in ("head", "body", "end"))
        loop = _Loop(self, test.args, [self.get(operand) for operand in o.operands], head)
        (goes_on,), *values = self.block(test)
        tested = self.hazards.since
        self.code.branch(goes_on, inside, end)
        self.code.block(inside)
        self.entered()
        self.values.update(zip(body.args, values, strict=True))
        loop.close(self.block(body))
        self.code.block(end)
        self.hazards.since = tested
        return values


class _Loop:
    """The head of a loop: phis, whose other sides are known when the body has been written."""

    def __init__(self, w: Writer, args: Sequence[Value], starts: Sequence[Registers], head: str) -> None:
        self.w, self.head, self.before = w, head, w.code.label
        self.args, self.starts = args, starts
        w.code.jump(head)
        w.code.block(head)
        w.entered()
        self.at = len(w.code.lines)
        self.phis = [[f"%{w.code.fresh('p')}" for _ in each] for each in starts]
        w.code.lines += [""] * sum(map(len, starts))
        w.values.update(zip(args, self.phis, strict=True))

    def close(self, given: Sequence[Registers]) -> None:
        lines, place, label = self.w.code.lines, self.at, self.w.code.label
        for arg, phis, starts, ends in zip(self.args, self.phis, self.starts, given, strict=True):
            type_ = self.w.number_type(arg)
            for phi, start, end in zip(phis, starts, ends, strict=True):
                lines[place] = f"  {phi} = phi {type_} [{start}, %{self.before}], [{end}, %{label}]"
                place += 1
        self.w.code.jump(self.head)
