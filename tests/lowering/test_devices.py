"""Graphs of tensors of the host and of a GPU: what is computed where, run on the CPU, which plays both devices.

Every step is looked at: a kernel touches memory of the device alone, an operator of PyTorch has its operands on one
device and gives the strides that are relied on.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import stator
from stator import passes
from stator.aot import overrides as overrides  # fills the tracer's table
from stator.aot.functional import Cell, Handle
from stator.aot.tracer import Tracer
from stator.codegen import triton
from stator.fake import make
from stator.graphs import composite
from stator.graphs.nodes import module
from stator.loop.kernel import Call, Launch, Schedule
from stator.loop.nest import View
from stator.loop.schedule import schedule
from stator.lowering import lower
from stator.prims import DECOMPOSITIONS
from stator.sizes.strides import same_layout, span
from stator.targets import typical
from tests.codegen import tiled

aten = torch.ops.aten
HOST, GPU = torch.device("cpu"), torch.device("cuda", 0)
#: A program: of values by their device, and of what moves one, results.
Function = Callable[..., Sequence[Tensor]]


def scheduled(function: Function, inputs: Sequence[tuple[Tensor, torch.device]]) -> tuple[Schedule, list[Tensor]]:
    """The steps for a GPU, traced with fakes of both devices; and the tensors that the function holds itself."""
    tracer, record = Tracer(DECOMPOSITIONS, {}), typical("cuda", 2)
    fakes = []
    for position, (real, device) in enumerate(inputs):
        fake = make(real.shape, real.dtype, device, real.stride())
        node = tracer.placeholder(f"x{position}", fake)
        fake.handle = Handle(Cell(node), (), node, fake)
        fakes.append(fake)
    with torch.no_grad(), tracer:
        results = composite.call(function, [fakes, lambda x, device: aten._to_copy(x, device=device)], {})
    tracer.graph.output(tuple([tracer.node(result) for result in results]))
    tracer.graph.eliminate_dead_code()
    gm = module(tracer.graph, "test")
    passes.run(gm, passes.PIPELINE)
    return schedule(lower(gm, "test", record), record), [*tracer.constants]


class Machine:
    """Memory of both devices, in one dimension, and what steps do to it."""

    def __init__(self, made: Schedule, inputs: Sequence[Tensor], folder: Path) -> None:
        self.made = made
        self.memory = tiled.memory_of(made, inputs, HOST)
        source = triton.emit(made.kernels, replace(typical("cuda", 2), overlaps=False), made.names)
        self.launch = tiled.launcher(source, made.names, folder, HOST) if made.kernels else None
        self.names = dict(zip(made.kernels, made.names, strict=True))

    def run(self) -> list[Tensor]:
        for step in self.made.steps:
            self.kernel(step) if isinstance(step, Launch) else self.call(step)
        return [self.view(output) for output in self.made.outputs if isinstance(output, View)]

    def kernel(self, step: Launch) -> None:
        assert self.launch is not None
        for pointer in step.args:
            assert self.made.buffers[pointer.buffer].device == "cuda", f"a kernel touches {pointer.buffer} of the host"
        self.launch(self.names[step.kernel], [self.memory[p.buffer][p.offset :] for p in step.args])

    def call(self, step: Call) -> None:
        extern = step.extern
        moves = extern.target == "aten._to_copy.default"
        devices = {self.made.buffers[view.buffer].device for view in extern.views()}
        devices |= {buffer.device for buffer in extern.outputs} if not moves else set()
        assert len(devices) == 1, f"{extern.target} is on {devices}"
        _, name, overload = extern.target.split(".")
        kwargs = {key: self.value(value) for key, value in extern.kwargs}
        kwargs.pop("device", None)
        found = getattr(getattr(aten, name), overload)(*map(self.value, extern.args), **kwargs)
        for result, buffer in zip([found] if isinstance(found, Tensor) else found, extern.outputs, strict=True):
            told = result.stride() if not buffer.opaque else torch.view_as_real(result).stride()
            assert same_layout(buffer.size, told, buffer.stride), f"{extern.target}: {told}, not {buffer.stride}"
            result = result if not buffer.opaque else torch.view_as_real(result)
            self.memory[buffer.name] = result.as_strided((int(span(buffer.size, buffer.stride)),), (1,))

    def value(self, value: Any) -> Any:
        match value:
            case View():
                return self.view(value)
            case tuple():
                return [self.value(item) for item in value]
            case str():
                return eval(value, {"torch": torch})
        return value

    def view(self, view: View) -> Tensor:
        found = tiled.view(self.memory, view)
        return torch.view_as_complex(found) if view.opaque else found


def check(function: Function, inputs: Sequence[tuple[Tensor, torch.device]], folder: Path) -> None:
    reals = [real for real, _ in inputs]
    wanted = function(reals, lambda x, device: aten._to_copy(x))
    made, held = scheduled(function, inputs)
    for got, result in zip(Machine(made, [*reals, *held], folder).run(), wanted, strict=True):
        assert same_layout(result.shape, got.stride(), result.stride())
        torch.testing.assert_close(got, result)


def laid_out(pick: random.Random, size: tuple[int, int]) -> Tensor:
    """A matrix that is row-major, transposed, has holes or is expanded."""
    m, n = size
    match pick.choice(["rows", "columns", "holes", "one row", "one column"]):
        case "rows":
            return torch.randn(m, n)
        case "columns":
            return torch.randn(n, m).t()
        case "holes":
            return torch.randn(2 * m, 2 * n)[: 2 * m - 1 : 2, : 2 * n - 1 : 2]
        case "one row":
            return torch.randn(n).expand(m, n)
    return torch.randn(m, 1).expand(m, n)


def _views(pick: random.Random, x: Tensor) -> Tensor:
    match pick.choice(
        ["t", "slice", "expand", "select", "flip", "unsqueeze"] if x.dim() == 2 else ["expand", "as it is"]
    ):
        case "t":
            return aten.permute(x, [1, 0])
        case "slice":
            return aten.slice(x, pick.randrange(2), pick.randrange(2), 9, 2)
        case "expand":
            return aten.expand(x, [2, *x.shape])
        case "select":
            return aten.select(x, pick.randrange(2), 1)
        case "flip":
            return aten.flip(x, [pick.randrange(2)])
        case "unsqueeze":
            return aten.expand(aten.unsqueeze(x, 1), [x.shape[0], 3, x.shape[1]])
    return aten.mul(x, 1.5)


def written(seed: int) -> tuple[Function, list[tuple[Tensor, torch.device]]]:
    """A random program and its inputs."""
    pick = random.Random(seed)
    torch.manual_seed(seed)
    size = pick.choice([(4, 6), (5, 5), (3, 4)])
    inputs = [(laid_out(pick, size), pick.choice([HOST, HOST, GPU])) for _ in range(3)]
    inputs[0] = inputs[0][0], GPU
    count, choices = pick.randint(3, 9), pick.getrandbits(60)

    def function(values: Sequence[Tensor], move: Callable[[Tensor, torch.device], Tensor]) -> Sequence[Tensor]:
        pick, known = random.Random(choices), [(x, device) for x, (_, device) in zip(values, inputs, strict=True)]
        for _ in range(count):
            x, device = pick.choice(known[-4:])
            alike = [y for y, other in known if other == device and y.shape == x.shape]
            matrices = [y for y, other in known if other == device and y.dim() == 2 and x.shape[-1:] == y.shape[:1]]
            numbers = [y for y, other in known if other == HOST and y.dim() == 0]
            match pick.choice(["view", "view", "move", "add", "exp", "sum", "number", "mm", "positions"]):
                case "move":
                    device = GPU if device == HOST else HOST
                    x = move(x, device)
                case "add":
                    x = aten.add(x, pick.choice(alike))
                case "exp":
                    x = aten.sin(x)
                case "sum":
                    x = aten.sum(x)
                case "number":
                    x = aten.mul(x, pick.choice(numbers)) if numbers else aten.mul(x, 2)
                case "mm" if x.dim() == 2 and matrices:
                    x = aten.mm(x, pick.choice(matrices))
                case "positions" if x.dim() > 0 and x.shape[0] > 1:
                    x = aten.index(x, [torch.tensor([1, 0, 1])])
                case _:
                    x = _views(pick, x)
            known.append((x, device))
        made = [x for x, _ in known[len(inputs) :]]
        return [*dict.fromkeys([made[-1], *pick.sample(made, min(2, len(made)))])]

    return function, inputs


@pytest.mark.parametrize("seed", range(60))
def test_random_programs(seed: int, tmp_path: Path) -> None:
    check(*written(seed), tmp_path)


PAIRS = torch.randn(4, 3, 2)
PROGRAMS: dict[str, tuple[Function, list[tuple[Tensor, torch.device]]]] = {
    "a number of the host in many places": (
        lambda values, move: [aten.expand(aten.full([], 1.7), values[0].shape), aten.mul(values[0], 2)],
        [(torch.randn(3, 4), GPU)],
    ),
    "complex numbers go to the host": (
        lambda values, move: [move(aten.permute(aten.view_as_complex(values[0]), [1, 0]), HOST)],
        [(PAIRS, GPU)],
    ),
    "complex numbers of the host, as they lie": (
        lambda values, move: [aten.mul(aten.view_as_complex(values[1]), 2), aten.mul(values[0], 2)],
        [(PAIRS, GPU), (PAIRS.transpose(0, 1), HOST)],
    ),
    "every second complex number of the host": (
        lambda values, move: [aten.slice(aten.view_as_complex(aten.neg(values[1])), 0, 0, 9, 2), aten.neg(values[0])],
        [(PAIRS, GPU), (PAIRS, HOST)],
    ),
    "what is computed for the host has holes": (
        lambda values, move: [aten.slice(aten.neg(values[1]), 1, 0, 9, 2), aten.neg(values[0])],
        [(torch.randn(3, 6), GPU), (torch.randn(3, 6), HOST)],
    ),
    "a library computes on the host": (
        lambda values, move: [*aten.sort(aten.slice(values[1], 1, 0, 9, 2)), aten.neg(values[0])],
        [(torch.randn(3, 6), GPU), (torch.randn(3, 6), HOST)],
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name: str, tmp_path: Path) -> None:
    check(*PROGRAMS[name], tmp_path)


#: Operators, and whether a number is met as it is or rounded to the half type first.
MEETING: dict[str, tuple[Callable[[Any, Any], Tensor], bool]] = {
    "x + s": (aten.add.Tensor, True),
    "s + x": (lambda x, s: aten.add.Tensor(s, x), True),
    "x - s": (aten.sub.Tensor, True),
    "s - x": (lambda x, s: aten.sub.Tensor(s, x), True),
    "x * s": (aten.mul.Tensor, True),
    "s * x": (lambda x, s: aten.mul.Tensor(s, x), True),
    "x / s": (aten.div.Tensor, True),
    "s / x": (lambda x, s: aten.div.Tensor(s, x), False),
    "max": (aten.maximum.default, False),
    "fmod": (aten.fmod.Tensor, False),
}


@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16], ids=str)
def test_half_types_of_a_device_meet_numbers_of_the_host_as_they_are(half: torch.dtype, tmp_path: Path) -> None:
    """And round what another tensor of the device holds first, as eager's kernels there do, unlike the host's."""
    x, number = torch.randn(500).to(half), torch.tensor(1.2345678)
    names, wanted = [*MEETING], []
    for place in (HOST, GPU):
        for name in names:
            operator, exact = MEETING[name]
            met = number if exact and place is HOST else number.to(half).float()
            wanted.append(operator(x.float(), met).to(half))

    def program(given: Sequence[Tensor], move: Any) -> list[Tensor]:
        x, *numbers = given
        return [MEETING[name][0](x, number) for number in numbers for name in names]

    made, held = scheduled(program, [(x, GPU), (number, HOST), (number, GPU)])
    found = Machine(made, [x, number, number, *held], tmp_path).run()
    for name, got, want in zip([*names, *names], found, wanted, strict=True):
        assert torch.equal(got, want), name
    assert len({str(want) for want in wanted}) > len(names)


@pytest.mark.gpu
@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16], ids=str)
def test_half_types_meet_numbers_on_a_gpu_as_in_eager(half: torch.dtype) -> None:
    x, number = torch.randn(5000, device="cuda").to(half), torch.tensor(1.2345678)
    for met in (number, number.cuda(), number.double(), number.cuda().double(), number.item()):
        names = [name for name in MEETING if isinstance(met, Tensor) or name in ("x + s", "x - s", "x * s", "x / s")]

        def program(x: Tensor, met: Any, names: Sequence[str] = names) -> list[Tensor]:
            return [MEETING[name][0](x, met) for name in names]

        found = stator.compile(program, fullgraph=True, options={"strict": True})(x, met)
        for name, got, want in zip(names, found, program(x, met), strict=True):
            # What is divided by a number is multiplied by its inverse in eager, which is a rounding more of float32.
            torch.testing.assert_close(got, want, rtol=torch.finfo(half).eps * (name == "x / s"), atol=0, msg=name)
