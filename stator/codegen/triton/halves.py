"""What half types in a function allow: roundings that go two at a time, quotients and roots that need not be exact.

LLVM rounds two float32 at once where they are stored, and one at a time where they are widened again as well, by an
instruction of an eighth of the rate. Division that is right to two units of float32's last place takes a third of the
instructions of the exact one, or one where the divisor is a constant, and rounds to another half in one of some 2**13
cases, the nearest ties. Of bfloat16 in none: neither a quotient p/q of whole numbers below 2**8 nor a root of one is a
tie, and they are 2**-17 and 2**-19 of themselves away from the nearest. Where results need not be rounded as eager's
are, so may be what a quotient is a factor of, as eager would have rounded it before.

`x / (1 + exp(-x))` of a bfloat16 has 2**16 inputs; all have been tried (`tests/codegen/test_gpu_halves.py`): by
instructions that are right to fewer places it becomes the same bfloat16. Neighbour: `printer.py` asks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection

from stator.codegen.triton.operators import ROUGH
from stator.kernel import ir
from stator.loop import scalar
from stator.loop.scalar import HALVES

#: Operators on two halves that GPUs have an instruction for, which LLVM finds.
_OWN = ("add", "sub", "mul")
#: What is wrong by no more of 1 than if it were exact, so that it may be added and multiplied before it is rounded to a
#: half; by what, and how often. Others are wrong by a part of themselves, and may only be factors of what is rounded.
_ABSOLUTE, _LINEAR, _DEEP = ("sigmoid",), ("add", "sub", "mul", "fma", "neg"), 8
_FACTORS, _SOON = ("mul", "neg"), 2
_ONE = ir.Literal(1.0, "f32")


class Halves:
    """`rounded`: halves of float32 that are widened again; `rough`: what is a half soon, and exact enough for that.

    `combined`: quotients and the one operator that each is written as; `absorbed`: what only these are made of.
    """

    def __init__(self, function: ir.Function, rounds: bool) -> None:
        self.makers: dict[ir.Value, list[ir.Statement]] = defaultdict(list)
        self.stored: dict[str, list[ir.Operand]] = defaultdict(list)
        self.users: dict[ir.Operand, list[ir.Statement]] = defaultdict(list)
        statements = ir.walk(function.body)
        local = {s.name for s in statements if isinstance(s, ir.Scratch)}
        for statement in statements:
            if isinstance(statement, ir.Loop):
                continue
            for target in ir.targets(statement):
                self.makers[target].append(statement)
            for operand in ir.operands(statement):
                self.users[operand].append(statement)
            if isinstance(statement, ir.Store) and statement.memory in local:
                self.stored[statement.memory].append(statement.value)
        lets = [s for s in statements if isinstance(s, ir.Let)]
        self.casts = {s.target: s.args[0] for s in lets if s.op == "cast"}
        self.rounded = {t for t, source in self.casts.items() if self._in_the_middle(t, source)}
        rough = [s for s in lets if s.op in ROUGH and s.target.dtype == "f32"]
        factors = (_FACTORS, 0 if rounds else _SOON)
        goes_into = {s.target: (_LINEAR, _DEEP) if s.op in _ABSOLUTE else factors for s in rough}
        self.rough = {target for target, before in goes_into.items() if self._becomes_half(target, *before)}
        self.combined: dict[ir.Value, ir.Let] = {}
        self.absorbed: set[ir.Value] = set()
        for statement in rough:
            self._take_silu(statement, rounds)

    def _in_the_middle(self, target: ir.Value, source: ir.Operand) -> bool:
        """Whether a float32 becomes a half that is widened again, and LLVM finds no instruction that computes it so."""
        if target.dtype not in HALVES or source.dtype != "f32" or not any(map(self._is_cast, self.users[target])):
            return False
        makers = self.makers[source] if isinstance(source, ir.Value) else []
        return not all(
            isinstance(s, ir.Let) and s.op in _OWN and all(self._widened(target.dtype, arg) for arg in s.args)
            for s in makers
        )

    def _widened(self, half: str, operand: ir.Operand) -> bool:
        """Whether it is seen to be a half, or a number that is one."""
        if isinstance(operand, ir.Literal):
            return scalar.holds(half, float(operand.number))
        made = self.makers[operand]
        given = [self.casts.get(operand)]
        if made and all(isinstance(s, ir.Load) and s.memory in self.stored for s in made):
            stored = [value for s in made if isinstance(s, ir.Load) for value in self.stored[s.memory]]
            given = [self.casts.get(value) if isinstance(value, ir.Value) else None for value in stored]
        return all(source is not None and source.dtype == half for source in given)

    def _becomes_half(self, value: ir.Value, others: Collection[str], deep: int) -> bool:
        """Whether nothing but a half is made of it: it is rounded to one, or is before long."""
        users = self.users[value]
        return bool(users) and all(self._is_cast(user, *HALVES) or self._goes_on(user, others, deep) for user in users)

    def _goes_on(self, statement: ir.Statement, others: Collection[str], deep: int) -> bool:
        if not isinstance(statement, ir.Let) or statement.op not in others or statement.target.dtype != "f32":
            return False
        return deep > 0 and self._becomes_half(statement.target, others, deep - 1)

    def _is_cast(self, statement: ir.Statement, *dtypes: str) -> bool:
        if not isinstance(statement, ir.Let) or statement.op != "cast":
            return False
        return not dtypes or statement.target.dtype in dtypes

    def _take_silu(self, statement: ir.Let, rounds: bool) -> None:
        """Find `x / (1 + exp(-x))`, which becomes a half, and of a bfloat16 where that has to be eager's."""
        if statement.op != "div" or statement.target not in self.rough:
            return
        x, made = statement.args
        parts: list[ir.Value] = []
        for op in ("add", "exp", "neg"):
            found = self._maker(made, op)
            rest = [arg for arg in found.args if op != "add" or arg != _ONE] if found is not None else []
            if found is None or len(rest) != 1:
                return
            parts.append(found.target)
            (made,) = rest
        exact = self._widened("bf16", x) and all(self._is_cast(user, "bf16") for user in self.users[statement.target])
        if made != x or (rounds and not exact):
            return
        self.combined[statement.target] = ir.Let(statement.target, "silu", (x,))
        for part in parts:
            if all({*ir.targets(user)} & {*self.combined, *self.absorbed} for user in self.users[part]):
                self.absorbed.add(part)

    def _maker(self, operand: ir.Operand, op: str) -> ir.Let | None:
        """The one statement that computes a value, if it is this operator."""
        makers = self.makers[operand] if isinstance(operand, ir.Value) else []
        match makers:
            case [ir.Let() as made] if made.op == op:
                return made
        return None
