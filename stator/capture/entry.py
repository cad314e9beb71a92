"""Compiled callables: what `stator.compile` gives back, and what happens when no entry matches.

The callable is a `_native.Dispatcher`: it tries its entries in C and asks `Versions.miss` when none matches, which
captures the call, adds an entry and runs it. Past the recompile limit, and after a failure of stator itself, calls that
no entry matches run the original function, with one warning that says so.
Invariant: a call gives what the original gives, whatever fails here; only `CaptureError` (asked for by fullgraph) and,
with the option strict, our own failures surface. While a capture runs, compiled callables run their originals.
Neighbours: `frames.py` (capture), `guards.py` (the trees), `compiled_module.py` (modules), `csrc/dispatcher.c`.
"""

from __future__ import annotations

import copyreg
import functools
import sys
import threading
import traceback
import types
import warnings
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from weakref import WeakSet

import torch
from torch.fx import _symbolic_trace as fx_tracer
from torch.fx._lazy_graph_module import _LazyGraphModule

from stator import _native
from stator.base import artifacts, collector, faults, log
from stator.base.errors import (
    BuildError,
    CaptureError,
    DynamicWarning,
    FallbackWarning,
    FaultWarning,
    InternalError,
    Location,
    StatorError,
    StatorWarning,
)
from stator.base.faults import Fault
from stator.base.markers import DISABLED, RECURSIVE
from stator.base.options import Settings
from stator.capture import frames
from stator.capture.compiled_module import CompiledModule, original_of, share
from stator.capture.default_device import default_device
from stator.capture.dynamic import History
from stator.capture.guards import Guard, Roots, compile_tree, of_calls
from stator.capture.recovery import Recovery, Replay, Uncompiled
from stator.capture.resume import ResumePoint, ResumePoints
from stator.capture.source import ConstSource
from stator.capture.values.torch.nn_module import WRAPPERS
from stator.sizes import held

#: Every function that has been compiled, for `reset`.
_all: WeakSet[Versions] = WeakSet()

#: How many guards a warning names.
NAMED_GUARDS = 3


def in_transform() -> bool:
    """Whether a transform of torch.func is under way.

    It goes by the key that transforms set: asked for its stack of them, PyTorch makes one for the thread, and each
    backward pass in eager copies it several times from then on (0.7 µs).
    """
    included: bool = torch._C._dispatch_tls_is_dispatch_key_included(
        torch._C.DispatchKey.FuncTorchDynamicLayerFrontMode
    )
    return included


@contextmanager
def suspended() -> Iterator[None]:
    """Compiled callables that this thread calls inside run their originals."""
    _native.suspend()
    try:
        yield
    finally:
        _native.resume()


class Versions:
    """The compiled versions of a function, or of its rest from a resume point on."""

    __slots__ = (
        "__weakref__", "adding", "closed", "dispatcher", "failures", "function", "history", "made_for", "point",
        "points", "recoveries", "refused", "reminded", "settings",
    )  # fmt: skip

    def __init__(
        self,
        function: types.FunctionType,
        settings: Settings,
        point: ResumePoint | None = None,
        points: ResumePoints | None = None,
    ) -> None:
        self.function = function
        self.settings = settings
        #: Where it starts, if not at the beginning; `function` then continues from there, uncaptured.
        self.point = point
        self.points = points or ResumePoints(functools.partial(continue_at, settings))
        self.adding = threading.RLock()
        self.dispatcher = _native.Dispatcher(function, self.miss, settings)
        #: Whether calls that no entry matches run in eager from now on.
        self.closed = self.born_closed()
        #: How many calls each guard has made miss.
        self.failures: Counter[str] = Counter()
        options = settings.options
        #: The sizes and ints that calls have had.
        self.history = History(options.dynamic, pins=options.freezing or options.cudagraphs)
        #: How many versions there are for each set of modules, which the limit counts: layers that share a forward
        #: each have versions of their own.
        self.made_for: Counter[tuple[int, ...]] = Counter()
        #: What is called when an entry's code fails → the tree of the entry.
        self.recoveries: dict[Recovery, _native.GuardTree] = {}
        #: How often compiling has ended in an error of the program.
        self.refused = 0
        #: Whether the user has been told that a mode keeps calls in eager.
        self.reminded = False
        _all.add(self)

    def reset(self) -> None:
        """Forgets all versions."""
        self.dispatcher.clear()
        self.recoveries.clear()
        self.points.clear()
        self.made_for.clear()
        self.closed = self.born_closed()
        self.failures.clear()
        self.history.clear()
        self.refused = 0
        self.reminded = False

    def born_closed(self) -> bool:
        """Whether Python runs it, and only the functions that it calls are captured.

        That holds for what the user has marked by `disable(recursive=False)`, for the forward of modules that talk to
        other processes, and for the rest of an except clause, whose exception has a traceback and a context.
        """
        if self.point is None:
            return disabled(self.function) or str(self.function.__module__).startswith(WRAPPERS)
        return self.point.handles

    def miss(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call that no entry matches."""
        if self.closed:
            return _native.watched(self.settings, self.function, *args, **kwargs)
        if self.overridden():
            return self.function(*args, **kwargs)
        replay: Replay | None
        try:
            with self.adding, suspended():  # one thread at a time; what it adds may serve those that wait
                target = self.matching(args, kwargs)
                if target is None:
                    target = self.function if self.exhausted(args, kwargs) else self.add(args, kwargs)
        except (CaptureError, StatorWarning) as error:  # warnings that the user has made errors
            raise error.with_traceback(None) from None
        except Exception as error:
            replay = self.failure(error)
            if replay is not None:
                return replay.run(self.function, args, kwargs)
            target = self.function
        try:
            return _native.watched(self.settings, target, *args, **kwargs)
        except _native.RunOriginal as stop:
            replay = stop.args[0]
        assert replay is not None
        return replay.run(self.function, args, kwargs)

    def matching(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[..., Any] | None:
        """The function of an entry that another thread has added since the call found none."""
        entries = self.dispatcher.entries
        if not entries:
            return None
        bound = self.dispatcher.bind(*args, **kwargs)
        return next((function for tree, function in entries if tree.check(*bound)), None)

    def add(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[..., Any]:
        """Captures the call as a new entry; returns the function that runs it."""
        function = self.function
        bound = self.dispatcher.bind(*args, **kwargs)
        entry, tree = self.captured(args, kwargs)
        if tree.explain(*bound) is not None:  # PyTorch loads parts of itself when an operator is first tried
            entry, tree = self.captured(args, kwargs)
        if (wrong := tree.explain(*bound)) is not None:
            raise InternalError("guards", f"a new entry does not match the call that it was made for: {wrong}")
        if entry.raises and entry.at not in self.history.raised:
            return functools.partial(self.must_raise, entry, tree)
        own = entry.eager or entry.code is function.__code__  # what it does in eager it does with fewer guards
        target = function if own else self.with_code(entry.code)
        self.dispatcher.add(tree, target, bool(entry.breaks), None if own else entry.straight)
        if not own:
            self.adopt(entry, tree)
        self.made_for[self.modules_of(bound)] += 1
        if entry.handles:
            return functools.partial(self.may_handle, entry) if self.settings.fullgraph else target
        return target if entry.breaks else functools.partial(_native.watched, None, target)

    def adopt(self, entry: frames.Entry, tree: _native.GuardTree) -> None:
        """Lets the entry's recovery find the entry when its code fails."""
        if entry.recovery is not None:
            entry.recovery.versions = weakref.ref(self)
            self.recoveries[entry.recovery] = tree

    def retire(self, recovery: Recovery, told: Callable[[], object]) -> None:
        """Leaves the calls of an entry whose code has failed to eager; `told` is called at each."""
        tree = self.recoveries.pop(recovery, None)
        if tree is not None:
            self.dispatcher.retire(tree, told)

    def captured(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[frames.Entry, _native.GuardTree]:
        """What capture makes of the call, with its guards as a tree."""
        function, settings = self.function, self.settings
        with held(), collector.paused(), log.span("compile", function=function.__qualname__):
            entry = frames.convert(
                function, args, kwargs, settings.backend, settings.options,
                fullgraph=settings.fullgraph, point=self.point, points=self.points, history=self.history,
            )  # fmt: skip
            if self.point is None:
                entry.guards.add(Guard("CODE", ConstSource(function), function.__code__))
            guards = of_calls(entry.guards) if entry.eager else entry.guards
            if log.wanted(log.GUARDS):
                log.record(log.GUARDS, guards=guards.describe())
            return entry, compile_tree(guards, Roots.of(function))

    def may_handle(self, entry: frames.Entry, *args: Any, **kwargs: Any) -> Any:
        """The call in which an operation raises: the program's exception leaves; if none does, it is not one graph."""
        self.function(*args, **kwargs)
        stop = entry.breaks[0]
        raise CaptureError(stop.reason, stop.location, stop.hint)

    def must_raise(self, entry: frames.Entry, tree: _native.GuardTree, *args: Any, **kwargs: Any) -> Any:
        """The call in which capture found that the program raises: the exception that leaves is the program's own.

        If none does, later captures end the graph before that instruction: on fakes, capture can be wrong about it.
        That is our fault, unless some frame has handled what was raised for data or sizes that fakes take.
        """
        handled: list[None] = []
        watch = None
        if entry.avoided is not None:  # frames below are not captured while they are watched
            watch = Replay(Uncompiled(lambda raised: None, lambda: handled.append(None)), entry.avoided, ())
        try:
            result = self.function(*args, **kwargs) if watch is None else watch.run(self.function, args, kwargs)
        except Exception:
            self.history.raised[entry.at] = False
            if not entry.resumes:
                self.dispatcher.add(tree, self.function, False)
            raise
        self.history.raised[entry.at] = True
        stop = entry.breaks[0] if entry.breaks else None
        if stop is not None and self.settings.fullgraph:
            raise CaptureError(f"{stop.reason}, but the call returned", stop.location, stop.hint)
        if stop is not None:
            file, line = stop.location or (self.function.__code__.co_filename, self.function.__code__.co_firstlineno)
            log.record(log.BREAK, reason=stop.reason, file=file, line=line, hint=stop.hint, resumes=False)
        if entry.certain and not handled:
            self.fail(InternalError("capture", f"it found that {entry.raises}, but the call returned"))
        return result

    def with_code(self, code: types.CodeType) -> types.FunctionType:
        """The function with other code."""
        original = self.function
        function = types.FunctionType(
            code, original.__globals__, original.__name__, original.__defaults__, original.__closure__
        )
        function.__kwdefaults__ = original.__kwdefaults__
        function.__qualname__ = original.__qualname__
        return function

    # -- when not to compile ---------------------------------------------------------------------------

    def overridden(self) -> bool:
        """Whether a mode or transform of torch wants to see the operators of the original."""
        if torch._C._len_torch_dispatch_stack() or torch._C._get_tracing_state() is not None:
            return True
        if fx_tracer._is_fx_tracing_flag:
            return True
        modes = torch._C._len_torch_function_stack() - (default_device() is not None)
        if not modes and not in_transform():
            return False
        if not self.reminded:
            self.reminded = True
            self.warn("it is called inside a torch function mode or a torch.func transform")
        return True

    def exhausted(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether the limit of versions is reached; also records why the call missed those there are."""
        entries = self.dispatcher.entries
        if not entries:
            return False
        bound = self.dispatcher.bind(*args, **kwargs)
        reasons = list(dict.fromkeys(text for tree, _ in entries if (text := tree.explain(*bound)) is not None))
        self.failures.update(reasons)
        made = self.made_for[self.modules_of(bound)]
        if made < self.settings.options.recompile_limit or self.history.reconsider():
            log.record(log.RECOMPILE, reason="; ".join(reasons), function=self.function.__qualname__)
            return False
        often = "".join(f"\n  {text}" for text, _ in self.failures.most_common(NAMED_GUARDS))
        count = f"{len(entries)} compiled versions, which is the limit"
        if self.history.generalise():
            mark = self.history.advice() or "the option recompile_limit raises the limit"
            text = f"{self.function.__qualname__} has {count}: the last one serves all sizes that have changed. "
            self.tell(DynamicWarning(f"{text}What kept changing:{often}\n  hint: {mark}"))
            return False
        self.closed = True
        self.warn(
            f"it has {count}; calls that match none of them are not compiled. "
            f"What kept changing:{often}\n  hint: the option recompile_limit raises the limit"
        )
        return True

    def modules_of(self, bound: Sequence[Any]) -> tuple[int, ...]:
        """The modules among the arguments, by identity, unless they are known by their structure."""
        return () if self.history.structural else tuple(id(arg) for arg in bound if isinstance(arg, torch.nn.Module))

    def failure(self, error: Exception) -> Replay | None:
        """What reports a failure to compile once the original has run; None where it has been reported already.

        An operator that refuses its data does so while compiling too, and the program has to see that error.
        """
        if isinstance(error, StatorError) and not isinstance(error, InternalError | BuildError):
            self.fail(error)
            return None
        cause = error
        while isinstance(cause, InternalError) and isinstance(cause.__cause__, Exception):
            cause = cause.__cause__
        return Replay(Uncompiled(functools.partial(self.fail, error), self.refuse), cause, ())

    def fail(self, error: Exception, raised: bool = False) -> None:
        """Stator failed, not the user's program: warn and leave further calls to eager, or raise if asked.

        If the original has `raised`, its exception takes precedence.
        """
        ours = not isinstance(error, StatorError) or isinstance(error, InternalError | BuildError)
        if not isinstance(error, StatorError):
            folder = artifacts.for_failure(self.settings.options, frames.identifier(self.function.__qualname__))
            folder.write("failure", "".join(traceback.format_exception(error)), "txt")
            error = InternalError("capture", f"{type(error).__name__}: {error}", str(folder.path))
        if error.surfaces:
            raise error.with_traceback(None) from None
        if ours:
            code = self.function.__code__
            place, artifact = Location(code.co_filename, code.co_firstlineno), getattr(error, "artifacts", "")
            faults.report(Fault("compile", self.function.__qualname__, place, error.message, artifact))
        if (self.settings.options.strict or self.settings.fullgraph) and not raised:
            raise error
        self.closed = True
        self.warn(str(error), FaultWarning if ours else FallbackWarning)

    def refuse(self) -> None:
        """Compiling has found that the program's data cannot be computed with; at the limit it is not tried again."""
        self.refused += 1
        if self.refused >= self.settings.options.recompile_limit and not self.closed:
            self.closed = True
            self.warn(f"compiling it has ended {self.refused} times in an error of the program")

    def warn(self, why: str, kind: type[FallbackWarning] = FallbackWarning) -> None:
        """Warns the user that calls are not compiled."""
        self.tell(kind(f"{self.function.__qualname__} runs in eager PyTorch: {why}"))

    def tell(self, warning: StatorWarning) -> None:
        """Warns, at the line of the function."""
        code = self.function.__code__
        warnings.warn_explicit(warning, None, code.co_filename, code.co_firstlineno, registry={})


def continue_at(
    settings: Settings, point: ResumePoint, function: types.FunctionType, points: ResumePoints
) -> _native.Dispatcher:
    """What continues at a resume point: versions of its own, with the settings of the whole function."""
    rest = point.function(function.__globals__, function.__qualname__)
    _native.skip_code(rest.__code__)  # it runs where a frame was already looked at
    return Versions(rest, settings, point, points).dispatcher


# -- making compiled callables ---------------------------------------------------------------------------


def disabled(function: Callable[..., Any]) -> bool:
    """Marked by `stator.disable` or `torch.compiler.disable`."""
    return getattr(function, DISABLED, None) is not None or getattr(function, "_torchdynamo_disable", False) is True


def disabled_deeply(function: Callable[..., Any]) -> bool:
    """Marked so, together with all that it calls."""
    mark = getattr(function, RECURSIVE, getattr(function, "_torchdynamo_disable_recursive", True))
    return disabled(function) and bool(mark)


def leave_wrapped(function: types.FunctionType) -> None:
    """Leaves what a marked function wraps to Python; all such wrappers have one code, so this is done for each."""
    inner = getattr(function, "_torchdynamo_orig_callable", getattr(function, "__wrapped__", None))
    inner = getattr(inner, "__func__", inner)
    if isinstance(inner, types.FunctionType):
        _native.skip_code(inner.__code__)


def compile_callable(fn: Callable[..., Any], settings: Settings) -> Callable[..., Any]:
    """The compiled form of any callable; keeps its name, documentation and signature."""
    fn = original_of(fn)
    if disabled_deeply(fn):
        return fn
    match fn:
        case types.MethodType():
            return types.MethodType(compile_callable(fn.__func__, settings), fn.__self__)
        case staticmethod():
            return staticmethod(compile_callable(fn.__func__, settings))
        case torch.nn.Module():
            return compile_module(fn, settings)
    function = as_function(fn)
    if disabled(function):
        leave_wrapped(function)
    dispatcher = Versions(function, settings).dispatcher
    functools.update_wrapper(dispatcher, fn)
    return dispatcher


def reduced(dispatcher: _native.Dispatcher) -> str | tuple[Any, ...]:
    """How a compiled function is pickled: by name where that finds it, as functions are; else compiled anew."""
    name = dispatcher.original.__qualname__
    found: Any = sys.modules.get(dispatcher.original.__module__)
    for part in name.split("."):
        found = getattr(found, part, None)
    return name if found is dispatcher else (compile_callable, (dispatcher.original, dispatcher.settings))


copyreg.pickle(_native.Dispatcher, reduced)


def as_function(fn: Callable[..., Any]) -> types.FunctionType:
    """A Python function that does what the callable does."""
    if isinstance(fn, types.FunctionType):
        return fn

    def call(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    names = (name for name in ("__module__", "__name__", "__qualname__") if isinstance(getattr(fn, name, None), str))
    functools.update_wrapper(call, fn, assigned=tuple(names), updated=())
    assert isinstance(call, types.FunctionType)
    return call


def compile_module(module: torch.nn.Module, settings: Settings) -> torch.nn.Module:
    """The compiled form of a module: shares all state with it, see `compiled_module.py`."""
    original = original_of(module)
    if isinstance(original, _LazyGraphModule):
        original.real_recompile()  # a backend compiles the graph it is given: writing its text is no part of that
    return share(original, settings, compile_callable)


def is_compiled(obj: Any) -> bool:
    """Whether an object came from `stator.compile`."""
    return isinstance(obj, (_native.Dispatcher, CompiledModule))


def versions_of(obj: Any) -> Sequence[tuple[_native.GuardTree, Callable[..., Any]]]:
    """The entries of a compiled callable or module, most recently used first."""
    found: Any = obj.forward if isinstance(obj, CompiledModule) else obj
    dispatcher: _native.Dispatcher = getattr(found, "__func__", found)
    return dispatcher.entries


def reset() -> None:
    """Forgets every compiled version of every function, and which warnings have been given."""
    for versions in list(_all):
        versions.reset()
    frames.forget_warnings()
