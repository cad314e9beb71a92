"""What may not change places in a plan: effects keep the graph's order, and streams wait where they share memory.

`verify_effects`: each effect of the graph belongs to one step, in order, but for what nobody sees: when a check is made
(`base/effects.py`), and which of two memories is written first. A step writes inputs of the plan as its effects say. If
an operator fails behind that, it is put back, or the error tells.
`verify_streams`: steps on one stream run in their order; of two streams is known what waits tell. No step reads what
another stream writes, or writes what another one reads, without a wait between; memory goes back to the stream that it
belongs to, which has waited for all who used it; in the end stream 0 has waited for all. It is done with vector clocks.
Neighbour: `verify.py` checks names and calls both.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import field

from stator.base.dtypes import NBYTES
from stator.base.effects import LASTING, Effect
from stator.base.records import dataclass
from stator.plan import ir
from stator.sizes.strides import span


def written(step: ir.Launch | ir.Invoke) -> set[str]:
    """The names of memory, there before, that a step writes."""
    if isinstance(step, ir.Invoke):
        return ir.names_in(step.into)
    return {address.tensor.name for address in step.addresses if address.written}


# ---- effects ---------------------------------------------------------------------------------------------------------


def verify_effects(plan: ir.Plan) -> None:
    """ValueError where an effect is missing, doubled or out of order, or a step writes what it does not say."""
    inputs = {given.name for given in plan.inputs}
    for number, effect in enumerate(plan.effects):
        about = effect.kind == Effect.WRITE and effect.name in inputs
        if effect.kind not in set(Effect) or (effect.name and not about):
            raise ValueError(f"{plan.name}: {effect} is no effect {number}")
    order, good = _Order(plan), False
    for position, step in enumerate(plan.steps):
        if not isinstance(step, ir.Launch | ir.Invoke):
            continue
        where = f"{plan.name}: step {position}"
        for number in step.effects:
            order.take(number, where)
        said = {plan.effects[number].name for number in step.effects} - {""}
        if inputs & written(step) != said:
            raise ValueError(f"{where}: it writes {sorted(inputs & written(step))}, and says {sorted(said)}")
        _verify_failure(plan.failure, position, step, said, good, where)
        good = good or bool(said) or any(plan.effects[number].kind in LASTING for number in step.effects)
    if missing := set(range(len(plan.effects))) - order.done:
        raise ValueError(f"{plan.name}: no step has effect {min(missing)}")


def _verify_failure(
    failure: ir.Failure, position: int, step: ir.Step, writes: set[str], good: bool, where: str
) -> None:
    """What is written is put back if an operator fails, or the error tells; `good`: something is done that is not."""
    if position < failure.unsure and not writes <= set(failure.kept):
        raise ValueError(f"{where}: it writes {sorted(writes)}, which is not kept")
    told = failure.spoiled is not None and position >= failure.spoiled
    if good and isinstance(step, ir.Invoke) and position >= failure.unsure and not told:
        raise ValueError(f"{where}: it may fail behind effects for good, which nothing tells")


class _Order:
    """The effects that are done so far."""

    __slots__ = ("done", "last", "plan", "writes")

    def __init__(self, plan: ir.Plan) -> None:
        self.plan = plan
        self.done: set[int] = set()
        self.last = -1  # of those that keep their order among all
        self.writes: dict[str, int] = {}  # by input, the last

    def take(self, number: int, where: str) -> None:
        """The next one."""
        if not 0 <= number < len(self.plan.effects) or number in self.done:
            raise ValueError(f"{where}: effect {number} is {'done twice' if number in self.done else 'unknown'}")
        self.done.add(number)
        effect = self.plan.effects[number]
        if effect.kind == Effect.CHECK:
            return
        writes = [self.writes.get(effect.name, -1)] if effect.name else [-1, *self.writes.values()]
        before = max(self.last, *writes)
        if number < before:
            raise ValueError(f"{where}: effect {number} comes after effect {before}")
        if effect.name:
            self.writes[effect.name] = number
        else:
            self.last = number


# ---- streams ---------------------------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class _Memory:
    """Who has used it: the last write and the last read of each stream, as (stream, turn); `beside`: it may overlap."""

    stream: int
    write: tuple[int, int]
    reads: dict[int, int] = field(default_factory=dict)
    beside: list[_Memory] = field(default_factory=list)

    def uses(self, reads: bool) -> Iterator[tuple[int, int]]:
        """The writes of it and of what lies beside it, with reads too."""
        for memory in (self, *self.beside):
            yield memory.write
            if reads:
                yield from memory.reads.items()


def verify_streams(plan: ir.Plan) -> None:
    """ValueError where a stream does not wait for another one and has to."""
    if plan.streams or any(isinstance(step, ir.Wait) or getattr(step, "stream", 0) for step in plan.steps):
        _Streams(plan).run()


class _Streams:
    """How far each stream is, and what it knows of the others."""

    __slots__ = ("clocks", "memory", "plan", "turns", "where")

    def __init__(self, plan: ir.Plan) -> None:
        count = len(plan.streams) + 1
        self.plan, self.where = plan, plan.name
        self.turns = [1, *[0] * (count - 1)]  # what is there before the first step is the first turn of stream 0
        self.clocks = [[0] * count for _ in range(count)]
        self.memory = {given.name: _Memory(0, (0, 1)) for given in plan.inputs}
        self.memory.update({piece.name: _Memory(0, (0, 1)) for piece in plan.arena.pieces})
        for one in plan.arena.pieces:
            others = [self.memory[other.name] for other in plan.arena.pieces if overlap(plan.arena, one, other)]
            self.memory[one.name].beside = [other for other in others if other is not self.memory[one.name]]

    def run(self) -> None:
        self._let_go(self.plan.unused)
        for position, step in enumerate(self.plan.steps):
            self.where = f"{self.plan.name}: step {position}"
            if position == self.plan.failure.begin:
                self._use(0, self.plan.failure.kept, ())
            self._step(step)
        self.where = f"{self.plan.name}: the end"
        for stream, turn in enumerate(self.turns):
            self._seen(0, (stream, turn), "the plan")

    def _step(self, step: ir.Step) -> None:
        for stream in [getattr(step, name) for name in ("stream", "other") if hasattr(step, name)]:
            if not 0 <= stream < len(self.turns):
                raise ValueError(f"{self.where}: there is no stream {stream}")
        match step:
            case ir.Wait(stream, other):
                known = [max(pair) for pair in zip(self.clocks[stream], self.clocks[other], strict=True)]
                known[other] = max(known[other], self.turns[other])
                self.clocks[stream] = known
            case ir.Allocate(name):
                self._make(step.stream, (name,))
            case ir.Reuse(name, donor):
                self.memory[name] = self.memory[donor]
            case ir.Release(names):
                self._let_go(names)
            case ir.Launch():
                self._use(step.stream, ir.names_in(step.addresses), written(step))
            case ir.Invoke():
                self._use(step.stream, ir.names_in((step.args, step.kwargs)), written(step))
                self._make(step.stream, [result.name for result in step.results])

    def _make(self, stream: int, names: Iterable[str]) -> None:
        for name in names:
            self.memory[name] = _Memory(stream, (stream, self.turns[stream]))

    def _use(self, stream: int, names: Iterable[str], writes: Iterable[str]) -> None:
        """A turn of a stream, which has to have seen what was done to the memory before."""
        self.turns[stream] += 1
        for name in {*names, *writes}:
            for use in self.memory[name].uses(reads=name in writes):
                self._seen(stream, use, name)
        for name in {*names, *writes}:
            self.memory[name].reads[stream] = self.turns[stream]
        for name in writes:
            self.memory[name].write = stream, self.turns[stream]

    def _let_go(self, names: Iterable[str]) -> None:
        """The memory goes back to its stream, where the next who asks gets it."""
        for name in names:
            memory = self.memory[name]
            for use in memory.uses(reads=True):
                self._seen(memory.stream, use, name)

    def _seen(self, stream: int, use: tuple[int, int], what: str) -> None:
        other, turn = use
        if other != stream and self.clocks[stream][other] < turn:
            raise ValueError(f"{self.where}: stream {stream} has not waited for stream {other}, which uses {what}")


def overlap(arena: ir.Arena, one: ir.Piece, other: ir.Piece) -> bool:
    """Whether two pieces may have bytes in common: blocks that are not in use at once may lie in one place."""
    if one.block is None or other.block is None:
        ends = [p.start + span(p.form.size, p.form.stride) * NBYTES[p.form.dtype] for p in (one, other)]
        return bool(one.start < ends[1] and other.start < ends[0])
    first, second = arena.blocks[one.block], arena.blocks[other.block]
    return one.block == other.block or first.last < second.first or second.last < first.first
