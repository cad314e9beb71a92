"""Wrapper modules end to end: a program scheduled, emitted, built, linked and compared with torch."""

from __future__ import annotations

import runpy
import threading
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from stator import plan as plans
from stator.base.options import Options
from stator.codegen.cpp import emit, native
from stator.loop import expr as e
from stator.loop.expr import Expr
from stator.loop.index import Axis, Index
from stator.loop.kernel import Schedule
from stator.loop.nest import Buffer, Extern, Nest, Program, View
from stator.loop.schedule import schedule
from stator.runtime import GraphArtifact, Unit, build, link
from stator.sizes.strides import contiguous
from tests.loop.random_programs import make_symbolic


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
    target = native()
    units = [Unit(emit(plan.kernels, target, plan.names), plan.names, target.flags)]
    return build(plan.name, plans.module_text(plans.make(plan)), units if plan.kernels else [], Options.from_user())


def test_a_graph_runs_and_leaves_its_inputs_list_empty() -> None:
    program, inputs, expected = mlp()
    made = GraphArtifact.from_bytes(artifact(schedule(program)).to_bytes())
    call = link(made, Options.from_user())
    for _ in range(3):
        given = list(inputs)
        out, turned, same, number = call(given)
        assert not given
        torch.testing.assert_close(out, expected[0], rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(turned, expected[1], rtol=1e-5, atol=1e-5)
        assert same is inputs[0] and number == 3
        assert turned.stride() == (1, 4)
    first, second = call(list(inputs))[0], call(list(inputs))[0]
    assert first.data_ptr() != second.data_ptr(), "outputs are fresh"


def test_threads_have_arenas_of_their_own() -> None:
    program, inputs, _ = mlp()
    call = link(artifact(schedule(program)), Options.from_user())
    wrong: list[float] = []

    def work(scale: float) -> None:
        x = inputs[0] * scale
        wanted = (x @ inputs[1].t()).exp() @ inputs[2] + inputs[3]
        for _ in range(200):
            out = call([x, *inputs[1:]])[0]
            if not torch.allclose(out, wanted, rtol=1e-4, atol=1e-4):
                wrong.append(scale)

    threads = [threading.Thread(target=work, args=(s,)) for s in (0.1, 1.0, 2.0)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_operators_that_make_their_results() -> None:
    bx = buffer("x", 6, 9)
    values, places = buffer("values", 6, 3), buffer("places", 6, 3, dtype="i64")
    doubled = buffer("doubled", 6, 3)
    nodes = (
        Extern("topk", "aten.topk.default", (whole(bx), 3), (("sorted", True),), (values, places), taken=(0, 1)),
        pointwise(doubled, "add", values, values),
    )
    call = link(
        artifact(schedule(Program("top", "cpu", (bx,), nodes, (whole(doubled), whole(places))))), Options.from_user()
    )
    x = torch.randn(6, 9)
    out, index = call([x])
    assert torch.equal(out, x.topk(3)[0] * 2) and torch.equal(index, x.topk(3)[1])


def test_mutated_inputs_change() -> None:
    """How often a write counts is the program's affair: the runtime around the graph tells autograd."""
    bx, by = buffer("x", 10), buffer("y", 10)
    program = Program("bump", "cpu", (bx, by), (pointwise(bx, "add", bx, by),), (), ("x",))
    call = link(artifact(schedule(program)), Options.from_user())
    x, y = torch.randn(10), torch.randn(10)
    expected = x + y
    assert call([x, y]) == ()
    assert torch.equal(x, expected) and not x._version


def test_inputs_may_start_inside_their_storage() -> None:
    bx, out = buffer("x", 4, 5), buffer("o", 4, 3)
    nodes = (
        Extern(
            "mm",
            "aten.mm.default",
            (View("x", (4, 2), (5, 1), 1), View("x", (2, 3), (5, 1), 2)),
            (),
            (out,),
            "aten.mm.out",
        ),
    )
    call = link(artifact(schedule(Program("inside", "cpu", (bx,), nodes, (whole(out),)))), Options.from_user())
    x = torch.randn(50)[7:27].view(4, 5)
    torch.testing.assert_close(call([x])[0], x[:, 1:3] @ x[:2, 2:5])


def test_tracebacks_show_the_wrapper() -> None:
    program, inputs, _ = mlp()
    call = link(artifact(schedule(program)), Options.from_user())
    with pytest.raises(RuntimeError) as caught:
        call([inputs[0][:, :3], *inputs[1:]])
    assert "mm_out(x, w.t(), out=" in "".join(traceback.format_exception(caught.value))


def test_it_runs_on_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = schedule(mlp()[0])
    target = native()
    unit = Unit(emit(plan.kernels, target, plan.names), plan.names, target.flags)
    file = tmp_path / "graph.py"
    file.write_text(plans.module_text(plans.make(plan), [unit]))
    runpy.run_path(str(file), run_name="__main__")
    assert "us a call" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["mlp", "symbolic", "put_back"])
def test_goldens(name: str, golden: Callable[[str, str], None]) -> None:
    """Known sizes and views; sizes as symbols; memory of the caller that is put back where a step fails."""
    match name:
        case "mlp":
            program, _, _ = mlp()
        case "symbolic":
            program = make_symbolic(3)
        case _:
            x, inverse = buffer("x", 10, 10), buffer("inverse", 10, 10)
            solved = Extern("solve", "aten.linalg_inv.default", (whole(x),), (), (inverse,))
            program = Program("put_back", "cpu", (x,), (pointwise(x, "add", x, x), solved), (whole(inverse),), ("x",))
    golden(f"plan_{name}", plans.module_text(plans.make(schedule(program))))
