"""What becomes of a call whose compiled code raises: the original runs from the start, which tells whose fault it is.

A graph that raises has changed nothing (that is the contract with backends), and the effects of a frame come after its
graph, so nothing of the call has happened yet. If the original raises as well, or handles an exception of that kind,
the program has met a data error, and what it does is eager's. If not, the fault is ours: one loud line with the
artifacts, an event that `base/faults.py` counts, an error under strict and fullgraph. The entry is retired then: later
calls of its kind run in eager, and are counted. Invariant: what is no error, or the user's own code's, passes through.
Neighbours: `rewrite.py` (compiled code calls a `Recovery`), `csrc/replay.c` (runs the original), `entry.py` (retires).
"""

from __future__ import annotations

import functools
import sys
import traceback
import types
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn

import torch
from torch import fx

from stator._native import RunOriginal
from stator.base import artifacts, faults, files
from stator.base.errors import FaultWarning, InternalError, Location, StatorError, is_partly_done

if TYPE_CHECKING:
    from stator.base.options import Options
    from stator.capture.entry import Versions

#: What an assertion of a graph says (`assertions.py`); the original then raises whatever the program has.
ASSERTION: Final = "the program takes a branch that only raises"

#: What operators raise for one and the same thing.
_OPERATORS: Final = (RuntimeError, IndexError)

#: What a program may make of it.
_DATA: Final = (RuntimeError, LookupError, ValueError, ArithmeticError)


class Call(NamedTuple):
    """One call of a captured graph, as text; the graph itself is not kept."""

    name: str
    target: Any
    inputs: tuple[str, ...]
    location: tuple[str, int] | None

    def __str__(self) -> str:
        target = getattr(self.target, "__name__", str(self.target))
        place = f"  # {self.location[0]}:{self.location[1]}" if self.location is not None else ""
        return f"{self.name} = {target}({', '.join(self.inputs)}){place}"


def calls_of(graph: fx.Graph) -> tuple[Call, ...]:
    """The calls of a graph."""
    return tuple([
        Call(node.name, node.target, tuple([source.name for source in node.all_input_nodes]), node.meta.get("location"))
        for node in graph.nodes
        if node.op in ("call_function", "call_method")
    ])  # fmt: skip


def refused_by(graph: fx.Graph) -> Exception:
    """What a graph that capture found nothing wrong with raises, if its data or their sizes are refused."""
    assertion = any(ASSERTION in node.args for node in graph.nodes)
    return RuntimeError(ASSERTION if assertion else "an operator refuses its operands")


class Recovery:
    """Called by the compiled code of one entry with what its graph has raised, and the inputs of the graph."""

    __slots__ = ("__weakref__", "calls", "function", "location", "observes", "options", "strict", "versions")

    def __init__(
        self, function: str, location: Location, calls: tuple[Call, ...], options: Options, strict: bool, observes: bool
    ) -> None:
        self.function = function
        self.location = location
        self.calls = calls
        self.options = options
        #: Whether faults are errors.
        self.strict = strict
        #: Whether the program may handle an exception of the graph, or has done something before it.
        self.observes = observes
        #: Among whose entries it is.
        self.versions: weakref.ref[Versions] | None = None

    def __call__(self, error: BaseException, *inputs: Any) -> NoReturn:
        refused = isinstance(error, StatorError) and not isinstance(error, InternalError | LookupError)
        if not isinstance(error, Exception) or refused or is_partly_done(error):
            raise error
        if raised_by_hook(error) or (not self.observes and files.called_back(error)):
            raise error  # what eager raises there; user code is not run twice without need
        raise RunOriginal(Replay(self, error, inputs)) from error

    def frameless(self, error: BaseException, *inputs: Any) -> NoReturn:
        """Called instead by an entry that has run without a frame: the error passes this one."""
        try:
            raise error
        except BaseException as caught:
            error = caught
        self(error, *inputs)

    def explained(self) -> None:
        """The original has raised what the compiled code has: nothing is to be said."""

    def failed(self, error: Exception, inputs: tuple[Any, ...], raised: bool) -> None:
        """The original has not raised what the compiled code has."""
        what = f"{type(error).__name__}: {error}"
        folder = artifacts.for_failure(self.options, self.function)
        folder.write("graph", "\n".join(map(str, self.calls)), "txt")
        folder.write("failure", "".join([*traceback.format_exception(error), *describe(inputs)]), "txt")
        fault = faults.Fault("call", self.function, self.location, what, str(folder.path))
        faults.report(fault)
        if self.strict and not raised:
            failure = InternalError("call", f"compiled code raised {what}", str(folder.path))
            failure.refused_at(self.location, None)
            raise failure from error
        versions = self.versions() if self.versions is not None else None
        if versions is not None and not self.strict:
            versions.retire(self, functools.partial(faults.report, fault._replace(later=True)))
        text = (
            f"{self.function} runs in eager PyTorch: its compiled code raised {what}\n  at {self.location}\n"
            f"  hint: eager PyTorch does not raise that, so this is a fault of stator. Please report it with "
            f"{folder.path}; calls like this one stay in eager"
        )
        warnings.warn_explicit(FaultWarning(text), None, self.location.file, self.location.line, registry={})


def tell_fault(function: str, place: Location, why: str) -> None:
    """Says that stator failed with symbolic sizes, which going on with the numbers of the call would hide."""
    faults.report(faults.Fault("compile", function, place, why))
    text = (
        f"{function} is compiled for each size by itself: {why}\n  at {place}\n"
        f"  hint: this is a fault of stator; please report it"
    )
    warnings.warn_explicit(FaultWarning(text), None, place.file, place.line, registry={})


class Uncompiled:
    """In the place of a `Recovery`, for a call that could not be compiled."""

    __slots__ = ("refuse", "tell")

    observes = False

    def __init__(self, tell: Callable[[bool], None], refuse: Callable[[], None]) -> None:
        #: What is done if it is our fault; told whether the original has raised something else.
        self.tell = tell
        #: What is done if it is the program's.
        self.refuse = refuse

    def failed(self, error: Exception, inputs: tuple[Any, ...], raised: bool) -> None:
        """The original has not raised what compiling has."""
        self.tell(raised)

    def explained(self) -> None:
        """It has."""
        self.refuse()


class Replay:
    """One call that is run by the original, after it has failed."""

    __slots__ = ("error", "inputs", "recovery", "seen", "watching")

    def __init__(self, recovery: Recovery | Uncompiled, error: Exception, inputs: tuple[Any, ...]) -> None:
        self.recovery = recovery
        self.error = error
        self.inputs = inputs
        #: The classes of the exceptions that the program has met, handled or not.
        self.seen: set[type[BaseException]] = set()
        self.watching = False

    def begin(self) -> None:
        """Before the original runs. A debugger keeps its place."""
        if sys.gettrace() is None:
            self.watching = True
            sys.settrace(self._watch)

    def _watch(self, frame: types.FrameType, event: str, arg: Any) -> Any:
        """Exceptions that torch and the standard library handle by themselves are not the program's."""
        path = frame.f_code.co_filename
        if files.of_torch(path) or files.of_stator(path) or files.of_standard_library(path):
            return None
        if event == "exception":
            self.seen.add(arg[0])
        frame.f_trace_lines = False
        return self._watch

    def end(self, raised: BaseException | None) -> None:
        """After it, with what it has raised. Of a builtin no frame is seen, so the watch knows nothing of that."""
        if self.watching:
            sys.settrace(None)
        if raised is not None:
            self.seen.add(type(raised))
        if self._explained(raised is not None):
            self.recovery.explained()
        else:
            self.recovery.failed(self.error, self.inputs, raised is not None)

    def _explained(self, raised: bool) -> bool:
        """Whether the original has met what the compiled code has raised."""
        if not self.watching:
            return raised or self.recovery.observes
        if raised and not all(issubclass(kind, Exception) for kind in self.seen):
            return True  # interrupted
        if ASSERTION in str(self.error) and any(issubclass(kind, Exception) for kind in self.seen):
            return True  # of whatever class: only what raises is known of that branch
        if raised and isinstance(self.error, _DATA) and any(issubclass(kind, _DATA) for kind in self.seen):
            return True
        return any(_related(self.error, kind) for kind in self.seen)

    def run(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The whole of it, for who is written in Python."""
        self.begin()
        try:
            result = function(*args, **kwargs)
        except BaseException as error:
            self.end(error)
            raise
        self.end(None)
        return result


def _related(error: Exception, kind: type[BaseException]) -> bool:
    """Whether exceptions of a class may stand for ours in eager."""
    if isinstance(error, _OPERATORS) and issubclass(kind, _OPERATORS):
        return True
    return kind is not Exception and (isinstance(error, kind) or issubclass(kind, type(error)))


def describe(inputs: Iterable[Any]) -> Iterator[str]:
    """The inputs of a graph, one a line."""
    yield "\nThe graph was called with\n"
    for value in inputs:
        if isinstance(value, torch.Tensor):
            grad = ", requires_grad" if value.requires_grad else ""
            size, stride = tuple(value.shape), value.stride() if value.layout is torch.strided else value.layout
            yield f"  {value.dtype} {size}, stride {stride}, {value.device}{grad}\n"
        else:
            yield f"  {value!r}\n"


# -- whose code has raised -------------------------------------------------------------------------------


def raised_by_hook(error: BaseException) -> bool:
    """Whether a hook on saved tensors has raised it: checkpointing ends what it computes again by that."""
    hooks = torch._C._autograd._top_saved_tensors_default_hooks(False)
    if hooks is None:
        return False
    codes = [code_of(hook) for hook in hooks]
    return None in codes or any(code in codes for code in files.passed(error))


def code_of(function: Any) -> types.CodeType | None:
    """The code object that a call of it runs, if it is written in Python."""
    while isinstance(function, functools.partial):
        function = function.func
    function = getattr(function, "__func__", function)
    if not isinstance(function, types.FunctionType):
        function = vars(type(function)).get("__call__")
    return getattr(function, "__code__", None)
