"""The error catalogue: messages, hints, locations, and that every class can be made and printed."""

from __future__ import annotations

import pytest

from stator.base import errors
from stator.base.errors import (
    BackendError,
    BuildError,
    CaptureError,
    CompilerMissing,
    DataDependent,
    GraphBreak,
    InternalError,
    InvalidArgument,
    InvalidOption,
    InvalidPattern,
    KernelRefused,
    MarkedSizeFixed,
    MarkedSizesDiffer,
    StatorError,
    Undecided,
    UnknownBackend,
    UnknownMode,
    UnknownOption,
    UnknownStep,
    UnknownVariable,
    Unsupported,
    WithoutEffect,
    nearest,
)

EXAMPLES: list[StatorError] = [
    UnknownBackend("inducter", ["inductor", "eager"]),
    UnknownMode("fast", ["default"]),
    UnknownOption("x", ["threads"]),
    UnknownStep("mul_33", ["mul_3"]),
    UnknownVariable("STATOR_LOG", ["STATOR_LOGS"]),
    WithoutEffect("mode 'x' has no effect until stator has {more}"),
    InvalidOption("threads", "{two}", "it takes an int"),
    InvalidArgument("not a callable"),
    InvalidPattern("mine", "search() does not use its argument 'y'"),
    CaptureError("a {brace} in the reason", ("model.py", 12), "move it out"),
    CompilerMissing("g++-99"),
    BackendError("theirs", "gave None, which is not callable"),
    BuildError("a kernel", 1, "error: {...}\n"),
    KernelRefused("k0", "at 3:4: {name} is not defined", "def k0(p):\n    {}", "model.py:7: add"),
    InternalError("lowering", "boom", "somewhere"),
    DataDependent("aten.nonzero"),
    Unsupported("aten.foo", "no lowering"),
    Undecided("s0 < 8"),
    MarkedSizeFixed("L['x'].size()[0]", 8, "the program needs the number itself", ("model.py", 12)),
    MarkedSizesDiffer("L['x'].size()[0]", "L['y'].size()[0]", "batch", "are 8 and 7"),
]


def test_the_examples_cover_the_catalogue() -> None:
    public = {c for c in vars(errors).values() if isinstance(c, type) and issubclass(c, StatorError)}
    assert public - {StatorError, errors.UnknownName} == {type(e) for e in EXAMPLES}


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda e: type(e).__name__)
def test_every_error_prints_its_message_and_hint(error: StatorError) -> None:
    text = str(error)
    assert text.startswith(error.message) and len(error.message) > 5
    assert not error.hint or f"hint: {error.hint}" in text
    assert type(error).__doc__


def test_location_is_printed_as_editors_read_it() -> None:
    error = CaptureError("reason", ("model.py", 12), "do this")
    assert str(error).splitlines() == [
        "cannot capture this program as one graph: reason",
        "  at model.py:12",
        "  hint: do this",
    ]


def test_a_graph_break_becomes_the_error_of_fullgraph() -> None:
    class CallsInput(GraphBreak):
        """A refusal of some kind."""

    refusal = CallsInput("input() is called", hint="read it before")
    refusal.location = ("m.py", 3)
    error = refusal.error()
    assert (error.reason, error.location, error.hint) == ("input() is called", ("m.py", 3), "read it before")
    assert not isinstance(refusal, StatorError)


def test_nearest_names_one_or_lists_all() -> None:
    assert nearest("egaer", ["eager", "inductor"]) == "did you mean 'eager'?"
    assert nearest("qqq", ["eager", "inductor"]) == "valid: eager, inductor"
    assert nearest(3, ["b", "a"]) == "valid: a, b"
