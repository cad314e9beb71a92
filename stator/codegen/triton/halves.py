"""What half types in a function allow: roundings that go two at a time, quotients and roots that need not be exact.

LLVM rounds two float32 at once where they are stored, and one at a time where they are widened again as well, by an
instruction of an eighth of the rate. Division that is right to two units of float32's last place takes a third of the
instructions of the exact one, or one where the divisor is a constant, and rounds to another half in one of some 2**13
cases, the nearest ties. Of bfloat16 in none: neither a quotient p/q of whole numbers below 2**8 nor a root of one is a
tie, and they are 2**-17 and 2**-19 of themselves away from the nearest. Neighbour: `printer.py` asks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from stator.base.dtypes import contains
from stator.codegen.triton.operators import ROUGH
from stator.kernel import ir
from stator.loop import scalar
from stator.loop.scalar import HALVES

#: Operators on two halves that GPUs have an instruction for, which LLVM finds.
_OWN = ("add", "sub", "mul")


class Halves:
    """`rounded`: halves of float32 that are widened again; `rough`: quotients and roots that are halves next."""

    def __init__(self, function: ir.Function) -> None:
        self.makers: dict[ir.Value, list[ir.Statement]] = defaultdict(list)
        self.stored: dict[str, list[ir.Operand]] = defaultdict(list)
        users: dict[ir.Operand, list[ir.Statement]] = defaultdict(list)
        statements = ir.walk(function.body)
        self.local = {s.name for s in statements if isinstance(s, ir.Scratch)}
        for statement in statements:
            if isinstance(statement, ir.Loop):
                continue
            for target in ir.targets(statement):
                self.makers[target].append(statement)
            for operand in ir.operands(statement):
                users[operand].append(statement)
            if isinstance(statement, ir.Store):
                self.stored[statement.memory].append(statement.value)
        lets = [s for s in statements if isinstance(s, ir.Let)]
        casts = {s.target: s.args[0] for s in lets if s.op == "cast"}
        self.rounded = {t for t, source in casts.items() if self._in_the_middle(t, source, users[t])}
        self.rough = {s.target for s in lets if self._is_rough(s, users[s.target])}

    def _in_the_middle(self, target: ir.Value, source: ir.Operand, users: Sequence[ir.Statement]) -> bool:
        """Whether a float32 becomes a half that is widened again, and LLVM finds no instruction that computes it so."""
        if target.dtype not in HALVES or source.dtype != "f32":
            return False
        makers = self.makers[source] if isinstance(source, ir.Value) else []
        own = all(isinstance(s, ir.Let) and s.op in _OWN and self._all(target.dtype, s.args) for s in makers)
        return not own and any(self._is_cast(user) for user in users)

    def _is_rough(self, statement: ir.Let, users: Sequence[ir.Statement]) -> bool:
        """Whether it is a quotient or root of float32, of which the nearest half alone is used."""
        if statement.op not in ROUGH or statement.target.dtype != "f32" or not users:
            return False
        return all(any(self._is_cast(user, half) for half in HALVES) for user in users)

    def _is_cast(self, statement: ir.Statement, dtype: str = "") -> bool:
        return (
            isinstance(statement, ir.Let) and statement.op == "cast" and (not dtype or statement.target.dtype == dtype)
        )

    def _all(self, half: str, operands: Sequence[ir.Operand]) -> bool:
        return all(self.holds(half, operand) for operand in operands)

    def holds(self, half: str, operand: ir.Operand) -> bool:
        """Whether a half type has every number that this may be, as `loop/expr.py` says it of expressions."""
        seen: set[ir.Operand] = {operand}
        stack = [operand]
        while stack:
            value = stack.pop()
            if isinstance(value, ir.Literal):
                if not scalar.holds(half, float(value.number)):
                    return False
                continue
            for statement in self.makers[value]:
                made_of = self.made_of(half, statement)
                if made_of is None:
                    return False
                stack += [each for each in made_of if each not in seen]
                seen.update(made_of)
        return True

    def made_of(self, half: str, statement: ir.Statement) -> tuple[ir.Operand, ...] | None:
        """Of what numbers a statement chooses; None where it computes others."""
        match statement:
            case ir.Let(op="cast", args=(source,)):
                return () if contains(half, source.dtype) else None
            case ir.Let(op=op, args=args) | ir.Assign(op=op, args=args) if op in scalar.CHOOSING:
                return args[scalar.CHOOSING[op] :]
            case ir.Assign(op="copy", args=args):
                return args
            case ir.Declare(start=start):
                return (start,)
            case ir.Load(memory=memory) if memory in self.local:
                return tuple(self.stored[memory])
        return None
