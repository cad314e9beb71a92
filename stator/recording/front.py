"""From a linked graph to one whose calls are recorded; the same graph where its device records nothing.

What is known of a plan is read off it here, once: which inputs it writes, where its results lie, which steps cannot be
recorded. `policy.py` decides by that at each call that no recording fits.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

from stator import targets
from stator._native import Recorded
from stator.base import artifacts, log
from stator.base.device import kind_of
from stator.base.dtypes import NBYTES, TORCH
from stator.base.errors import WithoutEffect, step_of
from stator.base.options import Options
from stator.plan import ir
from stator.plan.gather import gather
from stator.plan.parts import ARENA, barriers, ending, split
from stator.plan.places import escapes, is_random, owners_of, unread_inputs, written_inputs
from stator.plan.uses import uses
from stator.recording import overlays
from stator.recording.capture import Slot
from stator.recording.overlays import Overlays, Room, pack
from stator.recording.parts import PartsInOrder
from stator.recording.policy import Facts, Policy
from stator.recording.zeros import Lender
from stator.runtime import GraphArtifact, executor, extern
from stator.runtime.link import link, load
from stator.sizes import Size, evaluate
from stator.sizes.strides import span
from stator.targets.target import Recorder

Call = Callable[[list[Any]], tuple[Any, ...]]
#: The kernels of a plan, loaded when they are asked for.
Kernels = Callable[[], Mapping[str, Any]]
#: For how many steps a graph counts of which they are not known.
OPAQUE_STEPS = 16
#: How often a plan is cut anew at a step that turns out not to be recorded.
CUTS = 8


@dataclass(frozen=True, slots=True)
class Making:
    """What a plan, and parts of it, are made recordable with. Of a pair of graphs, `activations` are the inputs of the
    backward graph, by name, that the forward graph makes; for that one it is None.
    """

    kernels: Kernels
    options: Options
    pair: Overlays | None = None
    activations: frozenset[str] | None = None


def record_plan(
    artifact: GraphArtifact, options: Options, pair: Overlays | None = None, activations: Collection[int] | None = None
) -> Call:
    """What runs the plan of an artifact, recorded; as it is, where nothing is recorded.

    It may be one of a pair: `activations` are then the inputs of a backward graph that the forward graph makes.
    """
    recorder = targets.recorder(artifact.plan.device)
    if recorder is None:
        what = f"option 'cudagraphs' has no effect on graphs of the {kind_of(artifact.plan.device)}"
        options.announce(WithoutEffect(f"{what}, where nothing is queued"))
        return link(artifact, options)
    if _is_refused(recorder, options):
        return link(artifact, options)
    artifact = replace(artifact, plan=gather(artifact.plan))
    plan, call = artifact.plan, link(artifact, options)
    found = barriers(plan, recorder.REFUSED, recorder.QUEUED)
    names = None if activations is None else frozenset([plan.inputs[number].name for number in activations])
    artifacts.stage(f"{plan.name}_recording", lambda: _text(plan, found, names), "txt")
    log.record(log.RECORDING, graph=plan.name, recorded=len(found) < _acting(plan), told=_sentence(plan, found))
    making = Making(partial(load, artifact.units, options, plan.device), options, pair, names)
    made = _recorded(call, plan, making, found)
    return made if made is not None else call


def lender_of(backward: GraphArtifact, first: int, call: Call) -> Lender | None:
    """What lends zeros to a backward graph whose tangents begin with this input; `call` is what runs it, recorded."""
    recorder = targets.recorder(backward.plan.device)
    if recorder is None or recorder.refusal():
        return None
    calls = call.calls if isinstance(call, PartsInOrder) else (call,)
    policies = [item.decide.__self__ for item in calls if isinstance(item, Recorded)]  # type: ignore[attr-defined]
    return Lender(backward.plan, first, recorder, policies)


def _is_refused(recorder: Recorder, options: Options) -> bool:
    """Whether nothing can be recorded as the program has set PyTorch up, which is told."""
    reason = recorder.refusal()
    if reason:
        options.announce(WithoutEffect(f"option 'cudagraphs' has no effect: {reason}"))
    return bool(reason)


def _recorded(call: Call, plan: ir.Plan, making: Making, found: Mapping[int, str]) -> Call | None:
    """The plan with these barriers; None where it cannot be cut."""
    if len(found) == _acting(plan):
        return call
    if found:
        return _in_parts(call, plan, making, found)
    retry = partial(_cut_again, call, plan, making, found)
    return _native(call, _facts(plan, call, making.activations), plan.device, making.options, retry, making.pair)


def _in_parts(call: Call, plan: ir.Plan, making: Making, found: Mapping[int, str]) -> Call | None:
    """Recorded parts, and between them steps that run as they are."""
    options = making.options
    try:
        parts = split(plan, found)
    except ValueError as refusal:
        why = f"{next(iter(found.values()))}, and {refusal}"
        options.announce(WithoutEffect(f"calls of {plan.name} are not recorded: {why}"))
        log.record(log.RECORDING, graph=plan.name, recorded=False, told=f"is not cut: {why}")
        return call
    last = ending(plan)
    result = executor.make(last, {}, options.reuse_results)
    if result is None:
        return None
    loaded = making.kernels()
    calls: list[Call] = []
    for part in parts:
        run = executor.make(part.plan, loaded, options.reuse_results)
        if run is None:
            return None
        if not part.barrier and _acting(part.plan):
            retry = partial(_cut_again, run, part.plan, making, {})
            facts = _facts(part.plan, run, making.activations)
            calls.append(_native(run, facts, plan.device, options, retry, making.pair))
        else:
            calls.append(run)
    return PartsInOrder(plan, parts, calls, result, [given.name for given in last.inputs])


def _cut_again(
    call: Call,
    plan: ir.Plan,
    making: Making,
    found: Mapping[int, str],
    error: Exception,
) -> Call | None:
    """The plan in parts where recording it has failed in one of its steps."""
    number = step_of(error, plan.name)
    if number is None or number in found or not isinstance(plan.steps[number], ir.Invoke) or len(found) >= CUTS:
        return None
    step: Any = plan.steps[number]
    more = {**found, number: f"{step.target}: recording it raised {type(error).__name__}"}
    log.record(log.RECORDING, graph=plan.name, recorded=True, told=_sentence(plan, more))
    return _in_parts(call, plan, making, more)


def record_call(call: Call, name: str, written: frozenset[int], device: str, options: Options) -> Call:
    """A graph that is no plan, recorded; `written` are inputs that it writes to. Where its memory lies, and whether it
    draws random numbers, its first call shows.
    """
    recorder = targets.recorder(device)
    if recorder is None or _is_refused(recorder, options):
        return call
    return _native(call, Facts(name, OPAQUE_STEPS, written, geometry=None, opaque=True), device, options, None)


def _native(
    call: Call,
    facts: Facts,
    device: str,
    options: Options,
    retry: Callable[[Exception], Call | None] | None,
    pair: Overlays | None = None,
) -> Call:
    recorder: Any = targets.recorder(device)
    number = targets.toolchain(device).number(device)
    policy = Policy(call, facts, recorder, number, options, retry, pair)
    made: Call = Recorded(call, policy.decide, policy.recordings, recorder.driver(), number)
    return made


# ---- what is known of a plan -----------------------------------------------------------------------------------------


def _facts(plan: ir.Plan, call: Any, activations: Collection[str] | None) -> Facts:
    found = escapes(plan)
    native = hasattr(call, "into")
    tensors = [(i, given) for i, given in enumerate(plan.inputs) if given.form is not None]
    elsewhere = [i for i, given in tensors if kind_of(given.device) != kind_of(plan.device)]
    return Facts(
        plan.name,
        _acting(plan),
        written_inputs(plan),
        unread_inputs(plan).union(elsewhere),
        frozenset([i for i, given in tensors if ir.symbols_in(given.form)]),
        frozenset([i for i, given in enumerate(plan.inputs) if given.name == ARENA]),
        partial(_slots, plan, found.places, _firsts(plan)) if native else None,
        native and not found.foreign,
        is_random(plan),
        **(_overlays(plan, activations) if activations is not None else {}),
    )


def _overlays(plan: ir.Plan, activations: Collection[str]) -> dict[str, Any]:
    """The facts of a backward graph whose results may lie over these inputs."""
    found = uses(plan, extern.may_alias)
    last = {number: step for number, step in found.last.items() if plan.inputs[number].name in activations}
    return {"last": last, "first": found.first}


def _firsts(plan: ir.Plan) -> dict[str, int]:
    """Memory → the first result that lies in it."""
    owners = owners_of(plan)
    firsts: dict[str, int] = {}
    for number, result in enumerate(plan.results):
        for name in ir.names_in(result) & owners.keys():
            firsts.setdefault(owners[name], number)
    return firsts


def _slots(
    plan: ir.Plan, places: Sequence[ir.Allocate], firsts: Mapping[str, int], inputs: Sequence[Any]
) -> list[Slot]:
    """The allocations with a place for the sizes of a call."""
    values = _values(plan, inputs)
    found = []
    for step in places:
        size, stride = [tuple([_number(n, values) for n in extents]) for extents in (step.form.size, step.form.stride)]
        found.append(Slot(firsts[step.name], getattr(torch, TORCH[step.form.dtype]), size, stride))
    return found


def _values(plan: ir.Plan, inputs: Sequence[Any]) -> dict[str, int]:
    """The symbols of a call."""
    values = {}
    numbers = {given.name: i for i, given in enumerate(plan.inputs)}
    for read in plan.reads:
        tensor = inputs[numbers[read.name]]
        values[read.symbol] = (tensor.stride() if read.what == "stride" else tensor.shape)[read.dim]
    values.update({given.name: inputs[i] for i, given in enumerate(plan.inputs) if given.form is None})
    return values


def _number(extent: Any, values: Mapping[str, int]) -> int:
    if not isinstance(extent, Size):
        return int(extent)
    return evaluate(extent, {symbol: values[symbol.name] for symbol in extent.symbols})


def _acting(plan: ir.Plan) -> int:
    """How many steps do something."""
    return sum(isinstance(step, ir.Launch | ir.Invoke) for step in plan.steps)


def _sentence(plan: ir.Plan, found: Mapping[int, str]) -> str:
    """What of a plan is recorded."""
    acting = _acting(plan)
    skipped = "; ".join([f"step {number} runs as it is: {why}" for number, why in found.items()])
    return f"has {acting - len(found)} of {acting} steps recorded" + (f"; {skipped}" if skipped else "")


def _text(plan: ir.Plan, found: Mapping[int, str], activations: Collection[str] | None) -> str:
    """The same for the folder of artifacts, with where the results lie."""
    kinds = escapes(plan)
    lines = f"{plan.name} {_sentence(plan, found)}".split("; ")
    lines.append(f"results in places: {', '.join([step.name for step in kinds.places]) or 'none'}")
    if kinds.foreign:
        lines.append("results in memory of operators: a recording has a pool of its own")
    if activations is not None:
        lines.append(f"gradients over activations: {_overlaid(plan, activations)}")
    return "\n".join(lines) + "\n"


def _overlaid(plan: ir.Plan, activations: Collection[str]) -> str:
    """How much that is at most: where each activation has memory of its own, and nobody else has it."""
    found, places = _overlays(plan, activations), escapes(plan).places
    inputs = [(step, plan.inputs[number].form) for number, step in found["last"].items()]
    if ir.symbols_in((tuple([form for _, form in inputs]), places)):
        return "as many as there is room for, by size"
    sizes = [(_nbytes(step.form), first) for step, first in zip(places, found["first"], strict=True)]
    wanted = [(nbytes, first) for nbytes, first in sizes if first is not None and nbytes >= overlays.LEAST]
    where = pack(wanted, [Room(step, _nbytes(form)) for step, form in inputs if form is not None])
    laid = sum(nbytes for (nbytes, _), room in zip(wanted, where, strict=True) if room is not None)
    return f"{laid:,} bytes of {sum(nbytes for nbytes, _ in sizes):,} at most"


def _nbytes(form: ir.Form) -> int:
    return int(span(form.size, form.stride)) * NBYTES[form.dtype]
