"""A captured graph to a callable: found in the store, or made by the pipeline and filed there.

`compile_graph` is the backend "inductor". What is filed is data (`Compiled`) under the graph's fingerprint; linking
binds it to this process. A second process that captures the same graph skips tracing, lowering and compiling, and does
not even import them: `pipeline.py`, which shows every stage on one screen, is loaded at the first miss.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict
from importlib import import_module
from typing import Any

from torch import fx

from stator import speed
from stator.aot.attributes import lifted
from stator.aot.frozen import freeze
from stator.aot.runtime import bind
from stator.aot.symbols import adopt
from stator.base import artifacts, log
from stator.base.errors import CompilerMissing, InternalError, StatorError, StatorWarning, Unsupported, WithoutEffect
from stator.base.options import Options
from stator.base.store import Store
from stator.compiled import Compiled
from stator.fingerprint import graph_key
from stator.inspect import graph_file
from stator.inspect.question import Question
from stator.patterns import biased, masks
from stator.patterns.rewrite import rewrite
from stator.recording import Overlays, lender_of, record_plan
from stator.runtime import link
from stator.runtime.toolchain import open_store

Call = Callable[..., Any]
#: How many artifacts of one graph are kept, for sizes under different conditions.
_VARIANTS = 8
_TRAINING = "option 'freezing' has no effect where gradients are wanted: call the function under torch.no_grad()"


def compile_graph(gm: fx.GraphModule, example_inputs: Sequence[Any], *, options: Options) -> Call:
    """A captured graph of torch calls to a callable of the same inputs that gives the same results."""
    name = type(gm).__name__
    with artifacts.writing(options.debug, name), log.span("compile", graph=name):
        artifacts.stage("captured", lambda: graph_file.captured(gm, example_inputs), "py")
        try:
            start = time.perf_counter()
            with log.span("patterns"):
                rewritten = biased.choose(masks.simplify(rewrite(gm)), options.cudagraphs)
            if rewritten is not gm:
                artifacts.stage("rewritten", lambda: graph_file.captured(rewritten, example_inputs), "py")
            if log.wanted(log.FUSION):
                log.record(log.FUSION, graph=name, question=Question(rewritten, example_inputs, options))
            found, place, hit = _compiled(rewritten, example_inputs, options)
            call = _linked(gm, found, options)
        except (CompilerMissing, StatorWarning):
            raise
        except Exception as error:
            raise _failure(error, gm, example_inputs, options) from error
        if options.check_speed == "off":
            return call
        seconds = 0.0 if hit else time.perf_counter() - start
        known = speed.Known(open_store(options), place)
        with log.span("check_speed", graph=name):
            return speed.checked(gm, example_inputs, found, call, options, known, seconds)


def _compiled(gm: fx.GraphModule, example_inputs: Sequence[Any], options: Options) -> tuple[Compiled, str, bool]:
    """What the graph compiles to, its place in the store, and whether it was there.

    Whoever asks for the artifacts of every stage gets every stage run.
    """
    store = open_store(options)
    key = _key(gm, example_inputs, options)
    found, place = _stored(store, key, gm) if key and not options.debug else (None, key)
    log.record(log.CACHE, what="graph", hit=found is not None, key=key)
    if found is not None:
        return found, place, True
    made: Compiled = import_module("stator.pipeline").build(gm, example_inputs, options)
    if key:
        store.put(place, made.to_bytes())
    return made, place, False


def _stored(store: Store, key: str, gm: fx.GraphModule) -> tuple[Compiled | None, str]:
    """What the store has for the graph, and where its artifact belongs.

    With symbolic sizes there may be several: compiled where other conditions on the sizes hold.
    """
    place = key
    for variant in range(_VARIANTS):
        place = f"{key}-{variant}" if variant else key
        data = store.get(place)
        found = Compiled.from_bytes(data) if data is not None else None
        if found is None or adopt(gm, found.metadata):
            return found, place
    return None, place


def _linked(gm: fx.GraphModule, found: Compiled, options: Options) -> Call:
    """The callable, bound to this process's tensors and libraries."""
    graphs = [graph for graph in (found.forward, found.backward, found.prologue) if graph is not None]
    for graph in graphs:
        plan = graph.plan
        log.record(log.KERNELS, graph=plan.name, names=list(plan.launches), externs=list(plan.externs))
        log.count(kernels=len(plan.kernels), externs=len(plan.externs))
    log.count(graphs=1)
    log.record(log.MEMORY, **asdict(found.metadata.memory))
    attributes = [*lifted(gm).values(), *found.constants]
    forward, backward = _graphs(found, options)
    if found.metadata.frozen.inputs:
        prologue = link(found.prologue, options) if found.prologue is not None else None
        forward = freeze(forward, prologue, found.metadata.frozen, attributes, type(gm).__name__)
    elif options.freezing and found.metadata.has_backward:
        options.announce(WithoutEffect(_TRAINING))
    lender = None
    if options.cudagraphs and found.backward is not None and backward is not None:
        lender = lender_of(found.backward, len(found.metadata.saved), backward)
    return bind(found.metadata, forward, backward, attributes, gm, lender)


def _graphs(found: Compiled, options: Options) -> tuple[Any, Any]:
    """What runs the forward graph and the backward graph, if there is one; recorded where that is asked for."""
    if not options.cudagraphs:
        return link(found.forward, options), link(found.backward, options) if found.backward is not None else None
    if found.backward is None:
        return record_plan(found.forward, options), None
    pair, saved = Overlays(), found.metadata.saved
    made = [number for number, tensor in enumerate(saved) if tensor.source != "input"]
    return record_plan(found.forward, options, pair), record_plan(found.backward, options, pair, made)


def _key(gm: fx.GraphModule, example_inputs: Sequence[Any], options: Options) -> str:
    """The graph's key in the store, or "" where it has no stable text."""
    if not options.cache:
        return ""
    try:
        return "graph-" + graph_key(gm, example_inputs, options)
    except Unsupported as refusal:
        log.record(log.NOTE, text=f"this graph is not kept between processes: {refusal.message}")
        return ""


def _failure(error: Exception, gm: fx.GraphModule, example_inputs: Sequence[Any], options: Options) -> StatorError:
    """The error with a folder that holds what it takes to see it again."""
    if isinstance(error, StatorError) and not isinstance(error, InternalError):
        return error
    stage = error.stage if isinstance(error, InternalError) else "link"
    why = error.facts["why"] if isinstance(error, InternalError) else f"{type(error).__name__}: {error}"
    folder = artifacts.for_failure(options, type(gm).__name__)
    if not options.debug:
        folder.write("captured", graph_file.captured(gm, example_inputs), "py")
    folder.write("failure", "".join(traceback.format_exception(error)), "txt")
    return InternalError(stage, why, str(folder.path))
