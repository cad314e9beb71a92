"""From one call of a function to an entry: guards, code, graphs.

    bind arguments → run the machine → emit effects and result → close the graph → call the backend → assemble

`convert` is the front door of capture. Whatever cannot be captured gives an entry that runs the original function
under the guards met so far, with one warning for each line, or `CaptureError` where the whole was asked for. A program
that raises runs as it is as well, so that the exception is its own.
Invariant: conversion changes nothing outside; the program's effects happen when the entry's code runs.
Neighbours: `machine.py`, `rewrite.py`, `graph.py`, `entry.py` (keeps entries and chooses among them).
"""

from __future__ import annotations

import contextlib
import functools
import gc
import inspect
import os
import re
import types
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch

from stator.base import log
from stator.base.errors import (
    CaptureError,
    DataDependent,
    FallbackWarning,
    GraphBreak,
    Location,
    StatorError,
    Unsupported,
)
from stator.capture import opcodes as _opcodes
from stator.capture.aliasing import guard_aliasing
from stator.capture.arguments import bind, binding_error
from stator.capture.effects import DELETED, Effects
from stator.capture.graph import GraphBuilder
from stator.capture.guards import Guard, GuardSet, state_guards
from stator.capture.machine import HandledError, Machine, RefusedOpcode, Session
from stator.capture.rewrite import Assembler
from stator.capture.source import ClosureSource, LocalSource, Source
from stator.capture.value import Raised, Value
from stator.capture.values import build, operators
from stator.fake.mode import without_saved_tensor_hooks

assert _opcodes.__all__  # importing the opcodes is what fills the machine's table

Backend = Callable[[torch.fx.GraphModule, list[torch.Tensor]], Callable[..., Sequence[Any]]]

#: Lines in these files are not the user's.
LIBRARY = (os.path.dirname(torch.__file__) + os.sep, contextlib.__file__, functools.__file__)

#: Lines that have been warned about.
_warned: set[tuple[str, int]] = set()


class GraphInfo(NamedTuple):
    """What is known about one captured graph."""

    module: torch.fx.GraphModule
    #: How each placeholder is reached from the frame.
    inputs: tuple[Source, ...]
    #: How many nodes compute something.
    calls: int
    #: What the backend made of it.
    compiled: Callable[..., Sequence[Any]]


class Break(NamedTuple):
    """Why a frame was not captured."""

    reason: str
    location: Location | None
    hint: str


class Entry(NamedTuple):
    """One compiled version of a function."""

    guards: GuardSet
    #: Stands in for the function's own code while the guards hold; the function's own code when nothing was captured.
    code: types.CodeType
    graphs: list[GraphInfo]
    breaks: list[Break]
    #: The exception that the program raises in this call, as text: the original runs, and raises it by itself.
    raises: str = ""
    #: Whether the original may handle it instead.
    handles: bool = False


class Escaped(GraphBreak):
    """The program raises an exception that nothing in the frame handles."""


class OpenContext(GraphBreak):
    """The frame ends inside a context that it entered."""


class RootFunction:
    """The outermost function as the machine sees it: its cells are reached by name."""

    def __init__(self, function: types.FunctionType) -> None:
        self.function = function
        self.code = function.__code__
        self.globals = function.__globals__
        self.qualname = function.__qualname__

    def default(self, tx: Machine, position: int) -> Value | None:
        return None

    def keyword_default(self, tx: Machine, name: str) -> Value | None:
        return None

    def closure_cell(self, tx: Machine, index: int) -> Value:
        closure = self.function.__closure__
        assert closure is not None
        cell = closure[index]
        found = tx.values.get(id(cell))
        if found is None:
            source = ClosureSource(self.code.co_freevars[index])
            found = tx.values[id(cell)] = build.make_cell(None, cell, source)
        return found


def convert(
    fn: types.FunctionType,
    args: Sequence[Any],
    kwargs: dict[str, Any],
    backend: Backend,
    options: Any = None,
    *,
    fullgraph: bool = False,
) -> Entry:
    """Captures the call `fn(*args, **kwargs)`; `backend` compiles the graph."""
    arguments = bind_call(fn, args, kwargs)
    guards = GuardSet(state_guards())
    stop: Break | None = None
    with log.span("capture", function=fn.__qualname__), collector_paused(), without_saved_tensor_hooks():
        try:
            machine = start(fn, arguments, guards, options)
            assembler = execute(machine)
            guard_aliasing(machine, guards)
        except Escaped as error:
            return Entry(guards, fn.__code__, [], [describe(error)], error.reason)
        except HandledError as error:
            return Entry(guards, fn.__code__, [], [describe(error)], error.reason, handles=True)
        except (GraphBreak, DataDependent, Unsupported, RecursionError) as error:
            stop = describe(error)
    if stop is not None:
        return fall_back(fn, guards, stop, fullgraph)
    if machine.graph.calls == 0:
        return Entry(guards, fn.__code__, [], [])
    return finish(fn, machine, assembler, guards, backend)


@contextlib.contextmanager
def collector_paused() -> Iterator[None]:
    """Keeps the garbage collector from walking the many objects of a capture, which nearly all stay alive."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def bind_call(fn: types.FunctionType, args: Sequence[Any], kwargs: dict[str, Any]) -> list[Any]:
    """The function's parameters in slot order; raises the TypeError of a call that does not fit."""
    code = fn.__code__
    defaults = fn.__defaults__ or ()
    keyword_defaults = fn.__kwdefaults__ or {}
    first = code.co_argcount - len(defaults)
    # Boxed, so that None is a value and not a hole.
    bound = bind(
        code,
        [(arg,) for arg in args],
        {name: (arg,) for name, arg in kwargs.items()},
        lambda position: (defaults[position - first],) if position >= first else None,
        lambda name: (keyword_defaults[name],) if name in keyword_defaults else None,
        lambda rest: (tuple(item for (item,) in rest),),
        lambda rest: ({name: item for name, (item,) in rest.items()},),
    )
    if bound is None:
        raise binding_error(code, fn.__qualname__, len(args), list(kwargs), len(defaults), list(keyword_defaults))
    return [item for (item,) in bound]


def start(fn: types.FunctionType, arguments: list[Any], guards: GuardSet, options: Any) -> Machine:
    """The machine for the outermost frame; its arguments become values when they are first read."""
    code = fn.__code__
    if code.co_flags & (inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR):
        raise RefusedOpcode("a generator or async function is not captured", "compile the functions that it calls")
    session = Session(
        graph=GraphBuilder(),
        effects=Effects(),
        guard=lambda kind, source, payload: guards.add(Guard(kind, source, payload)),
        build=build,
        operators=operators,
        deleted=DELETED,
        root_globals=fn.__globals__,
        options=options,
        library=LIBRARY,
    )
    machine = Machine(session, code, RootFunction(fn), [], None)
    for slot, argument in enumerate(arguments):
        machine.pending[slot] = argument, LocalSource(code.co_varnames[slot])
    return machine


def execute(machine: Machine) -> Assembler:
    """Runs the frame and emits what follows the graph call."""
    try:
        result = machine.run()
    except Raised as raised:
        text = describe_exception(raised.value)
        stop = Escaped(f"the program raises {text}", "call the function uncompiled to see the exception itself")
        stop.location = machine.location()
        raise stop from raised
    leave_modes(machine)
    assembler = Assembler(machine.code, machine.globals)
    assembler.finish(result, machine.effects)
    return assembler


def leave_modes(machine: Machine) -> None:
    """A grad mode that the frame leaves changed is an effect of it; it was not switched while capturing."""
    graph = machine.graph
    if graph.autocasts:
        raise OpenContext("the function returns inside an autocast context that it entered", "use a with statement")
    if graph.grad_enabled is not torch.is_grad_enabled():
        machine.effects.call(torch._C._set_grad_enabled, build.const(graph.grad_enabled))


def describe_exception(value: Value) -> str:
    """An exception value as the program would write it, arguments where they are known."""
    args: Sequence[Value] = getattr(value, "args", ())
    texts = [repr(arg.constant()) if arg.is_constant() else "…" for arg in args]
    return f"{value.python_type().__name__}({', '.join(texts)})"


def finish(fn: types.FunctionType, machine: Machine, assembler: Assembler, guards: GuardSet, backend: Backend) -> Entry:
    """Closes the graph, has it compiled and makes the entry."""
    graph = machine.graph
    calls = graph.calls
    drop_unused_inputs(graph, assembler.outputs)
    module = graph.module(assembler.outputs, identifier(fn.__qualname__))
    inputs = tuple(entry.source for entry in graph.inputs)
    if log.wanted(log.GRAPH):
        log.record(log.GRAPH, name=fn.__qualname__, ops=calls, operators=count_operators(graph.graph))
    with log.span("backend", function=fn.__qualname__):
        compiled = backend(module, graph.examples)
    again = not any(leaf.changed for leaf in graph.leaves())
    code = assembler.assemble(compiled, inputs, again)
    return Entry(guards, code, [GraphInfo(module, inputs, calls, compiled)], [])


def identifier(qualname: str) -> str:
    """A function's name as one that a class or a folder can have."""
    return re.sub(r"\W+", "_", qualname.replace("<locals>", "")).strip("_") or "graph"


def count_operators(graph: torch.fx.Graph) -> dict[str, int]:
    """How often the graph calls what."""
    calls = (node for node in graph.nodes if node.op in ("call_function", "call_method"))
    names = [f".{n.target}" if n.op == "call_method" else getattr(n.target, "__name__", str(n.target)) for n in calls]
    return dict(Counter(names))


def drop_unused_inputs(graph: GraphBuilder, outputs: Sequence[Any]) -> None:
    """Inputs of which only facts were used need not be passed."""
    needed = set(outputs)
    for entry in graph.inputs:
        if not entry.node.users and entry.node not in needed:
            graph.graph.erase_node(entry.node)
            graph.inputs = [other for other in graph.inputs if other is not entry]


def describe(stop: Exception) -> Break:
    """What is told to the user about a refusal."""
    location = getattr(stop, "location", None)
    place = None if location is None else Location(*location)
    match stop:
        case GraphBreak():
            return Break(stop.reason, place, stop.hint)
        case StatorError():
            return Break(stop.message, place, stop.hint)
    return Break("calls are nested too deeply to be captured", place, "is the function recursive?")


def fall_back(fn: types.FunctionType, guards: GuardSet, stop: Break, fullgraph: bool) -> Entry:
    """The entry of a frame that is not captured."""
    place = stop.location or Location(fn.__code__.co_filename, fn.__code__.co_firstlineno)
    if fullgraph:
        raise CaptureError(stop.reason, place, stop.hint)
    log.record(log.BREAK, reason=stop.reason, file=place.file, line=place.line, hint=stop.hint)
    if place not in _warned:
        _warned.add(place)
        hint = f"\n  hint: {stop.hint}" if stop.hint else ""
        text = f"{fn.__qualname__} runs in eager PyTorch: {stop.reason}\n  at {place}{hint}"
        warnings.warn_explicit(FallbackWarning(text), None, place.file, place.line)
    return Entry(guards, fn.__code__, [], [stop])


def forget_warnings() -> None:
    """Warn again about lines that have been warned about."""
    _warned.clear()
