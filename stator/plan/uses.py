"""Between which steps a plan uses memory that its caller has given, and that its results lie in.

A caller that lets go of an input may have results lie where that was, from the step on behind the last one that touches
it (`recording/overlays.py`). What is not known to the last byte is left out: inputs that are written, that results lie
in, or that an operator may have given on.
Neighbour: `places.py` (whose memory a name is).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from stator.plan import ir
from stator.plan.places import escapes, owners_of, written_inputs


@dataclass(frozen=True, slots=True)
class Uses:
    """By the numbers of steps.

    `last`: of inputs the last one that touches the memory, -1 where none does; only of those that have nothing to do
    with results. `first`: of each place of the plan (`escapes`) the first one that touches it; None where its tensors
    are not all of one dtype, or not known.
    """

    last: Mapping[int, int]
    first: tuple[int | None, ...]


def uses(plan: ir.Plan, may_alias: Callable[[str], bool]) -> Uses:
    """Of a plan with one stream; `may_alias(operator)`: its results may share memory with what it is given."""
    owners = owners_of(plan)
    sharing = _sharing(plan, owners, may_alias)
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for number, step in enumerate(plan.steps):
        for root in _touched(step, owners, sharing):
            first.setdefault(root, number)
            last[root] = number
    given_out = set(_memory(ir.names_in(plan.results), owners, sharing))
    written = written_inputs(plan)
    kept = {
        i: last.get(given.name, -1)
        for i, given in enumerate(plan.inputs)
        if given.form is not None and i not in written and given.name not in given_out
    }
    plain = _plain_places(plan, owners, sharing)
    places = escapes(plan).places
    return Uses(kept, tuple([first.get(step.name) if step.name in plain else None for step in places]))


def _sharing(plan: ir.Plan, owners: Mapping[str, str], may_alias: Callable[[str], bool]) -> dict[str, set[str]]:
    """What an operator has made → all memory that it may be."""
    found: dict[str, set[str]] = {}
    for step in plan.steps:
        if not isinstance(step, ir.Invoke) or not step.results or not may_alias(step.target):
            continue
        given = {owners.get(name, name) for name in ir.names_in((step.args, step.kwargs))}
        roots = set().union(given, *[found.get(root, set()) for root in given])
        found.update({result.name: {result.name, *roots} for result in step.results})
    return found


def _touched(step: ir.Step, owners: Mapping[str, str], sharing: Mapping[str, set[str]]) -> Iterator[str]:
    if not isinstance(step, ir.Launch | ir.Invoke):
        return
    names = ir.names_in(step)
    if isinstance(step, ir.Invoke):
        names = names | {result.name for result in step.results}
    yield from _memory(names, owners, sharing)


def _memory(names: Iterable[str], owners: Mapping[str, str], sharing: Mapping[str, set[str]]) -> Iterator[str]:
    """All memory that these names may be."""
    for name in names:
        root = owners.get(name, name)
        yield from sharing.get(root, {root})


def _plain_places(plan: ir.Plan, owners: Mapping[str, str], sharing: Mapping[str, set[str]]) -> set[str]:
    """The allocations that are given out in their own dtype only, and by nothing that an operator has made."""
    dtypes = {step.name: step.form.dtype for step in plan.steps if isinstance(step, ir.Allocate)}
    found = set(dtypes)
    for step in plan.steps:
        if isinstance(step, ir.Reuse) and step.form is not None and step.form.dtype != dtypes.get(owners[step.name]):
            found.discard(owners[step.name])
    for tensor in _tensors(plan.results):
        if isinstance(tensor, ir.Reread) and tensor.casts:
            found.discard(owners.get(tensor.name, tensor.name))
    return found - set().union(*sharing.values())


def _tensors(item: ir.Argument) -> Iterator[ir.Tensor]:
    if isinstance(item, tuple):
        for part in item:
            yield from _tensors(part)
    elif isinstance(item, ir.Whole | ir.Turned | ir.Reread):
        yield item
