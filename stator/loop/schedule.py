"""From a program to a schedule, on one screen: analyse, decide, apply.

`prepare` rewrites the program and `analyse` finds the facts; `fusion`, `layout`, `order` and `memory` decide; `apply`
builds the kernels.
"""

from __future__ import annotations

from stator.base.device import Device
from stator.loop import apply, fusion, layout, memory
from stator.loop.apart import Apart
from stator.loop.deps import acts, analyse
from stator.loop.failing import plan_failure
from stator.loop.kernel import Kernel, Launch, Schedule
from stator.loop.nest import Program
from stator.loop.order import order
from stator.loop.split import prepare


def schedule(program: Program, device: Device, rounds: bool = True) -> Schedule:
    """Fused kernels, which keep eager's roundings if `rounds`, the steps that run them, and where memory is."""
    pieces: dict[str, str] = {}
    plan = fusion.decide(analyse(prepare(program, device, pieces)), device)
    plan, layouts = layout.settle(plan, device)
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
    place = memory.plan(steps, program.buffers, [b.name for b in program.inputs], program.outputs)
    return Schedule(
        name=program.name,
        device=program.device,
        kernels=tuple(used),
        steps=steps,
        buffers=program.buffers,
        memory=place,
        inputs=program.inputs,
        outputs=program.outputs,
        mutated=program.mutated,
        numbers=program.numbers,
        symbols=program.symbols,
        failure=plan_failure(facts, ordered),
        layouts=tuple([choice.text() for choice in layouts]),
        reasons=tuple(used.values()),
        effects=tuple([(effect, name) for _, effect, name in acted]),
        acts=tuple([tuple([i for i, (node, *_) in enumerate(acted) if node in group.members]) for group in ordered]),
        device_number=program.device_number,
        apart=Apart(plan),
    )
