"""Plans run: by the C core and as Python modules, with the same results to the bit."""

from __future__ import annotations

import threading

import pytest
import torch

from stator.loop.nest import Extern, Program, View
from stator.loop.schedule import schedule
from stator.runtime import GraphArtifact
from stator.targets import typical
from tests.plan.programs import EXECUTORS, artifact, buffer, mlp, pointwise, run, whole


@pytest.fixture(params=sorted(EXECUTORS))
def how(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


def test_a_graph_runs_and_leaves_its_inputs_list_empty(how: str) -> None:
    program, inputs, expected = mlp()
    call = EXECUTORS[how](GraphArtifact.from_bytes(artifact(schedule(program, typical("cpu"))).to_bytes()))
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


def test_threads_have_arenas_of_their_own(how: str) -> None:
    program, inputs, _ = mlp()
    call = run(how, program)
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


def test_operators_that_make_their_results(how: str) -> None:
    bx = buffer("x", 6, 9)
    values, places = buffer("values", 6, 3), buffer("places", 6, 3, dtype="i64")
    doubled = buffer("doubled", 6, 3)
    nodes = (
        Extern("topk", "aten.topk.default", (whole(bx), 3), (("sorted", True),), (values, places), taken=(0, 1)),
        pointwise(doubled, "add", values, values),
    )
    call = run(how, Program("top", "cpu", (bx,), nodes, (whole(doubled), whole(places))))
    x = torch.randn(6, 9)
    out, index = call([x])
    assert torch.equal(out, x.topk(3)[0] * 2) and torch.equal(index, x.topk(3)[1])


def test_mutated_inputs_change(how: str) -> None:
    """How often a write counts is the program's affair: the runtime around the graph tells autograd."""
    bx, by = buffer("x", 10), buffer("y", 10)
    program = Program("bump", "cpu", (bx, by), (pointwise(bx, "add", bx, by),), (), ("x",))
    call = run(how, program)
    x, y = torch.randn(10), torch.randn(10)
    expected = x + y
    assert call([x, y]) == ()
    assert torch.equal(x, expected) and not x._version


def test_inputs_may_start_inside_their_storage(how: str) -> None:
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
    call = run(how, Program("inside", "cpu", (bx,), nodes, (whole(out),)))
    x = torch.randn(50)[7:27].view(4, 5)
    torch.testing.assert_close(call([x])[0], x[:, 1:3] @ x[:2, 2:5])
