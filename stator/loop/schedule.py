"""From a program to a schedule, on one screen: analyse, decide, apply.

`prepare` rewrites the program and `analyse` finds the facts; `fusion`, `repeat`, `rows`, `layout`, `order` and
`memory` decide; `apply` builds the kernels. What runs them is written in terms of the symbols that inputs tell.
"""

from __future__ import annotations

from stator.base.device import Device
from stator.loop import apply, fusion, layout, memory
from stator.loop.apart import Apart
from stator.loop.deps import acts, analyse
from stator.loop.failing import plan_failure
from stator.loop.kernel import Kernel, Launch, Schedule
from stator.loop.nest import Program, symbols_of
from stator.loop.order import order
from stator.loop.repeat import repeat
from stator.loop.resize import Teller
from stator.loop.rows import make_rows_again
from stator.loop.split import prepare


def schedule(program: Program, device: Device, rounds: bool = True) -> Schedule:
    """Fused kernels, the steps that run them, and where memory is.

    Kernels keep eager's roundings if `rounds`, and else those that they show themselves or that are marked (`shown`).
    """
    pieces: dict[str, str] = {}
    plan = fusion.decide(analyse(prepare(program, device, pieces)), device)
    plan = make_rows_again(repeat(plan, device, rounds), device) if device.repeats else plan
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
