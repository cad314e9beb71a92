"""Frames below a break: what becomes of code that compiled code calls for real.

The frame hook (`csrc/frame_hook.c`) asks `look_at` about every frame in a region that no version matches. `RULES` says
which code is left alone, or skipped together with all that it calls; anything else is captured as compiled
callables are, and its versions hang on the code object. Methods of modules have versions for each module, so that
twelve layers do not share one limit, and closures for each function object, since the new code may name its cells.
Invariant: whatever fails here, the frame runs as it is; only warnings that the user has made errors, and our own
failures with the option strict, surface. Neighbours: `entry.py` (`Versions`, of which these are a kind), `frames.py`.
"""

from __future__ import annotations

import inspect
import os
import threading
import types
import weakref
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

import torch

from stator import _native
from stator.base import files, log
from stator.base.errors import InternalError, StatorWarning
from stator.base.options import Settings
from stator.capture import entry, frames
from stator.capture.guards import FUNCTION, Guard, Roots, compile_tree
from stator.capture.recovery import Replay
from stator.capture.source import GlobalsSource, LocalSource

# -- which frames ----------------------------------------------------------------------------------------


#: Torch's modules: their forward methods are programs like a user's, all else in torch is machinery.
_MODULES: Final = files.TORCH + os.path.join("nn", "modules", "")
_MACHINERY: Final = _MODULES + "module.py"

#: Names of files that a person types into; other names in angle brackets belong to generated code.
_INTERACTIVE: Final = ("<stdin>", "<ipython-input", "<python-input", "<doctest")

#: Special methods that do a program's work; the others serve the interpreter, and are small.
_WORKING: Final = frozenset({"__call__"})


def _generated(function: types.FunctionType) -> bool:
    name = function.__code__.co_filename
    return not name or (name.startswith("<") and not name.startswith(_INTERACTIVE))


def _own(function: types.FunctionType) -> bool:
    return files.of_stator(function.__code__.co_filename)


def _torch_machinery(function: types.FunctionType) -> bool:
    path = files.real(function.__code__.co_filename)
    if not files.of_torch(path):
        return False
    return not (path.startswith(_MODULES) and path != _MACHINERY and function.__code__.co_name == "forward")


def _standard_library(function: types.FunctionType) -> bool:
    return files.of_standard_library(function.__code__.co_filename)


def _special_method(function: types.FunctionType) -> bool:
    name = function.__code__.co_name
    return name.startswith("__") and name.endswith("__") and name not in _WORKING


def _comprehension(function: types.FunctionType) -> bool:
    return function.__code__.co_varnames[:1] == (".0",)


def _leave(function: types.FunctionType) -> None:
    _native.skip_code(function.__code__)


def _skip_recursively(function: types.FunctionType) -> None:
    _native.skip_recursively(function.__code__)


class Rule(NamedTuple):
    """Which functions it is about, and what is done to their code."""

    holds: Callable[[types.FunctionType], bool]
    apply: Callable[[types.FunctionType], None]


#: The first that holds counts; where none does, the frame is captured.
RULES: Final = (
    Rule(entry.disabled_deeply, _skip_recursively),
    Rule(entry.disabled, entry.leave_wrapped),
    Rule(_generated, _leave),
    Rule(_own, _leave),
    Rule(_torch_machinery, _leave),
    Rule(_standard_library, _leave),
    Rule(_special_method, _leave),
    Rule(_comprehension, _leave),
)


# -- whether there is something to gain ------------------------------------------------------------------------

#: What a program's tensors hang on.
_TENSORS: Final = (torch.Tensor, torch.nn.Module)

#: How many items of a container are looked at.
_LOOKED_AT: Final = 8


def _holds_tensors(values: Iterable[Any], depth: int = 2) -> bool:
    """Whether tensors or modules are among some values, or in the containers among them."""
    for value in values:
        if isinstance(value, _TENSORS):
            return True
        if depth and type(value) in (list, tuple) and _holds_tensors(value[:_LOOKED_AT], depth - 1):
            return True
        if depth and type(value) is dict and _holds_tensors(list(value.values())[:_LOOKED_AT], depth - 1):
            return True
    return False


def _names_torch(function: types.FunctionType) -> bool:
    """Whether the code names something of torch."""
    for name in function.__code__.co_names:
        found = function.__globals__.get(name)
        home = found.__name__ if isinstance(found, types.ModuleType) else getattr(found, "__module__", None)
        if isinstance(home, str) and home.partition(".")[0] == "torch":
            return True
    return False


def worth_capturing(function: types.FunctionType, slots: tuple[Any, ...]) -> bool:
    """Whether the frame may compute with tensors."""
    if any(isinstance(value, torch.autograd.function.FunctionCtx) for value in slots[:1]):
        return False  # autograd runs it, and looks at what it does
    if _holds_tensors(slots) or _names_torch(function):
        return True
    own = getattr(slots[0], "__dict__", None) if slots else None
    return type(own) is dict and _holds_tensors(list(own.values()))


# -- versions --------------------------------------------------------------------------------------------------


class Slots:
    """The entries of frames, in the place of a `_native.Dispatcher`: calls are bound already."""

    __slots__ = ("frames",)

    def __init__(self, frames: _native.FrameEntries) -> None:
        self.frames = frames

    @property
    def entries(self) -> list[tuple[_native.GuardTree, types.CodeType | None]]:
        """The trees, with what runs where they pass."""
        return [(tree, code) for tree, code, _ in self.frames.entries]

    def bind(self, *slots: Any) -> tuple[Any, ...]:
        """The values that the trees are checked on."""
        return slots

    def retire(self, tree: _native.GuardTree, told: Callable[[], object]) -> None:
        """Frames that the entry matches run as they are."""
        self.frames.retire(tree, told)

    def clear(self) -> None:
        """Forgets all entries."""
        self.frames.clear()
        self.frames.closed = False


class Line(NamedTuple):
    """Where a code object is."""

    co_filename: str
    co_firstlineno: int


class Subject:
    """What messages name of a function, without keeping it or its code alive."""

    __slots__ = ("__code__", "__qualname__")

    def __init__(self, function: types.FunctionType) -> None:
        self.__qualname__ = function.__qualname__
        self.__code__ = Line(function.__code__.co_filename, function.__code__.co_firstlineno)


class FrameVersions(entry.Versions):
    """The compiled versions of the frames of one code object, or of one instance of it."""

    __slots__ = ("alone", "frames", "instance")

    dispatcher: Any
    function: Any

    def __init__(self, function: types.FunctionType, settings: Settings, instance: object) -> None:
        super().__init__(function, settings)
        code = function.__code__
        self.function = Subject(function)
        self.frames = _native.frame_entries(code, settings, instance)
        self.dispatcher = Slots(self.frames)
        #: Whether the function object is known from where the versions are found.
        self.alone = instance is function
        self.instance: weakref.ref[Any] | None = None

    def reset(self) -> None:
        """Forgets all versions."""
        super().reset()
        self.frames.detach()

    def look_at(self, function: types.FunctionType, slots: tuple[Any, ...]) -> None:
        """A frame that no entry matches: adds one, or leaves it."""
        if self.closed or self.overridden():
            return
        with self.adding:  # one thread at a time; what it adds may serve those that wait
            bound = (*slots, function)
            if any(tree.check(*bound) for tree, _ in self.dispatcher.entries):
                return
            if self.exhausted(bound, {}):
                self.frames.closed = True
            else:
                self.capture(function, slots)

    def capture(self, function: types.FunctionType, slots: tuple[Any, ...]) -> None:
        """Adds the entry for this frame."""
        code, settings = function.__code__, self.settings
        args, kwargs = unbound(code, slots)
        with log.span("compile", function=function.__qualname__):
            made = frames.convert(
                function, args, kwargs, settings.backend, settings.options, points=self.points, history=self.history
            )
            if made.raises and made.at not in self.history.raised:
                self.history.raised[made.at] = not made.certain  # whether it does is not seen from here
                return
            if not made.graphs and not made.breaks and not _holds_tensors(slots):
                apply_rules(code)
                return
            made.guards.add(Guard("ID", GlobalsSource(), function.__globals__))
            if function.__closure__ and not self.alone:
                made.guards.add(Guard("ID", LocalSource(FUNCTION), function))
            if log.wanted(log.GUARDS):
                log.record(log.GUARDS, guards=made.guards.describe())
            tree = compile_tree(self.needed(made.guards, code), Roots.of_code(code))
        wrong = tree.explain(*slots, function)
        if wrong is not None:
            raise InternalError("guards", f"a new entry does not match the frame that it was made for: {wrong}")
        self.frames.add(tree, None if made.code is code else made.code, bool(made.breaks))
        self.made_for[self.modules_of(slots)] += 1
        self.adopt(made, tree)

    def needed(self, guards: Iterable[Guard], code: types.CodeType) -> list[Guard]:
        """The guards without the one on the instance itself, which would keep it alive; the table compares it."""
        instance = None if self.instance is None else self.instance()
        if instance is None or self.alone:
            return list(guards)
        itself = Guard("ID", LocalSource(code.co_varnames[0]), instance)
        return [guard for guard in guards if guard != itself]

    def fail(self, error: Exception, raised: bool = False) -> None:
        """Also keeps the hook from asking again."""
        self.frames.closed = True
        super().fail(error, raised)


#: How many instances of a code object die before the others are taken to live as short.
MORTAL: Final = 2


class Instances:
    """Stands where the versions of a code object would be that has them for each instance."""

    __slots__ = ("__weakref__", "entries", "gone")

    def __init__(self, entries: _native.FrameEntries) -> None:
        self.entries = entries
        #: How many instances have died.
        self.gone = 0
        _instances.add(self)

    def add(self, versions: FrameVersions, instance: Any) -> None:
        """Versions that go when their instance does."""
        entries = versions.frames

        def dies(_: object) -> None:
            entries.detach()
            entries.clear()
            self.gone += 1

        versions.instance = weakref.ref(instance, dies)


def unbound(code: types.CodeType, slots: tuple[Any, ...]) -> tuple[list[Any], dict[str, Any]]:
    """A call that binds the parameters to these values."""
    plain, named = code.co_argcount, code.co_argcount + code.co_kwonlyargcount
    args = list(slots[:plain])
    kwargs = dict(zip(code.co_varnames[plain:named], slots[plain:named], strict=True))
    if code.co_flags & inspect.CO_VARARGS:
        args += slots[named]
    if code.co_flags & inspect.CO_VARKEYWORDS:
        kwargs |= slots[-1]
    return args, kwargs


# -- the handler -----------------------------------------------------------------------------------------------

#: Code that is left alone for what its frames were found to do; `reset` takes that back.
_judged: dict[int, weakref.ref[types.CodeType]] = {}

#: For `reset`.
_instances: weakref.WeakSet[Instances] = weakref.WeakSet()

#: Held while versions are made, so that there is one of each.
_making = threading.RLock()


def apply_rules(code: types.CodeType) -> None:
    """Leaves code alone, until the next reset."""
    key = id(code)
    _judged[key] = weakref.ref(code, lambda _: _judged.pop(key, None))
    _native.skip_code(code)


def look_at(
    settings: Settings, function: types.FunctionType, slots: tuple[Any, ...], entries: _native.FrameEntries | None
) -> Replay | None:
    """What the native hook calls for a frame that no version matches; gives what is told of the frame as it is."""
    if entries is None:
        rule = next((rule for rule in RULES if rule.holds(function)), None)
        if rule is not None:
            rule.apply(function)
            return None
        if not worth_capturing(function, slots):
            apply_rules(function.__code__)
            return None
    versions = versions_for(settings, function, slots, entries)
    try:
        versions.look_at(function, slots)
    except StatorWarning as error:  # warnings that the user has made errors
        raise error.with_traceback(None) from None
    except Exception as error:
        return versions.failure(error)
    return None


def versions_for(
    settings: Settings, function: types.FunctionType, slots: tuple[Any, ...], entries: _native.FrameEntries | None
) -> FrameVersions:
    """The versions among which those of a frame are, or belong."""
    with _making:
        owner = getattr(entries, "owner", None)
        if isinstance(owner, FrameVersions):
            return owner
        instance = instance_of(function, slots)
        if instance is not None and instances_of(function.__code__, settings).gone >= MORTAL:
            instance = None  # those that come and go share their versions
        made = FrameVersions(function, settings, instance)
        if instance is None and slots and isinstance(slots[0], torch.nn.Module):
            made.history.structural.add(LocalSource(function.__code__.co_varnames[0]))
        there = getattr(made.frames, "owner", None)
        if isinstance(there, FrameVersions):  # another thread was faster
            return there
        made.frames.owner = made
        if instance is not None:
            instances_of(function.__code__, settings).add(made, instance)
        return made


def instance_of(function: types.FunctionType, slots: tuple[Any, ...]) -> Any:
    """For what the frame has versions of its own: a module, a closure, or None."""
    if slots and isinstance(slots[0], torch.nn.Module):
        return slots[0]
    return function if function.__closure__ else None


def instances_of(code: types.CodeType, settings: Settings) -> Instances:
    """What knows the instances of a code object."""
    entries = _native.frame_entries(code, settings, None)
    owner = getattr(entries, "owner", None)
    if not isinstance(owner, Instances):
        owner = entries.owner = Instances(entries)
    return owner


def reset() -> None:
    """Forgets what frames have been found to do; `entry.reset` forgets their versions."""
    for code in [reference() for reference in _judged.values()]:
        if code is not None:
            _native.forget(code)
    _judged.clear()
    for instances in list(_instances):
        instances.entries.detach()


_native.set_frame_handler(look_at)
