"""From one call of a function to an entry: guards, code, graphs.

    bind arguments → run the machine → emit effects and result → close the graph → call the backend → assemble

`convert` is the front door of capture. A refusal ends the graph at the instruction that it is traced to: the frame runs
again up to just before it, and the new code does that instruction for real and goes on at a point behind it. Where
nothing can be captured the entry runs the original under the guards met so far. With fullgraph, a refusal is a
`CaptureError`. A program that raises runs as it is, so that the exception is its own.
Invariant: conversion changes nothing outside; the program's effects happen when the entry's code runs.
Neighbours: `root.py` (the frame that is run), `breaks.py`, `resume.py`, `rewrite.py`, `entry.py` (keeps the entries).
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import re
import types
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from stator import _native
from stator.base import collector, log
from stator.base.errors import (
    BuildError,
    CaptureError,
    DataDependent,
    FallbackWarning,
    GraphBreak,
    InternalError,
    Location,
    StatorError,
    Undecided,
    Unsupported,
)
from stator.base.options import Options
from stator.capture import opcodes as _opcodes
from stator.capture.aliasing import guard_aliasing
from stator.capture.arguments import bind, binding_error, parameters
from stator.capture.breaks import Exit
from stator.capture.default_device import called_without_default_device, default_device, without_default_device
from stator.capture.dynamic import History, NotForAllSizes, Sizes
from stator.capture.effects import DELETED, Effects
from stator.capture.graph import GraphBuilder
from stator.capture.guards import Guard, GuardSet, state_guards
from stator.capture.machine import HandledError, Machine, RefusedOpcode, Session, TooLong
from stator.capture.output_state import OutputRefused, changes, refuse_leaked
from stator.capture.recovery import Recovery, calls_of, refused_by, tell_fault
from stator.capture.replaced import refuse_replaced
from stator.capture.resume import ResumePoint, ResumePoints
from stator.capture.rewrite import Assembler
from stator.capture.root import RootMachine, Stopped
from stator.capture.source import Source, scope_of
from stator.capture.value import Raised, Value
from stator.capture.values import build
from stator.capture.values.torch.graph_context import leave_open
from stator.fake.mode import without_saved_tensor_hooks
from stator.graphs.direct import calls_directly
from stator.sizes.environment import nowhere

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
    #: At which instruction of the function that leaves it, whether a graph may end there the next time, and whether
    #: eager raises just this: of an error on fakes that is not known.
    at: int = -1
    resumes: bool = False
    certain: bool = True
    #: What a graph of what precedes it may raise, if some frame of the program may handle that.
    avoided: Exception | None = None
    #: Whether the original may handle it instead.
    handles: bool = False
    #: What the code calls when its graph raises.
    recovery: Recovery | None = None
    #: Does what the code does, without a frame.
    straight: _native.Straight | None = None
    #: Whether all that it does is to run one graph in eager, as the function itself would.
    eager: bool = False


class Escaped(GraphBreak):
    """The program raises an exception that nothing in the frame handles."""

    hints = (
        "the operation may need a shape function: torch.library.register_fake",
        "call the function uncompiled to see the exception itself",
    )

    def __init__(self, exception: str, at: int, certain: bool) -> None:
        what = "the program raises" if certain else "on tensors without data, as capture runs it, the program raises"
        super().__init__(f"{what} {exception}", self.hints[certain])
        self.at = at
        self.certain = certain


class OpenContext(GraphBreak):
    """The frame ends inside a context that it entered."""


#: What ends a graph.
REFUSALS = (GraphBreak, DataDependent, Unsupported, RecursionError)

#: Refusals after which the frame is not resumed.
UNRESUMABLE = (TooLong,)

#: Functions that look at the variables of the frame that calls them, as globals and as attributes.
FRAME_READERS = {
    "LOAD_GLOBAL": frozenset({"locals", "vars", "dir", "eval", "exec"}),
    "LOAD_ATTR": frozenset({"_getframe", "currentframe"}),
}


class Attempt(NamedTuple):
    """One run of the root frame: to its end, or to just before an instruction."""

    machine: RootMachine
    guards: GuardSet
    assembler: Assembler


def convert(
    fn: types.FunctionType,
    args: Sequence[Any],
    kwargs: dict[str, Any],
    backend: Backend,
    options: Options | None = None,
    *,
    fullgraph: bool = False,
    point: ResumePoint | None = None,
    points: ResumePoints | None = None,
    history: History | None = None,
) -> Entry:
    """Captures the call `fn(*args, **kwargs)`; `backend` compiles the graph.

    With `point`, `fn` is what continues from there, uncaptured. Without `points`, the original runs after a break.
    """
    conversion = Conversion(fn, bind_call(fn, args, kwargs), backend, options, fullgraph, point, points, history)
    conversion.review()
    with collector.paused(), without_saved_tensor_hooks(), without_default_device():
        try:
            entry = conversion.entry()
        except NotForAllSizes as refusal:
            entry = conversion.entry_with_numbers(refusal)
        finally:
            conversion.release()
            conversion.arguments.clear()
    for report in conversion.reports:
        conversion.report(*report)
    return entry


class Conversion:
    """The capture of one call."""

    def __init__(
        self,
        fn: types.FunctionType,
        arguments: list[Any],
        backend: Backend,
        options: Options | None,
        fullgraph: bool,
        point: ResumePoint | None,
        points: ResumePoints | None,
        history: History | None = None,
    ) -> None:
        self.fn = fn
        self.arguments = arguments
        self.backend = backend
        self.options = options or Options()
        self.fullgraph = fullgraph
        self.point = point
        self.points = points
        self.history = history or History("never")
        #: Whether all sizes are numbers.
        self.static = False
        #: Whether numbers that tensors are made of are fixed.
        self.known_literals = False
        self.breaks: list[Break] = []
        #: What is told about them once the entry exists: the break, whether it resumes, whether to be silent.
        self.reports: list[tuple[Break, bool, bool]] = []
        self.guards = GuardSet()
        self.machine: RootMachine | None = None
        #: Before which step the graph has to end, where the last attempt to end it has said so.
        self.earlier: int | None = None

    def review(self) -> None:
        """Tells the history what this call has at the places that earlier ones have met."""
        named = dict(zip(parameters(self.fn.__code__), self.arguments, strict=True))
        self.history.review(scope_of(self.fn, named))

    def entry(self) -> Entry:
        """The entry for the call."""
        fn = self.fn
        try:
            attempt = self.whole()
        except Escaped as error:
            expected = error.at in self.history.raised
            before = self.break_off(error, self.steps() - 1) if expected and self.resumes_before(error) else None
            if before is None:
                resumes = not self.breaks and self.resumes_before(error)
                stops = self.breaks or [describe(error)]
                found = error.reason, error.at, resumes, error.certain, self.avoided()
                return Entry(self.guards, fn.__code__, [], stops, *found)
            attempt = before
        except REFUSALS as error:
            if self.fullgraph and isinstance(error, HandledError):
                return Entry(self.guards, fn.__code__, [], [describe(error)], error.reason, handles=True)
            before = self.break_off(error, self.steps() - 1)
            if before is None:
                return Entry(self.guards, fn.__code__, [], self.breaks)
            attempt = before
        return self.finish(attempt)

    def avoided(self) -> Exception | None:
        """What may keep the program from raising what capture has found: fakes refuse no data, and not all sizes."""
        machine = self.machine
        return refused_by(machine.graph.graph) if machine is not None and machine.session.handles else None

    def whole(self) -> Attempt:
        """The frame from start to end; if it asks for the data of tensors made of numbers, with these numbers fixed."""
        try:
            return self.attempt(None)
        except REFUSALS:
            if self.machine is None or not self.machine.graph.sizes.has_literals:
                raise
            reached = self.steps()
        try:
            self.known_literals = True
            return self.attempt(None)
        except REFUSALS:
            if self.steps() > reached:
                raise
        self.known_literals = False
        return self.attempt(None)

    def steps(self) -> int:
        """How many instructions of the frame have been started."""
        return 0 if self.machine is None else self.machine.steps

    def resumes_before(self, error: Escaped) -> bool:
        """Whether a graph is to end before the instruction that raises, which then raises in Python.

        From the second time on, and only for what the program itself raises, which may be its normal way to end: most
        errors of operations are mistakes that get fixed, and need no graph of what precedes them.
        """
        if self.points is None or self.fullgraph or self.machine is None:
            return False
        return self.history.raised.get(error.at, False) or (error.certain and self.machine.graph.computes)

    def entry_with_numbers(self, refusal: NotForAllSizes) -> Entry:
        """The entry with every size a number, after something has refused symbolic sizes."""
        log.record(log.RECOMPILE, reason=f"sizes of {self.fn.__qualname__} are not symbolic: {refusal.why}")
        self.static = True
        self.breaks = []
        self.reports = []
        entry = self.entry()
        if not entry.raises:
            refusal.sizes.refuse()
        return entry

    def attempt(self, stop_at: int | None) -> Attempt:
        """Runs the frame, up to an instruction if asked, and writes what follows the graph call."""
        self.release()
        with log.span("capture", function=self.fn.__qualname__):
            guards = self.guards = GuardSet(state_guards())
            sizes = Sizes(self.history, self.static, self.known_literals)
            try:
                self.machine = machine = self.start(guards, stop_at, sizes)
                assembler = self.execute(machine)
                guard_aliasing(machine, guards)
            except Undecided as error:
                raise sizes.refusal(error.message) from error
            finally:
                guards.update(sizes.guard_list())
                self.history.fixed = set(sizes.fixed_places())
                sizes.leave()
        return Attempt(machine, guards, assembler)

    def release(self) -> None:
        """Drops what the last attempt has met, which reference cycles would keep alive."""
        if self.machine is not None:
            graph, session = self.machine.graph, self.machine.session
            graph.sizes.graph, graph.sizes.locate = None, nowhere
            graph.kept.clear()
            session.asked.clear()
            session.questions.clear()
        self.machine = None

    def start(self, guards: GuardSet, stop_at: int | None, sizes: Sizes) -> RootMachine:
        """The machine for the outermost frame."""
        fn, point = self.fn, self.point
        refuse_replaced(guards)
        code = fn.__code__ if point is None else point.code
        if code.co_flags & (inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR):
            raise RefusedOpcode("a generator or async function is not captured", "compile the functions that it calls")
        session = Session(
            graph=GraphBuilder(sizes=sizes),
            effects=Effects(),
            guard=lambda kind, source, payload: guards.add(Guard(kind, source, payload)),
            build=build,
            operators=build.operators,
            deleted=DELETED,
            root_globals=fn.__globals__,
            options=self.options,
            library=LIBRARY,
        )
        sizes.locate = lambda: None if session.running is None else session.running.location()
        machine = RootMachine(session, fn, code, stop_at)
        if point is None:
            machine.start(self.arguments)
        else:
            machine.start_at(point, self.arguments)
        return machine

    def execute(self, machine: RootMachine) -> Assembler:
        """Runs the frame and emits what follows the graph call."""
        assembler = Assembler(self.fn.__code__, machine.globals)
        try:
            result = machine.run()
        except Stopped:
            assert self.points is not None
            leave_open(machine)
            leave_modes(machine)
            assembler.call_earlier(machine.graph.earlier)
            Exit(assembler, machine, self.points, self.fn).write()
            return assembler
        except Raised as raised:
            stop = Escaped(describe_exception(raised.value), machine.ip - 1, raised.certain)
            stop.location = machine.location()
            raise stop from raised
        leave_modes(machine)
        assembler.call_earlier(machine.graph.earlier)
        assembler.finish(result, machine.effects)
        return assembler

    # -- breaking --------------------------------------------------------------------------------------

    def break_off(self, error: Exception, step: int) -> Attempt | None:
        """Ends the graph before the instruction number `step` of the frame, or before an earlier one.

        None when the frame cannot be left in its middle; the whole then runs as it is.
        """
        stop = describe(error)
        if (earlier := getattr(error, "step", None)) is not None:
            step = min(step, earlier)
        if self.fullgraph:
            raise CaptureError(stop.reason, stop.location or self.first_line(), stop.hint)
        guards = self.guards
        attempt = None
        follows = self.machine is not None and self.machine.iterates_argument()
        resumable = not isinstance(error, UNRESUMABLE) and step >= 0 and not self.reads_its_frame()
        if self.points is not None and resumable:
            attempt = self.last_attempt(step)
        self.breaks.append(stop)
        expected = isinstance(error, HandledError) or (isinstance(error, Escaped) and not self.history.raised[error.at])
        self.reports.append((stop, attempt is not None, expected or follows))
        if attempt is None:
            self.guards = guards
        return attempt

    def reads_its_frame(self) -> bool:
        """Whether the program may look at its own frame, which only the original has."""
        if self.machine is None:
            return False
        return any(arg in FRAME_READERS.get(name, ()) for name, arg in self.machine.decoded.instructions)

    def last_attempt(self, step: int) -> Attempt | None:
        """The latest state up to `step` that real objects can be made of, with the code that continues from there."""
        best = self.try_attempt(step)
        while best is None and self.earlier is not None and self.earlier < step:
            step = self.earlier
            best = self.try_attempt(step)
        low, high = (-1, step) if best is None else (step, step)
        while high - low > 1:
            # What cannot be rebuilt stays so until `step`, so bisection finds the last good state.
            middle = (low + high) // 2
            attempt = self.try_attempt(middle)
            if attempt is None:
                high = middle
            else:
                low, best = middle, attempt
        return best

    def try_attempt(self, step: int) -> Attempt | None:
        """The attempt that ends there, or None where it cannot."""
        self.earlier = None
        try:
            return self.attempt(step)
        except REFUSALS as error:
            self.earlier = getattr(error, "step", None)
            return None

    def report(self, stop: Break, resumes: bool, silent: bool) -> None:
        """Tells the user about a break, once for each line.

        A program that raises needs no warning, nor a loop over an iterator that an earlier break has left.
        """
        place = stop.location or self.first_line()
        if silent:
            return
        log.record(log.BREAK, reason=stop.reason, file=place.file, line=place.line, hint=stop.hint, resumes=resumes)
        if place in _warned:
            return
        _warned.add(place)
        hint = f"\n  hint: {stop.hint}" if stop.hint else ""
        what = "breaks its graph" if resumes else "runs in eager PyTorch"
        text = f"{self.fn.__qualname__} {what}: {stop.reason}\n  at {place}{hint}"
        warnings.warn_explicit(FallbackWarning(text), None, place.file, place.line)

    def first_line(self) -> Location:
        """Where the function is."""
        return Location(self.fn.__code__.co_filename, self.fn.__code__.co_firstlineno)

    # -- the end ---------------------------------------------------------------------------------------

    def finish(self, attempt: Attempt) -> Entry:
        """Closes the graph, has it compiled and makes the entry."""
        machine, guards, assembler = attempt
        graph, fn = machine.graph, self.fn
        calls = graph.calls
        grad_flags = graph.flagged()
        if not graph.computes:
            code = assembler.assemble(None, (), grad_flags) if self.breaks else fn.__code__
            return Entry(guards, code, [], self.breaks)
        try:
            refuse_leaked(graph, assembler.outputs)
            changed = assembler.changes = changes(graph, assembler.outputs)
        except OutputRefused as error:
            return self.finish_before(error, error.step)
        outputs = [changed[node].node if node in changed else node for node in assembler.outputs]
        graph.drop_unused_inputs(outputs)
        module = graph.module(outputs, identifier(fn.__qualname__))
        inputs = tuple(entry.source for entry in graph.inputs)
        if log.wanted(log.GRAPH):
            log.record(log.GRAPH, name=fn.__qualname__, ops=calls, operators=count_operators(graph.graph))
        try:
            compiled = self.compiled(module, graph)
        except (Unsupported, DataDependent) as error:
            if error.step is None or (self.points is None and not self.fullgraph):
                raise
            return self.finish_before(error, error.step)
        guards.update(graph.sizes.guard_list())
        recovery = self.recovery(machine)
        if default_device() is not None:
            compiled = functools.partial(called_without_default_device, compiled)
        # Frames below it are captured, but not those of its graph.
        called = functools.partial(_native.watched, None, compiled) if self.breaks else compiled
        straight = None if grad_flags else assembler.straight(called, inputs, recovery.frameless)
        code = assembler.assemble(called, inputs, grad_flags, recovery)
        graphs = [GraphInfo(module, inputs, calls, compiled)]
        plain = isinstance(compiled, _native.EagerGraph) and not calls_directly(module.graph)
        eager = plain and not (self.breaks or self.point or machine.session.nested)
        return Entry(guards, code, graphs, self.breaks, recovery=recovery, straight=straight, eager=eager)

    def recovery(self, machine: RootMachine) -> Recovery:
        """What is called when the graph raises."""
        graph, fn, calls = machine.graph, self.fn, calls_of(machine.graph.graph)
        place = next((Location(*call.location) for call in calls if call.location is not None), self.first_line())
        written = any(leaf.changed for leaf in graph.leaves())
        observes = machine.session.handles or written or bool(machine.effects)
        strict = self.fullgraph or self.options.strict
        return Recovery(fn.__qualname__, place, calls, self.options, strict, observes)

    def finish_before(self, error: Exception, step: int) -> Entry:
        """The entry whose graph ends before the instruction number `step` of the frame."""
        before = self.break_off(error, step)
        return Entry(self.guards, self.fn.__code__, [], self.breaks) if before is None else self.finish(before)

    def compiled(self, module: torch.fx.GraphModule, graph: GraphBuilder) -> Callable[..., Sequence[Any]]:
        """What the backend makes of the graph."""
        sizes = graph.sizes
        with log.span("backend", function=self.fn.__qualname__):
            try:
                with graph.flags_set():
                    made = self.backend(module, graph.examples)
            except Exception as error:
                if not sizes.symbolic or getattr(error, "surfaces", False):
                    raise
                why = error.message if isinstance(error, StatorError) else f"{type(error).__name__}: {error}"
                # Tracing runs PyTorch's own code, which may refuse symbolic numbers.
                if isinstance(error, BuildError | InternalError) and getattr(error, "stage", "") != "trace":
                    tell_fault(self.fn.__qualname__, self.first_line(), why)
                raise sizes.refusal(f"the backend refused: {why}") from error
        fixed = sizes.fixed_mark()
        if fixed is not None:
            raise fixed
        return made


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


def leave_modes(machine: Machine) -> None:
    """A grad mode that the frame leaves changed is an effect of it; it was not switched while capturing."""
    graph = machine.graph
    if graph.open_contexts:
        what = graph.open_contexts[-1].kind
        raise OpenContext(f"the function returns inside {what} that it entered", "use a with statement")
    if graph.grad_enabled is not torch.is_grad_enabled():
        machine.effects.call(torch._C._set_grad_enabled, build.const(graph.grad_enabled))


def describe_exception(value: Value) -> str:
    """An exception value as the program would write it, arguments where they are known."""
    args: Sequence[Value] = getattr(value, "args", ())
    texts = [repr(arg.constant()) if arg.is_constant() else "…" for arg in args]
    return f"{value.python_type().__name__}({', '.join(texts)})"


def identifier(qualname: str) -> str:
    """A function's name as one that a class or a folder can have."""
    return re.sub(r"\W+", "_", qualname.replace("<locals>", "")).strip("_") or "graph"


def count_operators(graph: torch.fx.Graph) -> dict[str, int]:
    """How often the graph calls what."""
    calls = (node for node in graph.nodes if node.op in ("call_function", "call_method"))
    names = [f".{n.target}" if n.op == "call_method" else getattr(n.target, "__name__", str(n.target)) for n in calls]
    return dict(Counter(names))


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


def forget_warnings() -> None:
    """Warn again about lines that have been warned about."""
    _warned.clear()
