"""From a program to a schedule, on one screen: analyse, decide, apply.

`prepare` rewrites the program and `analyse` finds the facts; `fusion`, `layout`, `order` and `memory` decide; `apply`
builds the kernels.
"""

from __future__ import annotations

from stator.loop import apply, fusion, layout, memory
from stator.loop.deps import analyse
from stator.loop.device import Device
from stator.loop.failing import plan_failure
from stator.loop.kernel import Kernel, Launch, Schedule
from stator.loop.nest import Program
from stator.loop.order import order
from stator.loop.split import prepare


def schedule(program: Program, device: Device | None = None) -> Schedule:
    """Fused kernels, the steps that run them, and where memory is."""
    device = device or Device.of(program.device)
    plan = fusion.decide(analyse(prepare(program, device)), device)
    plan, layouts = layout.settle(plan, device)
    facts, program = plan.facts, plan.facts.program
    ordered = order(plan)
    steps = tuple(apply.step(group, facts) for group in ordered)
    used: dict[Kernel, None] = {step.kernel: None for step in steps if isinstance(step, Launch)}
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
    )
