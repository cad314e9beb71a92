"""A schedule as a readable Python module: `call(inputs) -> tuple` runs its steps on planned memory.

`emit(schedule)` is what a graph links: kernels come in as `KERNELS`. `emit(schedule, units)` is the same module on its
own: it carries the kernels' C++ (or takes `kernels.cpp` files you edited), builds them, and run as a program makes
random inputs and times itself. Everything that can be bound before the first call is bound at the top. Symbolic sizes
are variables, read from the inputs; memory is planned in the text, each time that they have new values.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from stator.base.errors import Unsupported
from stator.loop.kernel import Call, Launch, Schedule, Step
from stator.loop.memory import touched
from stator.loop.nest import Buffer, Extern, Geometry, Number, Text, View
from stator.loop.scalar import ITEMSIZE, NBYTES
from stator.sizes import Size, Symbol, hint

#: Bytes from which on the memory of a result is asked for in huge pages.
LARGE = 4 << 20

TORCH = {
    "f64": "torch.float64", "f32": "torch.float32", "bf16": "torch.bfloat16", "f16": "torch.float16",
    "i64": "torch.int64", "i32": "torch.int32", "i16": "torch.int16", "i8": "torch.int8", "u8": "torch.uint8",
    "bool": "torch.bool", "c128": "torch.complex128", "c64": "torch.complex64", "c32": "torch.complex32",
    "u64": "torch.uint64", "u32": "torch.uint32", "u16": "torch.uint16",
    "f8e4m3": "torch.float8_e4m3fn", "f8e5m2": "torch.float8_e5m2", "f8e4m3z": "torch.float8_e4m3fnuz",
    "f8e5m2z": "torch.float8_e5m2fnuz", "f8e8m0": "torch.float8_e8m0fnu",
}  # fmt: skip


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


def emit(schedule: Schedule, units: Sequence[HasSource] = ()) -> str:
    """The module's text; with units, one that runs on its own."""
    return _Module(schedule).text(units)


class _Module:
    """The text under construction: pieces of the arena and bound operators are numbered as they are met."""

    __slots__ = ("blocks", "bound", "externs", "makers", "names", "needs_view", "pieces", "schedule")

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.pieces: dict[str, str] = {}  # name of a planned view -> its constructor's arguments
        self.externs: dict[str, str] = {}  # name -> how it is bound
        self.names = dict(zip(schedule.kernels, schedule.names, strict=True))
        self.bound: dict[str, str] = {}  # a kernel at constant offsets -> its name
        self.makers: dict[str, str] = {}  # what makes tensors of one geometry -> its name
        self.needs_view = False
        #: With symbolic sizes: which block of the arena a buffer lies in.
        blocks = enumerate(schedule.memory.blocks) if schedule.symbols else ()
        self.blocks = {name: number for number, block in blocks for name in block.names}

    def text(self, units: Sequence[HasSource]) -> str:
        schedule = self.schedule
        body = self._body()
        names = list(self.names.values())
        lines = [f'"""Graph {schedule.name}: {len(schedule.steps)} steps, {len(names)} kernels."""', ""]
        lines += ["import torch"]
        if any("= empty(" in line for line in body):
            lines.append("from torch import empty_strided as empty")
        if any("= large(" in line for line in body):
            lines.append("from stator.runtime.pages import large")
        if self.makers:
            lines.append("from stator._native import Empty")
        if schedule.failure.spoiled is not None:
            lines.append("from stator.base.errors import mark_partly_done")
        if any("from_bits(" in line for line in body):
            lines.append("from stator.sizes.real import from_bits")
        if self.blocks and self.pieces:
            lines.append("from stator.base.placement import place")
        scratch = "SizedScratch" if self.blocks else "Scratch"
        arena = [name for name, wanted in ((scratch, self.pieces), ("view", self.needs_view)) if wanted]
        if arena:
            lines.append(f"from stator.runtime.arena import {', '.join(arena)}")
        if self.externs:
            sized = any(made.startswith("returning_sized") for made in self.externs.values())
            lines.append(f"from stator.runtime.extern import into, returning{', returning_sized' * sized}")
        if schedule.failure.kept:
            lines.append("from stator.runtime.undo import keep, put_back")
        lines += _standalone(units)
        lines.append("")
        if names:
            lines.append(f"{', '.join(names)}{',' * (len(names) == 1)} = [KERNELS[name] for name in {names!r}]")
        lines += [f"{name} = {made}" for made, name in (*self.bound.items(), *self.makers.items())]
        lines += [f"{name} = {made}" for name, made in self.externs.items()]
        if self.pieces:
            lines += self._scratch()
        lines += ["", "", "def call(inputs):", *["    " + line for line in body]]
        if units:
            lines += _main(schedule)
        return "\n".join(lines) + "\n"

    def _scratch(self) -> list[str]:
        """The intermediates: placed here, or with symbolic sizes by a function of their values."""
        schedule = self.schedule
        if not self.blocks:
            made = [f"    ({arguments}),  # {name}" for name, arguments in self.pieces.items()]
            return [f"scratch = Scratch({schedule.memory.arena_bytes}, [", *made, f"], {schedule.device!r})"]
        blocks = [f"        ({b.nbytes}, {b.first}, {b.last}),  # {', '.join(b.names)}" for b in schedule.memory.blocks]
        return [
            "", "", f"def plan({', '.join(self._told())}):",
            "    start, nbytes = place([  # bytes, first and last step", *blocks, "    ])",
            "    return nbytes, [",
            *[f"        ({arguments}),  # {name}" for name, arguments in self.pieces.items()],
            "    ]", "", "", f"scratch = SizedScratch(plan, {schedule.device!r})",
        ]  # fmt: skip

    def _told(self) -> list[str]:
        """The symbols that memory depends on."""
        text = " ".join([*self.pieces.values(), *[repr(block.nbytes) for block in self.schedule.memory.blocks]])
        return [symbol.name for symbol in self.schedule.symbols if _mentions(text, symbol)]

    def _body(self) -> list[str]:
        schedule = self.schedule
        steps: list[str] = []
        starts: list[int] = []  # of each step, in `steps`
        last = self._last_uses()
        allocated = set(schedule.memory.allocated)
        for number, step in enumerate(schedule.steps):
            starts.append(len(steps))
            fresh = [name for name in dict.fromkeys(touched(step)) if name in allocated]
            for name in fresh:
                allocated.remove(name)
                steps.append(f"{name} = {self._fresh(name)}")
            steps += self._step(step)
            if dead := last.get(number):
                steps.append(f"del {', '.join(dead)}")
        returned = self._outputs()  # may add to `pieces`
        head = []
        if names := [given.name for given in _inputs(schedule)]:
            head = [f"{', '.join(names)}{',' * (len(names) == 1)} = inputs"]
        head.append("inputs.clear()")
        unwritten = [f"{name} = {self._allocation(schedule.buffers[name])}" for name in sorted(allocated)]
        planned = []
        if self.pieces:
            names = list(self.pieces)
            sizes = ", ".join(self._told()) if self.blocks else ""
            planned = [f"{', '.join(names)}{',' * (len(names) == 1)} = scratch({sizes})"]
        head += self._symbols(" ".join([*planned, *unwritten, *steps, *returned]))
        rest = [*planned, *unwritten, *self._guarded(steps, starts, returned)]
        if unused := last.get(-1):
            head.append(f"del {', '.join(unused)}")
        return [*head, *rest]

    def _guarded(self, steps: list[str], starts: list[int], returned: list[str]) -> list[str]:
        """The steps, with what puts the caller's memory back where one fails, or says that nothing can."""
        failure = self.schedule.failure
        starts = [*starts, len(steps)]
        unsure, lines = starts[failure.unsure], []
        if failure.kept:
            lines = [f"kept = keep({', '.join(failure.kept)})"]
            lines += _trying(steps[:unsure], "BaseException", "put_back(kept)")
        if failure.spoiled is None:
            return [*lines, *steps[unsure:], *returned]
        spoiled = starts[failure.spoiled]
        rest = [*steps[spoiled:], *returned]
        return [*lines, *steps[unsure:spoiled], *_trying(rest, "BaseException as error", "mark_partly_done(error)")]

    def _fresh(self, name: str) -> str:
        """The storage of a buffer that is not in the arena: its own, or that of an operand which dies in its step."""
        buffer = self.schedule.buffers[name]
        donor = dict(self.schedule.memory.aliases).get(name)
        given = self.schedule.buffers[donor] if donor is not None else buffer
        if donor is None or given.opaque or buffer.opaque:
            return self._allocation(buffer)
        if (given.size, given.stride) == (buffer.size, buffer.stride):
            return donor
        self.needs_view = True
        return f"view({donor}, {buffer.size}, {buffer.stride}, 0)"

    def _symbols(self, text: str) -> list[str]:
        """The symbols that occur in the text, read from the inputs."""
        given = {number.name for number in self.schedule.numbers}
        wanted = [s for s in self.schedule.symbols if s.name not in given and _mentions(text, s)]
        return [f"{symbol.name} = {_read(symbol, self.schedule.inputs)}" for symbol in wanted]

    def _last_uses(self) -> dict[int, list[str]]:
        """Step number -> inputs and results of operators that nothing reads after it."""
        schedule = self.schedule
        own = {buffer.name: -1 for buffer in schedule.inputs}
        own.update(dict.fromkeys((*schedule.memory.returned, *schedule.memory.allocated), -1))
        for number, step in enumerate(schedule.steps):
            for name in touched(step):
                if name in own:
                    own[name] = number
        kept = {output.buffer for output in schedule.outputs if isinstance(output, View)} | set(schedule.mutated)
        last: dict[int, list[str]] = {}
        for name, number in own.items():
            if name not in kept and (number >= 0 or name not in schedule.memory.allocated):
                last.setdefault(number, []).append(name)
        return last

    # -- steps

    def _step(self, step: Step) -> list[str]:
        if isinstance(step, Launch):
            args = [self._numbers(pointer.buffer) for pointer in step.args]
            args += map(str, step.sizes)
            return [f"{self._kernel(step)}({', '.join(args)})"]
        assert isinstance(step, Call)
        return self._call(step.extern)

    def _kernel(self, step: Launch) -> str:
        """The kernel's name; one whose arguments start inside their buffers is bound to the offsets, in bytes."""
        name = self.names[step.kernel]
        buffers = self.schedule.buffers
        moves = [pointer.offset * ITEMSIZE[buffers[pointer.buffer].dtype] for pointer in step.args]
        if not any(moves):
            return name
        moves += [0] * len(step.sizes)
        return self.bound.setdefault(f"{name}.at({', '.join(map(str, moves))})", f"{name}_{len(self.bound)}")

    def _call(self, extern: Extern) -> list[str]:
        args = [self._argument(arg) for arg in extern.args]
        args += [f"{key}={self._argument(value)}" for key, value in extern.kwargs]
        outputs = [buffer.name for buffer in extern.outputs]
        if extern.out_target:
            assert len(outputs) == 1, "operators with several results make them"
            function = self._bound("into", extern.out_target)
            return [f"{function}({', '.join([*args, f'out={self._buffer(outputs[0])}'])})"]
        promised = {
            i: f"({b.geometry.size}, {b.geometry.stride})" for i, b in zip(extern.taken, extern.outputs, strict=True)
        }
        geometry = ", ".join([promised.get(i, "None") for i in range(max(promised, default=-1) + 1)])
        if any(type(n) is Size for buffer in extern.outputs for n in (*buffer.size, *buffer.stride)):
            function = self._bound("returning_sized", extern.target)
            args.insert(0, f"[{geometry}]")
        else:
            function = self._bound("returning", extern.target, geometry)
        call = f"{function}({', '.join(args)})"
        return [f"{', '.join(outputs)}{',' * (len(outputs) == 1)} = {call}" if outputs else call]

    def _bound(self, how: str, target: str, geometry: str = "") -> str:
        """The name of an operator, bound with the geometry its results are relied on to have."""
        made = f"{how}({', '.join(filter(None, (repr(target), geometry)))})"
        name = "_".join(target.split(".")).replace("_default", "")
        number = 1
        while self.externs.setdefault(name, made) != made:
            number += 1
            name = f"{name.removesuffix(f'__{number - 1}')}__{number}"
        return name

    def _argument(self, value: Any) -> str:
        match value:
            case View():
                return self._view(value)
            case tuple():
                return f"[{', '.join(self._argument(item) for item in value)}]"
            case str() if value.startswith("torch.") and not isinstance(value, Text):
                return value
            case float() if value != value or value in (float("inf"), float("-inf")):
                return f"float({str(value)!r})"
            case complex():
                return f"complex({self._argument(value.real)}, {self._argument(value.imag)})"
        return repr(value)

    # -- tensors

    def _allocation(self, buffer: Buffer) -> str:
        """The expression that makes a buffer's memory; of a geometry that is known, by what was made for it before."""
        dtype, size, stride, _ = buffer.geometry
        arguments = f"{size}, {stride}"
        if buffer.device != "cpu":
            return f"empty({arguments}, dtype={TORCH[dtype]}, device={buffer.device!r})"
        if hint(buffer.nbytes) >= LARGE:
            return f"large({arguments}, {TORCH[dtype]})"
        if not all(isinstance(n, int) for n in (*size, *stride)):
            return f"empty({arguments}, dtype={TORCH[dtype]})"
        made = f"Empty({arguments}, {TORCH[dtype]})"
        if made not in self.makers:
            name = "_".join(["new", dtype, "x".join(map(str, size))]).rstrip("_")
            while name in self.makers.values():
                name += "_"
            self.makers[made] = name
        return f"{self.makers[made]}()"

    def _buffer(self, name: str) -> str:
        """The variable of a buffer as it was declared."""
        if name in self.schedule.memory.offsets:
            buffer = self.schedule.buffers[name]
            self._piece(name, buffer, buffer.geometry)
        return name

    def _numbers(self, name: str) -> str:
        """A buffer as kernels take it: those of the CPU only ask for its address."""
        buffer = self.schedule.buffers[name]
        if not buffer.opaque or buffer.device == "cpu":
            return self._buffer(name)
        return self._view(View(name, buffer.size, buffer.stride))

    def _view(self, view: View) -> str:
        """The expression of a view: planned beforehand in the arena, made on the spot elsewhere."""
        buffer = self.schedule.buffers[view.buffer]
        geometry = view.geometry(buffer)
        if geometry == buffer.geometry:
            return self._buffer(view.buffer)
        if view.buffer in self.schedule.memory.offsets:
            name = f"{view.buffer}_as_{'x'.join([re.sub(r'[^a-z0-9]', '_', str(n)) for n in geometry.size])}"
            made = self._arguments(buffer, geometry)
            while self.pieces.get(name, made) != made:
                name += "_"
            self.pieces[name] = made
            return name
        turned = Geometry(geometry.dtype, geometry.size[::-1], geometry.stride[::-1])
        if len(geometry.size) == 2 and geometry.offset == 0 and turned == buffer.geometry:
            return f"{view.buffer}.t()"
        self.needs_view = True
        dtype = f", {TORCH[geometry.dtype]}" if view.opaque != buffer.opaque else ""
        return f"view({view.buffer}, {geometry.size}, {geometry.stride}, {geometry.offset}{dtype})"

    def _arguments(self, buffer: Buffer, geometry: Geometry) -> str:
        dtype, size, stride, offset = geometry
        moved = offset * NBYTES[dtype]
        if self.blocks:
            start = f"start[{self.blocks[buffer.name]}]" + (f" + {moved}" if moved != 0 else "")
        else:
            start = f"{self.schedule.memory.offsets[buffer.name] + moved}"
        return f"{start}, {TORCH[dtype]}, {size}, {stride}"

    def _piece(self, name: str, buffer: Buffer, geometry: Geometry) -> None:
        if name not in self.pieces:
            self.pieces[name] = self._arguments(buffer, geometry)

    def _outputs(self) -> list[str]:
        schedule = self.schedule
        parts = [self._view(out) if isinstance(out, View) else self._argument(out) for out in schedule.outputs]
        return [f"return ({', '.join(parts)}{',' * (len(parts) == 1)})"]


def _trying(lines: list[str], caught: str, then: str) -> list[str]:
    return ["try:", *["    " + line for line in lines], f"except {caught}:", f"    {then}", "    raise"]


def _inputs(schedule: Schedule) -> list[Buffer | Number]:
    """All inputs in their order."""
    given: list[Buffer | Number] = list(schedule.inputs)
    for number in sorted(schedule.numbers, key=lambda number: number.position):
        given.insert(number.position, number)
    return given


def _mentions(text: str, symbol: Symbol) -> bool:
    return re.search(rf"\b{symbol.name}\b", text) is not None


def _read(symbol: Symbol, inputs: Iterable[Buffer]) -> str:
    """The expression that reads a symbol from the geometry of the inputs."""
    for buffer in inputs:
        for method, extents in (("size", buffer.geometry.size), ("stride", buffer.geometry.stride)):
            if symbol.size in extents:
                return f"{buffer.name}.{method}({extents.index(symbol.size)})"
    raise Unsupported(f"the symbolic size {symbol.name}", "no input has it as a size or stride of its own")


def _standalone(units: Sequence[HasSource]) -> list[str]:
    if not units:
        return []
    lines = ["from stator.runtime.artifact import Unit", "from stator.runtime.link import load", "", "UNITS = ["]
    for unit in units:
        source = unit.source.replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
        lines += [f'    Unit("""{source}""", {unit.kernels!r}, {unit.flags!r}, {unit.language!r}),']
    return [*lines, "]", "KERNELS = load(UNITS)"]


def _main(schedule: Schedule) -> list[str]:
    made = [_example(given) for given in _inputs(schedule)]
    sizes = [f"    {symbol.name} = {symbol.hint}" for symbol in schedule.symbols]
    return [
        "", "", "if __name__ == '__main__':", "    from stator.runtime.link import random_input, time_call", "",
        *sizes, "    inputs = [", *["        " + line for line in made], "    ]",
        "    print(f'{time_call(call, inputs) * 1e6:.1f} us a call')",
    ]  # fmt: skip


def _example(given: Buffer | Number) -> str:
    if isinstance(given, Number):
        return f"{given.value},  # {given.name}"
    dtype, size, stride, _ = given.geometry
    return f"random_input({size}, {stride}, {TORCH[dtype]}, {given.device!r}),  # {given.name}"
