"""The catalogue of everything that stator can say went wrong.

Each error that a user can meet is one class: a message template filled from the constructor's arguments, a hint that
says what to do about it, and the user's own file and line where one is known. `GraphBreak` is the one that users never
see: it is how capture refuses something, and each refusal subclasses it. Nothing else in stator makes up messages.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import NamedTuple


class Location(NamedTuple):
    """A line of the user's program."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


class StatorError(Exception):
    """Base of the catalogue: a message, a hint, and where in the user's program."""

    template = "{message}"
    hint = ""
    #: Whether only the user can help: going on without compiling would hide it.
    surfaces = False
    #: Which instruction of the captured frame led to it, for who can end the graph there.
    step: int | None = None

    def __init__(self, *, hint: str = "", location: tuple[str, int] | None = None, **facts: object) -> None:
        self.facts = facts
        self.location = Location(*location) if location is not None else None
        if hint:
            self.hint = hint
        super().__init__(self.render())

    def refused_at(self, location: tuple[str, int] | None, step: int | None) -> None:
        """Says which call of the program it was, if nobody has said so before."""
        if self.location is None and location is not None:
            self.location = Location(*location)
            self.args = (self.render(),)
        if self.step is None:
            self.step = step

    @property
    def message(self) -> str:
        """The first line: what happened, without place and hint."""
        return self.template.format_map(self.facts)

    def render(self) -> str:
        """The whole text: message, then the user's line, then the hint."""
        lines = [self.message]
        if self.location is not None:
            lines.append(f"  at {self.location}")
        if self.hint:
            lines.append(f"  hint: {self.hint}")
        return "\n".join(lines)


def nearest(name: object, valid: Iterable[str]) -> str:
    """The sentence that names what the user probably meant, or lists what there is."""
    names = sorted(valid)
    close = difflib.get_close_matches(str(name), names, n=1, cutoff=0.5)
    if close:
        return f"did you mean {close[0]!r}?"
    return "valid: " + ", ".join(names)


class UnknownName(StatorError):
    """A name looked up in a closed list and not found there."""

    template = "there is no {what} {name!r}"
    what = "name"

    def __init__(self, name: object, valid: Iterable[str]) -> None:
        super().__init__(name=name, what=self.what, hint=nearest(name, valid))


class UnknownBackend(UnknownName):
    """`backend=` is neither a callable nor a registered name."""

    what = "backend"


class UnknownMode(UnknownName):
    """`mode=` is not one of the modes."""

    what = "mode"


class UnknownStep(UnknownName):
    """A name asked of `explain(...).why` is not that of a node, a buffer or a kernel of the graph."""

    what = "step"


class UnknownOption(UnknownName):
    """A key of `options=` is not an option."""

    what = "option"


class UnknownVariable(UnknownName):
    """A name of the environment begins with STATOR_ and sets nothing, under `strict`."""

    what = "environment variable"


class WithoutEffect(StatorError):
    """Something was asked for that is accepted and does nothing here, under `strict`."""

    template = "{what}"

    def __init__(self, what: str) -> None:
        super().__init__(what=what)


class InvalidOption(StatorError):
    """An option that exists was given a value that it cannot take."""

    template = "option {name!r} cannot be {value!r}: {why}"

    def __init__(self, name: str, value: object, why: str, hint: str = "") -> None:
        super().__init__(name=name, value=value, why=why, hint=hint)


class InvalidArgument(StatorError):
    """An argument of the public interface has the wrong form."""

    template = "{why}"

    def __init__(self, why: str, hint: str = "") -> None:
        super().__init__(why=why, hint=hint)


class InvalidPattern(StatorError):
    """A pattern that a user has registered is wrong in itself."""

    template = "the pattern {name!r} cannot be used: {why}"

    def __init__(self, name: str, why: str, hint: str = "") -> None:
        super().__init__(name=name, why=why, hint=hint)


class CaptureError(StatorError):
    """The program cannot be captured whole, and `fullgraph=True` asked for that."""

    template = "cannot capture this program as one graph: {reason}"

    def __init__(self, reason: str, location: tuple[str, int] | None = None, hint: str = "") -> None:
        self.reason = reason
        super().__init__(reason=reason, location=location, hint=hint)


class GraphBreak(Exception):
    """Capture stops here; internal control flow, subclassed once for each kind of refusal.

    `reason` is shown to the user, `hint` says what would avoid it. `location` is set by whoever knows the line.
    """

    #: Which instruction of the captured frame the graph has to end before, if not the one that is being run.
    step: int | None = None

    def __init__(self, reason: str, hint: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.hint = hint
        self.location: tuple[str, int] | None = None

    def error(self) -> CaptureError:
        """The same refusal in the form that `fullgraph=True` raises."""
        return CaptureError(self.reason, self.location, self.hint)


class CompilerMissing(StatorError):
    """No compiler for generated kernels was found."""

    surfaces = True
    template = "the compiler {compiler!r} was not found"
    hint = "install it (Debian: apt install g++), or name another: options={'compiler': ...} or STATOR_COMPILER"

    def __init__(self, compiler: str, hint: str = "") -> None:
        super().__init__(compiler=compiler, hint=hint)


class BackendError(StatorError):
    """A backend that is not stator's own did not do what a backend does."""

    template = "the backend {backend!r} {why}"
    hint = "a backend takes (gm, example_inputs) and gives a function of the graph's inputs to a tuple of its outputs"

    def __init__(self, backend: str, why: str) -> None:
        super().__init__(backend=backend, why=why)


class BuildError(StatorError):
    """The compiler refused a generated source; this is our mistake, never the user's."""

    template = "building {what} failed with exit status {status}:\n{output}"
    hint = "set STATOR_DEBUG to a folder to keep the generated source, and report it with that folder"

    def __init__(self, what: str, status: int, output: str) -> None:
        super().__init__(what=what, status=status, output=output.strip())


class KernelRefused(BuildError):
    """The compiler of a device's kernels does not take one of ours; with its text, and the user's lines if known."""

    template = "the kernel {kernel} does not compile: {output}\n{remark}{source}"

    def __init__(self, kernel: str, output: str, source: str, remark: str = "") -> None:
        told = f"it computes {remark}\n" if remark else ""
        StatorError.__init__(self, kernel=kernel, output=output.strip(), source=source.strip(), remark=told)


class InternalError(StatorError):
    """A stage of stator failed on a program that it should have handled."""

    template = "stator failed in the stage {stage!r}: {why}"
    hint = "please report this; backend='eager' runs the program in the meantime"

    def __init__(self, stage: str, why: object = "", artifacts: str = "") -> None:
        self.stage = stage
        self.artifacts = artifacts
        hint = f"the stages before it are in {artifacts}; please report this with that folder" if artifacts else ""
        super().__init__(stage=stage, why=why, hint=hint)


class IndexOutOfRange(IndexError, RuntimeError):
    """A loaded index lies outside of its dim. Eager raises one or the other by operator, so this is both."""


def mark_partly_done(error: BaseException) -> None:
    """Says that what has raised it has changed something, which nobody can undo."""
    error.stator_partly_done = True  # type: ignore[attr-defined]


def is_partly_done(error: BaseException) -> bool:
    """Whether the call that has raised it cannot be made again from the start."""
    return getattr(error, "stator_partly_done", False)


def mark_step(error: BaseException, graph: str, step: int) -> None:
    """Says which step of which compiled graph has raised it."""
    error.stator_step = graph, step  # type: ignore[attr-defined]


def step_of(error: BaseException, graph: str) -> int | None:
    """Which step of a compiled graph has raised it; None where that is not known."""
    where, step = getattr(error, "stator_step", ("", 0))
    return step if where == graph else None


class DataDependent(StatorError):
    """An operator's result shape or Python value depends on the data, which is not known while compiling."""

    template = "the result of {op} depends on the data"
    hint = "keep such values in tensors (torch.where, masks), or leave this part out of the compiled function"

    def __init__(self, op: object) -> None:
        self.op = op
        super().__init__(op=op)


class Unsupported(StatorError):
    """An operator, or a use of one, that this version does not compile."""

    template = "{op} is not supported: {why}"

    def __init__(self, op: object, why: str, hint: str = "") -> None:
        self.op = op
        super().__init__(op=op, why=why, hint=hint)


class Undecided(Unsupported):
    """A stage asks something of a symbolic size that holds for some of its values only."""

    hint = "fix the size that this depends on with stator.mark_static"

    def __init__(self, what: str) -> None:
        super().__init__("a symbolic size here", f"{what} is not known for all values", self.hint)


class MarkedSizeFixed(StatorError):
    """A size that the user marked as changing can only be one number in the program."""

    surfaces = True
    template = "{place} is marked dynamic, but can only be {value} in this program: {why}"
    hint = "change the line so that it does not depend on the number, or use maybe_mark_dynamic or no mark"

    def __init__(self, place: object, value: int, why: str, location: tuple[str, int] | None = None) -> None:
        super().__init__(place=place, value=value, why=why, location=location)


class MarkedSizesDiffer(StatorError):
    """Sizes that the user marked with one name are two numbers in a call, or have two ranges."""

    surfaces = True
    template = "{place} and {other} are both marked as {name!r}, but {why}"
    hint = "give sizes that may differ names of their own in mark_dynamic, or none"

    def __init__(self, place: object, other: object, name: str, why: str) -> None:
        super().__init__(place=place, other=other, name=name, why=why)


class StatorWarning(UserWarning):
    """Base of the warnings, so that one filter can name them all."""

    #: Where a user makes it an error, it is the user's.
    surfaces = True


class CacheWarning(StatorWarning):
    """The disk store could not be used as asked; results are right, starts are slower."""


class BuildWarning(StatorWarning):
    """Kernels are compiled in a slower way than they could be; results are right."""


class SlowWarning(StatorWarning):
    """Compiled code was measured slower than eager PyTorch."""


class OptionWarning(StatorWarning):
    """Something was asked for that is accepted and does nothing here."""


class RecordingWarning(StatorWarning):
    """Calls that were asked to be recorded for a device run as they are."""


class PatternWarning(StatorWarning):
    """A registered pattern is wrong in itself, and is left out."""


class FallbackWarning(StatorWarning):
    """Something runs in eager PyTorch that was asked to be compiled."""


class FaultWarning(FallbackWarning):
    """Stator itself failed where eager PyTorch does not, and the program goes on in eager."""


class DynamicWarning(StatorWarning):
    """A size cannot change as the user said that it would, or changes as nobody said."""
