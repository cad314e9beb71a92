"""A plan in parts: runs of steps that a device can keep for later, and between them what has to run as it is.

`barriers` says which steps these are and why, `split` makes a plan of each run. What one part makes and another takes
are results and inputs of theirs; the arena, which parts share, is an input of each and its pieces are views of it.
Neighbours: `places.py` (results of a part), `recording/parts.py` (runs the parts one after another).
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, replace

from stator.base.device import HOST, kind_of
from stator.base.dtypes import NBYTES
from stator.base.effects import Effect
from stator.plan import ir

#: The memory that parts share, as an input of theirs.
ARENA = "whole_arena"
#: Stands for the dtype of an operator's result, which a plan does not say, and nobody asks of an input.
_UNTOLD = "f32"
_WHY = {
    Effect.CHECK: "it raises for some data, which is looked at when it is called",
    Effect.COLLECTIVE: "it meets calls of other processes",
    Effect.CUSTOM: "only its author knows what it does",
}


@dataclass(frozen=True, slots=True)
class Part:
    """Steps `first` to before `last` of a plan as a plan of their own; `barrier` is why it is run as it is.

    `takes` and `gives` are the names of its inputs and results in the whole.
    """

    plan: ir.Plan
    first: int
    last: int
    takes: tuple[str, ...]
    gives: tuple[str, ...]
    barrier: str = ""


def barriers(plan: ir.Plan, refused: Mapping[str, str], queued: Container[str] = ()) -> dict[int, str]:
    """Step → why it cannot be kept for later; `refused` has operators, by name, for which the device has a reason, and
    `queued` those that look at data without making anybody wait.
    """
    found: dict[int, str] = {}
    places = plan.places
    for number, step in enumerate(plan.steps):
        if not isinstance(step, ir.Invoke) or step.target in queued:
            continue
        if why := _barrier(step, plan, places, refused):
            found[number] = f"{step.target}: {why}"
    return found


def _barrier(step: ir.Invoke, plan: ir.Plan, places: Mapping[str, str], refused: Mapping[str, str]) -> str:
    if step.target in refused:
        return refused[step.target]
    for number in step.effects:
        if why := _WHY.get(Effect(plan.effects[number].kind)):
            return why
    names = ir.names_in((step.args, step.kwargs, step.into)) | {result.name for result in step.results}
    if kind_of(plan.device) != HOST and any(kind_of(places.get(name, plan.device)) == HOST for name in names):
        return "it takes or gives memory of the host"
    return ""


def split(plan: ir.Plan, found: Mapping[int, str]) -> tuple[Part, ...]:
    """The parts of a plan with these barriers. ValueError where the arena has no fixed places."""
    if plan.arena.blocks:
        raise ValueError("its intermediates are placed anew for each size")
    moved = _Moved(plan)
    runs = list(_runs(plan, found))
    parts = []
    for first, last, why in runs:
        parts.append(moved.part(first, last, why))
    return tuple(parts)


def _runs(plan: ir.Plan, found: Mapping[int, str]) -> Iterable[tuple[int, int, str]]:
    """First step, the one behind the last, and why they are run as they are; bookkeeping stays with what is before."""
    cuts = {plan.failure.unsure, len(plan.steps) if plan.failure.spoiled is None else plan.failure.spoiled}
    first, why = 0, found.get(0, "")
    for number in range(1, len(plan.steps)):
        step = plan.steps[number]
        now = found.get(number, "")
        bookkeeping = isinstance(step, ir.Release) and number not in cuts
        if (now == why and not now and number not in cuts) or bookkeeping:
            continue
        yield first, number, why
        first, why = number, now
    if plan.steps:
        yield first, len(plan.steps), why


def ending(plan: ir.Plan) -> ir.Plan:
    """A plan without steps that gives the results of another one, from what these are made of."""
    reads = tuple([read for read in plan.reads if read.symbol in ir.symbols_in(plan.results)])
    symbols = ir.symbols_in(plan.results)
    wanted = ir.names_in(plan.results) | {read.name for read in reads}
    known = _Moved(plan).forms.values()
    given = tuple([g for g in known if g.name in wanted or ir.symbols_in(g.number) & symbols])
    return ir.Plan(f"{plan.name}_results", plan.device, (), given, (), plan.results, reads, hints=plan.hints)


class _Moved:
    """A plan whose arena is an input."""

    __slots__ = ("forms", "pieces", "plan")

    def __init__(self, plan: ir.Plan) -> None:
        self.plan = plan
        self.pieces = {piece.name: piece for piece in plan.arena.pieces}
        #: What is known of each name: device and form; a form is None for numbers.
        self.forms: dict[str, ir.Input] = {given.name: given for given in plan.inputs}
        if self.pieces:
            self.forms[ARENA] = ir.Input(ARENA, ir.Form("u8", (plan.arena.nbytes,), (1,)), plan.device)
        for step in plan.steps:
            match step:
                case ir.Allocate(name, form):
                    self.forms[name] = ir.Input(name, form, step.device)
                case ir.Reuse(name, donor, form):
                    self.forms[name] = replace(self.forms[donor], name=name, form=form or self.forms[donor].form)
                case ir.Invoke(results=results):
                    for result in results:
                        form = ir.Form(_UNTOLD, result.size, result.stride)
                        self.forms[result.name] = ir.Input(result.name, form, result.device)

    def part(self, first: int, last: int, why: str) -> Part:
        plan = self.plan
        steps = tuple([self._step(step) for step in plan.steps[first:last]])
        made, released = _made(steps), _released(steps)
        used = _used(steps) | released
        symbols = ir.symbols_in(steps)
        reads = tuple([read for read in plan.reads if read.symbol in symbols])
        numbers = {
            given.name for given in plan.inputs if given.number is not None and ir.symbols_in(given.number) & symbols
        }
        wanted = (used - made) | {read.name for read in reads} | numbers
        takes = tuple([name for name in self.forms if name in wanted])
        rest = plan.steps[last:]
        later = _used(tuple([self._step(step) for step in rest])) | _released(rest) | ir.names_in(plan.results)
        gives = tuple([name for name in self.forms if name in made - released and name in later])
        effects, steps = _renumbered(plan, steps)
        kernels = tuple(dict.fromkeys([step.kernel for step in steps if isinstance(step, ir.Launch)]))
        results = tuple([ir.Whole(name) for name in gives])
        inputs = tuple([self.forms[name] for name in takes])
        name = f"{plan.name}_{first}"
        hints = tuple([(symbol, hint) for symbol, hint in plan.hints if symbol in symbols])
        made_plan = ir.Plan(name, plan.device, kernels, inputs, steps, results, reads, hints=hints, effects=effects)
        return Part(made_plan, first, last, takes, gives, why)

    # -- pieces of the arena as parts of an input

    def _step(self, step: ir.Step) -> ir.Step:
        match step:
            case ir.Launch():
                return replace(step, addresses=tuple([self._address(address) for address in step.addresses]))
            case ir.Invoke():
                into = step.into and replace(step.into, tensor=self._tensor(step.into.tensor))
                kwargs = tuple([(name, self._argument(value)) for name, value in step.kwargs])
                return replace(step, args=self._argument(step.args), kwargs=kwargs, into=into)
        return step

    def _address(self, address: ir.Address) -> ir.Address:
        piece = self.pieces.get(address.tensor.name)
        if piece is None:
            return address
        return replace(address, tensor=ir.Whole(ARENA), moved=address.moved + int(piece.start))

    def _argument(self, value: ir.Argument) -> ir.Argument:
        match value:
            case tuple():
                return tuple([self._argument(item) for item in value])
            case ir.Whole() | ir.Turned() | ir.Reread():
                return self._tensor(value)
        return value

    def _tensor(self, tensor: ir.Tensor) -> ir.Tensor:
        piece = self.pieces.get(tensor.name)
        if piece is None:
            return tensor
        form, offset, casts = piece.form, 0, False
        match tensor:
            case ir.Turned():
                form = ir.Form(form.dtype, form.size[::-1], form.stride[::-1])
            case ir.Reread():
                form, casts, offset = tensor.form, tensor.casts, int(tensor.offset)
        start = int(piece.start) + offset * NBYTES[form.dtype]
        return ir.Reread(ARENA, form, start // NBYTES[form.dtype], casts or form.dtype != "u8")


def _made(steps: Iterable[ir.Step]) -> set[str]:
    found: set[str] = set()
    for step in steps:
        match step:
            case ir.Allocate(name) | ir.Reuse(name):
                found.add(name)
            case ir.Invoke(results=results):
                found.update([result.name for result in results])
    return found


def _released(steps: Iterable[ir.Step]) -> set[str]:
    return {name for step in steps if isinstance(step, ir.Release) for name in step.names}


def _used(steps: tuple[ir.Step, ...]) -> set[str]:
    return ir.names_in(steps) | {step.donor for step in steps if isinstance(step, ir.Reuse)}


def _renumbered(plan: ir.Plan, steps: tuple[ir.Step, ...]) -> tuple[tuple[ir.Effect, ...], tuple[ir.Step, ...]]:
    """The effects of these steps, and the steps with the numbers that they have there."""
    numbers = sorted({number for step in steps if isinstance(step, ir.Launch | ir.Invoke) for number in step.effects})
    new = {number: i for i, number in enumerate(numbers)}
    changed = tuple(
        [
            replace(step, effects=tuple([new[number] for number in step.effects]))
            if isinstance(step, ir.Launch | ir.Invoke)
            else step
            for step in steps
        ]
    )
    return tuple([plan.effects[number] for number in numbers]), changed
