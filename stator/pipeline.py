"""The whole pipeline on one screen: a captured graph to data. No other file knows every layer.

It is only imported where something must be compiled: a process that finds its graphs in the store needs none of these
packages. Each stage reports how long it took, writes its result for people (`base/artifacts.py`), and is named in the
error when it fails. Neighbours: `driver.py` asks for `build`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import fx

from stator import lowering, passes, plan, prims, targets, tuning
from stator.aot.attributes import lifted
from stator.aot.metadata import Memory, Metadata
from stator.aot.partition import Partitioned, partition
from stator.aot.prologue import Prologue, mark, split
from stator.aot.trace import Joint, trace
from stator.base import artifacts, log
from stator.base.device import HOST, Device, kind_of
from stator.base.errors import InternalError, StatorError
from stator.base.options import Options
from stator.compiled import Compiled
from stator.inspect import graph_file, separation
from stator.loop import alive, tables, text, verify
from stator.loop.footprint import Kept, settle
from stator.loop.kernel import Schedule
from stator.loop.nest import Program
from stator.loop.schedule import make_kernels, plan_both, schedule
from stator.passes import biases, factors, images, points, ragged
from stator.passes.affine import FoldAffine, JoinAffine
from stator.passes.convolutions import ConvolveAsImages, FoldPadding, MultiplyPixels, PackConvolutions
from stator.passes.equal import MergeEqual, MergeJoint
from stator.passes.halves import WidenProducts
from stator.passes.joining import JoinProducts
from stator.passes.packing import PackWeights
from stator.passes.statistics import WidenStatistics
from stator.passes.sums import JoinTerms
from stator.plan import sources
from stator.plan.build import make
from stator.runtime import Building, GraphArtifact, Unit
from stator.sizes.environment import Environment

#: The operators that kernels of ours compute.
_LOOPS = frozenset([op for op, line in prims.PRIMITIVES.items() if line.kind != "extern"])


class Lowered(NamedTuple):
    """Loops, and the record by which it is decided what kernels compute."""

    program: Program
    device: Device


@tables.session()
def build(gm: fx.GraphModule, example_inputs: Sequence[Any], options: Options) -> Compiled:
    """Trace, partition and compile both halves."""
    environment: Environment | None = gm.meta.get("sizes")
    assumed = len(environment.conditions) if environment is not None else 0
    with Building(options) as building:
        for place in _places(example_inputs):
            building.expect(place)
        joint, parts, prologue = cut(gm, example_inputs, options)
        metadata = parts.metadata
        first = compile_alone(prologue.graph, "forward_prologue", building, options) if prologue else None
        units: list[tuple[Unit, ...]] = []
        forward, backward = schedule_halves(
            parts, options, lambda schedule: units.append(begin_kernels(schedule, building, options))
        )
        with stage("memory"):
            device = _record(forward, options)
            given = len(metadata.saved)
            forward, backward, footprint = settle(forward, backward, _kept(metadata), given, device=device)
        metadata = replace(metadata, memory=Memory(**asdict(footprint)))
        if prologue is not None:
            memory = replace(metadata.memory, kept=prologue.kept)
            metadata = replace(metadata, memory=memory, frozen=prologue.frozen)
        halves = [half for half in (forward, backward) if half is not None]
        built = [emit_artifact(half, part, options) for half, part in zip(halves, units, strict=True)]
        with stage("build"):
            building.finish()
    constants = joint.attributes[len(lifted(gm)) :]
    if environment is not None:
        conditions = [recorded.condition for recorded in environment.conditions[assumed:]]
        metadata = replace(metadata, conditions=tuple(conditions))
    return Compiled(metadata, built[0], built[1] if backward is not None else None, tuple(constants), first)


def schedule_halves(
    parts: Partitioned, options: Options, begin: Callable[[Schedule], None]
) -> tuple[Schedule, Schedule | None]:
    """Forward and backward to fused kernels; each begins as soon as it is known, forward before backward is scheduled.

    Where roundings may be left out, it takes the plans of both to say which stay.
    """
    if parts.backward is None or options.rounds:
        begin(forward := schedule_graph(parts.forward, "forward", options))
        if parts.backward is None:
            return forward, None
        begin(backward := schedule_graph(parts.backward, "backward", options))
        return forward, backward
    lowered = [lower_graph(*half, options) for half in ((parts.forward, "forward"), (parts.backward, "backward"))]
    with stage("schedule", graph="both"):
        planned = plan_both(lowered[0], lowered[1], _kept(parts.metadata))
    made: list[Schedule] = []
    for half, name in zip(planned, ("forward", "backward"), strict=True):
        with stage("schedule", graph=name):
            made.append(make_kernels(half))
        begin(made[-1])
    return made[0], made[1]


def cut(
    gm: fx.GraphModule, example_inputs: Sequence[Any], options: Options
) -> tuple[Joint, Partitioned, Prologue | None]:
    """What a graph computes, forward and backward; cut in two; and what is taken out of forward under freezing."""
    random_operators = {} if options.eager_random else prims.RANDOM_OPERATORS
    with stage("trace"):
        joint = trace(gm, example_inputs, decompositions=prims.DECOMPOSITIONS, random_operators=random_operators)
        passes.run(joint.graph, (MergeJoint(), *((WidenStatistics(),) if options.numerics == "fast" else ())))
    with stage("libraries"):
        device = targets.record(kind := _device(gm)).read(kind, options.threads)
        joint = suit_libraries(joint, device)
    artifacts.stage("joint", lambda: graph_file.functional(joint.graph, "joint"), "py")
    with stage("partition"):
        fused = frozenset() if device.host else _LOOPS  # on the host what is kept is read from memory, too
        parts = partition(joint, options.activation_memory_budget, fused)
    prologue = freeze(parts, joint, options) if options.freezing and not parts.metadata.has_backward else None
    return joint, parts, prologue


def suit_libraries(joint: Joint, device: Device) -> Joint:
    """The same with images, biases, factors and sizes as the device's libraries want them; results are as they were."""
    joint = _replaced(joint, biases.split(joint.graph, device))
    joint = _replaced(joint, factors.narrow(joint.graph, device))
    joint = _replaced(joint, ragged.pad(joint.graph, {*_results(joint)}, device, _LOOPS))
    joint = _replaced(joint, images.lay(joint.graph, _results(joint), device, _LOOPS))
    return _replaced(joint, points.multiply(joint.graph, device))


def _results(joint: Joint) -> list[fx.Node]:
    return [*joint.values, *[gradient for gradient in joint.gradients if gradient is not None]]


def _replaced(joint: Joint, moved: Mapping[fx.Node, fx.Node]) -> Joint:
    """The same where other nodes stand for some of the results."""
    if not moved:
        return joint
    return replace(
        joint,
        values=[moved.get(node, node) for node in joint.values],
        gradients=[None if node is None else moved.get(node, node) for node in joint.gradients],
        looked_at={moved.get(node, node): bits for node, bits in joint.looked_at.items()},
    )


def freeze(parts: Partitioned, joint: Joint, options: Options) -> Prologue | None:
    """What the forward graph computes of parameters alone, taken out of it; batch norms become part of that first."""
    device = _target(parts.forward, options)
    with stage("freeze"):
        mark(parts.forward.graph, parts.metadata, joint.attributes)
        passes.run(parts.forward)
        fold = FoldAffine(options.numerics == "fast"), JoinAffine(), FoldPadding(), MultiplyPixels(), ConvolveAsImages()
        packing = PackConvolutions(device, _LOOPS), JoinProducts(device), PackWeights(device, _LOOPS)
        passes.run(parts.forward, (*fold, WidenProducts(device, _LOOPS), MergeEqual(), *packing))
        return split(parts.forward)


@tables.session()
def why(gm: fx.GraphModule, example_inputs: Sequence[Any], options: Options, one: str, other: str) -> str:
    """Why two steps of what a graph compiles to are not one kernel; they are scheduled anew to tell it."""
    _, parts, prologue = cut(gm, example_inputs, options)
    forward, backward = schedule_halves(parts, options, lambda schedule: None)
    halves = {"forward": (parts.forward.graph, forward)}
    if parts.backward is not None and backward is not None:
        halves["backward"] = parts.backward.graph, backward
    if prologue is not None and prologue.graph is not None:
        halves["prologue"] = prologue.graph.graph, schedule_graph(prologue.graph, "prologue", options)
    return separation.tell(halves, one, other)


def compile_alone(gm: fx.GraphModule | None, name: str, building: Building, options: Options) -> GraphArtifact | None:
    """A graph that shares its memory with no other to what is stored; none where there is none."""
    if gm is None:
        return None
    schedule = schedule_graph(gm, name, options)
    return emit_artifact(schedule, begin_kernels(schedule, building, options), options)


def schedule_graph(gm: fx.GraphModule, name: str, options: Options) -> Schedule:
    """A graph of functional ATen overloads to fused kernels: passes, lowering, scheduling."""
    program, device = lower_graph(gm, name, options)
    with stage("schedule", graph=name):
        return schedule(program, device, options.rounds)


def lower_graph(gm: fx.GraphModule, name: str, options: Options) -> Lowered:
    """A graph of functional ATen overloads to loops."""
    device, rounds = _target(gm, options), options.rounds
    with stage("passes", graph=name):
        first = MultiplyPixels(), WidenProducts(device, _LOOPS)
        passes.run(gm, (*first, *passes.PIPELINE, JoinTerms(device)))
        if options.verify:
            prims.verify(gm.graph)
    if options.autotune:
        with stage("autotune", graph=name):
            tuned = tuning.tune(gm.graph, device, options)
        artifacts.stage(f"{name}_products", lambda: "".join([f"{item}\n" for item in tuned]), "txt")
    artifacts.stage(name, lambda: graph_file.functional(gm.graph, name), "py")
    with stage("lower", graph=name):
        program = lowering.lower(gm, name, device, rounds)
        if options.verify:
            verify.verify_program(program)
    artifacts.stage(f"{name}_loops", lambda: text.program_text(program), "txt")
    return Lowered(program, device)


def begin_kernels(schedule: Schedule, building: Building, options: Options) -> tuple[Unit, ...]:
    """The kernels of a schedule on their way to the store."""
    return building.begin(emit_kernels(schedule, options), schedule.place, sources.kernel_remarks(schedule))


def emit_kernels(schedule: Schedule, options: Options) -> list[Unit]:
    """The kernels of a schedule to code, which what the memory plan becomes later does not change."""
    if options.verify:
        with stage("schedule", graph=schedule.name):
            verify.verify_schedule(schedule)
    try:
        with stage("codegen", graph=schedule.name):
            kernels, names = schedule.kernels, schedule.names
            emit = targets.printer(schedule.device).emit
            return emit(kernels, names, _record(schedule, options), options) if kernels else []
    except StatorError:  # else it is written once its memory is planned
        artifacts.stage(f"{schedule.name}_fused", lambda: text.schedule_text(schedule), "txt")
        raise


def emit_artifact(schedule: Schedule, units: tuple[Unit, ...], options: Options) -> GraphArtifact:
    """A schedule and the units of its kernels to what is stored."""
    name = schedule.name
    if options.verify:
        with stage("schedule", graph=name):
            verify.verify_schedule(schedule)
    artifacts.stage(f"{name}_fused", lambda: _fused_text(schedule, options), "txt")
    with stage("plan", graph=name):
        planned = make(schedule)
        if options.verify:
            plan.verify(planned)
    for unit in units:
        printer = targets.printer(schedule.device)
        told = partial(sources.unit_text, unit.source, unit.kernels, schedule, printer.COMMENT)
        artifacts.stage(f"{name}_kernels", told, printer.SUFFIX)
    artifacts.stage(f"{name}_wrapper", lambda: plan.module_text(planned, units, sources.launch_remarks(schedule)), "py")
    return GraphArtifact(planned, units)


@contextmanager
def stage(name: str, **facts: Any) -> Iterator[None]:
    """One stage: timed, and named in what it raises."""
    with log.span(name, **facts):
        try:
            yield
        except StatorError:
            raise
        except Exception as error:
            raise InternalError(name, f"{type(error).__name__}: {error}") from error


def _target(gm: fx.GraphModule, options: Options) -> Device:
    """The record of the device of a graph, by which it is decided what its kernels compute."""
    device = targets.record(kind := _device(gm)).read(kind, options.threads)
    if options.cpu_kernels == "c":  # without vectors only few multiplications are worth a loop
        device = replace(device, product_blocks=False)
    return device


def _record(schedule: Schedule, options: Options) -> Device:
    return targets.record(schedule.place).read(schedule.place, options.threads)


def _fused_text(schedule: Schedule, options: Options) -> str:
    """The schedule, of each kernel why it is as it is and how it runs, and what is in memory where that is most."""
    device, printer = _record(schedule, options), targets.printer(schedule.device)
    told = text.schedule_text(schedule, [printer.reason(kernel, device, options) for kernel in schedule.kernels])
    apart = schedule.apart.lines() if schedule.apart is not None else ()
    return "\n".join([told, *apart, *alive.lines(schedule)]).rstrip() + "\n"


def _kept(metadata: Metadata) -> list[Kept]:
    """Which inputs of the backward graph are results of the forward graph."""
    start = {"value": 0, "extra": len(metadata.values)}
    places = [(i, saved) for i, saved in enumerate(metadata.saved) if saved.source in start]
    return [Kept(i, start[saved.source] + saved.index) for i, saved in places]


def _places(inputs: Sequence[Any]) -> list[str]:
    """The devices of tensors for which there are targets."""
    found = dict.fromkeys([str(value.device) for value in inputs if isinstance(value, torch.Tensor)])
    return [device for device in found if targets.has(kind_of(device))]


def _device(gm: fx.GraphModule) -> str:
    """The device of a graph: its accelerator if it reads or makes anything there, else the host."""
    nodes = [node for node in gm.graph.nodes if node.users or node.op not in ("placeholder", "get_attr")]
    values = [node.meta.get("val") for node in nodes]
    devices = dict.fromkeys([value.device for value in values if isinstance(value, torch.Tensor)])
    return next((str(device) for device in devices if device.type != HOST), HOST)
