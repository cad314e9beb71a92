"""Small programs of loops and operators, and their plans run by the C core or as Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from stator import plan as plans
from stator.base.options import Options
from stator.codegen.cpp import emit
from stator.loop import expr as e
from stator.loop.expr import Expr
from stator.loop.index import Axis, Index
from stator.loop.kernel import Schedule
from stator.loop.nest import Buffer, Extern, Nest, Program, View
from stator.loop.schedule import schedule
from stator.plan.build import make
from stator.runtime import GraphArtifact, Unit, build, executor
from stator.runtime.link import execute, load
from stator.sizes.strides import contiguous
from stator.targets import typical
from stator.targets.cpu.printer import flags
from stator.targets.cpu.record import read


def buffer(name: str, *size: int, dtype: str = "f32") -> Buffer:
    return Buffer(name, dtype, size, contiguous(size))


def whole(b: Buffer) -> View:
    return View(b.name, b.size, b.stride)


def pointwise(out: Buffer, operator: str, *sources: Buffer) -> Nest:
    axes = tuple(Axis(f"i{k}", n) for k, n in enumerate(out.size))

    def read(source: Buffer) -> Expr:
        index = Index.of(0)
        for axis, stride in zip(axes[len(axes) - len(source.size) :], source.stride, strict=True):
            index = index + axis.index * stride
        return e.load(source.name, index, source.dtype)

    place = Index.of(0)
    for axis, stride in zip(axes, out.stride, strict=True):
        place = place + axis.index * stride
    return Nest(out, axes, (), e.op(operator, *[read(s) for s in sources]), place)


def mlp() -> tuple[Program, list[torch.Tensor], tuple[torch.Tensor, ...]]:
    """relu-like: exp(x @ w.t()) @ v + b, and x itself and a number as further outputs."""
    torch.manual_seed(0)
    x, w, v, b = torch.randn(8, 16), torch.randn(32, 16) * 0.1, torch.randn(32, 4), torch.randn(4)
    bx, bw, bv, bb = buffer("x", 8, 16), buffer("w", 32, 16), buffer("v", 32, 4), buffer("b", 4)
    h, g, o, p = buffer("h", 8, 32), buffer("g", 8, 32), buffer("o", 8, 4), buffer("p", 8, 4)
    transposed = View("w", (16, 32), (1, 16))
    nodes = (
        Extern("mm", "aten.mm.default", (whole(bx), transposed), (), (h,), "aten.mm.out"),
        pointwise(g, "exp", h),
        Extern("mm2", "aten.mm.default", (whole(g), whole(bv)), (), (o,), "aten.mm.out"),
        pointwise(p, "add", o, bb),
    )
    program = Program("mlp", "cpu", (bx, bw, bv, bb), nodes, (whole(p), View("p", (4, 8), (1, 4)), whole(bx), 3))
    out = (x @ w.t()).exp() @ v + b
    return program, [x, w, v, b], (out, out.t(), x)


def artifact(plan: Schedule) -> GraphArtifact:
    target = read()
    units = [Unit(emit(plan.kernels, target, plan.names), plan.names, flags(target))]
    return build(make(plan), units if plan.kernels else [], Options.from_user())


Call = Callable[[list[Any]], tuple[Any, ...]]


def in_c(made: GraphArtifact) -> Call:
    call = executor.make(made.plan, load(made.units))
    assert call is not None
    return call


def in_python(made: GraphArtifact) -> Call:
    return execute(plans.module_text(made.plan), made.plan.name, load(made.units))


#: How a plan may be run.
EXECUTORS = {"c": in_c, "python": in_python}


def run(how: str, program: Program) -> Call:
    return EXECUTORS[how](artifact(schedule(program, typical("cpu"))))
