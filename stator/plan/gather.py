"""A plan in which all memory that lives only within a call is one piece, the arena.

A plan that is settled for least memory at once (`loop/footprint.py`) allocates much of what it needs in between by
itself, so that what a call lets go of serves the next allocation, whoever asks. To a caller that keeps the memory of a
call for all later ones that is no use: one piece of which everything has its part is smaller than what an allocator
makes of the same requests, and calls of several plans may share it. Steps that only declare such memory, or let it go,
are left out, and the numbers of steps that the plan speaks of follow.
Neighbours: `places.py` (whose memory a name is), `base/placement.py` (where blocks lie).
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import replace

from stator.base.dtypes import NBYTES
from stator.base.placement import ALIGNMENT, place
from stator.plan import ir
from stator.plan.places import owners_of
from stator.sizes.strides import span


def gather(plan: ir.Plan) -> ir.Plan:
    """The same with its own allocations, but for results, in the arena; those of symbolic sizes stay as they are."""
    owners = owners_of(plan)
    roots = _movable(plan, owners)
    if plan.arena.blocks or not roots:
        return plan
    forms = _forms(plan, owners, roots)
    lives = _lives(plan, owners, roots)
    nbytes = dict.fromkeys(lives, 0)
    for name, form in forms.items():
        nbytes[owners[name]] = max(nbytes[owners[name]], _nbytes(form))
    offsets, total = place([(nbytes[root], *life) for root, life in lives.items()])
    base = -(-plan.arena.nbytes // ALIGNMENT) * ALIGNMENT
    starts = {root: base + offset for root, offset in zip(lives, offsets, strict=True)}
    pieces = tuple([ir.Piece(name, form, starts[owners[name]]) for name, form in forms.items()])
    arena = replace(plan.arena, nbytes=base + total, pieces=(*plan.arena.pieces, *pieces))
    steps = [_without(step, forms) for step in plan.steps]
    left = [step for step in steps if step is not None]
    return replace(plan, steps=tuple(left), arena=arena, failure=_counted_anew(plan.failure, steps))


def _counted_anew(failure: ir.Failure, steps: Sequence[ir.Step | None]) -> ir.Failure:
    """The same with the numbers that steps have where some are left out."""
    before = [0]
    for step in steps:
        before.append(before[-1] + (step is not None))
    spoiled = None if failure.spoiled is None else before[failure.spoiled]
    return replace(failure, begin=before[failure.begin], unsure=before[failure.unsure], spoiled=spoiled)


def _movable(plan: ir.Plan, owners: dict[str, str]) -> set[str]:
    """The allocations that no result lies in, of a size that is known, where the arena is."""
    kept = {owners[name] for name in ir.names_in(plan.results) if name in owners}
    found = [step for step in plan.steps if isinstance(step, ir.Allocate) and step.name not in kept]
    own = {step.name for step in found if step.device == plan.device and step.stream == 0}
    symbolic = {
        owners[step.name]
        for step in plan.steps
        if isinstance(step, ir.Allocate | ir.Reuse) and step.form is not None and ir.symbols_in(step.form)
    }
    return own - symbolic


def _forms(plan: ir.Plan, owners: dict[str, str], roots: set[str]) -> dict[str, ir.Form]:
    """By name, of all that lies in these allocations."""
    forms: dict[str, ir.Form] = {}
    for step in plan.steps:
        match step:
            case ir.Allocate(name, form) if name in roots:
                forms[name] = form
            case ir.Reuse(name, donor, form) if owners[name] in roots:
                forms[name] = form or forms[donor]
    return forms


def _lives(plan: ir.Plan, owners: dict[str, str], roots: set[str]) -> dict[str, tuple[int, int]]:
    """The first and last step of each of these allocations that touches it."""
    lives: dict[str, tuple[int, int]] = {}
    for number, step in enumerate(plan.steps):
        if isinstance(step, ir.Launch | ir.Invoke):
            touched = {owners.get(name, name) for name in ir.names_in(step)} & roots
            lives.update({root: (lives.get(root, (number, 0))[0], number) for root in touched})
    return {**dict.fromkeys(sorted(roots - lives.keys()), (0, 0)), **lives}


def _nbytes(form: ir.Form) -> int:
    count = span(form.size, form.stride)
    assert isinstance(count, int)  # others are not moved
    return count * NBYTES[form.dtype]


def _without(step: ir.Step, names: Container[str]) -> ir.Step | None:
    """The step without these names, or None where nothing is left of it."""
    match step:
        case ir.Allocate(name) | ir.Reuse(name) if name in names:
            return None
        case ir.Release(released):
            kept = tuple([name for name in released if name not in names])
            return ir.Release(kept) if kept else None
    return step
