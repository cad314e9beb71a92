"""From a program to a schedule, on one screen: analyse, decide, apply.

`prepare` rewrites the program and `analyse` finds the facts; `fusion`, `repeat`, `rows` and `layout` decide, which is a
`Planned`, and `shown` which roundings stay, of forward and backward at once; `order` and `memory` decide about steps,
and `apply` builds the kernels. What runs them is written in terms of the symbols that inputs tell.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from stator.base.device import Device
from stator.loop import apply, fusion, layout, memory
from stator.loop.apart import Apart
from stator.loop.deps import acts, analyse
from stator.loop.failing import plan_failure
from stator.loop.footprint import Kept
from stator.loop.fusion import FusionPlan
from stator.loop.kernel import Kernel, Launch, Schedule
from stator.loop.nest import Program, symbols_of
from stator.loop.order import order
from stator.loop.repeat import repeat
from stator.loop.resize import Teller
from stator.loop.rows import make_rows_again
from stator.loop.shown import keep_shown, keep_shown_by_both
from stator.loop.split import prepare


@dataclass(frozen=True, slots=True)
class Planned:
    """A program of which it is known what its kernels are. `pieces` say of some buffers why they are split."""

    plan: FusionPlan
    layouts: tuple[layout.Choice, ...]
    pieces: dict[str, str]
    rounds: bool


def schedule(program: Program, device: Device, rounds: bool = True) -> Schedule:
    """Fused kernels, the steps that run them, and where memory is.

    Kernels keep eager's roundings if `rounds`, and else those that are shown (`shown`).
    """
    planned = _plan(program, device, rounds)
    return make_kernels(planned if rounds else replace(planned, plan=keep_shown(planned.plan)))


def plan_both(
    forward: tuple[Program, Device], backward: tuple[Program, Device], saved: Sequence[Kept]
) -> tuple[Planned, Planned]:
    """What the kernels of both halves of a program are, which keep those roundings that either half shows.

    `saved` are the inputs of backward that are results of forward.
    """
    first, last = [_plan(program, device, rounds=False) for program, device in (forward, backward)]
    shown = keep_shown_by_both(first.plan, last.plan, saved)
    return replace(first, plan=shown[0]), replace(last, plan=shown[1])


def _plan(program: Program, device: Device, rounds: bool) -> Planned:
    pieces: dict[str, str] = {}
    plan = fusion.decide(analyse(prepare(program, device, pieces)), device)
    plan = make_rows_again(repeat(plan, device, rounds), device) if device.repeats else plan
    return Planned(*layout.settle(plan, device), pieces, rounds)


def make_kernels(planned: Planned) -> Schedule:
    """The kernels of what is planned, the steps that run them, and where memory is."""
    plan, layouts, pieces, rounds = planned.plan, planned.layouts, planned.pieces, planned.rounds
    facts, program = plan.facts, plan.facts.program
    ordered = order(plan)
    launches: apply.Launches = {}
    steps = tuple([apply.step(group, facts, launches, rounds) for group in ordered])
    acted = list(acts(facts))
    used: dict[Kernel, str] = {}
    for group, step in zip(ordered, steps, strict=True):
        if isinstance(step, Launch) and step.kernel not in used:
            found = [plan.reason(group), *[pieces[name] for name in group.writes if name in pieces]]
            used[step.kernel] = "; ".join(filter(None, found))
    teller = Teller(program.parts)
    steps, outputs = tuple([teller.step(step) for step in steps]), teller.argument(program.outputs)
    buffers = {name: teller.buffer(buffer) for name, buffer in program.buffers.items()}
    inputs, numbers = tuple([buffers[b.name] for b in program.inputs]), tuple(map(teller.number, program.numbers))
    place = memory.plan(steps, buffers, [buffer.name for buffer in inputs], outputs)
    return Schedule(
        name=program.name,
        device=program.device,
        kernels=tuple(used),
        steps=steps,
        buffers=buffers,
        memory=place,
        inputs=inputs,
        outputs=outputs,
        mutated=program.mutated,
        numbers=numbers,
        symbols=symbols_of(inputs, numbers),
        failure=plan_failure(facts, ordered),
        layouts=tuple([choice.text() for choice in layouts]),
        reasons=tuple(used.values()),
        effects=tuple([(effect, name) for _, effect, name in acted]),
        acts=tuple([tuple([i for i, (node, *_) in enumerate(acted) if node in group.members]) for group in ordered]),
        device_number=program.device_number,
        apart=Apart(plan),
    )
