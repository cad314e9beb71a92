"""In whose memory the results of a plan lie, and what else a caller has to know that keeps a call for later.

Memory that a plan allocates and gives out has a place: a number, by which a caller may give memory for it
(`Executor.into`). What operators of PyTorch make lies wherever they make it.
Neighbours: `runtime/executor.py` numbers the places, `recording/` gives the memory.
"""

from __future__ import annotations

from dataclasses import dataclass

from stator.base.effects import Effect
from stator.plan import ir
from stator.plan.order import written


@dataclass(frozen=True, slots=True)
class Escapes:
    """Of a plan: the allocations that results lie in, in their order; and whether a result lies in memory of an
    operator.
    """

    places: tuple[ir.Allocate, ...]
    foreign: bool


def escapes(plan: ir.Plan) -> Escapes:
    """Where the results lie."""
    owners = owners_of(plan)
    roots = {owners[name] for name in ir.names_in(plan.results) if name in owners}
    places = tuple([step for step in plan.steps if isinstance(step, ir.Allocate) and step.name in roots])
    made = {result.name for step in plan.steps if isinstance(step, ir.Invoke) for result in step.results}
    return Escapes(places, bool(roots & made))


def owners_of(plan: ir.Plan) -> dict[str, str]:
    """Whose memory each name is: its own, or that of what it took over from. Pieces of the arena own none."""
    owners = {given.name: given.name for given in plan.inputs if given.form is not None}
    for step in plan.steps:
        match step:
            case ir.Allocate(name):
                owners[name] = name
            case ir.Reuse(name, donor):
                owners[name] = owners[donor]
            case ir.Invoke(results=results):
                owners.update({result.name: result.name for result in results})
    return owners


def written_inputs(plan: ir.Plan) -> frozenset[int]:
    """The numbers of inputs whose memory is written: for the caller, or as that of another value."""
    owners = owners_of(plan)
    acting = [step for step in plan.steps if isinstance(step, ir.Launch | ir.Invoke)]
    names = {owners.get(name, name) for step in acting for name in written(step)}
    names |= {effect.name for effect in plan.effects}
    return frozenset([number for number, given in enumerate(plan.inputs) if given.name in names])


def unread_inputs(plan: ir.Plan) -> frozenset[int]:
    """The numbers of tensors that nothing takes, not even as a result."""
    used = ir.names_in((plan.steps, plan.results)) | {read.name for read in plan.reads} | set(plan.failure.kept)
    used |= {name for step in plan.steps if isinstance(step, ir.Reuse) for name in (step.donor,)}
    tensors = [(number, given.name) for number, given in enumerate(plan.inputs) if given.form is not None]
    return frozenset([number for number, name in tensors if name not in used])


def is_random(plan: ir.Plan) -> bool:
    """Whether an operator takes numbers from a generator of PyTorch."""
    return any(effect.kind == Effect.RANDOM for effect in plan.effects)
