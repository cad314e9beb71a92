"""What is written of a program apart from loops: scalars, accesses to memory, failed assertions and prints.

Neighbours: `nests` writes loops with this, `kernel` control flow and what is around a program.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from stator.tile.analysis.axes import Axes
from stator.tile.cpu.access import atomic_cas, atomic_rmw, load, place_of, refuse_booleans, store
from stator.tile.cpu.casts import register
from stator.tile.cpu.code import Code, Maker
from stator.tile.cpu.evaluate import Evaluator, compute, constant
from stator.tile.cpu.lanes import Index, Lanes
from stator.tile.cpu.plan import Plan
from stator.tile.ir.core import Location, Operation, Value
from stator.tile.ir.types import Type


class Word(IntEnum):
    """What lies where in the context."""

    NEXT, TOTAL, CHUNK, X, Y, Z, FAULT, PROGRAM, PRINT, ARGUMENTS = range(10)


@dataclass(frozen=True, slots=True)
class Site:
    """A place that fails or prints: what it says, and of what."""

    message: str
    location: Location | None
    types: tuple[Type, ...] = ()
    hex: bool = False


class Writer:
    """Writes scalars, accesses to memory, failures and prints; `kernel` adds nests and control flow."""

    def __init__(self, plan: Plan, axes: Mapping[Value, Axes], lanes: int) -> None:
        self.plan, self.axes, self.lanes = plan, axes, lanes
        self.code = Code()
        self.scalars: dict[Value, str] = {}
        self.sites: list[Site] = []

    def evaluator(self, width: int, here: Index = ()) -> Evaluator:
        return Evaluator(self.code, self.plan, self.axes, self.scalars, width, here)

    def word(self, number: int) -> str:
        return self.code.at("%context", str(number), "i64")

    def parameters(self) -> None:
        for number, param in enumerate(self.plan.function.params):
            self.scalars[param] = self.code.load(register(param.type.element), self.word(Word.ARGUMENTS + number))

    # ---- scalars

    def scalar(self, operation: Operation) -> None:
        given = [Lanes(self.scalars[v], register(v.type.element)) for v in operation.operands]
        match operation.op:
            case "constant":
                found = constant(self.evaluator(0), operation, operation.result, ())
            case "splat" | "broadcast" | "reshape" | "permute":  # to a tile without axes
                found = given[0]
            case "program_id":
                found = Lanes(f"%{'xyz'[operation.attrs['axis']]}", "i32")
            case "num_programs":
                wide = self.code.load("i64", self.word(Word.X + operation.attrs["axis"]))
                found = Lanes(self.code.value(f"trunc i64 {wide} to i32"), "i32")
            case "load" | "atomic_rmw" | "atomic_cas":
                found = self.access(operation, given, 0)
            case "store":
                self.access(operation, given, 0)
                return
            case "assert":
                self.fail_unless(given[0].text, f"assertion failed: {operation.attrs['message']}", operation)
                return
            case "barrier":
                self.code.do("fence acq_rel")
                return
            case _:
                types = [operand.type for operand in operation.operands]
                found = compute(self.code, 0, operation, types, operation.attrs, given)
        self.scalars[operation.result] = found.text

    def access(self, operation: Operation, given: Sequence[Lanes], width: int) -> Lanes:
        """A load, store or atomic."""
        code, pointer, rest = self.code, given[0], given[1:]
        match operation.op:
            case "load":
                place = place_of(operation, pointer, rest[0] if rest else None)
                return load(code, width, place, rest[1] if len(rest) > 1 else None)
            case "store":
                store(code, width, place_of(operation, pointer, rest[1] if len(rest) > 1 else None), rest[0])
                return rest[0]
        refuse_booleans(operation)
        if operation.op == "atomic_cas":
            return atomic_cas(code, width, operation, place_of(operation, pointer, None), *rest)
        place = place_of(operation, pointer, rest[1] if len(rest) > 1 else None)
        return atomic_rmw(code, width, operation, place, rest[0])

    # ---- failures and prints

    def fail_unless(self, condition: str, message: str, operation: Operation) -> None:
        """Ends the program with a number in the context that stands for a message, the first one's."""
        code = self.code
        self.sites.append(Site(message, operation.location))
        with code.when(code.value(f"xor i1 {condition}, true")):
            place = self.word(Word.FAULT)
            pair = code.value(f"cmpxchg ptr {place}, i64 0, i64 {len(self.sites)} acq_rel monotonic")
            with code.when(code.value(f"extractvalue {{ i64, i1 }} {pair}, 1")):
                code.store("i64", "%number", self.word(Word.PROGRAM))
            code.do("ret void")
            code.block(code.fresh("never"))

    def print(self, operation: Operation) -> None:
        """Calls back with the places of the operands."""
        code = self.code
        types = tuple([operand.type for operand in operation.operands])
        self.sites.append(Site(operation.attrs["prefix"], operation.location, types, operation.attrs["hex"]))
        places = code.memory("ptr", max(len(types), 1), 8)
        for number, operand in enumerate(operation.operands):
            if operand.type.is_scalar:
                type_ = register(operand.type.element)
                address = code.memory("i64")
                m = Maker(code, 0)
                text = self.scalars[operand]
                text, type_ = (m.convert("zext", "i1", "i8", text), "i8") if type_ == "i1" else (text, type_)
                code.store(type_, text, address)
            else:
                address = self.evaluator(0).address(self.plan.buffers[operand], "0")
            code.store("ptr", address, code.at(places, str(number), "ptr"))
        function = code.load("ptr", self.word(Word.PRINT))
        code.do(f"call void {function}(i64 {len(self.sites)}, i64 %number, ptr {places})")
