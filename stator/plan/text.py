"""A plan as a readable Python module: `call(inputs) -> tuple` runs its steps.

`module_text(plan)` is linked where the C core does not run a plan: kernels come in as `KERNELS`. With units it runs on
its own: it carries the kernels' source, builds them, and as a program makes random inputs and times itself; over a
launch may stand what of the user's program it computes. What can be bound before the first call is bound at the top.
Neighbours: `ir.py` says what steps mean, `sources.py` has the user's lines, `runtime/link.py` executes the text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from stator.base.device import HOST
from stator.base.dtypes import TORCH
from stator.plan import ir
from stator.sizes.real import Bits


class HasSource(Protocol):
    """What the stand-alone form needs of a unit (`runtime.Unit` is one)."""

    @property
    def source(self) -> str: ...
    @property
    def kernels(self) -> tuple[str, ...]: ...
    @property
    def flags(self) -> tuple[str, ...]: ...
    @property
    def language(self) -> str: ...


def module_text(plan: ir.Plan, units: Sequence[HasSource] = (), remarks: Sequence[Sequence[str]] = ()) -> str:
    """The module's text; with units, one that runs on its own. `remarks`: for each launch in order, lines over it."""
    return _Module(plan, remarks).text(units)


def step_text(plan: ir.Plan, number: int) -> str:
    """One of its steps as a line of the module."""
    return _Module(plan, ()).step(plan.steps[number])


class _Module:
    """The text under construction: what is bound at the top is collected while the steps are written."""

    __slots__ = ("externs", "makers", "moved", "plan", "remarks", "sizes", "taken")

    def __init__(self, plan: ir.Plan, remarks: Sequence[Sequence[str]]) -> None:
        self.plan = plan
        self.remarks = iter(remarks)
        self.sizes = ", ".join(plan.told)  # what the arena is placed by
        self.externs: dict[str, str] = {}  # name -> how it is bound
        self.moved: dict[str, str] = {}  # a kernel at constant offsets -> its name
        self.makers: dict[str, str] = {}  # what makes tensors of one form -> its name
        self.taken: set[str] = set()  # what comes from other modules

    def text(self, units: Sequence[HasSource]) -> str:
        plan = self.plan
        body = self._body()
        count = len(plan.launches) + len(plan.externs)
        lines = [f'"""Graph {plan.name}: {count} steps, {len(plan.kernels)} kernels."""', "", *self._imports()]
        lines += [*_standalone(plan, units), ""]
        if plan.kernels:
            lines.append(f"{_listed(plan.kernels)} = [KERNELS[name] for name in {list(plan.kernels)!r}]")
        lines += [f"{name} = {made}" for made, name in (*self.moved.items(), *self.makers.items())]
        lines += [f"{name} = {made}" for name, made in self.externs.items()]
        if plan.arena.pieces:
            lines += self._scratch()
        lines += ["", "", "def call(inputs):", *_indented(body)]
        if units:
            lines += _main(plan)
        return "\n".join(lines) + "\n"

    def _imports(self) -> list[str]:
        plan, taken = self.plan, self.taken
        lines = ["import torch"]
        if "empty" in taken:
            lines.append("from torch import empty_strided as empty")
        if "large" in taken:
            lines.append("from stator.runtime.pages import large")
        if self.makers:
            lines.append("from stator._native import Empty")
        if plan.failure.spoiled is not None:
            lines.append("from stator.base.errors import mark_partly_done")
        if "from_bits" in taken:
            lines.append("from stator.sizes.real import from_bits")
        if plan.arena.blocks and plan.arena.pieces:
            lines.append("from stator.base.placement import place")
        scratch = ["SizedScratch" if plan.arena.blocks else "Scratch"] if plan.arena.pieces else []
        if arena := [*scratch, *["view"] * ("view" in taken)]:
            lines.append(f"from stator.runtime.arena import {', '.join(arena)}")
        if self.externs:
            sized = ", returning_sized" if "returning_sized" in taken else ""
            lines.append(f"from stator.runtime.extern import into, returning{sized}")
        if plan.failure.kept:
            lines.append("from stator.runtime.undo import keep, put_back")
        return lines

    def _scratch(self) -> list[str]:
        """The intermediates: placed here, or with symbolic sizes by a function of their values."""
        plan, arena = self.plan, self.plan.arena
        if not arena.blocks:
            made = [f"    ({_place(piece)}),  # {piece.name}" for piece in arena.pieces]
            return [f"scratch = Scratch({arena.nbytes}, [", *made, f"], {plan.device!r})"]
        blocks = [f"        ({b.nbytes}, {b.first}, {b.last}),  # {', '.join(b.names)}" for b in arena.blocks]
        return [
            "", "", f"def plan({self.sizes}):",
            "    start, nbytes = place([  # bytes, first and last step", *blocks, "    ])",
            "    return nbytes, [",
            *[f"        ({_place(piece)}),  # {piece.name}" for piece in arena.pieces],
            "    ]", "", "", f"scratch = SizedScratch(plan, {plan.device!r})",
        ]  # fmt: skip

    def _body(self) -> list[str]:
        plan = self.plan
        lines = [self.step(step) + self._remark(step) for step in plan.steps]
        results = [self._argument(result) for result in plan.results]
        head = [f"{_listed([given.name for given in plan.inputs])} = inputs"] if plan.inputs else []
        head.append("inputs.clear()")
        head += [f"{read.symbol} = {read.name}.{read.what}({read.dim})" for read in plan.reads]
        if plan.unused:
            head.append(f"del {', '.join(plan.unused)}")
        if plan.arena.pieces:
            names = [piece.name for piece in plan.arena.pieces]
            head.append(f"{_listed(names)} = scratch({self.sizes})")
        return [*head, *self._guarded(lines, f"return ({_listed(results)})")]

    def _guarded(self, lines: list[str], returned: str) -> list[str]:
        """The steps, with what puts the caller's memory back where one fails, or says that nothing can."""
        failure = self.plan.failure
        found = lines[: failure.begin]
        if failure.kept:
            found.append(f"kept = keep({', '.join(failure.kept)})")
            found += _trying(lines[failure.begin : failure.unsure], "BaseException", "put_back(kept)")
        if failure.spoiled is None:
            return [*found, *lines[failure.unsure :], returned]
        rest = [*lines[failure.spoiled :], returned]
        found += lines[failure.unsure : failure.spoiled]
        return [*found, *_trying(rest, "BaseException as error", "mark_partly_done(error)")]

    # -- steps

    def step(self, step: ir.Step) -> str:
        """The line of a step."""
        match step:
            case ir.Allocate():
                return f"{step.name} = {self._allocation(step)}"
            case ir.Reuse(name, donor, ir.Form(_, size, stride)):
                self.taken.add("view")
                return f"{name} = view({donor}, {size}, {stride}, 0)"
            case ir.Reuse(name, donor):
                return f"{name} = {donor}"
            case ir.Launch():
                arguments = [*[self._argument(address.tensor) for address in step.addresses], *map(str, step.sizes)]
                remarks = "".join([f"# {line}\n" for line in next(self.remarks, ())])
                return f"{remarks}{self._kernel(step)}({', '.join(arguments)})"
            case ir.Invoke():
                return self._invoke(step)
            case ir.Release(names):
                return f"del {', '.join(names)}"
            case ir.Wait(stream, other):
                return f"...  # stream {stream} waits for stream {other}"

    def _remark(self, step: ir.Step) -> str:
        """What is told of a step behind its line: its effects, by their numbers, and its stream if not the first."""
        if isinstance(step, ir.Allocate):
            return f"  # stream {step.stream}" if step.stream else ""
        if not isinstance(step, ir.Launch | ir.Invoke):
            return ""
        told = [f"stream {step.stream}"] * (step.stream != 0)
        for number in step.effects:
            effect = self.plan.effects[number]
            told.append(f"effect {number}: {effect.kind}{effect.name and f' {effect.name}'}")
        return f"  # {', '.join(told)}" if told else ""

    def _allocation(self, step: ir.Allocate) -> str:
        """The expression that makes memory; of a form that is known, by what was made for it before."""
        form = step.form
        arguments = f"{form.size}, {form.stride}"
        if step.device != HOST:
            self.taken.add("empty")
            return f"empty({arguments}, dtype={_dtype(form.dtype)}, device={step.device!r})"
        if step.large:
            self.taken.add("large")
            return f"large({arguments}, {_dtype(form.dtype)})"
        if ir.is_sized(form.size, form.stride):
            self.taken.add("empty")
            return f"empty({arguments}, dtype={_dtype(form.dtype)})"
        made = f"Empty({arguments}, {_dtype(form.dtype)})"
        if made not in self.makers:
            name = "_".join(["new", form.dtype, "x".join(map(str, form.size))]).rstrip("_")
            while name in self.makers.values():
                name += "_"
            self.makers[made] = name
        return f"{self.makers[made]}()"

    def _kernel(self, step: ir.Launch) -> str:
        """The kernel's name; one whose arguments start inside their tensors is bound to the offsets, in bytes."""
        moves = [address.moved for address in step.addresses]
        if not any(moves):
            return step.kernel
        moves += [0] * len(step.sizes)
        made = f"{step.kernel}.at({', '.join(map(str, moves))})"
        return self.moved.setdefault(made, f"{step.kernel}_{len(self.moved)}")

    def _invoke(self, step: ir.Invoke) -> str:
        arguments = [self._argument(arg) for arg in step.args]
        arguments += [f"{key}={self._argument(value)}" for key, value in step.kwargs]
        if step.into is not None:
            arguments.append(f"out={self._argument(step.into.tensor)}")
            return f"{self._bound('into', step.into.target)}({', '.join(arguments)})"
        promised = {result.position: f"({result.size}, {result.stride})" for result in step.results}
        geometry = ", ".join([promised.get(i, "None") for i in range(max(promised, default=-1) + 1)])
        if any(ir.is_sized(result.size, result.stride) for result in step.results):
            self.taken.add("returning_sized")
            function = self._bound("returning_sized", step.target)
            arguments.insert(0, f"[{geometry}]")
        else:
            function = self._bound("returning", step.target, geometry)
        call = f"{function}({', '.join(arguments)})"
        return f"{_listed([result.name for result in step.results])} = {call}" if step.results else call

    def _bound(self, how: str, target: str, geometry: str = "") -> str:
        """The name of an operator, bound with the geometry its results are relied on to have."""
        made = f"{how}({', '.join(filter(None, (repr(target), geometry)))})"
        name = "_".join(target.split(".")).replace("_default", "")
        number = 1
        while self.externs.setdefault(name, made) != made:
            number += 1
            name = f"{name.removesuffix(f'__{number - 1}')}__{number}"
        return name

    def _argument(self, value: ir.Argument) -> str:
        match value:
            case ir.Whole(name):
                return name
            case ir.Turned(name):
                return f"{name}.t()"
            case ir.Reread(name, form, offset, casts):
                self.taken.add("view")
                dtype = f", {_dtype(form.dtype)}" if casts else ""
                return f"view({name}, {form.size}, {form.stride}, {offset}{dtype})"
            case ir.Torch(expression):
                return expression
            case Bits():
                self.taken.add("from_bits")
            case tuple():
                return f"[{', '.join([self._argument(item) for item in value])}]"
            case float() if value != value or value in (float("inf"), float("-inf")):
                return f"float({str(value)!r})"
            case complex():
                return f"complex({self._argument(value.real)}, {self._argument(value.imag)})"
        return repr(value)


def _dtype(name: str) -> str:
    return f"torch.{TORCH[name]}"


def _listed(items: Sequence[str]) -> str:
    """The inside of a tuple, or what one is unpacked to."""
    return f"{', '.join(items)}{',' * (len(items) == 1)}"


def _place(piece: ir.Piece) -> str:
    start: Any = piece.start
    if piece.block is not None:
        start = f"start[{piece.block}]" + (f" + {piece.start}" if piece.start != 0 else "")
    return f"{start}, {_dtype(piece.form.dtype)}, {piece.form.size}, {piece.form.stride}"


def _trying(lines: list[str], caught: str, then: str) -> list[str]:
    return ["try:", *_indented(lines), f"except {caught}:", f"    {then}", "    raise"]


def _indented(steps: list[str]) -> list[str]:
    return ["    " + line for step in steps for line in step.split("\n")]


# ---- a module that runs on its own


def _standalone(plan: ir.Plan, units: Sequence[HasSource]) -> list[str]:
    if not units:
        return []
    lines = ["from stator.runtime.artifact import Unit", "from stator.runtime.link import load", "", "UNITS = ["]
    for unit in units:
        source = unit.source.replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
        lines += [f'    Unit("""{source}""", {unit.kernels!r}, {unit.flags!r}, {unit.language!r}),']
    device = "" if plan.device == HOST else f", device={plan.device!r}"
    return [*lines, "]", f"KERNELS = load(UNITS{device})"]


def _main(plan: ir.Plan) -> list[str]:
    made = [_example(given) for given in plan.inputs]
    sizes = [f"    {name} = {value}" for name, value in plan.hints]
    return [
        "", "", "if __name__ == '__main__':", "    from stator.runtime.link import random_input, time_call", "",
        *sizes, "    inputs = [", *["        " + line for line in made], "    ]",
        "    print(f'{time_call(call, inputs) * 1e6:.1f} us a call')",
    ]  # fmt: skip


def _example(given: ir.Input) -> str:
    if given.form is None:
        return f"{given.number},  # {given.name}"
    form = given.form
    return f"random_input({form.size}, {form.stride}, {_dtype(form.dtype)}, {given.device!r}),  # {given.name}"
