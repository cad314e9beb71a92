"""Many random programs: `python -m tests.differential --examples 5000 --seed 1 --jobs 2`.

Failures are shortened and printed. Every program is compiled in each of the ways that `--ways` names: by the default
backend and by "aot_eager", if none are; as "fast" numerics, "frozen" with every second input a buffer that is
written to after a first call, and "recorded" by a GPU. Each is called with up to three sizes. With `--device cuda`
inputs are on a GPU; a program that stops the device ends its process, and is wrong unless it was eager that did so.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import json
import math
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

import stator
from stator.base import faults
from stator.base.errors import (
    CaptureError,
    DataDependent,
    FallbackWarning,
    IndexOutOfRange,
    Unsupported,
    WithoutEffect,
)
from stator.coverage.compare import EPSILON, Seen, flatten, judged
from stator.coverage.reordered import Reordered
from stator.coverage.ways import WAYS as WAYS_OF_EAGER
from stator.coverage.ways import AsSaved
from tests.differential.inputs import Input
from tests.differential.near import wanted_where_near
from tests.differential.observe import observe
from tests.differential.programs import LEAST_STATEMENTS, MOST_STATEMENTS, Program, generate, shorten
from tests.differential.rounded import BeforeJumps, SomeInHalf, SomeRounded, rounded_in_forward

BACKENDS = ("inductor", "aot_eager")
#: How else a program may be compiled: by the default backend, with these options.
WAYS: dict[str, dict[str, Any]] = {
    "fast": {"numerics": "fast"},
    "frozen": {"freezing": True},
    "recorded": {"cudagraphs": True, "strict": False},  # what cannot be recorded runs as it is
}
#: Half types → how a program's text names them.
HALVES = {torch.float16: r"\bfloat16|half\(", torch.bfloat16: "bfloat16"}
#: How often operators whose results are rounded are drawn.
SEEDS = 24
#: Which part of backward's results is rounded, where all of forward's are: many of few, and few of many, as formulas
#: that PyTorch composes have dozens.
PARTS = (1 / 2, 1 / 8)
#: What a compiler may say instead of running a program: freezing, where gradients are asked for on the way.
REFUSALS = (CaptureError, Unsupported, DataDependent, WithoutEffect)
#: How often a program is called before, where calls are recorded: as it is, to be recorded, and to be replayed.
CALLS = 4
#: How many times as great sizes are in further calls.
FACTORS = (2, 3)
#: After how many programs a process is replaced: compilers keep memory for the life of a process.
LIFE = 50
#: After how many seconds a run of a program, the first of which compiles it, is taken not to end.
LIMIT = 300.0
#: What such a process runs.
COMMAND = ("-m", "tests.differential")


class DeviceStopped(Exception):
    """Nothing can run on a device any more; whether it was eager that stopped it."""

    def __init__(self, by_eager: bool, error: object) -> None:
        self.by_eager = by_eager
        super().__init__(f"{'eager' if by_eager else 'the compiled program'} has stopped the device: {error}")


class Result(NamedTuple):
    """What became of one program."""

    number: int
    verdict: str
    why: str
    text: str = ""


def _nothing() -> None:
    """What is done at the beginning of a run that nobody waits for."""


def judge(
    program: Program, way: str = "inductor", factors: Sequence[int] = (), begin: Callable[[], None] = _nothing
) -> tuple[str, str]:
    """The verdict on one program: right, refused, wrong or unusable; and why.

    One compiled function is called with each size: the program's own, and so many times as great ones; `begin` is
    called before each run, compiled or by eager. DeviceStopped where a device has stopped.
    """
    if way == "frozen":
        program = replace(program, inputs=tuple(replace(recipe, grad="") for recipe in program.inputs))
    want = _seen(program.function(), program.inputs)
    if want.failed is not None:
        return "unusable", str(want.failed)
    stator.reset()
    verdict, why = _compare(program, compiled := _compiled(program, way), want, way, begin)
    for factor in factors if verdict == "right" else ():
        larger = program.resized(factor)
        if larger is not None:
            verdict, why = _compare(larger, compiled, _seen(larger.function(), larger.inputs), way, begin)
            if verdict == "wrong":
                return "wrong", f"sizes times {factor}: {why}"
    return ("refused", why) if verdict == "refused" else (verdict, why)


def _seen(function: Callable[..., Any], inputs: Sequence[Input], by_eager: bool = True, **how: Any) -> Seen:
    """What is observed, once all devices are done with it."""
    seen = observe(function, inputs, **how)
    for device in {item.device for item in inputs} - {"cpu"}:
        try:
            torch.cuda.synchronize(device)
        except RuntimeError as error:
            raise DeviceStopped(by_eager, error) from error
    return seen


def _compiled(program: Program, way: str) -> Callable[..., Any]:
    """The program under one of `BACKENDS` or `WAYS`."""
    if way in WAYS:
        options = {"strict": True, "verify": True, "cache": False, **WAYS[way]}
        compile_ = partial(stator.compile, fullgraph=True, options=options)
        match way:
            case "frozen":
                return Frozen(program.function(), compile_)
            case "recorded":
                return Recorded(compile_(program.function()))
        return compile_(program.function())
    options = {"strict": True} | ({"verify": True, "cache": False} if way == "inductor" else {})
    return stator.compile(program.function(), backend=way, fullgraph=True, options=options)


class Recorded:
    """A function whose calls a device records: there are some before, on copies, whose results stay as they are."""

    def __init__(self, compiled: Callable[..., Any]) -> None:
        self.compiled = compiled

    def __call__(self, *given: Tensor) -> Any:
        kept: list[tuple[Tensor, Tensor]] = []
        for _ in range(CALLS):
            copies = [tensor.clone() for tensor in given]
            leaves = [tensor for tensor in copies if tensor.requires_grad]
            results = [x for x in flatten(self.compiled(*copies)) if isinstance(x, Tensor)]
            kept += [(x, x.detach().clone()) for x in results]
            sums = [x.sum() for x in results if x.requires_grad and x.is_floating_point()]
            if sums and leaves:
                with contextlib.suppress(RuntimeError):  # eager may refuse them, which is judged by the last call
                    found = torch.autograd.grad(sums, leaves, allow_unused=True)
                    kept += [(x, x.clone()) for x in found if x is not None]
        last = self.compiled(*given)
        for x, copy in kept:
            torch.testing.assert_close(x.detach(), copy, rtol=0, atol=0, equal_nan=True)
        return last


class Frozen:
    """A function of which every second input is a buffer of a module, with other values in a first call.

    What is computed of buffers alone is kept then, and has to be computed again.
    """

    def __init__(self, function: Callable[..., Any], compile_: Callable[..., Callable[..., Any]]) -> None:
        self.function, self.compile = function, compile_

    def __call__(self, *given: Tensor) -> Any:
        module = _Module(self.function, given)
        compiled = self.compile(module)
        buffers = [tensor for tensor in module.buffers() if _has_no_overlap(tensor)]
        values = [(tensor.clone(), tensor.shape, tensor.stride(), tensor.storage_offset()) for tensor in given]
        for tensor in buffers:
            tensor.copy_(tensor.flip([*range(tensor.dim())]))
        other = [tensor.clone() for tensor in given]
        try:
            compiled(*[tensor.clone() for tensor in given[::2]])
        except Exception:
            if not _raises(self.function, other):
                raise
        for tensor, (value, *geometry) in zip(given, values, strict=True):
            tensor.as_strided_(*geometry)  # the call may have made it another view of its memory
            if _has_no_overlap(tensor):
                tensor.copy_(value)
        return compiled(*given[::2])


class _Module(torch.nn.Module):
    def __init__(self, function: Callable[..., Any], given: Sequence[Tensor]) -> None:
        super().__init__()
        self.function = function
        for number, tensor in enumerate(given[1::2]):
            self.register_buffer(f"odd{number}", tensor)

    def forward(self, *even: Tensor) -> Any:
        given = [even[number // 2] if number % 2 == 0 else None for number in range(len(even) + len(self._buffers))]
        return self.function(*[getattr(self, f"odd{n // 2}") if x is None else x for n, x in enumerate(given)])


def _raises(function: Callable[..., Any], given: Sequence[Tensor]) -> bool:
    """Whether eager raises, too."""
    try:
        function(*given)
    except Exception:
        return True
    return False


def _has_no_overlap(tensor: Tensor) -> bool:
    """Whether each element has memory of its own, so that it can be written."""
    return not any(stride == 0 and size > 1 for size, stride in zip(tensor.shape, tensor.stride(), strict=True))


def _compare(
    program: Program, compiled: Callable[..., Any], want: Seen, way: str, begin: Callable[[], None]
) -> tuple[str, str]:
    """The verdict on one call."""
    function = program.function()
    begin()

    def eager(**how: Any) -> Seen:
        begin()
        return _seen(function, program.inputs, **how)

    before = faults.total()
    with warnings.catch_warnings():
        warnings.simplefilter("error", FallbackWarning)
        got = _seen(compiled, program.inputs, by_eager=False)
    failures = [fault.error for fault in faults.recent(before)] + [repr(got.failed)] * (got.failed is not None)
    if failures and _may_raise(eager, positions=any(IndexOutOfRange.__name__ in failure for failure in failures)):
        return "unusable", "with other rounding eager raises"
    told = [fault for fault in faults.recent(before) if not _is_eagers(fault, want)]
    if told:
        return "wrong", "; ".join(map(str, told))
    for error in (got.failed, got.backward_failed):
        if isinstance(error, REFUSALS):
            return "refused", str(error).split("\n")[0]
    coarse = min(max((EPSILON.get(item.dtype, 1e-7) for item in program.inputs), default=0.0), EPSILON[torch.float32])
    # A result of another type may have been of a half one.
    coarse = max([coarse, *[EPSILON[dtype] for dtype, text in HALVES.items() if re.search(text, program.source)]])
    found = judged(got, eager, want, coarse)
    for wide in _without_halves(program, want) if way == "fast" else ():
        if not found:
            break
        exact = wide()
        if exact.failed is not None:
            continue
        unknown = () if exact.backward_failed is None else ("gradient", "backward")
        for run, base in ((partial(_mixed, eager, wide, exact), _finite(want, exact)), (wide, exact)):
            other = {_what(line) for line in judged(got, run, base, coarse)} if found else set()
            found = [line for line in found if _what(line) in other or line.startswith(unknown)]
    if found and way == "fast":
        found = judged(_like_wide(got, program, want), eager, want, coarse)
    return ("wrong", "; ".join(found)) if found else ("right", "")


def _like_wide(got: Seen, program: Program, want: Seen) -> Seen:
    """What was got, but what is wanted at elements that are as wide types give them, some of which are rounded."""
    ways: list[dict[str, Any]] = [{}, {"within": partial(Reordered, 1)}]
    runs = [partial(wide, **how) for wide in _without_halves(program, want) for how in ways]
    single: Callable[..., Any] = program.widened("float32", copies=True).function()
    if _widened(single, program.inputs, want, {"wide": False}).failed is not None:  # it takes no operands of two types
        single = partial(_on_floats, single)
    for half in _halves_of(program):
        rounded = [partial(SomeRounded, half, seed) for seed in range(SEEDS)]
        rounded += [partial(rounded_in_forward, half, seed, PARTS[seed % 2]) for seed in range(SEEDS // 2)]
        rounded += [partial(SomeInHalf, half, seed, PARTS[seed % 2]) for seed in range(SEEDS // 2)]
        some = [{"wide": False, "within": within} for within in rounded]
        runs += [partial(_widened, single, program.inputs, want, how) for how in some]
    seen = [found for found in (run() for run in runs) if found.failed is None]
    results = wanted_where_near(got.results, [exact.results for exact in seen], want.results)
    gradients = wanted_where_near(got.gradients, [exact.gradients for exact in seen], want.gradients)
    return replace(got, results=results, gradients=gradients)


def _mixed(eager: Callable[..., Seen], wider: Callable[..., Seen], exact: Seen, **how: Any) -> Seen:
    """A run of eager's, finite where the widened program is; or, where a wide one is asked for, of that program."""
    return wider(**how) if how.get("wide") else _finite(eager(**how), exact)


def _is_eagers(fault: faults.Fault, want: Seen) -> bool:
    """Whether backward failed by what eager's raises, which cannot be asked again where inputs were written to."""
    return fault.stage == "backward" and want.backward_failed is not None and str(want.backward_failed) in fault.error


def _may_raise(eager: Callable[..., Seen], *, positions: bool) -> bool:
    """Whether it is a matter of rounding that eager does not raise: an index that is computed from what is nearly 0.

    Where it is a position that is out of range, as that of the greatest of what should all be 0, also of an order.
    """
    ways: list[dict[str, Any]] = [{"wide": True}, {"noise": 1.0}, {"noise": -0.5}]
    ways += [{"within": way} for way in WAYS_OF_EAGER] if positions else []
    return any(eager(**how).failed is not None for how in ways)


def _finite(seen: Seen, exact: Seen) -> Seen:
    """What was seen, with the exact values where an infinity or NaN stands for them."""

    def chosen(found: list[Any], others: list[Any]) -> list[Any]:
        if len(found) != len(others):
            return found
        pairs = zip(found, others, strict=True)
        return [
            torch.where(a.isfinite(), a, b) if isinstance(a, Tensor) and isinstance(b, Tensor) else a for a, b in pairs
        ]

    parts = {name: chosen(getattr(seen, name), getattr(exact, name)) for name in ("results", "inputs", "gradients")}
    return replace(seen, **parts, backward_failed=exact.backward_failed)


def _what(difference: str) -> str:
    """Which result, input or gradient differs."""
    return " ".join(difference.split()[:2])


def _without_halves(program: Program, want: Seen) -> Iterator[Callable[..., Seen]]:
    """The program in eager with wide types instead of half ones, its results as they are wanted; none if it has none.

    Right under fast numerics is that as well: what overflows in a half type, need not where it is kept as float32. That
    has roundings of its own, which float64 does not show, with inputs that memory rounds or not, and where the wide
    type is an operand's own, a conversion is a copy all the same. What it keeps wide, backward reads as memory has it,
    and what jumps reads rounded.
    """
    halves = _halves_of(program)
    if not halves:
        return
    for widened in (program.widened(), program.widened(copies=True)):
        yield partial(_widened, widened.function(), program.inputs, want, {"wide": True})
    single = program.widened("float32", copies=True).function()
    for function in (single, partial(_on_floats, single)):
        yield partial(_widened, function, program.inputs, want, {"wide": False})
        for half in halves:
            for way in (AsSaved, BeforeJumps):
                yield partial(_widened, function, program.inputs, want, {"wide": False, "within": partial(way, half)})


def _halves_of(program: Program) -> list[torch.dtype]:
    """The half types that a program asks for, or is given."""
    inputs = {recipe.dtype for recipe in program.inputs}
    return [dtype for dtype, text in HALVES.items() if dtype in inputs or re.search(text, program.source)]


def _on_floats(function: Callable[..., Any], *given: Any) -> Any:
    """What it gives for float32 instead of half types, whose own memory is left as it is."""
    return function(*[x.float() if x.dtype in HALVES else x for x in given])


def _widened(
    function: Callable[..., Any], recipes: Sequence[Input], want: Seen, inputs: dict[str, Any], **how: Any
) -> Seen:
    """What a widened program gives in eager, of the types that are wanted."""
    seen = _seen(function, recipes, **{**how, **inputs})

    def like(found: list[Any], wanted: list[Any]) -> list[Any]:
        if len(found) != len(wanted):
            return wanted
        both = zip(found, wanted, strict=True)
        return [a.to(b.dtype) if isinstance(a, Tensor) and isinstance(b, Tensor) else a for a, b in both]

    gradients, failed = like(seen.gradients, want.gradients), seen.failed
    unknown = None if len(seen.gradients) == len(want.gradients) else RuntimeError("no gradients in wide types")
    return replace(
        want,
        results=like(seen.results, want.results),
        inputs=like(seen.inputs, want.inputs),
        gradients=gradients,
        failed=failed,
        backward_failed=unknown,
    )


def kind(why: str) -> str:
    """A message without its numbers, to tell failures apart."""
    return re.sub(r"[-\d.]+|\[.*?\]|\(.*?\)|nan|inf", "#", why.split(";")[0])[:80]


def examine(
    number: int, program: Program, ways: Sequence[str], shrink: int, begin: Callable[[], None]
) -> Iterator[Result]:
    """The program of a seed, compiled in each way; `begin` is called before each run."""
    for way in ways:

        def verdict(p: Program, way: str = way) -> tuple[str, str]:
            try:
                return judge(p, way, FACTORS, begin)
            except DeviceStopped:
                raise
            except Exception:
                return "wrong", traceback.format_exc()[-600:]

        found, why = verdict(program)
        if found != "wrong":
            yield Result(number, found, why)
            continue
        what = kind(why)
        short = shorten(program, lambda p, what=what, verdict=verdict: kind(verdict(p)[1]) == what, shrink)
        yield Result(number, found, why, f"# seed {number}, {way}: {why}\n# now: {verdict(short)[1]}\n{short}\n")


class Given(NamedTuple):
    """How programs are made and examined: see the command's help."""

    shrink: int
    statements: int = MOST_STATEMENTS
    least: int = LEAST_STATEMENTS
    ways: Sequence[str] = BACKENDS
    device: str = "cpu"

    def arguments(self) -> list[str]:
        """For a process that does so."""
        numbers = [f"--{name}={getattr(self, name)}" for name in ("shrink", "statements", "least")]
        return [*numbers, f"--device={self.device}", "--ways", *self.ways]


def serve(first: int, count: int, given: Given) -> None:
    """What a process does: lines of JSON with the number of each program, its text, its results; null in between."""

    def begin() -> None:
        print(json.dumps(None), flush=True)

    torch.set_num_threads(1)
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.deterministic = True
    warnings.simplefilter("ignore")
    for number in range(first, first + count):
        print(json.dumps(number), flush=True)
        program = generate(random.Random(number), given.statements, given.least, given.device)
        try:
            _seen(program.function(), program.inputs)
            print(json.dumps(str(program)), flush=True)
            for result in examine(number, program, given.ways, given.shrink, begin):
                print(json.dumps(result), flush=True)
        except DeviceStopped as stopped:
            print(stopped, file=sys.stderr, flush=True)
            if stopped.by_eager:
                print(json.dumps(""), flush=True)
            os.abort()


def served(first: int, count: int, given: Given) -> Generator[Result]:
    """The results of some programs, run in processes of their own: that one dies, or does not end, is a result too.

    One that dies before it has told its program, or that takes it back, died in eager: that runs while the program is
    written, and beside what is compiled.
    """
    end = first + count
    while first < end:
        numbers = ["--serve", f"--seed={first}", f"--examples={min(end - first, LIFE)}"]
        text = ""
        command = [sys.executable, *COMMAND, *numbers, *given.arguments()]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            try:
                for line in _watched(process.stdout, process.kill):
                    match json.loads(line):
                        case int(number):
                            first, text = number, ""
                        case str(program):
                            text = program
                        case list(found):
                            yield Result(*found)
            except GeneratorExit:  # no more is wanted
                process.kill()
                raise
        if process.returncode > 0:
            raise RuntimeError(f"the run of program {first} failed; its output is above")
        if process.returncode:
            why = f"the process ended with {process.returncode}, {-signal.SIGKILL} perhaps after {LIMIT:.0f} s"
            yield Result(first, "wrong" if text else "unusable", why, f"# seed {first}: {why}\n{text}\n")
        first += 1


def _watched(lines: Iterator[str], kill: Callable[[], None]) -> Iterator[str]:
    """The lines of a process, which is killed when one takes too long."""
    while True:
        watch = threading.Timer(LIMIT, kill)
        watch.start()
        line = next(lines, None)
        watch.cancel()
        if line is None:
            return
        yield line


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--examples", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--shrink", type=int, default=60, help="tries to shorten a failing program")
    parser.add_argument("--seconds", type=float, default=math.inf, help="after which no more results are waited for")
    parser.add_argument("--statements", type=int, default=MOST_STATEMENTS, help="the most that a program has")
    parser.add_argument("--least", type=int, default=LEAST_STATEMENTS, help="the least that is aimed at")
    parser.add_argument("--ways", nargs="+", default=BACKENDS, choices=(*BACKENDS, *WAYS), help="how it is compiled")
    parser.add_argument("--device", default="cpu", help="where inputs are")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args(arguments)
    given = Given(args.shrink, args.statements, args.least, args.ways, args.device)
    if args.serve:
        serve(args.seed, args.examples, given)
        return 0
    report = Report()
    with ThreadPoolExecutor(args.jobs) as pool:
        starts = range(args.seed, args.seed + args.examples, LIFE)
        parts = [(start, min(LIFE, args.seed + args.examples - start)) for start in starts]

        def run(part: tuple[int, int]) -> None:
            with contextlib.closing(served(*part, given)) as results:
                while report.seconds < args.seconds and (result := next(results, None)) is not None:
                    report.add(result)

        for _ in pool.map(run, parts):
            if report.seconds < args.seconds:
                report.line()
    report.line()
    for why, count in report.refusals.most_common(40):
        print(f"#   {count} refused: {why}")
    return int(report.counts["wrong"] > 0)


class Report:
    """What has been found so far; wrong programs are printed as they are found."""

    def __init__(self) -> None:
        self.counts: collections.Counter[str] = collections.Counter()
        self.refusals: collections.Counter[str] = collections.Counter()
        self.start = time.perf_counter()

    def add(self, result: Result) -> None:
        self.counts[result.verdict] += 1
        self.refusals.update([kind(result.why)] * (result.verdict == "refused"))
        if result.verdict == "wrong":
            print(result.text, flush=True)

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self.start

    def line(self) -> None:
        print(f"# {dict(self.counts)} in {self.seconds:.0f} s", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
