"""The whole pipeline on one screen: a captured graph to a callable. No other file knows every layer.

`compile_graph` is the backend "inductor". What it makes is data (`Compiled`): metadata and two graph artifacts, filed
in the store under the graph's fingerprint; linking binds them to this process. A second process that captures the same
graph finds them and skips tracing, lowering and compiling.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from stator import aot, lowering, passes, runtime
from stator.aot import runtime as autograd
from stator.base import artifacts, log
from stator.base.errors import StatorError, Unsupported
from stator.base.options import Options
from stator.base.store import Store
from stator.codegen import cpp, triton, wrapper
from stator.compiled import Compiled
from stator.fingerprint import graph_key
from stator.loop import text
from stator.loop.device import Device
from stator.loop.kernel import Schedule
from stator.loop.schedule import schedule as schedule_program
from stator.prims import DECOMPOSITIONS, RANDOM_OPERATORS
from stator.runtime import GraphArtifact, Unit
from stator.runtime.toolchain import open_store

Call = Callable[..., Any]


def compile_graph(gm: fx.GraphModule, example_inputs: Sequence[Any], *, options: Options) -> Call:
    """A captured graph of torch calls to a callable of the same inputs that gives the same results."""
    with artifacts.writing(options.debug, "graph"), log.span("compile"):
        artifacts.stage("captured", lambda: gm.print_readable(print_output=False), "py")
        store = open_store(options)
        key = _key(gm, example_inputs, options)
        found = _load(store, key)
        if found is None:
            found = build(gm, example_inputs, options)
            if key:
                store.put(key, found.to_bytes())
        forward = runtime.link(found.forward, options)
        backward = runtime.link(found.backward, options) if found.backward is not None else None
        attributes = [*aot.lifted(gm).values(), *found.constants]
        return autograd.bind(found.metadata, forward, backward, attributes)


def build(gm: fx.GraphModule, example_inputs: Sequence[Any], options: Options) -> Compiled:
    """Trace, partition and compile both halves."""
    with log.span("trace"):
        joint = aot.trace(
            gm,
            example_inputs,
            decompositions=DECOMPOSITIONS,
            random_operators={} if options.eager_random else RANDOM_OPERATORS,
        )
    artifacts.stage("joint", lambda: str(joint.graph), "txt")
    with log.span("partition"):
        parts = aot.partition(joint, options.activation_memory_budget)
    forward = compile_functional(parts.forward, "forward", options)
    backward = compile_functional(parts.backward, "backward", options) if parts.backward is not None else None
    constants = joint.attributes[len(aot.lifted(gm)) :]
    return Compiled(parts.metadata, forward, backward, tuple(constants))


def compile_functional(gm: fx.GraphModule, name: str, options: Options) -> GraphArtifact:
    """A graph of functional ATen overloads to an artifact: passes, lowering, scheduling, code, build."""
    device = _device(gm)
    with log.span("passes", graph=name):
        passes.run(gm)
    artifacts.stage(name, lambda: gm.print_readable(print_output=False), "py")
    with log.span("lower", graph=name):
        program = lowering.lower(gm, name, device)
    artifacts.stage(f"{name}_loops", lambda: text.program_text(program), "txt")
    with log.span("schedule", graph=name):
        schedule = schedule_program(program, Device.of(device.type, options.threads or torch.get_num_threads()))
    artifacts.stage(f"{name}_fused", lambda: text.schedule_text(schedule), "txt")
    with log.span("codegen", graph=name):
        units = _units(schedule, device)
        module = wrapper.emit(schedule)
    for unit in units:
        artifacts.stage(f"{name}_kernels", unit.source, unit.language)
    artifacts.stage(f"{name}_wrapper", lambda: wrapper.emit(schedule, units), "py")
    log.record(log.KERNELS, names=[f"k{i}" for i in range(len(schedule.kernels))], count=len(schedule.kernels))
    return runtime.build(name, module, units, options)


def _units(schedule: Schedule, device: torch.device) -> list[Unit]:
    """The kernels of a schedule as source text for its device."""
    if not schedule.kernels:
        return []
    names = tuple(f"k{i}" for i in range(len(schedule.kernels)))
    if device.type == "cpu":
        target = cpp.native()
        return [Unit(cpp.emit(schedule.kernels, target), names, target.flags)]
    return [Unit(triton.emit(schedule.kernels), names, (), "triton")]


def _device(gm: fx.GraphModule) -> torch.device:
    """The device of a graph: its accelerator if it touches one, else the CPU."""
    for node in gm.graph.nodes:
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor) and value.device.type != "cpu":
            return value.device
    return torch.device("cpu")


def _key(gm: fx.GraphModule, example_inputs: Sequence[Any], options: Options) -> str:
    """The graph's key in the store, or "" where it has no stable text."""
    if not options.cache:
        return ""
    try:
        return "graph-" + graph_key(gm, example_inputs, options)
    except Unsupported as refusal:
        log.record(log.CACHE, hit=False, key="", why=str(refusal))
        return ""


def _load(store: Store, key: str) -> Compiled | None:
    """What the store has under a key; an entry of another format counts as none."""
    data = store.get(key) if key else None
    log.record(log.CACHE, hit=data is not None, key=key)
    return Compiled.from_bytes(data) if data is not None else None
