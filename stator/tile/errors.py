"""What can go wrong with a kernel, each as a class: in its text, in a call, and while it runs.

The language's functions raise `InvalidUse`, which knows no place; the front end, or the interpreter, adds the line of
the kernel and raises `CompilationError` or `InterpreterError` from it. The names that Triton has are Triton's.
Neighbours: `frontend/source.py` makes a `Place`; `stator.base.errors` has the base of the catalogue.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stator.base.errors import StatorError, StatorWarning


@dataclass(frozen=True, slots=True)
class Place:
    """A place in a kernel's text: where it is, and the line that stands there."""

    file: str
    line: int
    column: int
    text: str
    function: str

    def render(self, how: str = "") -> str:
        """The place, the line, and a caret below it."""
        indent = len(self.text) - len(self.text.lstrip())
        caret = " " * max(self.column - indent, 0) + "^"
        where = f"  {how}{' ' if how else ''}at {self.file}:{self.line}, in {self.function}"
        return "\n".join([where, f"    {self.text.strip()}", f"    {caret}"])


class TritonError(StatorError):
    """Base of what is said about kernels and their launches."""


class InvalidUse(TritonError):
    """A function or operator of the language is used as it cannot be."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message=message, hint=hint)


class PlacedError(TritonError):
    """Something about one place of a kernel, and the calls that led there, the nearest first."""

    def __init__(self, why: str, place: Place | None = None, hint: str = "", callers: Sequence[Place] = ()) -> None:
        self.why, self.place = why, place
        places = [] if place is None else [place.render(), *[caller.render("called") for caller in callers]]
        super().__init__(message="\n".join([why, *places]), hint=hint)


class CompilationError(PlacedError):
    """A kernel's text cannot be compiled."""


class CompileTimeAssertionFailure(CompilationError):
    """A `static_assert` does not hold."""


class UnsupportedLanguageConstruct(CompilationError):
    """A part of Python that kernels cannot use."""


class InterpreterError(PlacedError):
    """A kernel failed while its text was run directly."""


class LaunchError(TritonError):
    """A kernel was called in a way that it cannot be."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message=message, hint=hint)


class CodeRefused(TritonError):
    """A kernel has something that there is no code for, where code is wanted strictly."""

    def __init__(self, message: str, hint: str = "without STATOR_TILE_STRICT it is interpreted") -> None:
        super().__init__(message=message, hint=hint)


class CodeWarning(StatorWarning):
    """A kernel is interpreted, and takes much longer than its machine code would."""


class OutOfResources(TritonError):
    """A kernel needs more of something than the device has."""

    template = "out of resource: {name}, required: {required}, limit of the device: {limit}"
    hint = "smaller blocks or fewer stages need less"

    def __init__(self, required: int, limit: int, name: str) -> None:
        self.required, self.limit, self.name = required, limit, name
        super().__init__(required=required, limit=limit, name=name)

    def __reduce__(self) -> tuple[type[OutOfResources], tuple[int, int, str]]:
        return type(self), (self.required, self.limit, self.name)


class AutotunerError(TritonError):
    """Autotuning could not choose a configuration."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message=message, hint=hint)
