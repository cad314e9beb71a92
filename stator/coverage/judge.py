"""The verdict on one sample of an operator, forward and backward, against eager.

An `Engine` is a compiler under test: it runs a program once and says what it could not take and which of PyTorch's
kernels it called; `Stator` is ours, through `stator.compile`, capture included. A sample is, from good to bad:
generated (no kernel of PyTorch but those of class extern in `prims/set.py`), extern (right, with others), breaks
(right, but a part ran in eager PyTorch, with a reason), fails (a wrong result, an error of the compiler, also one that
it survived in eager PyTorch, a crash).
Neighbours: `database.py`, `compare.py`; the benchmarks have another engine.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor
from torch._ops import OpOverload

import stator
from stator.base import faults, log
from stator.base.errors import CaptureError, DataDependent, FallbackWarning, Unsupported
from stator.coverage.compare import Seen, judged, observe_on
from stator.coverage.database import FREE, SEED, UNWRITTEN, UNWRITTEN_RESULTS, Arguments, Sample
from stator.coverage.ways import WideResults
from stator.prims.set import PRIMITIVES

#: Calls that compute nothing.
CHECKS = frozenset({"aten._assert_async.msg", "aten._assert_async.default"})

#: From good to bad; an entry has the verdict of its worst sample, `unusable` ones aside.
VERDICTS = ("unusable", "generated", "extern", "breaks", "fails")
#: The operators whose kernels are PyTorch's by design: matmul, convolution, attention, sorting.
DECLARED = frozenset(op._schema.name.split("::")[1] for op, known in PRIMITIVES.items() if known.kind == "extern")


@dataclass(frozen=True)
class Run:
    """What a compiler did with one call: refusals with their reasons, kernels of PyTorch as `namespace.operator`."""

    seen: Seen
    breaks: tuple[str, ...]
    kernels: tuple[str, ...]
    #: Where the compiler failed and went on in eager, which results cannot show.
    faults: tuple[str, ...] = ()


class Engine(Protocol):
    """A compiler under test."""

    #: Whether it promises eager's strides and aliasing.
    layout: bool

    def run(self, program: Callable[..., Any], call: Call, *, exact_random: bool) -> Run:
        """Compile the program and call it once; `exact_random` asks for eager's own random numbers."""


#: Runs a program on fresh arguments and writes down what it shows.
Call = Callable[[Callable[..., Any]], Seen]


@dataclass(frozen=True)
class Judgement:
    """One sample's verdict, why, and the kernels of PyTorch that were called."""

    verdict: str
    why: str = ""
    kernels: tuple[str, ...] = ()


class Stator:
    """The whole of stator, as a user calls it; nothing is taken from the store."""

    layout = True
    dynamic: bool | None = None

    def run(self, program: Callable[..., Any], call: Call, *, exact_random: bool) -> Run:
        """See `Engine`."""
        stator.reset()
        options = {"cache": False, "verify": True, "strict": True, "eager_random": exact_random}
        compiled = stator.compile(program, dynamic=self.dynamic, options=options)
        before = faults.total()
        with log.collect() as recorder, warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            seen = call(compiled)
        breaks = [str(facts["reason"]) for facts in recorder.of(log.BREAK)]
        breaks += [str(w.message) for w in warned if isinstance(w.message, FallbackWarning) and not breaks]
        for error in (seen.failed, seen.backward_failed):
            if isinstance(error, (CaptureError, DataDependent, Unsupported)):
                breaks.append(error.message)
        externs = {name for facts in recorder.of(log.KERNELS) for name in facts["externs"]} - CHECKS
        kernels = tuple(sorted({name.rpartition(".")[0] for name in externs}))
        return Run(seen, tuple(breaks), kernels, tuple(map(str, faults.recent(before))))


class Dynamic(Stator):
    """The same with symbolic sizes from the first call on."""

    dynamic = True


def judge(engine: Engine, name: str, sample: Sample) -> Judgement:
    """What becomes of one sample of an entry."""
    if not sample.usable:
        return Judgement("unusable", "not a strided tensor")

    def eager(
        noise: float = 0.0, wide: bool = False, within: Callable[[], AbstractContextManager[Any]] = nullcontext
    ) -> Seen:
        given = sample.fresh(noise, wide)
        with WideResults() if wide and _whole(given.tensors) else nullcontext():
            return _written(name, _observe(sample.function, given, noise, within))

    want = eager()
    if want.failed is not None:
        return Judgement("unusable", "eager raises")
    run = _run(engine, sample, exact_random=True)
    random = any(_is_random(kernel) for kernel in run.kernels)
    if UNWRITTEN.match(name):
        found = _other_geometry(engine.layout, run.seen, want)
    else:
        found = judged(_written(name, run.seen), eager, want, layout=engine.layout and not FREE.match(name))
    if random and not found:
        run = _run(engine, sample, exact_random=False)
        found = _other_geometry(engine.layout, run.seen, want)
    found = [*found, *run.faults]
    refused = any(isinstance(e, CaptureError | DataDependent | Unsupported) for e in _errors(run.seen))
    if found and (run.faults or not (refused and run.breaks)):
        return Judgement("fails", "; ".join(found), run.kernels)
    if run.breaks:
        return Judgement("breaks", "; ".join(dict.fromkeys(run.breaks)), run.kernels)
    undeclared = [k for k in run.kernels if k.rpartition(".")[2] not in DECLARED and not _is_view(k)]
    return Judgement("extern" if undeclared else "generated", ", ".join(undeclared), run.kernels)


def _run(engine: Engine, sample: Sample, *, exact_random: bool) -> Run:
    function = sample.function

    def program(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return function(*args, **kwargs)

    def call(compiled: Callable[..., Any]) -> Seen:
        return _observe(lambda *args, **kwargs: compiled(args, kwargs), sample.fresh())

    return engine.run(program, call, exact_random=exact_random)


def _observe(
    function: Callable[..., Any],
    arguments: Arguments,
    noise: float = 0.0,
    within: Callable[[], AbstractContextManager[Any]] = nullcontext,
) -> Seen:
    def run(*_: Tensor) -> Any:
        return function(*arguments.args, **arguments.kwargs)

    torch.manual_seed(SEED)
    with torch.enable_grad():
        return observe_on(run, arguments.tensors, arguments.leaves, noise=noise, within=within)


def _written(name: str, seen: Seen) -> Seen:
    """Without the values of uninitialised results."""
    for number in UNWRITTEN_RESULTS.get(name, ()) if seen.results else ():
        seen.results[number] = None
    return seen


def _whole(tensors: list[Tensor]) -> bool:
    """Whether all that a sample takes are whole numbers, which are exact, so that floats are among its results only."""
    return bool(tensors) and not any(t.dtype.is_floating_point or t.dtype.is_complex for t in tensors)


def _errors(seen: Seen) -> list[BaseException | None]:
    return [seen.failed, seen.backward_failed]


def _other_geometry(layout: bool, got: Seen, want: Seen) -> list[str]:
    """How results differ in kind, where their values mean nothing."""
    raised = [f"raises {type(error).__name__}: {error}" for error in _errors(got) if error is not None]
    other = got.geometry != want.geometry and layout
    return raised or [f"is {got.geometry}, eager's {want.geometry}"] * other


def _is_random(kernel: str) -> bool:
    return any(torch.Tag.nondeterministic_seeded in overload.tags for overload in _overloads(kernel))


def _is_view(kernel: str) -> bool:
    """Whether it computes nothing."""
    return any(overload.is_view for overload in _overloads(kernel))


def _overloads(kernel: str) -> list[OpOverload]:
    namespace, _, operator = kernel.rpartition(".")
    packet = getattr(getattr(torch.ops, namespace), operator, None)
    return [getattr(packet, name) for name in packet.overloads()] if packet is not None else []
