"""Runs a plan in parts, of which some are recorded: values go from part to part by name.

Each call has an arena to itself; it is kept for the next one, so that parts find it where it was. Where a part raises,
memory is put back and the error told as the plan says.
Neighbours: `plan/parts.py` cuts, `front.py` puts together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from stator import targets
from stator.base.errors import mark_partly_done
from stator.plan import ir
from stator.plan.parts import ARENA, Part
from stator.runtime.arena import allocate
from stator.runtime.undo import keep, put_back

Call = Callable[[list[Any]], tuple[Any, ...]]
#: Arenas that are kept for calls to come, of a stream.
ARENAS = 4


class PartsInOrder:
    """The parts of a plan, called like the plan: with a list, which it empties.

    `calls` run the parts; `result` gives the results of the plan from what `wanted` names.
    """

    __slots__ = ("_arenas", "_number", "_toolchain", "calls", "dead", "parts", "plan", "result", "wanted")

    def __init__(
        self, plan: ir.Plan, parts: Sequence[Part], calls: Sequence[Call], result: Call, wanted: Sequence[str]
    ) -> None:
        self.plan, self.parts, self.calls = plan, tuple(parts), tuple(calls)
        self.result, self.wanted = result, tuple(wanted)
        self._toolchain = targets.toolchain(plan.device)
        self._number = self._toolchain.number(plan.device)
        #: Arenas that no call has, by stream.
        self._arenas: dict[int, list[Any]] = {}
        last = dict.fromkeys([given.name for given in plan.inputs], 0)
        for number, part in enumerate(parts):
            last.update(dict.fromkeys((*part.takes, *part.gives), number))
        kept = {ARENA, *wanted, *plan.failure.kept}
        #: By part, the names that nothing takes from there on.
        self.dead = [[n for n, at in last.items() if at == number and n not in kept] for number in range(len(parts))]

    def __call__(self, inputs: list[Any]) -> tuple[Any, ...]:
        values = dict(zip([given.name for given in self.plan.inputs], inputs, strict=True))
        inputs.clear()
        kept = keep(*[values[name] for name in self.plan.failure.kept]) if self.plan.failure.kept else None
        free = self._arenas.setdefault(self._toolchain.current_stream(self._number), [])
        if self.plan.arena.pieces:
            values[ARENA] = free.pop() if free else allocate(self.plan.arena.nbytes, self.plan.device)
        try:
            for part, call, dead in zip(self.parts, self.calls, self.dead, strict=True):
                self._run(values, part, call, dead, kept)
            return self.result([values[name] for name in self.wanted])
        finally:
            if ARENA in values and len(free) < ARENAS:
                free.append(values[ARENA])

    def _run(self, values: dict[str, Any], part: Part, call: Call, dead: Sequence[str], kept: Any) -> None:
        given = [values[name] for name in part.takes]  # the part lets each of them go where it dies
        for name in dead:
            values.pop(name, None)
        try:
            made = call(given)
        except BaseException as error:
            failure = self.plan.failure
            if kept is not None and part.first < failure.unsure:
                put_back(kept)
            if failure.spoiled is not None and part.first >= failure.spoiled:
                mark_partly_done(error)
            raise
        values.update(zip(part.gives, made, strict=True))
